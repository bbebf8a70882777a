r"""Predicts for the texts of a table, with a trained model.

    python -m bert_tf.predict --checkpoint=/tmp/reviews_output \
        --input_file=new.csv --text_a_column=review --output_file=scored.csv

The table is CSV, TSV, JSON lines, Parquet, or a text per line, also compressed; `-` is
standard input and output, and rows are read as they come, so that a table may have any
size. The output has all columns of the input, and then

    prediction   a classifier's label; of several labels all that are likelier than not,
                 with commas between; a regression's number; a tagger's labels, one for
                 each word, with spaces between
    p_LABEL      a classifier's probability of each label
    words        a tagger's words, with spaces between

and in JSON lines `prediction` and `probabilities`, or `words`, `labels` and `entities`.
Lengths and windows are the run's, and so are the columns' names, unless given. A blank
line before the last row, or a row without text, is predicted as an empty text (a tagger
has no words there), so that the output has a row for each of the input's.
"""

import codecs
import contextlib
import csv
import io
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from absl import logging

from bert_tf.base import cli, files, options
from bert_tf.base.errors import InputError
from bert_tf.base.options import (
    REQUIRED,
    Options,
    Path,
    flags_of_run,
    option,
)
from bert_tf.base.parallel import grouped
from bert_tf.tasks.table_formats import (
    CSV,
    JSONL,
    PARQUET,
    TSV,
    field,
    format_of,
    json_objects,
    parquet_objects,
)
from bert_tf.tasks.tables import rows_of_lines
from bert_tf.text import blocks
from bert_tf.training.training_options import SourceOptions

if TYPE_CHECKING:
    from bert_tf.text_models import TextModel

_STANDARD = "-"
_ROWS_AT_ONCE = 1024
_TEXT = "text"
_ESCAPES = str.maketrans({"\t": r"\t", "\n": r"\n", "\r": r"\r"})


class PredictOptions(Options, title=options.DATA):
    """The model, and the texts."""

    backend: str | None = options.with_default(SourceOptions, "backend", None)
    checkpoint: str = options.with_default(SourceOptions, "checkpoint", REQUIRED)
    input_file: str = option(
        _STANDARD, "The texts; - is standard input.", path=Path.FILE, decides="nothing"
    )
    input_format: str | None = option(
        None,
        "csv and tsv have a header; jsonl has a JSON object per line; text has a text"
        " per line. Default: by the file's ending, else text.",
        choices=(CSV, TSV, JSONL, PARQUET, _TEXT),
        decides="reading",
    )
    text_a_column: str | None = option(
        None,
        "Column of the texts. Default: the run's, or the only one.",
        decides="reading",
    )
    text_b_column: str | None = option(
        None,
        "Column of the second texts of pairs. Default: the run's, or none.",
        decides="reading",
    )
    output_file: str = option(
        _STANDARD,
        "The predictions, as JSON lines if it ends in .jsonl, as TSV or CSV if in .tsv"
        " or .csv, else in the input's format, of Parquet JSON lines; - is standard"
        " output.",
        path=Path.OUTPUT,
        decides="nothing",
    )
    max_seq_length: int | None = option(
        None,
        "Maximum length in WordPieces. Default: the run's.",
        least=5,
        decides="reading",
    )
    batch_size: int = option(32, "Texts per batch.", least=1, decides="nothing")


class Row(NamedTuple):
    """A row, by column, and where it is."""

    cells: Mapping[str, Any]
    place: str


def read_rows(path: str, format_: str) -> Iterator[Row]:
    """The rows of a table, as they are read.

    A blank one before the last has empty cells; those at the end are left out.
    """
    shown = "standard input" if path == _STANDARD else path
    blank: list[int] = []
    for number, cells in _cells(path, shown, format_):
        if not cells:
            blank.append(number)
            continue
        for line in blank:
            yield Row(dict.fromkeys(cells, ""), f"{shown}:{line}")
        blank.clear()
        yield Row(cells, f"{shown}:{number}")
    if blank:
        logging.warning(
            "%s: %d blank lines at its end are left out.", shown, len(blank)
        )


def _cells(
    path: str, shown: str, format_: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The number and the cells of each row, without cells if it is blank."""
    if format_ in (CSV, TSV):
        table = rows_of_lines(_lines(path, shown), shown, is_csv=format_ == CSV)
        _, header = next(table, (0, None))
        if header is None:
            raise InputError(f"{shown}: it is empty: the first line names the columns.")
        for number, cells in table:
            if any(cells) and len(cells) != len(header):
                raise InputError(
                    f"{shown}:{number}: the row has {len(cells)} columns, the header"
                    f" {len(header)}."
                )
            yield number, dict(zip(header, cells, strict=True)) if any(cells) else {}
        return
    if format_ == PARQUET:
        yield from parquet_objects(path)
    elif format_ == JSONL:
        yield from json_objects(_lines(path, shown), shown)
    else:
        for number, line in enumerate(_lines(path, shown), start=1):
            yield number, {_TEXT: line.rstrip("\r\n")} if line.strip() else {}


def _lines(path: str, shown: str) -> Iterator[str]:
    """Lines with their ends, of a file of any size."""
    if path == _STANDARD:
        stdin: Any = sys.stdin.buffer
        pieces = iter(lambda: stdin.read1(1 << 16), b"")
    else:
        pieces = blocks.read_pieces(path)
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    rest, number = "", 0
    for piece in itertools.chain(pieces, [b""]):
        try:
            rest += decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{shown}: not UTF-8 after line {number}; convert the file first."
            ) from error
        *whole, rest = io.StringIO(rest, newline="\n").readlines() or [""]
        if rest.endswith("\n"):
            whole, rest = [*whole, rest], ""
        number += len(whole)
        yield from whole
    if rest:
        yield rest


class Columns(NamedTuple):
    """The names of the columns that are read."""

    text_a: str
    text_b: str | None

    def texts(self, row: Row) -> tuple[str, str | None]:
        """A row's text, and the second one of a pair."""
        return tuple(  # type: ignore[return-value]
            None if name is None else self._text(row, name) for name in self
        )

    def has_text(self, row: Row) -> bool:
        """Whether a row has more than white space to predict."""
        return any(text and text.strip() for text in self.texts(row))

    @staticmethod
    def _text(row: Row, name: str) -> str:
        value = field(row.cells, name)
        if not isinstance(value, str):
            raise InputError(
                f"{row.place}: {name!r} must be a text. Found: {value!r}."
                f" {_columns_of(row.cells)}"
            )
        return value


def _columns_of(names: Iterable[str]) -> str:
    return f"Columns: {', '.join(map(repr, names))}."


def has_column(row: Row, name: str) -> bool:
    """Whether a row has a column, or a field within one."""
    return name in row.cells or field(row.cells, name) is not None


def find_columns(
    given: PredictOptions, of_run: Mapping[str, Any], first: Row
) -> Columns:
    """The columns that are given, or else the run's, or else the only one."""
    found = []
    for flag in ("text_a_column", "text_b_column"):
        name = getattr(given, flag) or of_run.get(flag)
        is_given = getattr(given, flag) is not None
        if name is not None and not has_column(first, name) and not is_given:
            name = None
        if name is None and flag == "text_a_column" and len(first.cells) == 1:
            (name,) = first.cells
        found.append(name)
    text_a, text_b = found
    if text_a is None:
        raise InputError(
            f"Give `text_a_column`, the column of the texts. {_columns_of(first.cells)}"
        )
    for name in filter(None, found):
        if not has_column(first, name):
            raise InputError(
                f"{first.place}: no column {name!r}. {_columns_of(first.cells)}"
            )
    return Columns(text_a, text_b)


def predictions(
    model: "TextModel", columns: Columns, rows: list[Row], *, as_json: bool
) -> list[dict[str, Any]]:
    """What the model says of some rows, as the output's columns."""
    from bert_tf.text_models import TaggedText, TextClassifier, WordTagger

    pairs = [columns.texts(row) for row in rows]
    texts = [text for text, _ in pairs]
    if isinstance(model, WordTagger):
        with_words = iter(model.tag([text for text in texts if text.split()]))
        nothing = TaggedText((), (), ())
        tagged = [next(with_words) if text.split() else nothing for text in texts]
        if as_json:
            return [
                {
                    "words": one.words,
                    "labels": one.labels,
                    "entities": [entity._asdict() for entity in one.entities],
                }
                for one in tagged
            ]
        return [
            {"words": " ".join(one.words), "prediction": " ".join(one.labels)}
            for one in tagged
        ]
    assert isinstance(model, TextClassifier)
    seconds = [second for _, second in pairs] if columns.text_b else None
    found = model.predict(texts, seconds)
    if as_json:
        return [
            {"prediction": one.label}
            | ({"probabilities": one.probabilities} if one.probabilities else {})
            for one in found
        ]
    return [
        {
            "prediction": ",".join(map(str, one.label))
            if isinstance(one.label, tuple)
            else one.label,
            **{f"p_{label}": value for label, value in one.probabilities.items()},
        }
        for one in found
    ]


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    """The output, which has its name when it is complete."""
    if path == _STANDARD:
        yield sys.stdout
        return
    with files.replacing(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        yield text
        text.detach()


def _writer(file: IO[str], format_: str) -> Callable[[Mapping[str, Any]], None]:
    """Writes a row; the first one's columns are the header."""
    if format_ == JSONL:
        return lambda row: print(
            json.dumps(row, ensure_ascii=False, default=str), file=file
        )
    header: list[str] = []
    table = csv.writer(file, lineterminator="\n")

    def write_line(cells: Iterable[Any]) -> None:
        if format_ == TSV:  # nothing is quoted there
            print("\t".join(str(c).translate(_ESCAPES) for c in cells), file=file)
        else:
            table.writerow(cells)

    def write(row: Mapping[str, Any]) -> None:
        if not header:
            header.extend(row)
            write_line(header)
        write_line(row.get(name, "") for name in header)

    return write


def run(options: PredictOptions) -> None:
    """Writes a row for each row."""
    path = options.input_file
    format_ = options.input_format or format_of(path, _TEXT)
    rows = read_rows(path, format_)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{path}: there are no texts in it.")
    cli.import_tensorflow(options)
    from bert_tf.text_models import TextClassifier, WordTagger, load

    model = load(
        options.checkpoint,
        max_length=options.max_seq_length,
        batch_size=options.batch_size,
    )
    if not isinstance(model, TextClassifier | WordTagger):
        raise InputError(
            f"{options.checkpoint} is {model.head}: predict is for classifiers and"
            " taggers. For questions use bert_tf.answer, for [MASK] bert_tf.fill_mask,"
            " for vectors bert_tf.extract_features."
        )
    columns = find_columns(options, flags_of_run(model.source.folder), first)
    output_format = format_of(
        options.output_file, JSONL if format_ == PARQUET else format_
    )
    if output_format == PARQUET:
        raise InputError(
            f"--output_file={options.output_file}: predictions are written as .jsonl,"
            " .csv or .tsv, not as Parquet."
        )
    as_json = output_format == JSONL
    count, empty = 0, []
    with _opened(options.output_file) as file:
        write = _writer(file, output_format)
        for some in grouped(itertools.chain([first], rows), _ROWS_AT_ONCE):
            group = list(some)
            found = predictions(model, columns, group, as_json=as_json)
            for row, added in zip(group, found, strict=True):
                if taken := [name for name in added if name in row.cells]:
                    raise InputError(
                        f"{row.place}: the input has a column {taken[0]!r} already:"
                        " rename it."
                    )
                write({**row.cells, **added})
            count += len(group)
            empty += [row.place for row in group if not columns.has_text(row)]
    if empty:
        logging.warning(
            "%s: %d of %d rows have no text, and are predicted as an empty one.",
            *(empty[0], len(empty), count),
        )
    logging.info("Wrote the predictions of %d texts.", count)


main = cli.command(run)

if __name__ == "__main__":
    main()
