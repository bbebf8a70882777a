"""Batches of sequences of like length: which examples make a batch, and how long it is.

A batch is padded to one of a few static lengths rather than to the longest there may
be, so that little is computed on padding and little is compiled. The lengths are chosen
from the data: those that leave the least padding (`static_lengths`).

The plan is a function of (lengths, batch size, seed, number of the batch) alone, so
that a run that is killed goes on with the very batch it would have made next:

- an epoch draws an order of the examples by (seed, epoch) and goes through the static
  lengths from the shortest one: those of its examples that fit are cut into whole
  batches in that order; what is left over goes on with the next length;
- so each example stands in each epoch once, and one batch of an epoch at most is not
  full. What it lacks is padding (`PADDING`), which counts for nothing;
- the epoch's batches are then put in an order by the same seed.

Without a seed the examples stand in the order of their lengths: for evaluation.

Shapes: N examples, M batches, B batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# The number of an example that is none.
PADDING = -1

# A length takes about as long to compile as so many batches to compute: forward and
# backward, or forward alone.
_BATCHES_PER_LENGTH = 4
_BATCHES_PER_LENGTH_FORWARD = 2


class PlannedBatches(NamedTuple):
    """Consecutive batches.

    Attributes:
        rows: [M, B] int64, the numbers of the examples; `PADDING` where there is none.
        buckets: [M] int64, which of the static lengths each batch is padded to.
    """

    rows: np.ndarray
    buckets: np.ndarray


def static_lengths(
    lengths: Sequence[int] | np.ndarray, max_lengths: int
) -> tuple[int, ...]:
    """The few lengths that leave the least padding, the longest example's among them.

    With W(n) examples of at most n tokens, the least cost of covering all of at most n
    with k lengths follows from that with k - 1 (dynamic programming):

        cost(n, k) = min over m < n of cost(m, k - 1) + n (W(n) - W(m))
    """
    lengths = np.asarray(lengths)
    if not lengths.size or lengths.min() < 1 or max_lengths < 1:
        raise ValueError(
            "`lengths` must be positive numbers, and `max_lengths` at least 1."
            f" Received: {lengths.size} lengths, {max_lengths}"
        )
    ends, counts = np.unique(lengths, return_counts=True)
    covered = np.concatenate([[0], np.cumsum(counts)])
    # cost_of[m, n]: those after the m-th distinct length and up to the n-th, padded to
    # the n-th.
    cost_of = ends * (covered[None, 1:] - covered[:, None]).astype(np.float64)
    cost_of[np.tril_indices_from(cost_of, k=-1)] = np.inf
    cost = cost_of[0]
    choices = []
    for _ in range(min(max_lengths, len(ends)) - 1):
        totals = np.concatenate([[0.0], cost])[:-1, None] + cost_of[:-1]
        choices.append(totals.argmin(axis=0))
        cost = totals.min(axis=0)
    chosen = [len(ends) - 1]
    for choice in reversed(choices):
        before = choice[chosen[-1]] - 1
        if before < 0:
            break
        chosen.append(before)
    return tuple(int(ends[index]) for index in reversed(chosen))


def training_lengths(
    lengths: Sequence[int] | np.ndarray, num_batches: int, max_lengths: int
) -> tuple[int, ...]:
    """The static lengths of batches to train on; arguments as `prediction_lengths`."""
    return _worthwhile_lengths(lengths, num_batches, max_lengths, _BATCHES_PER_LENGTH)


def prediction_lengths(
    lengths: Sequence[int] | np.ndarray, num_batches: int, max_lengths: int
) -> tuple[int, ...]:
    """The static lengths of batches that are predicted."""
    return _worthwhile_lengths(
        lengths, num_batches, max_lengths, _BATCHES_PER_LENGTH_FORWARD
    )


def _worthwhile_lengths(
    lengths: Sequence[int] | np.ndarray,
    num_batches: int,
    max_lengths: int,
    batches_per_length: int,
) -> tuple[int, ...]:
    """The static lengths of batches: fewer where few batches would make up for them."""
    count = num_batches // batches_per_length
    return static_lengths(lengths, max(1, min(max_lengths, count)))


class LengthPlan:
    """The batches of a data set, for any number of epochs."""

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        buckets: Sequence[int],
        seed: int | None,
    ) -> None:
        if not len(lengths) or max(lengths) > buckets[-1]:
            raise ValueError(
                "`buckets` must cover all examples, and there must be some."
                f" Received: {buckets} for {len(lengths)} examples"
            )
        self.batch_size = batch_size
        self.buckets = tuple(buckets)
        self._bucket_of = np.searchsorted(self.buckets, lengths)
        self._by_length = np.argsort(lengths, kind="stable")
        self._seed = seed

    @property
    def batches_per_epoch(self) -> int:
        """The batches that all examples make."""
        return -(-len(self._bucket_of) // self.batch_size)

    def epoch(self, number: int) -> PlannedBatches:
        """An epoch's batches, in their order."""
        order, generator = self._by_length, None
        if self._seed is not None:
            generator = np.random.Generator(np.random.PCG64([self._seed, number]))
            order = generator.permutation(len(order))
        bucket_of = self._bucket_of[order]
        left = order[:0]
        batches, buckets = [], []
        for bucket in range(len(self.buckets)):
            ready = np.concatenate([left, order[bucket_of == bucket]])
            whole = len(ready) // self.batch_size * self.batch_size
            batches.append(ready[:whole].reshape(-1, self.batch_size))
            buckets.append(np.full(len(batches[-1]), bucket))
            left = ready[whole:]
        if len(left):
            last = np.full(self.batch_size, PADDING)
            last[: len(left)] = left
            batches.append(last[None])
            buckets.append(self._bucket_of[left].max(keepdims=True))
        rows, of_rows = np.concatenate(batches), np.concatenate(buckets)
        if generator is not None:
            shuffled = generator.permutation(len(rows))
            rows, of_rows = rows[shuffled], of_rows[shuffled]
        return PlannedBatches(rows, of_rows)

    def batches(self, start: int, stop: int) -> PlannedBatches:
        """The batches from number `start` to before `stop`, counted over all epochs."""
        size = self.batches_per_epoch
        epochs = [
            self.epoch(number) for number in range(start // size, -(-stop // size))
        ]
        if not epochs:
            empty = np.zeros([0, self.batch_size], np.int64)
            return PlannedBatches(empty, empty[:, 0])
        first = start - start // size * size
        return PlannedBatches(
            *(
                np.concatenate(parts)[first : first + stop - start]
                for parts in zip(*epochs, strict=True)
            )
        )
