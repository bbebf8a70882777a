"""Sequences out of documents: pairs put together, or whole sentences packed.

A cursor says where in the corpus the next sequence begins, so that making them can
stop, for want of room, and go on.
"""

import numpy as np

from bert_tf.instances.compiled import compiled
from bert_tf.instances.documents import Documents
from bert_tf.instances.pairs import (
    exact_next_sentence_pair,
    next_sentence_pair,
    sentence_order_pair,
    target_length,
    truncated,
)
from bert_tf.instances.random_stream import random, random_between
from bert_tf.instances.settings import NUM_SPECIAL_TOKENS

# How a sequence is made; compiled code knows no strings.
NEXT_SENTENCE, EXACT_NEXT_SENTENCE, SENTENCE_ORDER, FULL_SENTENCES = range(4)

# The fields of a cursor: the place in the pool, the sentence (-1 before a document is
# begun), the target length of the document's pairs or how many tokens of the sentence
# are used up, and how many lone tokens were left out.
DOCUMENT, SENTENCE, TARGET, LEFT_OUT = range(4)
OFFSET = TARGET


def new_cursor() -> np.ndarray:
    """A cursor at the beginning of the pool."""
    return np.array([0, -1, 0, 0], np.int64)


@compiled
def pair_sequence(
    documents: Documents,
    order: np.ndarray,
    kind: int,
    specials: tuple[int, int],
    short_seq_prob: float,
    cursor: np.ndarray,
    stream: np.ndarray,
    to: np.ndarray,
) -> tuple[int, int, int]:
    """Puts the next [CLS] A [SEP] B [SEP] together."""
    cls_id, sep_id = specials
    max_num_tokens = len(to) - NUM_SPECIAL_TOKENS
    while cursor[DOCUMENT] < len(order):
        document = cursor[DOCUMENT]
        number = order[document]
        if cursor[SENTENCE] < 0:
            cursor[SENTENCE] = documents.document_starts[number]
            cursor[TARGET] = target_length(max_num_tokens, short_seq_prob, stream)
        sentence, target = cursor[SENTENCE], cursor[TARGET]
        if kind == NEXT_SENTENCE:
            pair = next_sentence_pair(
                documents, order, document, sentence, target, stream
            )
        elif kind == EXACT_NEXT_SENTENCE:
            pair = exact_next_sentence_pair(
                documents, order, document, sentence, target, stream
            )
        else:
            pair = sentence_order_pair(
                documents, order, document, sentence, target, stream
            )
        cursor[SENTENCE] = pair.next_sentence
        if pair.next_sentence == documents.document_starts[number + 1]:
            cursor[DOCUMENT] += 1
            cursor[SENTENCE] = -1
        if pair.second_start == pair.second_stop:
            cursor[LEFT_OUT] += 1
            continue
        pair = truncated(pair, max_num_tokens, stream)
        num_first = pair.first_stop - pair.first_start + 2
        length = num_first + pair.second_stop - pair.second_start + 1
        to[0] = cls_id
        to[1 : num_first - 1] = documents.tokens[pair.first_start : pair.first_stop]
        to[num_first - 1] = sep_id
        to[num_first : length - 1] = documents.tokens[
            pair.second_start : pair.second_stop
        ]
        to[length - 1] = sep_id
        return length, num_first, pair.label
    return 0, 0, 0


@compiled
def packed_sequence(
    documents: Documents,
    order: np.ndarray,
    specials: tuple[int, int],
    short_seq_prob: float,
    cursor: np.ndarray,
    stream: np.ndarray,
    to: np.ndarray,
) -> tuple[int, int, int]:
    """Packs the next whole sentences into [CLS] sentences [SEP].

    Liu et al. 2019, section 4.2, "FULL-SENTENCES": they may come from several
    documents, with a [SEP] between. A sentence longer than a sequence is cut.
    """
    cls_id, sep_id = specials
    if cursor[DOCUMENT] == len(order):
        return 0, 0, 0
    limit = len(to) - 1
    if random(stream) < short_seq_prob:
        limit = random_between(stream, 2, limit)
    to[0] = cls_id
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
            to[length] = sep_id
            length += 1
        to[length : length + stop - start] = documents.tokens[start:stop]
        length += stop - start
        if length == limit:
            break
    to[length] = sep_id
    return length + 1, length + 1, 0
