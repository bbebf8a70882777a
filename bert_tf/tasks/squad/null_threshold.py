"""The threshold of SQuAD 2.0's null answer: chosen once and kept next to the model.

    null_threshold.json     {"null_score_diff_threshold": -1.2, ...}: `NullThreshold`
    null_threshold_precision_recall.png     precision and recall by threshold
    null_score_diff_histogram.png           score differences of the two kinds

A question's score difference is the null answer's score less the best text's; above the
threshold the prediction is "". The original's users find the threshold by hand: run the
official script, read off best_f1_thresh, predict again.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.base.options import BEST_FOLDER
from bert_tf.base.pictures import picture
from bert_tf.tasks.squad.decoding import NO_SPAN_SCORE_DIFF
from bert_tf.tasks.squad.scoring import (
    Curve,
    Golds,
    best_thresholds,
    evaluate_v2,
    precision_recall_curves,
)

FILE_NAME = "null_threshold.json"
_KEY = "null_score_diff_threshold"

_NUM_BINS = 40
_SIZE = (6.4, 4.4)
SCORE_DIFFERENCE = "score difference: null answer - best text"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NullThreshold:
    """A threshold, and the scores by which it was chosen, in percent."""

    null_score_diff_threshold: float  # with the best F1; predictions are made with it
    exact_at_threshold: float  # scores of predictions made with it
    f1_at_threshold: float
    best_exact: float  # the result of the official search, and its threshold
    best_exact_thresh: float
    best_f1: float
    best_f1_thresh: float
    num_questions: int  # that it was chosen by
    predict_file: str  # the questions' file
    checkpoint: str = ""  # its name in this folder, or its whole path; "" if unknown


def find(
    folder: str,
    golds: Golds,
    best_texts: Mapping[str, str],
    null_odds: Mapping[str, float],
    *,
    predict_file: str = "",
    checkpoint: str = "",
    plots: bool = True,
) -> NullThreshold:
    """Chooses the threshold with the best F1, and writes all of its files."""
    # Predictions with it may score less than the official search reports: it may stop
    # between equal score differences, and gives 0 if answering nothing is best.
    if checkpoint:
        # A folder may be moved together with its checkpoints.
        there, name = os.path.split(files.absolute(checkpoint))
        is_here = there == files.absolute(folder).rstrip("/")
        checkpoint = name if is_here else os.path.join(there, name)
    best = best_thresholds(golds, best_texts, null_odds)
    threshold = float(best["best_f1_thresh"])
    report = evaluate_v2(golds, best_texts, null_odds, threshold)
    chosen = NullThreshold(
        null_score_diff_threshold=threshold,
        exact_at_threshold=report["exact"],
        f1_at_threshold=report["f1"],
        **best,
        num_questions=len(golds),
        predict_file=predict_file,
        checkpoint=checkpoint,
    )
    if plots:
        for name, content in _drawn(chosen, golds, best_texts, null_odds).items():
            files.write_atomically(os.path.join(folder, name), content)
    values = json.dumps(dataclasses.asdict(chosen), indent=2, ensure_ascii=False)
    files.write_atomically(path_in(folder), values + "\n")
    logging.info(
        "null_score_diff_threshold=%s has the best F1 of %s questions: %.3f, exact"
        " match %.3f. Wrote it to %s.",
        *(threshold, len(golds), report["f1"], report["exact"], path_in(folder)),
    )
    return chosen


def path_in(folder: str) -> str:
    """Returns the path of a folder's threshold."""
    return os.path.join(folder, FILE_NAME)


def read(folder: str, checkpoint: str = "") -> float | None:
    """Returns a folder's threshold; None if there is none for this checkpoint."""
    path = path_in(folder)
    if not files.exists(path):
        run, name = os.path.split(files.absolute(folder).rstrip("/"))
        if name != BEST_FOLDER or not checkpoint:
            return None
        # The best checkpoint is a copy of the run's checkpoint of the same step.
        return read(run, os.path.join(run, os.path.basename(checkpoint)))
    content: Any = files.read_json(path)
    value = content.get(_KEY) if isinstance(content, dict) else None
    if not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise InputError(
            f'{path}: needs "{_KEY}": NUMBER. Correct it, or remove the file and'
            " find the threshold again with `find_null_threshold`."
        )
    noted = content.get("checkpoint")
    if checkpoint and noted:
        found_for = files.absolute(os.path.join(folder, str(noted)))
        if found_for != files.absolute(checkpoint):
            logging.warning(
                "%s is ignored: it was found for %s, and the model is %s."
                " `find_null_threshold` finds it again.",
                path,
                found_for,
                checkpoint,
            )
            return None
    return float(value)


def _drawn(
    chosen: NullThreshold,
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
                bins=np.linspace(left, right, _NUM_BINS + 1).tolist(),
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
