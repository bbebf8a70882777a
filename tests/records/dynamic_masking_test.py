"""Masks as the records are read: by seed, epoch and record, and as static ones are."""

import collections
import functools
import random

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.base.errors import InputError
from bert_tf.instances.masking import masking_of
from bert_tf.instances.settings import PIECE, SPAN, WORD
from bert_tf.records.dynamic_masking import (
    DynamicMasking,
    MaskingOptions,
    neighbour_targets,
)
from bert_tf.records.pipeline import RecordKeys
from bert_tf.records.pretraining_input import as_packed, masking_from
from bert_tf.text.vocabulary import Vocabulary
from tests.instances import plain_pretraining

UNITS = (PIECE, WORD, SPAN)

IDS = [[2, 7, 8, 3, 9, 3], [2, 9, 7, 3, 0, 0]]
BATCH = {
    "input_ids": tf.constant(IDS),
    "input_mask": tf.constant([[1] * 6, [1] * 4 + [0, 0]]),
    "segment_ids": tf.constant([[0, 0, 0, 0, 1, 1], [0] * 6]),
    "next_sentence_labels": tf.constant([[0], [1]]),
}
PACKED = {
    "sequence_ids": tf.constant([[1, 1, 1, 1, 2, 2], [1, 1, 2, 2, 0, 0]]),
    "cls_positions": tf.constant([[0, 4], [0, 2]]),
    "next_sentence_labels": tf.constant([[0, 1], [1, 0]]),
    "next_sentence_weights": tf.ones([2, 2]),
}


class NextTokensTest(tf.test.TestCase):
    def test_by_hand(self):
        batch = neighbour_targets(BATCH, of_left_to_right=True)
        self.assertAllEqual(batch["input_ids"], IDS)
        self.assertAllEqual(
            batch["masked_lm_positions"], [[0, 1, 2, 3, 4], [0, 1, 2, 0, 0]]
        )
        self.assertAllEqual(batch["masked_lm_ids"], [[7, 8, 3, 9, 3], [9, 7, 3, 0, 0]])
        self.assertAllEqual(batch["masked_lm_weights"], [[1] * 5, [1, 1, 1, 0, 0]])

    def test_no_token_follows_from_another_sequence(self):
        batch = neighbour_targets(BATCH | PACKED, of_left_to_right=True)
        self.assertAllEqual(
            batch["masked_lm_weights"], [[1, 1, 1, 0, 1], [1, 0, 1, 0, 0]]
        )
        self.assertAllEqual(batch["masked_lm_ids"], [[7, 8, 3, 0, 3], [9, 0, 3, 0, 0]])

    def test_previous_tokens_by_hand(self):
        batch = neighbour_targets(BATCH, of_left_to_right=False)
        self.assertAllEqual(
            batch["masked_lm_positions"], [[1, 2, 3, 4, 5], [1, 2, 3, 0, 0]]
        )
        self.assertAllEqual(batch["masked_lm_ids"], [[2, 7, 8, 3, 9], [2, 9, 7, 0, 0]])
        batch = neighbour_targets(BATCH | PACKED, of_left_to_right=False)
        self.assertAllEqual(batch["masked_lm_ids"], [[2, 7, 8, 0, 9], [2, 0, 7, 0, 0]])


CLS, SEP, MASK = 2, 3, 4
WORDS = [f"w{number}" for number in range(30)]
PIECES = [f"##p{number}" for number in range(15)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *PIECES]
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


def masking(seed=11, **options):
    options = {
        "unit": PIECE,
        "masked_lm_prob": 0.15,
        "max_predictions_per_seq": P,
        **options,
    }
    mask = DynamicMasking(masking_of(Vocabulary(VOCABULARY), **options), P)
    return functools.partial(mask, seed=seed)


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

    @parameterized.parameters(*UNITS)
    def test_shapes_are_static_in_a_pipeline(self, unit):
        mask = masking(unit=unit)

        def transform(batch, records):
            return mask(batch, RecordKeys(tf.ones_like(records), records))

        dataset = tf.data.Dataset.from_tensor_slices(
            (self.batch, tf.range(200, dtype=tf.int64))
        )
        dataset = dataset.batch(8, drop_remainder=True)
        dataset = dataset.map(transform, num_parallel_calls=4)
        spec = dataset.element_spec
        for name in ("positions", "ids", "weights"):
            self.assertEqual(spec[f"masked_lm_{name}"].shape, (8, P))
        self.assertEqual(spec["input_ids"].shape, (8, L))
        self.assertEqual(spec["masked_lm_ids"].dtype, tf.int32)
        self.assertEqual(spec["masked_lm_positions"].dtype, tf.int32)
        self.assertEqual(spec["masked_lm_weights"].dtype, tf.float32)
        whole = mask(self.batch, keys(range(200)))
        batch = next(iter(dataset.skip(3)))
        self.assertAllEqual(batch["input_ids"], whole["input_ids"][24:32])

    @parameterized.parameters(*UNITS)
    def test_a_row_of_one_is_masked_as_a_record(self, unit):
        alone = masking(unit=unit)(self.batch, keys(range(200)))
        packed = masking(unit=unit)(as_packed(self.batch), keys(range(200)))
        for name, values in alone.items():
            self.assertAllEqual(packed[name], values, name)

    def test_unknown_words_in_the_place_of_blanks(self):
        vocabulary = Vocabulary(VOCABULARY)
        # A random token may be [MASK], too.
        given = {"masking_unit": "piece", "masked_lm_prob": 0.15, "random_rate": 0.0}
        found = {}
        for token in ("[MASK]", "[UNK]"):
            options = MaskingOptions(mask_token=token, **given)
            mask = masking_from(
                options,
                [],
                vocabulary,
                max_seq_length=L,
                max_predictions_per_seq=P,
                max_predictions_per_sequence=P,
            )
            found[token] = mask(self.batch, keys(range(200)), seed=11)
        plain, unknown = (x["input_ids"].numpy() for x in found.values())
        is_mask = plain == vocabulary.mask_id
        self.assertGreater(is_mask.sum(), 100)
        self.assertAllEqual(unknown, np.where(is_mask, vocabulary.unk_id, plain))
        for name in ("masked_lm_ids", "masked_lm_positions"):
            self.assertAllEqual(found["[MASK]"][name], found["[UNK]"][name])

    def test_a_callers_mistakes(self):
        for options, message in (
            ({"masking_unit": "words"}, "`masking_unit=words` must be .*piece"),
            ({"masked_lm_prob": 0.0}, "`masked_lm_prob=0.0` must be"),
            ({"mask_rate": 0.95}, "`random_rate` must be at most 1 together"),
            ({"random_rate": -0.1}, "`random_rate=-0.1` must be"),
        ):
            with self.assertRaisesRegex(InputError, message):
                MaskingOptions(**options)


class SameDistributionTest(tf.test.TestCase, parameterized.TestCase):
    """One sequence masked many times, by us and by a plain Python procedure."""

    COUNT = 10_000
    # A long word at each end, one over the [SEP], lonely pieces between.
    SENTENCE = (
        "[CLS] w0 ##p0 ##p1 w1 w2 ##p2 w3 w4 w5 [SEP] ##p3 w6 w7 ##p4 w8 w9 ##p5 ##p6"
        " ##p7 [SEP]"
    )
    TOKENS = tuple(SENTENCE.split())

    def treatment(self, position, token):
        is_same = token == VOCABULARY.index(self.TOKENS[position])
        return "mask" if token == MASK else "same" if is_same else "other"

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
                    kind = self.treatment(position, token)
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

    def test_spans_spend_the_same_and_their_random_tokens_differ(self):
        treatments = collections.Counter()
        equal = pairs = 0
        for positions, shown in self.dynamic("span"):
            # round(0.2 x 21) = 4 tokens; the words on offer always fill them.
            self.assertLen(positions, 4)
            kinds = [
                self.treatment(*each) for each in zip(positions, shown, strict=True)
            ]
            treatments.update(kinds)
            for place, kind in enumerate(kinds[:-1]):
                first, second = positions[place : place + 2]
                is_piece = self.TOKENS[second].startswith("##") and second == first + 1
                if kind == "other" and is_piece:
                    pairs += 1
                    equal += shown[place] == shown[place + 1]
        total = sum(treatments.values())
        # Tokens of a span agree, so these vary more than 40,000 draws would.
        self.assertAllClose(treatments["mask"] / total, 0.8, atol=0.02)
        self.assertAllClose(treatments["same"] / total, 0.1, atol=0.02)
        self.assertGreater(pairs, 300)
        self.assertLess(equal / pairs, 0.1)
