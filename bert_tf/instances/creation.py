"""Documents of token ids to masked pairs: the original's create_pretraining_data."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.instances.compilation import compiled, log_compilation_of
from bert_tf.instances.masking import (
    Masking,
    mask,
    masking_of,
    random,
    random_below,
    random_between,
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

# Larger vocabularies need more than 16 bits per token.
_LAST_UINT16 = 0xFFFF


def token_dtype(vocab_size: int) -> type[np.integer]:
    """Returns the smallest type that holds the ids of a vocabulary of this size."""
    return np.uint16 if vocab_size <= _LAST_UINT16 + 1 else np.int32


class Documents(NamedTuple):
    """A corpus: documents of sentences of token ids, none empty."""

    # uint16 or int32 [num_tokens], the tokens of all sentences one after another.
    tokens: np.ndarray
    # int64 [num_sentences + 1], where each sentence begins in `tokens`, and where the
    # last one ends.
    sentence_starts: np.ndarray
    # int64 [num_documents + 1], where each document begins in `sentence_starts`, and
    # where the last one ends.
    document_starts: np.ndarray


def starts(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns where pieces of these lengths begin, and where the last one ends."""
    result = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=result[1:])
    return result


# Devlin et al. 2018, section 3.1 "Task #2" and appendix A.2: a sequence is [CLS] A
# [SEP] B [SEP], where A and B are spans of several sentences; half of the time B
# follows A, else it comes from another document. Record-for-record equality with the
# original depends on its order of random draws, which the docstrings give.
#
# A segment is a range of the corpus's tokens: nothing is copied until a sequence is
# built. Documents are identified by their place in `order`, the shuffled pool.

# The kinds of sequences, as numbers: compiled code has no strings.
NEXT, EXACT_NEXT, ORDER, SENTENCES, PREVIOUS = range(5)

IS_RANDOM_RATE = 0.5
MAX_TRIES_FOR_ANOTHER_DOCUMENT = 10


class Pair(NamedTuple):
    """The two segments of a sequence, without special tokens."""

    first_start: int  # where segment A begins in the corpus's tokens
    first_stop: int  # where it ends
    second_start: int  # where segment B begins
    second_stop: int  # where it ends
    # 1 if B was drawn at random and does not follow A; for sentence order, if B comes
    # before A in the text. With three labels, 2 if B comes before A.
    label: int
    next_sentence: int  # where the document is to be cut next


@compiled
def target_length(max_num_tokens, short_seq_prob, stream):
    """Returns the target length of a document's sequences: the most, or sometimes less.

    Draws: `random()`, and the target if it is short.
    """
    if random(stream) < short_seq_prob:
        return random_between(stream, 2, max_num_tokens)
    return max_num_tokens


@compiled
def next_sentence_pair(
    documents: Documents,
    order: np.ndarray,
    document: int,
    sentence: int,
    target: int,
    stream: np.ndarray,
) -> Pair:
    """Returns the original's pair: sentences split in two, the second maybe random.

    Sentences are gathered until they reach the target or the document ends. A is the
    first 1 to n - 1 of n sentences. B is the others, or random; if it is random, the
    others are gathered again. A lone sentence always gets a random B.
    """
    sentence_starts = documents.sentence_starts
    end = _gathered(documents, order[document], sentence, target, 1)
    split = sentence + 1
    is_random = True
    if end - sentence > 1:
        split = sentence + random_between(stream, 1, end - sentence - 1)
        is_random = random(stream) < IS_RANDOM_RATE
    first_start = sentence_starts[sentence]
    first_stop = sentence_starts[split]
    if not is_random:
        return Pair(first_start, first_stop, first_stop, sentence_starts[end], 0, end)
    # The tenth draw is taken even if it is the same document: it may be the only one.
    other = random_below(stream, len(order))
    for _ in range(MAX_TRIES_FOR_ANOTHER_DOCUMENT - 1):
        if other != document:
            break
        other = random_below(stream, len(order))
    second_start, second_stop = _random_segment(
        documents, order[other], target - (first_stop - first_start), stream
    )
    return Pair(first_start, first_stop, second_start, second_stop, 1, split)


@compiled
def neighbour_pair(documents, order, document, sentence, target, kind, stream):
    """Returns two segments of consecutive text whose label only the text reveals.

    Half of the time B comes from another document (exact next sentences), or precedes A
    (sentence order). With three labels, B is the next segment, one of another document,
    or the previous segment, a third each.
    """
    pair = _neighbours(documents, order[document], sentence, target, stream)
    if pair.second_start == pair.second_stop:
        return pair
    if kind == PREVIOUS:
        label = random_below(stream, 3)
    else:
        label = 1 if random(stream) < IS_RANDOM_RATE else 0
    if label == 0:
        return pair
    first_start, first_stop, second_start, second_stop, _, end = pair
    if label == 2 or kind == ORDER:
        return Pair(second_start, second_stop, first_start, first_stop, label, end)
    other = random_below(stream, len(order) - 1)
    if other >= document:
        other += 1
    second_start, second_stop = _random_segment(
        documents, order[other], target - (first_stop - first_start), stream
    )
    split = sentence + 1
    while documents.sentence_starts[split] < first_stop:
        split += 1
    return Pair(first_start, first_stop, second_start, second_stop, label, split)


@compiled
def _neighbours(documents, number, sentence, target, stream):
    """Returns two consecutive segments."""
    sentence_starts = documents.sentence_starts
    end = _gathered(documents, number, sentence, target, 2)
    start, stop = sentence_starts[sentence], sentence_starts[end]
    if end - sentence > 1:
        split = sentence + random_between(stream, 1, end - sentence - 1)
        middle = sentence_starts[split]
    elif stop - start > 1:
        middle = start + random_between(stream, 1, stop - start - 1)
    else:
        start = middle = stop
    return Pair(start, middle, middle, stop, 0, end)


@compiled
def _gathered(documents, number, sentence, target, at_least):
    """Returns the sentence after those that reach the target, or the document's end."""
    sentence_starts = documents.sentence_starts
    document_end = documents.document_starts[number + 1]
    end = sentence
    while end < document_end and (
        end - sentence < at_least
        or sentence_starts[end] - sentence_starts[sentence] < target
    ):
        end += 1
    return end


@compiled
def _random_segment(documents, number, target, stream):
    """Returns a random run of a document's sentences, up to a length, at least one."""
    sentence_starts = documents.sentence_starts
    document_start = documents.document_starts[number]
    document_end = documents.document_starts[number + 1]
    begin = document_start + random_below(stream, document_end - document_start)
    end = begin + 1
    while end < document_end and sentence_starts[end] - sentence_starts[begin] < target:
        end += 1
    return sentence_starts[begin], sentence_starts[end]


@compiled
def truncated(pair, max_num_tokens, stream):
    """Returns a pair's bounds, cut token by token until both segments together fit.

    Each time the longer one, or the second of equal ones, loses a token, randomly from
    its front or its back, so that neither end is always complete.

    Draws: one `random()` for each token cut.
    """
    first_start, first_stop = pair.first_start, pair.first_stop
    second_start, second_stop = pair.second_start, pair.second_stop
    while first_stop - first_start + second_stop - second_start > max_num_tokens:
        from_front = random(stream) < 0.5
        if first_stop - first_start > second_stop - second_start:
            if from_front:
                first_start += 1
            else:
                first_stop -= 1
        elif from_front:
            second_start += 1
        else:
            second_stop -= 1
    return first_start, first_stop, second_start, second_stop


# A cursor marks where in the corpus the next sequence begins, so that making
# sequences can stop when memory is full, and resume.

# The fields of a cursor: the place in the pool; the sentence (-1 before a document
# begins); the target length of the document's pairs, or the number of the sentence's
# tokens already used; and the number of lone tokens left out.
DOCUMENT, SENTENCE, TARGET, LEFT_OUT = range(4)
OFFSET = TARGET


def new_cursor() -> np.ndarray:
    """Returns a cursor at the beginning of the pool."""
    return np.array([0, -1, 0, 0], np.int64)


@compiled
def pair_sequence(documents, order, recipe, cursor, stream, is_cut, to):
    """Builds the next [CLS] A [SEP] B [SEP]. Returns both lengths and the label.

    `is_cut` becomes false for the corpus's tokens in the sequence, unless it is empty.
    """
    max_num_tokens = len(to) - NUM_SPECIAL_TOKENS
    while cursor[DOCUMENT] < len(order):
        document = cursor[DOCUMENT]
        number = order[document]
        if cursor[SENTENCE] < 0:
            cursor[SENTENCE] = documents.document_starts[number]
            cursor[TARGET] = target_length(
                max_num_tokens, recipe.short_seq_prob, stream
            )
        sentence, target = cursor[SENTENCE], cursor[TARGET]
        if recipe.kind == NEXT:
            pair = next_sentence_pair(
                documents, order, document, sentence, target, stream
            )
        else:
            pair = neighbour_pair(
                documents, order, document, sentence, target, recipe.kind, stream
            )
        cursor[SENTENCE] = pair.next_sentence
        if pair.next_sentence == documents.document_starts[number + 1]:
            cursor[DOCUMENT] += 1
            cursor[SENTENCE] = -1
        if pair.second_start == pair.second_stop:
            cursor[LEFT_OUT] += 1
            continue
        start, stop, second_start, second_stop = truncated(pair, max_num_tokens, stream)
        if len(is_cut):
            is_cut[start:stop] = False
            is_cut[second_start:second_stop] = False
        num_first = stop - start + 2
        length = num_first + second_stop - second_start + 1
        to[0] = recipe.cls_id
        to[1 : num_first - 1] = documents.tokens[start:stop]
        to[num_first - 1] = recipe.sep_id
        to[num_first : length - 1] = documents.tokens[second_start:second_stop]
        to[length - 1] = recipe.sep_id
        return length, num_first, pair.label
    return 0, 0, 0


@compiled
def packed_sequence(documents, order, recipe, cursor, stream, to):
    """Packs the next whole sentences into [CLS] sentences [SEP].

    Liu et al. 2019, section 4.2, "FULL-SENTENCES": they may come from several
    documents, with a [SEP] between. A sentence longer than a sequence is cut.
    """
    if cursor[DOCUMENT] == len(order):
        return 0, 0, 0
    limit = len(to) - 1
    if random(stream) < recipe.short_seq_prob:
        limit = random_between(stream, 2, limit)
    to[0] = recipe.cls_id
    length = 1
    while cursor[DOCUMENT] < len(order):
        number = order[cursor[DOCUMENT]]
        begins = cursor[SENTENCE] < 0
        if begins:
            cursor[SENTENCE] = documents.document_starts[number]
            cursor[OFFSET] = 0
        sentence = cursor[SENTENCE]
        separator = 1 if begins and length > 1 else 0
        start = documents.sentence_starts[sentence] + cursor[OFFSET]
        stop = documents.sentence_starts[sentence + 1]
        if length + separator + stop - start > limit:
            if length > 1:
                if begins:
                    cursor[SENTENCE] = -1
                break
            cursor[OFFSET] += limit - length
            stop = start + limit - length
        else:
            cursor[SENTENCE] += 1
            cursor[OFFSET] = 0
            if cursor[SENTENCE] == documents.document_starts[number + 1]:
                cursor[DOCUMENT] += 1
                cursor[SENTENCE] = -1
        if separator:
            to[length] = recipe.sep_id
            length += 1
        to[length : length + stop - start] = documents.tokens[start:stop]
        length += stop - start
        if length == limit:
            break
    to[length] = recipe.sep_id
    return length + 1, length + 1, 0


# The original's procedure (google-research/bert, create_pretraining_data): all
# documents are one pool with one random stream. They are shuffled; in each of
# `dupe_factor` passes every document is cut into pairs and each pair masked, with fresh
# draws; finally all instances are shuffled.

# The number of instances made, in reserved memory, between two reports of progress, and
# their tokens at most.
_AT_A_TIME = 1 << 14
_OF_TOKENS = ("input_ids", "input_mask", "segment_ids", "sequence_ids")
_OF_SEQUENCES = ("cls_positions", "next_sentence_labels", "next_sentence_weights")
_MASKED_LM = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
_TOKENS_AT_A_TIME = 1 << 22


class Buffers(NamedTuple):
    """The instances in the order in which they were made."""

    tokens: np.ndarray  # masked: uint16 or int32
    stops: np.ndarray  # int64 [n], where in `tokens` each ends
    first_lengths: np.ndarray  # int32 [n], tokens of segment id 0
    next_sentence_labels: np.ndarray  # uint8 [n]
    prediction_stops: np.ndarray  # int64 [n], where in `positions` each ends
    positions: np.ndarray  # uint16 or int32
    labels: np.ndarray  # the original ids at `positions`


class _Recipe(NamedTuple):
    """The ids and settings in a form for compiled code."""

    kind: int  # of sequences: see above
    max_seq_length: int
    short_seq_prob: float
    cls_id: int
    sep_id: int
    is_masked: bool
    masking: Masking


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instances:
    """The instances of a corpus, in writing order."""

    buffers: Buffers  # all instances, in the order in which they were made
    order: np.ndarray  # their numbers in the buffers
    settings: InstanceSettings
    num_documents: int  # the documents that they were made from
    # Lone last tokens of documents, of which no exact pair can be made, counted once
    # per pass.
    num_left_out: int
    # Tokens of sentences longer than a sequence that are in none of the instances.
    num_cut: int

    def __len__(self) -> int:
        return len(self.order)

    def lengths(self) -> np.ndarray:
        """Returns each instance's number of tokens, without padding."""
        return np.diff(self.buffers.stops, prepend=0)[self.order]

    def num_predictions(self) -> np.ndarray:
        """Returns each instance's number of predictions: 0 if it is not masked."""
        return np.diff(self.buffers.prediction_stops, prepend=0)[self.order]

    def blocks(self, block_size: int) -> Iterator[dict[str, np.ndarray]]:
        """Yields the instances in blocks of a given number, padded."""
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
        """Returns packed rows of instances; row n holds the ones from starts[n] on."""
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
    """Logs that `create_instances` will be compiled, unless it already was."""
    log_compilation_of(_make_instances)


def create_instances(
    documents: Documents,
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    progress: Callable[[int], object] = lambda _: None,
) -> Instances:
    """Returns the instances of a corpus, in the order in which they are written."""
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
    if recipe.kind != SENTENCES and is_long.any():
        is_cut = np.repeat(is_long, lengths)
    at_a_time = max(1, min(_AT_A_TIME, _TOKENS_AT_A_TIME // settings.max_seq_length))
    for _ in range(settings.dupe_factor):
        cursor = new_cursor()
        while cursor[DOCUMENT] < num_documents:
            before = cursor[DOCUMENT]
            _resize(buffers, num_instances, at_a_time, settings)
            num_instances = _make_instances(
                documents, order, recipe, cursor, stream, is_cut, buffers,
                num_instances, at_a_time,
            )  # fmt: skip
            progress(int(cursor[DOCUMENT] - before))
        num_left_out += int(cursor[LEFT_OUT])
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
    (NEXT_SENTENCE, ORIGINAL_LABELS): NEXT,
    (NEXT_SENTENCE, EXACT_LABELS): EXACT_NEXT,
    (SENTENCE_ORDER, ORIGINAL_LABELS): ORDER,
    (PREVIOUS_OR_NEXT, ORIGINAL_LABELS): PREVIOUS,
    (FULL_SENTENCES, ORIGINAL_LABELS): SENTENCES,
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
    """Makes room for more instances; in place, because the buffers are large."""
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
        if recipe.kind == SENTENCES:
            length, num_first, label = packed_sequence(
                documents, order, recipe, cursor, stream, sequence
            )
        else:
            length, num_first, label = pair_sequence(
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
