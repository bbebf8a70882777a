"""What is written of a classifier's predictions: a table, and pictures.

N examples, M of them with a label, C outputs.
"""

import dataclasses
import os
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.metrics import pearson_and_spearman
from bert_tf.pictures import drawing, png
from bert_tf.tasks.tables import MULTI_LABEL, REGRESSION, Example, Target


def write_probabilities(path: str, target: Target, logits: np.ndarray) -> None:
    """Writes one line per example, as the original's test_results.tsv, with tabs."""
    rows = target.probabilities(logits)
    lines = ["\t".join(str(value) for value in row) + "\n" for row in rows]
    files.write_atomically(path, "".join(lines))
    logging.info("Wrote %d lines to %s.", len(lines), path)


# SPLIT_predictions.tsv: the prediction for each example, with its text.
#
# It has a header, then one line per example, with tabs between the cells:
#
#     index       the example's number in its split, from 0
#     label       the true label as in the data; empty if there is none
#     prediction  the predicted one, written alike: entailment, or a,c, or 3.214
#     correct     1 or 0, for several labels all together; empty if there is no label
#     p_LABEL     each label's probability
#     text_a, text_b
#
# For numbers there is `error`, prediction minus label, instead of `correct` and the
# probabilities. In a cell a backslash is written \\, a tab \t, a line feed \n and a
# carriage return \r, so that a row is always one line; nothing is quoted.
# `read_predictions` undoes it; for pandas: read_csv(path, sep="\t", quoting=3).


_ESCAPES = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}
_ESCAPE_TABLE = str.maketrans(_ESCAPES)
_MEANINGS = {escape: character for character, escape in _ESCAPES.items()}


def write_predictions(
    path: str,
    examples: Sequence[Example],
    target: Target,
    logits: np.ndarray,
    *,
    rows: Sequence[int] | None = None,
) -> None:
    """Writes the table of the predictions, of all examples or of some rows."""
    words = target.words(logits)
    probabilities = target.probabilities(logits)
    errors = dict(zip(*_errors(examples, target, logits), strict=True))
    is_number = target.kind == REGRESSION
    judgements = ["correct", *(f"p_{label}" for label in target.labels)]
    table = [
        [
            *("index", "label", "prediction"),
            *(["error"] if is_number else judgements),
            *("text_a", "text_b"),
        ]
    ]
    for row in range(len(examples)) if rows is None else rows:
        example, error = examples[row], errors.get(row)
        if error is None:
            judged = [""]
        elif is_number:
            judged = target.words(np.reshape(error, (1, -1)))
        else:
            judged = [str(int(not np.any(error)))]
        if not is_number:
            judged += [f"{value:.6f}" for value in probabilities[row]]
        cells = [str(row), example.label or "", words[row], *judged]
        table.append([*cells, example.text_a, example.text_b or ""])
    lines = (
        "\t".join(cell.translate(_ESCAPE_TABLE) for cell in cells) + "\n"
        for cells in table
    )
    files.write_atomically(path, "".join(lines))


def read_predictions(path: str) -> list[dict[str, str]]:
    """The rows of a table of `write_predictions`: column -> cell, escapes undone."""
    text = files.read_text(path, "table of predictions")
    header, *rows = (
        [
            re.sub(r"\\[\\tnr]", lambda found: _MEANINGS[found.group()], cell)
            for cell in line.removesuffix("\n").split("\t")
        ]
        for line in files.lines(text or "\n")
    )
    for number, cells in enumerate(rows, start=2):
        if len(cells) != len(header):
            raise InputError(
                f"{path}:{number}: {len(cells)} cells, but the header has"
                f" {len(header)}. Was the file edited?"
            )
    return [dict(zip(header, cells, strict=True)) for cells in rows]


def labelled(
    examples: Sequence[Example], target: Target
) -> tuple[np.ndarray, np.ndarray]:
    """The rows whose label is known [M], and their labels as `Target.predictions`."""
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
    """The most confident wrong predictions, the most confident first.

    Confidence is the probability of what was predicted; for several labels, the largest
    probability of a wrong decision on one. For numbers all predictions are returned, by
    the absolute error (its sum over several).
    """
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
    examples: Sequence[Example], target: Target, logits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows that have a label, and how far off their predictions are.

    Prediction minus label: 0 if right, for several labels -1 for one that was missed;
    for classes whether they differ.
    """
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

    SPLIT_predictions.tsv is every example; SPLIT_mistakes.tsv the most confident
    mistakes in the same columns; SPLIT_confusion.png which label is given for which;
    SPLIT_calibration.png how reliable the probabilities are. For numbers there
    is SPLIT_regression.png, predicted against true, instead of the two.
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
    if len(rows) and plots:
        title = ", ".join(filter(None, [task_name, f"{split}: {len(rows)} examples"]))
        predictions = target.predictions(logits)[rows]
        probabilities = target.probabilities(logits)[rows]
        named = [
            f"{class_names[label]} ({label})" if label in class_names else label
            for label in target.labels
        ]
        target = dataclasses.replace(target, labels=tuple(named))
        if target.kind == REGRESSION:
            picture = regression_picture(target, predictions, labels, title)
            files.write_atomically(path("regression.png"), picture)
        else:
            picture = confusion_picture(target, predictions, labels, title)
            files.write_atomically(path("confusion.png"), picture)
            picture = calibration_picture(target, probabilities, labels, title)
            files.write_atomically(path("calibration.png"), picture)
    logging.info("Wrote %s to %s.", ", ".join(map(os.path.basename, written)), folder)
    return written


# Larger matrices have neither numbers nor names.
_MOST_NUMBERED = 40


def confusion_matrix(
    target: Target, predictions: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """How often each label was predicted for each, or decided rightly and wrongly."""
    if target.kind == MULTI_LABEL:
        # 2 true + predicted: 3 both, 2 only true, 1 only predicted, 0 neither.
        outcomes = 2 * labels + predictions
        return np.stack([(outcomes == i).sum(axis=0) for i in (3, 2, 1, 0)], axis=-1)
    from sklearn import metrics

    return metrics.confusion_matrix(
        labels, predictions, labels=range(target.num_outputs)
    )


def confusion_picture(
    target: Target, predictions: np.ndarray, labels: np.ndarray, title: str
) -> bytes:
    """`confusion_matrix` as a PNG: each cell's count and its share of the row."""
    counts = confusion_matrix(target, predictions, labels)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    columns: Sequence[str] = target.labels
    if target.kind == MULTI_LABEL:
        columns = ["found", "missed", "false alarm", "rightly not"]
    with drawing():
        from matplotlib.figure import Figure

        height, width = np.minimum(counts.shape, _MOST_NUMBERED)
        size = (4 + 0.9 * width, 2 + 0.6 * height)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        figure.colorbar(image, ax=axes, format="{x:.0%}", label="share of the row")
        axes.set(xlabel="prediction", ylabel="label")
        # Titles and labels are plain text: $ must not begin a formula.
        axes.set_title(title, fontsize="medium", parse_math=False)
        if len(counts) <= _MOST_NUMBERED:
            style: dict[str, Any] = {"rotation": 40, "ha": "right", "parse_math": False}
            axes.set_xticks(range(len(columns)), columns, **style)
            axes.set_yticks(range(len(counts)), target.labels, parse_math=False)
            for (row, column), count in np.ndenumerate(counts):
                share = shares[row, column]
                color = "white" if share > 0.5 else "black"
                style = {"ha": "center", "va": "center", "color": color}
                axes.text(column, row, f"{count}\n{share:.1%}", **style)
        return png(figure)


NUM_BINS = 15
# More curves than the eye can distinguish by colour.
_MOST_CURVES = 10


class Reliability(NamedTuple):
    """Predictions by bins of their confidence (Guo et al. 2017, "On Calibration").

    An empty bin has 0 for all three.
    """

    counts: np.ndarray  # the predictions in each bin
    confidence: np.ndarray  # their mean confidence
    accuracy: np.ndarray  # the share of them that were right

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
    """A reliability diagram with the histogram of the confidence below it, as a PNG.

    Each of several labels has its curve, or all decisions share one if there are more
    labels than colours; the calibration error is the mean over the labels. The Brier
    score is the mean squared distance of probabilities from the truth.
    """
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
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 6.4), layout="constrained")
        diagram, histogram = figure.subplots(2, sharex=True, height_ratios=[3, 1])
        diagram.plot([0, 1], [0, 1], color="gray", linestyle="--", linewidth=1)
        for name, part in parts.items():
            filled = part.counts > 0
            diagram.plot(
                part.confidence[filled], part.accuracy[filled], "o-", label=name
            )
        _name_curves(diagram)
        diagram.set_ylabel("share that came true")
        said = f"expected calibration error {error:.3f}, Brier score {brier:.3f}"
        diagram.set_title(f"{title}\n{said}", fontsize="medium", parse_math=False)
        counts = np.sum([part.counts for part in parts.values()], axis=0)
        histogram.bar((np.arange(NUM_BINS) + 0.5) / NUM_BINS, counts, 0.9 / NUM_BINS)
        histogram.set(xlim=(0, 1), xlabel="confidence", ylabel="predictions")
        return png(figure)


def regression_picture(
    target: Target, predictions: np.ndarray, labels: np.ndarray, title: str
) -> bytes:
    """Predicted against true numbers, as a PNG, with the line of equality."""
    columns = np.reshape(predictions, (-1, target.num_outputs)).T
    truths = np.reshape(labels, (-1, target.num_outputs)).T
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 5.8), layout="constrained")
        axes = figure.add_subplot()
        ends = [min(columns.min(), truths.min()), max(columns.max(), truths.max())]
        axes.plot(ends, ends, color="gray", linestyle="--", linewidth=1)
        said = []
        named = target.labels or ("",)
        for name, column, truth in zip(named, columns, truths, strict=True):
            axes.scatter(truth, column, s=9, alpha=0.4, label=name)
            pearson, _ = pearson_and_spearman(column, truth)
            said.append(f"{name} {pearson:.3f}".lstrip())
        if target.labels:
            _name_curves(axes)
        axes.set(xlabel="label", ylabel="prediction")
        title = f"{title}\nPearson {', '.join(said)}"
        axes.set_title(title, fontsize="medium", parse_math=False)
        return png(figure)


def _name_curves(axes: Any) -> None:
    for text in axes.legend(loc="upper left", fontsize="small").get_texts():
        text.set_parse_math(False)
