"""The masked language model: which tokens are predicted, and what replaces them.

Devlin et al. 2018, section 3.1 "Task #1" and appendix A.1: 15 % of the tokens are
chosen; of these 80 % become [MASK], 10 % a random token, 10 % stay. Record-for-record
equality with the original depends on its order of random draws, which the
docstrings give.

Tokens are chosen in units, until they reach the limit:

- piece: a single token.
- word: a whole word. One that no longer fits is skipped, and a shorter one may follow.
  A piece with ## joins the word before it, even across a [SEP].
- span (SpanBERT, Joshi et al. 2020, section 3.1): consecutive whole words. Their number
  is geometric with p = 0.2, at most 10 (mean 3.8). A span ends before a [SEP], before a
  word already chosen, and before a word that would exceed the limit. All its tokens get
  the same treatment, each random one by its own draw.
"""

import random as python_random
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.instances.compilation import compiled
from bert_tf.instances.settings import MASK_RATE, PIECE, RANDOM_RATE, SPAN
from bert_tf.text.vocabulary import MASK, Vocabulary

_SPAN_STOP_RATE = 0.2
_MAX_SPAN_WORDS = 10

# The treatments of a token that is chosen.
_MASKED, _KEPT, _RANDOM = range(3)


class Masking(NamedTuple):
    """How sequences are masked, in the form for compiled code."""

    cls_id: int  # never masked
    sep_id: int  # likewise
    mask_id: int
    # int32, the ids that a random token is drawn from: all, including special ones.
    word_ids: np.ndarray
    # bool [vocab_size], whether an id belongs to the word before it; all false if
    # pieces are masked one by one.
    joins: np.ndarray
    has_spans: bool
    masked_lm_prob: float
    max_predictions_per_seq: int
    mask_rate: float
    keep_rate_of_rest: float  # among the tokens that do not become [MASK]


def masking_of(
    vocabulary: Vocabulary,
    *,
    unit: str,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    mask_rate: float = MASK_RATE,
    random_rate: float = RANDOM_RATE,
    mask_token: str = MASK,
) -> Masking:
    """Returns how to mask sequences of a vocabulary's ids."""
    joins = np.zeros(len(vocabulary), np.bool_)
    if unit != PIECE:
        joins[vocabulary.continuation_ids] = True
    rest = 1.0 - mask_rate
    return Masking(
        cls_id=vocabulary.cls_id,
        sep_id=vocabulary.sep_id,
        mask_id=vocabulary.ids[mask_token],
        word_ids=np.array(vocabulary.word_ids, np.int32),
        joins=joins,
        has_spans=unit == SPAN,
        masked_lm_prob=float(masked_lm_prob),
        max_predictions_per_seq=max_predictions_per_seq,
        mask_rate=float(mask_rate),
        # Rounded, so that the original's rates give exactly its 0.5.
        keep_rate_of_rest=round(1.0 - random_rate / rest, 12) if rest else 0.0,
    )


@compiled
def num_predictions(num_tokens, masked_lm_prob, max_predictions_per_seq):
    """Returns how many tokens of a sequence are chosen: at least one."""
    share = int(np.rint(num_tokens * masked_lm_prob))
    return min(max_predictions_per_seq, max(1, share))


def warn_if_few(max_predictions: int, max_tokens: int, masked_lm_prob: float) -> None:
    """Warns if a full sequence has fewer slots than tokens to predict."""
    full = num_predictions(max_tokens, masked_lm_prob, max_tokens)
    if max_predictions < full:
        logging.warning(
            "`max_predictions_per_seq=%d` is few for `max_seq_length=%d`: a full"
            " sequence needs %d for `masked_lm_prob=%g`.",
            max_predictions,
            max_tokens,
            full,
            masked_lm_prob,
        )


@compiled
def mask_rows(rows, owners, masking, seed, epochs, numbers, slots):
    """Masks records in place, each with a stream of (seed, epoch, its number) alone.

    A row's sequences are the runs of equal positive `owners`; each is masked as if it
    were alone. `slots` are masked_lm_positions, _ids and _weights, initially zeros.
    """
    positions, labels, weights = slots
    stream = np.empty(STREAM_WORDS, np.uint32)
    for row in range(len(rows)):
        restart(stream, (seed, epochs[row], numbers[row]))
        start = slot = 0
        while start < rows.shape[1] and owners[row, start] > 0:
            stop = start + 1
            while stop < rows.shape[1] and owners[row, stop] == owners[row, start]:
                stop += 1
            count = mask(
                rows[row, start:stop],
                masking,
                stream,
                positions[row, slot:],
                labels[row, slot:],
            )
            positions[row, slot : slot + count] += start
            weights[row, slot : slot + count] = 1.0
            slot += count
            start = stop


@compiled
def mask(sequence, masking, stream, positions, labels):
    """Masks one sequence in place; returns the number of tokens to predict."""
    members, starts = _words(sequence, masking)
    num_words = len(starts) - 1
    order = np.arange(num_words)
    shuffle(stream, order)
    limit = num_predictions(
        len(sequence), masking.masked_lm_prob, masking.max_predictions_per_seq
    )
    limit = min(limit, len(positions))
    count = 0
    chosen = np.zeros(len(sequence), np.bool_)
    replacements = np.empty(len(sequence), sequence.dtype)
    for first in order:
        if count >= limit:
            break
        end, treatment = first + 1, _MASKED
        if masking.has_spans:
            end = first + min(_span_length(stream), num_words - first)
            treatment = _treatment(masking, stream)
        for word in range(first, end):
            start, stop = starts[word], starts[word + 1]
            begin = members[start]
            if chosen[begin] or (word > first and begin > members[start - 1] + 1):
                break
            if count + stop - start > limit:
                break  # a long word that no longer fits; a shorter one may
            for position in members[start:stop]:
                if not masking.has_spans:
                    # One draw per piece, even within a word.
                    treatment = _treatment(masking, stream)
                chosen[position] = True
                replacements[position] = _replacement(
                    sequence[position], treatment, masking, stream
                )
            count += stop - start
    count = 0
    for position in range(len(sequence)):
        if chosen[position]:
            positions[count] = position
            labels[count] = sequence[position]
            sequence[position] = replacements[position]
            count += 1
    return count


@compiled
def _words(sequence, masking):
    """Returns the positions of words, or pieces, and where each word starts in them."""
    members = np.empty(len(sequence), np.int64)
    starts = np.empty(len(sequence) + 1, np.int64)
    num_members = num_words = 0
    may_join = False
    for position in range(len(sequence)):
        token = sequence[position]
        if token == masking.cls_id or token == masking.sep_id:
            may_join = may_join and not masking.has_spans
            continue
        if not (may_join and masking.joins[token]):
            starts[num_words] = num_members
            num_words += 1
        may_join = True
        members[num_members] = position
        num_members += 1
    starts[num_words] = num_members
    return members[:num_members], starts[: num_words + 1]


@compiled
def _span_length(stream):
    """Returns a number of words: geometric, at most 10, by the inverse distribution."""
    goes_on = 1.0 - _SPAN_STOP_RATE
    share = 1.0 - random(stream) * (1.0 - goes_on**_MAX_SPAN_WORDS)
    return min(1 + int(np.log(share) / np.log(goes_on)), _MAX_SPAN_WORDS)


@compiled
def _treatment(masking, stream):
    if random(stream) < masking.mask_rate:
        return _MASKED
    return _KEPT if random(stream) < masking.keep_rate_of_rest else _RANDOM


@compiled
def _replacement(token, treatment, masking, stream):
    if treatment == _MASKED:
        return masking.mask_id
    if treatment == _KEPT:
        return token
    return masking.word_ids[random_below(stream, len(masking.word_ids))]


# Random numbers by position.
#
# The original draws from `random.Random(seed)`: the Mersenne Twister MT19937 (Matsumoto
# and Nishimura 1998). The records are the original's only if each draw is the same, bit
# for bit, so the generator and `random`'s functions are reimplemented here. A
# stream is an array: the generator's 624 words, and the number of them already used.

_NUM_WORDS = 624
STREAM_WORDS = _NUM_WORDS + 1
_SHIFT = 397
_UPPER_BIT = 0x80000000
_LOWER_BITS = 0x7FFFFFFF
_MATRIX = 0x9908B0DF


def random_stream(seed: int) -> np.ndarray:
    """Returns the stream of `random.Random(seed)` at its start."""
    _, state, _ = python_random.Random(seed).getstate()
    return np.array(state, np.uint32)


# SplitMix64 (Steele, Lea and Flood 2014) makes a stream from any numbers, at a
# hundredth of the time of `random.Random`'s own seeding.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


@compiled
def restart(stream, key):
    """Makes a stream depend only on a tuple of uint64."""
    state = np.uint64(0)
    for number in key:
        # Each step is a bijection: keys that differ in one number give other states.
        state = _mixed((state ^ number) + _GAMMA)
    for index in range(0, _NUM_WORDS, 2):
        state += _GAMMA
        bits = _mixed(state)
        stream[index] = bits & np.uint64(0xFFFFFFFF)
        stream[index + 1] = bits >> np.uint64(32)
    stream[_NUM_WORDS] = _NUM_WORDS


@compiled
def _mixed(bits):
    bits = (bits ^ (bits >> _SHIFTS[0])) * _FACTORS[0]
    bits = (bits ^ (bits >> _SHIFTS[1])) * _FACTORS[1]
    return bits ^ (bits >> _SHIFTS[2])


@compiled
def _renew(stream):
    for index in range(_NUM_WORDS):
        following = stream[(index + 1) % _NUM_WORDS]
        bits = (stream[index] & _UPPER_BIT) | (following & _LOWER_BITS)
        word = stream[(index + _SHIFT) % _NUM_WORDS] ^ (bits >> 1)
        if bits & 1:
            word ^= _MATRIX
        stream[index] = word
    stream[_NUM_WORDS] = 0


@compiled
def random_word(stream):
    """Returns 32 random bits."""
    if stream[_NUM_WORDS] >= _NUM_WORDS:
        _renew(stream)
    word = np.int64(stream[stream[_NUM_WORDS]])
    stream[_NUM_WORDS] += 1
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)


@compiled
def random(stream):
    """Returns `Random.random()`: a float in [0, 1) of 53 bits."""
    high = random_word(stream) >> 5
    low = random_word(stream) >> 6
    return (high * 67108864.0 + low) / 9007199254740992.0


@compiled
def random_below(stream, limit):
    """Returns `Random.randrange(limit)`: an integer in [0, limit), limit < 2**32."""
    num_bits = 0
    while limit >> num_bits:
        num_bits += 1
    number = random_word(stream) >> (32 - num_bits)
    while number >= limit:
        number = random_word(stream) >> (32 - num_bits)
    return number


@compiled
def random_between(stream, first, last):
    """Returns `Random.randint(first, last)`: an integer in [first, last]."""
    return first + random_below(stream, last - first + 1)


@compiled
def shuffle(stream, values):
    """Shuffles values in place, like `Random.shuffle(values)`."""
    for index in range(len(values) - 1, 0, -1):
        other = random_below(stream, index + 1)
        values[index], values[other] = values[other], values[index]
