"""JSON and Parquet to documents.

Each row is a document, with its text in one of its fields, or in a nested
field (body.text); the text's lines are its paragraphs. `wikiextractor --json` of
versions 2 begins the text with the title, so a first paragraph equal to the row's
"title" is left out. A chunk's positions are bytes of JSON lines, or groups of
rows of Parquet; an array of objects is one chunk.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bert_tf.base import rows
from bert_tf.base.errors import InputError
from bert_tf.base.parallel import grouped
from bert_tf.text.documents import (
    BYTE_ORDER_MARK,
    PARQUET,
    TITLE_LINES,
    FileSource,
    drop,
    paragraphs_of,
    whole_characters,
)

SURROGATES = "halves of surrogate pairs"

_BLANK = BYTE_ORDER_MARK + b" \t\r\n"


def read_rows(
    source: FileSource, start: int, stop: int | None, dropped: Counter[str]
) -> Iterator[list[str]]:
    """Yields the paragraphs of each document; an empty list if its text is null."""
    for place, value in _values(source, start, stop, dropped):
        try:
            values = rows.of_object(value)
            text = _text_of(values, source.text_field)
        except InputError as error:
            raise InputError(f"{place()}: {error}") from error
        whole = whole_characters(text)
        if whole is not text:
            dropped[SURROGATES] += sum("\ud800" <= char <= "\udfff" for char in text)
        paragraphs = paragraphs_of(whole, source.clean, dropped)
        if paragraphs and paragraphs[0] == values.get("title"):
            drop(dropped, TITLE_LINES, characters=len(paragraphs.pop(0)))
        yield paragraphs


def _values(
    source: FileSource, start: int, stop: int | None, dropped: Counter[str]
) -> Iterator[tuple[Callable[[], str], Any]]:
    """Yields functions that return the rows' places, and the rows' values."""
    if source.input_format == PARQUET:
        column = source.text_field
        for number, row in rows.parquet_rows(source.path, column, start, stop):
            yield functools.partial(str, f"{source.path}:{number}"), row
    elif start == 0 and is_array(source):
        for place, value in rows.objects(source.path, "input file"):
            yield functools.partial(str, place), value
    else:
        for block in source.read(start, stop, lambda line: 0):
            for index, line in enumerate(source.lines(block, dropped)):
                if not line.strip():
                    continue
                try:
                    value = rows.parsed(line)
                except InputError as error:
                    value = error
                yield functools.partial(source.place, block.offset, index), value


def is_array(source: FileSource) -> bool:
    """Whether a source of JSON is an array, rather than lines."""
    found = (block.data.strip(_BLANK) for block in source.read(0, None, lambda line: 0))
    return next(filter(None, found), b"").startswith(b"[")


def _text_of(values: Mapping[str, Any], text_field: str) -> str:
    text = rows.field(values, text_field)
    if text is None and not rows.has_field(values, text_field):
        raise InputError(
            f"it has no field {text_field!r}; `text_field` names one of its own: "
            f"{', '.join(values)}."
        )
    if not isinstance(text, str | None):
        raise InputError(
            f"its field {text_field!r} must be text. Received: {type(text).__name__}."
        )
    return text or ""


def named_format(path: str) -> str:
    """Returns the format that a file's ending names, or "" for none."""
    return rows.format_of(path, "")


def cut_parquet(
    source: FileSource, chunk_bytes: int
) -> Iterator[tuple[int, int | None, int]]:
    """Yields each chunk's first group of rows, the group after its last, and bytes."""
    sizes = _group_bytes(source.path, source.text_field)
    start = 0
    for some in grouped(sizes, chunk_bytes, lambda size: size):
        yield start, start + len(some), sum(some)
        start += len(some)
    if not sizes:
        yield 0, None, 0


def _group_bytes(path: str, column: str) -> list[int]:
    """Returns the bytes of each group of rows; refuses a missing column."""
    with rows.parquet_file(path) as file:
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
                remedy = f"`text_field` names one of its own: {', '.join(names)}"
            raise InputError(f"{path}: {problem}; {remedy}.")
        if names.count(column) > 1:
            raise InputError(f"{path}: it has several columns {column!r}. Rename them.")
        return [
            file.metadata.row_group(number).total_byte_size
            for number in range(file.num_row_groups)
        ]
