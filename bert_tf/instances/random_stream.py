"""Python's random numbers, drawn by compiled code.

The original draws from `random.Random(seed)`: the Mersenne Twister MT19937 (Matsumoto
and Nishimura 1998). The records are the original's only if each draw is the same, bit
for bit, so the generator and what `random` makes of its words stand here again. A
stream is an array: the generator's 624 words, and how many of them are used up.
"""

import random as python_random

import numpy as np

from bert_tf.instances.compiled import compiled

_NUM_WORDS = 624
_SHIFT = 397
_UPPER_BIT = 0x80000000
_LOWER_BITS = 0x7FFFFFFF
_MATRIX = 0x9908B0DF


def random_stream(seed: int) -> np.ndarray:
    """The stream of `random.Random(seed)` at its start."""
    _, state, _ = python_random.Random(seed).getstate()
    return np.array(state, np.uint32)


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
    """32 random bits."""
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
    """`Random.random()`: a float in [0, 1) of 53 bits."""
    high = random_word(stream) >> 5
    low = random_word(stream) >> 6
    return (high * 67108864.0 + low) / 9007199254740992.0


@compiled
def random_below(stream, limit):
    """`Random.randrange(limit)`: an integer in [0, limit), for a limit below 2**32."""
    num_bits = 0
    while limit >> num_bits:
        num_bits += 1
    number = random_word(stream) >> (32 - num_bits)
    while number >= limit:
        number = random_word(stream) >> (32 - num_bits)
    return number


@compiled
def random_between(stream, first, last):
    """`Random.randint(first, last)`: an integer in [first, last]."""
    return first + random_below(stream, last - first + 1)


@compiled
def shuffle(stream, values):
    """`Random.shuffle(values)`: in place."""
    for index in range(len(values) - 1, 0, -1):
        other = random_below(stream, index + 1)
        values[index], values[other] = values[other], values[index]
