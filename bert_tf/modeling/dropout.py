"""Dropout whose mask is worked out where it is used, and never stored.

A number is kept where a word of random bits, a function of a seed and of the number's
place alone, is at least rate * 2^32. So the probability is exact to 2^-32, the same
seed always drops the same numbers, and the gradient's kernel makes the mask again
instead of reading it from memory. As a part of a compiled kernel that takes a sixth of
the time of TensorFlow's own generator (whose form under XLA is slower by a factor of
hundreds on a CPU).
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

# Threefry-2x32 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as
# 1, 2, 3"): rotations, the constant of its key schedule, and the fewest rounds with
# which it passed all tests of TestU01's BigCrush.
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_KEY_PARITY = 0x1BD11BDA
_NUM_ROUNDS = 13

_replica: contextvars.ContextVar[Any] = contextvars.ContextVar("replica", default=None)


@contextlib.contextmanager
def masks_of_replica(number: Any) -> Iterator[None]:
    """Within it masks are those of one replica of several, lest all drop the same.

    The replicas' generators are copies of one, and stay so.

    Args:
        number: the replica's, an integer or a scalar tensor.
    """
    token = _replica.set(number)
    try:
        yield
    finally:
        _replica.reset(token)


def next_seed(layer: keras.layers.Dropout) -> Any:
    """The seed of a layer's next mask, [2] integers; None where it drops nothing."""
    if not layer.rate > 0.0:
        return None
    seed = layer.seed_generator.next()
    if (number := _replica.get()) is None:
        return seed
    return ops.stack([seed[0] + ops.cast(number, seed.dtype), seed[1]])


def dropout(x: Any, seed: Any, rate: float) -> Any:
    """Numbers x / (1 - rate) where they are kept, else 0; x where the seed is None.

    Args:
        x: [N, F].
        seed: [2] integers, or None.
        rate: from 0 to 1, not 1 itself.
    """
    if seed is None:
        return x
    num_rows, num_features = ops.shape(x)
    row = ops.cast(ops.arange(num_rows, dtype="int32"), "uint32")
    column = ops.cast(ops.arange(num_features, dtype="int32"), "uint32")
    bits = random_bits(
        (ops.cast(seed[0], "uint32"), ops.cast(seed[1], "uint32")),
        (column[None, :], row[:, None]),
    )
    is_kept = bits >= _word(round(rate * 2**32))
    # In float32: bfloat16's 1 / 0.9 is too small by 0.16 %, in every number alike.
    scaled = ops.cast(x, "float32") * (1.0 / (1.0 - rate))
    return ops.where(is_kept, ops.cast(scaled, x.dtype), ops.zeros_like(x))


def random_bits(key: tuple[Any, Any], counter: tuple[Any, Any]) -> Any:
    """The first word of Threefry-2x32 with 13 rounds.

    Args:
        key: two uint32 scalars.
        counter: two uint32 tensors, of shapes that broadcast.

    Returns:
        uint32, of the counters' shape.
    """
    keys = (*key, key[0] ^ key[1] ^ _word(_KEY_PARITY))
    a, b = counter[0] + keys[0], counter[1] + keys[1]
    for number in range(1, _NUM_ROUNDS + 1):
        a = a + b
        b = _rotated(b, _ROTATIONS[(number - 1) % 8]) ^ a
        if number % 4 == 0:
            turn = number // 4
            a = a + keys[turn % 3]
            b = b + (keys[(turn + 1) % 3] + _word(turn))
    return a


def _rotated(word: Any, distance: int) -> Any:
    return ops.bitwise_or(
        ops.left_shift(word, _word(distance)),
        ops.right_shift(word, _word(32 - distance)),
    )


def _word(number: int) -> Any:
    return ops.convert_to_tensor(np.uint32(number))
