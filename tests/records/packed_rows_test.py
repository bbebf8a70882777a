import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.records.packed_rows import Sequences, row_columns, unpacked_columns

# Three records of 5 places and 2 slots.
COLUMNS = {
    "input_ids": np.array([[2, 7, 3, 0, 0], [2, 8, 3, 9, 3], [2, 3, 4, 3, 0]]),
    "input_mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]),
    "segment_ids": np.array([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 1, 0]]),
    "masked_lm_positions": np.array([[1, 0], [1, 3], [2, 0]]),
    "masked_lm_ids": np.array([[7, 0], [8, 9], [6, 0]]),
    "masked_lm_weights": np.array([[1, 0], [1, 1], [1, 0]], np.float32),
    "next_sentence_labels": np.array([[1], [0], [1]]),
}
# Row 0 has records 2 and 0, row 1 has record 1.
ORDER, STARTS = np.array([2, 0, 1]), np.array([0, 2, 3])
ROWS = {
    "input_ids": [[2, 3, 4, 3, 2, 7, 3, 0], [2, 8, 3, 9, 3, 0, 0, 0]],
    "input_mask": [[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 0, 0]],
    "segment_ids": [[0, 0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0, 0]],
    "sequence_ids": [[1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 0, 0, 0]],
    "cls_positions": [[0, 4, 0], [0, 0, 0]],
    "next_sentence_labels": [[1, 1, 0], [0, 0, 0]],
    "next_sentence_weights": [[1, 1, 0], [1, 0, 0]],
    "masked_lm_positions": [[2, 5, 0, 0], [1, 3, 0, 0]],
    "masked_lm_ids": [[6, 7, 0, 0], [8, 9, 0, 0]],
    "masked_lm_weights": [[1, 1, 0, 0], [1, 1, 0, 0]],
}
WIDTHS = {
    "max_seq_length": 8,
    "max_predictions_per_seq": 4,
    "max_sequences_per_row": 3,
}


def changed(name, value):
    columns = {key: values.copy() for key, values in COLUMNS.items()}
    columns[name][1] = value
    return columns


class PackedRowsTest(tf.test.TestCase):
    def test_rows_by_hand(self):
        sequences = Sequences.from_columns(COLUMNS, "a")
        columns = row_columns(sequences, ORDER, STARTS, **WIDTHS)
        self.assertEqual(columns.keys(), ROWS.keys())
        for name, values in ROWS.items():
            self.assertAllEqual(columns[name], values, name)

    def test_unmasked_rows(self):
        columns = {
            name: values
            for name, values in COLUMNS.items()
            if not name.startswith("masked_lm")
        }
        sequences = Sequences.from_columns(columns, "a")
        rows = row_columns(
            sequences, ORDER, STARTS, **(WIDTHS | {"max_predictions_per_seq": 0})
        )
        self.assertAllEqual(
            sorted(rows), sorted(name for name in ROWS if "masked" not in name)
        )
        self.assertAllEqual(rows["sequence_ids"], ROWS["sequence_ids"])

    def test_a_part_of_the_rows_of_joined_sequences(self):
        first, second = (
            Sequences.from_columns(
                {name: values[part] for name, values in COLUMNS.items()}, "a"
            )
            for part in (slice(2), slice(2, 3))
        )
        joined = Sequences.joined([first, second])
        self.assertLen(joined, 3)
        columns = row_columns(joined, ORDER, STARTS[1:], **WIDTHS)
        for name, values in ROWS.items():
            self.assertAllEqual(columns[name], values[1:], name)

    def test_the_way_back(self):
        rows = {name: np.array(values) for name, values in ROWS.items()}
        columns, of_rows, numbers = unpacked_columns(rows)
        self.assertAllEqual(of_rows, [0, 0, 1])
        self.assertAllEqual(numbers, [0, 1, 0])
        for name, values in COLUMNS.items():
            width = values.shape[1]
            self.assertAllEqual(columns[name][:, :width], values[ORDER], name)
            self.assertAllEqual(columns[name][:, width:].any(), False, name)

    def test_what_no_schema_says_is_refused(self):
        for columns, message in (
            (changed("input_mask", [1, 0, 1, 0, 0]), "must be ones, then zeros"),
            (changed("input_mask", 0), "must be ones, then zeros"),
            (changed("masked_lm_weights", 0.5), "must be ones and zeros"),
            (changed("masked_lm_positions", 5), "must be those of tokens"),
        ):
            with self.assertRaisesRegex(InputError, f"a: .*{message}.*1 records"):
                Sequences.from_columns(columns, "a")


if __name__ == "__main__":
    tf.test.main()
