"""Masks as the records are read: by seed, epoch and record, and as static ones are."""

import collections
import random

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.instances import masking as static_masking
from bert_tf.instances.creation import TokenIds
from bert_tf.records import dynamic_masking
from bert_tf.records.dynamic_masking import UNITS, DynamicMasking
from bert_tf.records.pipeline import RecordKeys
from tests.instances import plain_pretraining

CLS, SEP, MASK = 2, 3, 4
WORDS = [f"w{number}" for number in range(30)]
PIECES = [f"##p{number}" for number in range(15)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *PIECES]
IDS = TokenIds.from_vocabulary({token: n for n, token in enumerate(VOCABULARY)})
L, P = 24, 5


def random_sequence(rng, length=L):
    """[CLS] A [SEP] B [SEP], a third of it pieces that go on with a word."""
    num_tokens = rng.randint(6, length)
    tokens = [
        rng.choice(PIECES) if rng.random() < 1 / 3 else rng.choice(WORDS)
        for _ in range(num_tokens)
    ]
    tokens[0], tokens[-1] = "[CLS]", "[SEP]"
    tokens[rng.randint(2, num_tokens - 3)] = "[SEP]"
    return tokens


def batch_of(sequences, length=L):
    ids = np.zeros((len(sequences), length), np.int32)
    for row, tokens in enumerate(sequences):
        ids[row, : len(tokens)] = [VOCABULARY.index(token) for token in tokens]
    return {
        "input_ids": tf.constant(ids),
        "input_mask": tf.constant((ids > 0).astype(np.int32)),
        "next_sentence_labels": tf.zeros([len(sequences), 1], tf.int32),
    }


def masking(**options):
    options = {
        "max_seq_length": L,
        "max_predictions_per_seq": P,
        "seed": 11,
        **options,
    }
    return DynamicMasking(IDS, **options)


def keys(records, epoch=1):
    records = tf.constant(records, tf.int64)
    return RecordKeys(tf.fill(records.shape, tf.constant(epoch, tf.int64)), records)


class DynamicMaskingTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        rng = random.Random(0)
        self.sequences = [random_sequence(rng) for _ in range(200)]
        self.batch = batch_of(self.sequences)

    @parameterized.parameters(*UNITS)
    def test_the_batch_is_one_of_masked_records(self, unit):
        masked = masking(unit=unit)(self.batch, keys(range(200)))
        self.assertIs(
            masked["next_sentence_labels"], self.batch["next_sentence_labels"]
        )
        self.assertIs(masked["input_mask"], self.batch["input_mask"])
        before = self.batch["input_ids"].numpy()
        after = masked["input_ids"].numpy()
        num_replaced = 0
        for row, tokens in enumerate(self.sequences):
            positions = masked["masked_lm_positions"][row].numpy()
            labels = masked["masked_lm_ids"][row].numpy()
            weights = masked["masked_lm_weights"][row].numpy()
            count = int(weights.sum())
            self.assertAllEqual(weights, [1.0] * count + [0.0] * (P - count))
            self.assertAllEqual(positions[count:], [0] * (P - count))
            self.assertAllEqual(labels[count:], [0] * (P - count))
            self.assertAllEqual(labels[:count], before[row, positions[:count]])
            self.assertEqual(sorted(set(positions[:count])), list(positions[:count]))
            # 24 tokens at the most: round(0.15 n) is 1, 2, 3 or 4, all below P.
            wanted = max(1, round(0.15 * len(tokens)))
            if unit == "piece":
                self.assertEqual(count, wanted)
            self.assertBetween(count, 0, wanted)
            for position, (old, new) in enumerate(
                zip(before[row], after[row], strict=True)
            ):
                if position not in positions[:count]:
                    self.assertEqual(old, new)
                else:
                    self.assertNotIn(VOCABULARY[old], ("[CLS]", "[SEP]", "[PAD]"))
                    num_replaced += old != new
        self.assertGreater(num_replaced, 100)

    @parameterized.parameters(*UNITS)
    def test_masks_are_a_function_of_seed_epoch_and_record(self, unit):
        mask = masking(unit=unit)
        whole = mask(self.batch, keys(range(200)))
        # One by one, and all in another order.
        for row in range(3):
            one = {name: value[row : row + 1] for name, value in self.batch.items()}
            for name, value in mask(one, keys([row])).items():
                self.assertAllEqual(value[0], whole[name][row])
        order = np.random.default_rng(0).permutation(200)
        shuffled = {name: tf.gather(value, order) for name, value in self.batch.items()}
        for name, value in mask(shuffled, keys(order)).items():
            self.assertAllEqual(value, tf.gather(whole[name], order))
        for other in (
            mask(self.batch, keys(range(200), epoch=2)),
            mask(self.batch, keys(range(200, 400))),
            masking(unit=unit, seed=12)(self.batch, keys(range(200))),
        ):
            same = np.all(
                other["masked_lm_positions"] == whole["masked_lm_positions"], axis=1
            )
            # Sequences of six tokens have one prediction in a few places.
            self.assertLess(same.mean(), 0.25)

    def test_rates(self):
        everything = {"mask_rate": 0.0, "random_rate": 0.0, "masked_lm_prob": 1.0}
        masked = masking(**everything)(self.batch, keys(range(200)))
        self.assertAllEqual(masked["input_ids"], self.batch["input_ids"])
        masked = masking(**(everything | {"mask_rate": 1.0}))(
            self.batch, keys(range(200))
        )
        marks = (masked["input_ids"].numpy() == MASK).sum(axis=1)
        wanted = [
            min(P, sum(t not in ("[CLS]", "[SEP]") for t in tokens))
            for tokens in self.sequences
        ]
        self.assertAllEqual(marks, wanted)

    def test_how_many_are_chosen_is_what_static_masking_says(self):
        for share, most in ((0.15, 20), (0.5, 7), (0.01, 3), (1.0, 99), (0.35, 40)):
            limits = masking(
                max_seq_length=130, masked_lm_prob=share, max_predictions_per_seq=most
            )._limits
            self.assertAllEqual(
                limits,
                [static_masking.num_predictions(n, share, most) for n in range(131)],
            )

    def test_rates_are_those_of_static_masking(self):
        self.assertEqual(dynamic_masking.MASK_RATE, static_masking.MASK_RATE)
        self.assertAlmostEqual(
            dynamic_masking.RANDOM_RATE,
            (1 - static_masking.MASK_RATE) * (1 - static_masking.KEEP_RATE_OF_REST),
        )

    def test_more_slots_than_tokens(self):
        masked = masking(max_predictions_per_seq=40, masked_lm_prob=1.0)(
            self.batch, keys(range(200))
        )
        self.assertEqual(masked["masked_lm_positions"].shape, (200, 40))
        candidates = [len(tokens) - 3 for tokens in self.sequences]
        self.assertAllEqual(masked["masked_lm_weights"].numpy().sum(1), candidates)

    @parameterized.parameters(*UNITS)
    def test_shapes_are_static_and_no_python_runs_in_a_pipeline(self, unit):
        mask = masking(unit=unit)
        names = []

        def transform(batch, records):
            masked = mask(batch, keys_of(records))
            graph = tf.compat.v1.get_default_graph()
            names.extend(operation.type for operation in graph.get_operations())
            return masked

        def keys_of(records):
            return RecordKeys(tf.ones_like(records), records)

        dataset = tf.data.Dataset.from_tensor_slices(
            (self.batch, tf.range(200, dtype=tf.int64))
        )
        dataset = dataset.batch(8, drop_remainder=True).map(transform)
        spec = dataset.element_spec
        for name in ("positions", "ids", "weights"):
            self.assertEqual(spec[f"masked_lm_{name}"].shape, (8, P))
        self.assertEqual(spec["input_ids"].shape, (8, L))
        self.assertEqual(spec["masked_lm_ids"].dtype, tf.int32)
        self.assertEqual(spec["masked_lm_positions"].dtype, tf.int32)
        self.assertEqual(spec["masked_lm_weights"].dtype, tf.float32)
        self.assertNotIn("PyFunc", " ".join(names))
        whole = mask(self.batch, keys(range(200)))
        batch = next(iter(dataset.skip(3)))
        self.assertAllEqual(batch["input_ids"], whole["input_ids"][24:32])

    def test_a_callers_mistakes(self):
        for options, message in (
            ({"unit": "words"}, "`unit` must be one of piece, word, span.*'words'"),
            ({"max_predictions_per_seq": 0}, "at least 1. Received: 0"),
            ({"masked_lm_prob": 0.0}, r"in \(0, 1\]. Received: 0.0"),
            ({"mask_rate": 0.95}, "more than 1 together. Received: 0.95 and 0.1"),
            ({"random_rate": -0.1}, "must not be negative.*-0.1"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                masking(**options)


class SameDistributionTest(tf.test.TestCase, parameterized.TestCase):
    """One sequence masked many times, by us and by a plain Python procedure."""

    COUNT = 10_000
    # A long word at each end, one over the [SEP], lonely pieces between.
    SENTENCE = (
        "[CLS] w0 ##p0 ##p1 w1 w2 ##p2 w3 w4 w5 [SEP] ##p3 w6 w7 ##p4 w8 w9 ##p5 ##p6"
        " ##p7 [SEP]"
    )
    TOKENS = tuple(SENTENCE.split())

    def static(self, whole_word):
        rng = random.Random(1)
        settings = {
            "masked_lm_prob": 0.2,
            "max_predictions_per_seq": P,
            "do_whole_word_mask": whole_word,
        }
        for _ in range(self.COUNT):
            shown, positions, _ = plain_pretraining.mask(
                self.TOKENS, VOCABULARY, settings, rng
            )
            yield positions, [VOCABULARY.index(shown[p]) for p in positions]

    def dynamic(self, unit):
        mask = masking(unit=unit, masked_lm_prob=0.2)
        batch = {
            name: tf.repeat(value, self.COUNT, axis=0)
            for name, value in batch_of([self.TOKENS]).items()
        }
        masked = mask(batch, keys(range(self.COUNT)))
        masked = {name: value.numpy() for name, value in masked.items()}
        for row in range(self.COUNT):
            count = int(masked["masked_lm_weights"][row].sum())
            positions = masked["masked_lm_positions"][row][:count].tolist()
            yield positions, masked["input_ids"][row][positions].tolist()

    def assert_same_shares(self, ours, theirs):
        """Chi-square of two samples, at one in ten thousand."""
        rows = np.array(
            [
                [counts[outcome] for outcome in ours | theirs]
                for counts in (ours, theirs)
            ],
            np.float64,
        )
        rows = rows[:, rows.sum(axis=0) >= 20]
        totals = rows.sum(axis=1, keepdims=True)
        expected = rows.sum(axis=0) * totals / totals.sum()
        chi_square = ((rows - expected) ** 2 / expected).sum()
        degrees = rows.shape[1] - 1
        # Wilson and Hilferty's approximation; 3.72 is the normal quantile.
        spread = 2 / (9 * degrees)
        limit = degrees * (1 - spread + 3.72 * spread**0.5) ** 3
        self.assertLess(chi_square, limit)

    @parameterized.parameters("piece", "word")
    def test_as_static_masking(self, unit):
        samples = (self.dynamic(unit), self.static(unit == "word"))
        sets, places, treatments, tokens = [
            [collections.Counter() for _ in samples] for _ in range(4)
        ]
        for sample, draws in enumerate(samples):
            for positions, shown in draws:
                places[sample].update(positions)
                sets[sample][tuple(positions)] += 1
                for position, token in zip(positions, shown, strict=True):
                    old = VOCABULARY.index(self.TOKENS[position])
                    kind = (
                        "mask" if token == MASK else "same" if token == old else "other"
                    )
                    treatments[sample][kind] += 1
                    if kind == "other":
                        tokens[sample][token] += 1
        for counts in (sets, places, treatments, tokens):
            self.assert_same_shares(*counts)
        # The first and the last token are among the places, and [CLS] is a token that
        # may stand in for another.
        self.assertGreater(places[0][1], 500)
        self.assertGreater(places[0][len(self.TOKENS) - 2], 100)
        self.assertLen(tokens[0], len(VOCABULARY) - 1)

    def test_pieces_of_a_word_are_treated_one_by_one_and_a_span_as_one(self):
        def kinds(unit):
            """Whether each token of one word or span is [MASK], by sequence."""
            for positions, shown in self.dynamic(unit):
                if {14, 13} <= set(positions):
                    both = [shown[positions.index(p)] == MASK for p in (13, 14)]
                    yield both[0] == both[1]

        agreements = list(kinds("word"))
        # 0.8 x 0.8 + 0.2 x 0.2 = 0.68, over some 1,700 words.
        self.assertGreater(len(agreements), 1000)
        self.assertAllClose(np.mean(agreements), 0.68, atol=0.05)
        agreements = list(kinds("span"))
        self.assertGreater(len(agreements), 1000)
        # The two are one word, so always of one span; a random token may be [MASK].
        self.assertGreater(np.mean(agreements), 0.99)

    def test_spans_spend_the_same_and_their_random_tokens_differ(self):
        treatments = collections.Counter()
        equal = pairs = 0
        for positions, shown in self.dynamic("span"):
            # round(0.2 x 21) = 4 tokens; the words on offer always fill them.
            self.assertLen(positions, 4)
            for position, token in zip(positions, shown, strict=True):
                old = VOCABULARY.index(self.TOKENS[position])
                treatments[
                    "mask" if token == MASK else "same" if token == old else "other"
                ] += 1
            for first, token, second, other in zip(
                positions, shown, positions[1:], shown[1:], strict=False
            ):
                is_random = token not in (MASK, VOCABULARY.index(self.TOKENS[first]))
                if (
                    is_random
                    and self.TOKENS[second].startswith("##")
                    and second == first + 1
                ):
                    pairs += 1
                    equal += token == other
        total = sum(treatments.values())
        # Tokens of a span agree, so these vary more than 40,000 draws would.
        self.assertAllClose(treatments["mask"] / total, 0.8, atol=0.02)
        self.assertAllClose(treatments["same"] / total, 0.1, atol=0.02)
        self.assertGreater(pairs, 300)
        self.assertLess(equal / pairs, 0.1)


if __name__ == "__main__":
    tf.test.main()
