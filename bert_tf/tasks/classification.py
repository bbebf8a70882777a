"""Classification and regression of texts and pairs of texts."""

import dataclasses
import functools
import itertools
import os
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.finetuning import calibration
from bert_tf.finetuning.confusion import confusion_picture
from bert_tf.modeling.heads import BertClassifier
from bert_tf.modeling.objectives import CLASSIFIERS
from bert_tf.records.spec import RecordSchema, classifier_schema
from bert_tf.tasks.tables import MULTI_LABEL, REGRESSION, Example, Target
from bert_tf.tasks.windows import windows_of_pair
from bert_tf.text.wordpiece import (
    Tokens,
    WordPieceTokenizer,
    pair_features,
    truncate_pair,
)
from bert_tf.training.task import Task
from bert_tf.training.throughput import classifier_flops

# Sentence and sentence-pair classification and regression as a task.
#
# Devlin et al. 2018, section 4.1: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]; the pooled
# output goes through dropout into one linear layer. Several labels at once, each with
# a
# sigmoid of its own, and several numbers go the same way.
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
        training_flops=functools.partial(
            classifier_flops, config, num_labels=target.num_outputs
        ),
    )


def schema(target: Target, max_seq_length: int) -> RecordSchema:
    """What a record of a target holds."""
    return classifier_schema(max_seq_length, target.label_dtype, target.label_length)


def check_labels(examples: Iterable[Example], target: Target) -> None:
    """Raises InputError, naming the line, if a label is none that the target takes."""
    for example in examples:
        target.encode(example.label, example.source)


class Featurizer:
    """Makes examples into records: tokenized, cut or in windows, padded.

    Attributes:
        num_truncated: how many of the examples seen last have lost tokens.
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
        """All that the records depend on beside the examples, as JSON has it."""
        return {
            "vocabulary": self._tokenizer.vocabulary.sha256,
            "do_lower_case": self._tokenizer.do_lower_case,
            "max_seq_length": self._max_seq_length,
            "target": [self._target.kind, self._target.labels, self._target.separator],
            "windows": self._windows,
            "doc_stride": self._doc_stride if self._windows else None,
        }

    def blocks(self, examples: Iterable[Example]) -> Iterator[dict[str, np.ndarray]]:
        """The records of examples, many at once, as `schema` has them."""
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
        """The tokens of an example's records: of the first text and of the second."""
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


# What was predicted for each example, with its text: a table to read and to load.
#
# SPLIT_predictions.tsv has a header, then one line an example, with tabs between the
# cells:
#
#     index       the example's number in its split, from 0
#     label       the true label as the data has it; empty where there is none
#     prediction  the predicted one, as data would have it: entailment, or a,c, or
#     3.214
#     correct     1 or 0, all of several labels together; empty where there is no
#     label
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
    """The wrong predictions that the model was surest of, the surest one first.

    How sure: the probability of what was predicted; of several labels, the largest
    probability of a wrong decision on one. For numbers all predictions, by the absolute
    error (its sum over several).
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
    """The rows that have a label, and how far their predictions are from it.

    Prediction minus label: 0 where right, of several labels -1 for one that was missed;
    of classes whether they differ.
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


# All that is written to look at a split's predictions.


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
    """Writes a split's predictions, and where it has labels what they are worth.

    SPLIT_predictions.tsv is every example; SPLIT_mistakes.tsv the most confident
    mistakes in the same columns; SPLIT_confusion.png which label is taken for which;
    SPLIT_calibration.png whether the probabilities can be believed. For numbers there
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
                "regression.png": calibration.regression_picture(
                    target, predictions, labels, title
                )
            }
        else:
            probabilities = target.probabilities(logits)[rows]
            pictures = {
                "confusion.png": confusion_picture(target, predictions, labels, title),
                "calibration.png": calibration.calibration_picture(
                    target, probabilities, labels, title
                ),
            }
        for name, content in pictures.items():
            files.write_atomically(path(name), content)
    logging.info("Wrote %s to %s.", ", ".join(map(os.path.basename, written)), folder)
    return written
