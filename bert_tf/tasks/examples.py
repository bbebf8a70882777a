"""Labelled sentences and sentence pairs, from TSV and CSV files.

A split of a data set is described by a `TableSplit`: which columns hold what. TSV files
are cut at tabs and nothing else, as the original reads them (quotes are ordinary
characters); files that end in .csv are read with commas and quotes.
"""

import csv
import dataclasses
import io
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError


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
    """

    text_a: Column
    text_b: Column | None = None
    label: Column | None = None
    has_header: bool = True
    only: Mapping[Column, str] = dataclasses.field(default_factory=dict)
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def read(self, path: str) -> list[Example]:
        """The examples of a file.

        Raises:
            InputError: no such file, not UTF-8, a column is missing (names the line),
                or there is no example in it.
        """
        examples = []
        header: list[str] | None = None
        blank = 0
        for number, row in _rows(path):
            if header is None and self.has_header:
                header = row
                continue
            if not any(row):
                blank += 1
                continue
            source = f"{path}:{number}"
            if any(
                _cell(row, column, header, source) != value
                for column, value in self.only.items()
            ):
                continue
            label = None
            if self.label is not None:
                label = _cell(row, self.label, header, source)
                label = self.rename.get(label, label)
            examples.append(
                Example(
                    text_a=_cell(row, self.text_a, header, source),
                    text_b=(
                        None
                        if self.text_b is None
                        else _cell(row, self.text_b, header, source)
                    ),
                    label=label,
                    source=source,
                )
            )
        if blank:
            logging.warning("%s: left out %d blank lines.", path, blank)
        if not examples:
            raise InputError(f"{path}: no examples in this file.")
        return examples


def _rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each row; the byte order mark is left out."""
    text = files.read_text(path, "data file").removeprefix("\ufeff")
    if path.lower().endswith(".csv"):
        reader = csv.reader(io.StringIO(text, newline=""))
        try:
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}: {error}.") from error
        return
    for number, line in enumerate(files.lines(text), start=1):
        yield number, line.rstrip("\r\n").split("\t")


def _cell(row: list[str], column: Column, header: list[str] | None, source: str) -> str:
    index = column
    if isinstance(index, str):
        if header is None or index not in header:
            there = ", ".join(header) if header else "none (no header)"
            raise InputError(
                f"{source}: no column is named {index!r}. Columns: {there}."
            )
        index = header.index(index)
    if not -len(row) <= index < len(row):
        raise InputError(
            f"{source}: column {column!r} is missing: the row has {len(row)} columns."
        )
    return row[index]
