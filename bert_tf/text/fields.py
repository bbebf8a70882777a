"""Rows with fields, and fields within fields: of JSON objects and of Parquet files."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import InputError, first_line

# A row's number and its fields.
Objects = Iterator[tuple[int, Mapping[str, Any]]]


def field(row: Mapping[str, Any], name: str) -> Any:
    """A column of a row, or a field within one; None if there is none."""
    found = _holder(row, name)
    return found[0][found[1]] if found else None


def has_field(row: Mapping[str, Any], name: str) -> bool:
    """Whether a row has it, if only as null."""
    return _holder(row, name) is not None


def _holder(row: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], str] | None:
    """What a field is in, and its name there."""
    if name in row:
        return row, name
    for place, character in enumerate(name):
        if character == "." and name[:place] in row:
            inner = row[name[:place]]
            if isinstance(inner, Mapping):
                return _holder(inner, name[place + 1 :])
            if inner is None:  # and so is what would be in it
                return row, name[:place]
    return None


def parquet_objects(
    path: str, column: str | None = None, start: int = 0, stop: int | None = None
) -> Objects:
    """The rows of a Parquet file, a group of them in memory at a time.

    Only one column's values are read if it is named; only the groups from `start` on
    and before `stop`.
    """
    with _parquet_file(path) as file:
        groups = range(file.num_row_groups)
        number = sum(file.metadata.row_group(n).num_rows for n in groups[:start])
        for batch in file.iter_batches(
            row_groups=list(groups[start:stop]),
            columns=None if column is None else [column],
        ):
            for row in _rows(batch, path, number):
                number += 1
                yield number, row


def _rows(batch: Any, path: str, before: int) -> Iterator[Mapping[str, Any]]:
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError as error:
        for place in range(batch.num_rows):
            try:
                batch.slice(place, 1).to_pylist()
            except UnicodeDecodeError:
                raise InputError(
                    f"{path}:{before + place + 1}: text that is not UTF-8"
                    f" ({error.reason}). Write the file again from the right encoding."
                ) from error


def parquet_group_bytes(path: str, column: str, flag: str) -> list[int]:
    """The bytes of each group of rows; refuses a column that is not there."""
    with _parquet_file(path) as file:
        columns = [file.schema.column(n) for n in range(len(file.schema))]
        names = [one.path for one in columns if not one.max_repetition_level]
        if column not in names:
            problem = f"it has no column {column!r}"
            if any(
                one.path.startswith(f"{column}.") and one.max_repetition_level
                for one in columns
            ):
                problem = f"its column {column!r} has lists, not text"
            remedy = "write its text as a column"
            if names:
                remedy = f"`{flag}` names one of its own: {', '.join(names)}"
            raise InputError(f"{path}: {problem}; {remedy}.")
        if names.count(column) > 1:
            raise InputError(f"{path}: it has several columns {column!r}. Rename them.")
        return [
            file.metadata.row_group(number).total_byte_size
            for number in range(file.num_row_groups)
        ]


@contextlib.contextmanager
def _parquet_file(path: str) -> Iterator[Any]:
    import pyarrow
    from pyarrow import parquet

    if not files.exists(path) or files.is_folder(path):
        raise InputError(f"No such data file: {path}")
    with files.open_binary(path) as file:
        try:
            yield parquet.ParquetFile(file)
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk's, not the reader's
            raise InputError(
                f"{path}: not a Parquet file, or a damaged one: {first_line(error)}"
            ) from error
