"""The threshold of SQuAD 2.0's null answer: chosen once, kept beside the model.

    null_threshold.json     {"null_score_diff_threshold": -1.2, ...}: `NullThreshold`
    null_threshold_precision_recall.png     what each threshold is worth
    null_score_diff_histogram.png           how far it tells the two kinds apart

A question's score difference is how much the null answer's score exceeds that of the
best text; above the threshold the prediction is "". The original has its users find the
threshold by hand: run the official script, read off best_f1_thresh, predict again.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.finetuning import null_threshold_pictures as pictures
from bert_tf.metrics.squad import (
    Golds,
    best_thresholds,
    evaluate_v2,
    precision_recall_curves,
)
from bert_tf.training import checkpoints

FILE_NAME = "null_threshold.json"
_KEY = "null_score_diff_threshold"
# Percent; below what the reports show.
_NEGLIGIBLE = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class NullThreshold:
    """A threshold, and what it was chosen by.

    Attributes:
        null_score_diff_threshold: that of the best F1; predictions are made with it.
        exact_at_threshold: the exact match of predictions made with it, in percent.
        f1_at_threshold: their F1.
        best_exact: what the official search found, in percent.
        best_exact_thresh: the threshold that it names for it.
        best_f1: the same for F1.
        best_f1_thresh: the same.
        num_questions: those that it was chosen by.
        predict_file: where they are from.
        checkpoint: the model's, by its name in this folder, or its whole path; "" where
            there is not one.
    """

    null_score_diff_threshold: float
    exact_at_threshold: float
    f1_at_threshold: float
    best_exact: float
    best_exact_thresh: float
    best_f1: float
    best_f1_thresh: float
    num_questions: int
    predict_file: str
    checkpoint: str = ""


def choose(
    golds: Golds,
    best_texts: Mapping[str, str],
    null_odds: Mapping[str, float],
    predict_file: str = "",
    checkpoint: str = "",
) -> NullThreshold:
    """The threshold with the best F1 on a development set, as the official search's.

    A warning says where predictions with it score less than the search reports: the
    search may stop between equal score differences, and names 0 where it is best to
    answer nothing.
    """
    best = best_thresholds(golds, best_texts, null_odds)
    threshold = float(best.best_f1_thresh)
    report = evaluate_v2(golds, best_texts, null_odds, threshold)
    if report["f1"] < best.best_f1 - _NEGLIGIBLE:
        unanswerable = sum(not gold.has_answer for gold in golds.values())
        never = 100.0 * unanswerable / len(golds)
        reason = (
            "the best is to answer nothing, and no threshold was found for that"
            if best.best_f1 <= never
            else "several questions have the same score difference"
        )
        logging.warning(
            "Predictions with null_score_diff_threshold=%s have an F1 of %.3f, less"
            " than the best_f1 of %.3f: %s.",
            threshold,
            report["f1"],
            best.best_f1,
            reason,
        )
    return NullThreshold(
        null_score_diff_threshold=threshold,
        exact_at_threshold=report["exact"],
        f1_at_threshold=report["f1"],
        **best._asdict(),
        num_questions=len(golds),
        predict_file=predict_file,
        checkpoint=checkpoint,
    )


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
    """Chooses a threshold and writes all of its files, the pictures first."""
    if checkpoint:
        # A folder may be moved with what is in it.
        there, name = os.path.split(files.absolute(checkpoint))
        is_here = there == files.absolute(folder).rstrip("/")
        checkpoint = name if is_here else os.path.join(there, name)
    chosen = choose(golds, best_texts, null_odds, predict_file, checkpoint)
    if plots:
        for name, content in _drawn(chosen, golds, best_texts, null_odds).items():
            files.write_atomically(os.path.join(folder, name), content)
    write(folder, chosen)
    logging.info(
        "null_score_diff_threshold=%s has the best F1 of %s questions: %.3f, exact"
        " match %.3f. Wrote it to %s.",
        chosen.null_score_diff_threshold,
        chosen.num_questions,
        chosen.f1_at_threshold,
        chosen.exact_at_threshold,
        path_in(folder),
    )
    return chosen


def given_or_found(
    given: float | None,
    folders: Sequence[str],
    default: float = 0.0,
    *,
    checkpoint: str = "",
) -> float:
    """The threshold to predict with."""
    if given is not None:
        return given
    for folder in folders:
        found = read(folder, checkpoint)
        if found is not None:
            logging.info("--%s=%s, from %s.", _KEY, found, path_in(folder))
            return found
    return default


def path_in(folder: str) -> str:
    """Where a folder has its threshold."""
    return os.path.join(folder, FILE_NAME)


def write(folder: str, chosen: NullThreshold) -> None:
    """Writes null_threshold.json."""
    content = json.dumps(dataclasses.asdict(chosen), indent=2, ensure_ascii=False)
    files.write_atomically(path_in(folder), content + "\n")


def read(folder: str, checkpoint: str = "") -> float | None:
    """The threshold that a folder has; None where it has none."""
    path = path_in(folder)
    if not files.exists(path):
        run, name = os.path.split(files.absolute(folder).rstrip("/"))
        if name != checkpoints.FOLDER_NAME or not checkpoint:
            return None
        return read(run, os.path.join(run, os.path.basename(checkpoint)))
    content: Any = files.read_json(path)
    value = content.get(_KEY) if isinstance(content, dict) else None
    if not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise InputError(
            f'{path}: needs "{_KEY}": NUMBER. Mend it, or remove the file and find the'
            " threshold anew with --find_null_threshold."
        )
    noted = content.get("checkpoint")
    if checkpoint and noted:
        found_for = files.absolute(os.path.join(folder, str(noted)))
        if found_for != files.absolute(checkpoint):
            logging.warning(
                "%s is left aside: it was found for %s, and the model is %s."
                " --find_null_threshold finds it anew.",
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
    """File name -> PNG. No curve where no question has an answer."""
    threshold = chosen.null_score_diff_threshold
    of_kind = {
        name: [null_odds[key] for key, gold in golds.items() if gold.has_answer == kind]
        for name, kind in (("answerable", True), ("unanswerable", False))
    }
    title = f"SQuAD 2.0: {chosen.num_questions:,} questions"
    drawn = {
        "null_score_diff_histogram.png": pictures.histogram_picture(
            of_kind, title, threshold=threshold
        )
    }
    curves = precision_recall_curves(golds, best_texts, null_odds)
    if curves:
        drawn["null_threshold_precision_recall.png"] = pictures.threshold_picture(
            curves["pr_f1"], threshold, f"{title}, F1 {chosen.f1_at_threshold:.2f}"
        )
    return drawn
