"""Fine-tuning on a split's records: the same phases for every task."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import flags, logging

from bert_tf.errors import InputError
from bert_tf.records import pipeline
from bert_tf.records.batching import (
    LengthPlan,
    PlannedBatches,
    SplitRecords,
    training_lengths,
)
from bert_tf.records.pipeline import InputShard
from bert_tf.training.config import Evaluate, Phase, TrainingConfig
from bert_tf.training.loop import train
from bert_tf.training.run_folder import RunData, Start, resolved
from bert_tf.training.task import Task


def finetune(
    task: Task,
    records: SplitRecords,
    flag_values: flags.FlagValues,
    strategy: tf.distribute.Strategy,
    *,
    folder: str,
    data: RunData,
    num_train_epochs: float,
    max_lengths: int | None = None,
    num_examples: int | None = None,
    epochs_flag: str = "num_train_epochs",
    init_checkpoint: str | None = None,
    until: float = 1.0,
    evaluate: Evaluate | None = None,
    **settings: Any,
) -> tuple[keras.Model, int]:
    """Trains on a split, from where the folder stands.

    Batches padded to max_seq_length are the original's: int(examples / batch * epochs)
    steps, of which each epoch's last batch reaches into the next one. The whole split
    is shuffled anew each epoch, where the original shuffles within a buffer of 100.
    With batches of like length an epoch has ceil(examples / batch) batches and each
    example once. Warmup: int(steps * proportion).
    """
    settings = {"train_batch_size": flag_values.train_batch_size, **settings}
    batch_size = settings["train_batch_size"]
    num_batches = (num_examples or records.num_records) / batch_size
    if max_lengths is not None:
        num_batches = records.num_batches(batch_size)
    num_schedule_steps = steps_of(
        num_batches,
        num_train_epochs,
        is_whole=max_lengths is not None,
        flag=epochs_flag,
    )
    num_train_steps = max(1, math.ceil(num_schedule_steps * until))
    config = TrainingConfig.from_flags(
        flag_values,
        **settings,
        num_train_steps=num_train_steps,
        num_schedule_steps=num_schedule_steps,
        num_warmup_steps=int(num_schedule_steps * flag_values.warmup_proportion),
    )
    logging.info("***** Running training *****")
    logging.info("  Num examples = %d", records.num_records)
    logging.info("  Batch size = %d", batch_size)
    logging.info("  Num steps = %d", num_train_steps)
    phase = Phase(
        end_step=num_train_steps,
        batch_size=batch_size,
        data_id=int(records.made_from[:15], 16),
        evaluate=evaluate,
        streams=[_of_one_length(records, config)],
    )
    if max_lengths is not None:
        phase = _by_length(phase, records, config, max_lengths)
    fixed = {
        "num_train_epochs": num_train_epochs,
        "max_seq_length": records.max_seq_length,
    }
    return train(
        task,
        config,
        folder=folder,
        phases=[phase],
        init_checkpoint=init_checkpoint or flag_values.init_checkpoint,
        strategy=strategy,
        start=Start(
            task=task.name,
            data=data,
            settings=config.decisive | fixed,
            flags=resolved(flag_values) | settings | fixed,
        ),
    )


def steps_of(
    num_batches: float, num_train_epochs: float, *, is_whole: bool, flag: str
) -> int:
    """The steps of some epochs."""
    passed = num_batches * num_train_epochs
    if passed > np.iinfo(np.int32).max:
        raise InputError(
            f"--{flag}={num_train_epochs} makes {passed:g} steps. Lower it."
        )
    steps = math.ceil(passed) if is_whole else int(passed)
    if steps < 1:
        raise InputError(
            f"--{flag}={num_train_epochs}: {num_batches:g} batches per epoch make less"
            " than one step. Raise it, or lower --train_batch_size."
        )
    return steps


def _of_one_length(
    records: SplitRecords, config: TrainingConfig
) -> Callable[[int, InputShard], tf.data.Dataset]:
    """The stream of all records, padded to max_seq_length."""
    return lambda position, shard: pipeline.training_dataset(
        [records.path],
        [records.num_records],
        records.schema,
        batch_size=config.train_batch_size,
        seed=config.random_seed,
        start=position,
        shard=shard,
        shuffle_buffer=records.num_records,
    )


def _by_length(
    phase: Phase, records: SplitRecords, config: TrainingConfig, max_lengths: int
) -> Phase:
    """The phase with a stream for each of the static lengths."""
    table, batch_size = records.table, config.train_batch_size
    buckets = training_lengths(
        table.lengths, records.num_batches(batch_size), max_lengths
    )
    plan = LengthPlan(table.lengths, batch_size, buckets, config.random_seed)
    tokens = table.mean_length * records.num_records / plan.batches_per_epoch
    logging.info(
        "  Lengths of batches = %s; %.0f %% of it is tokens",
        ", ".join(map(str, buckets)),
        100 * tokens / batch_size / np.mean(np.array(buckets)[plan.epoch(0).buckets]),
    )

    # A run that began with other batches may be further in the records than its steps
    # tell: no more than this is known of how many batches there are still to make.
    @functools.lru_cache(maxsize=1)
    def planned(start: int) -> PlannedBatches:
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
            # tf.distribute keeps the batch's size static only where it knows that no
            # batch is the last one; nobody asks for more batches than are planned.
            return table.batches(
                rows[of_rows == number], buckets[number], shard=shard
            ).apply(
                tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            )

        return data

    return dataclasses.replace(
        phase,
        streams=[stream(number) for number in range(len(buckets))],
        stream_of=stream_of,
    )
