"""What predicted labels are worth."""

import collections
import itertools
from collections.abc import Sequence

import numpy as np

from bert_tf.metrics import entities
from bert_tf.metrics.entities import Labels
from bert_tf.tagging.schemes import NO_SCHEME

LOSS = "loss"
ACCURACY = "accuracy"
MAJORITY = "majority"
STRICT = "strict_"
_ENTITY_SCORES = ("precision", "recall", "f1")


def metric_names(scheme: str) -> list[str]:
    """The scores' names, the one that runs are compared by last."""
    if scheme == NO_SCHEME:
        return [LOSS, ACCURACY]
    strict = [STRICT + name for name in _ENTITY_SCORES if _has_strict(scheme)]
    return [LOSS, ACCURACY, *strict, *_ENTITY_SCORES]


def scores(
    golds: Sequence[Labels],
    predictions: Sequence[Labels],
    scheme: str,
    *,
    losses: np.ndarray,
    accuracy: float,
    majority: float,
) -> dict[str, float]:
    """Scores the labels of sentences."""
    results = {
        LOSS: float(losses.mean()) if len(losses) else 0.0,
        ACCURACY: accuracy,
        MAJORITY: majority,
    }
    if scheme == NO_SCHEME:
        return results
    readings: dict[str, str | None] = {STRICT: scheme} if _has_strict(scheme) else {}
    for prefix, reading in {**readings, "": None}.items():
        counts = entities.total(
            entities.count_entities(golds, predictions, reading).values()
        )
        for name in _ENTITY_SCORES:
            results[prefix + name] = getattr(counts, name)
    return results


def accuracy(golds: Sequence[Labels], predictions: Sequence[Labels]) -> float:
    """The share of words that have the right label."""
    words, correct = _words(golds, predictions)
    return correct / words


def majority(golds: Sequence[Labels]) -> float:
    """The accuracy of always giving the most frequent label."""
    counts = collections.Counter(itertools.chain.from_iterable(golds))
    return max(counts.values()) / counts.total()


def report(golds: Sequence[Labels], predictions: Sequence[Labels]) -> str:
    """The entities' scores by type, as the official scorer prints them."""
    return entities.report(
        entities.count_entities(golds, predictions), *_words(golds, predictions)
    )


def _has_strict(scheme: str) -> bool:
    return scheme in entities.STRICT_SCHEMES


def _words(golds: Sequence[Labels], predictions: Sequence[Labels]) -> tuple[int, int]:
    """How many words there are, and how many have the right label."""
    correct = sum(
        gold == predicted
        for pair in zip(golds, predictions, strict=True)
        for gold, predicted in zip(*pair, strict=True)
    )
    return sum(map(len, golds)), correct
