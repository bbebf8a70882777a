"""Fine-tuning from records: the same phases for every task.

A split's examples are tokenized into TFRecords under the original's names
(train.tf_record, eval.tf_record, predict.tf_record) and read from there. Beside them
lies a manifest,

    train.tf_record.manifest.json
        {"format_version": 1, "made_from": SHA-256, "num_records": 3668, "notes": {...}}

that says what they were made from, so that the next start, or the next of many runs,
finds them ready.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import flags, logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.records import pipeline
from bert_tf.records.example_table import EvaluationBatches, ExampleTable
from bert_tf.records.length_plan import (
    PADDING,
    LengthPlan,
    PlannedBatches,
    static_lengths,
)
from bert_tf.records.pipeline import InputShard
from bert_tf.records.schema import RecordSchema
from bert_tf.records.shards import ShardWriter
from bert_tf.task import Task
from bert_tf.training.config import Evaluate, Phase, TrainingConfig
from bert_tf.training.loop import train

Block = Mapping[str, np.ndarray]

FORMAT_VERSION = 1
# A length takes about as long to compile as so many batches to compute: forward and
# backward, or forward alone.
_BATCHES_PER_LENGTH = 4
_BATCHES_PER_LENGTH_FORWARD = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordSet:
    """The records of one split.

    Attributes:
        path: the TFRecord file.
        num_records: the number of records in it.
        schema: what a record holds.
        made_from: a digest of all that the records were made from.
        notes: what there was to tell about the making, such as texts that were cut.
    """

    path: str
    num_records: int
    schema: RecordSchema
    made_from: str
    notes: Mapping[str, Any]

    @classmethod
    def prepare(
        cls,
        path: str,
        schema: RecordSchema,
        made_from: Any,
        blocks: Iterable[Block],
        notes: Callable[[], Mapping[str, Any]] = dict,
        *,
        is_alone: bool = True,
    ) -> "RecordSet":
        """The records that lie there, if they were made from the same; else new ones.

        A file appears under its name when it is complete.

        Args:
            path: the file.
            schema: what a record holds.
            made_from: what the records are a function of, as JSON has it.
            blocks: the records, many at once: arrays [records, *shape] by the feature's
                name; not looked at where they lie there.
            notes: what there is to tell when all are made, as JSON has it.
            is_alone: whether no other worker may be writing the same file just now.
        """
        shape = [(f.name, f.dtype, f.length) for f in schema.features]
        described = json.dumps([FORMAT_VERSION, shape, made_from], sort_keys=True)
        digest = hashlib.sha256(described.encode("utf-8")).hexdigest()
        manifest_path = f"{path}.manifest.json"
        there = _manifest(manifest_path)
        if there.get("made_from") == digest and files.exists(path):
            logging.info("%s is there already.", os.path.basename(path))
            return cls(
                path=path,
                num_records=there["num_records"],
                schema=schema,
                made_from=digest,
                notes=there["notes"],
            )
        if there:
            # It must not speak for other records, should this be killed before its own
            # manifest. Another worker may have come first.
            with contextlib.suppress(FileNotFoundError, *files.remote_errors()):
                files.remove(manifest_path)
        num_records = 0
        with ShardWriter([path], is_alone=is_alone) as writer:
            for block in blocks:
                writer.write(schema.serialize_block(block))
                num_records += len(next(iter(block.values())))
        records = cls(
            path=path,
            num_records=num_records,
            schema=schema,
            made_from=digest,
            notes=dict(notes()),
        )
        manifest = {
            "format_version": FORMAT_VERSION,
            "made_from": digest,
            "num_records": num_records,
            "notes": records.notes,
        }
        files.write_atomically(manifest_path, json.dumps(manifest, indent=1) + "\n")
        logging.info("Wrote %d records to %s.", num_records, os.path.basename(path))
        return records

    @functools.cached_property
    def table(self) -> ExampleTable:
        """The records in memory."""
        return ExampleTable.read(self.path, self.schema)

    @property
    def max_seq_length(self) -> int:
        """The length that the records are padded to."""
        (feature,) = (f for f in self.schema.features if f.name == "input_ids")
        return feature.shape[-1]

    def num_batches(self, batch_size: int) -> int:
        """The number of batches of `batches`."""
        return -(-self.num_records // batch_size)

    def batches(
        self, batch_size: int, max_lengths: int | None = None
    ) -> EvaluationBatches:
        """All records once; `rows` in a batch says which, and pads the last batch.

        Args:
            batch_size: records a batch.
            max_lengths: how many lengths batches may have, the records then being in
                the order of their lengths; None for max_seq_length, in their own.
        """
        if max_lengths is None:
            rows = np.full([self.num_batches(batch_size), batch_size], PADDING)
            rows.ravel()[: self.num_records] = np.arange(self.num_records)
            lengths = np.full(len(rows), self.max_seq_length)
            return EvaluationBatches(self.table, rows, lengths)
        buckets = prediction_lengths(
            self.table.lengths, self.num_batches(batch_size), max_lengths
        )
        plan = LengthPlan(self.table.lengths, batch_size, buckets, seed=None).epoch(0)
        return EvaluationBatches(self.table, plan.rows, np.array(buckets)[plan.buckets])


def finetune(
    task: Task,
    records: RecordSet,
    flag_values: flags.FlagValues,
    strategy: tf.distribute.Strategy,
    *,
    folder: str,
    num_train_epochs: float,
    max_lengths: int | None = None,
    num_examples: int | None = None,
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

    Args:
        task: what to train.
        records: on what.
        flag_values: how, by the flags of `TrainingConfig`'s names.
        strategy: the devices.
        folder: the run's output_dir.
        num_train_epochs: passes over the records.
        max_lengths: how many lengths batches may have; None for max_seq_length alone.
        num_examples: what the original counts an epoch's steps by, where that is not
            the records: SQuAD's questions, of which some have several windows.
        init_checkpoint: what a fresh run starts from. Default: --init_checkpoint.
        until: the share of the steps to make now. The schedule is that of all of them.
        evaluate: what to do every --eval_steps.
        **settings: of `TrainingConfig`, before the flags.

    Returns:
        The model, and the number of steps that it was trained for.

    Raises:
        InputError: that is less than one step.
    """
    settings = {"train_batch_size": flag_values.train_batch_size, **settings}
    batch_size = settings["train_batch_size"]
    if max_lengths is None:
        examples = num_examples or records.num_records
        num_schedule_steps = int(examples / batch_size * num_train_epochs)
    else:
        num_schedule_steps = math.ceil(
            records.num_batches(batch_size) * num_train_epochs
        )
    if num_schedule_steps < 1:
        raise InputError(
            f"--num_train_epochs={num_train_epochs}: {records.num_records} examples in"
            f" batches of {batch_size} give less than one step. Raise it, or lower"
            " --train_batch_size."
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
    return train(
        task,
        config,
        folder=folder,
        phases=[phase],
        init_checkpoint=init_checkpoint or flag_values.init_checkpoint,
        strategy=strategy,
    )


def _of_one_length(
    records: RecordSet, config: TrainingConfig
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
    phase: Phase, records: RecordSet, config: TrainingConfig, max_lengths: int
) -> Phase:
    """The phase with a stream for each of the static lengths."""
    table, batch_size = records.table, config.train_batch_size
    buckets = _lengths_of(
        table.lengths, records.num_batches(batch_size), max_lengths, _BATCHES_PER_LENGTH
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


def prediction_lengths(
    lengths: np.ndarray, num_batches: int, max_lengths: int
) -> tuple[int, ...]:
    """The static lengths of batches that are predicted.

    Args:
        lengths: [N], the tokens of each record.
        num_batches: how many there will be: few do not make up for many lengths.
        max_lengths: how many lengths there may be.
    """
    return _lengths_of(lengths, num_batches, max_lengths, _BATCHES_PER_LENGTH_FORWARD)


def _lengths_of(
    lengths: np.ndarray, num_batches: int, max_lengths: int, batches_per_length: int
) -> tuple[int, ...]:
    """The static lengths of batches: fewer where few batches would make up for them."""
    count = num_batches // batches_per_length
    return static_lengths(lengths, max(1, min(max_lengths, count)))


def _manifest(path: str) -> Mapping[str, Any]:
    """What a manifest says; nothing where there is none, or a damaged one."""
    if not files.exists(path):
        return {}
    try:
        manifest = files.read_json(path)
        _ = manifest["made_from"], manifest["num_records"], manifest["notes"]
    except (InputError, KeyError, TypeError):
        logging.warning("%s is damaged; the records are made again.", path)
        return {}
    return manifest
