"""Epochs of fine-tuning: their number of steps, and a phase's streams of batches."""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.base import keras_backend
from bert_tf.base.errors import InputError
from bert_tf.records import batching
from bert_tf.records.pipeline import InputShard
from bert_tf.training.task import Phase


def steps_of(
    num_batches: float, num_train_epochs: float, *, is_whole: bool, flag: str
) -> int:
    """Returns the number of steps in some epochs."""
    passed = num_batches * num_train_epochs
    if passed > np.iinfo(np.int32).max:
        raise InputError(
            f"`{flag}={num_train_epochs}` makes {passed:g} steps. Lower it."
        )
    steps = math.ceil(passed) if is_whole else int(passed)
    if steps < 1:
        raise InputError(
            f"`{flag}={num_train_epochs}`: {num_batches:g} batches per epoch make less"
            " than one step. Raise it, or lower `train_batch_size`."
        )
    return steps


def of_one_length(phase: Phase, records: batching.ExampleTable, seed: int) -> Phase:
    """Returns the phase with one stream of all records, padded to max_seq_length."""

    def data(position: int, shard: InputShard) -> tf.data.Dataset:
        rows = batching.endless_rows(
            len(records), phase.batch_size, seed, position, phase.end_step
        )
        return _endless(records, rows, records.full_length, shard)

    return dataclasses.replace(phase, streams=[data])


def _endless(
    records: batching.ExampleTable, rows: np.ndarray, length: int, shard: InputShard
) -> tf.data.Dataset:
    """Marks planned batches as endless: else tf.distribute loses their static size."""
    batches = records.dataset(rows, length, shard=shard)
    if keras_backend.is_jax():
        return batches
    return batches.apply(
        tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    )


def by_length(
    phase: Phase, records: batching.ExampleTable, seed: int, num_lengths: int
) -> Phase:
    """Returns the phase with a stream for each static length."""
    batch_size = phase.batch_size
    buckets = batching.batch_lengths(
        records.lengths, records.num_batches(batch_size), num_lengths, is_training=True
    )
    plan = batching.LengthPlan(records.lengths, batch_size, buckets, seed)
    tokens = records.mean_length * len(records) / plan.batches_per_epoch
    logging.info(
        "  Lengths of batches = %s; %.0f %% of it is tokens",
        ", ".join(map(str, buckets)),
        100 * tokens / batch_size / np.mean(np.array(buckets)[plan.epoch(0).buckets]),
    )

    # A run that began with other batches may be further in the records than its
    # number of steps shows: this bounds the batches still to make.
    @functools.lru_cache(maxsize=1)
    def planned(start: int) -> batching.PlannedBatches:
        return plan.batches(start, start + phase.end_step)

    @functools.lru_cache(maxsize=2)
    def epoch(number: int) -> list[int]:
        return plan.epoch(number).buckets.tolist()

    def stream_of(position: int) -> int:
        number, batch = divmod(position // batch_size, plan.batches_per_epoch)
        return epoch(number)[batch]

    def stream(number: int) -> Callable[[int, InputShard], tf.data.Dataset]:
        def data(position: int, shard: InputShard) -> tf.data.Dataset:
            rows, of_rows = planned(position // batch_size)
            return _endless(records, rows[of_rows == number], buckets[number], shard)

        return data

    return dataclasses.replace(
        phase,
        streams=[stream(number) for number in range(len(buckets))],
        stream_of=stream_of,
    )
