"""Fine-tuning: the runs on a task, which train or restore, evaluate, predict."""

import dataclasses
import gc
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from absl import logging

from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.base.options import deciding, flags_of_run
from bert_tf.conversion import adapter_files
from bert_tf.conversion.loading import ModelFiles, read_model_files
from bert_tf.conversion.names import heads_of
from bert_tf.conversion.source import Source, folder_of, open_reading, with_new_labels
from bert_tf.records import batching
from bert_tf.tasks import run_log
from bert_tf.tasks.epochs import by_length, of_one_length, steps_of
from bert_tf.tasks.run_options import RECIPES, FineTuningOptions, warn_of_stride
from bert_tf.tasks.selection import Selection, search
from bert_tf.tasks.task import TRAIN, FineTuningTask, Run
from bert_tf.training import checkpoints, run_folder
from bert_tf.training.checkpoints import STATE_NAME, restore_or_initialize
from bert_tf.training.evaluation import Predictor
from bert_tf.training.loop import train
from bert_tf.training.run_folder import RunData, Start
from bert_tf.training.step import on_devices
from bert_tf.training.strategy import (
    Strategy,
    check_batch_size,
    create_strategy,
    is_chief,
)
from bert_tf.training.task import Evaluate, Phase, Task
from bert_tf.training.training_options import TrainingConfig, with_flags_of, with_recipe

# A task, or a function that makes one.
MakeTask = Callable[[Any, ModelFiles, Strategy], FineTuningTask]


class FineTuningRun(Run):
    """A run on a task: one setting, or the best of several."""

    def __init__(self, make_task: MakeTask, options: FineTuningOptions) -> None:
        options = as_trained(with_recipe(options, RECIPES))
        warn_of_stride(getattr(options, "doc_stride", None), options.max_seq_length)
        self.options = options
        self.strategy = create_strategy(options)
        check_batches(options, self.strategy)
        _refuse_useless(options)
        model_files = files_of(options, folder_of_model(options))
        task = make_task(options, model_files, self.strategy)
        if options.do_train and options.selects and not task.dev_splits:
            raise InputError(
                "Several runs need a development set to choose the best by."
            )
        self.tuning = FineTuning(task, options, model_files, self.strategy)

    def first_stages(self) -> None:
        """Runs the task's first stage, if any."""
        if folder := self.tuning.task.first_stage(
            self.tuning.model_files, self.strategy
        ):
            self.tuning.init_checkpoint = folder

    def train(self) -> tuple[keras.Model, int]:
        """Trains the model; after a selection, returns the best run's."""
        folder, tuning = self.options.output_dir, self.tuning
        if tuning.is_chief:
            addon("shared_examples").warn(tuning.task)
        if not self.options.selects:
            return tuning.fine_tune(folder)
        tuning.select(folder)
        model, step = tuning.restore(checkpoints.folder_of(folder))
        tuning.save_adapter(model, folder)
        return model, step

    def restore(self) -> tuple[keras.Model, int]:
        """Restores the model; after a selection, the best run's."""
        return self.tuning.restore(folder_of_model(self.options))

    def report(self, model: keras.Model, step: int) -> Mapping[str, float]:
        """Evaluates and predicts, and returns the results."""
        return evaluate_and_predict(self.tuning, model, step)


def check_batches(options: FineTuningOptions, strategy: Strategy) -> None:
    """Raises InputError for batch sizes that would otherwise fail after training."""
    kinds = ("eval_batch_size", "predict_batch_size")
    of_dev = next(filter(options.has, kinds))  # SQuAD has only the second
    wanted = [of_dev] if options.looks_at_dev else []
    if options.do_predict:
        wanted.append("predict_batch_size")
    for name in wanted:
        check_batch_size(strategy, getattr(options, name), flag=name)


def _refuse_useless(options: FineTuningOptions) -> None:
    if not options.do_train or options.selects:
        return
    for name in ("stop_early", "keep_all_runs"):
        if getattr(options, name):
            raise InputError(
                f"`{name}` is for several runs, and this is one: give `learning_rates`,"
                " `train_batch_sizes` or `num_restarts` too, or leave it out."
            )
    if files.exists(run_log.path_in(options.output_dir)):
        raise InputError(
            f"`output_dir={options.output_dir}` holds several runs, of which the best"
            " one is kept. Give another folder for a single run."
        )


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

    def select(self, folder: str) -> Selection:
        """Makes the requested runs, and keeps the best one's weights in FOLDER/best."""
        return search(
            self.task,
            self.options,
            self.strategy,
            self._scored,
            metric=self.metric,
            output_dir=folder,
        )

    def _scored(
        self, folder: str, options: FineTuningOptions, *, until: float
    ) -> tuple[Mapping[str, float], int]:
        """Trains a run as `fine_tune`; returns its last scores and step, no model."""
        try:
            model, step = self.fine_tune(folder, options, until=until)
            return self._evaluate(model), step
        finally:
            model = self._predictor = None
            # Graphs and variables form reference cycles.
            keras.backend.clear_session()
            gc.collect()

    def _evaluate(self, model: keras.Model) -> Mapping[str, float]:
        return self.scores(model, self.task.dev_splits[0])


def evaluate_and_predict(
    run: FineTuning, model: keras.Model, step: int
) -> dict[str, float]:
    """Scores the development sets, predicts the test sets, and writes the results."""
    # Metrics of a second development set, MNLI's mismatched one, are prefixed with its
    # name; metrics of a labelled test set, with "test_".
    task, options = run.task, run.options
    results: dict[str, float] = {}
    names: dict[str, str] = {}
    wanted = {
        "evaluation": task.dev_splits if options.do_eval else (),
        "prediction": task.test_splits if options.do_predict else (),
    }
    for what, split in [(w, split) for w, splits in wanted.items() for split in splits]:
        logging.info("***** Running %s: %s *****", what, split)
        predictions = run.predict(model, split)
        if run.is_chief:
            task.write(options.output_dir, split, predictions, step)
        prefix = split.removeprefix("dev").removeprefix("_")
        prefix = f"{prefix}_" if prefix else ""
        for name, value in task.score(split, predictions).items():
            results[prefix + name] = value
            if name in task.result_names:
                names[prefix + name] = task.result_names[name].format(prefix)
    if results:
        run_folder.report_evaluation(
            options.output_dir,
            step,
            results,
            names=names,
            keeps_others=task.keeps_results,
            is_chief=run.is_chief,
            task_name=task.name,
        )
    if options.do_train and run.is_chief:
        for line in task.summary(options.output_dir, results):
            logging.info("%s", line)
    return results


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
        phase = of_one_length(phase, records, config.random_seed)
    else:
        phase = by_length(phase, records, config.random_seed, num_lengths)
    fixed = {
        "num_train_epochs": num_train_epochs,
        "max_seq_length": records.spec.max_seq_length,
    }
    start = Start(
        task=task.name,
        data=data,
        settings=config.decisive | fixed | addon("losses").of(options).changed,
        flags={**options.as_flags(), "best_metric": best_metric, **fixed},
    )
    return {"task": task, "config": config, "phases": [phase], "start": start}


def with_losses(
    trained: Task,
    task: FineTuningTask,
    options: FineTuningOptions,
    model_files: ModelFiles,
) -> Task:
    """Returns the task with the training losses that the options add."""
    losses = addon("losses").of(options)
    if not losses.changed:
        return trained
    methods = addon("regularization")
    weights = methods.checked_class_weights(
        losses, task.name, task.problem_type, task.labels or (), task.class_counts()
    )
    return methods.regularized(
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


# What a run takes from the folder of its model.


def as_trained(options: FineTuningOptions) -> FineTuningOptions:
    """Takes options that are not given from the earlier training of the model.

    A model that is trained further reads texts as before, if it keeps its head.
    """
    folder = folder_of_model(options)
    names = deciding(type(options), "reading")
    if options.do_train:
        if not options.init_checkpoint or not options.init_head:
            return options
        folder = folder_of(options.init_checkpoint)
        trained = flags_of_run(folder)
        # Runs of another kind of task, or of pre-training, lack some of the options.
        if not {"recipe", *names} <= trained.keys():
            return options
    elif files.exists(os.path.join(folder, STATE_NAME)):
        names += deciding(type(options), "model")
        trained = flags_of_run(folder)
        if adapter_files.is_adapter(options.output_dir):
            trained |= adapter_files.open_adapter(options.output_dir).model
    elif options.init_checkpoint:
        # The weights show or include added layers.
        folder = folder_of(options.init_checkpoint)
        trained = open_reading(options.init_checkpoint).known()
    else:
        return options
    return with_flags_of(options, names, trained, folder)


def files_of(options: FineTuningOptions, folder: str) -> ModelFiles:
    """Returns the model's files: from a run's folder, a checkpoint, or the flags."""
    model_files = read_model_files(options, folder)
    model_files.config.check_sequences(options.max_seq_length)
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
