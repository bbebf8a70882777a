"""Random numbers by position, and compilation of the functions that use them."""

import contextlib
import functools
import pathlib
import random as python_random
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from absl import logging

# Inner loops are Python functions on numpy arrays. numba compiles them at their first
# call and keeps the machine code next to the source (or in the user's cache folder, if
# the source's is not writable), so that only the first run on a machine waits for it.
# If neither is writable, each run waits.

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, compiled: a decorator."""
    try:
        dispatcher = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:
        # numba's error if there is no folder for the machine code.
        return numba.njit(**_OPTIONS)(function)
    if hasattr(dispatcher, "stats"):  # absent if NUMBA_DISABLE_JIT forbids compiling
        forget_older_code(dispatcher.stats.cache_path)
    return dispatcher


def log_compilation_of(function: Any) -> None:
    """Logs that a function's first call will compile it, unless its code is cached."""
    if not hasattr(function, "stats"):
        return
    folder = function.stats.cache_path
    if folder is None or not any(
        pathlib.Path(folder).glob(f"*.{function.__name__}-*.nbi")
    ):
        logging.info(
            "Compiling inner loops takes up to two minutes. The result is kept for the"
            " next runs if the package's folder, the user's or NUMBA_CACHE_DIR can be"
            " written."
        )


@functools.cache
def forget_older_code(cache_folder: str) -> None:
    """Removes machine code that is older than a source file of this folder.

    numba compares a function only with its own source file, but the machine code
    includes functions and constants from other files: after an update it would still
    use the old ones.
    """
    sources = pathlib.Path(__file__).parent.glob("*.py")
    newest = max(source.stat().st_mtime_ns for source in sources)
    for index in pathlib.Path(cache_folder).glob("*.nbi"):
        # Another process may be doing the same.
        with contextlib.suppress(OSError):
            if index.stat().st_mtime_ns < newest:
                index.unlink()


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
