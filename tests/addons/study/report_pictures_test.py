import functools
import math

import numpy as np
import tensorflow as tf

from bert_tf.addons.study import report_pictures
from bert_tf.addons.study.report_pictures import (
    Curve,
    confusion_matrix,
    precision_recall,
)
from bert_tf.base.config import MULTI_LABEL, SINGLE_LABEL
from bert_tf.tasks.tables import Target
from tests.drawn import drawn
from tests.tasks.squad.scoring_test import F1, GOLDS, NULL_ODDS

NLI = Target(kind=SINGLE_LABEL, labels=("no", "yes"))


class ConfusionTest(tf.test.TestCase):
    def test_counts(self):
        # A class that nobody has or predicts has a row and a column too.
        target = Target(kind=SINGLE_LABEL, labels=("x", "y", "z"))
        predictions, labels = np.array([0, 1, 1, 0, 1]), np.array([0, 0, 0, 1, 1])
        expected = [[1, 2, 0], [1, 1, 0], [0, 0, 0]]
        self.assertAllEqual(confusion_matrix(target, predictions, labels), expected)
        # x: found, false alarm, rightly not, missed. y: not, found twice, missed.
        target = Target(kind=MULTI_LABEL, labels=("x", "y"))
        predictions = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])
        labels = np.array([[1, 0], [0, 1], [0, 1], [1, 1]])
        self.assertAllEqual(
            confusion_matrix(target, predictions, labels), [[1, 1, 1, 1], [2, 1, 0, 1]]
        )

    def test_the_picture_says_counts_shares_and_labels(self):
        target = Target(kind=SINGLE_LABEL, labels=("$x$ or $", "y"))
        predictions = np.array([0, 1, 1, 1, 0, 0, 1, 1])
        labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])

        def draw():
            return report_pictures.confusion_picture(
                target, predictions, labels, "8 of $dev$"
            )

        texts, content = drawn(draw)
        self.assertContainsSubset(
            {"1\n25.0%", "3\n75.0%", "2\n50.0%", "8 of $dev$", "$x$ or $", "y"}, texts
        )
        self.assertEqual(draw(), content)

    def test_a_large_matrix_has_no_names(self):
        labels = tuple(f"c{i}" for i in range(41))
        target = Target(kind=SINGLE_LABEL, labels=labels)
        ids = np.arange(41)
        draw = functools.partial(
            report_pictures.confusion_picture, target, ids, ids, "dev"
        )
        texts, content = drawn(draw)
        self.assertNotIn("c0", texts)
        # A PNG's width and height are in its first chunk.
        self.assertAllLess(np.frombuffer(content[16:24], ">u4"), 5000)


# The predicted class at 0.91, right; 0.97, wrong; 0.6, right; 0.62, wrong.
PROBABILITIES = np.array([[0.09, 0.91], [0.97, 0.03], [0.6, 0.4], [0.38, 0.62]])
LABELS = np.array([1, 1, 0, 0])


class CalibrationTest(tf.test.TestCase):
    def test_bins_and_error_by_hand(self):
        # Two bins, whose edges are the lower one's: three at 0.4 and 0.5 of which one
        # came true, one at 0.8 that did.
        part = report_pictures.reliability(
            [0.4, 0.4, 0.5, 0.8], [1, 0, 0, 1], num_bins=2
        )
        self.assertAllEqual(part.counts, [3, 1])
        self.assertAllClose(part.confidence, [1.3 / 3, 0.8])
        self.assertAllClose(part.accuracy, [1 / 3, 1])
        # 3/4 |1/3 - 1.3/3| + 1/4 |1 - 0.8|
        self.assertAllClose(part.expected_calibration_error, 0.075 + 0.05)

    def test_the_picture_of_classes(self):
        def draw():
            return report_pictures.calibration_picture(
                NLI, PROBABILITIES, LABELS, "dev"
            )

        texts, content = drawn(draw)
        # (0.4 + 0.62 + 0.09 + 0.97) / 4; 2 * (0.0081 + 0.9409 + 0.16 + 0.3844) / 4
        said = "dev\nexpected calibration error 0.520, Brier score 0.747"
        self.assertIn(said, texts)
        self.assertEqual(draw(), content)

    def test_the_picture_of_labels(self):
        def draw(num_labels):
            names = tuple(f"c$${i}" for i in range(num_labels))
            target = Target(kind=MULTI_LABEL, labels=names)
            labels = np.eye(3, num_labels, dtype=np.int64)
            quarters = np.full(labels.shape, 0.25)
            return report_pictures.calibration_picture(target, quarters, labels, "dev")

        texts, _ = drawn(lambda: draw(3))
        # A third came true of what was said to be a quarter. Each row's squares are
        # 9/16, 1/16 and 1/16.
        self.assertIn("dev\nexpected calibration error 0.083, Brier score 0.229", texts)
        self.assertContainsSubset({"c$$0", "c$$1", "c$$2"}, texts)
        texts, _ = drawn(lambda: draw(11))
        self.assertIn("all labels", texts)


class PicturesTest(tf.test.TestCase):
    CURVE = Curve(
        thresholds=[-math.inf, -3.0, 0.5],
        precisions=[1.0, 1.0, 0.75],
        recalls=[0.0, 0.5, 0.75],
        totals=[0.25, 0.5, 0.75],
        average_precision=0.6875,
    )

    def test_precision_and_recall_over_the_threshold(self):
        def draw():
            return report_pictures.threshold_picture(self.CURVE, 0.5, "5 $questions")

        texts, content = drawn(draw)
        expected = {"5 $questions", "precision of what is answered", "threshold 0.500"}
        expected |= {"recall of the answerable", "score of all questions"}
        self.assertContainsSubset(expected, texts)
        self.assertEqual(draw(), content)
        texts, _ = drawn(
            lambda: report_pictures.precision_recall_picture(self.CURVE, "F1")
        )
        self.assertIn("F1\naverage precision 68.75", texts)

    def test_histogram(self):
        values = {"answerable": [-3.0, -1.0, -2.0, 1e6], "unanswerable": [], "x": [4.0]}
        texts, _ = drawn(
            lambda: report_pictures.histogram_picture(values, "5", threshold=-0.5)
        )
        self.assertContainsSubset({"answerable: 4", "x: 1", "threshold -0.500"}, texts)
        self.assertNotIn("unanswerable: 0", texts)
        # The million is in the last bin, not on the axis.
        self.assertContainsSubset({"−2", "0", "2"}, texts)


class PrecisionRecallTest(tf.test.TestCase):
    def test_by_hand(self):
        curve = precision_recall(GOLDS, F1, {"x": -4.0, **NULL_ODDS})
        self.assertEqual(curve.thresholds, [-math.inf, -3.0, -2.0, -1.0, 0.5, 2.0])
        self.assertAllClose(curve.precisions, [1, 1, 1 / 2, 1.5 / 3, 2.5 / 4, 2.5 / 5])
        self.assertAllClose(curve.recalls, [0, 1 / 3, 1 / 3, 0.5, 2.5 / 3, 2.5 / 3])
        self.assertAllClose(curve.totals, [2 / 5, 3 / 5, 2 / 5, 0.5, 0.7, 0.5])
        # 1 * 1/3 + 1/2 * 1/6 + 5/8 * 1/3
        self.assertAllClose(curve.average_precision, 0.625)
