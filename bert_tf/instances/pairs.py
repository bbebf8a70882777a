"""Sentence pairs for next sentence prediction, cut from documents.

Devlin et al. 2018, section 3.1 "Task #2" and appendix A.2: a sequence is [CLS] A [SEP]
B [SEP], where A and B are spans of several sentences; half of the time B is what
follows A, else it comes from another document. Equality with the original, record for
record, needs its order of draws from the random stream, which the docstrings tell.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

# A document is its sentences, a sentence its token ids.
Document = Sequence[Sequence[int]]

# [CLS], [SEP], [SEP]
NUM_SPECIAL_TOKENS = 3
# Both segments must keep a token.
MIN_SEQ_LENGTH = NUM_SPECIAL_TOKENS + 2

IS_RANDOM_RATE = 0.5
MAX_TRIES_FOR_ANOTHER_DOCUMENT = 10


class SentencePair(NamedTuple):
    """The two segments of a sequence, without special tokens.

    Attributes:
        first: the ids of segment A, at least one.
        second: the ids of segment B, at least one.
        is_random_next: whether B was drawn at random rather than follows A.
    """

    first: list[int]
    second: list[int]
    is_random_next: bool


def document_pairs(
    documents: Sequence[Document],
    document_index: int,
    *,
    max_seq_length: int,
    short_seq_prob: float,
    rng: Random,
) -> Iterator[SentencePair]:
    """Cuts one document into sentence pairs, once from its start to its end.

    Sentences are gathered until they reach a target length or the document ends. The
    target is `max_seq_length` less the special tokens; with `short_seq_prob` it is
    shorter, drawn once for the whole document, so that the model sees short sequences
    too. Of n gathered sentences the first 1 to n - 1 are A. B is the others, or random,
    and the others are gathered again. A lone sentence always gets a random B.

    The pairs are made as they are asked for: whoever masks a pair with the same `rng`
    before taking the next one draws in the original's order.

    Args:
        documents: all documents, none of them empty.
        document_index: the one to cut.
        max_seq_length: tokens of a sequence, special ones included; at least 5.
        short_seq_prob: the chance of a shorter target.
        rng: the random stream. Draws, per document: `random()`, and a target if it is
            short; per pair: the number of A's sentences if there are two or more, then
            (also only if two or more) `random()`, then the draws of `_random_segment`
            and of `truncated`.
    """
    document = documents[document_index]
    max_num_tokens = max_seq_length - NUM_SPECIAL_TOKENS
    target_length = max_num_tokens
    if rng.random() < short_seq_prob:
        target_length = rng.randint(2, max_num_tokens)

    start = 0
    while start < len(document):
        end, length = start, 0
        while end < len(document) and length < target_length:
            length += len(document[end])
            end += 1
        num_sentences = end - start
        split = start + (rng.randint(1, num_sentences - 1) if num_sentences > 1 else 1)
        first = joined(document[start:split])
        is_random_next = num_sentences == 1 or rng.random() < IS_RANDOM_RATE
        if is_random_next:
            second = _random_segment(
                documents, document_index, target_length - len(first), rng
            )
            start = split
        else:
            second = joined(document[split:end])
            start = end
        first, second = truncated(first, second, max_num_tokens, rng)
        yield SentencePair(first, second, is_random_next)


def _random_segment(
    documents: Sequence[Document],
    document_index: int,
    target_length: int,
    rng: Random,
) -> list[int]:
    """Sentences from a random place of another document, up to a length.

    After ten draws of the same document it is taken: a corpus may have only one.

    Draws: the document, up to ten times; the sentence to begin with.
    """
    for _ in range(MAX_TRIES_FOR_ANOTHER_DOCUMENT):
        other_index = rng.randrange(len(documents))
        if other_index != document_index:
            break
    other = documents[other_index]
    segment: list[int] = []
    # At least one sentence, even where A alone reaches the target.
    for index in range(rng.randrange(len(other)), len(other)):
        segment += other[index]
        if len(segment) >= target_length:
            break
    return segment


def truncated(
    first: list[int], second: list[int], max_num_tokens: int, rng: Random
) -> tuple[list[int], list[int]]:
    """Both segments, cut token by token until together they fit.

    Each time the longer one loses a token, the second if they are equal: from its front
    or its back, at random, so that neither place is always complete.

    Draws: one `random()` for each token cut.
    """
    begin_first, end_first = 0, len(first)
    begin_second, end_second = 0, len(second)
    for _ in range(len(first) + len(second) - max_num_tokens):
        from_front = rng.random() < 0.5
        if end_first - begin_first > end_second - begin_second:
            begin_first += from_front
            end_first -= not from_front
        else:
            begin_second += from_front
            end_second -= not from_front
    return first[begin_first:end_first], second[begin_second:end_second]


def joined(sentences: Document) -> list[int]:
    """The ids of some sentences, one after the other."""
    return [token_id for sentence in sentences for token_id in sentence]
