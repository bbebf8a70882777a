"""The streams of batches that a phase reads from: one for each shape of batch."""

import dataclasses
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.records.pipeline import ALL_ROWS
from bert_tf.task import Task
from bert_tf.training.config import Phase, TrainingData
from bert_tf.training.strategy import distributed
from bert_tf.training.throughput import model_flops_per_step


@dataclasses.dataclass
class Stream:
    """A stream of batches of one shape.

    Attributes:
        iterator: the batches that are left.
        flops_per_step: floating-point operations of the model on one; None: unknown.
        calls: calls of the device that have read from it. The first one compiles.
    """

    iterator: Iterator
    flops_per_step: float | None
    calls: int = 0


class Streams:
    """A phase's streams, opened as they are needed."""

    def __init__(
        self,
        phase: Phase,
        position: int,
        task: Task,
        strategy: tf.distribute.Strategy,
    ) -> None:
        self._phase = phase
        self._position = position
        self._task = task
        self._strategy = strategy
        self._streams: dict[int, Stream] = {}

    def next(self, position: int, count: int) -> tuple[Stream, int]:
        """Where the next batches come from, and how many of them: `count` at most."""
        phase = self._phase
        number = phase.stream_of(position)
        together = 1
        while (
            together < count
            and phase.stream_of(position + together * phase.batch_size) == number
        ):
            together += 1
        if number not in self._streams:
            self._streams[number] = self._open(phase.streams[number])
        return self._streams[number], together

    def _open(self, data: TrainingData) -> Stream:
        start = self._position
        return Stream(
            iter(distributed(self._strategy, lambda shard: data(start, shard))),
            model_flops_per_step(self._task, data(start, ALL_ROWS).element_spec),
        )
