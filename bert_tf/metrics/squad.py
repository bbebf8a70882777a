"""Exact match and F1 of SQuAD 1.1 and 2.0, to the last digit of the official scripts.

Rajpurkar et al. 2016 (evaluate-v1.1.py) and 2018 (evaluate-v2.0.py). Texts are compared
without case, ASCII punctuation, articles and surplus blanks; a question's score is the
best over its gold answers. The two versions differ in more than the unanswerable:

    two texts that nothing is left of    F1 is 0 in 1.1, 1 in 2.0
    a question without a prediction      scores 0 in 1.1; 2.0 has no result for the file
    a gold answer nothing is left of     counts in 1.1; 2.0 passes over it, and where
                                         no other one is left, "" is right
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.errors import InputError
from bert_tf.metrics.null_odds import (
    BestThresholds,
    Curve,
    best_threshold,
    precision_recall,
)

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:an?|the)\b")


class Gold(NamedTuple):
    """What is right for a question.

    Attributes:
        texts: the annotators' answers; none for an unanswerable question.
        has_answer: whether the file has answers for it.
    """

    texts: tuple[str, ...]
    has_answer: bool


Golds = Mapping[str, Gold]


class Scores(NamedTuple):
    """Each question's scores, 0 to 1, before null odds have a say."""

    exact: dict[str, float]
    f1: dict[str, float]


def normalize_answer(text: str) -> str:
    """A text in lower case, without punctuation (ASCII's), articles, surplus blanks."""
    words = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION))
    return " ".join(words.split())


def exact_match(prediction: str, gold: str) -> bool:
    """Whether two texts are the same when normalized."""
    return normalize_answer(prediction) == normalize_answer(gold)


def f1(prediction: str, gold: str, *, of_nothing: int = 0) -> float:
    """The harmonic mean of precision and recall over the words of normalized texts."""
    return _f1(normalize_answer(prediction), normalize_answer(gold), of_nothing)


def _f1(prediction: str, gold: str, of_nothing: int) -> float:
    predicted, right = prediction.split(), gold.split()
    if not predicted and not right:
        return of_nothing
    common = (Counter(predicted) & Counter(right)).total()
    if not common:
        return 0
    precision, recall = common / len(predicted), common / len(right)
    return 2 * precision * recall / (precision + recall)


def _best(
    prediction: str, golds: Sequence[str], of_nothing: int, question_id: str
) -> tuple[int, float]:
    """(exact match, F1), each the best over gold answers."""
    if not isinstance(prediction, str):
        raise InputError(
            f"The prediction for question {question_id} must be a text. Received:"
            f" {str(prediction)[:80]}"
        )
    text = normalize_answer(prediction)
    normalized = [normalize_answer(gold) for gold in golds]
    return (
        max(int(text == gold) for gold in normalized),
        max(_f1(text, gold, of_nothing) for gold in normalized),
    )


def evaluate_v1(
    golds: Golds | Iterable[tuple[str, Gold]], predictions: Mapping[str, str]
) -> dict[str, float]:
    """The official scores of SQuAD 1.1."""
    exact_sum: float = 0
    f1_sum: float = 0
    total = 0
    for question_id, gold in golds.items() if isinstance(golds, Mapping) else golds:
        total += 1
        if question_id not in predictions:
            continue
        if not gold.texts:
            raise InputError(
                f"Question {question_id} has no answer, which only SQuAD 2.0 knows:"
                " evaluate the file as 2.0."
            )
        scores = _best(predictions[question_id], gold.texts, 0, question_id)
        exact_sum += scores[0]
        f1_sum += scores[1]
    if not total:
        raise InputError("There are no questions to evaluate.")
    return {"exact_match": 100.0 * exact_sum / total, "f1": 100.0 * f1_sum / total}


def scores_v2(golds: Golds, predictions: Mapping[str, str]) -> Scores:
    """Each question's scores by the rules of SQuAD 2.0."""
    _check_complete(golds, predictions, 'prediction ("" is that of no answer)')
    scores = Scores({}, {})
    for question_id, gold in golds.items():
        texts = [text for text in gold.texts if normalize_answer(text)] or [""]
        scores.exact[question_id], scores.f1[question_id] = _best(
            predictions[question_id], texts, 1, question_id
        )
    return scores


def evaluate_v2(
    golds: Golds,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, Any]:
    """The official scores of SQuAD 2.0.

    Beware of the default threshold where null odds are BERT's score differences: it is
    the official script's, meant for probabilities.
    """
    raw = scores_v2(golds, predictions)
    if null_odds is not None:
        _check_complete(golds, null_odds, "null odd")

    def decided(scores: dict[str, float]) -> dict[str, float]:
        """The scores where what is above the threshold counts as not answered."""
        return {
            question_id: float(not golds[question_id].has_answer)
            if (null_odds[question_id] if null_odds else 0.0) > threshold
            else score
            for question_id, score in scores.items()
        }

    exact, f1_scores = decided(raw.exact), decided(raw.f1)
    report: dict[str, Any] = {}
    for prefix, wanted in (("", None), ("HasAns_", True), ("NoAns_", False)):
        ids = [key for key in golds if wanted in (None, golds[key].has_answer)]
        if ids:
            # `sum` rounds as the official's does, however this Python's adds.
            total = len(ids)
            report[f"{prefix}exact"] = 100.0 * sum(exact[key] for key in ids) / total
            report[f"{prefix}f1"] = 100.0 * sum(f1_scores[key] for key in ids) / total
            report[f"{prefix}total"] = total
    if null_odds is not None:
        report |= _best_thresholds(golds, predictions, null_odds, raw)._asdict()
    return report


def best_thresholds(
    golds: Golds, predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> BestThresholds:
    """The thresholds of null odds with the best scores (`best_threshold` tells how)."""
    scores = scores_v2(golds, predictions)
    _check_complete(golds, null_odds, "null odd")
    return _best_thresholds(golds, predictions, null_odds, scores)


def _best_thresholds(
    golds: Golds,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    scores: Scores,
) -> BestThresholds:
    has_answer = {key: gold.has_answer for key, gold in golds.items()}
    return BestThresholds(
        *best_threshold(has_answer, predictions, scores.exact, null_odds),
        *best_threshold(has_answer, predictions, scores.f1, null_odds),
    )


def precision_recall_curves(
    golds: Golds, predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> dict[str, Curve]:
    """The official script's three curves, whose areas it reports as NAME_ap."""
    scores = scores_v2(golds, predictions)
    _check_complete(golds, null_odds, "null odd")
    has_answer = {key: gold.has_answer for key, gold in golds.items()}
    if not any(has_answer.values()):
        return {}
    worth: dict[str, Mapping[str, float]] = {
        "pr_exact": scores.exact,
        "pr_f1": scores.f1,
        "pr_oracle": has_answer,
    }
    return {
        name: precision_recall(has_answer, of_each, null_odds)
        for name, of_each in worth.items()
    }


def _check_complete(golds: Golds, values: Mapping[str, Any], what: str) -> None:
    """Refuses no questions, and those that a file of SQuAD 2.0's says nothing of."""
    if not golds:
        raise InputError("There are no questions to evaluate.")
    missing = [question_id for question_id in golds if question_id not in values]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(golds)} questions have no {what}, such as"
            f" {missing[0]}; the evaluation of SQuAD 2.0 needs one for each."
        )
