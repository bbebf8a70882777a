"""Packed rows, masked as they are read: each sequence as if it were alone."""

import collections
import random

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.records.dynamic_masking import UNITS, DynamicMasking
from bert_tf.records.pretraining_input import as_packed
from tests.records.dynamic_masking_test import (
    CLS,
    IDS_DYNAMIC_MASKING,
    SEP,
    VOCABULARY,
    batch_of,
    keys,
    random_sequence,
)

# Rows of 60 tokens and 12 slots, of sequences of up to 24 tokens and 4 predictions.
L, P, N, S, LIMIT = 60, 12, 5, 24, 4
SHARE = 0.15


def masking(**options):
    return DynamicMasking(
        IDS_DYNAMIC_MASKING,
        **{
            "max_seq_length": L,
            "max_predictions_per_seq": P,
            "max_sequence_length": S,
            "max_predictions_per_sequence": LIMIT,
            "masked_lm_prob": SHARE,
            "seed": 11,
            **options,
        },
    )


def rows_of(sequences):
    """The sequences in rows, as many as fit, in their order."""
    rows = [[]]
    for tokens in sequences:
        if len(rows[-1]) == N or sum(map(len, rows[-1])) + len(tokens) > L:
            rows.append([])
        rows[-1].append(tokens)
    ids = np.zeros((len(rows), L), np.int32)
    numbers = np.zeros((len(rows), L), np.int32)
    begins = np.zeros((len(rows), N), np.int32)
    weights = np.zeros((len(rows), N), np.float32)
    for row, members in enumerate(rows):
        place = 0
        for number, tokens in enumerate(members):
            begins[row, number], weights[row, number] = place, 1
            end = place + len(tokens)
            ids[row, place:end] = [VOCABULARY.index(token) for token in tokens]
            numbers[row, place:end] = number + 1
            place = end
    batch = {
        "input_ids": ids,
        "input_mask": (ids > 0).astype(np.int32),
        "sequence_ids": numbers,
        "cls_positions": begins,
        "next_sentence_weights": weights,
    }
    return {name: tf.constant(values) for name, values in batch.items()}


class PackedMaskingTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        rng = random.Random(0)
        self.batch = rows_of([random_sequence(rng, S) for _ in range(200)])
        self.num_rows = len(self.batch["input_ids"])

    @parameterized.parameters(*UNITS)
    def test_each_sequence_has_its_share(self, unit):
        masked = masking(unit=unit)(self.batch, keys(range(self.num_rows)))
        before = self.batch["input_ids"].numpy()
        after, positions, labels, weights = (
            masked[name].numpy()
            for name in (
                "input_ids",
                *(f"masked_lm_{n}" for n in ("positions", "ids", "weights")),
            )
        )
        numbers = self.batch["sequence_ids"].numpy()
        num_exact = num_sequences = 0
        for row in range(self.num_rows):
            count = int(weights[row].sum())
            self.assertAllEqual(weights[row], [1] * count + [0] * (P - count))
            chosen = positions[row, :count]
            self.assertTrue((np.diff(chosen) > 0).all())
            self.assertAllEqual(labels[row, :count], before[row, chosen])
            self.assertFalse(np.isin(labels[row, :count], [0, CLS, SEP]).any())
            untouched = np.delete(np.arange(L), chosen)
            self.assertAllEqual(after[row, untouched], before[row, untouched])
            of_sequences = collections.Counter(numbers[row, chosen].tolist())
            for number in range(1, numbers[row].max() + 1):
                length = (numbers[row] == number).sum()
                limit = min(LIMIT, max(1, round(length * SHARE)))
                self.assertLessEqual(of_sequences[number], limit)
                num_exact += of_sequences[number] == limit
                num_sequences += 1
        self.assertEqual(num_sequences, 200)
        # A word may not fit into what is left.
        self.assertGreaterEqual(num_exact, 200 if unit == "piece" else 150)

    @parameterized.parameters(*UNITS)
    def test_a_row_of_one_is_masked_as_a_record(self, unit):
        rng = random.Random(1)
        sequences = [random_sequence(rng, S) for _ in range(300)]
        options = {
            "max_seq_length": S,
            "max_predictions_per_seq": LIMIT,
            "max_sequence_length": None,
            "max_predictions_per_sequence": None,
        }
        batch = batch_of(sequences, S)
        alone = masking(unit=unit, **options)(batch, keys(range(300)))
        packed = masking(unit=unit, **options)(as_packed(batch), keys(range(300)))
        # With one slot a sequence's noise is that of its row.
        for name, values in alone.items():
            self.assertAllEqual(packed[name], values, name)


if __name__ == "__main__":
    tf.test.main()
