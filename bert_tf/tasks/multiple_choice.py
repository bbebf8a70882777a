"""SWAG and other multiple choice."""

import csv
import dataclasses
import io
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.config import SINGLE_LABEL, BertConfig
from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertMultipleChoice
from bert_tf.modeling.objectives import CLASSIFICATION
from bert_tf.records.batching import SplitRecords, rows_digest
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks.finetuning import (
    EXAMPLE_LOSS,
    LOSS,
    FineTuningTask,
    Outputs,
    baseline,
    logits_of,
    model_options,
    opened_adapter,
    scores,
)
from bert_tf.tasks.run_options import ChoiceOptions
from bert_tf.tasks.tables import (
    Target,
    UnusableRows,
    columns_of,
    comma_separated,
    warn_of_left_out,
)
from bert_tf.text import blocks
from bert_tf.text.documents import whole_characters
from bert_tf.text.tfds import TfdsRows
from bert_tf.text.wordpiece import WordPieceTokenizer, pair_features, truncate_pair
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import num_workers
from bert_tf.training.task import Task

# Examples of multiple choice: a premise, and endings of which one is right.
#
# SWAG's (Zellers et al. 2018), HellaSwag's, or any table's with a column for each part,
# by name:
#
#     premise   the first sentence: "sent1", "ctx_a", "ctx" or "context"
#     start     the beginning of every ending: "sent2" or "ctx_b"; may be missing
#               or empty
#     endings   one column each, "ending0", "ending1", ...; or one field that holds
#               a list of all, "endings"
#     label     the number of the right ending, from 0: "label"
#
# Files in SWAG's format that have all of the context in "sent1" leave "sent2" empty.


# The columns to look for if none are given: the first one that exists.
PREMISES = ("sent1", "ctx_a", "ctx", "context")
STARTS = ("sent2", "ctx_b")
LIST_OF_ENDINGS = "endings"
ENDING = "ending"
LABEL = "label"


class ChoiceExample(NamedTuple):
    """A premise and the endings to choose from.

    Attributes:
        premise: the first sentence.
        start: the common beginning of every ending; "" if there is none.
        endings: the choices, two or more.
        label: the right one as written; None in a test set.
        source: "file:line", for messages.
    """

    premise: str
    start: str
    endings: tuple[str, ...]
    label: str | None
    source: str

    @property
    def choices(self) -> list[str]:
        """The second sentences."""
        return [f"{self.start} {ending}".strip() for ending in self.endings]


class ChoiceSet(NamedTuple):
    """The examples of a file.

    Attributes:
        examples: in the file's order; all with the same number of endings.
        target: what is predicted: one of the endings, by its label.
    """

    examples: list[ChoiceExample]
    target: Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """The names of a file's columns. None: the defaults above.

    Attributes:
        premise: the premise's.
        start: that of the common beginning of the endings; "" if there is none.
        endings: one for each ending, or one that holds a list of them.
        label: the label's.
        labels: each ending's value in the label column, in the order of the endings;
            None for 0, 1, 2, ...
    """

    premise: str | None = None
    start: str | None = None
    endings: tuple[str, ...] | None = None
    label: str | None = None
    labels: tuple[str, ...] | None = None

    def find(self, there: Sequence[str], path: str, *, has_labels: bool) -> "Columns":
        """The columns of a file."""
        premise = self.premise or _first(PREMISES, there)
        if premise is None:
            wanted = f"{', '.join(map(repr, PREMISES[:-1]))} or {PREMISES[-1]!r}"
            raise _missing(path, f"a premise ({wanted})", "premise_column", there)
        start = _first(STARTS, there) if self.start is None else self.start or None
        endings = self.endings or _endings(path, there)
        if not endings:
            wanted = f"endings ({LIST_OF_ENDINGS!r}, or '{ENDING}0' and so on)"
            raise _missing(path, wanted, "ending_columns", there)
        label = (self.label or LABEL) if has_labels else None
        for flag, columns in (
            ("premise_column", (premise,)),
            ("start_column", (start,)),
            ("ending_columns", endings),
            ("label_column", (label,)),
        ):
            for name in columns:
                if name is not None and name not in there:
                    raise _missing(path, repr(name), flag, there)
        return Columns(premise, start, endings, label)

    def target(self, num_endings: int, path: str) -> Target:
        """The classes of that many endings."""
        if num_endings < 2:
            raise InputError(
                f"{path}: there must be two endings or more to choose from. Found:"
                f" {num_endings}. (--ending_columns names their columns.)"
            )
        labels = self.labels or tuple(map(str, range(num_endings)))
        if len(labels) != num_endings or len(set(labels)) < len(labels):
            raise InputError(
                f"--labels={','.join(labels)}: {path} has {num_endings} endings; give"
                " as many labels, each once."
            )
        return Target(kind=SINGLE_LABEL, labels=labels)


class Columns(NamedTuple):
    """The names of one file's columns; None for those that it lacks."""

    premise: str
    start: str | None
    endings: tuple[str, ...]
    label: str | None


def _first(names: Sequence[str], there: Sequence[str]) -> str | None:
    return next((name for name in names if name in there), None)


def _endings(path: str, there: Sequence[str]) -> tuple[str, ...]:
    """The columns of the endings that a file has."""
    if LIST_OF_ENDINGS in there:
        return (LIST_OF_ENDINGS,)
    count = sum(re.fullmatch(rf"{ENDING}\d+", name) is not None for name in there)
    wanted = tuple(f"{ENDING}{number}" for number in range(count))
    missing = [name for name in wanted if name not in there]
    if missing:
        raise InputError(
            f"{path}: {count} columns of endings, but none is {missing[0]}; they are"
            f" counted from {ENDING}0. --ending_columns names others. Columns:"
            f" {', '.join(map(repr, there))}."
        )
    return wanted


def _missing(path: str, what: str, flag: str, there: Sequence[str]) -> InputError:
    return InputError(
        f"{path}: no column for {what}; --{flag} names one. {columns_of(there, path)}"
    )


# Reads examples of multiple choice from CSV, TSV and JSON lines.
#
# The file's name gives its format: .csv, .tsv, and .jsonl, .json or .ndjson, each
# compressed or not (.gz, .bz2, .xz); any other file is JSON lines if it begins with a
# brace, else CSV.
#
# Every row is used or reported with its line number. A few unusable rows are left out,
# but none of a test set, where predictions are identified by their position.


_JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
# What replaces a label in sets whose labels are withheld.
_NO_LABEL = ("", "-1")

# A row: its line, and its cells by column, or why it has none.
Row = tuple[int, Mapping[str, Any] | str]
_BLANK = "the row is blank."


def read_choices(path: str, names: ColumnNames, *, has_labels: bool) -> ChoiceSet:
    """The examples of a file."""
    header, rows = _rows(path)
    columns = names.find(header, path, has_labels=has_labels)
    return choices_of_rows(rows, columns, names, path, has_labels=has_labels)


def read_tfds_choices(
    name: str,
    split: str,
    names: ColumnNames,
    *,
    data_dir: str | None = None,
    has_labels: bool,
) -> ChoiceSet:
    """The examples of a set of TensorFlow Datasets, such as hellaswag, in its order."""
    rows = TfdsRows(name, split, data_dir)
    columns = names.find([*rows.features], rows.path, has_labels=has_labels)
    wanted = (columns.premise, columns.start, *columns.endings, columns.label)
    found = rows.read({name: True for name in wanted if name is not None})
    return choices_of_rows(
        ((number, row) for number, (_, row) in enumerate(found)),
        columns,
        names,
        rows.path,
        has_labels=has_labels,
    )


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
        # In objects without the field the endings have no common beginning.
        start="" if start is None else _text(str(columns.start), start),
        endings=tuple(_text(name, value) for name, value in cells),
        label=None if label is None else str(label).strip(),
        source=source,
    )


def _check(example: ChoiceExample, target: Target, *, has_labels: bool) -> None:
    """Raises _UnusableError if an example does not fit the target, or is empty."""
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
    # An empty line is not a row.
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
    """The object of a line, or why it has none."""
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


# Multiple choice as a task: which of several endings goes with a premise.
#
# Devlin et al. 2018, section 4.4: each ending makes a sequence of its own, [CLS]
# premise [SEP] ending [SEP]; the product of its [CLS]'s output and one vector is the
# ending's score, with a softmax over the endings. As in the paper, the common beginning
# of all endings stands before each of them. Here [CLS]'s output has passed through the
# pooler, as in the original's classifier.
#
# Shapes: R records, N choices, L tokens of a sequence.


_EXAMPLES_AT_ONCE = 256


def task(
    config: BertConfig, *, name: str = "swag", recompute: bool = False, **options: Any
) -> Task:
    """The task of choosing."""
    return Task(
        name=name,
        build_model=lambda: BertMultipleChoice(config, recompute=recompute, **options),
        objective=CLASSIFICATION,
    )


def schema(target: Target, max_seq_length: int) -> RecordSpec:
    """The features of a target's record."""
    return RecordSpec.choices(max_seq_length, target.num_outputs)


class ChoiceFeaturizer:
    """Converts examples to records: tokenized, cut, padded.

    A premise is tokenized once for all its endings.

    Attributes:
        num_truncated: how many examples of the latest call have lost tokens, in one
            choice or several.
    """

    def __init__(
        self, tokenizer: WordPieceTokenizer, *, max_seq_length: int, target: Target
    ) -> None:
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._target = target
        self.num_truncated = 0

    @property
    def settings(self) -> dict[str, Any]:
        """All that the records depend on in addition to the examples, as JSON."""
        return {
            "vocabulary": self._tokenizer.vocabulary.sha256,
            "do_lower_case": self._tokenizer.do_lower_case,
            "max_seq_length": self._max_seq_length,
            "labels": self._target.labels,
        }

    def blocks(
        self, examples: Iterable[ChoiceExample]
    ) -> Iterator[dict[str, np.ndarray]]:
        """The records of many examples at once, as in `schema`."""
        self.num_truncated = 0
        remaining = iter(examples)
        while block := list(itertools.islice(remaining, _EXAMPLES_AT_ONCE)):
            yield self._block(block)

    def _block(self, examples: Sequence[ChoiceExample]) -> dict[str, np.ndarray]:
        num_choices = self._target.num_outputs
        labels = [self._target.encode(each.label, each.source) for each in examples]
        pairs = [pair for example in examples for pair in self._pairs(example)]
        assert len(pairs) == len(examples) * num_choices
        sequences = pair_features(
            pairs, self._tokenizer.vocabulary, self._max_seq_length
        )
        return {
            **{
                name: value.reshape(len(examples), num_choices, self._max_seq_length)
                for name, value in sequences.items()
            },
            "label_ids": np.array(labels, np.int64),
            "is_real_example": np.ones((len(examples), 1), np.int64),
        }

    def _pairs(self, example: ChoiceExample) -> list[tuple[list[int], list[int]]]:
        """The tokens of an example's choices: of the premise, and of the ending."""
        premise = self._tokenizer.encode(example.premise)
        room = self._max_seq_length - 3
        pairs, is_cut = [], False
        for choice in example.choices:
            ending = self._tokenizer.encode(choice)
            pairs.append(truncate_pair(premise, ending, room))
            is_cut = is_cut or len(premise) + len(ending) > room
        self.num_truncated += is_cut
        return pairs


# The prediction for each example of multiple choice: a CSV, and probabilities.
#
# `write_choices` writes a header, then one row per example:
#
#     index       the example's number in its file, from 0
#     label       the right ending's label as in the file; empty if there is none
#     prediction  the predicted one's
#     correct     1 or 0; empty if there is no label
#     p_LABEL     each ending's probability
#     premise, start, ending_LABEL    the texts
#
# with CSV's commas and quotes: pandas.read_csv reads it.
#
# Shapes: E examples, N endings.


def write_choices(
    path: str, examples: Sequence[ChoiceExample], target: Target, logits: np.ndarray
) -> None:
    """Writes the table of the predictions."""
    expected = (len(examples), target.num_outputs)
    if np.shape(logits) != expected:
        raise ValueError(
            "`logits` must have a row an example and a column an ending."
            f" Received: {np.shape(logits)}; expected: {expected}"
        )
    content = io.StringIO(newline="")
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(
        [
            *("index", "label", "prediction", "correct"),
            *(f"p_{label}" for label in target.labels),
            *("premise", "start"),
            *(f"ending_{label}" for label in target.labels),
        ]
    )
    words = target.words(logits)
    probabilities = target.probabilities(logits)
    for index, example in enumerate(examples):
        label = example.label
        writer.writerow(
            [
                index,
                "" if label is None else label,
                words[index],
                "" if label is None else int(label == words[index]),
                *(f"{value:.6f}" for value in probabilities[index]),
                example.premise,
                example.start,
                *example.endings,
            ]
        )
    files.write_atomically(path, content.getvalue())


def write_probabilities(path: str, target: Target, logits: np.ndarray) -> None:
    """Writes one line per example, as the original's test_results.tsv, with tabs."""
    rows = target.probabilities(logits)
    lines = ["\t".join(str(value) for value in row) + "\n" for row in rows]
    files.write_atomically(path, "".join(lines))


ACCURACY = "accuracy"
METRICS = (LOSS, EXAMPLE_LOSS, ACCURACY)

# A split's records, under the original's names.
_RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}


def choice_task(
    options: ChoiceOptions, found: ModelFiles, strategy: tf.distribute.Strategy
) -> FineTuningTask[np.ndarray]:
    """The task of choosing, on the options' examples."""
    choices = _Choices(options, found, _read(options), num_workers(strategy) == 1)
    built = model_options(options, opened_adapter(options, found.config))
    return FineTuningTask.of(
        task(found.config, recompute=options.recompute, **built),
        head=names.MULTIPLE_CHOICE,
        trains_task="swag",
        records=lambda: choices.records("train"),
        data=choices.data,
        predict=choices.logits,
        score=choices.score,
        write=choices.write,
        identity=lambda split: choices.records(split).made_from,
        baseline=choices.baseline,
        dev_splits=("dev",),
        test_splits=("test",),
        metrics=METRICS,
        metric=ACCURACY,
        result_names={ACCURACY: f"eval_{{}}{ACCURACY}"},
    )


def _read(options: ChoiceOptions) -> dict[str, ChoiceSet]:
    """The examples, by split."""
    columns = ColumnNames(
        premise=options.premise_column,
        start=options.start_column,
        endings=options.ending_columns or None,
        label=options.label_column,
        labels=options.labels or None,
    )
    wanted = {
        "train": (options.do_train, options.train_file),
        "dev": (options.looks_at_dev, options.dev_file),
        "test": (options.do_predict, options.test_file),
    }
    sets = {}
    for number, (split, (is_wanted, path)) in enumerate(wanted.items()):
        has_labels = split != "test"
        if is_wanted and options.tfds_name:
            sets[split] = read_tfds_choices(
                options.tfds_name,
                options.tfds_splits[number],
                columns,
                data_dir=options.tfds_data_dir,
                has_labels=has_labels,
            )
        elif is_wanted:
            if path is None:
                raise InputError(f"Give `{split}_file`: the runs are compared by it.")
            sets[split] = read_choices(path, columns, has_labels=has_labels)
    return sets


class _Choices:
    """The examples of each split, tokenized once, and the meaning of their outputs."""

    def __init__(
        self,
        options: ChoiceOptions,
        found: ModelFiles,
        sets: Mapping[str, ChoiceSet],
        is_alone: bool,
    ) -> None:
        self._options = options
        self._tokenizer = found.tokenizer
        self._sets = sets
        self._is_alone = is_alone
        self._records: dict[str, SplitRecords] = {}

    def data(self) -> RunData:
        """The training set."""
        where = self._options.tfds_name or self._options.train_file
        count = len(self._sets["train"].examples)
        return RunData(f"{count} examples of {where}", self._digest("train"))

    def records(self, split: str) -> SplitRecords:
        """A split's records, in --output_dir."""
        if split not in self._records:
            self._records[split] = self._tokenized(split)
        return self._records[split]

    def logits(self, split: str, outputs: Outputs) -> np.ndarray:
        """The endings' scores, [examples, endings] float32, in the examples' order."""
        is_test = split == "test"
        options = self._options
        return logits_of(
            outputs,
            self.records(split),
            options,
            batch_size=options.predict_batch_size
            if is_test
            else options.eval_batch_size,
            num_outputs=self._sets[split].target.num_outputs,
        )

    def score(self, split: str, logits: np.ndarray) -> dict[str, float]:
        """A split's losses and accuracy: see `bert_tf.tasks.finetuning.scores`."""
        if split == "test":
            return {}
        examples, target = self._sets[split]
        return scores(
            examples,
            target,
            logits,
            objective=CLASSIFICATION,
            metric_names=[ACCURACY],
            batch_size=self._options.eval_batch_size,
        )

    def baseline(self, metric: str) -> float | None:
        """The accuracy of always choosing the ending that is most often right."""
        return baseline(*self._sets["dev"], metric)

    def write(self, folder: str, split: str, logits: np.ndarray, step: int) -> None:
        """Writes the predictions' table; for a test set the original's file too."""
        del step
        examples, target = self._sets[split]
        name = "dev_predictions.csv"
        if split == "test":
            name = "swag_predictions.csv"
            write_probabilities(
                os.path.join(folder, "test_results.tsv"), target, logits
            )
        write_choices(os.path.join(folder, name), examples, target, logits)
        logging.info("Wrote %d predictions to %s.", len(examples), name)

    def _digest(self, split: str) -> str:
        # Not the line: the same rows in another file are equal.
        return rows_digest(one[:-1] for one in self._sets[split].examples)

    def _tokenized(self, split: str) -> SplitRecords:
        examples, target = self._sets[split]
        length = self._options.max_seq_length
        featurizer = ChoiceFeaturizer(
            self._tokenizer, max_seq_length=length, target=target
        )
        records = SplitRecords.prepare(
            os.path.join(self._options.output_dir, f"{_RECORD_NAMES[split]}.tf_record"),
            schema(target, length),
            {**featurizer.settings, "examples": self._digest(split)},
            featurizer.blocks(examples),
            lambda: {"num_truncated": featurizer.num_truncated},
            is_alone=self._is_alone,
        )
        cut = records.notes["num_truncated"]
        if cut:
            logging.info(
                "%d of %d %s examples have a choice that was longer than"
                " --max_seq_length=%d and cut.",
                cut,
                len(examples),
                split,
                length,
            )
        return records
