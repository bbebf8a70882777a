"""Statistics of records: figures worked out by hand, and merging."""

import numpy as np
import tensorflow as tf

from bert_tf.records.statistics import RecordStatistics

MASK_ID = 4

# [CLS] is 2 and [SEP] is 3. Tokens: 6 (4 and 2), 8 (5 and 3), 3 (one segment).
# Predicted: [MASK] for 11, 9 kept; [MASK] for 7, 12 for 6, [MASK] for 5; none.
COLUMNS = {
    "input_ids": np.array(
        [[2, 7, 4, 3, 9, 3, 0, 0], [2, 4, 12, 4, 3, 6, 8, 3], [2, 6, 3, 0, 0, 0, 0, 0]]
    ),
    "input_mask": np.array(
        [[1, 1, 1, 1, 1, 1, 0, 0], [1] * 8, [1, 1, 1, 0, 0, 0, 0, 0]]
    ),
    "segment_ids": np.array(
        [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1], [0] * 8]
    ),
    "masked_lm_positions": np.array([[2, 4, 0], [1, 2, 3], [0, 0, 0]]),
    "masked_lm_ids": np.array([[11, 9, 0], [7, 6, 5], [0, 0, 0]]),
    "masked_lm_weights": np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]], np.float32),
    "next_sentence_labels": np.array([[1], [0], [1]]),
}


def statistics_of(columns, mask_id=MASK_ID, max_seq_length=8):
    statistics = RecordStatistics(max_seq_length=max_seq_length, mask_id=mask_id)
    statistics.add(columns)
    return statistics


def rows_of(columns, rows):
    return {name: values[rows] for name, values in columns.items()}


class FiguresTest(tf.test.TestCase):
    def test_of_three_records(self):
        figures = statistics_of(COLUMNS).figures()
        histogram = figures.pop("length_histogram")
        self.assertEqual(
            histogram,
            [{"from": n, "to": n, "records": int(n in (3, 6, 8))} for n in range(1, 9)],
        )
        self.assertAllClose(
            figures,
            {
                "records": 3,
                "tokens": 17,
                "padding_share": 7 / 24,
                "max_seq_length": 8,
                "length_mean": 17 / 3,
                "length_min": 3,
                "length_max": 8,
                "single_segment_share": 1 / 3,
                "random_next_share": 2 / 3,
                "predictions": 5,
                "predictions_mean": 5 / 3,
                "predictions_min": 0,
                "predictions_max": 3,
                "predicted_share": 5 / 9,  # 17 tokens, 3 [CLS], 5 [SEP]
                "predicted_share_with_special_tokens": 5 / 17,
                "masked_share": 3 / 5,
                "random_share": 1 / 5,
                "kept_share": 1 / 5,
            },
        )

    def test_without_the_id_of_mask(self):
        figures = statistics_of(COLUMNS, mask_id=None).figures()
        self.assertAllClose(figures["replaced_share"], 4 / 5)
        self.assertAllClose(figures["kept_share"], 1 / 5)
        self.assertNotIn("masked_share", figures)

    def test_bins_of_lengths(self):
        # 128 in 16 bins: 1-8, 9-16, ...; 100 in bins of 6 or 7.
        for length, max_seq_length, low, high in (
            (1, 128, 1, 8),
            (8, 128, 1, 8),
            (9, 128, 9, 16),
            (128, 128, 121, 128),
            (7, 100, 1, 7),
            (8, 100, 8, 13),
            (100, 100, 95, 100),
        ):
            mask = (np.arange(max_seq_length) < length)[None].astype(np.int64)
            statistics = statistics_of(
                {"input_ids": mask, "input_mask": mask, "segment_ids": 0 * mask},
                max_seq_length=max_seq_length,
            )
            (filled,) = [
                bin_
                for bin_ in statistics.figures()["length_histogram"]
                if bin_["records"]
            ]
            self.assertEqual((filled["from"], filled["to"]), (low, high))

    def test_nothing_and_nonsense_are_no_crash(self):
        statistics = statistics_of(rows_of(COLUMNS, slice(0, 0)))
        self.assertEqual(statistics.figures()["records"], 0)
        self.assertNotEmpty(statistics.lines())
        broken = {
            **COLUMNS,
            "masked_lm_positions": np.array([[-5, 99, 2**40]] * 3),
            "input_mask": np.full((3, 8), 9),
        }
        self.assertEqual(statistics_of(broken).figures()["predictions"], 5)


class MergeTest(tf.test.TestCase):
    def test_parts_in_any_order_are_the_whole(self):
        whole = statistics_of(COLUMNS)
        for order in ([[0], [1], [2]], [[2], [0, 1]], [[1, 2], [0]]):
            merged = RecordStatistics(max_seq_length=8, mask_id=MASK_ID)
            added = RecordStatistics(max_seq_length=8, mask_id=MASK_ID)
            for rows in order:
                merged.merge(statistics_of(rows_of(COLUMNS, rows)))
                added.add(rows_of(COLUMNS, rows))
            self.assertEqual(merged, whole)
            self.assertEqual(added, whole)


class LinesTest(tf.test.TestCase):
    def test_for_people(self):
        text = "\n".join(statistics_of(COLUMNS).lines())
        for expected in (
            "records            3\n",
            "tokens             17; 29.2% of all places are padding",
            "5.7 on average, 3 to 8 of 8",
            "          3             1  33.3% " + "#" * 40 + "\n",
            "          4             0   0.0%\n",
            "5; 1.7 a record on average, 0 to 3",
            "55.56% of the tokens (29.41% counting [CLS] and [SEP])",
            "60.0% replaced by [MASK], 20.0% by another token, 20.0% kept",
            "66.7% random",
            "33.3% of records",
        ):
            self.assertIn(expected, text)
