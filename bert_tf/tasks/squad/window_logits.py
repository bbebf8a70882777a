"""Predictions for questions' windows."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bert_tf.base.parallel import grouped
from bert_tf.records.batching import (
    Arrays,
    Batching,
    ExampleTable,
    Group,
    Predict,
    predict_groups,
)
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks.squad.windows import QuestionFeatures, blocks

# About how many windows are predicted, and kept in memory, at once.
WINDOWS_AT_ONCE = 4096


# A question and its windows' start and end logits: float32 [S] each, or as many as
# its record has tokens.
QuestionLogits = tuple[QuestionFeatures, list[np.ndarray], list[np.ndarray]]


def question_logits(
    features: Iterable[QuestionFeatures],
    predict: Predict,
    batching: Batching,
    num_questions: int,
) -> Iterator[QuestionLogits]:
    """Predicts questions in their order; memory does not grow with their number."""

    def keep(
        group: Any, row: int, place: int, batch: Arrays, outputs: Arrays
    ) -> tuple[np.ndarray, np.ndarray]:
        is_cut = batching.num_lengths is not None
        stop = batch["input_mask"][place].sum() if is_cut else None
        # Copies: a view would keep the batch.
        start = outputs["start_logits"][place, :stop].copy()
        return start, outputs["end_logits"][place, :stop].copy()

    length = batching.max_seq_length
    spec = RecordSpec.spans(length, for_training=False)
    without: list[QuestionFeatures] = []  # without a window; only the last ones can be

    def groups() -> Iterator[Group[QuestionFeatures]]:
        for some in grouped(features, WINDOWS_AT_ONCE, lambda one: len(one.windows)):
            if records := list(blocks(some, length)):
                yield some, ExampleTable(records, spec)
            else:
                without.extend(some)

    for questions, found in predict_groups(
        groups(), predict, keep, batching, num_questions
    ):
        rows = iter(found)
        for question in questions:
            own = list(itertools.islice(rows, len(question.windows)))
            yield question, [start for start, _ in own], [end for _, end in own]
    for question in without:
        yield question, [], []
