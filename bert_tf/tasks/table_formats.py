"""Tables as files: which format one has, and those whose rows are objects.

    .csv                      commas and quotes
    .jsonl, .ndjson, .json    a JSON object per line, or an array of objects
    .parquet                  Apache Parquet
    any other                 tabs

Compressed or not: .gz, .bz2, .xz. A field within another one, {"body": {"text": ...}},
is the column `body.text`.
"""

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import InputError, first_line
from bert_tf.text import blocks

CSV, TSV, JSONL, PARQUET = "csv", "tsv", "jsonl", "parquet"
_ENDINGS = {
    ".csv": CSV,
    ".tsv": TSV,
    ".jsonl": JSONL,
    ".json": JSONL,
    ".ndjson": JSONL,
    ".parquet": PARQUET,
}
# A row's number and its fields.
Objects = Iterator[tuple[int, Mapping[str, Any]]]


def format_of(path: str, default: str = TSV) -> str:
    """The format that a file's ending names."""
    suffix = blocks.compression(path)
    ending = os.path.splitext(path.removesuffix(suffix))[1].lower()
    return _ENDINGS.get(ending, default)


def json_objects(lines: Iterable[str], path: str) -> Objects:
    """JSON lines, or an array of objects; a blank line has no fields."""
    lines = iter(lines)
    first = next(lines, "")
    if first.lstrip().startswith("["):
        whole = files.parse_json(first + "".join(lines), path)
        values = iter(whole)
    else:
        values = (
            files.parse_json(line.rstrip(), path, number) if line.strip() else {}
            for number, line in enumerate(itertools.chain([first], lines), start=1)
        )
    for number, value in enumerate(values, start=1):
        if not isinstance(value, dict):
            raise InputError(f"{path}:{number}: each row must be a JSON object.")
        yield number, value


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


def field(row: Mapping[str, Any], name: str) -> Any:
    """A column of a row, or a field within one; None if there is none."""
    if name in row:
        return row[name]
    for place, character in enumerate(name):
        inner = row.get(name[:place]) if character == "." else None
        if isinstance(inner, Mapping):
            return field(inner, name[place + 1 :])
    return None


def as_table(objects: Objects, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of cells, with the columns' names first; a field that is missing is empty.

    `separator` is written between the parts of a list.
    """
    rows = list(objects)
    names = [*dict.fromkeys(name for _, row in rows for name in _columns(row))]
    yield 0, names
    for number, row in rows:
        yield (
            number,
            [_cell(field(row, name), separator) for name in names] if row else [],
        )


def _columns(row: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in row.items():
        yield prefix + name
        if isinstance(value, Mapping):
            yield from _columns(value, f"{prefix}{name}.")


def _cell(value: Any, separator: str) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return separator.join(_cell(part, separator) for part in value)
    return value if isinstance(value, str) else json.dumps(value, default=str)
