"""The pictures of the tasks' reports: a classifier's mistakes, SQuAD's null answers.

M examples with a label, C outputs.
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf.base import files
from bert_tf.base.config import MULTI_LABEL
from bert_tf.base.pictures import picture
from bert_tf.tasks.squad.decoding import NO_SPAN_SCORE_DIFF
from bert_tf.tasks.squad.scoring import Golds, by_null_odd, scores_v2

if TYPE_CHECKING:
    from bert_tf.tasks.squad.null_threshold import NullThreshold
    from bert_tf.tasks.tables import Target

# Larger matrices are drawn without numbers and names.
_MOST_NUMBERED = 40


def confusion_matrix(
    target: "Target", predictions: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Counts true and predicted labels; for several, right and wrong decisions."""
    if target.kind == MULTI_LABEL:
        # 2 true + predicted: 3 both, 2 only true, 1 only predicted, 0 neither.
        outcomes = 2 * labels + predictions
        return np.stack([(outcomes == i).sum(axis=0) for i in (3, 2, 1, 0)], axis=-1)
    counts = np.zeros([target.num_outputs] * 2, np.int64)
    np.add.at(counts, (labels, predictions), 1)
    return counts


def confusion_picture(
    target: "Target", predictions: np.ndarray, labels: np.ndarray, title: str
) -> bytes:
    """Draws `confusion_matrix` as a PNG: each cell's count and its share of the row."""
    counts = confusion_matrix(target, predictions, labels)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    columns: Sequence[str] = target.labels
    if target.kind == MULTI_LABEL:
        columns = ["found", "missed", "false alarm", "rightly not"]
    height, width = np.minimum(counts.shape, _MOST_NUMBERED)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        figure.colorbar(image, ax=axes, format="{x:.0%}", label="share of the row")
        axes.set(xlabel="prediction", ylabel="label")
        if len(counts) > _MOST_NUMBERED:
            return
        style: dict[str, Any] = {"rotation": 40, "ha": "right", "parse_math": False}
        axes.set_xticks(range(len(columns)), columns, **style)
        axes.set_yticks(range(len(counts)), target.labels, parse_math=False)
        for (row, column), count in np.ndenumerate(counts):
            share = shares[row, column]
            style = {"ha": "center", "va": "center"}
            style["color"] = "white" if share > 0.5 else "black"
            axes.text(column, row, f"{count}\n{share:.1%}", **style)

    return picture(draw, (4 + 0.9 * width, 2 + 0.6 * height), title)


NUM_BINS = 15
# More curves cannot be distinguished by colour.
_MOST_CURVES = 10


class Reliability(NamedTuple):
    """Predictions binned by confidence (Guo et al. 2017); 0 in empty bins."""

    counts: np.ndarray  # number of predictions in each bin
    confidence: np.ndarray  # their mean confidence
    accuracy: np.ndarray  # share of right predictions

    @property
    def expected_calibration_error(self) -> float:
        """sum_b counts_b / M * |accuracy_b - confidence_b| (Guo et al. 2017, eq. 3)."""
        gaps = np.abs(self.accuracy - self.confidence)
        return float(np.average(gaps, weights=self.counts))


def reliability(
    confidence: np.ndarray, came_true: np.ndarray, num_bins: int = NUM_BINS
) -> Reliability:
    """Sorts predictions into bins of equal width, ((b - 1) / B, b / B]."""
    confidence = np.asarray(confidence, np.float64)
    bins = np.searchsorted(np.arange(1, num_bins) / num_bins, confidence, side="left")
    counts = np.bincount(bins, minlength=num_bins)
    confidence, accuracy = (
        np.bincount(bins, weights=values, minlength=num_bins) / np.maximum(counts, 1)
        for values in (confidence, came_true)
    )
    return Reliability(counts, confidence, accuracy)


def calibration_picture(
    target: "Target", probabilities: np.ndarray, labels: np.ndarray, title: str
) -> bytes:
    """Draws a reliability diagram above the histogram of the confidence, as a PNG."""
    # Each of several labels has a curve; beyond the number of colours, all share
    # one. The Brier score is the mean squared distance from the truth.
    if target.kind == MULTI_LABEL:
        columns = zip(probabilities.T, labels.T, strict=True)
        curves = dict(zip(target.labels, columns, strict=True))
        brier = np.square(probabilities - labels).mean()
    else:
        was_right = probabilities.argmax(axis=-1) == labels
        curves = {"the predicted class": (probabilities.max(axis=-1), was_right)}
        truth = np.eye(target.num_outputs)[labels]
        brier = np.square(probabilities - truth).sum(axis=-1).mean()
    parts = {name: reliability(*curve) for name, curve in curves.items()}
    error = np.mean([part.expected_calibration_error for part in parts.values()])
    if len(parts) > _MOST_CURVES:
        parts = {"all labels": reliability(probabilities.ravel(), labels.ravel())}

    def draw(figure: Any) -> None:
        diagram, histogram = figure.subplots(2, sharex=True, height_ratios=[3, 1])
        diagram.plot([0, 1], [0, 1], color="gray", linestyle="--", linewidth=1)
        for name, part in parts.items():
            filled = part.counts > 0
            x, y = part.confidence[filled], part.accuracy[filled]
            diagram.plot(x, y, "o-", label=name)
        for text in diagram.legend(loc="upper left", fontsize="small").get_texts():
            text.set_parse_math(False)
        diagram.set_ylabel("share that came true")
        counts = np.sum([part.counts for part in parts.values()], axis=0)
        histogram.bar((np.arange(NUM_BINS) + 0.5) / NUM_BINS, counts, 0.9 / NUM_BINS)
        histogram.set(xlim=(0, 1), xlabel="confidence", ylabel="predictions")

    said = f"expected calibration error {error:.3f}, Brier score {brier:.3f}"
    return picture(draw, (5.6, 6.4), f"{title}\n{said}")


# SQuAD.


_NUM_SCORE_BINS = 40
_SIZE = (6.4, 4.4)
SCORE_DIFFERENCE = "score difference: null answer - best text"


def null_threshold_pictures(
    chosen: "NullThreshold",
    golds: Golds,
    best_texts: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> dict[str, bytes]:
    """Returns PNGs by file name; no curve if no question has an answer."""
    threshold = chosen.null_score_diff_threshold
    of_kind = {
        name: [null_odds[key] for key, gold in golds.items() if bool(gold) == kind]
        for name, kind in (("answerable", True), ("unanswerable", False))
    }
    title = f"SQuAD 2.0: {chosen.num_questions:,} questions"
    drawn = {
        "null_score_diff_histogram.png": histogram_picture(
            of_kind, title, threshold=threshold
        )
    }
    curves = precision_recall_curves(golds, best_texts, null_odds)
    if curves:
        drawn["null_threshold_precision_recall.png"] = threshold_picture(
            curves["pr_f1"], threshold, f"{title}, F1 {chosen.f1_at_threshold:.2f}"
        )
    return drawn


class Curve(NamedTuple):
    """Precision and recall of answering all questions up to a null odd."""

    thresholds: list[float]  # ascending; -inf first, where nothing is answered
    precisions: list[float]  # the share of right answers; 1 without answers
    recalls: list[float]  # the share of the answerable that are answered right
    # Of all questions, the share that is right: answered correctly, or unanswerable and
    # not answered.
    totals: list[float]
    average_precision: float  # the area below the steps, 0 to 1


def precision_recall_curves(
    golds: Golds, predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> dict[str, Curve]:
    """Returns the official script's three curves, whose areas it reports as NAME_ap."""
    exact, f1_scores = scores_v2(golds, predictions, null_odds)
    oracle = {key: float(bool(gold)) for key, gold in golds.items()}
    if not any(oracle.values()):
        return {}
    worth = {"pr_exact": exact, "pr_f1": f1_scores, "pr_oracle": oracle}
    return {
        name: precision_recall(golds, of_each, null_odds)
        for name, of_each in worth.items()
    }


def precision_recall(
    golds: Golds, scores: Mapping[str, float], null_odds: Mapping[str, float]
) -> Curve:
    """Returns precision and recall at every threshold that separates two questions."""
    num_answerable = sum(bool(gold) for gold in golds.values())
    ids = by_null_odd(golds, null_odds)
    rightly_not = len(ids) - num_answerable
    curve = Curve([-math.inf], [1.0], [0.0], [rightly_not / len(ids)], 0.0)
    right, area = 0.0, 0.0
    for i, question_id in enumerate(ids):
        if golds[question_id]:
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


def threshold_picture(curve: Curve, threshold: float, title: str) -> bytes:
    """Draws precision, recall and score over the threshold, and the chosen one."""
    thresholds = np.array(curve.thresholds[1:], np.float64)
    left, right = _range([*thresholds, threshold])

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for name, values in (
            ("precision of what is answered", curve.precisions),
            ("recall of the answerable", curve.recalls),
            ("score of all questions", curve.totals),
        ):
            # Between two thresholds nothing changes.
            axes.step([left, *thresholds], values, where="post", label=name)
        axes.axvline(threshold, color="black", label=f"threshold {threshold:.3f}")
        axes.set(xlim=(left, right), ylim=(0, 1.02), ylabel="share, by F1")
        axes.set_xlabel(f"threshold of the {SCORE_DIFFERENCE}")
        axes.legend(fontsize="small")

    return picture(draw, _SIZE, title)


def histogram_picture(
    values: Mapping[str, Sequence[float]],
    title: str,
    *,
    threshold: float | None = None,
    label: str = SCORE_DIFFERENCE,
) -> bytes:
    """Draws the distribution of null odds, per kind of question, as shares."""
    kinds = {name: np.array(odds, np.float64) for name, odds in values.items() if odds}
    left, right = _range(np.concatenate(list(kinds.values())))

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for name, odds in kinds.items():
            axes.hist(
                np.clip(odds, left, right),
                bins=np.linspace(left, right, _NUM_SCORE_BINS + 1).tolist(),
                weights=np.full(len(odds), 1 / len(odds)),
                alpha=0.55,
                label=f"{name}: {len(odds):,}",
            )
        if threshold is not None:
            axes.axvline(threshold, color="black", label=f"threshold {threshold:.3f}")
        axes.set(xlabel=label, ylabel="share of the questions")
        axes.legend(fontsize="small")

    return picture(draw, _SIZE, title)


def precision_recall_picture(curve: Curve, title: str) -> bytes:
    """Draws precision over recall, with the area below in the title."""

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        # The official areas are sums of steps that end at their point.
        axes.step(curve.recalls, curve.precisions, where="pre")
        axes.fill_between(curve.recalls, curve.precisions, step="pre", alpha=0.25)
        axes.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="recall", ylabel="precision")

    area = 100 * curve.average_precision
    return picture(draw, _SIZE, f"{title}\naverage precision {area:.2f}")


def _range(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Returns the range, with a margin, of the questions that have a text."""
    some = np.array(values)[np.abs(values) < NO_SPAN_SCORE_DIFF]
    low, high = (some.min(), some.max()) if len(some) else (-1.0, 1.0)
    margin = max(0.03 * (high - low), 1e-3)
    return float(low - margin), float(high + margin)


def draw_evaluation(
    folder: str,
    golds: Golds,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> dict[str, float]:
    """Draws under the official script's names; returns the average precisions."""
    curves = precision_recall_curves(golds, predictions, null_odds)
    titles = {
        "pr_exact": "Precision and recall by exact match",
        "pr_f1": "Precision and recall by F1",
        "pr_oracle": "Oracle: answerable or not",
    }
    drawn = {
        name: precision_recall_picture(curve, titles[name])
        for name, curve in curves.items()
    }
    for name, kind in (("hasAns", "answerable"), ("noAns", "unanswerable")):
        is_wanted = kind == "answerable"
        odds = [null_odds[key] for key in golds if bool(golds[key]) == is_wanted]
        if odds:
            drawn[f"na_prob_hist_{name}"] = histogram_picture(
                {kind: odds}, f"Null odds: {name}", label="null odds"
            )
    files.make_folder(folder)
    for name, content in drawn.items():
        files.write_atomically(os.path.join(folder, f"{name}.png"), content)
    logging.info("Wrote %s pictures to %s.", len(drawn), folder)
    return {
        f"{name}_ap": 100.0 * curve.average_precision for name, curve in curves.items()
    }
