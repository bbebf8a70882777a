"""Documents of token ids to pairs of segments: next sentence, order, or none."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.instances.random_stream import (
    compiled,
    random,
    random_below,
    random_between,
)
from bert_tf.instances.settings import NUM_SPECIAL_TOKENS

# Larger vocabularies need more than 16 bits per token.
_LAST_UINT16 = 0xFFFF


def token_dtype(vocab_size: int) -> type[np.integer]:
    """The smallest type that holds the ids of a vocabulary of that size."""
    return np.uint16 if vocab_size <= _LAST_UINT16 + 1 else np.int32


class Documents(NamedTuple):
    """A corpus: documents of sentences of token ids. None of them is empty."""

    # uint16 or int32 [num_tokens], the tokens of all sentences one after another.
    tokens: np.ndarray
    # int64 [num_sentences + 1], where each sentence begins in `tokens`, and where the
    # last one ends.
    sentence_starts: np.ndarray
    # int64 [num_documents + 1], where each document begins in `sentence_starts`, and
    # where the last one ends.
    document_starts: np.ndarray


def starts(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where pieces of these lengths begin, and where the last one ends."""
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
NEXT_SENTENCE, EXACT_NEXT_SENTENCE, SENTENCE_ORDER, FULL_SENTENCES = range(4)
PREVIOUS_OR_NEXT = 4

IS_RANDOM_RATE = 0.5
MAX_TRIES_FOR_ANOTHER_DOCUMENT = 10


class Pair(NamedTuple):
    """The two segments of a sequence, without special tokens."""

    first_start: int  # where segment A begins in the corpus's tokens
    first_stop: int  # where it ends
    second_start: int  # where segment B begins
    second_stop: int  # where it ends
    # 1 if B was drawn at random rather than follows A; for sentence order, if B
    # comes before A in the text; 2 if B comes before A, where there are three labels.
    label: int
    next_sentence: int  # where the document is to be cut next


@compiled
def target_length(max_num_tokens, short_seq_prob, stream):
    """The target length of a document's sequences: the most, or sometimes less.

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
    """The original's pair: gathered sentences, split, the second part maybe random.

    Sentences are gathered until they reach the target or the document ends. Of n of
    them the first 1 to n - 1 are A. B is either the others, or random; then the others
    are gathered again. A lone sentence always gets a random B.
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
    """Two neighbouring segments, whose label only the text reveals.

    Half of the time B comes from another document (EXACT_NEXT_SENTENCE), or precedes A
    (SENTENCE_ORDER); for PREVIOUS_OR_NEXT a third each is the next, of another
    document, and the previous segment.
    """
    pair = _neighbours(documents, order[document], sentence, target, stream)
    if pair.second_start == pair.second_stop:
        return pair
    if kind == PREVIOUS_OR_NEXT:
        label = random_below(stream, 3)
    else:
        label = 1 if random(stream) < IS_RANDOM_RATE else 0
    if label == 0:
        return pair
    first_start, first_stop, second_start, second_stop, _, end = pair
    if label == 2 or kind == SENTENCE_ORDER:
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
    """Two consecutive segments."""
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
    """The sentence after those that reach the target, or the document's end."""
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
    """Sentences from a random place of a document, up to a length, at least one."""
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
    """A pair's ends, cut token by token until both segments together fit.

    Each time the longer one loses a token, the second if they are equal: randomly from
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

# The fields of a cursor: the place in the pool; the sentence (-1 before a document is
# begun); the target length of the document's pairs, or how many tokens of the sentence
# are used up; and how many lone tokens were left out.
DOCUMENT, SENTENCE, TARGET, LEFT_OUT = range(4)
OFFSET = TARGET


def new_cursor() -> np.ndarray:
    """A cursor at the beginning of the pool."""
    return np.array([0, -1, 0, 0], np.int64)


@compiled
def pair_sequence(documents, order, recipe, cursor, stream, is_cut, to):
    """Builds the next [CLS] A [SEP] B [SEP]: its length, that of segment 0, a label.

    `is_cut` is false at the corpus's tokens that a sequence has had; or it is empty.
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
        if recipe.kind == NEXT_SENTENCE:
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
