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
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.options import BEST_FOLDER
from bert_tf.tasks.squad.scoring import Golds, best_thresholds, evaluate_v2

FILE_NAME = "null_threshold.json"
_KEY = "null_score_diff_threshold"


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
        draw = addon("report_pictures").null_threshold_pictures
        for name, content in draw(chosen, golds, best_texts, null_odds).items():
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
