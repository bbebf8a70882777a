"""Fine-tuning from records: the same phases for every task.

A split's examples are written to the run's folder as TFRecords under the original's
names (train.tf_record, eval.tf_record, predict.tf_record) and read from there.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf
from absl import flags, logging

from bert_tf.errors import InputError
from bert_tf.records import pipeline
from bert_tf.records.schema import RecordSchema
from bert_tf.records.shards import ShardWriter
from bert_tf.task import Task
from bert_tf.training.config import Phase, TrainingConfig
from bert_tf.training.loop import train

Features = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordSet:
    """The records of one split.

    Attributes:
        path: the TFRecord file.
        num_examples: the number of records in it.
        schema: what a record holds.
        padding: the serialized record that fills the last batch up.
    """

    path: str
    num_examples: int
    schema: RecordSchema
    padding: bytes

    @classmethod
    def write(
        cls,
        path: str,
        schema: RecordSchema,
        features: Iterable[Features],
        padding: Features,
        *,
        is_alone: bool = True,
    ) -> "RecordSet":
        """Writes the records; the file appears under its name when it is complete.

        Args:
            path: the file.
            schema: what a record holds.
            features: the records' values, in order.
            padding: those of the record that fills the last batch up.
            is_alone: whether no other worker may be writing the same file just now.
        """
        num_examples = 0
        with ShardWriter([path], is_alone=is_alone) as writer:
            for values in features:
                writer.write([schema.serialize(values)])
                num_examples += 1
        logging.info("Wrote %d records to %s.", num_examples, os.path.basename(path))
        return cls(
            path=path,
            num_examples=num_examples,
            schema=schema,
            padding=schema.serialize(padding),
        )

    def num_batches(self, batch_size: int) -> int:
        """The number of batches of `batches`."""
        return -(-self.num_examples // batch_size)

    def batches(self, batch_size: int) -> tf.data.Dataset:
        """All records in order, once, the last batch filled up with padding."""
        return pipeline.evaluation_dataset(
            [self.path], self.schema, batch_size=batch_size, padding=self.padding
        )


def finetune(
    task: Task,
    records: RecordSet,
    flag_values: flags.FlagValues,
    strategy: tf.distribute.Strategy,
) -> tuple[keras.Model, int]:
    """Trains on a split for --num_train_epochs, as the original counts them.

    Steps: int(examples / batch * epochs); warmup: int(steps * proportion). The whole
    split is shuffled anew each epoch, where the original shuffles within a buffer of
    100.

    Returns:
        The model, and the number of steps that it was trained for.

    Raises:
        InputError: that is less than one step.
    """
    batch_size = flag_values.train_batch_size
    epochs = flag_values.num_train_epochs
    num_train_steps = int(records.num_examples / batch_size * epochs)
    if num_train_steps < 1:
        raise InputError(
            f"--num_train_epochs={epochs}: {records.num_examples} examples in batches"
            f" of {batch_size} give less than one step. Lower --train_batch_size."
        )
    config = TrainingConfig.from_flags(
        flag_values,
        num_train_steps=num_train_steps,
        num_warmup_steps=int(num_train_steps * flag_values.warmup_proportion),
    )
    logging.info("***** Running training *****")
    logging.info("  Num examples = %d", records.num_examples)
    logging.info("  Batch size = %d", batch_size)
    logging.info("  Num steps = %d", num_train_steps)
    return train(
        task,
        config,
        folder=flag_values.output_dir,
        phases=[
            Phase(
                end_step=num_train_steps,
                batch_size=batch_size,
                data=lambda position, shard: pipeline.training_dataset(
                    [records.path],
                    [records.num_examples],
                    records.schema,
                    batch_size=batch_size,
                    seed=config.random_seed,
                    start=position,
                    shard=shard,
                    shuffle_buffer=records.num_examples,
                ),
            )
        ],
        init_checkpoint=flag_values.init_checkpoint,
        strategy=strategy,
    )
