"""A classifier's predictions as tables and pictures.

N examples, M of them with a label, C outputs.
"""

import dataclasses
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.base.options import BEST_FOLDER
from bert_tf.conversion.tokenizer_files import read_labels
from bert_tf.tasks.tables import MULTI_LABEL, REGRESSION, Example, Target


def kept_order(
    labels: tuple[str, ...], output_dir: str, head: Sequence[str] | None
) -> tuple[str, ...]:
    """Returns the labels in the order of the folder's runs, or of a trained head."""
    runs = files.matching(os.path.join(output_dir, "runs", "*"))
    folders = [output_dir, os.path.join(output_dir, BEST_FOLDER), *runs]
    orders = [*(read_labels(folder)[0] for folder in folders), head]
    same = (one for one in orders if one and sorted(one) == sorted(labels))
    return tuple(next(same, labels))


def write_probabilities(path: str, target: Target, logits: np.ndarray) -> None:
    """Writes one line per example with tabs, as in the original's test_results.tsv.

    There is no header, and one column per label, in the order of labels.txt.
    """
    rows = target.probabilities(logits)
    lines = ["\t".join(str(value) for value in row) + "\n" for row in rows]
    files.write_atomically(path, "".join(lines))
    columns = ", ".join(target.labels)
    said = f" Its columns are, as in labels.txt: {columns}." * bool(columns)
    logging.info("Wrote %d lines to %s.%s", len(lines), path, said)


_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def prediction_cells(
    examples: Sequence[Any], target: Target, logits: np.ndarray
) -> list[list[str]]:
    """Returns a header, then each example's number, label, prediction and scores."""
    words = target.words(logits)
    probabilities = target.probabilities(logits)
    errors = dict(zip(*_errors(examples, target, logits), strict=True))
    is_number = target.kind == REGRESSION
    judgements = ["correct", *(f"p_{label}" for label in target.labels)]
    table = [
        ["index", "label", "prediction", *(["error"] if is_number else judgements)]
    ]
    for row, example in enumerate(examples):
        error = errors.get(row)
        if error is None:
            judged = [""]
        elif is_number:
            judged = target.words(np.reshape(error, (1, -1)))
        else:
            judged = [str(int(not np.any(error)))]
        if not is_number:
            judged += [f"{value:.6f}" for value in probabilities[row]]
        table.append([str(row), example.label or "", words[row], *judged])
    return table


def write_predictions(
    path: str,
    examples: Sequence[Example],
    target: Target,
    logits: np.ndarray,
    *,
    rows: Sequence[int] | None = None,
) -> None:
    r"""Writes the table of predictions, for all examples or some rows.

    It has a header, then one line per example, with tabs between the cells:

        index       the example's number in its split, from 0
        label       the true label as in the data; empty if there is none
        prediction  in the same form: entailment, or a,c, or 3.214
        correct     1 or 0, for several labels together; empty if there is no label
        p_LABEL     each label's probability
        text_a, text_b

    For numbers, `error`, prediction minus label, replaces `correct` and the
    probabilities. In a cell a backslash is written \\, a tab \t, a line feed \n and a
    carriage return \r; nothing is quoted: pandas' read_csv(path, sep="\t", quoting=3).
    """
    header, *cells = prediction_cells(examples, target, logits)
    table = [[*header, "text_a", "text_b"]]
    for row in range(len(examples)) if rows is None else rows:
        example = examples[row]
        table.append([*cells[row], example.text_a, example.text_b or ""])
    write_table(path, table)


def write_table(path: str, rows: Iterable[Iterable[str]]) -> None:
    """Writes cells with tabs between them, escaped as by `write_predictions`."""
    lines = ("\t".join(cell.translate(_ESCAPES) for cell in row) for row in rows)
    files.write_atomically(path, "".join(f"{line}\n" for line in lines))


def labelled(examples: Sequence[Any], target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows with known labels [M], and labels like `Target.predictions`."""
    rows = [row for row, example in enumerate(examples) if example.label is not None]
    encoded = [target.encode(examples[row].label, examples[row].source) for row in rows]
    labels = np.array(encoded).reshape(len(rows), target.label_length)
    if target.kind == MULTI_LABEL:
        labels = labels.astype(np.int64)
    elif target.label_length == 1:
        labels = labels[:, 0]
    return np.array(rows, np.int64), labels


def mistakes(
    examples: Sequence[Example], target: Target, logits: np.ndarray, count: int
) -> list[int]:
    """Returns the wrong predictions, the most confident first."""
    # Confidence is the probability of the prediction; for several labels, the highest
    # among wrong decisions; for numbers, the absolute error (for several numbers, the
    # sum).
    rows, errors = _errors(examples, target, logits)
    if target.kind == REGRESSION:
        sureness = np.abs(errors).reshape(len(rows), -1).sum(axis=-1)
    else:
        probabilities = target.probabilities(logits)[rows]
        if target.kind == MULTI_LABEL:
            decided = np.where(errors < 0, 1 - probabilities, probabilities)
            sureness = np.where(errors != 0, decided, 0).max(axis=-1, initial=0)
        else:
            sureness = np.where(errors, probabilities.max(axis=-1), 0)
    order = np.argsort(-sureness, kind="stable")
    return [int(rows[i]) for i in order[:count] if sureness[i] > 0]


def _errors(
    examples: Sequence[Any], target: Target, logits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the labelled rows, and prediction minus label; inequality for classes."""
    rows, labels = labelled(examples, target)
    predictions = target.predictions(logits)[rows]
    if target.kind in (MULTI_LABEL, REGRESSION):
        return rows, predictions - labels
    return rows, predictions != labels


def write_reports(
    folder: str,
    split: str,
    examples: Sequence[Example],
    target: Target,
    logits: np.ndarray,
    *,
    task_name: str = "",
    class_names: Mapping[str, str] = types.MappingProxyType({}),
    plots: bool = True,
    num_mistakes: int = 50,
) -> list[str]:
    """Writes a split's predictions, and their scores if it has labels.

    SPLIT_predictions.tsv has every example; SPLIT_mistakes.tsv the most confident
    mistakes, in the same columns; SPLIT_confusion.png the confusion matrix; and
    SPLIT_calibration.png the calibration. Regressions have no pictures.
    """
    written = []

    def path(name: str) -> str:
        written.append(os.path.join(folder, f"{split}_{name}"))
        return written[-1]

    write_predictions(path("predictions.tsv"), examples, target, logits)
    rows, labels = labelled(examples, target)
    if len(rows) and num_mistakes:
        worst = mistakes(examples, target, logits, num_mistakes)
        write_predictions(path("mistakes.tsv"), examples, target, logits, rows=worst)
    if len(rows) and plots and target.kind != REGRESSION:
        title = ", ".join(filter(None, [task_name, f"{split}: {len(rows)} examples"]))
        named = [
            f"{class_names[label]} ({label})" if label in class_names else label
            for label in target.labels
        ]
        target = dataclasses.replace(target, labels=tuple(named))
        pictures = addon("report_pictures")
        for name, draw, found in (
            ("confusion.png", pictures.confusion_picture, target.predictions(logits)),
            (
                "calibration.png",
                pictures.calibration_picture,
                target.probabilities(logits),
            ),
        ):
            files.write_atomically(path(name), draw(target, found[rows], labels, title))
    logging.info("Wrote %s to %s.", ", ".join(map(os.path.basename, written)), folder)
    return written
