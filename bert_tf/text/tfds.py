"""TensorFlow Datasets: splits as documents to pre-train on, and as rows of a task.

`tensorflow_datasets`, and TensorFlow with it, is imported when a function is called.
"""

import contextlib
import dataclasses
import functools
import multiprocessing
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError, first_line
from bert_tf.text.blocks import UTF_8
from bert_tf.text.documents import NO_CLEANING, Chunk, paragraphs_of, splitting_language

EXAMPLES_PER_CHUNK = 8192

_BATCH_SIZE = 256


def make_tfds_chunks(
    name: str,
    *,
    split: str = "train",
    text_field: str = "text",
    data_dir: str | None = None,
    split_sentences: bool | None = None,
    language: str = "en",
    clean: str = NO_CLEANING,
    examples_per_chunk: int = EXAMPLES_PER_CHUNK,
) -> list[Chunk]:
    """Cuts a split into chunks, in order."""
    rows = TfdsRows(name, split, data_dir)
    rows.check(text_field, "text_field", is_text=True)
    chunks = []
    for source in rows.sources(text_field, clean):
        info = rows.splits[source.split]
        example_bytes = info.num_bytes / max(info.num_examples, 1)
        for start in range(source.begin, source.end, examples_per_chunk):
            stop = min(start + examples_per_chunk, source.end)
            chunk = Chunk(
                source=source,
                start=start,
                stop=stop,
                num_bytes=round((stop - start) * example_bytes),
                language=splitting_language(False, split_sentences, language),
            )
            chunks.append(chunk)
    return chunks


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetSource:
    """A split of a TensorFlow dataset, or a slice of one."""

    name: str  # with configuration and version: "wikipedia/20230601.en:1.0.0"
    split: str  # of which the chunks are slices: "train"
    begin: int  # the first example that belongs to the source
    end: int  # the first one behind them
    is_whole: bool  # whether these are all examples of the split
    text_field: str = "text"  # the feature that holds the text
    # The folder of prepared datasets; None for the library's own.
    data_dir: str | None = None
    input_format: str = dataclasses.field(default="tfds", init=False)
    clean: str = NO_CLEANING
    encoding: ClassVar[str] = UTF_8

    @property
    def path(self) -> str:
        """What identifies the source, as a path identifies a file."""
        part = "" if self.is_whole else f"[{self.begin}:{self.end}]"
        return f"tfds:{self.name}:{self.split}{part}"

    @property
    def sha256(self) -> str:
        """A digest of its identity: a version's examples never change."""
        return files.sha256(f"{self.path}:{self.end - self.begin}".encode())

    def documents(
        self, start: int, stop: int | None, dropped: Counter[str]
    ) -> Iterator[list[str]]:
        """Yields the paragraphs of each example."""
        import tensorflow as tf
        import tensorflow_datasets as tfds

        if multiprocessing.parent_process() is not None:
            # Otherwise each worker process would take a GPU's memory for reading text.
            tf.config.set_visible_devices([], "GPU")
        wanted = tfds.core.ReadInstruction(
            self.split, from_=start, to=self.end if stop is None else stop, unit="abs"
        )
        builder = _builder(self.name, self.data_dir)
        dataset = _dataset(builder, wanted, {self.text_field: True})
        texts = dataset.map(lambda example: example[self.text_field]).batch(_BATCH_SIZE)
        position = start
        for batch in texts.as_numpy_iterator():
            for text in batch:
                try:
                    yield paragraphs_of(text.decode("utf-8"), self.clean, dropped)
                except UnicodeDecodeError as error:
                    raise _not_utf8(f"{self.path}:{position}", error) from error
                position += 1


class TfdsRows:
    """The rows of a split, as plain values."""

    def __init__(self, name: str, split: str, data_dir: str | None) -> None:
        """Prepares the set unless it is prepared, which may download it."""
        self._builder = _builder(name, data_dir)
        _prepare(self._builder, name)
        self._data_dir = data_dir
        self._split = split
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
        """The names of a feature's classes, where they have names."""
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

    def read(self, wanted: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields each row's place, for messages, and its requested features."""
        with self._split_errors():
            dataset = _dataset(self._builder, self._split, wanted)
        # The library's mocked sets always have all features.
        dataset = dataset.map(lambda row: {name: row[name] for name in wanted})
        number = 0
        for batch in dataset.ragged_batch(_BATCH_SIZE):
            for row in _unstacked(batch):
                where = f"{self.path}:{number}"
                try:
                    yield where, _plain(row)
                except UnicodeDecodeError as error:
                    raise _not_utf8(where, error) from error
                number += 1

    def sources(self, text_field: str, clean: str = NO_CLEANING) -> list[DatasetSource]:
        """The parts of the split, of which several may be added by +."""
        import tensorflow_datasets as tfds

        with self._split_errors():
            parts = tfds.core.ReadInstruction.from_spec(self._split).to_absolute(
                self.splits
            )
        name, _, version = self.full_name.rpartition("/")
        sources = []
        for part in parts:
            total = self.splits[part.splitname].num_examples
            begin, end = part.from_ or 0, total if part.to is None else part.to
            source = DatasetSource(
                name=f"{name}:{version}",
                split=part.splitname,
                begin=begin,
                end=end,
                is_whole=(begin, end) == (0, total),
                text_field=text_field,
                clean=clean,
                data_dir=self._data_dir,
            )
            sources.append(source)
        return sources

    @contextlib.contextmanager
    def _split_errors(self) -> Iterator[None]:
        try:
            yield
        # The library reports an invalid slice by an AssertionError.
        except (ValueError, AssertionError) as error:
            raise InputError(
                f"TensorFlow dataset {self.full_name} has no split {self._split!r}; it"
                f" has: {', '.join(self.splits)}."
            ) from error


def _dataset(builder: Any, split: Any, features: Mapping[str, Any]) -> Any:
    import tensorflow_datasets as tfds

    return builder.as_dataset(
        split=split,
        # In the order of the split, whatever the slice.
        shuffle_files=False,
        read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
        decoders=tfds.decode.PartialDecoding(dict(features)),
    )


def _not_utf8(where: str, error: UnicodeDecodeError) -> InputError:
    return InputError(
        f"{where}: not UTF-8 (byte 0x{error.object[error.start]:02x}); leave this row"
        " out, e.g. by a slice of the split."
    )


def _unstacked(column: Any) -> Iterator[Any]:
    """The rows of a batch of tensors, or of dictionaries of them."""
    if not isinstance(column, Mapping):
        yield from column.numpy()
        return
    for values in zip(*map(_unstacked, column.values()), strict=True):
        yield dict(zip(column, values, strict=True))


def _plain(value: Any) -> Any:
    """A TensorFlow value in Python's types."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(each) for each in value]
    # The shortest decimal: a float32's 3.8 is not 3.799999952316284.
    return float(str(value)) if isinstance(value, np.floating) else value.item()


@functools.lru_cache(maxsize=4)
def _builder(name: str, data_dir: str | None) -> Any:
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(name, data_dir=data_dir, try_gcs=False)
    except (ValueError, AssertionError) as error:
        # The library reports an unknown version by an AssertionError.
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
