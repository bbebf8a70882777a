import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import stats

from bert_tf.addons.study import significance
from bert_tf.base.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.tasks import metrics


def examples(kind, count=60, num_classes=3, seed=0):
    """Predictions of two models, and labels, in the form that metrics take."""
    rng = np.random.default_rng(seed)
    if kind == REGRESSION:
        labels = rng.normal(size=count)
        return [labels + scale * rng.normal(size=count) for scale in (0.5, 1.0)], labels
    shape = (count, num_classes) if kind == MULTI_LABEL else (count,)
    most = 2 if kind == MULTI_LABEL else num_classes
    labels = rng.integers(0, most, shape)
    models = [
        np.where(rng.random(shape) < right, labels, rng.integers(0, most, shape))
        for right in (0.6, 0.4)
    ]
    return models, labels


CASES = [
    (kind, metric, classes)
    for kind, names in metrics.METRICS_OF.items()
    for metric in names
    for classes in ((2,) if metric in metrics.OF_TWO_CLASSES else (2, 4))
]


class AnswersTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*CASES)
    def test_scores_are_those_of_the_metrics(self, kind, metric, classes):
        (one, other), labels = examples(kind, num_classes=classes)
        answers, others = (
            significance.answers_of(metric, each, labels) for each in (one, other)
        )
        rng = np.random.default_rng(1)
        counts = rng.multinomial(len(labels), np.full(len(labels), 1 / len(labels)), 5)
        mask = rng.integers(0, 2, (5, len(labels)))
        drawn, swapped = answers.drawn(counts), answers.swapped(others, mask)
        for number in range(5):
            rows = np.repeat(np.arange(len(labels)), counts[number])
            expected = metrics.scores([metric], one[rows], labels[rows])[metric]
            self.assertAllClose(drawn[number], expected, rtol=1e-9, atol=1e-9)
            is_other = mask[number].reshape((-1,) + (1,) * (one.ndim - 1))
            mixed = np.where(is_other, other, one)
            expected = metrics.scores([metric], mixed, labels)[metric]
            self.assertAllClose(swapped[number], expected, rtol=1e-9, atol=1e-9)


class CompareTest(tf.test.TestCase):
    def test_interval_is_that_of_scipys_bootstrap(self):
        rng = np.random.default_rng(0)
        one, other = rng.random(80), rng.random(80) + 0.1
        found = significance.compare(
            significance.mean_of(one), significance.mean_of(other), num_samples=20_000
        )
        expected = stats.bootstrap(
            (other - one,), np.mean, n_resamples=20_000, method="percentile", rng=1
        ).confidence_interval
        self.assertAllClose(found.interval, tuple(expected), atol=0.004)
        self.assertAllClose(found.difference, (other - one).mean())

    def test_randomization_is_scipys_permutation_test(self):
        rng = np.random.default_rng(3)
        one, other = rng.random(10), rng.random(10) + 0.2
        found = significance.compare(
            significance.mean_of(one), significance.mean_of(other), num_samples=50_000
        )
        exact = stats.permutation_test(
            (one, other),
            lambda x, y, axis: np.mean(y - x, axis=axis),
            permutation_type="samples",
            n_resamples=np.inf,
            vectorized=True,
        )
        self.assertAllClose(found.p_value, exact.pvalue, atol=0.01)

    def test_mcnemar_by_hand(self):
        # One alone is right once, the other one 8 times: 2 (1 + 9) / 2^9.
        one = np.array([True] + [False] * 8 + [True] * 5)
        other = np.array([False] + [True] * 13)
        self.assertAlmostEqual(significance.mcnemar(one, other), 20 / 512)
        self.assertEqual(significance.mcnemar(one, one), 1.0)
        found = significance.compare(
            *(significance.mean_of(each, is_right=True) for each in (one, other))
        )
        self.assertAlmostEqual(found.p_value, 20 / 512)

    def test_same_seed_same_numbers(self):
        (one, other), labels = examples(SINGLE_LABEL, count=2000)
        both = [
            significance.answers_of("f1_macro", each, labels) for each in (one, other)
        ]
        first, again = (significance.compare(*both, num_samples=5000) for _ in "12")
        self.assertEqual(first, again)
