"""Tables: one way from a path to numbered rows of named cells.

    .csv                      commas and quotes; a cell may span several lines.
                              Semicolons or tabs if its first row has these instead
    .tsv                      tabs alone, as in the original: quotes are ordinary
    .jsonl, .ndjson, .json    a JSON object per line, or an array of objects
    .parquet, .pq             Apache Parquet

CSV and TSV may also be UTF-16 or Windows-1252, as Excel writes them.
Files may be compressed: .gz, .bz2, .xz, .zst; `-` is standard input. A file of another
name has JSON lines if it begins with a brace, else its reader's default format. A field
within another one, such as {"body": {"text": ...}}, is the column `body.text`. The
columns of objects are the columns of their first 1,000 rows.

Rows are read as they are used, in constant memory. None is lost: a blank row has no
cells, and a row that cannot be read has a problem. `LeftOutRows` notes the rows that
are left out, or refuses the file. A few unusable rows may be left out; GLUE's own QQP
has some. In a file without labels none is, because predictions are identified by their
position: a row without text, or a blank one before the last row, is predicted as an
empty text.
"""

import codecs
import contextlib
import csv
import dataclasses
import functools
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.base import files, unpacking
from bert_tf.base.errors import InputError, first_line

CSV, TSV, JSONL, PARQUET, TEXT = "csv", "tsv", "jsonl", "parquet", "text"
OBJECTS = (JSONL, PARQUET)  # each row has names, and values of any type
STANDARD = "-"

_ROWS_AHEAD = 1000  # of objects, to find their columns
_SIGNS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_LINE_END = re.compile(r"\r?\n|\r(?!\n|$)")
# An array rather than lines. spaCy's lines are lists of a text and its spans.
_ARRAY = re.compile(r'\s*\[(?!\s*")')

Column = int | str  # its name; or its number, from 0, or from -1 backwards
Numbered = Iterator[tuple[int, Any]]


@dataclasses.dataclass
class Dialect:
    """How a table's text is written; `read` completes it."""

    delimiter: str | None = None  # between the cells of a CSV; None: as found
    has_header: bool = True
    encoding: str = "utf-8"
    line_end: str = "\n"


class Row(NamedTuple):
    """A row: its cells by column, and its place."""

    path: str
    number: int  # of its last line, or of the row
    cells: Mapping[Any, Any]  # empty for a blank row; by number without a header
    problem: str = ""  # why it cannot be used, wholly or in part
    values: Sequence[str] = ()  # of CSV and TSV: all cells in order

    @property
    def place(self) -> str:
        """FILE:NUMBER, for messages."""
        return f"{self.path}:{self.number}"

    @property
    def is_split(self) -> bool:
        """Whether it has more cells than columns, as "3,5" would make."""
        return bool(self.problem) and any(self.values[len(self.cells) :])

    def get(self, column: Column) -> Any:
        """Returns a cell, or a field within one; None if there is none."""
        if isinstance(column, str):
            return field(self.cells, column)
        values = self.values or [*self.cells.values()]
        return values[column] if -len(values) <= column < len(values) else None


def read(
    path: str,
    kind: str = "",
    *,
    default: str = TSV,
    has_header: bool = True,
    what: str = "data file",
    dialect: Dialect | None = None,
) -> tuple[list[str], Iterator[Row]]:
    """Returns the columns' names, none without a header, and the rows."""
    shown, dialect = _shown(path), dialect or Dialect()
    given, dialect.has_header = dialect.delimiter, has_header
    if not (kind := kind or format_of(path, "")):
        some = () if path == STANDARD else lines(path, what, Dialect())
        kind = JSONL if next(iter(some), "").lstrip().startswith("{") else default
    if given is not None:
        dialect.delimiter = sign = "\t" if given in ("tab", r"\t") else given
        if kind not in (CSV, TSV) or not re.fullmatch(r'[^\w"\r\n]', sign):
            raise InputError(
                f"{shown}: `delimiter={given}` must be one sign of a CSV, as ; or tab."
            )
        kind = TSV if kind == TSV and sign == "\t" else CSV
    numbered = FORMATS[kind].read(path, what, dialect)
    if kind in OBJECTS:
        found = itertools.starmap(_of_value, ((shown, *one) for one in numbered))
        return _with_names(found, shown)
    names = [TEXT] if kind == TEXT else []
    if has_header and kind != TEXT:
        names = next((cells for _, cells in numbered if any(cells)), [])
        names[:1] = [name.removeprefix("\ufeff") for name in names[:1]]
        _refuse_nameless(names, shown)
    return names, (_of_cells(shown, number, one, names) for number, one in numbered)


def format_of(path: str, default: str = TSV) -> str:
    """Returns the format that a file's ending names."""
    path = path.removesuffix(unpacking.compression(path))
    ending = os.path.splitext(path)[1].lower()
    found = (kind for kind, each in FORMATS.items() if ending in each.endings)
    return next(found, default)


def _shown(path: str) -> str:
    return "standard input" if path == STANDARD else path


def _refuse_nameless(names: Sequence[str], path: str) -> None:
    if not names:
        raise InputError(f"{path}: the file is empty, or all its cells. Give another.")


_warn_once = functools.cache(logging.warning)  # a file may be opened several times
_UTF_16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
# What other encodings have, decoded as Windows-1252: signs within words, capitals after
# small letters, three letters that are not ASCII, letters of Icelandic.
_FOREIGN = re.compile(
    r"[^\W\d_][^\w\s!-~´·–—’…][^\W\d_]|[a-zß-ÿ][À-ÞŒŠŸŽ]"
    "|[ªºÀ-ÿŒ-ž]{3}|[ÐÝÞðýþ\ufffd]"
)


def _is_western(data: bytes) -> bool:
    """Whether bytes that are not UTF-8 are almost certainly Windows-1252."""
    text = data.decode("cp1252", "replace")
    return 20 * len(_FOREIGN.findall(text)) <= sum(not c.isascii() for c in text)


def lines(
    path: str, what: str = "data file", dialect: Dialect | None = None
) -> Iterator[str]:
    """Returns the lines of a text of any size, with their ends."""
    return _lines_of(_decoded(path, what, dialect))


def _decoded(
    path: str, what: str, dialect: Dialect | None = None, *, is_csv: bool = False
) -> Iterator[str]:
    """Yields the pieces of a text as they are read: UTF-8, or for a dialect others."""
    if path == STANDARD:
        stdin: Any = sys.stdin.buffer
        pieces = iter(lambda: stdin.read1(1 << 16), b"")
    else:
        files.require(path, what)
        pieces = unpacking.read_pieces(path)
    shown, first = _shown(path), next(pieces, b"")
    if message := files.no_text(first, shown):
        raise InputError(message)
    encoding = "utf-16" if dialect and first.startswith(_UTF_16) else "utf-8-sig"
    decoder: Any = codecs.getincrementaldecoder(encoding)()
    if encoding == "utf-16":
        _warn_once(f"{shown}: read as UTF-16.")
    elif not first.startswith(codecs.BOM_UTF8):
        encoding = "utf-8"
    number, is_ascii = 0, dialect is not None
    for piece in itertools.chain([first], pieces, [b""]):
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            data, start = error.object, error.start
            if not (is_ascii and data[:start].isascii() and _is_western(data)):
                line = number + 1 + data.count(b"\n", 0, start)
                message = files.not_utf8(data, start, shown, line)
                raise InputError(message) from error
            encoding = "cp1252"  # ASCII so far, which is both
            decoder = codecs.getincrementaldecoder(encoding)()
            text = decoder.decode(data, final=not piece)
            _warn_once(f"{shown}: read as Windows-1252.")
        is_ascii = is_ascii and text.isascii()
        if dialect:
            dialect.encoding = encoding
            if not number and (end := _LINE_END.search(text)):
                dialect.line_end = end[0]
        if not (is_csv or number):  # a CSV's rows may end at carriage returns
            files.num_joined_by_returns(text, shown)
        number += text.count("\n")
        if text:
            yield text


def _lines_of(pieces: Iterable[str], newline: str = "\n") -> Iterator[str]:
    rest: list[str] = []  # of a line that may not have ended yet
    for text in pieces:
        rest.append(text)
        if "\n" not in text and "\r" not in text:
            continue
        *whole, last = io.StringIO("".join(rest), newline=newline).readlines()
        yield from whole
        rest = [last]
        if last.endswith("\n"):
            yield rest.pop()
    yield from io.StringIO("".join(rest), newline=newline)


# CSV and TSV.


def _csv(path: str, what: str, dialect: Dialect) -> Numbered:
    pieces = _decoded(path, what, dialect, is_csv=True)
    head = ""
    for piece in pieces:
        head += piece
        if len(_LINE_END.findall(head.lstrip())) > 1:
            break
    # Without a header the first row may be a text: the second one must agree.
    first = 1 if dialect.has_header else 2
    sign = dialect.delimiter or _delimiter(head, first, _shown(path))
    dialect.delimiter = sign
    text = _lines_of(itertools.chain([head], pieces), newline="")
    # strict: otherwise an unclosed quote would put all following rows into one cell.
    reader = csv.reader(text, strict=True, delimiter=sign)
    while True:
        # A cell may be as long as the file. The limit applies to the whole process.
        limit = csv.field_size_limit(sys.maxsize)
        try:
            cells = next(reader, None)
        except csv.Error as error:
            place = f"{_shown(path)}:{reader.line_num}"
            raise InputError(f"{place}: {error}.") from error
        finally:
            csv.field_size_limit(limit)
        if cells is None:
            return
        yield reader.line_num, cells


def _delimiter(head: str, first: int, path: str) -> str:
    """Returns the sign that a CSV's first rows have; a comma if they have none."""
    found = []
    for sign in _SIGNS:
        text = io.StringIO(head, newline="")
        with contextlib.suppress(csv.Error):
            cells = filter(any, csv.reader(text, strict=True, delimiter=sign))
            lengths = {*map(len, itertools.islice(cells, first))}
            found += [sign] * (len(lengths) == 1 and lengths != {1})
    if len(found) > 1:
        signs = " or ".join(_SIGNS[sign] for sign in found)
        raise InputError(
            f"{path}: {signs} may be between its columns: `delimiter=,` or"
            " `delimiter=;` or `delimiter=tab` says which."
        )
    if found in ([";"], ["\t"]):
        _warn_once(f"{path}: {_SIGNS[found[0]]} between its columns.")
    return found[0] if found else ","


def _tsv(path: str, what: str, dialect: Dialect) -> Numbered:
    for number, line in enumerate(lines(path, what, dialect), start=1):
        yield number, line.rstrip("\r\n").split("\t")


def _texts(path: str, what: str, _: Dialect) -> Numbered:
    for number, line in enumerate(lines(path, what), start=1):
        yield number, [line.rstrip("\r\n")] if line.strip() else []


def _of_cells(path: str, number: int, values: list[str], names: list[str]) -> Row:
    if not any(values):
        return Row(path, number, {})
    problem = ""
    if names and len(values) != len(names):
        problem = f"the row has {len(values)} columns, the header {len(names)}."
    cells = dict(zip(names or itertools.count(), values, strict=False))
    return Row(path, number, cells, problem, values)


def require(column: Column, names: Sequence[str], place: str, flag: str) -> None:
    """Raises InputError unless exactly one column has this name, which a flag gives."""
    if isinstance(column, int) or (count := names.count(column)) == 1:
        return
    raise InputError(
        f"{place}: {count or 'no'} column{'s' * bool(count)} {column!r} (`{flag}`)."
        f" {columns_of(names)}"
    )


def columns_of(names: Sequence[str]) -> str:
    """Returns a file's columns, for a message about a missing one."""
    if not names:
        return "The file has no header: give the column's number, from 0."
    if len(names) > 1:
        return f"The columns are {', '.join(map(repr, names))}: give one of these."
    return (
        f"The only column is {names[0]!r}. If it is several, give `delimiter`. Files"
        " named .csv have commas or semicolons between columns, .jsonl and .parquet"
        " names, others tabs."
    )


# JSON and Parquet.


def objects(path: str, what: str = "data file") -> Iterator[tuple[str, Any]]:
    """Yields the place and value of every JSON or Parquet row that is not blank."""
    kind = PARQUET if format_of(path) == PARQUET else JSONL
    for number, value in FORMATS[kind].read(path, what):
        if isinstance(value, InputError):
            raise InputError(f"{path}:{number}: {value}")
        if value is not None:
            yield f"{path}:{number}", value


def _json_values(path: str, what: str, *_: Dialect) -> Numbered:
    """Yields each line's value, None if blank, or its error; or each array entry."""
    pieces = _decoded(path, what)
    head = ""
    for piece in pieces:
        head += piece
        if len("".join(head.split())) > 1:  # enough to recognize an array
            break
    pieces = itertools.chain([head], pieces)
    if _ARRAY.match(head):
        yield from enumerate(_entries(pieces, _shown(path)), start=1)
        return
    for number, line in enumerate(_lines_of(pieces), start=1):
        try:
            yield number, parsed(line) if line.strip() else None
        except InputError as error:
            yield number, error


_SEPARATORS = re.compile(r"\s*\[\s*(\])?"), re.compile(r"\s*(?:,\s*|(\]))")


def _entries(pieces: Iterator[str], path: str) -> Iterator[Any]:
    """Yields the entries of an array, each parsed when enough text has been read."""
    decoder = json.JSONDecoder()
    separator, others = _SEPARATORS
    text, line, most = "", 1, 0  # text left, its first line, too short a length
    while True:
        while len(text) <= most and (piece := next(pieces, "")):
            text += piece
        is_whole, at = len(text) <= most, 0
        try:
            while True:
                if not (before := separator.match(text, at)):
                    at += len(text[at:]) - len(text[at:].lstrip())
                    raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
                if before[1]:
                    if (text[before.end() :] + "".join(pieces)).strip():
                        raise json.JSONDecodeError("Extra data", text, before.end())
                    return
                value, end = decoder.raw_decode(text, before.end())
                if not (is_whole or others.match(text, end)):
                    break  # a number may go on
                yield value
                at, separator = end, others
        except json.JSONDecodeError as error:
            if is_whole or error.msg == "Extra data":
                place = f"{path}:{line + error.lineno - 1}"
                raise InputError(f"{place}: not valid JSON: {error.msg}.") from error
        except (ValueError, RecursionError) as error:
            # A number with thousands of digits, or as many nested lists.
            raise InputError(f"{path}:{line}: not valid JSON: {error}.") from error
        line += text.count("\n", 0, at)
        text = text[at:]
        most = 2 * len(text)  # so that a long entry is not parsed for each piece


def parsed(line: str) -> Any:
    """Returns the value of a line. InputError says why it has none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise InputError(
            f"it must be one JSON object on one line: {reason}."
        ) from error


def of_object(value: Any) -> Mapping[str, Any]:
    """Returns the value if it is an object."""
    if isinstance(value, InputError):
        raise value
    if not isinstance(value, Mapping):
        raise InputError(f"it must be a JSON object. Received: {type(value).__name__}.")
    return value


def _of_value(path: str, number: int, value: Any) -> Row:
    try:
        return Row(path, number, {} if value is None else of_object(value))
    except InputError as error:
        return Row(path, number, {}, str(error))


def _with_names(found: Iterator[Row], path: str) -> tuple[list[str], Iterator[Row]]:
    head = list(itertools.islice(found, _ROWS_AHEAD))
    names = [*dict.fromkeys(name for row in head for name in names_of(row.cells))]
    for row in head if not names else ():
        if row.problem:
            raise InputError(f"{row.place}: {row.problem}")
    _refuse_nameless(names, path)
    return names, itertools.chain(head, found)


def names_of(cells: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields the columns of a row, including fields within other fields."""
    for name, value in cells.items():
        yield prefix + name
        if isinstance(value, Mapping):
            yield from names_of(value, f"{prefix}{name}.")


_NO_FIELD = object()


def field(cells: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """Returns a cell, or a field within one; the default if there is none."""
    if name in cells:
        return cells[name]
    for place, character in enumerate(name):
        if character == "." and name[:place] in cells:
            inner = cells[name[:place]]
            if isinstance(inner, Mapping):
                return field(inner, name[place + 1 :], default)
            if inner is None:  # and so is any field in it
                return None
    return default


def has_field(cells: Mapping[str, Any], name: str) -> bool:
    """Whether a row has the field, if only as null."""
    return field(cells, name, _NO_FIELD) is not _NO_FIELD


def as_text(value: Any, separator: str = ",") -> str:
    """Returns a cell as text, with the separator between the parts of a list."""
    if value is None or value != value:  # null, or NaN as pandas writes it
        return ""
    if isinstance(value, list):
        return separator.join(as_text(part, separator) for part in value)
    return value if isinstance(value, str) else json.dumps(value, default=str)


_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.I | re.A)
# A decimal comma has group 1. "1,234" may also be a thousand.
_COMMA = re.compile(r"\s*[+-]?(?:[1-9]\d{0,2},\d{3}|(\d+,\d+))\s*", re.ASCII)


def number(text: str) -> float:
    """Returns a number in decimal digits; ValueError for others, such as "1_0"."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"not a number: {text!r}")
    return float(text)


def has_decimal_commas(found: Sequence[Row], column: Column | None) -> bool:
    """Whether a column of numbers has decimal commas, which is logged."""
    cells = [] if column is None else [as_text(row.get(column)) for row in found]
    commas = filter(None, map(_COMMA.fullmatch, cells))
    if any("." in cell for cell in cells) or not any(one[1] for one in commas):
        return False
    _warn_once(f"{found[0].path}: decimal commas in column {column!r}.")
    return True


def parquet_rows(
    path: str, column: str | None = None, start: int = 0, stop: int | None = None
) -> Numbered:
    """Yields the number and cells of a Parquet file's rows, one batch in memory."""
    # If a column is named, only its values are read; only groups from `start` on and
    # before `stop` are read.
    with parquet_file(path) as file:
        groups = range(file.num_row_groups)
        number = sum(file.metadata.row_group(n).num_rows for n in groups[:start])
        for batch in file.iter_batches(
            row_groups=list(groups[start:stop]),
            columns=None if column is None else [column],
            batch_size=_ROWS_AHEAD,
        ):
            for row in _plain(batch, path, number):
                number += 1
                yield number, row


def _plain(batch: Any, path: str, before: int) -> Iterator[Mapping[str, Any]]:
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


@contextlib.contextmanager
def parquet_file(path: str) -> Iterator[Any]:
    """Opens a Parquet file. Raises InputError for other files."""
    import pyarrow
    from pyarrow import parquet

    files.require(path, "data file")
    with files.open_binary(path) as file:
        try:
            yield parquet.ParquetFile(file)
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # an error of the disk, not the reader
            raise InputError(
                f"{path}: not a Parquet file, or a damaged one: {first_line(error)}"
            ) from error


class Format(NamedTuple):
    """A format by its endings, and its reader."""

    endings: tuple[str, ...]
    read: Callable[..., Numbered]  # takes a path, its name in messages, a Dialect


FORMATS = {
    CSV: Format((".csv",), _csv),
    TSV: Format((".tsv",), _tsv),
    JSONL: Format((".jsonl", ".ndjson", ".json"), _json_values),
    PARQUET: Format((".parquet", ".pq"), lambda path, *_: parquet_rows(path)),
    # One text per line, the column "text"; no ending names it.
    TEXT: Format((), _texts),
}


# Unusable rows.

# Per file. QQP's train.tsv has a few rows with line ends within a question.
MAX_UNUSABLE = 0.01


def refuse_unusable(
    count: int, total: int, limit: float, first: str, what: str = "rows"
) -> None:
    """Raises InputError for more than `limit` unusable rows, a share or a number."""
    most = int(limit if limit >= 1 else round(limit * total, 6))
    if count > most:
        raise InputError(
            f"{first} ({count:,} of {total:,} {what} cannot be used; at most {most:,}"
            " may be: `max_unusable_rows`.)"
        )


class LeftOutRows:
    """The rows of a file that are left out."""

    def __init__(
        self, path: str, limit: float = MAX_UNUSABLE, *, keeps_places: bool = False
    ) -> None:
        self.path = _shown(path)
        self.keeps_places = keeps_places  # in the output, without a prediction
        self.num_rows = 0
        self.blank: list[int] = []
        self.unlabelled: list[int] = []
        self._limit = limit
        self._empty: list[int] = []
        self._unusable: dict[int, str] = {}

    def count(self, found: Iterable[Row], *, keeps_blank: bool) -> Iterator[Row]:
        """Yields the rows except blank ones, which are noted."""
        # With `keeps_blank`, blank rows before the last row become rows of empty texts.
        for row in found:
            if not (row.cells or row.problem):
                self.blank.append(row.number)
                continue
            if keeps_blank:
                kept, self.blank = self.blank, []
                for number in kept:
                    self.num_rows += 1
                    yield Row(row.path, number, dict.fromkeys(row.cells, ""))
            self.num_rows += 1
            yield row

    def empty(self, line: int) -> None:
        """Notes an example without text, which is still predicted."""
        self._empty.append(line)

    def add(self, line: int, reason: str) -> None:
        """Leaves out a row that cannot be used."""
        self._unusable[line] = reason.removeprefix(f"{self.path}:{line}: ")

    @property
    def number(self) -> int:
        """The number of rows left out, as in `report`."""
        return len(self._unusable) + len(self.blank) + len(self.unlabelled)

    def report(
        self, *, has_labels: bool, warns: bool = True, nothing: str = "text"
    ) -> None:
        """Warns of the rows left out; raises InputError if too many are unusable."""
        if self._unusable:
            line, reason = next(iter(self._unusable.items()))
            first = f"{self.path}:{line}: {reason}"
            if not (has_labels or self.keeps_places):
                raise InputError(f"{first} A row without labels cannot be left out.")
            refuse_unusable(len(self._unusable), self.num_rows, self._limit, first)
        if not warns:
            return
        if self._empty:
            logging.warning(
                "%s: %d of %d rows have no %s, and are predicted as an empty one; the"
                " first one is line %d.",
                *(self.path, len(self._empty), self.num_rows, nothing, self._empty[0]),
            )
        for what, numbers in (
            ("unusable", [*self._unusable]),
            ("blank", self.blank),
            ("unlabelled", self.unlabelled),
        ):
            if numbers:
                first = f"line {numbers[0]}: {self._unusable.get(numbers[0], what)}"
                done = "left out"
                if self.keeps_places and numbers is not self.blank:
                    done = "no prediction for"
                logging.warning(
                    "%s: %s %d %s rows of %d; the first one is %s",
                    *(self.path, done, len(numbers), what, self.num_rows, first),
                )
