"""Questions into logits, as a stream: memory does not grow with their number.

Questions are taken in groups of some thousand windows. A group's windows are put into
batches of like length, and its questions are handed on, in their order, when the last
of them has come back. The static lengths are chosen from the first group, so that the
others need no new compilation.

Shapes: R windows of a group, B batch, S a batch's length.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from bert_tf.records.batching import (
    PADDING,
    ROWS,
    EvaluationBatches,
    ExampleTable,
    LengthPlan,
    prediction_lengths,
)
from bert_tf.squad.features import QuestionFeatures
from bert_tf.tasks import squad

Arrays = Mapping[str, np.ndarray]
# (batches, about how many) -> (batch, outputs), batch by batch.
Predict = Callable[["WindowBatches", int], Iterator[tuple[Arrays, Arrays]]]

WINDOWS_AT_ONCE = 4096


class QuestionLogits(NamedTuple):
    """A question and its windows' logits.

    Attributes:
        features: the question and its windows.
        start_logits: of each window, float32 [S], or no more than its record's tokens.
        end_logits: likewise.
    """

    features: QuestionFeatures
    start_logits: list[np.ndarray]
    end_logits: list[np.ndarray]


class _Group:
    """Questions that are predicted together, some of them perhaps without a window."""

    def __init__(
        self, questions: list[QuestionFeatures], batches: EvaluationBatches | None
    ) -> None:
        self.questions = questions
        self.batches = batches
        self._missing = sum(len(question.windows) for question in questions)
        self._start: list[np.ndarray] = [np.empty(0)] * self._missing
        self._end: list[np.ndarray] = [np.empty(0)] * self._missing

    @property
    def is_complete(self) -> bool:
        """Whether all windows' logits are there."""
        return not self._missing

    def take(self, batch: Arrays, outputs: Arrays, *, with_padding: bool) -> None:
        """Keeps the logits of a batch's windows."""
        lengths = batch["input_mask"].sum(axis=1)
        for place, row in enumerate(batch[ROWS]):
            if row == PADDING:
                continue
            stop = None if with_padding else lengths[place]
            # Copies: a view would keep the batch.
            self._start[row] = outputs["start_logits"][place, :stop].copy()
            self._end[row] = outputs["end_logits"][place, :stop].copy()
            self._missing -= 1

    def results(self) -> Iterator[QuestionLogits]:
        """The questions, in their order."""
        first = 0
        for question in self.questions:
            last = first + len(question.windows)
            yield QuestionLogits(
                question, self._start[first:last], self._end[first:last]
            )
            first = last


class WindowBatches:
    """The batches of all windows, group after group: what a `Predictor` runs over.

    Attributes:
        element_spec: of all batches.
        group: the one that the last batch was of.
    """

    def __init__(self, first: _Group, groups: Iterator[_Group]) -> None:
        """Takes the groups."""
        assert first.batches is not None
        self.element_spec = first.batches.element_spec
        self.group = first
        self._groups = groups

    def __iter__(self) -> Iterator[Arrays]:
        """The batches; to be gone through once."""
        for group in itertools.chain([self.group], self._groups):
            self.group = group
            yield from group.batches or ()


def question_logits(
    features: Iterable[QuestionFeatures],
    predict: Predict,
    *,
    batch_size: int,
    max_seq_length: int,
    max_lengths: int | None,
    num_questions: int,
) -> Iterator[QuestionLogits]:
    """Predicts questions, in their order."""
    groups = _groups(
        iter(features), batch_size, max_seq_length, max_lengths, num_questions
    )
    first = next(groups, None)
    if first is None:
        return
    if first.batches is None:
        yield from first.results()
        return
    batches = WindowBatches(first, groups)
    total = len(first.batches) * -(-num_questions // len(first.questions))
    for batch, outputs in predict(batches, total):
        group = batches.group
        group.take(batch, outputs, with_padding=max_lengths is None)
        if group.is_complete:
            yield from group.results()
    if batches.group.batches is None:
        yield from batches.group.results()


def _groups(
    features: Iterator[QuestionFeatures],
    batch_size: int,
    max_seq_length: int,
    max_lengths: int | None,
    num_questions: int,
) -> Iterator[_Group]:
    """The questions in groups; only the last one may have no window."""
    schema = squad.schema(max_seq_length, for_training=False)
    buckets: tuple[int, ...] | None = None if max_lengths else (max_seq_length,)
    while questions := _next_questions(features):
        blocks = list(squad.blocks(questions, max_seq_length=max_seq_length))
        if not blocks:
            yield _Group(questions, None)
            continue
        table = ExampleTable(blocks, schema)
        if buckets is None:
            assert max_lengths is not None
            batches = -(-len(table) // batch_size)
            estimate = batches * num_questions // len(questions)
            buckets = prediction_lengths(table.lengths, estimate, max_lengths)
            # A later window may be longer than all of these.
            buckets = (*(n for n in buckets if n < max_seq_length), max_seq_length)
        plan = LengthPlan(table.lengths, batch_size, buckets, seed=None).epoch(0)
        yield _Group(
            questions,
            EvaluationBatches(table, plan.rows, np.array(buckets)[plan.buckets]),
        )


def _next_questions(features: Iterator[QuestionFeatures]) -> list[QuestionFeatures]:
    """Questions of `WINDOWS_AT_ONCE` windows together, or a few more; the rest."""
    questions: list[QuestionFeatures] = []
    windows = 0
    while windows < WINDOWS_AT_ONCE and (question := next(features, None)) is not None:
        questions.append(question)
        windows += len(question.windows)
    return questions
