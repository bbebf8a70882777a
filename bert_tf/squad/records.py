"""Windows as the arrays of their records, many at once, on one core or on several.

The features are the original's: `bert_tf.records.schema.squad_schema` has them. R
records, L tokens of a record.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.parallel import ordered_map
from bert_tf.squad.examples import Question
from bert_tf.squad.features import Featurizer, QuestionFeatures

# The first record's unique_id, as in the original.
FIRST_UNIQUE_ID = 1_000_000_000

# Questions go in pieces that can hardly have more windows than this, but where one
# paragraph alone has.
_WINDOWS_OF_A_PIECE = 2048


class Rows(NamedTuple):
    """Records in little room: what the workers send.

    Attributes:
        input_ids: int32 [R, L].
        windows: int32 [R, 3], of each window: its first token in the paragraph, its
            length, and where in the record it begins.
        answers: int32 [R, 3], the answer's first and last token in the paragraph (-1,
            -1 without one), and whether the question is impossible.
    """

    input_ids: np.ndarray
    windows: np.ndarray
    answers: np.ndarray


def blocks(
    questions: Iterable[Question],
    featurizer: Featurizer,
    *,
    num_workers: int = 1,
    first_unique_id: int = FIRST_UNIQUE_ID,
) -> Iterator[dict[str, np.ndarray]]:
    """The records of questions, many at once, by the feature's name.

    They are the same whatever the number of workers. The workers import no TensorFlow.

    Args:
        questions: asked for as workers become free.
        featurizer: makes their windows.
        num_workers: processes that do so; with 1 it is this one.
        first_unique_id: the first record's number; the others count on.

    Returns:
        An iterator of arrays int64 [R, length]; none is empty.
    """
    for rows in ordered_map(
        _Maker(featurizer),
        _pieces(questions, featurizer.doc_stride),
        num_workers=num_workers,
    ):
        if len(rows.input_ids):
            yield _columns(rows, featurizer.for_training, first_unique_id)
            first_unique_id += len(rows.input_ids)


def arrays(
    features: Sequence[QuestionFeatures],
    featurizer: Featurizer,
    first_unique_id: int = FIRST_UNIQUE_ID,
) -> dict[str, np.ndarray]:
    """The records of all windows of some questions' features, as `blocks` yields them.

    Args:
        features: one question's after another's.
        featurizer: what made them.
        first_unique_id: as for `blocks`.
    """
    return _columns(_rows(features, featurizer), featurizer.for_training, first_unique_id)


class _Maker:
    """Makes a piece of work: questions into rows."""

    def __init__(self, featurizer: Featurizer) -> None:
        self._featurizer = featurizer

    def __call__(self, questions: Sequence[Question]) -> Rows:
        return _rows(list(self._featurizer(questions)), self._featurizer)


def _pieces(questions: Iterable[Question], doc_stride: int) -> Iterator[list[Question]]:
    """Questions in groups; how they are cut depends on them alone."""
    piece: list[Question] = []
    windows = 0
    for question in questions:
        piece.append(question)
        # Nearly all tokens have a character of their own.
        windows += 1 + len(question.paragraph.context) // doc_stride
        if windows >= _WINDOWS_OF_A_PIECE:
            yield piece
            piece = []
            windows = 0
    if piece:
        yield piece


def _rows(features: Sequence[QuestionFeatures], featurizer: Featurizer) -> Rows:
    vocabulary = featurizer.tokenizer.vocabulary
    num_rows = sum(len(one.windows) for one in features)
    input_ids = np.zeros((num_rows, featurizer.max_seq_length), np.int32)
    windows = np.empty((num_rows, 3), np.int32)
    answers = np.empty((num_rows, 3), np.int32)
    row = 0
    for one in features:
        offset = one.offset
        first_row = row
        ids = one.paragraph.id_array
        for start, length in one.windows:
            input_ids[row, offset : offset + length] = ids[start : start + length]
            windows[row] = start, length, offset
            row += 1
        input_ids[first_row:row, 1 : offset - 1] = one.query_ids
        first, last = one.answer if one.answer is not None else (-1, -1)
        answers[first_row:row] = first, last, one.question.is_impossible
    input_ids[:, 0] = vocabulary.cls_id
    every = np.arange(num_rows)
    offsets = windows[:, 2]
    input_ids[every, offsets - 1] = vocabulary.sep_id
    input_ids[every, offsets + windows[:, 1]] = vocabulary.sep_id
    return Rows(input_ids, windows, answers)


def _columns(
    rows: Rows, for_training: bool, first_unique_id: int
) -> dict[str, np.ndarray]:
    starts, lengths, offsets = rows.windows.T.astype(np.int64)[:, :, None]
    num_rows, max_seq_length = rows.input_ids.shape
    position = np.arange(max_seq_length)
    is_token = position <= offsets + lengths
    columns = {
        "unique_ids": first_unique_id + np.arange(num_rows)[:, None],
        "input_ids": rows.input_ids.astype(np.int64),
        "input_mask": is_token.astype(np.int64),
        "segment_ids": (is_token & (position >= offsets)).astype(np.int64),
    }
    if for_training:
        first, last, is_impossible = rows.answers.T.astype(np.int64)[:, :, None]
        # Where the window does not show the whole answer, there is nothing to predict.
        is_shown = (first >= starts) & (last < starts + lengths)
        to_record = offsets - starts
        columns["start_positions"] = np.where(is_shown, first + to_record, 0)
        columns["end_positions"] = np.where(is_shown, last + to_record, 0)
        columns["is_impossible"] = is_impossible
    return columns
