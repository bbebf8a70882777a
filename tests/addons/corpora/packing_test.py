import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.addons.corpora.packing import pack_rows
from bert_tf.addons.study.inspect_records import unpacked_columns
from bert_tf.instances.creation import Buffers, Instances
from bert_tf.instances.masking import random_stream
from bert_tf.instances.settings import STATIC_MASKING, InstanceSettings


def pack(lengths, predictions=None, *, tokens=10, slots=99, sequences=99, seed=1):
    lengths = np.array(lengths, np.int64)
    if predictions is None:
        predictions = np.zeros_like(lengths)
    order, starts = pack_rows(
        lengths,
        np.array(predictions, np.int64),
        random_stream(seed),
        max_tokens=tokens,
        max_predictions=slots,
        max_sequences=sequences,
    )
    return [order[a:b].tolist() for a, b in itertools.pairwise(starts)]


def as_lengths(rows, lengths):
    return sorted(sorted(lengths[sequence] for sequence in row) for row in rows)


class PackRowsTest(tf.test.TestCase, parameterized.TestCase):
    def test_best_fit_by_hand(self):
        # Of four classes (to 2, 4, 7 and 10 tokens) the longest first: 9 and 8 open
        # rows, 7 and 5 others; 3 fits best beside the 7, 2 beside the 8, 1 beside the
        # 9.
        lengths = [1, 8, 5, 2, 3, 9, 7]
        self.assertEqual(
            as_lengths(pack(lengths), lengths), [[1, 9], [2, 8], [3, 7], [5]]
        )

    def test_room_for_predictions_and_sequences(self):
        lengths = [3, 3, 3]
        self.assertLen(pack(lengths, [2, 2, 2], slots=6), 1)
        rows = pack(lengths, [2, 2, 2], slots=5)
        self.assertEqual(as_lengths(rows, lengths), [[3], [3, 3]])
        self.assertLen(pack(lengths, sequences=3), 1)
        self.assertEqual(as_lengths(pack(lengths, sequences=2), lengths), [[3], [3, 3]])
        self.assertLen(pack(lengths, sequences=1), 3)

    def test_a_row_behind_one_without_room_for_predictions_is_found(self):
        # Rows of [8] with 0, 3 and 0 predictions left: the 2 goes to the second one.
        lengths, predictions = [8, 8, 8, 2], [3, 0, 3, 1]
        rows = pack(lengths, predictions, slots=3)
        self.assertIn([1, 3], [sorted(row) for row in rows])

    @parameterized.parameters(range(6))
    def test_each_sequence_lands_once_and_nothing_overflows(self, seed):
        rng = np.random.default_rng(seed)
        count, tokens = int(rng.integers(1, 3000)), int(rng.integers(5, 600))
        lengths = rng.integers(1, tokens + 1, count)
        if seed % 2:
            lengths = np.minimum(lengths, rng.integers(1, tokens + 1, count) // 3 + 1)
        predictions = np.maximum(1, lengths * 15 // 100)
        slots, sequences = int(predictions.max() + 2), int(rng.integers(1, 20))
        rows = pack(
            lengths, predictions, tokens=tokens, slots=slots, sequences=sequences
        )
        self.assertEqual(sorted(itertools.chain(*rows)), list(range(count)))
        for row in rows:
            self.assertBetween(len(row), 1, sequences)
            self.assertLessEqual(lengths[row].sum(), tokens)
            self.assertLessEqual(predictions[row].sum(), slots)


# Three instances; row 0 has the last and the first, row 1 has the second one.
BUFFERS = Buffers(
    tokens=np.array([2, 7, 3, 2, 8, 3, 9, 3, 2, 3, 4, 3], np.uint16),
    stops=np.array([3, 8, 12]),
    first_lengths=np.array([3, 3, 2], np.int32),
    next_sentence_labels=np.array([1, 0, 1], np.uint8),
    prediction_stops=np.array([1, 3, 4]),
    positions=np.array([1, 1, 3, 2], np.int32),
    labels=np.array([7, 8, 9, 6], np.uint16),
)
NUMBERS, STARTS = np.array([2, 0, 1]), np.array([0, 2, 3])
ROWS = {
    "input_ids": [[2, 3, 4, 3, 2, 7, 3, 0], [2, 8, 3, 9, 3, 0, 0, 0]],
    "input_mask": [[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 0, 0]],
    "segment_ids": [[0, 0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0, 0]],
    "sequence_ids": [[1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 0, 0, 0]],
    "cls_positions": [[0, 4, 0, 0], [0, 0, 0, 0]],
    "next_sentence_labels": [[1, 1, 0, 0], [0, 0, 0, 0]],
    "next_sentence_weights": [[1, 1, 0, 0], [1, 0, 0, 0]],
    "masked_lm_positions": [[2, 5, 0, 0], [1, 3, 0, 0]],
    "masked_lm_ids": [[6, 7, 0, 0], [8, 9, 0, 0]],
    "masked_lm_weights": [[1, 1, 0, 0], [1, 1, 0, 0]],
}


def instances(masking=STATIC_MASKING):
    return Instances(
        buffers=BUFFERS,
        order=np.arange(3),
        settings=InstanceSettings(masking=masking),
        num_documents=1,
        num_left_out=0,
        num_cut=0,
    )


class PackedRowsTest(tf.test.TestCase):
    def test_rows_by_hand(self):
        settings = InstanceSettings(
            max_seq_length=8, max_predictions_per_seq=4, packed_length=8
        )
        columns = instances().rows(NUMBERS, STARTS, settings)
        self.assertEqual(columns.keys(), ROWS.keys())
        for name, values in ROWS.items():
            self.assertAllEqual(columns[name], values, name)
        part = instances().rows(NUMBERS, STARTS[1:], settings)
        for name, values in ROWS.items():
            self.assertAllEqual(part[name], values[1:], name)

    def test_the_way_back(self):
        rows = {name: np.array(values) for name, values in ROWS.items()}
        columns, of_rows, numbers = unpacked_columns(rows)
        self.assertAllEqual(of_rows, [0, 0, 1])
        self.assertAllEqual(numbers, [0, 1, 0])
        (expected,) = instances().blocks(3)
        for name, values in expected.items():
            width = columns[name].shape[1]
            self.assertAllEqual(columns[name], values[NUMBERS, :width], name)
