"""The files that features are written to: --format.

jsonl     the original's JSON lines (`json_lines`)
tfrecord  a tf.train.Example a line (`records`)
npz       arrays in one file (`arrays`)
npy       the same arrays, each a file of a folder, to be mapped into memory
parquet   a row a line (`table`)

A format writes a group of features as a part, and puts the parts together.
"""

import shutil
from collections.abc import Mapping, Sequence
from typing import IO, Any, Protocol

from bert_tf import files
from bert_tf.features import parts
from bert_tf.features.arrays import ArrayFile, ArrayFolder
from bert_tf.features.choices import FLOAT32, FORMATS
from bert_tf.features.extraction import Features
from bert_tf.features.json_lines import json_line
from bert_tf.features.layers import LayerIndex
from bert_tf.features.records import record
from bert_tf.features.table import Table
from bert_tf.records.writing import write_records

_COPIED_AT_ONCE = 1 << 24


class Format(Protocol):
    """How features become a file or a folder."""

    def check_output(self, output: str) -> None:
        """Raises InputError if what is there must not be written over."""

    def write_part(
        self, file: IO[bytes], first: int, group: Sequence[Features]
    ) -> None:
        """Writes a group.

        Args:
            file: what it goes to.
            first: the number of the first input.
            group: the features.
        """

    def assemble(self, paths: Sequence[str], output: str) -> None:
        """Puts parts together.

        Args:
            paths: the parts, in their order.
            output: the file, or folder, to be written.
        """


def format_of(
    name: str,
    labels: Sequence[LayerIndex],
    settings: Mapping[str, Any],
    vector_type: str = FLOAT32,
) -> Format:
    """The format of a name.

    Args:
        name: one of FORMATS.
        labels: of the vectors of a token.
        settings: what the features were made with, kept where a format has room.
        vector_type: what npz and npy store, FLOAT32 or FLOAT16.

    Raises:
        ValueError: the name is unknown.
        InputError: the format needs a package that is not there.
    """
    if name == "jsonl":
        return JsonLines(labels)
    if name == "tfrecord":
        return Records()
    if name == "npz":
        return ArrayFile(labels, settings, vector_type)
    if name == "npy":
        return ArrayFolder(labels, settings, vector_type)
    if name == "parquet":
        return Table(labels, settings)
    raise ValueError(f"`name` must be one of {', '.join(FORMATS)}. Received: {name!r}")


class _Concatenated:
    """Formats whose parts, one behind the other, are the file."""

    def check_output(self, output: str) -> None:
        """See `Format`."""
        parts.refuse_folder(output)

    def assemble(self, paths: Sequence[str], output: str) -> None:
        """Appends the parts to each other."""
        with parts.replacing(output) as file:
            for path in paths:
                with files.open_binary(path) as part:
                    shutil.copyfileobj(part, file, _COPIED_AT_ONCE)


class JsonLines(_Concatenated):
    """The original's JSON lines."""

    def __init__(self, labels: Sequence[LayerIndex]) -> None:
        self._labels = tuple(labels)

    def write_part(
        self, file: IO[bytes], first: int, group: Sequence[Features]
    ) -> None:
        """Writes a line for each input."""
        for index, features in enumerate(group, start=first):
            file.write(json_line(index, features, self._labels))


class Records(_Concatenated):
    """TFRecords."""

    def write_part(
        self, file: IO[bytes], first: int, group: Sequence[Features]
    ) -> None:
        """Writes a record for each input."""
        for index, features in enumerate(group, start=first):
            write_records(file, [record(index, features)])
