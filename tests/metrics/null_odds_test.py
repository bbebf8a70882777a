import math

import tensorflow as tf

from bert_tf.metrics.null_odds import best_threshold, precision_recall

# By null odd: right, an invention, half right, right, an invention.
HAS_ANSWER = {"e": False, "c": True, "a": True, "d": True, "b": False}
TEXTS = dict.fromkeys("abcde", "text")
EXACT = {"a": 1, "b": 0, "c": 0, "d": 1, "e": 0}
F1 = {"a": 1.0, "b": 0, "c": 0.5, "d": 1.0, "e": 0}
NULL_ODDS = {"c": -1.0, "a": -3.0, "b": -2.0, "e": 2.0, "d": 0.5}


class BestThresholdTest(tf.test.TestCase):
    def test_by_hand(self):
        # Answering none: 2 of 5. Then 3, 2, 2, 3, 2: the first 3 is the best.
        self.assertEqual(
            best_threshold(HAS_ANSWER, TEXTS, EXACT, NULL_ODDS), (60.0, -3.0)
        )
        # 3, 2, 2.5, 3.5, 2.5.
        self.assertEqual(best_threshold(HAS_ANSWER, TEXTS, F1, NULL_ODDS), (70.0, 0.5))

    def test_an_empty_text_is_no_answer_at_any_threshold(self):
        # 3, 3, 3.5, 4.5, 3.5.
        found = best_threshold(HAS_ANSWER, {**TEXTS, "b": ""}, F1, NULL_ODDS)
        self.assertEqual(found, (90.0, 0.5))

    def test_equal_null_odds_are_told_apart_as_the_official_search_does(self):
        has_answer, texts = {"a": True, "b": False}, {"a": "x", "b": "y"}
        for odds, expected in (
            ({"a": 1.0, "b": 1.0}, (100.0, 1.0)),
            ({"b": 1.0, "a": 1.0}, (50.0, 0.0)),
        ):
            self.assertEqual(
                best_threshold(has_answer, texts, {"a": 1, "b": 0}, odds), expected
            )

    def test_where_answering_nothing_is_best_the_threshold_is_0(self):
        found = best_threshold({"a": False}, {"a": "x"}, {"a": 0}, {"a": -5.0})
        self.assertEqual(found, (100.0, 0.0))

    def test_null_odds_of_other_questions_do_not_count(self):
        found = best_threshold(HAS_ANSWER, TEXTS, F1, {"x": -4.0, **NULL_ODDS})
        self.assertEqual(found, (70.0, 0.5))


class PrecisionRecallTest(tf.test.TestCase):
    def test_by_hand(self):
        curve = precision_recall(HAS_ANSWER, F1, {"x": -4.0, **NULL_ODDS})
        self.assertEqual(curve.thresholds, [-math.inf, -3.0, -2.0, -1.0, 0.5, 2.0])
        self.assertAllClose(curve.precisions, [1, 1, 1 / 2, 1.5 / 3, 2.5 / 4, 2.5 / 5])
        self.assertAllClose(curve.recalls, [0, 1 / 3, 1 / 3, 0.5, 2.5 / 3, 2.5 / 3])
        self.assertAllClose(curve.totals, [2 / 5, 3 / 5, 2 / 5, 0.5, 0.7, 0.5])
        # 1 * 1/3 + 1/2 * 1/6 + 5/8 * 1/3
        self.assertAllClose(curve.average_precision, 0.625)

    def test_equal_null_odds_are_one_point(self):
        curve = precision_recall(HAS_ANSWER, F1, {**NULL_ODDS, "b": -3.0})
        self.assertEqual(curve.thresholds, [-math.inf, -3.0, -1.0, 0.5, 2.0])
        self.assertAllClose(curve.precisions, [1, 1 / 2, 1.5 / 3, 2.5 / 4, 2.5 / 5])
        # 1/2 * 1/3 + 1/2 * 1/6 + 5/8 * 1/3
        self.assertAllClose(curve.average_precision, 11 / 24)


if __name__ == "__main__":
    tf.test.main()
