"""Examples of multiple choice: a premise, and endings of which one is right.

SWAG's (Zellers et al. 2018), HellaSwag's, or any table's with a column for each of its
parts, by name:

    premise   the first sentence: "sent1", "ctx_a", "ctx" or "context"
    start     what every ending goes on from: "sent2" or "ctx_b"; may be none, or empty
    endings   a column each, "ending0", "ending1", ...; or one field that holds them all
              in a list, "endings"
    label     the number of the right ending, from 0: "label"

Where a file stands in for SWAG with all of the context in "sent1", "sent2" is empty.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

from bert_tf.config import SINGLE_LABEL
from bert_tf.errors import InputError
from bert_tf.tasks.examples import columns_of
from bert_tf.tasks.targets import Target

# The columns that are looked for where none are named: the first one that is there.
PREMISES = ("sent1", "ctx_a", "ctx", "context")
STARTS = ("sent2", "ctx_b")
LIST_OF_ENDINGS = "endings"
ENDING = "ending"
LABEL = "label"


class ChoiceExample(NamedTuple):
    """A premise and the endings to choose from.

    Attributes:
        premise: the first sentence.
        start: what every ending goes on from; "" where there is none.
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
        examples: in the file's order; all with as many endings.
        target: what is predicted: one of the endings, by its label.
    """

    examples: list[ChoiceExample]
    target: Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """What the columns of files are called. None: as in the module's docstring.

    Attributes:
        premise: the premise's.
        start: that of what the endings go on from; "" where there is none.
        endings: one for each ending, or one that holds a list of them.
        label: the label's.
        labels: what the label column says for each ending, in the order of the endings;
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
        for flag, names in (
            ("premise_column", (premise,)),
            ("start_column", (start,)),
            ("ending_columns", endings),
            ("label_column", (label,)),
        ):
            for name in names:
                if name is not None and name not in there:
                    raise _missing(path, repr(name), flag, there)
        return Columns(premise, start, endings, label)

    def target(self, num_endings: int, path: str) -> Target:
        """What is predicted where there are so many endings."""
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
    """What the columns of one file are called; None for what it does not have."""

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
