"""Fine-tuning: the runs on a task, which train or restore, evaluate, predict."""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.base import files, keras_backend
from bert_tf.base.addons import addon
from bert_tf.base.config import REGRESSION, SINGLE_LABEL, BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion import adapter_files
from bert_tf.conversion.loading import ModelFiles, read_model_files
from bert_tf.conversion.names import heads_of
from bert_tf.conversion.source import Source, with_new_labels
from bert_tf.records import batching
from bert_tf.records.pipeline import InputShard
from bert_tf.tasks import run_log
from bert_tf.tasks.run_options import FineTuningOptions
from bert_tf.tasks.task import TRAIN, FineTuningTask
from bert_tf.training import checkpoints, run_folder
from bert_tf.training.checkpoints import STATE_NAME, restore_or_initialize
from bert_tf.training.evaluation import Predictor
from bert_tf.training.loop import train
from bert_tf.training.run_folder import RunData, Start
from bert_tf.training.step import on_devices
from bert_tf.training.strategy import Strategy, is_chief
from bert_tf.training.task import Evaluate, Phase, Task
from bert_tf.training.training_options import LossOptions, TrainingConfig

# The model's options: LoRA, adapters, a mixture of layers.


def opened_adapter(
    options: FineTuningOptions, config: BertConfig
) -> adapter_files.AdapterFiles | None:
    """Opens the adapter at `init_adapter`; returns None if it is not given."""
    if not options.init_adapter:
        return None
    adapter = adapter_files.open_adapter(options.init_adapter)
    adapter_files.refuse_other_base(adapter, config)
    return adapter


def model_options(
    options: FineTuningOptions, config: BertConfig, *, has_pooler: bool = True
) -> dict[str, Any]:
    """Returns a head's arguments: LoRA, adapters, a mixture of layers, recomputing."""
    for name in ("train_pooler", "cls_normalization"):
        if getattr(options, name) and not has_pooler:
            raise InputError(
                f"`{name}`: this task's model has no pooler. Leave it out."
            )
    adapter = opened_adapter(options, config)
    if adapter is None:
        names = (*adapter_files.MODEL_OPTIONS, "recompute")
        return {name: getattr(options, name) for name in names}
    for name in adapter_files.MODEL_OPTIONS:
        given = options.value_if_given(name)
        if given is not None and given != adapter.model[name]:
            raise InputError(
                f"`{name}={given}`, but `init_adapter={options.init_adapter}` was"
                f" trained with {adapter.model[name]}. Leave `{name}` out."
            )
    return {**adapter.model, "recompute": options.recompute}


# Fine-tuning on a split's records: the same phases for all tasks.


def training_plan(
    task: Task,
    records: batching.ExampleTable,
    options: FineTuningOptions,
    *,
    data: RunData,
    best_metric: str,
    num_lengths: int | None = None,
    num_examples: int | None = None,
    epochs_flag: str = "num_train_epochs",
    until: float = 1.0,
    evaluate: Evaluate | None = None,
) -> dict[str, Any]:
    """Returns the arguments of `train`: configuration, phase, the run's description."""
    # With batches padded to max_seq_length there are int(examples / batch * epochs)
    # steps, as in the original, each epoch's last batch reaching into the next. With
    # batches of similar length an epoch has ceil(examples / batch), each example once.
    batch_size = options.train_batch_size
    num_train_epochs = options.num_train_epochs[0]
    num_batches = (num_examples or len(records)) / batch_size
    if num_lengths is not None:
        num_batches = records.num_batches(batch_size)
    num_schedule_steps = steps_of(
        num_batches,
        num_train_epochs,
        is_whole=num_lengths is not None,
        flag=epochs_flag,
    )
    num_train_steps = max(1, math.ceil(num_schedule_steps * until))
    config = options.to(
        TrainingConfig,
        learning_rate=options.learning_rate,
        train_batch_size=batch_size,
        random_seed=options.random_seed,
        best_metric=best_metric,
        num_train_steps=num_train_steps,
        num_schedule_steps=num_schedule_steps,
        num_warmup_steps=int(num_schedule_steps * options.warmup_proportion),
    )
    logging.info("***** Running training *****")
    logging.info("  Num examples = %d", len(records))
    logging.info("  Batch size = %d", batch_size)
    logging.info("  Num steps = %d", num_train_steps)
    phase = Phase(
        end_step=num_train_steps,
        batch_size=batch_size,
        data_id=int(records.made_from[:15], 16),
        evaluate=evaluate,
        streams=[],
    )
    if num_lengths is None:
        phase = _of_one_length(phase, records, config.random_seed)
    else:
        phase = _by_length(phase, records, config.random_seed, num_lengths)
    fixed = {
        "num_train_epochs": num_train_epochs,
        "max_seq_length": records.spec.max_seq_length,
    }
    start = Start(
        task=task.name,
        data=data,
        settings=config.decisive | fixed | LossOptions.of(options).changed,
        flags={**options.as_flags(), "best_metric": best_metric, **fixed},
    )
    return {"task": task, "config": config, "phases": [phase], "start": start}


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


def _of_one_length(phase: Phase, records: batching.ExampleTable, seed: int) -> Phase:
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


def _by_length(
    phase: Phase, records: batching.ExampleTable, seed: int, num_lengths: int
) -> Phase:
    """Returns the phase with a stream for each static length."""
    batch_size = phase.batch_size
    buckets = batching.batch_lengths(
        records.lengths,
        records.num_batches(batch_size),
        num_lengths,
        is_training=True,
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


def refuse_losses(
    losses: LossOptions, name: str, problem_type: str, *, has_classes: bool = True
) -> None:
    """Raises InputError for losses that the task's predictions do not allow."""
    if losses.label_smoothing and problem_type == REGRESSION:
        raise InputError(f"`label_smoothing` needs labels; {name} has numbers.")
    if losses.class_weights and (not has_classes or problem_type != SINGLE_LABEL):
        raise InputError(f"`class_weights`: {name} does not choose one class.")


def with_losses(
    trained: Task,
    task: FineTuningTask,
    options: FineTuningOptions,
    model_files: ModelFiles,
) -> Task:
    """Returns the task with the training losses that the options add."""
    losses = LossOptions.of(options)
    if not losses.changed:
        return trained
    counts = task.class_counts()
    refuse_losses(losses, task.name, task.problem_type, has_classes=counts is not None)
    weights = None
    if losses.class_weights and counts is not None:
        weights = addon("regularization").class_weights(
            losses.class_weights, task.labels or (), counts
        )
    return addon("regularization").regularized(
        trained,
        losses,
        heads=[task.head],
        vocabulary=model_files.vocabulary,
        labels=task.labels,
        class_weights=weights,
    )


def _some_batches(
    records: batching.ExampleTable, batch_size: int, most: int = 1024
) -> Iterator[batching.Arrays]:
    """Yields batches of at most this many examples, evenly spaced."""
    count = min(len(records), most)
    rows = np.linspace(0, len(records) - 1, count).astype(int)
    for start in range(0, count, batch_size):
        some = rows[start : start + batch_size]
        yield records.padded(some, records.spec.max_seq_length)


@dataclasses.dataclass(eq=False)
class FineTuning:
    """The only runner: all runs on one task."""

    task: FineTuningTask
    options: FineTuningOptions
    model_files: ModelFiles
    strategy: Strategy
    trained: Task = dataclasses.field(init=False)  # with additions to its loss
    _predictor: tuple[keras.Model, Predictor] | None = None

    def __post_init__(self) -> None:
        task, options = self.task, self.options
        # The checkpoint that the run starts from.
        self.init_checkpoint: str | Source | None = None
        if task.is_restorable:
            source = self.model_files.source
            if source is not None and options.do_train and options.init_head:
                source = with_new_labels(source, task.head, task.labels or ())
            self.init_checkpoint = source
        metric = options.best_metric
        if metric and metric not in task.metrics:
            raise InputError(
                f"`best_metric={metric}` is not a metric of the evaluation:"
                f" {', '.join(task.metrics)}."
            )
        has_head = self.model_files.source and task.head in heads_of(
            self.model_files.source.weights
        )
        if options.cls_normalization and options.init_head and has_head:
            raise InputError(
                f"`cls_normalization` begins with a new {task.head} head, and"
                " `init_checkpoint` has one: give `init_head=false`."
            )
        self.trained = Task(
            name=task.name, build_model=task.build_model, objective=task.objective
        )
        if options.do_train:
            self.trained = with_losses(self.trained, task, options, self.model_files)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files."""
        return is_chief(self.strategy)

    @property
    def metric(self) -> str:
        """The metric that chooses checkpoints and runs."""
        return self.options.best_metric or self.task.metric

    def prepare(self, folder: str, data: RunData | None = None) -> None:
        """Creates a run's folder, with all files that go with its checkpoints."""
        task = self.task
        task.prepare(folder)
        run_folder.prepare(
            folder,
            self.model_files.config,
            self.model_files.vocabulary,
            self.model_files.do_lower_case,
            self.model_files.segmenter,
            self.options,
            head=task.head,
            task=task.trains_task,
            data=data,
            labels=task.labels,
            problem_type=task.problem_type,
        )

    def fine_tune(
        self,
        folder: str,
        options: FineTuningOptions | None = None,
        *,
        until: float = 1.0,
        epochs_flag: str = "num_train_epochs",
    ) -> tuple[keras.Model, int]:
        """Trains or resumes a run in a folder, up to a share of its steps."""
        task, options = self.task, options or self.options
        data = task.data()
        self.prepare(folder, data)
        records = task.records(TRAIN)
        trained = self.trained
        if self.model_files.config.cls_normalization:
            trained = dataclasses.replace(
                trained,
                begin=lambda model: addon("standardization").standardize(
                    model, _some_batches(records, options.predict_batch_size)
                ),
            )
        plan = training_plan(
            trained,
            records,
            options,
            data=data,
            num_lengths=options.num_lengths,
            num_examples=task.num_examples(),
            epochs_flag=epochs_flag,
            until=until,
            evaluate=self._evaluate if options.eval_steps else None,
            best_metric=self.metric,
        )
        model, step = train(
            **plan,
            folder=folder,
            init_checkpoint=self.init_checkpoint,
            strategy=self.strategy,
        )
        self.save_adapter(model, folder)
        return model, step

    def restore(self, folder: str) -> tuple[keras.Model, int]:
        """Returns the model of a folder's last checkpoint, or the initial model."""
        self.prepare(folder)
        return restore_or_initialize(
            self.trained,
            folder,
            self.init_checkpoint,
            self.options.precision,
            self.strategy,
            init_adapter=self.options.init_adapter,
        )

    def predict(self, model: keras.Model, split: str) -> Any:
        """Returns the predictions of a split."""
        return self.task.predict(split, self.outputs(model))

    def outputs(self, model: keras.Model) -> batching.Predict:
        """Returns the model's prediction of batches; its step is compiled once."""
        if self._predictor is None or self._predictor[0] is not model:
            compiled = self.options.jit_compile
            step = on_devices().prediction_step(
                model, self.strategy, jit_compile=compiled
            )
            predictor = Predictor(self.task.name, step, self.strategy)
            self._predictor = model, predictor
        return self._predictor[1].run

    def scores(self, model: keras.Model, split: str) -> dict[str, float]:
        """Returns a split's losses and metrics."""
        return self.task.score(split, self.predict(model, split))

    def save_adapter(self, model: keras.Model, folder: str) -> None:
        """Writes the weights of LoRA or adapters, if the model has any."""
        config = model.get_config()
        if (config.get("lora_rank") or config.get("adapter_size")) and self.is_chief:
            adapter_files.write_adapter(
                folder,
                model,
                labels=self.task.labels or (),
                problem_type=self.task.problem_type,
            )

    def forget_model(self) -> None:
        """Releases the last model that predicted, so that its memory can be freed."""
        self._predictor = None

    def _evaluate(self, model: keras.Model) -> Mapping[str, float]:
        return self.scores(model, self.task.dev_splits[0])


def files_of(options: FineTuningOptions, folder: str) -> ModelFiles:
    """Returns the model's files: from a run's folder, a checkpoint, or the flags."""
    model_files = read_model_files(options, folder)
    model_files.config.check_sequence_length(options.max_seq_length)
    changed: dict[str, Any] = {
        name: True for name in ("bilstm", "cls_normalization") if getattr(options, name)
    }
    return model_files._replace(
        config=dataclasses.replace(model_files.config, **changed)
    )


def folder_of_model(options: FineTuningOptions) -> str:
    """Returns the folder of a run's checkpoints; after a selection, the best run's."""
    output_dir = options.output_dir
    best = checkpoints.folder_of(output_dir)
    is_selection = (
        files.exists(run_log.path_in(output_dir))
        and files.exists(os.path.join(best, STATE_NAME))
        and not files.exists(os.path.join(output_dir, STATE_NAME))
    )
    return best if is_selection and not options.do_train else output_dir
