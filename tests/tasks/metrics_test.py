import numpy as np
import tensorflow as tf
from scipy import stats

from bert_tf.tasks import metrics
from bert_tf.tasks.metrics import (
    METRICS_OF,
    glue_average,
    pearson_and_spearman,
    scores,
)


class CorrelationTest(tf.test.TestCase):
    def test_by_hand(self):
        # Deviations (-1, 0, 1) and (-2, 1, 1): 3 / sqrt(2 * 6); ranks 1 2 3 and
        # 1 2.5 2.5: 1.5 / sqrt(2 * 1.5).
        pearson, spearman = pearson_and_spearman([1, 2, 3], [0, 3, 3])
        self.assertAllClose([pearson, spearman], [0.8660254, 0.8660254])
        pearson, spearman = pearson_and_spearman([1, 2, 10], [1, 2, 3])
        self.assertAllClose(spearman, 1.0)
        self.assertAllClose(pearson, 9 / (2 * 146 / 3) ** 0.5)

    def test_nearly_constant_predictions(self):
        rng = np.random.default_rng(5)
        predictions = (2.5 + 1e-5 * rng.normal(size=50)).astype(np.float32)
        labels = rng.uniform(0, 5, 50).astype(np.float32)
        pearson, _ = pearson_and_spearman(predictions, labels)
        # What scipy 1.x says of these numbers in float64; in float32 0.07846695.
        self.assertAllClose(pearson, 0.07848076147856116, rtol=1e-10)


class ScoresTest(tf.test.TestCase):
    def test_two_classes_by_hand(self):
        # 3 of 1 found, 1 of 1 missed, 2 of 0 taken for 1, 4 of 0 right.
        labels = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
        predictions = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]
        self.assertAllClose(
            scores(
                ["accuracy", "precision", "recall", "f1", "matthews_correlation"],
                predictions,
                labels,
            ),
            {
                "accuracy": 0.7,
                "precision": 3 / 5,
                "recall": 3 / 4,
                "f1": 2 / 3,
                # (3 * 4 - 2 * 1) / sqrt(5 * 4 * 6 * 5)
                "matthews_correlation": 10 / 600**0.5,
            },
        )

    def test_three_classes_by_hand(self):
        # Class 0: 2 found of 2, 1 false: F1 0.8. Class 1: 1 of 2, none false: 2/3.
        # Class 2: 0 of 1, 1 false: 0.
        labels, predictions = [0, 0, 1, 1, 2], [0, 0, 1, 2, 0]
        found = scores(["accuracy", "f1_macro", "f1_micro"], predictions, labels)
        self.assertAllClose(
            found, {"accuracy": 0.6, "f1_macro": (0.8 + 2 / 3) / 3, "f1_micro": 0.6}
        )

    def test_several_labels_by_hand(self):
        labels = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]])
        predictions = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]])
        # Right 2, missed 1, false 1; labels' F1: 1, 1 and 0.
        self.assertAllClose(
            scores(["f1_micro", "f1_macro", "exact_match"], predictions, labels),
            {"f1_micro": 2 / 3, "f1_macro": 2 / 3, "exact_match": 1 / 3},
        )

    def test_numbers_by_hand(self):
        labels = np.array([1.0, 2.0, 3.0, 4.0])
        predictions = np.array([1.0, 2.0, 3.0, 10.0])
        # Deviations from the means 2.5 and 4: covariance 14, squares 5 and 50.
        found = scores(
            ["pearson", "spearman", "mean_squared_error"], predictions, labels
        )
        self.assertAllClose(
            found,
            {"pearson": 14 / 250**0.5, "spearman": 1.0, "mean_squared_error": 9.0},
        )
        # Of several numbers: the mean; the second one's order is the reverse.
        both = scores(
            ["pearson", "spearman"],
            np.stack([predictions, -labels], axis=1),
            np.stack([labels, labels], axis=1),
        )
        self.assertAllClose(both, {"pearson": (14 / 250**0.5 - 1) / 2, "spearman": 0.0})

    def test_constant_predictions(self):
        found = scores(["matthews_correlation", "f1", "accuracy"], [0, 0, 0], [0, 1, 0])
        self.assertAllClose(
            found, {"matthews_correlation": 0.0, "f1": 0.0, "accuracy": 2 / 3}
        )
        self.assertEqual(
            scores(["pearson", "spearman"], [2.0, 2.0], [1.0, 3.0]),
            {"pearson": 0.0, "spearman": 0.0},
        )
        self.assertEqual(scores(["f1"], [0, 0], [0, 0]), {"f1": 0.0})
        # Of one example:
        self.assertEqual(
            scores(METRICS_OF["regression"], [1.0], [3.0]),
            {"pearson": 0.0, "spearman": 0.0, "mean_squared_error": 4.0},
        )

    def test_what_cannot_be_scored(self):
        with self.assertRaisesRegex(ValueError, "one example at least"):
            scores(["accuracy"], [], [])
        with self.assertRaisesRegex(ValueError, "same shape"):
            scores(["accuracy"], [1, 0], [[1], [0]])


def published(row):
    """Scores of a row of the released table of small models, task by task."""
    numbers = [[float(x) for x in cell.split("/")] for cell in row.split()]
    cola, sst, mrpc, sts, qqp, mnli, mismatched, qnli, rte, wnli, _ = numbers
    return {
        "CoLA": {"matthews_correlation": cola[0]},
        "SST-2": {"accuracy": sst[0]},
        "MRPC": {"f1": mrpc[0], "accuracy": mrpc[1]},
        "STS-B": {"pearson": sts[0], "spearman": sts[1]},
        "QQP": {"f1": qqp[0], "accuracy": qqp[1]},
        "MNLI": {"accuracy": mnli[0], "accuracy_mismatched": mismatched[0]},
        "QNLI": {"accuracy": qnli[0]},
        "RTE": {"accuracy": rte[0]},
        "WNLI": {"accuracy": wnli[0]},
    }


class AverageTest(tf.test.TestCase):
    def test_the_servers_averages_of_released_models(self):
        # What the GLUE server gave BERT-Mini, -Small and -Medium (the table of
        # google-research/bert's README); its average counts WNLI.
        for row, average in (
            ("0.0 85.9 81.1/71.8 75.4/73.3 66.4/86.2 74.8 74.3 84.1 57.9 62.3 26.1",
             65.8),
            ("27.8 89.7 83.4/76.2 78.8/77.0 68.1/87.0 77.6 77.0 86.4 61.8 62.3 28.6",
             71.2),
            ("38.0 89.6 86.6/81.6 80.4/78.4 69.6/87.9 80.0 79.1 87.7 62.2 62.3 30.5",
             73.5),
        ):  # fmt: skip
            found = glue_average(published(row))
            self.assertNear(found, average, 0.05)

    def test_of_two_tasks(self):
        by_task = {"MRPC": {"f1": 0.9, "accuracy": 0.7}, "RTE": {"accuracy": 0.6}}
        self.assertAlmostEqual(glue_average(by_task), 0.7)


class TrialsTest(tf.test.TestCase):
    def test_expected_best_by_hand(self):
        # Of two draws from 1, 2, 4: the largest is 1 in 1 of 9, 2 in 3, 4 in 5.
        found = metrics.expected_best([4.0, 1.0, 2.0])
        self.assertAllClose(found, [7 / 3, 27 / 9, (1 + 2 * 7 + 4 * 19) / 27])

    def test_paired_by_seed(self):
        one, other = {1: 0.5, 2: 0.7, 3: 0.6, 9: 0.1}, {1: 0.6, 2: 0.75, 3: 0.72}
        expected = stats.ttest_rel([0.5, 0.7, 0.6], [0.6, 0.75, 0.72]).pvalue
        found = metrics.paired_test(one, other)
        self.assertAllClose(found.p_value, expected)
        # 0.1, 0.05, 0.12: mean 0.09, deviation 0.0361; 4.3027 is t's with 2 degrees.
        half = 4.3027 * 0.03605551 / 3**0.5
        self.assertAllClose(found[1:], [0.09 - half, 0.09 + half], rtol=1e-4)
        # Two seeds that agree are one of the four ways that two signs can fall, twice.
        for second in (3.5, 3.5 + 1e-13):
            found = metrics.paired_test({1: 2.0, 2: 3.0}, {1: 2.5, 2: second})
            self.assertEqual(found.p_value, 0.5)
            self.assertTrue(np.isnan(found[1:]).all())
        self.assertEqual(metrics.paired_test(one, one).p_value, 1.0)
        self.assertTrue(np.isnan(metrics.paired_test(one, {1: 0.6})).all())
