"""Windows as the arrays of their records, many at once, on one core or on several.

The features are the original's: `bert_tf.records.spec.squad_schema` has them. R
records, L tokens of a record.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from bert_tf.parallel import ordered_map
from bert_tf.squad.examples import Question
from bert_tf.squad.features import Featurizer, QuestionFeatures

Item = TypeVar("Item")

# The first record's unique_id, as in the original.
FIRST_UNIQUE_ID = 1_000_000_000

# A block has not many more records, but where one question alone has.
_RECORDS_AT_ONCE = 2048

# Groups that are made before other processes start: those of some 50,000 questions take
# as long as a few processes do until they have started and learnt the usual words.
_GROUPS_ALONE = 160


class Rows(NamedTuple):
    """Records in little room: what the workers send.

    Attributes:
        input_ids: int32 [R, L].
        windows: int32 [R, 3], of each window: its first token in the paragraph, its
            length, and where in the record it begins.
        answers: int32 [R, 3], the answer's first and last token in the paragraph (both
            -1 without one), and whether the question is impossible.
        num_cut: how many of the questions were cut.
    """

    input_ids: np.ndarray
    windows: np.ndarray
    answers: np.ndarray
    num_cut: int


class CutQuestions:
    """Counts questions whose tokens beyond max_query_length were cut off.

    Attributes:
        number: how many there were so far.
    """

    def __init__(self) -> None:
        self.number = 0


def blocks(
    features: Iterable[QuestionFeatures],
    max_seq_length: int,
    *,
    first_unique_id: int = FIRST_UNIQUE_ID,
    for_training: bool = False,
) -> Iterator[dict[str, np.ndarray]]:
    """The records of all windows, many at once, as `squad_schema` has them."""
    some = _groups(features, lambda one: len(one.windows))
    rows = (_rows(group, max_seq_length) for group in some)
    yield from _blocks(rows, for_training, first_unique_id)


def parallel_blocks(
    questions: Iterable[Question],
    featurizer: Featurizer,
    *,
    num_workers: int,
    first_unique_id: int = FIRST_UNIQUE_ID,
    cut: CutQuestions | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """The same records from questions, by several processes.

    They are the same whatever the number of processes, which import no TensorFlow. The
    first ones are made in this process, so that a small set waits for no other.
    """

    def most_windows(question: Question) -> int:
        # Nearly all tokens have a character of their own.
        return 1 + len(question.paragraph.context) // featurizer.doc_stride

    groups = _groups(questions, most_windows)
    make = _Maker(featurizer)
    rows: Iterable[Rows] = map(make, groups)
    if num_workers != 1:
        rows = itertools.chain(
            map(make, itertools.islice(groups, _GROUPS_ALONE)),
            ordered_map(
                _make,
                groups,
                num_workers=num_workers,
                initializer=_keep_maker,
                initial_arguments=(make,),
            ),
        )
    if cut is not None:
        rows = _counted(rows, cut)
    yield from _blocks(rows, featurizer.for_training, first_unique_id)


def _counted(all_rows: Iterable[Rows], cut: CutQuestions) -> Iterator[Rows]:
    for rows in all_rows:
        cut.number += rows.num_cut
        yield rows


class _Maker:
    """Makes a group of questions into rows; may be pickled."""

    def __init__(self, featurizer: Featurizer) -> None:
        self._featurizer = featurizer

    def __call__(self, questions: Sequence[Question]) -> Rows:
        features = list(self._featurizer(questions))
        return _rows(features, self._featurizer.max_seq_length)


# A worker's own: sent with each group, it would not know the words of those before.
_makers: list[_Maker] = []


def _keep_maker(make: _Maker) -> None:
    _makers[:] = [make]


def _make(questions: Sequence[Question]) -> Rows:
    return _makers[0](questions)


def _groups(
    items: Iterable[Item], num_records: Callable[[Item], int]
) -> Iterator[list[Item]]:
    """Items that have about _RECORDS_AT_ONCE records together."""
    group: list[Item] = []
    total = 0
    for item in items:
        group.append(item)
        total += num_records(item)
        if total >= _RECORDS_AT_ONCE:
            yield group
            group = []
            total = 0
    if group:
        yield group


def _blocks(
    all_rows: Iterable[Rows], for_training: bool, first_unique_id: int
) -> Iterator[dict[str, np.ndarray]]:
    for rows in all_rows:
        if len(rows.input_ids):
            yield _columns(rows, for_training, first_unique_id)
            first_unique_id += len(rows.input_ids)


def _rows(features: Sequence[QuestionFeatures], max_seq_length: int) -> Rows:
    num_rows = sum(len(one.windows) for one in features)
    input_ids = np.zeros((num_rows, max_seq_length), np.int32)
    windows = np.empty((num_rows, 3), np.int32)
    answers = np.empty((num_rows, 3), np.int32)
    row = 0
    for one in features:
        offset = one.offset
        ids = one.paragraph.id_array
        first_row = row
        for start, length in one.windows:
            input_ids[row, offset : offset + length] = ids[start : start + length]
            windows[row] = start, length, offset
            row += 1
        input_ids[first_row:row, 1 : offset - 1] = one.query_ids
        first, last = one.answer if one.answer is not None else (-1, -1)
        answers[first_row:row] = first, last, one.question.is_impossible
    if num_rows:
        vocabulary = features[0].paragraph.tokenizer.vocabulary
        every = np.arange(num_rows)
        input_ids[:, 0] = vocabulary.cls_id
        input_ids[every, windows[:, 2] - 1] = vocabulary.sep_id
        input_ids[every, windows[:, 2] + windows[:, 1]] = vocabulary.sep_id
    num_cut = sum(one.is_query_cut for one in features)
    return Rows(input_ids, windows, answers, num_cut)


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
        # Where a window does not show the whole answer, there is none to predict.
        is_shown = (first >= starts) & (last < starts + lengths)
        to_record = offsets - starts
        columns["start_positions"] = np.where(is_shown, first + to_record, 0)
        columns["end_positions"] = np.where(is_shown, last + to_record, 0)
        columns["is_impossible"] = is_impossible
    return columns
