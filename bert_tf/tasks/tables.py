"""Tables of labelled texts, and the data sets that name their columns."""

import csv
import dataclasses
import functools
import io
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf import files as file_system
from bert_tf.config import MULTI_LABEL, PROBLEM_TYPES, REGRESSION, SINGLE_LABEL
from bert_tf.errors import InputError
from bert_tf.metrics import METRICS_OF, OF_TWO_CLASSES
from bert_tf.text.tfds import TfdsRows

# Labelled sentences and sentence pairs, from TSV and CSV files.
#
# A `TableSplit` describes which columns of a split hold what. TSV files are cut at tabs
# alone, as in the original (quotes are ordinary characters); files that end in .csv are
# read with commas and quotes.
#
# Every row is used or reported with its line number. A few unusable rows (too few
# columns, an unknown label) are left out; GLUE's own QQP has some.


# Per file. QQP's train.tsv has a few rows that line ends within a question split.
MAX_UNUSABLE = 0.01


_RENAME = " It has {}, no {}: give the file a name that ends in {}."


class Example(NamedTuple):
    """A sentence or a pair of sentences.

    Attributes:
        text_a: the first sentence.
        text_b: the second one; None or empty if there is none.
        label: its label as written; None in a test set.
        source: "file:line", for messages.
    """

    text_a: str
    text_b: str | None
    label: str | None
    source: str


Column = int | str
# Raises InputError unless the label, written at "file:line", is one of the task's.
LabelCheck = Callable[[str, str], object]


class UnusableRows:
    """The unusable rows of a file: few are reported, many are an error."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lines: list[int] = []
        self._first = ""

    def add(self, line: int, reason: str) -> None:
        """Counts the row at a line."""
        self._first = self._first or reason
        self._lines.append(line)

    def report(self, num_rows: int, *, may_be_few: bool) -> None:
        """Warns of the rows."""
        count = len(self._lines)
        if not count:
            return
        if not may_be_few or count > MAX_UNUSABLE * num_rows:
            limit = f"; at most {MAX_UNUSABLE:.0%} may be" if may_be_few else ""
            others = (
                f" ({count:,} of the file's {num_rows:,} rows cannot be used:"
                f" {numbered(self._lines)}{limit}.)"
                if count > 1 or may_be_few
                else ""
            )
            raise InputError(f"{self.path}:{self._lines[0]}: {self._first}{others}")
        logging.warning(
            "%s: left out %s of %s rows, which cannot be used: %s. The first one: %s",
            self.path,
            f"{count:,}",
            f"{num_rows:,}",
            numbered(self._lines),
            self._first,
        )


def warn_of_left_out(path: str, lines: Sequence[int], what: str) -> None:
    """Warns of any rows that are left out."""
    if lines:
        logging.warning(
            "%s: left out %s %s row%s: %s.",
            path,
            f"{len(lines):,}",
            what,
            "" if len(lines) == 1 else "s",
            numbered(lines),
        )


def numbered(lines: Sequence[int], at_most: int = 5) -> str:
    """The first few of some line numbers: "line 3", "lines 3, 8 and 12 more"."""
    shown = ", ".join(str(line) for line in lines[:at_most])
    more = f" and {len(lines) - at_most:,} more" if len(lines) > at_most else ""
    return f"line{'' if len(lines) == 1 else 's'} {shown}{more}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSplit:
    """Where the examples of one split are in a table.

    Attributes:
        text_a: the first sentence's column: a number from 0 (negative: from the end) or
            a name in the header.
        text_b: the second sentence's column, if any.
        label: the label's column; None if there are no labels.
        has_header: whether the first row names the columns.
        only: column -> the value that a row must have to be used.
        rename: label as written -> label meant.
        no_label: what is written where the annotators did not agree: such rows are
            left out, as many as there are.
    """

    text_a: Column
    text_b: Column | None = None
    label: Column | None = None
    has_header: bool = True
    only: Mapping[Column, str] = dataclasses.field(default_factory=dict)
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    no_label: str | None = None

    def read(self, path: str, check: LabelCheck | None = None) -> list[Example]:
        """The examples of a file.

        Args:
            path: the file.
            check: checks each label; None: any label is allowed.

        Raises:
            InputError: no such file, not UTF-8, a column is missing, it has no example,
                or too many rows are unusable. Without labels no row may be unusable:
                predictions are identified by their position.
        """
        rows = _rows(path)
        header = next(rows)[1] if self.has_header else None
        text_a, text_b, label_index = (
            None if column is None else _index(column, header, path)
            for column in (self.text_a, self.text_b, self.label)
        )
        only = [(_index(col, header, path), value) for col, value in self.only.items()]
        assert text_a is not None
        examples: list[Example] = []
        blank: list[int] = []
        unlabelled: list[int] = []
        unusable = UnusableRows(path)
        num_rows = last = 0
        labels_seen: set[str] = set()
        for number, row in rows:
            if not any(row):
                blank.append(number)
                continue
            num_rows += 1
            last = number
            try:
                if any(row[index] != value for index, value in only):
                    continue
                first = row[text_a]
                second = None if text_b is None else row[text_b]
                label = None if label_index is None else row[label_index]
            except IndexError:
                unusable.add(number, self._missing(row, header, path))
                continue
            source = f"{path}:{number}"
            if label is not None:
                if label == self.no_label:
                    unlabelled.append(number)
                    continue
                label = self.rename.get(label, label)
                if check is not None and label not in labels_seen:
                    try:
                        check(label, source)
                    except InputError as error:
                        unusable.add(number, str(error).removeprefix(f"{source}: "))
                        continue
                    labels_seen.add(label)
            examples.append(Example(first, second, label, source))
        if self.label is None:
            # At the file's end they are not rows.
            for line in [line for line in blank if line < last]:
                num_rows += 1
                unusable.add(line, "the row is blank.")
        unusable.report(num_rows, may_be_few=self.label is not None)
        warn_of_left_out(path, blank, "blank")
        warn_of_left_out(path, unlabelled, "unlabelled")
        if not examples:
            wanted = "".join(
                f" with {value!r} in column {column!r}"
                for column, value in self.only.items()
            )
            raise InputError(f"{path}: no examples{wanted} in this file.")
        return examples

    def _missing(self, row: list[str], header: list[str] | None, path: str) -> str:
        """The column that a row is too short for."""
        for column in (*self.only, self.text_a, self.text_b, self.label):
            if column is None:
                continue
            index = _index(column, header, path)
            if not -len(row) <= index < len(row):
                wanted = repr(column)
                if isinstance(column, int) and column >= 0:
                    wanted = f"{column + 1}, counted from 1,"
                return (
                    f"column {wanted} is missing: the row has {len(row)}"
                    f" column{'' if len(row) == 1 else 's'}."
                    f"{other_separator(row, path)}"
                )
        raise AssertionError("the row is long enough")


def _rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each row; the byte order mark is left out."""
    text = files.read_text(path, "data file").removeprefix("\ufeff")
    if not text:
        raise InputError(f"{path}: the file is empty.")
    if path.lower().endswith(".csv"):
        yield from comma_separated(text, path)
        return
    for number, line in enumerate(files.lines(text), start=1):
        yield number, line.rstrip("\r\n").split("\t")


def comma_separated(text: str, path: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each row of a CSV text; a cell may span several lines."""
    # A cell may be as long as the file. The limit is the whole process's.
    limit = csv.field_size_limit(max(len(text), csv.field_size_limit()))
    # strict: otherwise an unclosed quote takes all following rows into one cell.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: {error}.") from error
    finally:
        csv.field_size_limit(limit)


def columns_of(header: Sequence[str], path: str) -> str:
    """A file's columns, for a message about a missing one."""
    names = ", ".join(map(repr, header)) or "none (no header)"
    return f"Columns: {names}.{other_separator(header, path)}"


def other_separator(row: Sequence[str], path: str) -> str:
    """Advice for a row of one cell, if another separator splits it."""
    if len(row) != 1:
        return ""
    if path.lower().endswith(".csv"):
        return _RENAME.format("tabs", "commas", ".tsv") if "\t" in row[0] else ""
    return _RENAME.format("commas", "tabs", ".csv") if "," in row[0] else ""


def _index(column: Column, header: list[str] | None, path: str) -> int:
    """A column's number."""
    if isinstance(column, int):
        return column
    if header is None or column not in header:
        raise InputError(
            f"{path}: no column is named {column!r}. {columns_of(header or (), path)}"
        )
    if header.count(column) > 1:
        raise InputError(
            f"{path}: several columns are named {column!r}: rename all but one."
            f" {columns_of(header, path)}"
        )
    return header.index(column)


# Labelled sentences and sentence pairs from TensorFlow Datasets.
#
# The library shuffles a set when it prepares it. GLUE's sets keep each row's number in
# the feature "idx"; their examples are returned in that order, which the GLUE server
# expects.


SPLITS = {"train": "train", "dev": "validation", "test": "test"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSet:
    """Where a data set is in TensorFlow Datasets.

    Attributes:
        name: such as "glue/cola".
        splits: our split -> theirs, or a slice of it: "train[:90%]".
        text_a: the first sentence's feature.
        text_b: the second one's, if any.
        label: the label's feature.
        index: the feature with the rows' numbers in the original file, if any.
        rename: their class -> our label.
    """

    name: str
    splits: Mapping[str, str] = dataclasses.field(default_factory=lambda: SPLITS)
    text_a: str
    text_b: str | None = None
    label: str = "label"
    index: str | None = "idx"
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def is_in(self, name: str) -> bool:
        """Whether `name` is this set, perhaps with a version: "glue/cola:2.0.0"."""
        return re.fullmatch(rf"{re.escape(self.name)}([:/][0-9.*]+)?", name) is not None

    def make_splits(
        self, name: str | None, folder: str | None
    ) -> dict[str, "TfdsSplit"]:
        """The splits; those of our names that begin with "test" have no labels."""
        return {
            ours: TfdsSplit(
                name=name or self.name,
                split=theirs,
                folder=folder,
                text_a=self.text_a,
                text_b=self.text_b,
                label=None if ours.startswith("test") else self.label,
                index=self.index,
                rename=self.rename,
            )
            for ours, theirs in self.splits.items()
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSplit:
    """Where the examples of one split are in TensorFlow Datasets.

    Attributes: as those of `TfdsSet`; `label` is None if there are no labels, and
    `folder` is that of prepared data sets, None for the library's own.
    """

    name: str
    split: str
    text_a: str
    text_b: str | None = None
    label: str | None = None
    index: str | None = None
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    folder: str | None = None

    def read(
        self, check: LabelCheck | None = None, *, separator: str = ","
    ) -> list[Example]:
        """The examples, in the order of `index`.

        A set that is not yet prepared is prepared, which may download it. Examples of
        class -1, the library's mark for no label (in SNLI, where the annotators did not
        agree), are all left out.
        """
        rows = self._rows()
        path = rows.path
        names = rows.class_names(self.label) if self.label is not None else None
        features = (self.text_a, self.text_b, self.label, self.index)
        wanted = {name: True for name in features if name is not None}
        numbered: list[tuple[int, Example]] = []
        unusable = UnusableRows(path)
        unlabelled: list[int] = []
        labels_seen: set[str] = set()
        number = -1
        for number, (_, row) in enumerate(rows.read(wanted)):
            position = number if self.index is None else row[self.index]
            source = f"{path}:{position}"
            label = None
            if self.label is not None:
                label = self._label(row[self.label], names, separator)
                if label is None:
                    unlabelled.append(position)
                    continue
                if check is not None and label not in labels_seen:
                    try:
                        check(label, source)
                    except InputError as error:
                        unusable.add(position, str(error).removeprefix(f"{source}: "))
                        continue
                    labels_seen.add(label)
            second = None if self.text_b is None else row[self.text_b]
            example = Example(row[self.text_a], second, label, source)
            numbered.append((position, example))
        unusable.report(number + 1, may_be_few=True)
        warn_of_left_out(path, unlabelled, "unlabelled")
        if not numbered:
            labelled = "labelled " if unlabelled else ""
            raise InputError(f"{path}: no {labelled}examples in this split.")
        return [example for _, example in sorted(numbered, key=lambda pair: pair[0])]

    def class_names(self) -> tuple[str, ...] | None:
        """The labels in the set's own order, if it names them."""
        if self.label is None:
            return None
        names = self._rows().class_names(self.label)
        return None if names is None else tuple(self.rename.get(n, n) for n in names)

    def _rows(self) -> TfdsRows:
        rows = TfdsRows(self.name, self.split, self.folder)
        rows.check(self.text_a, "text_a_column", is_text=True)
        if self.text_b is not None:
            rows.check(self.text_b, "text_b_column", is_text=True)
        if self.label is not None:
            rows.check(self.label, "label_column")
        return rows

    def _label(
        self, value: Any, names: tuple[str, ...] | None, separator: str
    ) -> str | None:
        """Our name of a label; None for a class of -1, which means no label."""
        if isinstance(value, list):
            words = [self._label(each, names, separator) for each in value]
            return separator.join(word for word in words if word is not None)
        if isinstance(value, str):
            return self.rename.get(value, value)
        if names is None:
            return str(value)
        return self.rename.get(names[value], names[value]) if value >= 0 else None


# What a classifier predicts: one label, several labels, or numbers.
#
# A target defines how a label is written in a table and in a record, and what the
# model's outputs mean. Several labels, or several numbers, are written in one cell with
# a separator, such as a comma, between them.
#
# Shapes: N examples, C outputs.


__all__ = ["MULTI_LABEL", "REGRESSION", "SINGLE_LABEL", "Target"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """What a classifier predicts.

    Attributes:
        kind: SINGLE_LABEL, MULTI_LABEL or REGRESSION.
        labels: the classes in the order of the outputs; for a regression of several
            numbers their names; () for one number.
        separator: the separator of several labels, or several numbers, in a cell.
    """

    kind: str
    labels: tuple[str, ...] = ()
    separator: str = ","

    def __post_init__(self) -> None:
        if self.kind not in PROBLEM_TYPES:
            raise ValueError(
                f"`kind` must be one of {PROBLEM_TYPES}. Received: {self.kind!r}"
            )
        at_least = {SINGLE_LABEL: 2, MULTI_LABEL: 1, REGRESSION: 0}[self.kind]
        if len(self.labels) < at_least or len(set(self.labels)) < len(self.labels):
            raise ValueError(
                f"`labels` of a {self.kind} must be {at_least} or more, each once."
                f" Received: {self.labels}"
            )

    @property
    def num_outputs(self) -> int:
        """C, the number of the model's outputs."""
        return max(1, len(self.labels))

    @property
    def label_length(self) -> int:
        """How many values a record's label has: 1, or C."""
        return 1 if self.kind == SINGLE_LABEL else self.num_outputs

    @property
    def label_dtype(self) -> str:
        """The type of a record's label: "int64" for a class, else "float32"."""
        return "int64" if self.kind == SINGLE_LABEL else "float32"

    def encode(self, label: str | None, source: str) -> list[int] | list[float]:
        """A record's label_ids: a class's id, the numbers, or 0.0 or 1.0 a label."""
        if self.kind == SINGLE_LABEL:
            return [0 if label is None else self._id(label, source)]
        if label is None:
            return [0.0] * self.label_length
        if self.kind == REGRESSION:
            return self._numbers(label, source)
        found = {self._id(word, source) for word in self.split(label)}
        return [float(index in found) for index in range(self.num_outputs)]

    def split(self, label: str) -> list[str]:
        """The labels in a cell of several; none in an empty one."""
        words = (word.strip() for word in label.split(self.separator))
        return [word for word in words if word]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """[N, C]: each class's, each label's own, or the numbers themselves."""
        logits = np.asarray(logits, np.float32)
        if self.kind == REGRESSION:
            return logits
        if self.kind == MULTI_LABEL:
            # Of -|x|, so that the power of a large number does not overflow.
            power = np.exp(-np.abs(logits))
            return np.where(logits >= 0, 1, power) / (1 + power)
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """The predictions, in the form that metrics take."""
        logits = np.asarray(logits)
        if self.kind == SINGLE_LABEL:
            return logits.argmax(axis=-1)
        if self.kind == MULTI_LABEL:
            return (logits > 0).astype(np.int64)
        return logits[:, 0] if self.num_outputs == 1 else logits

    def words(self, logits: np.ndarray) -> list[str]:
        """The predictions as text: "entailment", "a,c", "3.214"."""
        predictions = self.predictions(logits)
        if self.kind == SINGLE_LABEL:
            return [self.labels[index] for index in predictions]
        if self.kind == MULTI_LABEL:
            return [
                self.separator.join(
                    label for label, on in zip(self.labels, row, strict=True) if on
                )
                for row in predictions
            ]
        return [
            self.separator.join(f"{value:.3f}" for value in np.atleast_1d(row))
            for row in predictions
        ]

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {label: index for index, label in enumerate(self.labels)}

    def _id(self, label: str, source: str) -> int:
        if label not in self._ids:
            several = (
                f" (several: {self.separator!r} between them)"
                if self.kind == MULTI_LABEL
                else ""
            )
            raise InputError(
                f"{source}: the label must be one of {', '.join(self.labels)}"
                f"{several}. Found: {label!r}."
            )
        return self._ids[label]

    def _numbers(self, label: str, source: str) -> list[float]:
        count = self.num_outputs
        wanted = (
            "a number"
            if count == 1
            else f"{count} numbers, {self.separator!r} between them"
        )
        message = f"{source}: the label must be {wanted}. Found: {label!r}."
        try:
            numbers = [float(word) for word in label.split(self.separator)]
        except ValueError as error:
            raise InputError(message) from error
        if len(numbers) != count or not all(map(math.isfinite, numbers)):
            raise InputError(message)
        return numbers


# A data set of labelled sentences or sentence pairs, as data: its labels, its metrics,
# and how each split is read, from tables in --data_dir or from TensorFlow Datasets.


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """A classification or regression data set.

    Attributes:
        name: as GLUE spells it: "CoLA".
        metrics: names in `bert_tf.metrics`; a selection uses the first one.
        files: split -> file name under --data_dir; none for TensorFlow Datasets.
        splits: split ("train", "dev", "test") -> where its examples are.
        kind: what a classifier predicts: SINGLE_LABEL, MULTI_LABEL or REGRESSION.
        labels: the classes in the order of the model's outputs; the names of the
            numbers of a regression of several, () for one number; None for a custom
            table whose labels are those of its training split.
        separator: the separator of several labels or numbers in a cell.
        dev_splits: the splits on which a model is scored.
        test_splits: the splits whose predictions are the result.
        folder: its folder in GLUE's distribution.
        tfds: where it is in TensorFlow Datasets; None if it is not.
    """

    name: str
    metrics: tuple[str, ...]
    files: Mapping[str, str]
    splits: Mapping[str, TableSplit | TfdsSplit]
    kind: str = SINGLE_LABEL
    labels: tuple[str, ...] | None = None
    separator: str = ","
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)
    folder: str = ""
    tfds: TfdsSet | None = None

    @property
    def is_from_tfds(self) -> bool:
        """Whether the splits are read from TensorFlow Datasets, not from --data_dir."""
        return not self.files

    @property
    def class_names(self) -> dict[str, str]:
        """Label -> its meaning, if the files have a number: "1", "acceptable"."""
        if self.tfds is None:
            return {}
        return {label: name for name, label in self.tfds.rename.items()}

    def tfds_has(self, name: str) -> bool:
        """Whether `name` is this data set in TensorFlow Datasets."""
        return self.tfds is not None and self.tfds.is_in(name)

    def from_tfds(
        self, name: str | None = None, folder: str | None = None
    ) -> "DataSet":
        """The same data set, read from TensorFlow Datasets.

        Args:
            name: the set's name there, such as one with a version: "glue/cola:2.0.0".
            folder: the folder of prepared data sets; None for the library's own.

        Raises:
            InputError: it is not there.
        """
        if self.tfds is None:
            raise InputError(
                f"{self.name} is not read from TensorFlow Datasets: leave `tfds_name`"
                " out and give `data_dir`."
            )
        return dataclasses.replace(
            self, files={}, splits=self.tfds.make_splits(name, folder)
        )

    def read(self, data_dir: str | None, split: str) -> list[Example]:
        """The examples of a split.

        Args:
            data_dir: folder of the tables; not used for TensorFlow Datasets.
            split: such as "train".

        Raises:
            InputError: as `TableSplit.read` and `TfdsSplit.read`, or the data set has
                no such split.
        """
        found = self.splits.get(split)
        if found is None:
            raise InputError(
                f"{self.name} has no {split} set. It has: {', '.join(self.splits)}."
            )
        check = self._label_check()
        if isinstance(found, TfdsSplit):
            return found.read(check, separator=self.separator)
        return found.read(self.path(data_dir, split), check)

    def path(self, data_dir: str | None, split: str) -> str:
        """The file of a split.

        Raises:
            InputError: no folder is given, or there is none.
        """
        if data_dir is None:
            raise InputError(f"{self.name} is read from files: give `data_dir`.")
        if not file_system.is_folder(data_dir):
            raise InputError(f"`data_dir`: no such folder: {data_dir}")
        return os.path.join(data_dir, self.files[split])

    def target(self, labels: tuple[str, ...] | None = None) -> Target:
        """What a classifier of this data set predicts.

        Args:
            labels: the classes of a data set without fixed ones.

        Raises:
            InputError: there are too few classes, one occurs twice, or a metric does
                not fit such a target.
        """
        found = (labels or ()) if self.labels is None else self.labels
        if len(set(found)) < len(found):
            raise InputError(f"`labels`: a label is there twice: {','.join(found)}.")
        if self.kind == SINGLE_LABEL and len(found) < 2:
            raise InputError(
                f"{self.name} must have two labels or more. It has:"
                f" {', '.join(map(repr, found)) or 'none'}."
            )
        known = METRICS_OF[self.kind]
        if self.kind == SINGLE_LABEL and len(found) > 2:
            known = tuple(name for name in known if name not in OF_TWO_CLASSES)
        wrong = [name for name in self.metrics if name not in known]
        if wrong:
            raise InputError(
                f"`metrics={','.join(wrong)}`: not for {self.name}, whose metrics are"
                f" among {', '.join(known)}."
            )
        return Target(kind=self.kind, labels=tuple(found), separator=self.separator)

    def read_target(self, data_dir: str | None) -> Target:
        """What a classifier predicts; reads the labels if the set has no fixed ones.

        Raises:
            InputError: as `read` and `target`.
        """
        if self.labels is not None:
            return self.target()
        split = self.splits["train"]
        if isinstance(split, TfdsSplit) and (names := split.class_names()):
            return self.target(names)
        cells = {example.label or "" for example in self.read(data_dir, "train")}
        if self.kind == MULTI_LABEL:
            split_cell = Target(
                kind=MULTI_LABEL, labels=("",), separator=self.separator
            ).split
            cells = {label for cell in cells for label in split_cell(cell)}
        if len(cells) < (2 if self.kind == SINGLE_LABEL else 1):
            where = "tfds" if self.is_from_tfds else self.path(data_dir, "train")
            raise InputError(
                f"{where}: all rows have the label {''.join(cells)!r}. Is it the right"
                " `label_column`? (`labels` names them, `regression` is for numbers.)"
            )
        return self.target(tuple(sorted(cells)))

    def _label_check(self) -> LabelCheck | None:
        if self.labels is not None:
            return self.target().encode
        return _not_empty if self.kind == SINGLE_LABEL else None


def _not_empty(label: str, source: str) -> None:
    if not label:
        raise InputError(f"{source}: the label is empty.")
