"""Reads examples of multiple choice from CSV, TSV and JSON lines.

What a file is, its name says: .csv, .tsv, and .jsonl, .json or .ndjson, each packed or
not (.gz, .bz2, .xz); any other one is JSON lines if it begins with a brace, else CSV.

Every row is used or reported with its line number. Rows that cannot be used are left
out while they are few; of a test set none may be, whose predictions are told apart by
their place.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.tasks.choices import ChoiceExample, ChoiceSet, ColumnNames, Columns
from bert_tf.tasks.examples import UnusableRows, comma_separated, warn_of_left_out
from bert_tf.tasks.targets import Target
from bert_tf.text import blocks
from bert_tf.text.documents import whole_characters

_JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
# What stands for a label in sets whose labels are kept back.
_NO_LABEL = ("", "-1")

# A row: its line, and its cells by column, or why it has none.
Row = tuple[int, Mapping[str, Any] | str]
_BLANK = "the row is blank."


def read_choices(path: str, names: ColumnNames, *, has_labels: bool) -> ChoiceSet:
    """The examples of a file."""
    header, rows = _rows(path)
    columns = names.find(header, path, has_labels=has_labels)
    return choices_of_rows(rows, columns, names, path, has_labels=has_labels)


def choices_of_rows(
    rows: Iterable[Row],
    columns: Columns,
    names: ColumnNames,
    path: str,
    *,
    has_labels: bool,
) -> ChoiceSet:
    """The examples of rows, as `read_choices` has those of a file."""
    unusable = UnusableRows(path)
    examples: list[ChoiceExample] = []
    target: Target | None = None
    num_rows = 0
    blank: list[int] = []
    last = 0
    for number, row in rows:
        num_rows += 1
        if row == _BLANK:
            blank.append(number)
            continue
        last = number
        try:
            example = _example(row, columns, f"{path}:{number}")
            if target is None:
                target = names.target(len(example.endings), path)
            _check(example, target, has_labels=has_labels)
        except _UnusableError as error:
            unusable.add(number, str(error))
            continue
        examples.append(example)
    if has_labels:
        warn_of_left_out(path, blank, "blank")
    else:  # the predictions of what follows would be those of other rows
        for number in blank:
            if number < last:
                unusable.add(number, _BLANK)
    unusable.report(num_rows, may_be_few=has_labels)
    if target is None or not examples:
        raise InputError(f"{path}: no examples in it.")
    return ChoiceSet(examples, target)


class _UnusableError(Exception):
    """Why a row cannot be used."""


def _example(
    row: Mapping[str, Any] | str, columns: Columns, source: str
) -> ChoiceExample:
    if isinstance(row, str):
        raise _UnusableError(row)
    endings: Sequence[Any]
    if len(columns.endings) == 1:
        (name,) = columns.endings
        endings = _cell(row, name)
        if not isinstance(endings, list):
            raise _UnusableError(f"column {name!r} must be a list of endings.")
        cells = [(name, ending) for ending in endings]
    else:
        cells = [(name, _cell(row, name)) for name in columns.endings]
    start = "" if columns.start is None else row.get(columns.start)
    label = None if columns.label is None else row.get(columns.label)
    return ChoiceExample(
        premise=_text(columns.premise, _cell(row, columns.premise)),
        # Objects without the field have nothing that the endings go on from.
        start="" if start is None else _text(str(columns.start), start),
        endings=tuple(_text(name, value) for name, value in cells),
        label=None if label is None else str(label).strip(),
        source=source,
    )


def _check(example: ChoiceExample, target: Target, *, has_labels: bool) -> None:
    """Raises _UnusableError if an example is not of the target, or says nothing."""
    if len(example.endings) != target.num_outputs:
        raise _UnusableError(
            f"there are {len(example.endings)} endings; the first row has"
            f" {target.num_outputs}."
        )
    if not has_labels:
        return
    if not example.premise and not example.start:
        raise _UnusableError("the premise is empty.")
    if "" in example.endings:
        raise _UnusableError(f"ending {example.endings.index('')} is empty.")
    if example.label not in target.labels:
        if example.label is None or example.label in _NO_LABEL:
            raise _UnusableError("it has no label (a test set's has none).")
        raise _UnusableError(
            f"the label must be one of {', '.join(target.labels)}. Found:"
            f" {example.label!r}."
        )


def _cell(row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        raise _UnusableError(f"column {name!r} is missing.")
    return row[name]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _UnusableError(
            f"column {name!r} must be text. Found: {type(value).__name__}."
        )
    return whole_characters(value).strip()


def _rows(path: str) -> tuple[list[str], Iterator[Row]]:
    """The columns' names, and the rows; blank lines are left out."""
    text = _unpacked(path)
    if not text.strip():
        raise InputError(f"{path}: the file is empty.")
    suffix = blocks.compression(path)
    kind = os.path.splitext(path.removesuffix(suffix))[1].lower()
    if kind in _JSON_SUFFIXES or (
        kind not in (".csv", ".tsv") and text.lstrip().startswith("{")
    ):
        return _objects(text, path)
    table = _tab_separated(text) if kind == ".tsv" else comma_separated(text, path)
    # A line without anything in it is no row.
    written = ((number, cells) for number, cells in table if cells not in ([], [""]))
    header = next((cells for _, cells in written if any(cells)), None)
    if header is None:
        raise InputError(f"{path}: all its cells are empty.")
    return header, ((number, _named(header, cells)) for number, cells in written)


def _named(header: Sequence[str], cells: Sequence[str]) -> Mapping[str, str] | str:
    if not any(cells):
        return _BLANK
    if len(cells) == len(header):
        return dict(zip(header, cells, strict=True))
    return f"the row has {len(cells)} columns, the header {len(header)}."


def _tab_separated(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(files.lines(text), start=1):
        yield number, line.rstrip("\r\n").split("\t")


def _objects(text: str, path: str) -> tuple[list[str], Iterator[Row]]:
    if text.lstrip().startswith("["):
        raise InputError(
            f"{path}: it must be JSON lines, one object a line; this is one list."
        )
    rows = [
        (number, _object(line))
        for number, line in enumerate(files.lines(text), start=1)
        if line.strip()
    ]
    names = dict.fromkeys(
        name for _, row in rows if not isinstance(row, str) for name in row
    )
    if not names:
        number, reason = rows[0]
        raise InputError(f"{path}:{number}: {reason or 'the object is empty.'}")
    return [*names], iter(rows)


def _object(line: str) -> Mapping[str, Any] | str:
    """The object of a line, or why there is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        return f"it must be one JSON object on one line: {reason}."
    if not isinstance(value, dict):
        return f"it must be a JSON object. Found: {type(value).__name__}."
    return value


def _unpacked(path: str) -> str:
    """A file's text, without a byte order mark."""
    if not blocks.compression(path):
        return files.read_text(path, "data file").removeprefix("\ufeff")
    if not files.exists(path):
        raise InputError(f"No such data file: {path}")
    content = b"".join(blocks.read_pieces(path))
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}:{line}: not UTF-8 (byte 0x{content[error.start]:02x})."
        ) from error
