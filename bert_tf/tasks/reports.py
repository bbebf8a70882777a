"""A classifier's predictions as tables and pictures.

N examples, M of them with a label, C outputs.
"""

import dataclasses
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf.base import files
from bert_tf.base.options import BEST_FOLDER
from bert_tf.base.pictures import picture
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
        for name, draw, found in (
            ("confusion.png", confusion_picture, target.predictions(logits)),
            ("calibration.png", calibration_picture, target.probabilities(logits)),
        ):
            files.write_atomically(path(name), draw(target, found[rows], labels, title))
    logging.info("Wrote %s to %s.", ", ".join(map(os.path.basename, written)), folder)
    return written


# Larger matrices are drawn without numbers and names.
_MOST_NUMBERED = 40


def confusion_matrix(
    target: Target, predictions: np.ndarray, labels: np.ndarray
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
    target: Target, predictions: np.ndarray, labels: np.ndarray, title: str
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
    target: Target, probabilities: np.ndarray, labels: np.ndarray, title: str
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
