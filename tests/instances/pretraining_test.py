"""The whole procedure against a plain one on strings, over many settings."""

import random

import tensorflow as tf

from bert_tf.instances.pretraining import InstanceSettings, create_instances
from bert_tf.instances.token_ids import TokenIds
from bert_tf.text.vocabulary import Vocabulary
from tests.instances.plain_pretraining import plain_instances

# A duplicate ("the") keeps its last id, and random words come from the ordered keys.
TOKENS = (
    ["[PAD]", "the", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "##ly"]
    + [f"w{number}" for number in range(30)]
    + [f"##p{number}" for number in range(15)]
)
IDS = TokenIds.from_vocabulary(Vocabulary(TOKENS).ids)


def corpus(seed, num_documents, num_sentences, num_tokens):
    """Documents of token strings; up to so many sentences and tokens."""
    rng = random.Random(seed)
    words = [token for token in TOKENS if token[0] != "[" or token == "[UNK]"]
    return [
        [
            [rng.choice(words) for _ in range(rng.randint(1, num_tokens))]
            for _ in range(rng.randint(1, num_sentences))
        ]
        for _ in range(num_documents)
    ]


class CreateInstancesTest(tf.test.TestCase):
    def assert_same(self, documents, **changes):
        settings = InstanceSettings(**changes)
        ids = {token: number for number, token in enumerate(TOKENS)}
        expected = plain_instances(documents, TOKENS, vars(settings))
        instances = create_instances(
            [[[ids[token] for token in line] for line in doc] for doc in documents],
            IDS,
            settings,
        )
        self.assertEqual(len(instances), len(expected))
        for instance, plain in zip(instances, expected, strict=True):
            self.assertEqual(
                instance.input_ids, [ids[token] for token in plain["tokens"]]
            )
            self.assertEqual(instance.masked_lm_positions, plain["positions"])
            self.assertEqual(
                instance.masked_lm_ids, [ids[token] for token in plain["labels"]]
            )
            self.assertEqual(instance.is_random_next, plain["is_random_next"])
            features = instance.features(settings)
            length = len(plain["tokens"])
            self.assertEqual(features["segment_ids"][:length], plain["segment_ids"])
        return instances

    def test_over_seeds_lengths_and_passes(self):
        for seed in range(4):
            for length in (16, 64, 128):
                for dupe_factor in (1, 3):
                    self.assert_same(
                        corpus(seed, 7, 12, 15),
                        random_seed=seed,
                        max_seq_length=length,
                        dupe_factor=dupe_factor,
                    )

    def test_whole_words(self):
        for seed in range(4):
            self.assert_same(
                corpus(seed, 7, 12, 15), random_seed=seed, do_whole_word_mask=True
            )
            self.assert_same(
                corpus(seed, 5, 12, 15),
                random_seed=seed,
                do_whole_word_mask=True,
                max_predictions_per_seq=2,
                max_seq_length=32,
            )

    def test_one_document_gives_random_sentences_of_itself(self):
        instances = self.assert_same(corpus(1, 1, 40, 12), max_seq_length=32)
        self.assertTrue(any(instance.is_random_next for instance in instances))

    def test_documents_of_one_short_sentence_are_all_random(self):
        instances = self.assert_same(corpus(2, 9, 1, 2))
        self.assertTrue(all(instance.is_random_next for instance in instances))

    def test_sentences_longer_than_a_sequence_are_cut(self):
        for length in (5, 6, 20):
            instances = self.assert_same(corpus(3, 4, 6, 150), max_seq_length=length)
            self.assertLessEqual(max(len(i.input_ids) for i in instances), length)

    def test_always_and_never_short(self):
        for short_seq_prob in (0.0, 1.0):
            self.assert_same(corpus(4, 5, 20, 10), short_seq_prob=short_seq_prob)

    def test_many_predictions(self):
        self.assert_same(
            corpus(5, 5, 20, 10), masked_lm_prob=1.0, max_predictions_per_seq=200
        )

    def test_progress_counts_documents_of_all_passes(self):
        steps = []
        create_instances(
            [[[7, 8]], [[9]]],
            IDS,
            InstanceSettings(dupe_factor=3),
            steps.append,
        )
        self.assertEqual(steps, [1] * 6)

    def test_the_callers_documents_keep_their_order(self):
        documents = [[[number]] for number in range(7, 20)]
        before = list(documents)
        create_instances(documents, IDS, InstanceSettings())
        self.assertEqual(documents, before)

    def test_no_document(self):
        with self.assertRaisesRegex(ValueError, "at least one document"):
            create_instances([], IDS, InstanceSettings())


class FeaturesTest(tf.test.TestCase):
    def test_padding_by_hand(self):
        settings = InstanceSettings(
            max_seq_length=8, max_predictions_per_seq=2, dupe_factor=1
        )
        instances = create_instances([[[7], [8]]], IDS, settings)
        first = next(i for i in instances if len(i.input_ids) == 5)
        features = first.features(settings)
        self.assertEqual(features["input_mask"], [1, 1, 1, 1, 1, 0, 0, 0])
        self.assertEqual(features["segment_ids"], [0, 0, 0, 1, 1, 0, 0, 0])
        self.assertEqual(features["masked_lm_weights"], [1.0, 0.0])
        self.assertEqual(features["masked_lm_positions"][1], 0)
        self.assertEqual(features["masked_lm_ids"][1], 0)
        self.assertEqual(features["input_ids"][5:], [0, 0, 0])
        self.assertEqual(
            features["next_sentence_labels"], [1 if first.is_random_next else 0]
        )


class InstanceSettingsTest(tf.test.TestCase):
    def test_ranges(self):
        for name, value, rule in (
            ("max_seq_length", 4, "at least 5"),
            ("max_predictions_per_seq", 0, "at least 1"),
            ("dupe_factor", 0, "at least 1"),
            ("masked_lm_prob", 0.0, r"\(0, 1\]"),
            ("masked_lm_prob", 1.5, r"\(0, 1\]"),
            ("short_seq_prob", -0.1, r"\[0, 1\]"),
        ):
            with self.assertRaisesRegex(
                ValueError, f"`{name}` must be .*{rule}.*{value}"
            ):
                InstanceSettings(**{name: value})


if __name__ == "__main__":
    tf.test.main()
