"""Tables as files: which format one has, and those whose rows are objects.

    .csv                      commas and quotes
    .jsonl, .ndjson, .json    a JSON object per line, or an array of objects
    .parquet                  Apache Parquet
    any other                 tabs

Compressed or not: .gz, .bz2, .xz, .zst. A field within another one, such as
{"body": {"text": ...}}, is the column `body.text`.
"""

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert_tf.base import files, unpacking
from bert_tf.base.errors import InputError
from bert_tf.text.fields import Objects, field
from bert_tf.text.fields import parquet_objects as parquet_objects

CSV, TSV, JSONL, PARQUET = "csv", "tsv", "jsonl", "parquet"
_ENDINGS = {
    ".csv": CSV,
    ".tsv": TSV,
    ".jsonl": JSONL,
    ".json": JSONL,
    ".ndjson": JSONL,
    ".parquet": PARQUET,
}


def format_of(path: str, default: str = TSV) -> str:
    """The format that a file's ending names."""
    suffix = unpacking.compression(path)
    ending = os.path.splitext(path.removesuffix(suffix))[1].lower()
    return _ENDINGS.get(ending, default)


def json_objects(lines: Iterable[str], path: str) -> Objects:
    """JSON lines, or an array of objects; a blank line has no fields."""
    for number, value in json_rows(lines, path):
        if isinstance(value, InputError):
            raise value
        yield number, value


def json_rows(
    lines: Iterable[str], path: str
) -> Iterator[tuple[int, Mapping[str, Any] | InputError]]:
    """The same, with the error in the place of a row that is no object."""
    lines = iter(lines)
    first = next(lines, "")
    if first.lstrip().startswith("["):
        whole = files.parse_json(first + "".join(lines), path)
        values = iter(whole)
    else:
        values = (
            _parsed(line.rstrip(), path, number) if line.strip() else {}
            for number, line in enumerate(itertools.chain([first], lines), start=1)
        )
    for number, value in enumerate(values, start=1):
        if not isinstance(value, dict | InputError):
            value = InputError(f"{path}:{number}: each row must be a JSON object.")
        yield number, value


def _parsed(line: str, path: str, number: int) -> Any:
    try:
        return files.parse_json(line, path, number)
    except InputError as error:
        return error


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
