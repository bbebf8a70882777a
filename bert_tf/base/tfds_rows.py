"""The rows of TensorFlow Datasets, as plain values.

`tensorflow_datasets`, and TensorFlow with it, is imported when a function is called.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from absl import logging

from bert_tf.base.errors import InputError, first_line
from bert_tf.base.rows import Row

BATCH_SIZE = 256


class TfdsRows:
    """The rows of a split, as plain values."""

    def __init__(self, name: str, split: str, data_dir: str | None) -> None:
        """Opens the set; prepares it first if necessary, which may download it."""
        self._builder = builder_of(name, data_dir)
        _prepare(self._builder, name)
        self.data_dir = data_dir
        self.split = split
        info = self._builder.info
        self.full_name: str = info.full_name
        self.path = f"tfds:{self.full_name}:{split}"
        self.features: dict[str, Any] = dict(info.features.items())
        self.splits: Mapping[str, Any] = info.splits or {}

    @property
    def texts(self) -> list[str]:
        """The text features."""
        return [
            name
            for name, feature in self.features.items()
            if feature.dtype in (str, "string") and feature.shape == ()
        ]

    def class_names(self, feature: str) -> tuple[str, ...] | None:
        """Returns the names of a feature's classes, if they have names."""
        found = self.features[feature]
        names = getattr(getattr(found, "feature", found), "names", None)
        return None if names is None else tuple(names)

    def check(self, feature: str, flag: str, *, is_text: bool = False) -> None:
        """Raises InputError for a feature that the set does not have."""
        there = self.texts if is_text else self.features
        if feature not in there:
            kind = "text feature" if is_text else "feature"
            raise InputError(
                f"TensorFlow dataset {self.full_name} has no {kind} {feature!r};"
                f" `{flag}` names one of its own: {', '.join(there)}."
            )

    def read(self, wanted: Mapping[str, Any]) -> Iterator[Row]:
        """Yields each row with its requested features, numbered from 0."""
        with self.split_errors():
            dataset = dataset_of(self._builder, self.split, wanted)
        # The library's mock data sets always have all features.
        dataset = dataset.map(lambda row: {name: row[name] for name in wanted})
        number = 0
        for batch in dataset.ragged_batch(BATCH_SIZE):
            for row in _unstacked(batch):
                try:
                    yield Row(self.path, number, _plain(row))
                except UnicodeDecodeError as error:
                    raise not_utf8(f"{self.path}:{number}", error) from error
                number += 1

    @contextlib.contextmanager
    def split_errors(self) -> Iterator[None]:
        """Raises InputError for a split that the set does not have."""
        try:
            yield
        # The library raises AssertionError for an invalid slice.
        except (ValueError, AssertionError) as error:
            raise InputError(
                f"TensorFlow dataset {self.full_name} has no split {self.split!r}; it"
                f" has: {', '.join(self.splits)}."
            ) from error


def dataset_of(builder: Any, split: Any, features: Mapping[str, Any]) -> Any:
    """Returns some features of a split as a tf.data.Dataset, in order."""
    import tensorflow_datasets as tfds

    return builder.as_dataset(
        split=split,
        # Keeps the order of the split, whatever the slice.
        shuffle_files=False,
        read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
        decoders=tfds.decode.PartialDecoding(dict(features)),
    )


def not_utf8(where: str, error: UnicodeDecodeError) -> InputError:
    """Returns the error for a text that is not UTF-8."""
    return InputError(
        f"{where}: not UTF-8 (byte 0x{error.object[error.start]:02x}); leave this row"
        " out, e.g. by a slice of the split."
    )


def _unstacked(column: Any) -> Iterator[Any]:
    """Yields the rows of a batch of tensors, or of dictionaries of tensors."""
    if not isinstance(column, Mapping):
        yield from column.numpy()
        return
    for values in zip(*map(_unstacked, column.values()), strict=True):
        yield dict(zip(column, values, strict=True))


def _plain(value: Any) -> Any:
    """Returns a TensorFlow value in Python's types."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(each) for each in value]
    # The shortest decimal: a float32's 3.8 is not 3.799999952316284.
    return float(str(value)) if isinstance(value, np.floating) else value.item()


@functools.lru_cache(maxsize=4)
def builder_of(name: str, data_dir: str | None) -> Any:
    """Returns the library's builder for a set."""
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(name, data_dir=data_dir, try_gcs=False)
    except (ValueError, AssertionError) as error:
        # The library raises AssertionError for an unknown version.
        # The message may list all existing datasets.
        raise InputError(f"TensorFlow dataset {name!r}: {first_line(error)}") from error


def _prepare(builder: Any, name: str) -> None:
    from tensorflow_datasets.core.download import DownloadError

    if builder.is_prepared():
        return
    logging.info("Preparing the dataset %s in %s", name, builder.data_path)
    try:
        builder.download_and_prepare()
    # AssertionError: files that must be downloaded manually are missing; ImportError: a
    # library that is only needed for preparing is missing.
    except (OSError, ValueError, AssertionError, ImportError, DownloadError) as error:
        raise InputError(
            f"TensorFlow dataset {name!r} is not prepared in {builder.data_path}, and "
            f"it could not be done now: {first_line(error)}"
        ) from error
