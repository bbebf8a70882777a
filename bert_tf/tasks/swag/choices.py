"""Multiple choice: examples and their records.

Examples are SWAG's (Zellers et al. 2018), HellaSwag's, or any table's with a column for
each part, by name:

    premise   the first sentence: "sent1", "ctx_a", "ctx" or "context"
    start     the beginning of every ending: "sent2" or "ctx_b"; may be missing
              or empty
    endings   one column each, "ending0", "ending1", ...; or one field that holds
              a list of all, "endings"
    label     the number of the right ending, from 0: "label"

`bert_tf.base.rows` has the files' formats; one whose name has no known ending is CSV.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base import rows
from bert_tf.base.config import SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.base.tfds_rows import TfdsRows
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks import other_formats, tables
from bert_tf.tasks.text_records import TextFeaturizer
from bert_tf.text.documents import whole_characters
from bert_tf.text.wordpiece import Tokens, truncate_pair

# The columns to look for if none are given: the first one that exists.
PREMISES = ("sent1", "ctx_a", "ctx", "context")
STARTS = ("sent2", "ctx_b")
LIST_OF_ENDINGS = "endings"


class ChoiceExample(NamedTuple):
    """A premise and the endings to choose from."""

    premise: str
    start: str  # the common beginning of every ending; "" if there is none
    endings: tuple[str, ...]
    label: str | None  # as written; None in a test set
    source: str  # "file:line", for messages

    @property
    def choices(self) -> list[str]:
        """The second sentences."""
        return [f"{self.start} {ending}".strip() for ending in self.endings]


class ChoiceSet(NamedTuple):
    """The examples of a file, all with the same number of endings."""

    examples: list[ChoiceExample]
    target: tables.Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceLayout:
    """How to read a table or a dataset; None: as described above."""

    premise_column: str | None = None
    start_column: str | None = None  # empty for none
    ending_columns: Sequence[str] | None = None
    label_column: str | None = None
    labels: Sequence[str] | None = None  # of the endings; None: 0, 1, ...
    max_unusable_rows: float = rows.MAX_UNUSABLE
    delimiter: str | None = None  # of a CSV; None: as found


class Columns(NamedTuple):
    """The names of a file's columns; None for missing ones."""

    premise: str
    start: str | None
    endings: tuple[str, ...]  # one for each, or one for a list of all
    label: str | None


def find_columns(
    layout: ChoiceLayout, there: Sequence[str], path: str, *, has_labels: bool
) -> Columns:
    """Returns a file's columns: the layout's, or else the defaults above."""
    start = layout.start_column
    if start is None:
        start = next((name for name in STARTS if name in there), "")
    premise = next((name for name in PREMISES if name in there), PREMISES[0])
    endings: tuple[str, ...] = (LIST_OF_ENDINGS,)
    if LIST_OF_ENDINGS not in there:
        count = sum(bool(re.fullmatch(r"ending\d+", name)) for name in there)
        endings = tuple(f"ending{number}" for number in range(max(count, 1)))
    found = Columns(
        premise=layout.premise_column or premise,
        start=start or None,
        endings=tuple(layout.ending_columns or endings),
        label=layout.label_column or "label" if has_labels else None,
    )
    for flag, columns in (
        ("premise_column", (found.premise,)),
        ("start_column", (found.start,)),
        ("ending_columns", found.endings),
        ("label_column", (found.label,)),
    ):
        for name in columns:
            if name is not None:
                rows.require(name, there, path, flag)
    return found


def read_choices(
    source: str | TfdsRows, layout: ChoiceLayout, *, has_labels: bool
) -> ChoiceSet:
    """Reads the examples of a file, or of a TensorFlow dataset such as hellaswag."""
    if isinstance(source, str):
        with other_formats.naming(source, "run_swag"):
            dialect = rows.Dialect(layout.delimiter)
            header, found = rows.read(source, default=rows.CSV, dialect=dialect)
            columns = find_columns(layout, header, source, has_labels=has_labels)
            return _choices(found, columns, layout, source)
    there = [*source.features]
    columns = find_columns(layout, there, source.path, has_labels=has_labels)
    wanted = (columns.premise, columns.start, *columns.endings, columns.label)
    found = source.read({name: True for name in wanted if name is not None})
    return _choices(found, columns, layout, source.path)


def _choices(
    found: Iterable[rows.Row], columns: Columns, layout: ChoiceLayout, path: str
) -> ChoiceSet:
    left_out = rows.LeftOutRows(path, layout.max_unusable_rows)
    examples: list[ChoiceExample] = []
    target: tables.Target | None = None
    has_labels = columns.label is not None
    for row in left_out.count(found, keeps_blank=not has_labels):
        is_blank = not row.problem and all(cell == "" for cell in row.cells.values())
        if is_blank and not has_labels:
            left_out.empty(row.number)
            examples.append(ChoiceExample("", "", (), None, row.place))
            continue
        try:
            example = example_of(row, columns)
        except InputError as error:
            left_out.add(row.number, str(error))
            continue
        target = target or _target(layout.labels, len(example.endings), path)
        if reason := _problem(example, target, has_labels=has_labels):
            left_out.add(row.number, reason)
        else:
            examples.append(example)
    left_out.report(has_labels=has_labels)
    if target is None or not examples:
        raise InputError(f"{path}: no examples in it. Give another.")
    nothing = ("",) * target.num_outputs
    filled = [one._replace(endings=one.endings or nothing) for one in examples]
    return ChoiceSet(filled, target)


def _target(labels: Sequence[str] | None, count: int, path: str) -> tables.Target:
    """Returns the target for a number of endings: one class per ending."""
    found = tuple(labels or map(str, range(count)))
    if count < 2 or not len({*found}) == len(found) == count:
        raise InputError(
            f"{path}: there must be two endings or more to choose from, and as many"
            f" labels, each once. Received: {count}, and {','.join(found)}."
        )
    return tables.Target(kind=SINGLE_LABEL, labels=found)


def example_of(row: rows.Row, columns: Columns) -> ChoiceExample:
    """Returns the example of a row."""
    if row.problem:
        raise InputError(row.problem)

    def text(name: str, value: Any) -> str:
        if not isinstance(value, str):
            has_it = rows.has_field(row.cells, name)
            found = type(value).__name__ if has_it else "no such column"
            raise InputError(f"column {name!r} must be text. Received: {found}.")
        return whole_characters(value).strip()

    first, *others = columns.endings
    endings = row.get(first)
    if others:
        endings = [row.get(name) for name in columns.endings]
    elif not isinstance(endings, list):
        raise InputError(f"column {first!r} must be a list of endings.")
    # Without the field, the endings of an object have no common beginning.
    start = None if columns.start is None else row.get(columns.start)
    label = None if columns.label is None else row.get(columns.label)
    return ChoiceExample(
        premise=text(columns.premise, row.get(columns.premise)),
        start="" if start is None else text(str(columns.start), start),
        endings=tuple(text(first, ending) for ending in endings),
        label=None if label is None else str(label).strip(),
        source=row.place,
    )


def _problem(example: ChoiceExample, target: tables.Target, *, has_labels: bool) -> str:
    """Returns why an example is empty or does not fit the target; "" if it fits."""
    if len(example.endings) != target.num_outputs:
        return (
            f"there are {len(example.endings)} endings; the first row has"
            f" {target.num_outputs}."
        )
    if not has_labels:
        return ""
    if not (example.premise or example.start) or "" in example.endings:
        return "the premise or an ending is empty."
    if example.label not in target.labels:
        return (
            f"the label must be one of {', '.join(target.labels)}. Received:"
            f" {example.label!r}."
        )
    return ""


class ChoiceFeaturizer(TextFeaturizer):
    """Converts examples to records: tokenized, cut, padded."""

    @property
    def spec(self) -> RecordSpec:
        """The features of a record."""
        return RecordSpec.choices(self.max_seq_length, self.target.num_outputs)

    @property
    def settings(self) -> dict[str, Any]:
        """Returns the settings that decide the records, as JSON."""
        return {
            **self.tokenizer.settings,
            "max_seq_length": self.max_seq_length,
            "labels": self.target.labels,
        }

    def _block(self, examples: Sequence[ChoiceExample]) -> dict[str, np.ndarray]:
        num_choices = self.target.num_outputs
        shape = (len(examples), num_choices, self.max_seq_length)
        # An example has one label for all its choices.
        return {
            name: values[::num_choices]
            if values.shape[1] == 1
            else values.reshape(shape)
            for name, values in super()._block(examples).items()
        }

    def _texts(self, example: ChoiceExample) -> list[tuple[Tokens, Tokens]]:
        """Returns the tokens of an example's choices: premises and endings."""
        premise = self.tokenizer.encode(example.premise)
        endings = [self.tokenizer.encode(choice) for choice in example.choices]
        room = self.max_seq_length - 3
        self.num_truncated += len(premise) + max(map(len, endings)) > room
        return [truncate_pair(premise, ending, room) for ending in endings]
