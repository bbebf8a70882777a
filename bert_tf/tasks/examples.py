"""Labelled sentences and sentence pairs, from TSV and CSV files.

A split of a data set is described by a `TableSplit`: which columns hold what. TSV files
are cut at tabs and nothing else, as the original reads them (quotes are ordinary
characters); files that end in .csv are read with commas and quotes.

Every row is used or reported with its line number. Rows that cannot be used (too few
columns, no such label) are left out while they are few, as GLUE's own QQP has them.
"""

import csv
import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError

# Of a file's rows. QQP's train.tsv has a few that line ends within a question cut.
MAX_UNUSABLE = 0.01


_RENAME = " It has {}, no {}: give the file a name that ends in {}."


class Example(NamedTuple):
    """A sentence or a pair of sentences.

    Attributes:
        text_a: the first sentence.
        text_b: the second one; None or empty where there is none.
        label: its label as written; None in a test set.
        source: "file:line", for messages.
    """

    text_a: str
    text_b: str | None
    label: str | None
    source: str


Column = int | str
# Raises InputError unless the label, written at "file:line", is one of the task's.
LabelCheck = Callable[[str, str], object]


class UnusableRows:
    """The rows of a file that cannot be used: few are reported, many are an error."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lines: list[int] = []
        self._first = ""

    def add(self, line: int, reason: str) -> None:
        """Counts the row at a line."""
        self._first = self._first or reason
        self._lines.append(line)

    def report(self, num_rows: int, *, may_be_few: bool) -> None:
        """Warns of the rows."""
        count = len(self._lines)
        if not count:
            return
        if not may_be_few or count > MAX_UNUSABLE * num_rows:
            limit = f"; at most {MAX_UNUSABLE:.0%} may be" if may_be_few else ""
            others = (
                f" ({count:,} of the file's {num_rows:,} rows cannot be used:"
                f" {numbered(self._lines)}{limit}.)"
                if count > 1 or may_be_few
                else ""
            )
            raise InputError(f"{self.path}:{self._lines[0]}: {self._first}{others}")
        logging.warning(
            "%s: left out %s of %s rows, which cannot be used: %s. The first one: %s",
            self.path,
            f"{count:,}",
            f"{num_rows:,}",
            numbered(self._lines),
            self._first,
        )


def warn_of_left_out(path: str, lines: Sequence[int], what: str) -> None:
    """Warns of rows that are left out, however many; says nothing where none are."""
    if lines:
        logging.warning(
            "%s: left out %s %s row%s: %s.",
            path,
            f"{len(lines):,}",
            what,
            "" if len(lines) == 1 else "s",
            numbered(lines),
        )


def numbered(lines: Sequence[int], at_most: int = 5) -> str:
    """The first few of some line numbers: "line 3", "lines 3, 8 and 12 more"."""
    shown = ", ".join(str(line) for line in lines[:at_most])
    more = f" and {len(lines) - at_most:,} more" if len(lines) > at_most else ""
    return f"line{'' if len(lines) == 1 else 's'} {shown}{more}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSplit:
    """Where the examples of one split stand in a table.

    Attributes:
        text_a: the first sentence's column: a number from 0 (negative: from the end) or
            a name in the header.
        text_b: the second sentence's column, if any.
        label: the label's column; None where there are no labels.
        has_header: whether the first row names the columns.
        only: column -> the value that a row must have to be used.
        rename: label as written -> label meant.
        no_label: what is written where those who labelled did not agree: such rows are
            left out, as many as there are.
    """

    text_a: Column
    text_b: Column | None = None
    label: Column | None = None
    has_header: bool = True
    only: Mapping[Column, str] = dataclasses.field(default_factory=dict)
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    no_label: str | None = None

    def read(self, path: str, check: LabelCheck | None = None) -> list[Example]:
        """The examples of a file.

        Args:
            path: the file.
            check: what a label has to pass; None: any label.

        Raises:
            InputError: no such file, not UTF-8, a column is missing, there is no
                example in it, or too many rows cannot be used. Without labels none may
                be: predictions are told apart by their place.
        """
        rows = _rows(path)
        header = next(rows)[1] if self.has_header else None
        text_a, text_b, label_index = (
            None if column is None else _index(column, header, path)
            for column in (self.text_a, self.text_b, self.label)
        )
        only = [(_index(col, header, path), value) for col, value in self.only.items()]
        assert text_a is not None
        examples: list[Example] = []
        blank: list[int] = []
        unlabelled: list[int] = []
        unusable = UnusableRows(path)
        num_rows = last = 0
        labels_seen: set[str] = set()
        for number, row in rows:
            if not any(row):
                blank.append(number)
                continue
            num_rows += 1
            last = number
            try:
                if any(row[index] != value for index, value in only):
                    continue
                first = row[text_a]
                second = None if text_b is None else row[text_b]
                label = None if label_index is None else row[label_index]
            except IndexError:
                unusable.add(number, self._missing(row, header, path))
                continue
            source = f"{path}:{number}"
            if label is not None:
                if label == self.no_label:
                    unlabelled.append(number)
                    continue
                label = self.rename.get(label, label)
                if check is not None and label not in labels_seen:
                    try:
                        check(label, source)
                    except InputError as error:
                        unusable.add(number, str(error).removeprefix(f"{source}: "))
                        continue
                    labels_seen.add(label)
            examples.append(Example(first, second, label, source))
        if self.label is None:
            # At the file's end they are no rows.
            for line in [line for line in blank if line < last]:
                num_rows += 1
                unusable.add(line, "the row is blank.")
        unusable.report(num_rows, may_be_few=self.label is not None)
        warn_of_left_out(path, blank, "blank")
        warn_of_left_out(path, unlabelled, "unlabelled")
        if not examples:
            wanted = "".join(
                f" with {value!r} in column {column!r}"
                for column, value in self.only.items()
            )
            raise InputError(f"{path}: no examples{wanted} in this file.")
        return examples

    def _missing(self, row: list[str], header: list[str] | None, path: str) -> str:
        """Which column a row is too short for."""
        for column in (*self.only, self.text_a, self.text_b, self.label):
            if column is None:
                continue
            index = _index(column, header, path)
            if not -len(row) <= index < len(row):
                wanted = repr(column)
                if isinstance(column, int) and column >= 0:
                    wanted = f"{column + 1}, counted from 1,"
                return (
                    f"column {wanted} is missing: the row has {len(row)}"
                    f" column{'' if len(row) == 1 else 's'}."
                    f"{other_separator(row, path)}"
                )
        raise AssertionError("the row is long enough")


def _rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each row; the byte order mark is left out."""
    text = files.read_text(path, "data file").removeprefix("\ufeff")
    if not text:
        raise InputError(f"{path}: the file is empty.")
    if path.lower().endswith(".csv"):
        yield from comma_separated(text, path)
        return
    for number, line in enumerate(files.lines(text), start=1):
        yield number, line.rstrip("\r\n").split("\t")


def comma_separated(text: str, path: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each row of a CSV text; a cell may have several lines."""
    # A cell may be as long as the file. The limit is the whole process's.
    limit = csv.field_size_limit(max(len(text), csv.field_size_limit()))
    # strict: or a quote that is not closed takes all rows behind it into one cell.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: {error}.") from error
    finally:
        csv.field_size_limit(limit)


def columns_of(header: Sequence[str], path: str) -> str:
    """What columns a file has, for a message about one that it lacks."""
    names = ", ".join(map(repr, header)) or "none (no header)"
    return f"Columns: {names}.{other_separator(header, path)}"


def other_separator(row: Sequence[str], path: str) -> str:
    """Advice for a row that is one cell, with what separates cells elsewhere in it."""
    if len(row) != 1:
        return ""
    if path.lower().endswith(".csv"):
        return _RENAME.format("tabs", "commas", ".tsv") if "\t" in row[0] else ""
    return _RENAME.format("commas", "tabs", ".csv") if "," in row[0] else ""


def _index(column: Column, header: list[str] | None, path: str) -> int:
    """A column's number."""
    if isinstance(column, int):
        return column
    if header is None or column not in header:
        raise InputError(
            f"{path}: no column is named {column!r}. {columns_of(header or (), path)}"
        )
    if header.count(column) > 1:
        raise InputError(
            f"{path}: several columns are named {column!r}: rename all but one."
            f" {columns_of(header, path)}"
        )
    return header.index(column)
