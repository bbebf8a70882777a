"""GLUE's metrics, and statistics of the scores of several runs."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL

# Scores that several tasks have.
LOSS = "loss"
MAJORITY = "majority"

# Correlations of predicted with true scores, as GLUE reports for STS-B.


def pearson_and_spearman(
    predictions: Sequence[float] | np.ndarray, labels: Sequence[float] | np.ndarray
) -> tuple[float, float]:
    """Returns Pearson's r and Spearman's rho; 0 if one side is constant."""
    from scipy import stats

    # In float32, nearly constant predictions lose the third decimal.
    predictions = np.asarray(predictions, np.float64)
    labels = np.asarray(labels, np.float64)
    if len(predictions) < 2 or np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0, 0.0
    pearson = stats.pearsonr(predictions, labels).statistic
    spearman = stats.spearmanr(predictions, labels).statistic
    return float(pearson), float(spearman)


# The scores of classifiers, as in GLUE, and GLUE's average.
#
# Wang et al. 2018 (GLUE), section 3 and table 1: Matthews correlation for CoLA, F1 of
# class 1 for MRPC and QQP, Pearson and Spearman correlation for STS-B, accuracy.
#
# Shapes: N examples, C outputs.


Metric = Callable[[np.ndarray, np.ndarray], float]

# The suffix of metrics for MNLI's second development set.
MISMATCHED = "_mismatched"


def scores(
    metrics: Sequence[str],
    predictions: Sequence[float] | np.ndarray,
    labels: Sequence[float] | np.ndarray,
) -> dict[str, float]:
    """Returns the scores of predictions by some metrics."""
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or not len(labels):
        raise ValueError(
            "`predictions` and `labels` must have the same shape, and one example at"
            f" least. Received: {predictions.shape} and {labels.shape}"
        )
    return {name: float(METRICS[name](predictions, labels)) for name in metrics}


def glue_average(scores_by_task: Mapping[str, Mapping[str, float]]) -> float:
    """Returns the mean over tasks of their metrics' means, as GLUE's server does."""
    # Wang et al. 2018, section 5; the leaderboard averages all tasks but AX.
    # Devlin et al. 2018 average differently: one metric per task, MNLI's sets as two,
    # no WNLI.
    means = [sum(of.values()) / len(of) for of in scores_by_task.values()]
    return sum(means) / len(means)


def _accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Returns the share of examples with all outputs right."""
    right = predictions == labels
    return right.reshape(len(labels), -1).all(axis=-1).mean()


def _matthews_correlation(predictions: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    return matthews_corrcoef(labels, predictions)


def _of_sklearn(name: str, average: str) -> Metric:
    """Returns F1, precision or recall of class 1 ("binary"), or over all classes."""

    def metric(predictions: np.ndarray, labels: np.ndarray) -> float:
        import sklearn.metrics

        function = getattr(sklearn.metrics, name)
        return function(labels, predictions, average=average, zero_division=0)

    return metric


def _correlation(which: int) -> Metric:
    """Returns Pearson's or Spearman's correlation, averaged over outputs."""

    def metric(predictions: np.ndarray, labels: np.ndarray) -> float:
        shape = (len(labels), -1)
        columns = zip(
            predictions.reshape(shape).T, labels.reshape(shape).T, strict=True
        )
        return float(np.mean([pearson_and_spearman(*each)[which] for each in columns]))

    return metric


def _mean_squared_error(predictions: np.ndarray, labels: np.ndarray) -> float:
    return np.square(predictions - labels).mean(dtype=np.float64)


METRICS: dict[str, Metric] = {
    "accuracy": _accuracy,
    "f1": _of_sklearn("f1_score", "binary"),
    "precision": _of_sklearn("precision_score", "binary"),
    "recall": _of_sklearn("recall_score", "binary"),
    "f1_micro": _of_sklearn("f1_score", "micro"),
    "f1_macro": _of_sklearn("f1_score", "macro"),
    "matthews_correlation": _matthews_correlation,
    "exact_match": _accuracy,
    "pearson": _correlation(0),
    "spearman": _correlation(1),
    "mean_squared_error": _mean_squared_error,
}

# Metrics of class 1 against class 0, undefined for more classes.
OF_TWO_CLASSES = ("f1", "precision", "recall")
# The metrics for each kind of prediction.
METRICS_OF: dict[str, tuple[str, ...]] = {
    SINGLE_LABEL: ("accuracy", "f1_macro", *OF_TWO_CLASSES, "matthews_correlation"),
    MULTI_LABEL: ("f1_micro", "f1_macro", "exact_match"),
    REGRESSION: ("pearson", "spearman", "mean_squared_error"),
}
# The default metrics of a custom data set.
OWN_METRICS: dict[str, tuple[str, ...]] = {
    SINGLE_LABEL: ("accuracy",),
    MULTI_LABEL: ("f1_micro", "f1_macro", "exact_match"),
    REGRESSION: ("pearson", "spearman"),
}


# Scores of several runs, or trials.

LEVEL = 0.95  # confidence level


def expected_best(scores: Sequence[float]) -> list[float]:
    """Returns the expected best of 1, 2, ... trials, if higher scores are better."""
    # Dodge et al. 2019, "Show Your Work", section 3: the expected maximum of n draws
    # from the scores.
    ordered = np.sort(np.asarray(scores, np.float64))
    shares = np.arange(len(ordered) + 1) / len(ordered)
    numbers = range(1, len(ordered) + 1)
    return [float(np.diff(shares**n) @ ordered) for n in numbers]


def mean(scores: Sequence[float]) -> float:
    """Returns the mean; NaN without a score."""
    return statistics.fmean(scores) if scores else math.nan


def standard_deviation(scores: Sequence[float]) -> float:
    """Returns the sample standard deviation; NaN for fewer than two scores."""
    return statistics.stdev(scores) if len(scores) > 1 else math.nan


class PairedTest(NamedTuple):
    """A paired t-test over the seeds of two runs; NaN for fewer than two seeds.

    If all differences are equal, their deviation is unknown: there is no interval, and
    the p-value is the exact sign test's, 2 / 2^n.
    """

    p_value: float = math.nan
    low: float = math.nan  # bounds of the mean difference, at LEVEL
    high: float = math.nan


def paired_test(one: Mapping[Any, float], other: Mapping[Any, float]) -> PairedTest:
    """Tests by how much `other` exceeds `one`, paired by seed."""
    from scipy import stats

    seeds = sorted({*one} & {*other})
    differences = np.array([other[seed] - one[seed] for seed in seeds])
    if len(differences) < 2:
        return PairedTest()
    largest = np.abs(differences).max()
    if np.ptp(differences) <= 1e-9 * largest:  # equal up to rounding
        return PairedTest(2.0 ** (1 - len(differences)) if largest else 1.0)
    found = stats.ttest_1samp(differences, 0.0)
    low, high = found.confidence_interval(LEVEL)
    return PairedTest(float(found.pvalue), float(low), float(high))
