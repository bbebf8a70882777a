"""Classification and regression of texts and pairs of texts."""

import dataclasses
import functools
import itertools
import os
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.conversion import names
from bert_tf.conversion.adapter_files import AdapterFiles
from bert_tf.conversion.loading import ModelFiles
from bert_tf.conversion.source import Source
from bert_tf.errors import InputError
from bert_tf.metrics import pearson_and_spearman
from bert_tf.modeling.heads import BertClassifier
from bert_tf.modeling.objectives import CLASSIFIERS
from bert_tf.pictures import drawing, png
from bert_tf.records.batching import SplitRecords, rows_digest
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks import submission
from bert_tf.tasks.data_set_options import ClassifierOptions, data_set_of
from bert_tf.tasks.finetuning import (
    EXAMPLE_LOSS,
    LOSS,
    MAJORITY,
    FineTuningTask,
    Outputs,
    baseline,
    folder_of_model,
    logits_of,
    model_options,
    opened_adapter,
    scores,
)
from bert_tf.tasks.tables import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    DataSet,
    Example,
    Target,
)
from bert_tf.text.wordpiece import (
    Tokens,
    WordPieceTokenizer,
    pair_features,
    truncate_pair,
)
from bert_tf.training import run_folder
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import num_workers
from bert_tf.training.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The confusion matrix as a picture.
#
# Shapes: M labelled examples, C outputs.


# Larger matrices have small cells, without numbers.
_MOST_NUMBERED = 40
# With more labels names would be unreadable and the picture too large for memory.
_MOST_NAMED = 150
_LONGEST_NAME = 40


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
    """`confusion_matrix` as a PNG: each cell's count and its share of the row.

    Larger matrices have only colours, and very large ones the labels' numbers.
    """
    counts = confusion_matrix(target, predictions, labels)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    rows = [_short(label) for label in target.labels]
    columns = rows
    if target.kind == MULTI_LABEL:
        columns = ["found", "missed", "false alarm", "rightly not"]
    has_numbers = max(counts.shape) <= _MOST_NUMBERED
    cell_width, cell_height = (0.9, 0.6) if has_numbers else (0.25, 0.2)
    has_names = len(rows) <= _MOST_NAMED
    if not has_names:
        cell_height *= _MOST_NAMED / len(rows)
        cell_width *= _MOST_NAMED / max(_MOST_NAMED, len(columns))
    with drawing():
        from matplotlib.figure import Figure

        # Inches: the cells, the labels next to them, the title, the scale.
        width = 3.5 + 0.08 * max(map(len, rows)) + cell_width * len(columns)
        height = 1.6 + 0.05 * max(map(len, columns)) + cell_height * len(rows)
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        scale = figure.colorbar(image, ax=axes, format="{x:.0%}")
        scale.set_label("share of the row")
        if len(columns) <= _MOST_NAMED:
            axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
        if has_names:
            axes.set_yticks(range(len(rows)), rows)
        # A label is plain text: $ must not begin a formula.
        for tick in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            tick.set_parse_math(False)
        axes.set_xlabel("decision" if target.kind == MULTI_LABEL else "prediction")
        axes.set_ylabel("label")
        axes.set_title(title, fontsize="medium", parse_math=False)
        if has_numbers:
            _number_cells(axes, counts, shares)
        return png(figure)


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_NAME else label[: _LONGEST_NAME - 1] + "…"


def _number_cells(axes: "Axes", counts: np.ndarray, shares: np.ndarray) -> None:
    for (row, column), count in np.ndenumerate(counts):
        share = shares[row, column]
        axes.text(
            column,
            row,
            f"{count}\n{share:.1%}",
            ha="center",
            va="center",
            fontsize="small",
            color="white" if share > 0.5 else "black",
        )


# Reliability diagrams for probabilities, and predicted against true numbers.
#
# Guo et al. 2017, "On Calibration of Modern Neural Networks": predictions are binned by
# their confidence; of those at 80 % four in five should be right.
#
# Shapes: M labelled examples, C outputs, B bins.


NUM_BINS = 15
# With this many predictions the accuracy's standard error is below 0.1; bars and points
# of fewer are paler.
_FULL_COUNT = 30
# More curves than the eye can distinguish by colour.
_MOST_CURVES = 10


class Reliability(NamedTuple):
    """How many predictions were right, by bins of their confidence.

    Attributes:
        counts: [B] the predictions in each bin.
        confidence: [B] their mean confidence; 0 in an empty bin.
        accuracy: [B] the share of them that were right; 0 in an empty bin.
    """

    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def expected_calibration_error(self) -> float:
        """sum_b counts_b / M * |accuracy_b - confidence_b| (Guo et al. 2017, eq. 3)."""
        gaps = np.abs(self.accuracy - self.confidence)
        return float((self.counts * gaps).sum() / max(self.counts.sum(), 1))


def reliability(
    confidence: np.ndarray, came_true: np.ndarray, num_bins: int = NUM_BINS
) -> Reliability:
    """Sorts predictions into bins of equal width, ((b - 1) / B, b / B]."""
    confidence = np.asarray(confidence, np.float64)
    edges = np.arange(1, num_bins) / num_bins
    bins = np.searchsorted(edges, confidence, side="left")

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(bins, weights=values, minlength=num_bins)

    counts = np.bincount(bins, minlength=num_bins)
    at_least_one = np.maximum(counts, 1)
    return Reliability(
        counts=counts,
        confidence=sums(confidence) / at_least_one,
        accuracy=sums(np.asarray(came_true, np.float64)) / at_least_one,
    )


def reliabilities(
    target: Target, probabilities: np.ndarray, labels: np.ndarray
) -> list[Reliability]:
    """The reliability of the predicted class, or of each of several labels."""
    if target.kind == MULTI_LABEL:
        return [
            reliability(probabilities[:, c], labels[:, c])
            for c in range(target.num_outputs)
        ]
    predictions = probabilities.argmax(axis=-1)
    return [reliability(probabilities.max(axis=-1), predictions == labels)]


def brier_score(target: Target, probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The mean squared distance of probabilities from the truth (Brier 1950)."""
    if target.kind == MULTI_LABEL:
        return float(np.square(probabilities - labels).mean())
    truth = np.eye(target.num_outputs)[labels]
    return float(np.square(probabilities - truth).sum(axis=-1).mean())


def calibration_picture(
    target: Target, probabilities: np.ndarray, labels: np.ndarray, title: str
) -> bytes:
    """A reliability diagram with the histogram of the confidence below it, as a PNG.

    Each of several labels has its curve, or all decisions share one if there are more
    labels than colours; the calibration error is the mean over the labels.
    """
    parts = reliabilities(target, probabilities, labels)
    error = np.mean([part.expected_calibration_error for part in parts])
    score = brier_score(target, probabilities, labels)
    several = target.kind == MULTI_LABEL
    names = list(target.labels) if several else ["the predicted class"]
    if len(parts) > _MOST_CURVES:
        parts = [reliability(probabilities.ravel(), labels.ravel())]
        names = ["all labels"]
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 6.4), layout="constrained")
        diagram, histogram = figure.subplots(
            2, sharex=True, gridspec_kw={"height_ratios": [3, 1]}
        )
        diagram.plot([0, 1], [0, 1], color="gray", linestyle="--", linewidth=1)
        if several:
            _draw_curves(diagram, parts, names)
        else:
            _draw_bars(diagram, parts[0])
        diagram.set_ylim(0, 1)
        diagram.set_ylabel("share that came true" if several else "accuracy")
        diagram.set_title(
            f"{title}\nexpected calibration error {error:.3f}, Brier score {score:.3f}",
            fontsize="medium",
            parse_math=False,
        )
        middles = (np.arange(NUM_BINS) + 0.5) / NUM_BINS
        counts = np.sum([part.counts for part in parts], axis=0)
        histogram.bar(middles, counts, width=0.9 / NUM_BINS, color="tab:gray")
        histogram.set_xlim(0, 1)
        if 0 < counts[counts > 0].min() < _FULL_COUNT:
            histogram.set_title(
                f"paler above: of fewer than {_FULL_COUNT} predictions", fontsize=8
            )
        histogram.set_ylabel("predictions")
        histogram.set_xlabel("probability" if several else "confidence")
        return png(figure)


def regression_picture(
    target: Target, predictions: np.ndarray, labels: np.ndarray, title: str
) -> bytes:
    """Predicted against true numbers, as a PNG, with the line of equality."""
    columns = np.reshape(predictions, (-1, target.num_outputs))
    truth = np.reshape(labels, columns.shape)
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 5.8), layout="constrained")
        axes = figure.add_subplot()
        ends = [min(columns.min(), truth.min()), max(columns.max(), truth.max())]
        axes.plot(ends, ends, color="gray", linestyle="--", linewidth=1)
        said = []
        for c in range(target.num_outputs):
            name = target.labels[c] if target.labels else ""
            axes.scatter(truth[:, c], columns[:, c], s=9, alpha=0.4, label=name)
            pearson, _ = pearson_and_spearman(columns[:, c], truth[:, c])
            said.append(f"{name} {pearson:.3f}".lstrip())
        axes.set_xlabel("label")
        axes.set_ylabel("prediction")
        axes.set_title(
            f"{title}\nPearson {', '.join(said)}", fontsize="medium", parse_math=False
        )
        if target.labels:
            _name(axes)
        return png(figure)


def _draw_bars(axes: "Axes", part: Reliability) -> None:
    """The predicted class: accuracy as bars, and its distance from the confidence.

    A bar is paler the fewer predictions it counts.
    """
    filled = part.counts > 0
    middles = ((np.arange(NUM_BINS) + 0.5) / NUM_BINS)[filled]
    accuracy, confidence = part.accuracy[filled], part.confidence[filled]
    width = 1 / NUM_BINS
    bars = axes.bar(middles, accuracy, width, edgecolor="black", linewidth=0.5)
    gaps = axes.bar(
        middles,
        confidence - accuracy,
        width,
        bottom=accuracy,
        color="none",
        edgecolor="tab:red",
        hatch="//",
        linewidth=0.5,
        label="gap to the mean confidence",
    )
    opacities = _opacities(part.counts[filled])
    for bar, gap, opacity in zip(bars, gaps, opacities, strict=True):
        bar.set_alpha(opacity)
        gap.set_alpha(opacity)
    _name(axes)


def _draw_curves(axes: "Axes", parts: list[Reliability], names: list[str]) -> None:
    for part, name in zip(parts, names, strict=True):
        filled = part.counts > 0
        places = part.confidence[filled], part.accuracy[filled]
        (line,) = axes.plot(*places, linewidth=1, label=name)
        for x, y, opacity in zip(*places, _opacities(part.counts[filled]), strict=True):
            axes.plot(x, y, "o", ms=4, color=line.get_color(), alpha=opacity)
    _name(axes)


def _opacities(counts: np.ndarray) -> np.ndarray:
    """How dark to draw what is computed from few predictions: by its standard error."""
    return np.clip(np.sqrt(counts / _FULL_COUNT), 0.15, 1.0)


def _name(axes: "Axes") -> None:
    legend = axes.legend(loc="upper left", fontsize="small")
    for text in legend.get_texts():
        text.set_parse_math(False)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1.0)


# Texts longer than the model, read in overlapping windows.
#
# If r tokens of a text fit, window k is its tokens [k s, k s + r), with the stride s;
# the last window is the first that reaches the text's end. So each token is in at least
# one window. In a pair the longer text (the second, if they are equally long) is split
# into windows, and each window has the whole of the other text, up to half of the room.
#
# Each window is a record with the example's label. In training each has weight 1, so a
# text of k windows weighs k times as much as a short one. In evaluation the example's
# outputs are the mean of its windows' logits: for classes, the geometric mean of their
# probabilities; for numbers, their mean.
#
# Shapes: N examples, R records, C outputs.


def windows_of_pair(
    tokens_a: Tokens, tokens_b: Tokens, room: int, stride: int | None = None
) -> tuple[list[tuple[Tokens, Tokens]], bool]:
    """The windows of a text or a pair."""
    if len(tokens_a) + len(tokens_b) <= room:
        return [(tokens_a, tokens_b)], False
    if len(tokens_a) > len(tokens_b):
        whole = tokens_b[: room // 2]
        pairs = [(window, whole) for window in _windows(tokens_a, room, whole, stride)]
        return pairs, len(whole) < len(tokens_b)
    whole = tokens_a[: room // 2]
    pairs = [(whole, window) for window in _windows(tokens_b, room, whole, stride)]
    return pairs, len(whole) < len(tokens_a)


def _windows(
    tokens: Tokens, room: int, beside: Tokens, stride: int | None
) -> list[Tokens]:
    """A text's windows next to a text that is whole in each."""
    size = room - len(beside)
    stride = min(stride or max(1, size // 2), size)
    last = max(0, len(tokens) - size)
    return [tokens[start : start + size] for start in range(0, last + stride, stride)]


def average_windows(logits: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """The outputs of examples from those of their windows: the mean of the logits."""
    numbers = np.array(counts, np.int64)
    if numbers.sum() != len(logits) or (numbers < 1).any():
        raise ValueError(
            f"`counts` must be positive and add up to {len(logits)}, the number of"
            f" windows. Received: a sum of {numbers.sum()}"
        )
    starts = np.cumsum(numbers) - numbers
    sums = np.add.reduceat(logits, starts, axis=0)
    return sums / numbers[:, None].astype(logits.dtype)


# Sentence and sentence-pair classification and regression as a task.
#
# Devlin et al. 2018, section 4.1: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]; the pooled
# output passes through dropout and one linear layer. Several labels, each with its own
# sigmoid, and several numbers work the same way.
#
# Shapes: N examples, R records, L tokens of a record.


_EXAMPLES_AT_ONCE = 1024


def task(
    config: BertConfig,
    target: Target,
    name: str,
    *,
    recompute: bool = False,
    **options: Any,
) -> Task:
    """The task of predicting a target."""
    return Task(
        name=name,
        build_model=lambda: BertClassifier(
            config,
            target.num_outputs,
            problem_type=target.kind,
            recompute=recompute,
            **options,
        ),
        objective=CLASSIFIERS[target.kind],
    )


def schema(target: Target, max_seq_length: int) -> RecordSpec:
    """The features of a target's record."""
    return RecordSpec.classification(
        max_seq_length, target.label_dtype, target.label_length
    )


def check_labels(examples: Iterable[Example], target: Target) -> None:
    """Raises InputError, naming the line, if the target does not accept a label."""
    for example in examples:
        target.encode(example.label, example.source)


class TextFeaturizer:
    """Converts examples to records: tokenized, cut or in windows, padded.

    Attributes:
        num_truncated: how many examples of the latest call have lost tokens.
        window_counts: how many records each of them became; empty without windows.
    """

    def __init__(
        self,
        tokenizer: WordPieceTokenizer,
        *,
        max_seq_length: int,
        target: Target,
        windows: bool = False,
        doc_stride: int | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._target = target
        self._windows = windows
        self._doc_stride = doc_stride
        self.num_truncated = 0
        self.window_counts: list[int] = []

    @property
    def settings(self) -> dict[str, Any]:
        """All that the records depend on in addition to the examples, as JSON."""
        return {
            "vocabulary": self._tokenizer.vocabulary.sha256,
            "do_lower_case": self._tokenizer.do_lower_case,
            "max_seq_length": self._max_seq_length,
            "target": [self._target.kind, self._target.labels, self._target.separator],
            "windows": self._windows,
            "doc_stride": self._doc_stride if self._windows else None,
        }

    def blocks(self, examples: Iterable[Example]) -> Iterator[dict[str, np.ndarray]]:
        """The records of many examples at once, as in `schema`."""
        self.num_truncated = 0
        self.window_counts = []
        remaining = iter(examples)
        while block := list(itertools.islice(remaining, _EXAMPLES_AT_ONCE)):
            yield self._block(block)

    def _block(self, examples: Sequence[Example]) -> dict[str, np.ndarray]:
        pairs, labels = [], []
        for example in examples:
            label = self._target.encode(example.label, example.source)
            for pair in self._texts(example):
                pairs.append(pair)
                labels.append(label)
        return {
            **pair_features(pairs, self._tokenizer.vocabulary, self._max_seq_length),
            "label_ids": np.array(labels, self._target.label_dtype),
            "is_real_example": np.ones((len(labels), 1), np.int64),
        }

    def _texts(self, example: Example) -> Sequence[tuple[Tokens, Tokens]]:
        """The tokens of an example's records: the first text's and the second's."""
        tokens_a = self._tokenizer.encode(example.text_a)
        tokens_b = self._tokenizer.encode(example.text_b) if example.text_b else []
        room = self._max_seq_length - (3 if tokens_b else 2)
        if self._windows:
            pairs, is_cut = windows_of_pair(tokens_a, tokens_b, room, self._doc_stride)
            self.window_counts.append(len(pairs))
        else:
            pairs = [truncate_pair(tokens_a, tokens_b, room)]
            is_cut = len(tokens_a) + len(tokens_b) > room
        self.num_truncated += is_cut
        return pairs


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
#
# Shapes: N examples, M of them with a label, C outputs.


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
    """Writes the table of the predictions."""
    _check_shape(examples, target, logits)
    chosen = range(len(examples)) if rows is None else rows
    words = target.words(logits)
    probabilities = target.probabilities(logits)
    errors = dict(zip(*_errors(examples, target, logits), strict=True))
    if target.kind == REGRESSION:
        judgements = ["error"]
    else:
        judgements = ["correct", *(f"p_{label}" for label in target.labels)]
    lines = [_line(["index", "label", "prediction", *judgements, "text_a", "text_b"])]
    for row in chosen:
        example = examples[row]
        error = errors.get(row)
        if target.kind == REGRESSION:
            judged = [_error(error, target)]
        else:
            judged = ["" if error is None else str(int(not np.any(error)))]
            judged += [f"{value:.6f}" for value in probabilities[row]]
        lines.append(
            _line(
                [
                    str(row),
                    example.label or "",
                    words[row],
                    *judged,
                    example.text_a,
                    example.text_b or "",
                ]
            )
        )
    files.write_atomically(path, "".join(lines))


def read_predictions(path: str) -> list[dict[str, str]]:
    """The rows of a table of `write_predictions`: column -> cell, escapes undone."""
    header: list[str] | None = None
    rows = []
    text = files.read_text(path, "table of predictions")
    for number, line in enumerate(files.lines(text), start=1):
        cells = [_unescaped(cell) for cell in line.removesuffix("\n").split("\t")]
        if header is None:
            header = cells
            continue
        if len(cells) != len(header):
            raise InputError(
                f"{path}:{number}: {len(cells)} cells, but the header has"
                f" {len(header)}. Was the file edited?"
            )
        rows.append(dict(zip(header, cells, strict=True)))
    return rows


def labelled(
    examples: Sequence[Example], target: Target
) -> tuple[np.ndarray, np.ndarray]:
    """The examples whose label is known."""
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
    _check_shape(examples, target, logits)
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


def _check_shape(
    examples: Sequence[Example], target: Target, logits: np.ndarray
) -> None:
    expected = (len(examples), target.num_outputs)
    if np.shape(logits) != expected:
        raise ValueError(
            "`logits` must have a row an example and a column an output."
            f" Received: {np.shape(logits)}; expected: {expected}"
        )


def _error(error: np.ndarray | None, target: Target) -> str:
    if error is None:
        return ""
    return target.separator.join(f"{value:.3f}" for value in np.atleast_1d(error))


def _line(cells: Sequence[str]) -> str:
    return "\t".join(cell.translate(_ESCAPE_TABLE) for cell in cells) + "\n"


def _unescaped(cell: str) -> str:
    return re.sub(r"\\[\\tnr]", lambda found: _MEANINGS[found.group()], cell)


# All files written to inspect a split's predictions.


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
        predictions = target.predictions(logits)[rows]
        title = ", ".join(filter(None, [task_name, f"{split}: {len(rows)} examples"]))
        named = [
            f"{class_names[label]} ({label})" if label in class_names else label
            for label in target.labels
        ]
        target = dataclasses.replace(target, labels=tuple(named))
        if target.kind == REGRESSION:
            pictures = {
                "regression.png": regression_picture(target, predictions, labels, title)
            }
        else:
            probabilities = target.probabilities(logits)[rows]
            pictures = {
                "confusion.png": confusion_picture(target, predictions, labels, title),
                "calibration.png": calibration_picture(
                    target, probabilities, labels, title
                ),
            }
        for name, content in pictures.items():
            files.write_atomically(path(name), content)
    logging.info("Wrote %s to %s.", ", ".join(map(os.path.basename, written)), folder)
    return written


# A split's records, under the original's names if it has one.
_RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}


def classification_task(
    options: ClassifierOptions,
    found: ModelFiles,
    strategy: tf.distribute.Strategy,
    *,
    data_set: DataSet | None = None,
    submission_dir: str | None = None,
) -> FineTuningTask[np.ndarray]:
    """The task of classifying, on the options' data set, or another."""
    data_set = data_set or data_set_of(options)
    if options.do_eval and not data_set.dev_splits:
        raise InputError(
            f"`do_eval`: {data_set.name} has no development set. Leave it out."
        )
    adapter = opened_adapter(options, found.config)
    trained = adapter or found.source
    target = _target(options, data_set, trained)
    if trained is not None and options.init_head:
        _refuse_other_head(trained, target)
    texts = _Texts(options, found, data_set, target, num_workers(strategy) == 1)
    built = model_options(options, adapter)
    # Always the accuracy, which the original reports.
    original = ["accuracy"] if target.kind == SINGLE_LABEL else []
    metrics = list(dict.fromkeys([*data_set.metrics, *original]))
    return FineTuningTask.of(
        task(found.config, target, data_set.name, recompute=options.recompute, **built),
        head=names.CLASSIFIER,
        # A data set without training data, GLUE's AX, is predicted by another's model.
        trains_task=data_set.name if "train" in data_set.splits else None,
        records=lambda: texts.records("train"),
        data=texts.data,
        predict=texts.logits,
        score=functools.partial(texts.score, metrics=metrics),
        write=functools.partial(texts.write, submission_dir=submission_dir),
        identity=lambda split: texts.records(split).made_from,
        baseline=texts.baseline,
        dev_splits=data_set.dev_splits,
        test_splits=data_set.test_splits,
        metrics=[LOSS, EXAMPLE_LOSS, *metrics],
        metric=data_set.metrics[0],
        labels=target.labels,
        problem_type=target.kind,
        result_names={name: f"eval_{{}}{name}" for name in (*metrics, MAJORITY)},
    )


class _Texts:
    """The examples of each split, tokenized once, and the meaning of their outputs."""

    def __init__(
        self,
        options: ClassifierOptions,
        found: ModelFiles,
        data_set: DataSet,
        target: Target,
        is_alone: bool,
    ) -> None:
        self._options = options
        self._tokenizer = found.tokenizer
        self._data_set = data_set
        self._target = target
        self._is_alone = is_alone
        splits = [
            *(["train"] if options.do_train and "train" in data_set.splits else []),
            *(data_set.dev_splits if options.looks_at_dev else []),
            *(data_set.test_splits if options.do_predict else []),
        ]
        self.examples: dict[str, list[Example]] = {
            split: data_set.read(options.data_dir, split) for split in splits
        }
        for examples in self.examples.values():
            check_labels(examples, target)
        self._records: dict[str, SplitRecords] = {}

    def data(self) -> RunData:
        """The training set."""
        if self._data_set.is_from_tfds:
            where = self._options.tfds_name
        else:
            where = self._data_set.path(self._options.data_dir, "train")
        count = len(self.examples["train"])
        return RunData(f"{count} examples of {where}", self._digest("train"))

    def records(self, split: str) -> SplitRecords:
        """A split's records, in --output_dir."""
        if split not in self._records:
            self._records[split] = self._tokenized(split)
        return self._records[split]

    def logits(self, split: str, outputs: Outputs) -> np.ndarray:
        """The model's outputs, [N, C] float32, in the order of the examples."""
        options, records = self._options, self.records(split)
        is_test = split in self._data_set.test_splits
        logits = logits_of(
            outputs,
            records,
            options,
            batch_size=options.predict_batch_size
            if is_test
            else options.eval_batch_size,
            num_outputs=self._target.num_outputs,
        )
        counts = records.notes["window_counts"]
        return average_windows(logits, counts) if counts else logits

    def score(
        self, split: str, logits: np.ndarray, *, metrics: Sequence[str]
    ) -> dict[str, float]:
        """A split's losses and metrics: see `bert_tf.tasks.finetuning.scores`."""
        if split in self._data_set.test_splits:
            return {}
        return scores(
            self.examples[split],
            self._target,
            logits,
            objective=CLASSIFIERS[self._target.kind],
            metric_names=metrics,
            batch_size=self._options.eval_batch_size,
        )

    def baseline(self, metric: str) -> float | None:
        """The majority-class baseline's score on the development set."""
        split = self._data_set.dev_splits[0]
        return baseline(self.examples[split], self._target, metric)

    def write(
        self,
        folder: str,
        split: str,
        logits: np.ndarray,
        step: int,
        submission_dir: str | None = None,
    ) -> None:
        """Writes predictions, plots and mistakes; for a test set the server's file."""
        del step
        write_reports(
            folder,
            split,
            self.examples[split],
            self._target,
            logits,
            task_name=self._data_set.name,
            class_names=self._data_set.class_names,
            plots=self._options.plots,
            num_mistakes=self._options.num_mistakes,
        )
        if split not in self._data_set.test_splits:
            return
        path = os.path.join(folder, f"test_results{split.removeprefix('test')}.tsv")
        rows = self._target.probabilities(logits)
        # One line per example, as in the original: tab-separated probabilities.
        lines = ["\t".join(str(value) for value in row) + "\n" for row in rows]
        files.write_atomically(path, "".join(lines))
        logging.info("Wrote %d lines to %s.", len(lines), path)
        submission.write_task_file(
            submission_dir or os.path.join(folder, "submission"),
            self._data_set.name,
            split,
            self._target.words(logits),
        )

    def _digest(self, split: str) -> str:
        return rows_digest(
            (one.text_a, one.text_b, one.label) for one in self.examples[split]
        )

    def _tokenized(self, split: str) -> SplitRecords:
        examples, length = self.examples[split], self._options.max_seq_length
        featurizer = TextFeaturizer(
            self._tokenizer,
            max_seq_length=length,
            target=self._target,
            windows=self._options.long_text == "window",
            doc_stride=self._options.doc_stride,
        )
        name = f"{_RECORD_NAMES.get(split, split)}.tf_record"
        records = SplitRecords.prepare(
            os.path.join(self._options.output_dir, name),
            schema(self._target, length),
            {**featurizer.settings, "examples": self._digest(split)},
            featurizer.blocks(examples),
            lambda: {
                "num_truncated": featurizer.num_truncated,
                "window_counts": featurizer.window_counts,
            },
            is_alone=self._is_alone,
        )
        cut = records.notes["num_truncated"]
        if cut:
            logging.info(
                "%d of %d %s examples were longer than --max_seq_length=%d and cut.",
                cut,
                len(examples),
                split,
                length,
            )
        if records.num_records > len(examples):
            logging.info(
                "%d %s examples are read in %d windows.",
                len(examples),
                split,
                records.num_records,
            )
        return records


def _target(
    options: ClassifierOptions,
    data_set: DataSet,
    trained: Source | AdapterFiles | None,
) -> Target:
    """What the model predicts.

    Without training, a table's classes are those that the run recorded, or that
    the checkpoint was trained with, so that prediction needs no training file.
    """
    if data_set.labels is None and not options.do_train:
        recorded = run_folder.recorded_labels(folder_of_model(options))
        labels = recorded or (trained.labels if trained else None)
        if labels:
            return data_set.target(tuple(labels))
    return data_set.read_target(options.data_dir)


def _refuse_other_head(trained: Source | AdapterFiles, target: Target) -> None:
    """Raises InputError if a trained head predicts something else."""
    if isinstance(trained, AdapterFiles):
        kind: str | None = trained.problem_type
    else:
        kind = trained.classifier_problem_type()
    if kind is None:
        return
    # Labels without names have the same number, or their weights will not fit.
    labels = target.labels if trained.labels is None else trained.labels
    if (kind, labels) == (target.kind, target.labels):
        return
    raise InputError(
        f"{trained.path} has a head that predicts {_described(kind, labels)}; this"
        f" task's predicts {_described(target.kind, target.labels)}."
        " --init_head=false begins with a new head."
    )


def _described(kind: str, labels: Sequence[str]) -> str:
    """What is predicted, for messages."""
    if kind == REGRESSION:
        return ", ".join(labels) or "a number"
    return f"{'any' if kind == MULTI_LABEL else 'one'} of {', '.join(labels)}"
