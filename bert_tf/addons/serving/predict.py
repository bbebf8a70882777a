"""Predictions for the texts of a table."""

import abc
import collections
import contextlib
import csv
import dataclasses
import io
import itertools
import json
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from absl import logging

from bert_tf.base import cli, files, options, rows
from bert_tf.base.config import MULTI_LABEL
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, Options, Path, option
from bert_tf.base.parallel import grouped
from bert_tf.base.rows import CSV, JSONL, PARQUET, STANDARD, TEXT, TSV, LeftOutRows, Row
from bert_tf.base.shared_options import SourceOptions
from bert_tf.conversion import names
from bert_tf.tasks.run_options import FineTuningOptions, problems_of_limit
from bert_tf.tasks.squad.squad_options import SquadOptions
from bert_tf.tasks.swag.multiple_choice_options import ChoiceOptions

if TYPE_CHECKING:
    from bert_tf.addons.serving.text_models.model import Prediction, TextModel

_ROWS_AT_ONCE = 1024
_ESCAPES = str.maketrans({"\t": r"\t", "\n": r"\n", "\r": r"\r"})


class PredictOptions(Options, title=options.DATA, decides="reading"):
    """The model, and the texts."""

    backend: str | None = options.with_default(SourceOptions, "backend", None)
    checkpoint: str = options.with_default(SourceOptions, "checkpoint", REQUIRED)
    input_file: str = option(
        STANDARD, "The texts; - is standard input.", path=Path.FILE, decides="nothing"
    )
    input_format: str | None = option(
        None,
        "csv and tsv have a header; jsonl has one JSON object per line; text has one"
        " text per line. Default: by the file's ending, else text.",
        choices=(CSV, TSV, JSONL, PARQUET, TEXT),
    )
    text_a_column: str | None = option(
        None, "Column of the texts. Default: the run's, or the only one."
    )
    text_b_column: str | None = option(
        None, "Column of the second texts of pairs. Default: the run's, or none."
    )
    question_column: str | None = option(
        None,
        "Column of the questions for a SQuAD model. Default: the run's, or question.",
    )
    context_column: str | None = option(
        None,
        "Column of the contexts that contain the answers. Default: the run's, or"
        " context.",
    )
    premise_column: str | None = options.with_default(
        ChoiceOptions, "premise_column", None, decides="reading"
    )
    start_column: str | None = options.with_default(
        ChoiceOptions, "start_column", None, decides="reading"
    )
    ending_columns: tuple[str, ...] | None = options.with_default(
        ChoiceOptions, "ending_columns", None, decides="reading"
    )
    output_file: str = option(
        STANDARD,
        "The predictions: JSON lines if the name ends in .jsonl, TSV or CSV if it ends"
        " in .tsv or .csv, else the input's format (JSON lines for Parquet); - is"
        " standard output.",
        path=Path.OUTPUT,
        decides="nothing",
    )
    max_seq_length: int | None = option(
        None, "Maximum length in WordPieces. Default: the run's.", least=5
    )
    batch_size: int = option(32, "Texts per batch.", least=1, decides="nothing")
    threshold: float = option(
        0.5,
        "With several labels: each label with a higher probability is predicted.",
        above=0.0,
        below=1.0,
        decides="nothing",
    )
    min_probability: float = option(
        0.0,
        "With one label per text, choices and questions: a less probable answer is left"
        " out, and counted. Its probabilities stay.",
        least=0.0,
        most=1.0,
        decides="nothing",
    )
    delimiter: str | None = options.with_default(
        FineTuningOptions, "delimiter", None, decides="nothing"
    )
    max_unusable_rows: float = options.with_default(
        FineTuningOptions, "max_unusable_rows", rows.MAX_UNUSABLE
    )

    def problems(self) -> Iterator[str]:
        """Yields an error unless `max_unusable_rows` is a share or a whole number."""
        yield from super().problems()
        yield from problems_of_limit(self.max_unusable_rows)


class Reader(abc.ABC):
    """Reads rows for one kind of model, and formats its predictions."""

    flags: tuple[str, ...]  # options that name its columns
    nothing = "text"  # the missing part of an empty row

    def __init__(
        self, given: PredictOptions, of_run: Mapping[str, Any], first: Row
    ) -> None:
        self.names: dict[str, Any] = {}
        for flag in self.flags:
            value = getattr(given, flag)
            self.names[flag] = of_run.get(flag) if value is None else value
        self.find_columns(given, first)

    @abc.abstractmethod
    def find_columns(self, given: PredictOptions, first: Row) -> None:
        """Completes the names of the columns, or raises InputError."""

    def read(self, row: Row) -> Any:
        """Returns the model's input: texts, or None for a column not given."""
        return tuple(name and self._text(row, name) for name in self.names.values())

    @property
    def blank(self) -> Any:
        """The input of an empty row."""
        return tuple(name and "" for name in self.names.values())

    def checked(
        self, found: Iterable[Row], left_out: LeftOutRows
    ) -> Iterator[tuple[Row, Any]]:
        """Yields each row, with its problem if it has one, and the model's input."""
        for row in found:
            read = self.blank
            if not row.problem and any(cell != "" for cell in row.cells.values()):
                try:
                    read = self.read(row)
                except InputError as error:
                    row = row._replace(problem=str(error))
            if row.problem:
                left_out.add(row.number, row.problem)
            elif self.is_empty(read):
                left_out.empty(row.number)
            yield row, read

    def is_empty(self, inputs: Any) -> bool:
        """Whether the input is only white space."""
        return not any(text and text.strip() for text in inputs)

    @abc.abstractmethod
    def predict(
        self, model: Any, inputs: Sequence[Any], *, as_json: bool
    ) -> Iterator[dict[str, Any]]:
        """Yields the prediction for each row, as the output's columns."""

    @staticmethod
    def _text(row: Row, name: str) -> str:
        value = row.get(name)
        if not isinstance(value, str):
            raise InputError(
                f"{row.place}: {name!r} must be a text. Received: {value!r}."
                f" {rows.columns_of([*row.cells])}"
            )
        return value


class TextReader(Reader):
    """Reads texts, or pairs, from the columns given, the run's, or the only one."""

    flags: tuple[str, ...] = ("text_a_column", "text_b_column")

    def find_columns(self, given: PredictOptions, first: Row) -> None:
        """See `Reader`."""
        for flag, name in self.names.items():
            is_given = getattr(given, flag) is not None
            if not (name is None or is_given or rows.has_field(first.cells, name)):
                self.names[flag] = None
        if self.names["text_a_column"] is None:
            if len(first.cells) != 1:
                raise InputError(
                    "Give `text_a_column`, the column of the texts."
                    f" {rows.columns_of([*first.cells])}"
                )
            (self.names["text_a_column"],) = first.cells
        for flag, name in self.names.items():
            if name is not None:
                rows.require(name, [*rows.names_of(first.cells)], first.place, flag)

    def predict(
        self, model: Any, inputs: Sequence[Any], *, as_json: bool
    ) -> Iterator[dict[str, Any]]:
        """See `Reader`."""
        texts, seconds = zip(*inputs, strict=True)
        pairs = seconds if self.names["text_b_column"] else None
        return _labelled(model.predict(texts, pairs), as_json=as_json)


class WordReader(TextReader):
    """Reads a tagger's texts."""

    flags = ("text_a_column",)

    def predict(
        self, model: Any, inputs: Sequence[Any], *, as_json: bool
    ) -> Iterator[dict[str, Any]]:
        """See `Reader`."""
        texts = [text for (text,) in inputs]
        tagged = iter(model.tag([text for text in texts if text.split()]))
        for text in texts:
            words, labels, entities, spans = next(tagged) if text.split() else 4 * ((),)
            if as_json:
                named = zip(spans, labels, strict=True)
                yield {
                    "words": [_part(text, span, label) for span, label in named],
                    "entities": [_part(text, e.characters, e.type) for e in entities],
                }
            else:
                yield {"words": " ".join(words), "prediction": " ".join(labels)}


class QuestionReader(Reader):
    """Reads questions, and the texts that answer them."""

    flags = ("question_column", "context_column")
    nothing = "question or no text"

    def find_columns(self, given: PredictOptions, first: Row) -> None:
        """See `Reader`."""
        for flag, name in self.names.items():
            self.names[flag] = name or options.default_of(SquadOptions, flag)
            rows.require(
                str(self.names[flag]), [*rows.names_of(first.cells)], first.place, flag
            )

    def is_empty(self, inputs: Any) -> bool:
        """See `Reader`."""
        return not all(text.strip() for text in inputs)

    def predict(
        self, model: Any, inputs: Sequence[Any], *, as_json: bool
    ) -> Iterator[dict[str, Any]]:
        """See `Reader`."""
        asked = [each for each in inputs if not self.is_empty(each)]
        found = iter(
            model.answers_with_words(*zip(*asked, strict=True)) if asked else ()
        )
        none = None if as_json else ""
        for each in inputs:
            answers = [] if self.is_empty(each) else next(found)
            text, probability, span = answers[0] if answers else ("", none, None)
            start, end = span or (none, none)
            yield {
                "prediction": text if span else "",
                "start": start,
                "end": end,
                "probability": probability,
            }


class ChoiceReader(Reader):
    """Reads premises and their endings."""

    flags = ("premise_column", "start_column", "ending_columns")

    def find_columns(self, given: PredictOptions, first: Row) -> None:
        """See `Reader`."""
        from bert_tf.tasks.swag import choices

        self._columns = choices.find_columns(
            choices.ChoiceLayout(**self.names),
            [*first.cells],
            first.place,
            has_labels=False,
        )
        self._example = choices.example_of
        self._count = 0  # number of the first row's endings
        self.read(first)

    @property
    def blank(self) -> Any:
        """See `Reader`."""
        return "", [""] * self._count

    def read(self, row: Row) -> Any:
        """See `Reader`: a premise, and the choices."""
        if not any(row.cells.values()):
            return self.blank
        try:
            found = self._example(row, self._columns)
        except InputError as error:
            raise InputError(f"{row.place}: {error}") from error
        self._count = self._count or len(found.choices)
        if len(found.choices) != self._count:
            raise InputError(
                f"{row.place}: there are {len(found.choices)} endings; the first row"
                f" has {self._count}."
            )
        return found.premise, found.choices

    def is_empty(self, inputs: Any) -> bool:
        """See `Reader`."""
        premise, choices = inputs
        return not any([premise, *choices])

    def predict(
        self, model: Any, inputs: Sequence[Any], *, as_json: bool
    ) -> Iterator[dict[str, Any]]:
        """See `Reader`."""
        return _labelled(model.choose(*zip(*inputs, strict=True)), as_json=as_json)


def _part(text: str, span: tuple[int, int], label: str) -> dict[str, Any]:
    """Returns a part of a text in the form of annotation tools."""
    start, end = span
    return {"text": text[start:end], "start": start, "end": end, "label": label}


def _labelled(
    found: "Iterable[Prediction]", *, as_json: bool
) -> Iterator[dict[str, Any]]:
    """Returns labels and their probabilities as columns."""
    for label, probabilities in found:
        if as_json:
            more = {"probabilities": probabilities} if probabilities else {}
            yield {"prediction": label, **more}
        else:
            if isinstance(label, tuple):
                label = ",".join(map(str, label))
            named = {f"p_{name}": value for name, value in probabilities.items()}
            yield {"prediction": label, **named}


def _probability(added: Mapping[str, Any]) -> float | None:
    """Returns the probability of a row's one answer; None without it."""
    of_labels = added.get("probabilities") or {
        name: value for name, value in added.items() if name.startswith("p_")
    }
    if of_labels:
        return max(of_labels.values())
    return added.get("probability") or None


class _Scores:
    """A classifier's scores on rows that have the run's column of labels."""

    def __init__(self, model: "TextModel", first: Row) -> None:
        self._column = model.reading.columns.get("label_column")
        self._separator = model.reading.label_separator or ","
        self._target = model.target and dataclasses.replace(
            model.target, separator=self._separator
        )
        self._is_wanted = self._target is not None and self._column in first.cells
        self._known: list[tuple[Any, Any]] = []  # predictions and labels, as numbers
        self._num_left_out = 0

    def add(self, row: Row, prediction: Any) -> None:
        """Adds a row and its prediction."""
        if not self._is_wanted:
            return
        try:
            found = self._number(prediction)
            label = self._number(row.cells.get(self._column))
        except InputError:  # no label, or an unknown one
            self._num_left_out += 1
        else:
            self._known.append((found, label))

    def _number(self, value: Any) -> Any:
        value = [*value] if isinstance(value, tuple) else value
        cell = rows.as_text(value, self._separator).strip()
        found = self._target.encode(cell, "")
        return found[0] if self._target.label_length == 1 else found

    def report(self) -> None:
        """Logs the scores, if any row has a label."""
        if not self._known:
            return
        from bert_tf.tasks import metrics

        found = zip(*self._known, strict=True)
        scores = metrics.scores(self._target.metrics, *found)
        logging.info(
            "Scores on %d rows, by %r: %s.%s",
            len(self._known),
            self._column,
            ", ".join(f"{name} {value:.4f}" for name, value in scores.items()),
            f" {self._num_left_out} rows have no such label."
            * bool(self._num_left_out),
        )


@contextlib.contextmanager
def _opened(path: str, encoding: str) -> Iterator[IO[str]]:
    """Opens the output, which appears under its name when it is complete."""
    if path == STANDARD:
        if encoding != "utf-8" and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding=encoding, write_through=True)
        yield sys.stdout
        return
    with files.replacing(path) as file:
        text = io.TextIOWrapper(file, encoding, newline="", write_through=True)
        yield text
        text.detach()


def _encoding_for(labels: Iterable[str], encoding: str) -> str:
    """Returns the input's encoding, or UTF-8 if that lacks characters of labels."""
    try:
        "".join(labels).encode(encoding)
    except UnicodeEncodeError:
        logging.warning("A label is not in %s: UTF-8 is written.", encoding)
        return "utf-8-sig"
    return encoding


def _writer(
    file: IO[str], format_: str, dialect: rows.Dialect
) -> Callable[[Mapping[str, Any]], None]:
    """Returns a function that writes a row; the first row's columns are the header."""
    if format_ == JSONL:
        return lambda row: print(
            json.dumps(row, ensure_ascii=False, default=str), file=file
        )
    header: list[str] = []
    sign, end = dialect.delimiter or ",", dialect.line_end
    # It quotes either character of its own line end, \r\n, in cells.
    ended = types.SimpleNamespace(write=lambda row: file.write(f"{row[:-2]}{end}"))
    table = csv.writer(ended, delimiter=sign)

    def write_line(cells: Iterable[Any]) -> None:
        if format_ == TSV:  # TSV has no quotes
            texts = (str(cell).translate(_ESCAPES) for cell in cells)
            print("\t".join(texts), file=file, end=end)
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
    default = TEXT if options.delimiter is None else CSV
    format_ = options.input_format or rows.format_of(path, default)
    dialect = rows.Dialect(options.delimiter)
    left_out, found = _opened_rows(options, format_, dialect)
    # The rows up to the first usable one, which shows the columns.
    head: list[Row] = []
    while not head or head[-1].problem or not head[-1].cells:
        if (row := next(found, None)) is None:
            why = f" {head[-1].place}: {head[-1].problem}" if head else ""
            raise InputError(f"{path}: there are no texts in it.{why}")
        head.append(row)
    first = head[-1]
    _refuse_taken(first, ["prediction"])
    for flag in ("text_a_column", "text_b_column", "question_column", "context_column"):
        if name := getattr(options, flag):
            rows.require(name, [*rows.names_of(first.cells)], first.place, flag)
    _refuse_output(options.output_file, options.input_file)
    from bert_tf.conversion.source import open_reading, read_export

    # A remote checkpoint is read with TensorFlow, whatever its format.
    is_remote = files.is_remote(options.checkpoint)
    export = None if is_remote else read_export(options.checkpoint)
    if export is not None and export.is_onnx:
        cli.show_log()
    else:
        cli.import_tensorflow(options)
    from bert_tf.addons.serving.text_models.model import load

    if format_ == TEXT and not options.input_format:
        columns = open_reading(options.checkpoint).columns
        _refuse_header(first, options.text_a_column or columns.get("text_a_column"))
    model = load(
        options.checkpoint,
        max_length=options.max_seq_length,
        batch_size=options.batch_size,
    )
    target = model.target
    if target is not None and target.kind == MULTI_LABEL:
        model.target = dataclasses.replace(target, threshold=options.threshold)
        logging.info(
            "All labels with a probability over %g are predicted (`threshold`).",
            options.threshold,
        )
        if options.min_probability:
            raise InputError(
                f"`min_probability` is for one label: {options.checkpoint} predicts"
                " several, by `threshold`."
            )
    elif options.is_given("threshold"):
        raise InputError(
            f"`threshold` is for several labels: {options.checkpoint} has no such head."
        )
    reader = _reader(options, model, first)
    output_format = rows.format_of(
        options.output_file, JSONL if format_ == PARQUET else format_
    )
    if output_format == PARQUET:
        raise InputError(
            f"--output_file={options.output_file}: predictions are written as .jsonl,"
            " .csv or .tsv, not as Parquet."
        )
    as_json = output_format == JSONL
    if path != STANDARD and files.can_be_read_again(path):
        # Reads everything now, so that a bad row far down is not found after hours.
        trial, again = _opened_rows(options, format_, dialect)
        collections.deque(reader.checked(again, trial), maxlen=0)
        trial.report(has_labels=False, warns=False)
    nothing = None if as_json else ""
    every = reader.checked(itertools.chain(head, found), left_out)
    scores, num_unsure, least = _Scores(model, first), 0, options.min_probability
    encoding = "utf-8" if as_json else _encoding_for(model.labels, dialect.encoding)
    with _opened(options.output_file, encoding) as file, model.one_warning():
        write = _writer(file, output_format, dialect)
        for some in grouped(every, _ROWS_AT_ONCE):
            group, inputs = zip(*some, strict=True)
            predicted = reader.predict(model, inputs, as_json=as_json)
            for row, added in zip(group, predicted, strict=True):
                if row.problem:
                    cells = dict.fromkeys(first.cells, nothing) | dict(row.cells)
                    row = row._replace(cells=cells)
                    added = dict.fromkeys(added, nothing)
                elif least and (_probability(added) or 1.0) < least:
                    added["prediction"] = nothing
                    num_unsure += 1
                else:
                    scores.add(row, added.get("prediction"))
                _refuse_taken(row, added)
                if not as_json and (new := row.cells.keys() - first.cells.keys()):
                    raise InputError(
                        f"{row.place}: the first row has no column {min(new)!r}: let"
                        " `output_file` end in .jsonl, where each row has its own."
                    )
                write({**row.cells, **added})
    left_out.report(has_labels=False, nothing=reader.nothing)
    count = left_out.num_rows + len(left_out.blank) - left_out.number
    logging.info("Wrote the predictions of %d texts.", count)
    if least:
        logging.info(
            "%d answers are left out, with a probability under %g (`min_probability`).",
            *(num_unsure, least),
        )
    scores.report()


def _opened_rows(
    options: PredictOptions, format_: str, dialect: rows.Dialect
) -> tuple[LeftOutRows, Iterator[Row]]:
    """Returns the input's rows, and the record of those left out while reading."""
    path = options.input_file
    left_out = LeftOutRows(path, options.max_unusable_rows, keeps_places=True)
    _, found = rows.read(path, format_, dialect=dialect)
    return left_out, left_out.count(found, keeps_blank=True)


def _refuse_taken(row: Row, added: Iterable[str]) -> None:
    """Raises InputError if the input has a column that the output adds."""
    if taken := [name for name in added if name in row.cells]:
        raise InputError(
            f"{row.place}: the input has a column {taken[0]!r} already: rename it."
        )


def _refuse_header(first: Row, column: str | None) -> None:
    """Raises InputError if a table is about to be read as one text per line."""
    line = first.cells.get(TEXT, "")
    for kind, separator in ((CSV, ","), (TSV, "\t")):
        if column and separator in line and column in line.split(separator):
            raise InputError(
                f"{first.place}: the first line names the column {column!r}, but the"
                f" file is read as a text per line. Give `input_format={kind}`."
            )


def _refuse_output(path: str, input_file: str) -> None:
    """Raises InputError for an output that cannot be written, or is the input."""
    if path == STANDARD:
        return
    if files.identity(path) == files.identity(input_file):
        raise InputError(f"`output_file={path}` is also the input. Give another name.")
    if files.is_folder(path):
        raise InputError(f"`output_file={path}` is a folder: name a file in it.")
    folder = os.path.dirname(path)
    if folder and not files.is_folder(folder):
        files.make_folder(folder)


def _reader(options: PredictOptions, model: "TextModel", first: Row) -> Reader:
    """Returns the reader for the model's kind."""
    head = names.HEADS.get(model.head_name or "")
    if head is None or head.reader is None:
        raise InputError(
            f"{options.checkpoint} is {model.head}: predict is for classifiers,"
            " taggers, and models of choices and of SQuAD. For [MASK] use"
            " bert_tf.fill_mask, for vectors bert_tf.extract_features."
        )
    readers: dict[str, type[Reader]] = {
        one.name: one.code("reader") for one in names.HEADS.values() if one.reader
    }
    kind = readers[head.name]
    for flag in itertools.chain.from_iterable(one.flags for one in readers.values()):
        if options.is_given(flag) and flag not in kind.flags:
            raise InputError(
                f"`{flag}` has no effect: {options.checkpoint} is {model.head}."
                f" Its columns: {', '.join(f'`{name}`' for name in kind.flags)}."
            )
    return kind(options, model.reading.columns, first)
