"""The whole procedure against a plain one on strings, over many settings."""

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.instances import creation
from bert_tf.instances.creation import create_instances, token_dtype
from bert_tf.instances.masking import random_stream
from bert_tf.instances.settings import InstanceSettings
from bert_tf.text.vocabulary import Vocabulary
from tests.instances.plain_pretraining import as_record, documents_of, plain_instances

# A duplicate ("the") keeps its last id, and random words come from the ordered keys.
TOKENS = (
    ["[PAD]", "the", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "##ly"]
    + [f"w{number}" for number in range(30)]
    + [f"##p{number}" for number in range(15)]
)
VOCABULARY = Vocabulary(TOKENS)


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


def as_documents(documents, dtype=np.uint16):
    ids = {token: number for number, token in enumerate(TOKENS)}
    return documents_of(
        [[[ids[token] for token in line] for line in doc] for doc in documents], dtype
    )


class CutTokensTest(tf.test.TestCase):
    def test_tokens_of_long_sentences_that_no_instance_has(self):
        # Two documents of a long sentence each, all of whose tokens differ, and a
        # short one.
        vocabulary = Vocabulary([*TOKENS[:6], *(f"w{n}" for n in range(100))])
        documents = documents_of(
            [[[*range(10, 50)], [5, 6]], [[7, 8, 9], [*range(50, 80)]]], np.uint16
        )
        for pairs in ("nsp", "sop", "none"):
            settings = InstanceSettings(
                max_seq_length=16, dupe_factor=2, pairs=pairs, masking="dynamic"
            )
            instances = create_instances(documents, vocabulary, settings)
            (block,) = instances.blocks(1000)
            seen = set(block["input_ids"].flatten().tolist())
            unseen = set(range(10, 80)) - seen
            self.assertEqual(instances.num_cut, len(unseen))
            self.assertEqual(bool(unseen), pairs != "none")

    def test_without_long_sentences(self):
        documents = documents_of([[[5, 6, 7]] * 9] * 3, np.uint16)
        settings = InstanceSettings(max_seq_length=16, dupe_factor=1)
        self.assertEqual(create_instances(documents, VOCABULARY, settings).num_cut, 0)


class CreateInstancesTest(tf.test.TestCase):
    def assert_same(self, documents, dtype=np.uint16, **changes):
        settings = InstanceSettings(**changes)
        expected = plain_instances(documents, TOKENS, vars(settings))
        instances = create_instances(
            as_documents(documents, dtype), VOCABULARY, settings
        )
        self.assertLen(instances, len(expected))
        plain = iter(expected)
        sizes = settings.max_seq_length, settings.max_predictions_per_seq
        for block in instances.blocks(7):
            for row in range(len(block["input_ids"])):
                found = {name: column[row].tolist() for name, column in block.items()}
                self.assertEqual(found, as_record(next(plain), TOKENS, *sizes))
        return expected

    def test_over_settings(self):
        for number, (shape, changes) in enumerate(
            (
                ((7, 12, 15), {"max_seq_length": 16}),
                ((7, 12, 15), {"max_seq_length": 64, "dupe_factor": 3}),
                ((7, 12, 15), {"random_seed": 3, "dupe_factor": 3}),
                ((7, 12, 15), {"do_whole_word_mask": True}),
                (
                    (5, 12, 15),
                    {
                        "do_whole_word_mask": True,
                        "max_predictions_per_seq": 2,
                        "max_seq_length": 32,
                    },
                ),
                # One document gives random sentences of itself.
                ((1, 40, 12), {"max_seq_length": 32}),
                # Sentences longer than a sequence are cut.
                ((4, 6, 150), {"max_seq_length": 5}),
                ((4, 6, 150), {"max_seq_length": 20}),
                ((5, 20, 10), {"short_seq_prob": 0.0}),
                ((5, 20, 10), {"short_seq_prob": 1.0}),
                ((5, 20, 10), {"masked_lm_prob": 1.0, "max_predictions_per_seq": 200}),
                # More instances than are made at a time.
                ((60, 40, 3), {"max_seq_length": 6, "dupe_factor": 15}),
            )
        ):
            with self.subTest(shape, **changes):
                self.assert_same(corpus(number, *shape), **changes)

    @pytest.mark.slow
    def test_a_large_vocabulary(self):
        self.assert_same(corpus(1, 7, 12, 15), dtype=np.int32)
        self.assertEqual(token_dtype(65536), np.uint16)
        self.assertEqual(token_dtype(65537), np.int32)

    def test_documents_of_one_short_sentence_are_all_random(self):
        expected = self.assert_same(corpus(2, 9, 1, 2))
        self.assertTrue(all(plain["is_random_next"] for plain in expected))


class DynamicMaskingTest(tf.test.TestCase):
    def test_the_pairs_of_a_pass_unmasked(self):
        documents = corpus(7, 9, 12, 15)
        words = {token for document in documents for line in document for token in line}
        instances = create_instances(
            as_documents(documents),
            VOCABULARY,
            InstanceSettings(masking="dynamic", dupe_factor=1, max_seq_length=32),
        )
        self.assertNotIn("masked_lm_ids", next(instances.blocks(3)))
        for block in instances.blocks(7):
            for ids, mask in zip(block["input_ids"], block["input_mask"], strict=True):
                tokens = [TOKENS[i] for i in ids[: mask.sum()]]
                self.assertContainsSubset(tokens, words | {"[CLS]", "[SEP]"})
                self.assertEqual(tokens.count("[SEP]"), 2)


class FullSentencesTest(tf.test.TestCase):
    def packed(self, documents, **changes):
        settings = {
            "pairs": "none",
            "masking": "dynamic",
            "short_seq_prob": 0.0,
            "dupe_factor": 1,
            **changes,
        }
        instances = create_instances(
            documents_of(documents), VOCABULARY, InstanceSettings(**settings)
        )
        found = []
        for block in instances.blocks(5):
            self.assertAllEqual(block["segment_ids"], 0 * block["segment_ids"])
            self.assertAllEqual(
                block["next_sentence_labels"], [[0]] * len(block["input_ids"])
            )
            for ids, mask in zip(block["input_ids"], block["input_mask"], strict=True):
                found.append(ids[: mask.sum()].tolist())
        return sorted(found)

    def test_by_hand(self):
        # [CLS] is 3, [SEP] is 4. Two documents of two sentences, 8 places: the first
        # sentence of the second document does not fit with its [SEP].
        self.assertIn(
            self.packed([[[10, 11], [12]], [[20], [21]]], max_seq_length=8),
            # By the order of the two documents in the pool.
            (
                [[3, 10, 11, 12, 4, 20, 21, 4]],
                [[3, 12, 4], [3, 20, 21, 4, 10, 11, 4]],
            ),
        )

    def test_a_sentence_longer_than_a_sequence_is_cut(self):
        self.assertEqual(
            self.packed([[[10, 11, 12, 13, 14, 15, 16], [17]]], max_seq_length=5),
            [[3, 10, 11, 12, 4], [3, 13, 14, 15, 4], [3, 16, 17, 4]],
        )

    def test_every_token_once_a_pass(self):
        documents = [
            [[number] * (number % 7 + 1) for number in range(10, 45)] for _ in range(6)
        ]
        for length in (5, 16, 64):
            for short_seq_prob in (0.0, 0.7):
                sequences = self.packed(
                    documents,
                    max_seq_length=length,
                    short_seq_prob=short_seq_prob,
                    dupe_factor=2,
                )
                self.assertLessEqual(max(map(len, sequences)), length)
                tokens = sorted(t for ids in sequences for t in ids if t > 5)
                wanted = sorted(t for doc in documents for s in doc for t in s)
                self.assertEqual(tokens, sorted(wanted * 2))
                for ids in sequences:
                    self.assertNotIn((4, 4), list(itertools.pairwise(ids)))


class ExactLabelsTest(tf.test.TestCase):
    def test_lone_tokens_are_left_out_and_counted(self):
        instances = create_instances(
            documents_of([[[10]], [[11, 12]], [[13, 14]]]),
            VOCABULARY,
            InstanceSettings(nsp_labels="exact", dupe_factor=4),
        )
        self.assertLen(instances, 8)
        self.assertEqual(instances.num_left_out, 4)


# Sentence pairs on corpora small enough to say the answer.


class Corpus:
    """Documents of sentences of token ids, cut by one of the kinds of pairs."""

    def __init__(self, *documents):
        self.documents = documents_of(documents)
        self.order = np.arange(len(documents))

    def all_pairs(self, kind, seed, *, document=0, target=10):
        """(A, B, label) of each pair of a document."""
        stream = random_stream(seed)
        sentence, stop = self.documents.document_starts[document : document + 2]
        result = []
        while sentence < stop:
            pair = creation.neighbour_pair(
                self.documents, self.order, document, sentence, target, kind, stream
            )
            sentence = pair.next_sentence
            result.append(self.segments(pair))
        return result

    def segments(self, pair):
        tokens = self.documents.tokens
        return (
            tokens[pair.first_start : pair.first_stop].tolist(),
            tokens[pair.second_start : pair.second_stop].tolist(),
            int(pair.label),
        )


class ExactNextSentencePairTest(tf.test.TestCase):
    kind = creation.EXACT_NEXT

    def test_lone_sentences_and_tokens(self):
        labels = []
        for seed in range(800):
            ((a, b, label),) = Corpus([[1, 2, 3]], [[9]]).all_pairs(self.kind, seed)
            self.assertIn(a, ([1], [1, 2]))
            self.assertEqual(b, [9] if label else [1, 2, 3][len(a) :])
            labels.append(label)
        # The original would call all of them random.
        self.assertNear(np.mean(labels), 0.5, 0.08)
        self.assertEqual(Corpus([[1]], [[9]]).all_pairs(self.kind, 0), [([], [], 0)])

    def test_labels_say_what_is_so(self):
        first = [[number, number + 1] for number in range(0, 400, 2)]
        corpus = Corpus(first, [[5000]] * 9, [[6000]] * 9)
        for seed in range(5):
            result = corpus.all_pairs(self.kind, seed, target=7)
            for a, b, label in result:
                if label:
                    self.assertGreaterEqual(min(b), 5000)
                else:
                    self.assertEqual(b[0], a[-1] + 1)
            self.assertNear(np.mean([label for *_, label in result]), 0.5, 0.25)


class PreviousOrNextPairTest(tf.test.TestCase):
    def test_a_third_each_and_labels_true(self):
        first = [[number] for number in range(400)]
        corpus = Corpus(first, [[5000]] * 9, [[6000]] * 9)
        labels = []
        for seed in range(5):
            pairs_of = corpus.all_pairs(creation.PREVIOUS, seed, target=7)
            for a, b, label in pairs_of:
                labels.append(label)
                if label == 1:
                    self.assertGreaterEqual(min(b), 5000)
                elif label == 2:
                    self.assertEqual(a[0], b[-1] + 1)
                else:
                    self.assertEqual(b[0], a[-1] + 1)
        shares = np.bincount(labels, minlength=3) / len(labels)
        self.assertAllClose(shares, [1 / 3] * 3, atol=0.08)


class SentenceOrderPairTest(tf.test.TestCase):
    kind = creation.ORDER

    def test_every_sentence_is_used_once(self):
        corpus = Corpus([[number] for number in range(1000)])
        labels = []
        for seed in range(10):
            tokens = []
            for a, b, label in corpus.all_pairs(self.kind, seed):
                tokens += b + a if label else a + b
                labels.append(label)
            self.assertEqual(tokens, list(range(1000)))
        # About 1,000 pairs: four standard deviations are 0.06.
        self.assertNear(np.mean(labels), 0.5, 0.06)
