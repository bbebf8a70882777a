"""A data set of labelled sentences or sentence pairs, as data.

A `DataSet` says which labels there are, by which metrics it is scored, and how each
split is read: from tables in --data_dir, or from TensorFlow Datasets.
"""

import dataclasses
import os
from collections.abc import Mapping

from bert_tf import files as file_system
from bert_tf.errors import InputError
from bert_tf.metrics.glue import METRICS_OF, OF_TWO_CLASSES
from bert_tf.tasks.examples import Example, LabelCheck, TableSplit
from bert_tf.tasks.targets import MULTI_LABEL, SINGLE_LABEL, Target
from bert_tf.tasks.tfds import TfdsSet, TfdsSplit


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """A classification or regression data set.

    Attributes:
        name: as GLUE spells it: "CoLA".
        metrics: names in `bert_tf.metrics.glue`; a selection goes by the first one.
        files: split -> file name under --data_dir; none for TensorFlow Datasets.
        splits: split ("train", "dev", "test") -> where its examples stand.
        kind: what a classifier predicts: SINGLE_LABEL, MULTI_LABEL or REGRESSION.
        labels: the classes in the order of the model's outputs; the names of the
            numbers of a regression of several, () for one number; None for a table of
            one's own whose labels are those of its training split.
        separator: what stands between several labels or numbers in a cell.
        dev_splits: the splits that a model is scored on.
        test_splits: the splits whose predictions are the result.
        folder: its folder in GLUE's distribution.
        tfds: where it stands in TensorFlow Datasets; None if it does not.
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
        """Label -> what it means, where the files have a number: "1", "acceptable"."""
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
            folder: where prepared data sets lie; None for the library's own.

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
            labels: the classes of a data set that has no fixed ones.

        Raises:
            InputError: there are too few classes, one is there twice, or a metric is
                not one of such a target.
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
        """What a classifier predicts; reads the labels where the set has no fixed ones.

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
