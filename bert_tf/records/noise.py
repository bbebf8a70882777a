"""Random numbers for records, as functions of (seed, epoch, record) and a number.

SplitMix64 (Steele, Lea and Flood 2014): the n-th number of a stream is mix(key + n
gamma), which needs no number before it. The key stands for (seed, epoch, record); n
holds the purpose and, within it, the number asked for. So a record's numbers hang on
nothing else: not on the batch, the order or what was drawn before.

Shapes: B batch, N numbers for each record.
"""

import enum

import tensorflow as tf

_GAMMA = 0x9E3779B97F4A7C15


class Purpose(enum.IntEnum):
    """What numbers are for. Different purposes share none."""

    ORDER = 0
    SPAN_LENGTH = 1
    TREATMENT = 2
    RANDOM_TOKEN = 3


class RecordNoise:
    """The random numbers of a batch's records."""

    def __init__(self, seed: int, epochs: tf.Tensor, records: tf.Tensor) -> None:
        # Each step is a bijection: no two records of an epoch have one key.
        keys = _mix(_uint64(seed) + _uint64(_GAMMA))
        for numbers in (epochs, records):
            numbers = tf.cast(numbers, tf.uint64)
            keys = _mix(tf.bitwise.bitwise_xor(keys, numbers) + _uint64(_GAMMA))
        self._keys = keys[:, None]

    def bits(self, purpose: Purpose, numbers: tf.Tensor) -> tf.Tensor:
        """[B, N] uint64, uniform."""
        counters = tf.cast(numbers, tf.uint64) + _uint64((purpose << 32) + 1)
        return _mix(self._keys + counters * _uint64(_GAMMA))

    def uniform(self, purpose: Purpose, numbers: tf.Tensor) -> tf.Tensor:
        """[B, N] float32, uniform in [0, 1), of 24 bits; arguments as `bits`."""
        bits = _shifted(self.bits(purpose, numbers), 40)
        return tf.cast(tf.cast(bits, tf.int32), tf.float32) * 2.0**-24

    def below(self, purpose: Purpose, numbers: tf.Tensor, limit: int) -> tf.Tensor:
        """[B, N] int32, uniform in [0, limit); arguments as `bits`."""
        bits = _shifted(self.bits(purpose, numbers), 32)
        # The high half of the product: no division, and a bias of limit / 2**32.
        return tf.cast(_shifted(bits * _uint64(limit), 32), tf.int32)

    def order(self, length: int) -> tf.Tensor:
        """[B, length] int64, none negative: what to sort by for a random order."""
        bits = self.bits(Purpose.ORDER, tf.range(length)[None])
        return tf.cast(_shifted(bits, 1), tf.int64)


def _mix(z: tf.Tensor) -> tf.Tensor:
    """SplitMix64's finalizer, a bijection that leaves no pattern."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = tf.bitwise.bitwise_xor(z, _shifted(z, shift)) * _uint64(factor)
    return tf.bitwise.bitwise_xor(z, _shifted(z, 31))


def _shifted(bits: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.right_shift(bits, _uint64(shift))


def _uint64(number: int) -> tf.Tensor:
    return tf.constant(number, tf.uint64)
