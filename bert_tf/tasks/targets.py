"""What a classifier predicts: one label, several labels, or numbers.

How a label is written in a table, what it is in a record, and what the model's outputs
mean. Several labels, or several numbers, stand in one cell with a separator, such as a
comma, between them.

Shapes: N examples, C outputs.
"""

import dataclasses
import functools
import math

import numpy as np

from bert_tf.config import MULTI_LABEL, PROBLEM_TYPES, REGRESSION, SINGLE_LABEL
from bert_tf.errors import InputError

__all__ = ["MULTI_LABEL", "REGRESSION", "SINGLE_LABEL", "Target"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """What a classifier predicts.

    Attributes:
        kind: SINGLE_LABEL, MULTI_LABEL or REGRESSION.
        labels: the classes in the order of the outputs; for a regression of several
            numbers their names; () for one number.
        separator: what stands between several labels, or several numbers, in a cell.
    """

    kind: str
    labels: tuple[str, ...] = ()
    separator: str = ","

    def __post_init__(self) -> None:
        if self.kind not in PROBLEM_TYPES:
            raise ValueError(
                f"`kind` must be one of {PROBLEM_TYPES}. Received: {self.kind!r}"
            )
        at_least = {SINGLE_LABEL: 2, MULTI_LABEL: 1, REGRESSION: 0}[self.kind]
        if len(self.labels) < at_least or len(set(self.labels)) < len(self.labels):
            raise ValueError(
                f"`labels` of a {self.kind} must be {at_least} or more, each once."
                f" Received: {self.labels}"
            )

    @property
    def num_outputs(self) -> int:
        """C, the number of the model's outputs."""
        return max(1, len(self.labels))

    @property
    def label_length(self) -> int:
        """How many values a record's label has: 1, or C."""
        return 1 if self.kind == SINGLE_LABEL else self.num_outputs

    @property
    def label_dtype(self) -> str:
        """The type of a record's label: "int64" for a class, else "float32"."""
        return "int64" if self.kind == SINGLE_LABEL else "float32"

    def encode(self, label: str | None, source: str) -> list[int] | list[float]:
        """A record's label_ids: a class's id, the numbers, or 0.0 or 1.0 a label."""
        if self.kind == SINGLE_LABEL:
            return [0 if label is None else self._id(label, source)]
        if label is None:
            return [0.0] * self.label_length
        if self.kind == REGRESSION:
            return self._numbers(label, source)
        found = {self._id(word, source) for word in self.split(label)}
        return [float(index in found) for index in range(self.num_outputs)]

    def split(self, label: str) -> list[str]:
        """The labels of a cell of several; none in an empty one."""
        words = (word.strip() for word in label.split(self.separator))
        return [word for word in words if word]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """[N, C]: each class's, each label's by itself, or the numbers themselves."""
        logits = np.asarray(logits, np.float32)
        if self.kind == REGRESSION:
            return logits
        if self.kind == MULTI_LABEL:
            # Of -|x|, lest the power of a large number overflow.
            power = np.exp(-np.abs(logits))
            return np.where(logits >= 0, 1, power) / (1 + power)
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """What is predicted, as metrics take it."""
        logits = np.asarray(logits)
        if self.kind == SINGLE_LABEL:
            return logits.argmax(axis=-1)
        if self.kind == MULTI_LABEL:
            return (logits > 0).astype(np.int64)
        return logits[:, 0] if self.num_outputs == 1 else logits

    def words(self, logits: np.ndarray) -> list[str]:
        """What is predicted, as a person writes it: "entailment", "a,c", "3.214"."""
        predictions = self.predictions(logits)
        if self.kind == SINGLE_LABEL:
            return [self.labels[index] for index in predictions]
        if self.kind == MULTI_LABEL:
            return [
                self.separator.join(
                    label for label, on in zip(self.labels, row, strict=True) if on
                )
                for row in predictions
            ]
        return [
            self.separator.join(f"{value:.3f}" for value in np.atleast_1d(row))
            for row in predictions
        ]

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {label: index for index, label in enumerate(self.labels)}

    def _id(self, label: str, source: str) -> int:
        if label not in self._ids:
            several = (
                f" (several: {self.separator!r} between them)"
                if self.kind == MULTI_LABEL
                else ""
            )
            raise InputError(
                f"{source}: the label must be one of {', '.join(self.labels)}"
                f"{several}. Found: {label!r}."
            )
        return self._ids[label]

    def _numbers(self, label: str, source: str) -> list[float]:
        count = self.num_outputs
        wanted = (
            "a number"
            if count == 1
            else f"{count} numbers, {self.separator!r} between them"
        )
        message = f"{source}: the label must be {wanted}. Found: {label!r}."
        try:
            numbers = [float(word) for word in label.split(self.separator)]
        except ValueError as error:
            raise InputError(message) from error
        if len(numbers) != count or not all(map(math.isfinite, numbers)):
            raise InputError(message)
        return numbers
