"""The tasks of GLUE one after the other: which, where from, and what each comes to."""

import copy
import os
from collections.abc import Sequence

import keras
import tensorflow as tf
from absl import flags, logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.finetuning.classifier_session import ClassifierSession
from bert_tf.finetuning.glue_results import (
    TaskResult,
    read_result,
    result_of,
    write_result,
)
from bert_tf.finetuning.search import search
from bert_tf.finetuning.submission import task_file, write_task_file
from bert_tf.metrics.glue import MISMATCHED
from bert_tf.tasks.data_set import DataSet
from bert_tf.tasks.glue import GLUE_TASKS
from bert_tf.tasks.named import find
from bert_tf.training import checkpoints
from bert_tf.training.run_folder import held_for_training
from bert_tf.training.strategy import is_chief

ALL = "all"
SUBMISSION_NAME = "submission"
# Too small to learn entailment from themselves: what begins with MNLI's model under
# --two_stage (Phang et al. 2018, arXiv 1811.01088).
SECOND_STAGE = ("MRPC", "STS-B", "RTE")


def chosen_tasks(flag_values: flags.FlagValues) -> list[DataSet]:
    """The tasks that --tasks names, in the order in which they are to be run.

    Says which ones of `all` are left out because their files are not there.
    """
    if not files.is_folder(flag_values.glue_dir):
        raise InputError(f"--glue_dir: no such folder: {flag_values.glue_dir}")
    names = list(flag_values.tasks)
    wants_all = [name.lower() for name in names] == [ALL]
    asked = list(GLUE_TASKS.values()) if wants_all else [find(name) for name in names]
    chosen: dict[str, DataSet] = {}
    left_out = []
    for data_set in asked:
        if data_set.name not in GLUE_TASKS:
            raise InputError(
                f"--tasks: {data_set.name} is none of GLUE's: {', '.join(GLUE_TASKS)}."
                " Use bert_tf.run_classifier."
            )
        missing = _missing_file(data_set, flag_values)
        if missing is None:
            chosen[data_set.name] = data_set
        elif wants_all and not files.exists(_data_dir(data_set, flag_values)):
            left_out.append(data_set)
        else:
            raise InputError(
                f"{data_set.name}: no file {missing}. GLUE's files are at"
                " gluebenchmark.com/tasks; --tasks names the tasks to run, and without"
                " --do_predict no test files are needed."
            )
    has_mnli = "MNLI" in chosen or files.exists(_best_of(flag_values, "MNLI"))
    if not has_mnli and "AX" in chosen:
        if not wants_all:
            raise InputError("--tasks: AX is predicted by MNLI's model: add MNLI.")
        logging.warning("AX is left out: MNLI's model predicts it, and there is none.")
        del chosen["AX"]
    if not chosen:
        raise InputError(
            f"--glue_dir={flag_values.glue_dir} has none of GLUE's folders:"
            f" {', '.join(one.folder for one in asked)}."
        )
    for data_set in left_out:
        logging.warning(
            "%s is left out: no folder %s. GLUE's files are at"
            " gluebenchmark.com/tasks.",
            data_set.name,
            _data_dir(data_set, flag_values),
        )
    if flag_values.two_stage and not has_mnli and {*chosen} & {*SECOND_STAGE}:
        raise InputError("--two_stage begins with MNLI's model: add MNLI to --tasks.")
    # MNLI's model is what others begin with, or what predicts them.
    return sorted(chosen.values(), key=lambda data_set: data_set.name != "MNLI")


def check_examples(data_set: DataSet, flag_values: flags.FlagValues) -> None:
    """Reads all that a task needs, so that errors appear before any training."""
    folder = _data_dir(data_set, flag_values)
    for split in _splits(data_set, flag_values):
        count = len(data_set.read(folder, split))
        wanted = task_file(data_set.name, split)
        if wanted is not None and count != wanted.num_examples:
            raise InputError(
                f"{data_set.path(folder, split)}: {count} examples; the test set of"
                f" {data_set.name} has {wanted.num_examples}, and GLUE's server takes"
                " no other number. Give the whole of it, or --do_predict=false."
            )


def run_task(
    data_set: DataSet, flag_values: flags.FlagValues, strategy: tf.distribute.Strategy
) -> None:
    """A task: its selection, the best run's scores and predictions.

    Its result is in its folder then. What is done already is not done again. AX is
    predicted alone.
    """
    logging.info("***** %s *****", data_set.name)
    values = _flags_of(data_set, flag_values)
    folder = values.output_dir
    session = ClassifierSession(
        values,
        strategy,
        data_set=data_set,
        splits=_splits(data_set, flag_values),
        records_dir=folder,
        output_dir=folder,
    )
    if data_set.name == "AX":
        if flag_values.do_predict:
            model, _ = session.restore(_best_of(flag_values, "MNLI"))
            _predict(session, model, flag_values.output_dir)
        return
    # run_classifier may be given the same folder.
    with held_for_training(folder, strategy):
        selection = search(session, values, folder)
    predicted = data_set.test_splits if flag_values.do_predict else ()
    inputs = {
        split: session.records(split).made_from
        for split in (*data_set.dev_splits, *predicted)
    }
    there = read_result(folder)
    if (
        there is not None
        and there.run == selection.best.settings.name
        and inputs.items() <= there.inputs.items()
    ):
        logging.info("%s: the best run is scored already.", data_set.name)
        result = result_of(
            data_set.name, selection, there.scores, there.predicted, there.inputs
        )
    else:
        model, _ = session.restore(_best_of(flag_values, data_set.name))
        session.save_adapter(model, folder)
        scores = _score(session, model)
        if predicted:
            _predict(session, model, flag_values.output_dir)
        result = result_of(data_set.name, selection, scores, predicted, inputs)
    if is_chief(strategy):
        write_result(result, folder)


def results_in(output_dir: str) -> list[TaskResult]:
    """The results of all tasks, those of earlier starts too, in GLUE's order."""
    found = (read_result(os.path.join(output_dir, name)) for name in GLUE_TASKS)
    return [result for result in found if result is not None]


def _score(session: ClassifierSession, model: keras.Model) -> dict[str, float]:
    """The metrics on all development sets, with reports on their predictions."""
    scores: dict[str, float] = {}
    for split in session.data_set.dev_splits:
        logits = session.logits(model, split)
        ending = MISMATCHED if split.endswith(MISMATCHED) else ""
        found = session.scores(model, split, logits)
        scores |= {name + ending: found[name] for name in session.data_set.metrics}
        session.write_reports(split, logits)
    return scores


def _predict(session: ClassifierSession, model: keras.Model, output_dir: str) -> None:
    """The predictions of all test sets, as GLUE's server takes them too."""
    for split in session.data_set.test_splits:
        logits = session.logits(model, split)
        session.write_reports(split, logits)
        if is_chief(session.strategy):
            write_task_file(
                os.path.join(output_dir, SUBMISSION_NAME),
                session.data_set.name,
                split,
                session.target.words(logits),
            )


def _flags_of(data_set: DataSet, flag_values: flags.FlagValues) -> flags.FlagValues:
    """The flags as this task has them."""
    values = copy.deepcopy(flag_values)
    flags.DEFINE_string("data_dir", None, "The task's folder.", flag_values=values)
    flags.DEFINE_bool("do_train", True, "As always here.", flag_values=values)
    values["data_dir"].value = _data_dir(data_set, flag_values)
    values["output_dir"].value = os.path.join(flag_values.output_dir, data_set.name)
    if flag_values.two_stage and data_set.name in SECOND_STAGE:
        values["init_checkpoint"].value = _best_of(flag_values, "MNLI")
        values["init_head"].value = False
    return values


def _splits(data_set: DataSet, flag_values: flags.FlagValues) -> Sequence[str]:
    """The splits that are read."""
    training = ("train", *data_set.dev_splits) if data_set.dev_splits else ()
    return (*training, *(data_set.test_splits if flag_values.do_predict else ()))


def _missing_file(data_set: DataSet, flag_values: flags.FlagValues) -> str | None:
    """A file that the task needs and that is not there."""
    folder = _data_dir(data_set, flag_values)
    for split in _splits(data_set, flag_values):
        path = os.path.join(folder, data_set.files[split])
        if not files.exists(path):
            return path
    return None


def _data_dir(data_set: DataSet, flag_values: flags.FlagValues) -> str:
    return os.path.join(flag_values.glue_dir, data_set.folder)


def _best_of(flag_values: flags.FlagValues, task: str) -> str:
    """Where a task's best run is kept."""
    return checkpoints.folder_of(os.path.join(flag_values.output_dir, task))
