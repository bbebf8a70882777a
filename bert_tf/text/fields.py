"""Rows with fields, and fields within fields: of JSON objects and of Parquet files."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import InputError, first_line

# A row's number and its fields.
Objects = Iterator[tuple[int, Mapping[str, Any]]]


def field(row: Mapping[str, Any], name: str) -> Any:
    """A column of a row, or a field within one; None if there is none."""
    if name in row:
        return row[name]
    for place, character in enumerate(name):
        inner = row.get(name[:place]) if character == "." else None
        if isinstance(inner, Mapping):
            return field(inner, name[place + 1 :])
    return None


def parquet_objects(path: str) -> Objects:
    """The rows of a Parquet file, a group of them in memory at a time."""
    import pyarrow
    from pyarrow import parquet

    if not files.exists(path) or files.is_folder(path):
        raise InputError(f"No such data file: {path}")
    numbers = itertools.count(1)
    with files.open_binary(path) as file:
        try:
            for batch in parquet.ParquetFile(file).iter_batches():
                yield from zip(numbers, batch.to_pylist(), strict=False)
        except pyarrow.ArrowException as error:
            raise InputError(
                f"{path}: not a Parquet file, or a damaged one: {first_line(error)}"
            ) from error
