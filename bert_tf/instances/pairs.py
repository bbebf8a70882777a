"""Sentence pairs for next sentence prediction, cut from documents.

Devlin et al. 2018, section 3.1 "Task #2" and appendix A.2: a sequence is [CLS] A [SEP]
B [SEP], where A and B are spans of several sentences; half of the time B is what
follows A, else it comes from another document. Equality with the original, record for
record, needs its order of draws from the random stream, which the docstrings tell.

A segment is a range of the corpus's tokens, for the sentences of a document stand side
by side: nothing is copied until a sequence is put together. Documents are spoken of by
their place in `order`, the shuffled pool.
"""

from typing import NamedTuple

import numpy as np

from bert_tf.instances.compiled import compiled
from bert_tf.instances.documents import Documents
from bert_tf.instances.random_stream import random, random_below, random_between

IS_RANDOM_RATE = 0.5
MAX_TRIES_FOR_ANOTHER_DOCUMENT = 10


class Pair(NamedTuple):
    """The two segments of a sequence, without special tokens.

    Attributes:
        first_start: where segment A begins in the corpus's tokens.
        first_stop: where it ends.
        second_start: where segment B begins.
        second_stop: where it ends.
        label: 1 where B was drawn at random rather than follows A; for sentence order,
            where B stands before A in the text.
        next_sentence: where the document is to be cut next.
    """

    first_start: int
    first_stop: int
    second_start: int
    second_stop: int
    label: int
    next_sentence: int


@compiled
def target_length(max_num_tokens, short_seq_prob, stream):
    """How many tokens a document's sequences aim at: all, or fewer now and then.

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
    them the first 1 to n - 1 are A. B is the others, or random, and the others are
    gathered again. A lone sentence always gets a random B.
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
    # After ten draws of the same document it is taken: a corpus may have only one.
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
def exact_next_sentence_pair(
    documents: Documents,
    order: np.ndarray,
    document: int,
    sentence: int,
    target: int,
    stream: np.ndarray,
) -> Pair:
    """A pair whose label says what is so, and nothing but the text tells the label.

    Two things differ from the original's pair. A random B never comes from the same
    document, where it might be what follows. And a sentence that stands alone does not
    always get a random B: it takes the next sentence along, or, at a document's end, is
    itself split in two.
    """
    pair = _neighbours(documents, order[document], sentence, target, stream)
    if pair.second_start == pair.second_stop or random(stream) >= IS_RANDOM_RATE:
        return pair
    other = random_below(stream, len(order) - 1)
    if other >= document:
        other += 1
    second_start, second_stop = _random_segment(
        documents, order[other], target - (pair.first_stop - pair.first_start), stream
    )
    sentence_starts = documents.sentence_starts
    split = sentence + 1
    while sentence_starts[split] < pair.first_stop:
        split += 1
    return Pair(pair.first_start, pair.first_stop, second_start, second_stop, 1, split)


@compiled
def sentence_order_pair(documents, order, document, sentence, target, stream):
    """Two neighbouring segments, half of the time in the wrong order.

    Lan et al. 2019 (ALBERT, arXiv:1909.11942), section 3.1 "Inter-sentence coherence
    loss". A lone sentence is split in two, as in `exact_next_sentence_pair`.
    """
    pair = _neighbours(documents, order[document], sentence, target, stream)
    if pair.second_start == pair.second_stop or random(stream) >= IS_RANDOM_RATE:
        return pair
    return Pair(
        pair.second_start,
        pair.second_stop,
        pair.first_start,
        pair.first_stop,
        1,
        pair.next_sentence,
    )


@compiled
def _neighbours(documents, number, sentence, target, stream):
    """Two segments as they follow each other.

    Draws: the number of A's sentences if there are two or more, else of A's tokens.
    """
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
    """Sentences from a random place of a document, up to a length, at least one.

    Draws: the sentence to begin with.
    """
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
    """The pair, cut token by token until both segments together fit.

    Each time the longer one loses a token, the second if they are equal: from its front
    or its back, at random, so that neither place is always complete.

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
    return Pair(
        first_start,
        first_stop,
        second_start,
        second_stop,
        pair.label,
        pair.next_sentence,
    )
