"""A run of fine-tuning: train or restore, evaluate, predict."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf
from absl import flags, logging

from bert_tf import flags as shared_flags
from bert_tf import metrics
from bert_tf.config import BertConfig
from bert_tf.conversion.adapter_files import (
    MODEL_OPTIONS,
    AdapterFiles,
    open_adapter,
    refuse_other_base,
)
from bert_tf.conversion.loading import model_files
from bert_tf.conversion.source import Source
from bert_tf.errors import DivergedError, InputError
from bert_tf.modeling.objectives import Objective
from bert_tf.records import pipeline
from bert_tf.records.batching import (
    ROWS,
    EvaluationBatches,
    LengthPlan,
    PlannedBatches,
    SplitRecords,
    training_lengths,
)
from bert_tf.records.pipeline import InputShard
from bert_tf.tasks.tables import Target
from bert_tf.text.wordpiece import WordPieceTokenizer
from bert_tf.training import run_folder
from bert_tf.training.checkpoints import restore_or_initialize
from bert_tf.training.config import Evaluate, Phase, TrainingConfig
from bert_tf.training.evaluation import Predictor
from bert_tf.training.loop import train
from bert_tf.training.run_folder import RunData, Start, resolved
from bert_tf.training.strategy import is_chief
from bert_tf.training.task import Task

# What the flags make of a classifier: LoRA, adapters, a mixture of layers.


def opened_adapter(
    flag_values: flags.FlagValues, config: BertConfig
) -> AdapterFiles | None:
    """What --init_adapter names; None where it is not given."""
    if not flag_values.init_adapter:
        return None
    adapter = open_adapter(flag_values.init_adapter)
    refuse_other_base(adapter, config)
    return adapter


def model_options(
    flag_values: flags.FlagValues, adapter: AdapterFiles | None = None
) -> dict[str, Any]:
    """BertClassifier's arguments, as `bert_tf.tasks.classification.task` takes them."""
    if adapter is None:
        return {name: flag_values[name].value for name in MODEL_OPTIONS}
    for name in MODEL_OPTIONS:
        given = shared_flags.given(flag_values, name)
        if given is not None and given != adapter.model[name]:
            raise InputError(
                f"--{name}={given}, but --init_adapter={flag_values.init_adapter} was"
                f" trained with {adapter.model[name]}. Leave --{name} out."
            )
    return dict(adapter.model)


def is_parameter_efficient(options: dict[str, Any]) -> bool:
    """Whether the pre-trained weights are frozen, so that an adapter is to be saved."""
    return bool(options["lora_rank"] or options["adapter_size"])


# What the runs of a selection differ in, and which of them the flags ask for.


class Settings(NamedTuple):
    """What may differ between the runs on one task.

    Attributes:
        learning_rate: the peak.
        train_batch_size: sequences a step, over all devices.
        num_train_epochs: passes over the training examples.
        random_seed: of the new weights, dropout and the order of the data.
    """

    learning_rate: float
    train_batch_size: int
    num_train_epochs: float
    random_seed: int

    @property
    def name(self) -> str:
        """The settings as a folder's name: lr5e-05_bs16_ep3_seed12345."""
        return (
            f"lr{_short(self.learning_rate)}_bs{self.train_batch_size}"
            f"_ep{_short(self.num_train_epochs)}_seed{self.random_seed}"
        )


def grid(
    learning_rates: Sequence[float],
    train_batch_sizes: Sequence[int],
    num_train_epochs: Sequence[float],
    num_restarts: int,
    random_seed: int,
) -> list[Settings]:
    """All combinations of settings, each once, in the order that they are run in.

    Seeds change slowest: whoever looks early has seen every combination once. Then come
    batch sizes, epochs and learning rates, as they are given.
    """
    combinations = itertools.product(
        range(random_seed, random_seed + num_restarts),
        dict.fromkeys(train_batch_sizes),
        dict.fromkeys(num_train_epochs),
        dict.fromkeys(learning_rates),
    )
    return [
        Settings(rate, batch_size, epochs, seed)
        for seed, batch_size, epochs, rate in combinations
    ]


def settings_from_flags(flag_values: flags.FlagValues) -> list[Settings]:
    """The runs that the flags of `selection_flags.define_selection` ask for."""

    def values(plural: str, singular: str) -> Sequence[Any]:
        several = flag_values[plural]
        one = flag_values[singular]
        is_asked_for = one.present or one.value != one.default
        if several.value is None or (is_asked_for and not several.present):
            return [one.value]
        return several.value

    epochs = flag_values.num_train_epochs
    return grid(
        values("learning_rates", "learning_rate"),
        values("train_batch_sizes", "train_batch_size"),
        epochs if isinstance(epochs, Sequence) else [epochs],
        flag_values.num_restarts,
        flag_values.random_seed,
    )


def is_selection(flag_values: flags.FlagValues) -> bool:
    """Whether the flags ask for a selection, be it among one run."""
    plurals = ("learning_rates", "train_batch_sizes")
    asks = any(flag_values[name].present for name in plurals)
    return asks or len(settings_from_flags(flag_values)) > 1


def _short(number: float) -> str:
    """A number's shortest digits that mean it: 3 for 3.0."""
    return repr(float(number)).removesuffix(".0")


# What a split's outputs are worth: the task's loss, and metrics.
#
# Shapes: N examples, C outputs.


LOSS = "loss"
EXAMPLE_LOSS = "eval_loss"
MAJORITY = "majority"


class Labelled(Protocol):
    """What a score asks of an example."""

    @property
    def label(self) -> str | None:
        """Its label as written."""

    @property
    def source(self) -> str:
        """Where it stands, "file:line", for messages."""


def scores(
    examples: Sequence[Labelled],
    target: Target,
    logits: np.ndarray,
    *,
    objective: Objective,
    metric_names: Sequence[str],
    batch_size: int,
) -> dict[str, float]:
    """Losses and metrics of labelled examples."""
    labels = np.array(
        [target.encode(example.label, example.source) for example in examples],
        target.label_dtype,
    )
    loss = _mean_loss(objective, logits, labels)
    if not np.isfinite(loss):
        raise DivergedError(
            "The loss on the evaluation data is not finite: the model's weights are too"
            " large to be of use. Train again with a lower --learning_rate."
        )
    batches = [
        slice(start, start + batch_size) for start in range(0, len(labels), batch_size)
    ]
    losses = [_mean_loss(objective, logits[batch], labels[batch]) for batch in batches]
    predictions = target.predictions(logits)
    majority = {}
    if "accuracy" in metric_names:
        majority[MAJORITY] = float(np.unique(labels, return_counts=True)[1].max())
        majority[MAJORITY] /= labels.size
    return {
        LOSS: float(np.mean(losses)),
        EXAMPLE_LOSS: loss,
        **metrics.scores(metric_names, predictions, labels.reshape(predictions.shape)),
        **majority,
    }


def _mean_loss(objective: Objective, logits: np.ndarray, labels: np.ndarray) -> float:
    """The task's loss on some examples: a mean."""
    (loss,) = objective.losses.values()
    mean = loss({"label_ids": labels}, {"logits": logits})
    return float(keras.ops.convert_to_numpy(mean.value()))


# Fine-tuning on a split's records: the same phases for every task.


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


# What the runs on any task share: the model's files, and a step from batch to
# outputs.
#
# A task's own session knows its examples and their records, and what outputs mean.
#
# Shapes: R records, C outputs.


Arrays = Mapping[str, np.ndarray]


class TaskSession:
    """The runs on one task.

    Attributes:
        strategy: the devices.
        config: the model's architecture.
        tokenizer: of its vocabulary and casing.
        source: the opened --init_checkpoint, where there is one.
        task: what to train; set by the task's own session.
        head: its model's head, of `bert_tf.conversion.names.HEADS`; likewise.
    """

    task: Task
    head: str

    @property
    def trains_task(self) -> str | None:
        """The name of the task whose run a folder must hold."""
        return self.task.name

    def __init__(
        self,
        flag_values: flags.FlagValues,
        strategy: tf.distribute.Strategy,
        *,
        output_dir: str,
    ) -> None:
        self.strategy = strategy
        self._flags = flag_values
        found = model_files(
            flag_values.init_checkpoint,
            bert_config_file=flag_values.bert_config_file,
            vocab_file=flag_values.vocab_file,
            do_lower_case=shared_flags.given(flag_values, "do_lower_case"),
            output_dir=output_dir,
        )
        self.config: BertConfig = found.config
        self.source: Source | None = found.source
        self.config.check_sequence_length(flag_values.max_seq_length)
        self.tokenizer = WordPieceTokenizer(
            found.vocabulary, do_lower_case=found.do_lower_case
        )
        self._predictor: tuple[keras.Model, Predictor] | None = None

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes."""
        return is_chief(self.strategy)

    @property
    def max_lengths(self) -> int | None:
        """How many lengths batches may have; None for max_seq_length alone."""
        return None if self._flags.pad == "max" else self._flags.length_buckets

    def prepare(self, folder: str, data: RunData | None = None) -> None:
        """Makes a run's folder, with all that its checkpoints need beside them."""
        run_folder.prepare(
            folder,
            self.config,
            self.tokenizer.vocabulary,
            self.tokenizer.do_lower_case,
            self._flags,
            head=self.head,
            task=self.trains_task,
            data=data,
        )

    def restore(self, folder: str) -> tuple[keras.Model, int]:
        """The model of a folder's last checkpoint, or else of --init_checkpoint."""
        self.prepare(folder)
        adapter = "init_adapter"
        return restore_or_initialize(
            self.task,
            folder,
            self._flags.init_checkpoint,
            self._flags.precision,
            self.strategy,
            init_adapter=self._flags[adapter].value if adapter in self._flags else None,
        )

    def outputs(
        self, model: keras.Model, batches: EvaluationBatches, num_batches: int
    ) -> Iterator[tuple[Arrays, Arrays]]:
        """Yields (batch, outputs) as arrays, batch by batch."""
        if self._predictor is None or self._predictor[0] is not model:
            self._predictor = (
                model,
                Predictor(
                    self.task, model, self.strategy, jit_compile=self._flags.jit_compile
                ),
            )
        return self._predictor[1].run(batches, total_batches=num_batches)

    def logits_of(
        self,
        model: keras.Model,
        records: SplitRecords,
        *,
        batch_size: int,
        num_outputs: int,
    ) -> np.ndarray:
        """What the model says of records, [R, C] float32, in their order."""
        logits = np.zeros([records.num_records, num_outputs], np.float32)
        for batch, outputs in self.outputs(
            model,
            records.batches(batch_size, self.max_lengths),
            records.num_batches(batch_size),
        ):
            is_real = batch[ROWS] >= 0
            logits[batch[ROWS][is_real]] = outputs["logits"][is_real]
        return logits

    def refuse_other_metrics(self, there: Sequence[str]) -> None:
        """Raises InputError now for what would come out at the first evaluation."""
        name = self._flags.best_metric
        if name and name not in there:
            raise InputError(
                f"--best_metric={name} is none of the evaluation's metrics:"
                f" {', '.join(there)}."
            )

    def forget_model(self) -> None:
        """Lets go of the model that predicted last, so that its memory can be freed."""
        self._predictor = None
