"""Tables of labelled texts, and data sets with named columns."""

import dataclasses
import functools
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf.base import files, rows
from bert_tf.base.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.base.tfds_rows import TfdsRows
from bert_tf.tasks import other_formats
from bert_tf.tasks.metrics import METRICS_OF, OF_TWO_CLASSES


class Example(NamedTuple):
    """A sentence or a pair of sentences."""

    text_a: str
    text_b: str | None  # None or empty if there is none
    label: str | None  # as written; None in a test set
    source: str  # "file:line", for messages


class Examples(list[Example]):
    """A file's examples, as a list."""

    num_left_out = 0  # rows: unusable, blank, or without a label


# Raises InputError if the label, found at "file:line", is not one of the task's.
LabelCheck = Callable[[str, str], object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSplit:
    """The columns of a table with one split's examples.

    Attributes:
        text_a: the first sentence's column: a number from 0 (negative: from the end) or
            a name in the header.
        text_b: the second sentence's column, if any.
        label: the label's column; None if there are no labels, or several columns.
        label_columns: label -> its own column, which has 1 if a row has the label, else
            0; or, for a regression, the number to predict.
        separator: the separator of several labels or numbers in a cell.
        numbers: whether the label columns hold a number in each cell.
        has_header: whether the first row names the columns.
        delimiter: the sign between the cells of a CSV; None: as found.
        only: column -> the value that a row must have to be used.
        rename: label as written -> label meant.
        no_label: the mark of rows on which the annotators did not agree; any number of
            such rows is left out.

    Examples:
        >>> table = bert_tf.TableSplit(text_a="review", label="stars")
        >>> table.text_b is None  # single sentences, not pairs
        True
    """

    text_a: rows.Column
    text_b: rows.Column | None = None
    label: rows.Column | None = None
    label_columns: Mapping[str, rows.Column] = dataclasses.field(default_factory=dict)
    separator: str = ","
    numbers: bool = False
    has_header: bool = True
    delimiter: str | None = None
    only: Mapping[rows.Column, str] = dataclasses.field(default_factory=dict)
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    no_label: str | None = None

    def read(
        self,
        path: str,
        check: LabelCheck | None = None,
        *,
        max_unusable_rows: float = rows.MAX_UNUSABLE,
        warns: bool = True,
    ) -> Examples:
        """Returns a file's examples; `check` raises InputError for a wrong label."""
        left_out = rows.LeftOutRows(path, max_unusable_rows)
        with other_formats.naming(path, "run_classifier"):
            examples = self.examples(self._rows(path), left_out, check)
            left_out.report(has_labels=self._has_labels, warns=warns)
        if not examples:
            wanted = "".join(
                f" with {value!r} in column {column!r}"
                for column, value in self.only.items()
            )
            raise InputError(f"{path}: no examples{wanted} in this file. Give another.")
        return examples

    def check(self, path: str) -> None:
        """Raises InputError if the file has no rows, or lacks a column."""
        with other_formats.naming(path, "run_classifier"):
            next(self._rows(path), None)

    @property
    def _has_labels(self) -> bool:
        return self.label is not None or bool(self.label_columns)

    def _rows(self, path: str) -> Iterator[rows.Row]:
        dialect = rows.Dialect(self.delimiter)
        names, found = rows.read(path, has_header=self.has_header, dialect=dialect)
        for flag, columns in (
            ("text_a_column", (*self.only, self.text_a)),
            ("text_b_column", (self.text_b,)),
            ("label_column", (self.label, *self.label_columns.values())),
        ):
            for column in columns:
                if column is not None:
                    rows.require(column, names, path, flag)
        return found

    def examples(
        self,
        found: Iterable[rows.Row],
        left_out: rows.LeftOutRows,
        check: LabelCheck | None = None,
    ) -> Examples:
        """Returns the examples in rows, and notes the rows that are left out."""
        columns = (*self.only, self.text_a, self.text_b, self.label)
        used = [one for one in columns if one is not None]
        used += self.label_columns.values()
        keeps_blank = not (self._has_labels or self.only)
        examples = Examples()
        known: set[str] = set()
        with_commas: list[rows.Column | None] = []
        if self.numbers:
            found, columns = [*found], (self.label, *self.label_columns.values())
            with_commas = [c for c in columns if rows.has_decimal_commas(found, c)]
        for row in left_out.count(found, keeps_blank=keeps_blank):
            number, source = row.number, f"{left_out.path}:{row.number}"
            try:
                if not row.cells or (self.numbers and row.is_split):
                    raise InputError(row.problem)
                values = ((column, row.get(column)) for column in used)
                cells = {
                    column: rows.as_text(value, self.separator)
                    for column, value in values
                    if not (value is None and row.values)  # missing in a short row
                }
                for column in cells.keys() & with_commas:
                    cells[column] = cells[column].replace(",", ".")
                if any(cells.get(column, v) != v for column, v in self.only.items()):
                    continue
                if missing := [column for column in used if column not in cells]:
                    reason = f"column {missing[0]!r} is missing: the row has"
                    raise InputError(f"{reason} {len(row.values)} columns.")
                text_a = cells[self.text_a]
                text_b = None if self.text_b is None else cells[self.text_b]
                label = self._label(cells)
                if self._has_labels and label is None:
                    left_out.unlabelled.append(number)
                    continue
                if label is not None and not text_a.strip():
                    raise InputError("the text is empty.")
                if check is not None and label is not None and label not in known:
                    check(label, source)
                    known.add(label)
            except InputError as error:
                left_out.add(number, str(error))
                continue
            if not (text_a.strip() or (text_b or "").strip()):
                left_out.empty(number)
            examples.append(Example(text_a, text_b, label, source))
        examples.num_left_out = left_out.number
        return examples

    def _label(self, cells: Mapping[rows.Column, str]) -> str | None:
        """Returns a row's label; None if it has none."""
        if self.label_columns:
            labels = {name: cells[at] for name, at in self.label_columns.items()}
            return _joined(labels, self.separator, numbers=self.numbers)
        label = None if self.label is None else cells[self.label].strip()
        if label is None or label == self.no_label:
            return None
        return self.rename.get(label, label)


def _joined(cells: Mapping[str, str], separator: str, *, numbers: bool) -> str:
    """Joins labels or numbers from separate columns into one cell."""
    found = {name: cell.strip() for name, cell in cells.items()}
    if numbers:
        return separator.join(found.values())
    for name, cell in found.items():
        if cell not in _FLAGS:
            raise InputError(f"column {name!r} must be 0 or 1. Received: {cell!r}.")
    return separator.join(name for name in found if _FLAGS[found[name]])


_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True, "0,0": False, "1,0": True}
_FLAGS |= {"false": False, "true": True, "False": False, "True": True}


# TensorFlow Datasets shuffles the sets it prepares. GLUE's sets keep each row's number
# in the feature "idx"; their examples are returned in that order, which the GLUE server
# expects.


SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_NO_CLASS = "class -1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSet:
    """The place of a data set in TensorFlow Datasets."""

    name: str  # for example "glue/cola"
    # Our split -> theirs, or a slice of it: "train[:90%]".
    splits: Mapping[str, str] = dataclasses.field(default_factory=lambda: SPLITS)
    text_a: str  # the first sentence's feature
    text_b: str | None = None  # the second sentence's, if any
    label: str = "label"
    # One feature per label or number, instead of `label`; see `TableSplit`.
    label_columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    numbers: bool = False
    index: str | None = "idx"  # the rows' numbers in the original file, if any
    rename: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # class -> label
    folder: str | None = None  # of prepared data sets; None: the library's own


@dataclasses.dataclass(frozen=True)
class TfdsSplit:
    """A split's place in TensorFlow Datasets."""

    of: TfdsSet
    split: str
    has_labels: bool = True

    def read(
        self,
        check: LabelCheck | None = None,
        *,
        separator: str = ",",
        max_unusable_rows: float = rows.MAX_UNUSABLE,
        warns: bool = True,
    ) -> Examples:
        """Returns the examples without class -1, ordered by the set's `index`."""
        source, of = self._rows(), self.of
        columns = of.label_columns if self.has_labels else {}
        table = TableSplit(
            text_a=of.text_a,
            text_b=of.text_b,
            label=of.label if self.has_labels and not columns else None,
            label_columns=columns,
            separator=separator,
            numbers=of.numbers,
            no_label=_NO_CLASS,
        )
        left_out = rows.LeftOutRows(source.path, max_unusable_rows)
        in_order = sorted(self._texts(source, separator), key=lambda row: row.number)
        examples = table.examples(in_order, left_out, check)
        left_out.report(has_labels=True, warns=warns)
        if not examples:
            labelled = "labelled " if left_out.unlabelled else ""
            raise InputError(f"{left_out.path}: no {labelled}examples in this split.")
        return examples

    def class_names(self) -> tuple[str, ...] | None:
        """Returns the labels in the set's own order, if it names them."""
        if not self.has_labels or self.of.label_columns:
            return None
        names = self._rows().class_names(self.of.label)
        return names and tuple(self.of.rename.get(name, name) for name in names)

    def _rows(self) -> TfdsRows:
        found = TfdsRows(self.of.name, self.split, self.of.folder)
        found.check(self.of.text_a, "text_a_column", is_text=True)
        if self.of.text_b is not None:
            found.check(self.of.text_b, "text_b_column", is_text=True)
        for feature in self._label_features:
            found.check(feature, "label_column")
        return found

    @property
    def _label_features(self) -> tuple[str, ...]:
        if not self.has_labels:
            return ()
        return tuple(self.of.label_columns.values()) or (self.of.label,)

    def _texts(self, source: TfdsRows, separator: str) -> Iterator[rows.Row]:
        """Yields the rows with labels as text, numbered as in the original file."""
        of = self.of
        has_one = self.has_labels and not of.label_columns
        names = source.class_names(of.label) if has_one else None

        def named(value: Any) -> str:
            if isinstance(value, list):
                found = map(named, value)
                return separator.join(
                    one for one in found if one not in ("", _NO_CLASS)
                )
            if names is not None and not isinstance(value, str):
                value = names[value] if value >= 0 else _NO_CLASS
            return of.rename.get(value, str(value).strip())

        features = (of.text_a, of.text_b, *self._label_features, of.index)
        wanted = {name: True for name in features if name is not None}
        for row in source.read(wanted):
            labels = {name: named(row.cells[name]) for name in self._label_features}
            number = row.number if of.index is None else row.cells[of.index]
            yield row._replace(number=number, cells={**row.cells, **labels})


__all__ = ["MULTI_LABEL", "REGRESSION", "SINGLE_LABEL", "Target"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A classifier's target: one label, several labels, or numbers."""

    kind: str  # SINGLE_LABEL, MULTI_LABEL or REGRESSION
    # The classes in the order of the outputs; for a regression, the names of several
    # numbers, or () for one number.
    labels: tuple[str, ...] = ()
    separator: str = ","  # between several labels, or several numbers, in a cell
    threshold: float = 0.5  # of several labels: the probability of those predicted

    @property
    def num_outputs(self) -> int:
        """C, the number of the model's outputs."""
        return max(1, len(self.labels))

    @property
    def label_length(self) -> int:
        """The number of values in a record's label: 1, or C."""
        return 1 if self.kind == SINGLE_LABEL else self.num_outputs

    @property
    def label_dtype(self) -> str:
        """The type of a record's label."""
        return "int64" if self.kind == SINGLE_LABEL else "float32"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that apply to this target."""
        known = METRICS_OF[self.kind]
        if self.kind == SINGLE_LABEL and len(self.labels) > 2:
            return tuple(name for name in known if name not in OF_TWO_CLASSES)
        return known

    def encode(self, label: str | None, source: str) -> list[int] | list[float]:
        """Returns label_ids: a class's id, the numbers, or 0.0 or 1.0 per label."""
        if self.kind == SINGLE_LABEL:
            return [0 if label is None else self._id(label, source)]
        if label is None:
            return [0.0] * self.label_length
        if self.kind == MULTI_LABEL:
            found = {
                self._id(word, source) for word in split_cell(label, self.separator)
            }
            return [float(index in found) for index in range(self.num_outputs)]
        try:
            numbers = [rows.number(word) for word in label.split(self.separator)]
        except ValueError:
            numbers = []
        if len(numbers) != self.num_outputs or not all(map(math.isfinite, numbers)):
            wanted = f"{self.num_outputs} numbers, {self.separator!r} between them"
            if self.num_outputs == 1:
                wanted = f"a number{', with a decimal point' * (',' in label)}"
            raise InputError(
                f"{source}: the label must be {wanted}. Received: {label!r}."
            )
        return numbers

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Returns [N, C]: probabilities of classes or labels, or the numbers."""
        logits = np.asarray(logits, np.float32)
        if self.kind == REGRESSION:
            return logits
        if self.kind == MULTI_LABEL:
            # The exponent is -|x|, so that a large number does not overflow.
            power = np.exp(-np.abs(logits))
            return np.where(logits >= 0, 1, power) / (1 + power)
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """Returns the predictions in the form of metrics' arguments."""
        logits = np.asarray(logits)
        if self.kind == SINGLE_LABEL:
            return logits.argmax(axis=-1)
        if self.kind == MULTI_LABEL:
            odds = self.threshold / (1 - self.threshold)
            return (logits > math.log(odds)).astype(np.int64)
        return logits[:, 0] if self.num_outputs == 1 else logits

    def words(self, logits: np.ndarray) -> list[str]:
        """Returns the predictions as text: "entailment", "a,c", "3.214"."""
        predictions = self.predictions(logits)
        if self.kind == SINGLE_LABEL:
            return [self.labels[index] for index in predictions]
        if self.kind == MULTI_LABEL:
            rows = [list(itertools.compress(self.labels, row)) for row in predictions]
        else:
            rows = [[f"{v:.3f}" for v in np.atleast_1d(row)] for row in predictions]
        return list(map(self.separator.join, rows))

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {label: index for index, label in enumerate(self.labels)}

    def _id(self, label: str, source: str) -> int:
        if label in self._ids:
            return self._ids[label]
        several = f" (several: {self.separator!r} between, `label_separator`)"
        raise InputError(
            f"{source}: the label must be one of {', '.join(self.labels)}"
            f"{several if self.kind == MULTI_LABEL else ''}. Received: {label!r}."
        )


_MOST_LABELS = 20  # shown in messages
# What NumPy, pandas, JSON, SQL, Python, R and Excel write for a missing value.
_NO_LABEL = ("nan", "NaN", "<NA>", "null", "NULL", "None", "NA", "N/A", "#N/A")
_NUMBER = re.compile(r"[+-]?\d+([.]\d+)?")


def in_order(labels: Iterable[str]) -> list[str]:
    """Returns labels in output order: numbers by value, others alphabetically."""

    def key(label: str) -> tuple[bool, float, str]:
        is_number = _NUMBER.fullmatch(label) is not None
        return not is_number, float(label) if is_number else 0.0, label

    return sorted(labels, key=key)


def held_out(
    examples: Sequence[Example], share: float, seed: int, *, by_label: bool
) -> tuple[list[Example], list[Example]]:
    """Returns the remaining examples and a held-out share, both in original order."""
    # `by_label` takes the share of every label: at least one example of any with
    # several.
    rows: dict[str | None, list[int]] = {}
    for number, example in enumerate(examples):
        rows.setdefault(example.label if by_label else None, []).append(number)
    generator = np.random.default_rng(seed)
    chosen: set[int] = set()
    for _, some in sorted(rows.items(), key=lambda item: item[0] or ""):
        count = max(round(share * len(some)), 1) if len(some) > 1 else 0
        chosen.update(generator.permutation(some)[: min(count, len(some) - 1)].tolist())
    parts: tuple[list[Example], list[Example]] = ([], [])
    for number, example in enumerate(examples):
        parts[number in chosen].append(example)
    return parts


def split_cell(cell: str, separator: str) -> list[str]:
    """Returns the labels in a cell that may hold several; none for an empty cell."""
    words = (word.strip() for word in cell.split(separator))
    return [word for word in words if word]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """A classification or regression data set.

    Attributes:
        name: the task's name, spelled as in GLUE: "CoLA".
        metrics: names in `bert_tf.tasks.metrics`; a selection uses the first one.
        files: split -> file name under --data_dir; none for TensorFlow Datasets.
        splits: split ("train", "dev", "test") -> the place of its examples.
        kind: the kind of prediction: SINGLE_LABEL, MULTI_LABEL or REGRESSION.
        labels: the classes in the order of the model's outputs; for a regression, the
            names of several numbers, or () for one number; None for a table with the
            labels of its training split.
        separator: the separator of several labels or numbers in a cell.
        dev_splits: the splits on which a model is scored.
        test_splits: the splits whose predictions are the result.
        folder: its folder in GLUE's distribution.
        tfds: its place in TensorFlow Datasets, if any.
        max_unusable_rows: the rows of a split that may be left out: a share below 1, or
            a number.

    Examples:
        >>> table = bert_tf.TableSplit(text_a="review", label="stars")
        >>> data_set = bert_tf.DataSet(
        ...     name="Reviews",
        ...     metrics=("accuracy",),
        ...     files={"train": "train.csv", "dev": "dev.csv"},
        ...     splits={"train": table, "dev": table},
        ...     labels=("bad", "good"),
        ...     test_splits=(),
        ... )
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
    max_unusable_rows: float = rows.MAX_UNUSABLE

    @property
    def is_from_tfds(self) -> bool:
        """Whether the splits are read from TensorFlow Datasets, not from --data_dir."""
        return not self.files

    @property
    def class_names(self) -> dict[str, str]:
        """Label -> its meaning, if files have a number: "1", "acceptable"."""
        if self.tfds is None:
            return {}
        return {label: name for name, label in self.tfds.rename.items()}

    def tfds_has(self, name: str) -> bool:
        """Whether `name` is this set there, perhaps with a version: glue/cola:2.0.0."""
        return self.tfds is not None and bool(
            re.fullmatch(rf"{re.escape(self.tfds.name)}([:/][0-9.*]+)?", name)
        )

    def from_tfds(
        self, name: str | None = None, folder: str | None = None
    ) -> "DataSet":
        """Returns the data set, or a version of it, read from TensorFlow Datasets."""
        if self.tfds is None:
            raise InputError(
                f"{self.name} is not read from TensorFlow Datasets: leave `tfds_name`"
                " out and give `data_dir`."
            )
        there = dataclasses.replace(
            self.tfds, name=name or self.tfds.name, folder=folder
        )
        splits = {
            ours: TfdsSplit(there, theirs, has_labels=not ours.startswith("test"))
            for ours, theirs in there.splits.items()
        }
        return dataclasses.replace(self, files={}, splits=splits)

    def read(self, data_dir: str | None, split: str, *, warns: bool = True) -> Examples:
        """Returns the examples of a split."""
        found = self.splits.get(split)
        if found is None:
            raise InputError(
                f"{self.name} has no {split} set. It has: {', '.join(self.splits)}."
            )
        check: LabelCheck | None = None
        if self.labels is not None:
            check = self.target().encode
        elif self.kind != REGRESSION:
            words = _NO_LABEL if isinstance(found, TableSplit) else ()
            check = functools.partial(self._refuse_no_label, words)
        how: dict[str, Any] = {
            "max_unusable_rows": self.max_unusable_rows,
            "warns": warns,
        }
        if isinstance(found, TfdsSplit):
            return found.read(check, separator=self.separator, **how)
        return found.read(self.path(data_dir, split), check, **how)

    def _refuse_no_label(self, words: Sequence[str], label: str, source: str) -> None:
        is_one = self.kind == SINGLE_LABEL
        if is_one and not label:
            raise InputError(f"{source}: the label is empty.")
        for word in [label] if is_one else split_cell(label, self.separator):
            if word in words:
                raise InputError(
                    f"{source}: the label {word!r} means that there is none. If it is a"
                    " class, name all classes by `labels`."
                )

    def path(self, data_dir: str | None, split: str) -> str:
        """Returns the path of a split's file."""
        if data_dir is None:
            raise InputError(f"{self.name} is read from files: give `data_dir`.")
        if data_dir and not files.is_folder(data_dir):
            raise InputError(f"`data_dir`: no such folder: {data_dir}")
        return os.path.join(data_dir, self.files[split])

    def target(self, labels: tuple[str, ...] | None = None) -> Target:
        """Returns the target of this data set's classifiers."""
        found = (labels or ()) if self.labels is None else self.labels
        is_single = self.kind == SINGLE_LABEL
        if len(set(found)) < len(found) or (is_single and len(found) < 2):
            raise InputError(
                f"`labels` of {self.name} must be {'two or more, ' * is_single}each"
                f" once. It has: {', '.join(map(repr, found)) or 'none'}."
            )
        target = Target(kind=self.kind, labels=tuple(found), separator=self.separator)
        wrong = [name for name in self.metrics if name not in target.metrics]
        if wrong:
            raise InputError(
                f"`metrics={','.join(wrong)}`: not for {self.name}, whose metrics are"
                f" among {', '.join(target.metrics)}."
            )
        return target

    def read_target(
        self, data_dir: str | None, train: Sequence[Example] | None = None
    ) -> Target:
        """Returns a classifier's target; logs the labels of the training examples.

        The examples are read if they are not given, and the labels are not fixed.
        """
        split = self.splits.get("train")
        names = self.labels
        if names is None and isinstance(split, TfdsSplit):
            names = split.class_names()
        if names is None and train is None:
            train = self.read(data_dir, "train")
        cells = [example.label or "" for example in train or ()]
        labels = Counter(cells)
        if self.kind == MULTI_LABEL:
            words = (split_cell(cell, self.separator) for cell in cells)
            labels = Counter(itertools.chain.from_iterable(words))
        if names is None and len(labels) < (2 if self.kind == SINGLE_LABEL else 1):
            where = "tfds" if self.is_from_tfds else self.path(data_dir, "train")
            raise InputError(
                f"{where}: all rows have the label {''.join(labels)!r}. Is it the right"
                " `label_column`? (`labels` names them, `regression` is for numbers.)"
            )
        target = self.target(tuple(in_order(labels)) if names is None else names)
        if train is not None and self.kind != REGRESSION:
            _report(labels, target, is_given=self.labels is not None)
        return target


def described(labels: Mapping[str, int]) -> str:
    """Lists labels with their number of examples."""
    found = [f"{label} ({number:,})" for label, number in labels.items()]
    more = ", ..." * (len(found) > _MOST_LABELS)
    return f"{len(found)} labels: {', '.join(found[:_MOST_LABELS])}{more}"


def _report(labels: Counter[str], target: Target, *, is_given: bool) -> None:
    """Logs the labels found, and warns if they look wrong."""
    logging.info("%s", described({label: labels[label] for label in target.labels}))
    if once := [label for label in target.labels if labels[label] == 1]:
        shown = ", ".join(map(repr, once[:_MOST_LABELS]))
        logging.warning("%d labels occur once: %s.", len(once), shown)
    if is_given:  # then similar or numeric labels are intended
        return
    if target.kind == MULTI_LABEL:
        _warn_of_separators(labels, target.separator)
    alike: dict[str, list[str]] = {}
    for label in in_order(labels):
        alike.setdefault("".join(label.casefold().split()), []).append(label)
    for same in alike.values():
        if len(same) > 1:
            said = " and ".join(map(repr, same))
            logging.warning("The labels %s differ only in blanks or case.", said)
    numbers = [label for label in labels if _NUMBER.fullmatch(label)]
    if len(numbers) > 2:
        # Several labels in a cell are not a number.
        advice = "; `regression` predicts the number" * (target.kind == SINGLE_LABEL)
        logging.warning(
            "%d labels are numbers, and are classes here%s.", len(numbers), advice
        )


def _warn_of_separators(labels: Counter[str], separator: str) -> None:
    """Warns of labels that look like several: "a;b", or "a b" where both are labels."""
    for label, sign in itertools.product(labels, ";|\t/&+, "):
        parts = {*split_cell(label, sign)} if sign != separator else ()
        if len(parts) > 1 and (sign in ";|\t" or parts <= {*labels}):
            logging.warning(
                "The label %r looks like several: give `label_separator=%s`?",
                *(label, sign),
            )
            return
