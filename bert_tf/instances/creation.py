"""Documents of token ids to masked pairs: the original's create_pretraining_data."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bert_tf.instances import pairs
from bert_tf.instances.masking import Masking, mask, masking_of
from bert_tf.instances.pairs import Documents
from bert_tf.instances.random_stream import (
    compiled,
    log_compilation_of,
    random_stream,
    shuffle,
)
from bert_tf.instances.settings import (
    EXACT_LABELS,
    FULL_SENTENCES,
    NEXT_SENTENCE,
    NUM_SPECIAL_TOKENS,
    ORIGINAL_LABELS,
    PIECE,
    PREVIOUS_OR_NEXT,
    SENTENCE_ORDER,
    STATIC_MASKING,
    WORD,
    InstanceSettings,
)
from bert_tf.text.vocabulary import Vocabulary

# The original's procedure (google-research/bert, create_pretraining_data): all
# documents are one pool with one random stream. They are shuffled; in each of
# `dupe_factor` passes every document is cut into pairs and each pair masked, with fresh
# draws; finally all instances are shuffled.

# Instances made between two reports of progress, for which memory is reserved, and
# their tokens at most.
_AT_A_TIME = 1 << 14
_OF_TOKENS = ("input_ids", "input_mask", "segment_ids", "sequence_ids")
_OF_SEQUENCES = ("cls_positions", "next_sentence_labels", "next_sentence_weights")
_MASKED_LM = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
_TOKENS_AT_A_TIME = 1 << 22


class Buffers(NamedTuple):
    """The instances in the order in which they were made, the n-th one's parts at n."""

    tokens: np.ndarray  # masked: uint16 or int32
    stops: np.ndarray  # int64 [n], where in `tokens` each ends
    first_lengths: np.ndarray  # int32 [n], tokens of segment id 0
    next_sentence_labels: np.ndarray  # uint8 [n]
    prediction_stops: np.ndarray  # int64 [n], where in `positions` each ends
    positions: np.ndarray  # uint16 or int32
    labels: np.ndarray  # the ids that stood at `positions`


class _Recipe(NamedTuple):
    """The ids and settings in the form for compiled code."""

    kind: int  # of sequences: see `bert_tf.instances.pairs`
    max_seq_length: int
    short_seq_prob: float
    cls_id: int
    sep_id: int
    is_masked: bool
    masking: Masking


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instances:
    """The instances of a corpus, in the order in which they are written."""

    buffers: Buffers  # all of them, in the order in which they were made
    order: np.ndarray  # their numbers in the buffers
    settings: InstanceSettings
    num_documents: int  # the documents that they were made from
    # Documents' last lone tokens, of which no exact pair can be made, each counted once
    # per pass.
    num_left_out: int
    # Tokens of sentences longer than a sequence that none of the instances has.
    num_cut: int

    def __len__(self) -> int:
        return len(self.order)

    def lengths(self) -> np.ndarray:
        """The tokens of each, without padding."""
        return np.diff(self.buffers.stops, prepend=0)[self.order]

    def num_predictions(self) -> np.ndarray:
        """The predictions of each; none if they are not masked."""
        return np.diff(self.buffers.prediction_stops, prepend=0)[self.order]

    def blocks(self, block_size: int) -> Iterator[dict[str, np.ndarray]]:
        """Yields the instances, a given number at a time, padded."""
        unpacked = dataclasses.replace(self.settings, packed_length=None)
        for start in range(0, len(self), block_size):
            numbers = self.order[start : start + block_size]
            columns = self.rows(numbers, np.arange(len(numbers) + 1), unpacked)
            for name in ("sequence_ids", "cls_positions", "next_sentence_weights"):
                del columns[name]
            yield columns

    def rows(
        self, numbers: np.ndarray, starts: np.ndarray, settings: InstanceSettings
    ) -> dict[str, np.ndarray]:
        """Packed rows of these instances; row n holds those from starts[n] on."""
        num_rows = len(starts) - 1
        columns: dict[str, np.ndarray] = {
            name: np.zeros(
                [num_rows, length], np.float32 if name.endswith("weights") else np.int64
            )
            for length, names in (
                (settings.record_length, _OF_TOKENS),
                (settings.max_sequences_per_record, _OF_SEQUENCES),
                (settings.max_predictions_per_record, _MASKED_LM),
            )
            for name in names
        }
        _fill(self.buffers, numbers, starts, tuple(columns.values()))
        if settings.masking != STATIC_MASKING:
            for name in _MASKED_LM:
                del columns[name]
        return columns


def log_compilation() -> None:
    """Logs that `create_instances` will be compiled, unless it was before."""
    log_compilation_of(_make_instances)


def create_instances(
    documents: Documents,
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    progress: Callable[[int], object] = lambda _: None,
) -> Instances:
    """The instances of a corpus, in the order in which they are written."""
    num_documents = len(documents.document_starts) - 1
    assert num_documents >= settings.least_documents
    stream = random_stream(settings.random_seed)
    order = np.arange(num_documents)
    shuffle(stream, order)
    recipe = _recipe(vocabulary, settings)
    dtype = documents.tokens.dtype
    types = (dtype, np.int64, np.int32, np.uint8, np.int64, np.int32, dtype)
    buffers = Buffers(*(np.empty(0, each) for each in types))
    num_instances = num_left_out = 0
    is_cut = np.zeros(0, np.bool_)
    lengths = np.diff(documents.sentence_starts)
    is_long = lengths > settings.max_seq_length - NUM_SPECIAL_TOKENS
    if recipe.kind != pairs.FULL_SENTENCES and is_long.any():
        is_cut = np.repeat(is_long, lengths)
    at_a_time = max(1, min(_AT_A_TIME, _TOKENS_AT_A_TIME // settings.max_seq_length))
    for _ in range(settings.dupe_factor):
        cursor = pairs.new_cursor()
        while cursor[pairs.DOCUMENT] < num_documents:
            before = cursor[pairs.DOCUMENT]
            _resize(buffers, num_instances, at_a_time, settings)
            num_instances = _make_instances(
                documents, order, recipe, cursor, stream, is_cut, buffers,
                num_instances, at_a_time,
            )  # fmt: skip
            progress(int(cursor[pairs.DOCUMENT] - before))
        num_left_out += int(cursor[pairs.LEFT_OUT])
    _resize(buffers, num_instances, 0, settings)
    order = np.arange(num_instances)
    shuffle(stream, order)
    return Instances(
        buffers=buffers,
        order=order,
        settings=settings,
        num_documents=num_documents,
        num_left_out=num_left_out,
        num_cut=int(np.count_nonzero(is_cut)),
    )


_KINDS = {
    (NEXT_SENTENCE, ORIGINAL_LABELS): pairs.NEXT_SENTENCE,
    (NEXT_SENTENCE, EXACT_LABELS): pairs.EXACT_NEXT_SENTENCE,
    (SENTENCE_ORDER, ORIGINAL_LABELS): pairs.SENTENCE_ORDER,
    (PREVIOUS_OR_NEXT, ORIGINAL_LABELS): pairs.PREVIOUS_OR_NEXT,
    (FULL_SENTENCES, ORIGINAL_LABELS): pairs.FULL_SENTENCES,
}


def _recipe(vocabulary: Vocabulary, settings: InstanceSettings) -> _Recipe:
    return _Recipe(
        kind=_KINDS[settings.pairs, settings.nsp_labels],
        max_seq_length=settings.max_seq_length,
        short_seq_prob=settings.short_seq_prob,
        cls_id=vocabulary.cls_id,
        sep_id=vocabulary.sep_id,
        is_masked=settings.masking == STATIC_MASKING,
        masking=masking_of(
            vocabulary,
            unit=WORD if settings.do_whole_word_mask else PIECE,
            masked_lm_prob=settings.masked_lm_prob,
            max_predictions_per_seq=settings.max_predictions_per_seq,
        ),
    )


def _resize(
    buffers: Buffers, num_instances: int, num_more: int, settings: InstanceSettings
) -> None:
    """Gives room for more instances than there are; in place, for it is large."""
    num_tokens = num_predictions = 0
    if num_instances:
        num_tokens = int(buffers.stops[num_instances - 1])
        num_predictions = int(buffers.prediction_stops[num_instances - 1])
    length = settings.max_seq_length
    num_tokens += num_more * length
    num_predictions += num_more * min(length, settings.max_predictions_per_seq)
    of_instances = [num_instances + num_more] * 4
    sizes = (num_tokens, *of_instances, num_predictions, num_predictions)
    for array, size in zip(buffers, sizes, strict=True):
        array.resize(size, refcheck=False)


@compiled
def _make_instances(
    documents, order, recipe, cursor, stream, is_cut, buffers, num_instances, count
):
    """Makes up to `count` more instances; returns their total number."""
    stop = prediction_stop = 0
    if num_instances:
        stop = buffers.stops[num_instances - 1]
        prediction_stop = buffers.prediction_stops[num_instances - 1]
    sequence = np.empty(recipe.max_seq_length, documents.tokens.dtype)
    for index in range(num_instances, num_instances + count):
        if recipe.kind == pairs.FULL_SENTENCES:
            length, num_first, label = pairs.packed_sequence(
                documents, order, recipe, cursor, stream, sequence
            )
        else:
            length, num_first, label = pairs.pair_sequence(
                documents, order, recipe, cursor, stream, is_cut, sequence
            )
        if length == 0:
            return index
        if recipe.is_masked:
            prediction_stop += mask(
                sequence[:length],
                recipe.masking,
                stream,
                buffers.positions[prediction_stop:],
                buffers.labels[prediction_stop:],
            )
        buffers.tokens[stop : stop + length] = sequence[:length]
        stop += length
        buffers.stops[index] = stop
        buffers.prediction_stops[index] = prediction_stop
        buffers.first_lengths[index] = num_first
        buffers.next_sentence_labels[index] = label
    return num_instances + count


@compiled
def _fill(buffers, numbers, starts, columns):
    row_ids, row_mask, row_segments, row_sequences = columns[:4]
    row_cls, row_labels, row_weights = columns[4:7]
    row_positions, row_predicted, row_predicted_weights = columns[7:]
    for row in range(len(starts) - 1):
        place = slot = 0
        for number in range(starts[row + 1] - starts[row]):
            instance = numbers[starts[row] + number]
            row_cls[row, number] = place
            row_labels[row, number] = buffers.next_sentence_labels[instance]
            row_weights[row, number] = 1.0
            first = buffers.prediction_stops[instance - 1] if instance else 0
            for index in range(first, buffers.prediction_stops[instance]):
                row_positions[row, slot] = place + buffers.positions[index]
                row_predicted[row, slot] = buffers.labels[index]
                row_predicted_weights[row, slot] = 1.0
                slot += 1
            first = buffers.stops[instance - 1] if instance else 0
            second_segment = first + buffers.first_lengths[instance]
            for index in range(first, buffers.stops[instance]):
                row_ids[row, place] = buffers.tokens[index]
                row_mask[row, place] = 1
                row_segments[row, place] = index >= second_segment
                row_sequences[row, place] = number + 1
                place += 1
