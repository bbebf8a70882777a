"""Runs of fine-tuning: from a command's options to its results."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import keras
from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.base.options import deciding, flags_of_run
from bert_tf.conversion import adapter_files
from bert_tf.conversion.loading import ModelFiles
from bert_tf.conversion.source import folder_of, open_reading
from bert_tf.tasks import run_log
from bert_tf.tasks.finetuning import (
    FineTuning,
    files_of,
    folder_of_model,
)
from bert_tf.tasks.run_options import (
    FineTuningOptions,
    warn_of_stride,
    with_flags_of,
    with_recipe,
)
from bert_tf.tasks.selection import search
from bert_tf.tasks.task import FineTuningTask, Run
from bert_tf.training import checkpoints, run_folder
from bert_tf.training.checkpoints import STATE_NAME
from bert_tf.training.strategy import Strategy, check_batch_size, create_strategy

# A task, or a function that makes one.
MakeTask = Callable[[Any, ModelFiles, Strategy], FineTuningTask]


class FineTuningRun(Run):
    """A run on a task: one setting, or the best of several."""

    def __init__(self, make_task: MakeTask, options: FineTuningOptions) -> None:
        options = as_trained(with_recipe(options))
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
        if not self.options.selects:
            return tuning.fine_tune(folder)
        search(tuning, folder)
        model, step = tuning.restore(checkpoints.folder_of(folder))
        tuning.save_adapter(model, folder)
        return model, step

    def restore(self) -> tuple[keras.Model, int]:
        """Restores the model; after a selection, the best run's."""
        return self.tuning.restore(folder_of_model(self.options))

    def report(self, model: keras.Model, step: int) -> Mapping[str, float]:
        """Evaluates and predicts, and returns the results."""
        return evaluate_and_predict(self.tuning, model, step)


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
