"""Labelled sentences and sentence pairs from TensorFlow Datasets.

The library shuffles a set when it prepares it. GLUE's sets keep each row's number in
the feature "idx"; their examples come in that order, which the GLUE server wants.
`tensorflow_datasets`, and TensorFlow with it, is imported when a split is read.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_tf.errors import InputError
from bert_tf.tasks.examples import (
    Example,
    LabelCheck,
    UnusableRows,
    warn_of_left_out,
)
from bert_tf.text.tfds import prepared_builder, read_split

SPLITS = {"train": "train", "dev": "validation", "test": "test"}

_BATCH_SIZE = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSet:
    """Where a data set stands in TensorFlow Datasets.

    Attributes:
        name: such as "glue/cola".
        splits: our split -> theirs, or a slice of it: "train[:90%]".
        text_a: the first sentence's feature.
        text_b: the second one's, if any.
        label: the label's feature.
        index: the feature that numbers the rows as they stood in the file, if any.
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
    """Where the examples of one split stand in TensorFlow Datasets.

    Attributes: as those of `TfdsSet`; `label` is None where there are no labels, and
    `folder` is where prepared data sets lie, None for the library's own.
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

        A set that is not prepared yet is, which may download it. Examples of class -1,
        the library's mark for those without a label (SNLI has them where those who
        labelled did not agree), are left out, as many as there are.
        """
        builder = prepared_builder(self.name, self.folder)
        self._check_features(builder)
        path = f"tfds:{builder.info.full_name}:{self.split}"
        numbered: list[tuple[int, Example]] = []
        unusable = UnusableRows(path)
        unlabelled: list[int] = []
        labels_seen: set[str] = set()
        number = -1
        for number, row in enumerate(self._rows(builder)):
            position = number if self.index is None else int(row[self.index])
            source = f"{path}:{position}"
            label = None
            if self.label is not None:
                label = self._label(row[self.label], builder, separator)
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
            text_a, text_b = (
                None if name is None else _decoded(row[name], source)
                for name in (self.text_a, self.text_b)
            )
            numbered.append((position, Example(text_a or "", text_b, label, source)))
        unusable.report(number + 1, may_be_few=True)
        warn_of_left_out(path, unlabelled, "unlabelled")
        if not numbered:
            labelled = "labelled " if unlabelled else ""
            raise InputError(f"{path}: no {labelled}examples in this split.")
        return [example for _, example in sorted(numbered, key=lambda pair: pair[0])]

    def class_names(self) -> tuple[str, ...] | None:
        """The labels in the set's own order, where it names them."""
        if self.label is None:
            return None
        builder = prepared_builder(self.name, self.folder)
        self._check_features(builder)
        names = _names(builder.info.features[self.label])
        return None if names is None else tuple(self.rename.get(n, n) for n in names)

    def _rows(self, builder: Any) -> Iterator[dict[str, Any]]:
        features = (self.text_a, self.text_b, self.label, self.index)
        wanted = {name: True for name in features if name is not None}
        dataset = read_split(builder, self.split, wanted)
        for batch in dataset.ragged_batch(_BATCH_SIZE):
            columns = {name: list(values.numpy()) for name, values in batch.items()}
            names = list(columns)
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(names, values, strict=True))

    def _label(self, value: Any, builder: Any, separator: str) -> str | None:
        """A label in our words; None for -1 of a class, which stands for none."""
        if isinstance(value, bytes):
            label = value.decode()
            return self.rename.get(label, label)
        if np.ndim(value):
            words = [self._label(each, builder, separator) for each in value]
            return separator.join(word for word in words if word is not None)
        names = _names(builder.info.features[self.label])
        if names is None:
            return str(value)
        return self.rename.get(names[value], names[value]) if value >= 0 else None

    def _check_features(self, builder: Any) -> None:
        import tensorflow as tf

        features = builder.info.features
        texts = [
            name
            for name, feature in features.items()
            if feature.tf_dtype == tf.string and feature.shape == ()
        ]
        for flag, name, there in (
            ("text_a_column", self.text_a, texts),
            ("text_b_column", self.text_b, texts),
            ("label_column", self.label, [*features]),
        ):
            if name is not None and name not in there:
                raise InputError(
                    f"TensorFlow dataset {builder.info.full_name} has no feature"
                    f" {name!r} for --{flag}. It has: {', '.join(there)}."
                )


def _decoded(text: bytes, source: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source}: not UTF-8 (byte 0x{text[error.start]:02x})."
        ) from error


def _names(feature: Any) -> tuple[str, ...] | None:
    """The classes of a class label, or of a sequence of such, where they have names."""
    names = getattr(getattr(feature, "feature", feature), "names", None)
    return None if names is None else tuple(names)
