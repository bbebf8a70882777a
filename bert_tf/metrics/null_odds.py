"""What a threshold between answering and not answering is worth.

A null odd is how sure a model is that a question has no answer: a probability, or
BERT's score difference. Questions up to the threshold are answered, those above it
are not. So the official script of SQuAD 2.0 does (Rajpurkar et al. 2018), to its last
digit.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple


class BestThresholds(NamedTuple):
    """The best scores in percent, and the null odds up to which to answer for them."""

    best_exact: float
    best_exact_thresh: float
    best_f1: float
    best_f1_thresh: float


class Curve(NamedTuple):
    """Precision and recall of answering all questions up to a null odd.

    Attributes:
        thresholds: the null odds, ascending; -inf first, where nothing is answered.
        precisions: of what is answered, the share that is right; 1 for nothing.
        recalls: of the answerable, the share that is answered rightly.
        totals: of all questions, the share that comes out right: answered rightly, or
            unanswerable and not answered.
        average_precision: the area below the steps, 0 to 1.
    """

    thresholds: list[float]
    precisions: list[float]
    recalls: list[float]
    totals: list[float]
    average_precision: float


def best_threshold(
    has_answer: Mapping[str, bool],
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> tuple[float, float]:
    """The best score in percent, and the null odd up to which to answer for it.

    The official search: through the questions by rising null odds, from answering none
    to answering all, to the first place with the best score. Two of its traits are
    kept. It stops between questions of the same null odd, which no threshold tells
    apart; and where nothing is better than answering none, its threshold is 0, which
    is below all probabilities, but not below all score differences.
    """
    score: float = sum(not answerable for answerable in has_answer.values())
    best, threshold = score, 0.0
    for question_id in _ascending(has_answer, null_odds):
        if has_answer[question_id]:
            score += scores[question_id]
        elif predictions[question_id]:
            score -= 1
        if score > best:
            best, threshold = score, null_odds[question_id]
    return 100.0 * best / len(scores), threshold


def precision_recall(
    has_answer: Mapping[str, bool],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> Curve:
    """Precision and recall at every threshold that separates two questions."""
    num_answerable = sum(has_answer.values())
    ids = _ascending(has_answer, null_odds)
    rightly_not = len(ids) - num_answerable
    curve = Curve([-math.inf], [1.0], [0.0], [rightly_not / len(ids)], 0.0)
    right, area = 0.0, 0.0
    for i, question_id in enumerate(ids):
        if has_answer[question_id]:
            right += scores[question_id]
        else:
            rightly_not -= 1
        odd = null_odds[question_id]
        if i + 1 < len(ids) and odd == null_odds[ids[i + 1]]:
            continue
        precision, recall = right / (i + 1), right / num_answerable
        area += precision * (recall - curve.recalls[-1])
        curve.thresholds.append(odd)
        curve.precisions.append(precision)
        curve.recalls.append(recall)
        curve.totals.append((right + rightly_not) / len(ids))
    return curve._replace(average_precision=area)


def _ascending(
    has_answer: Mapping[str, bool], null_odds: Mapping[str, float]
) -> list[str]:
    """The questions by null odd; of equal ones as `null_odds` has them."""
    ids = [question_id for question_id in null_odds if question_id in has_answer]
    return sorted(ids, key=null_odds.__getitem__)
