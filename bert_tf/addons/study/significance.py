"""Tests of whether two models differ by more than chance on the same examples.

- Paired bootstrap (Efron and Tibshirani 1993; for evaluations Koehn 2004): examples are
  drawn with replacement, the same for both; the interval holds 95 % of the differences.
- McNemar's exact test of two accuracies: among the examples that only one model gets
  right, does each model have half? For any other metric, approximate randomization
  (Noreen 1989; Yeh 2000): how often is a difference as large when the answers are
  swapped at random, example by example?

Shapes: N examples, K sums, S samples.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bert_tf.tasks.metrics import LEVEL, pearson_and_spearman

# The most samples times examples that are in memory at once.
_MOST_AT_ONCE = 2**22


# A model's answers to N examples; subsets and mixtures of them have a score.


@dataclasses.dataclass(frozen=True, eq=False)
class Summed:
    """Answers whose score follows from sums over the examples."""

    rows: np.ndarray  # [N, K]
    score: Callable[[np.ndarray], np.ndarray]  # sums [S, K] -> scores [S]
    is_right: bool = False  # whether the rows are 1.0 for a right answer, else 0.0

    def __len__(self) -> int:
        return len(self.rows)

    def drawn(self, counts: np.ndarray) -> np.ndarray:
        """Returns scores [S] with the examples taken `counts` [S, N] times."""
        return self.score(counts @ self.rows)

    def swapped(self, other: Any, mask: np.ndarray) -> np.ndarray:
        """Returns scores [S], with the other answers where `mask` [S, N] is 1."""
        return self.score(self.rows.sum(axis=0) + mask @ (other.rows - self.rows))


@dataclasses.dataclass(frozen=True, eq=False)
class Ranked:
    """Numbers, scored by Spearman's rank correlation with the true ones."""

    predictions: np.ndarray  # [N]
    labels: np.ndarray  # [N]

    def __len__(self) -> int:
        return len(self.labels)

    def drawn(self, counts: np.ndarray) -> np.ndarray:
        """Returns scores [S] of repeated examples: see `Summed.drawn`."""
        rows = (np.repeat(np.arange(len(self.labels)), each) for each in counts)
        return np.array([self._score(self.predictions, row) for row in rows])

    def swapped(self, other: Any, mask: np.ndarray) -> np.ndarray:
        """Returns scores [S] of mixed answers: see `Summed.swapped`."""
        both = np.where(mask, other.predictions, self.predictions)
        every = np.arange(len(self.labels))
        return np.array([self._score(predictions, every) for predictions in both])

    def _score(self, predictions: np.ndarray, rows: np.ndarray) -> float:
        return pearson_and_spearman(predictions[rows], self.labels[rows])[1]


Answers = Summed | Ranked


def answers_of(metric: str, predictions: np.ndarray, labels: np.ndarray) -> Answers:
    """Returns a model's answers, [N] or [N, C], scored by a metric of `metrics`."""
    if metric == "spearman":
        return Ranked(predictions, labels)
    right = (predictions == labels).reshape(len(labels), -1).all(axis=1)
    if metric in ("accuracy", "exact_match"):
        return mean_of(right, is_right=True)
    if metric == "pearson":
        return _pearson(predictions.astype(float), labels.astype(float))
    if metric == "mean_squared_error":
        return mean_of(np.square(predictions.astype(float) - labels))
    return Summed(*_of_classes(metric, predictions, labels))


def mean_of(values: np.ndarray, *, is_right: bool = False) -> Summed:
    """Returns answers whose metric is the mean of one score per example, [N]."""
    rows = values.astype(float)[:, None]
    return Summed(rows, lambda sums: sums[:, 0] / len(rows), is_right)


def counted(counts: np.ndarray) -> Summed:
    """Returns answers with counts [N, 3] of right, predicted and true: micro F1."""
    return Summed(counts.astype(float), lambda sums: _f1(*sums.T))


def _pearson(x: np.ndarray, y: np.ndarray) -> Summed:
    """Returns Pearson's r, from the sums of 1, x, y, x^2, y^2 and x y."""
    # Centred, for the sake of the squares' last digits.
    x, y = x - y.mean(), y - y.mean()

    def score(sums: np.ndarray) -> np.ndarray:
        count, sum_x, sum_y, xx, yy, xy = sums.T
        covariance = xy - sum_x * sum_y / count
        variances = (xx - sum_x**2 / count) * (yy - sum_y**2 / count)
        return _ratio(covariance, np.sqrt(np.maximum(variances, 0.0)))

    return Summed(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1), score)


def _of_classes(
    metric: str, predictions: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Returns F1, precision, recall or Matthews correlation, from counts per class."""
    if labels.ndim == 1:
        classes = np.arange(max(predictions.max(), labels.max(), 1) + 1)
        said, there = (x[:, None] == classes for x in (predictions, labels))
    else:
        said, there = predictions > 0, labels > 0
    num_classes = said.shape[1]
    rows = np.concatenate([said & there, said, there], axis=1).astype(float)

    def score(sums: np.ndarray) -> np.ndarray:
        right, said, there = np.split(sums, 3, axis=1)
        if metric == "matthews_correlation":
            # Gorodkin 2004: the covariance of predictions and labels.
            count = there.sum(axis=1)
            covariance = count * right.sum(axis=1) - (said * there).sum(axis=1)
            variances = [count**2 - (x**2).sum(axis=1) for x in (said, there)]
            return _ratio(covariance, np.sqrt(variances[0] * variances[1]))
        if metric == "f1_micro":
            return _f1(*(x.sum(axis=1) for x in (right, said, there)))
        if metric == "f1_macro":
            # Like scikit-learn, over the classes that are predicted or labelled.
            is_used = (said + there) > 0 if labels.ndim == 1 else np.ones_like(said)
            return _ratio((_f1(right, said, there) * is_used).sum(1), is_used.sum(1))
        of_one = (x[:, min(1, num_classes - 1)] for x in (right, said, there))
        right, said, there = of_one
        if metric == "f1":
            return _f1(right, said, there)
        return _ratio(right, said if metric == "precision" else there)

    return rows, score


def _f1(right: np.ndarray, said: np.ndarray, there: np.ndarray) -> np.ndarray:
    return _ratio(2.0 * right, said + there)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Returns the quotient; 0 where it has none."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


class Comparison(NamedTuple):
    """Two models on the same examples."""

    scores: tuple[float, float]
    interval: tuple[float, float]  # of the second score less the first one
    p_value: float  # of a difference as large by chance

    @property
    def difference(self) -> float:
        """The second score less the first one."""
        return self.scores[1] - self.scores[0]


def compare(
    one: Answers, other: Answers, *, num_samples: int = 10_000, seed: int = 12345
) -> Comparison:
    """Compares two models' answers to the same examples."""
    num_examples = len(one)
    everything = np.ones([1, num_examples], np.int64)
    scores = tuple(float(each.drawn(everything)[0]) for each in (one, other))
    rng = np.random.default_rng(seed)
    share = np.full(num_examples, 1.0 / num_examples)
    drawn, swapped = [], []
    for size in _sizes(num_samples, num_examples):
        counts = rng.multinomial(num_examples, share, size)
        drawn.append(other.drawn(counts) - one.drawn(counts))
        mask = rng.integers(0, 2, (size, num_examples))
        swapped.append(other.swapped(one, mask) - one.swapped(other, mask))
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(np.concatenate(drawn), [tail, 1.0 - tail])
    difference = scores[1] - scores[0]
    as_large = np.abs(np.concatenate(swapped)) >= abs(difference) - 1e-12
    p_value = float((as_large.sum() + 1) / (num_samples + 1))
    if isinstance(one, Summed) and isinstance(other, Summed) and one.is_right:
        p_value = mcnemar(*(each.rows[:, 0] > 0 for each in (one, other)))
    return Comparison((scores[0], scores[1]), (float(low), float(high)), p_value)


def _sizes(num_samples: int, num_examples: int) -> Iterator[int]:
    at_once = max(1, _MOST_AT_ONCE // num_examples)
    for start in range(0, num_samples, at_once):
        yield min(at_once, num_samples - start)


def mcnemar(one_is_right: np.ndarray, other_is_right: np.ndarray) -> float:
    """Returns the p-value of McNemar's exact test."""
    from scipy import stats

    only_one = int((one_is_right & ~other_is_right).sum())
    only_other = int((other_is_right & ~one_is_right).sum())
    if not only_one + only_other:
        return 1.0
    return float(stats.binomtest(only_one, only_one + only_other).pvalue)
