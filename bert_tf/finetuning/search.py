"""A selection for a session: what one run is, and what all runs have in common."""

import collections
import gc
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import flags

from bert_tf import files
from bert_tf.errors import DivergedError, InputError
from bert_tf.finetuning.best_run import BestRun
from bert_tf.finetuning.classifier_session import ClassifierSession
from bert_tf.finetuning.selection import Selection, StopEarly, select
from bert_tf.finetuning.selection_report import write_report
from bert_tf.finetuning.settings import Settings, settings_from_flags
from bert_tf.finetuning.trials import Outcome
from bert_tf.metrics import glue as metrics
from bert_tf.tasks.targets import MULTI_LABEL, SINGLE_LABEL
from bert_tf.training import checkpoints
from bert_tf.training.checkpoint_files import STATE_NAME
from bert_tf.training.reporting import Reporter
from bert_tf.training.strategy import Agreement, check_batch_size, is_chief

# Flags that decide where and how fast a run is made, what is looked at, or what a
# record's settings say: runs that differ in them belong together.
_NO_DIFFERENCE = frozenset(
    {
        *("data_dir", "glue_dir", "output_dir", "task_name", "tasks", "tfds_data_dir"),
        *("train_file", "dev_file", "test_file"),
        *("do_train", "do_eval", "do_predict", "eval_batch_size"),
        *("predict_batch_size", "plots", "num_mistakes", "fill_missing_tasks"),
        *("learning_rate", "learning_rates", "train_batch_size", "train_batch_sizes"),
        *("num_train_epochs", "num_restarts", "random_seed", "best_metric", "recipe"),
        *("stop_early", "stop_early_at", "stop_early_keep", "keep_all_runs"),
        *("save_checkpoints_steps", "keep_checkpoint_max", "iterations_per_loop"),
        *("log_steps", "profile_steps", "jit_compile", "recompute", "distribution"),
        *("use_tpu", "tpu_name", "tpu_zone", "gcp_project", "master", "num_tpu_cores"),
        *("gradient_accumulation_steps", "two_stage"),
    }
)
_PATHS = ("init_checkpoint", "bert_config_file", "vocab_file", "init_adapter")


def search(
    session: ClassifierSession, flag_values: flags.FlagValues, output_dir: str
) -> Selection:
    """Makes the runs that the flags ask for, and keeps the best one.

    Its weights are in OUTPUT_DIR/best, as `ClassifierSession.restore` takes them.
    """
    settings = settings_from_flags(flag_values)
    _refuse_what_would_fail_later(session, flag_values, settings, output_dir)
    metric = best_metric(session, flag_values)
    chief = is_chief(session.strategy)
    stop_early = None
    if flag_values.stop_early:
        stop_early = StopEarly(flag_values.stop_early_at, flag_values.stop_early_keep)

    def run(settings: Settings, folder: str, until: float) -> Outcome:
        model, step = session.fine_tune(folder, settings, until=until)
        split = session.data_set.dev_splits[0]
        outcome = _best_of_run(folder, step, session.scores(model, split), metric)
        # That of an evaluation on the way is kept already. A run that stops to be
        # compared is none: its weights would stay the best where its end is no better.
        is_last = until == 1.0 and outcome.step == step
        if chief and is_last and metric in outcome.scores:
            checkpoints.keep_if_best(folder, step, outcome.scores[metric], metric)
        del model
        session.forget_model()
        # A run's graphs and variables hang together in rings.
        keras.backend.clear_session()
        gc.collect()
        return outcome

    selection = select(
        run,
        settings,
        folder=output_dir,
        metric=metric,
        keeper=BestRun(
            output_dir, keep_all_runs=flag_values.keep_all_runs, is_chief=chief
        ),
        made_with=made_with(session, flag_values),
        stop_early=stop_early,
        baseline=baseline(session, metric),
        is_chief=chief,
    )
    if chief:
        write_report(selection, output_dir)
    # Nobody looks for the best run's files before the chief has put them there.
    Agreement(session.strategy, 1).sum([0.0])
    return selection


def _refuse_what_would_fail_later(
    session: ClassifierSession,
    flag_values: flags.FlagValues,
    settings: Sequence[Settings],
    output_dir: str,
) -> None:
    """Raises InputError for what a later run, or the end, would come upon."""
    if files.exists(os.path.join(output_dir, STATE_NAME)):
        raise InputError(
            f"--output_dir={output_dir} holds a single run, whose best/ would make way"
            " for the best of several. Give another folder."
        )
    several = flag_values.train_batch_sizes
    flag = "train_batch_sizes" if several else "train_batch_size"
    for batch_size in {one.train_batch_size for one in settings}:
        check_batch_size(
            session.strategy,
            batch_size,
            flag_values.gradient_accumulation_steps,
            flag=flag,
        )


def best_metric(session: ClassifierSession, flag_values: flags.FlagValues) -> str:
    """The score to choose by: --best_metric, or else the task's first one."""
    return flag_values.best_metric or session.data_set.metrics[0]


def made_with(
    session: ClassifierSession, flag_values: flags.FlagValues
) -> dict[str, Any]:
    """Name -> value of all that decides how a run comes out, its settings aside."""
    found: dict[str, Any] = {"the task": session.data_set.name}
    for name in sorted(flag_values):
        # Other packages define flags too, absl itself and whatever is imported.
        module = flag_values.find_module_defining_flag(name) or ""
        if name in _NO_DIFFERENCE or not module.startswith("bert_tf."):
            continue
        value: Any = flag_values[name].value
        if name in _PATHS and value and files.exists(value):
            value = _identity(value)
        found[name] = value
    for split in ("train", session.data_set.dev_splits[0]):
        found[f"the {split} examples"] = session.records(split).made_from
    return found


def baseline(session: ClassifierSession, metric: str) -> float | None:
    """The score on the development set of who always answers the same.

    That is the most frequent class; for several labels, of each one whether most
    examples have it; for numbers, their mean. None for a loss.
    """
    if metric not in metrics.METRICS:
        return None
    target = session.target
    split = session.data_set.dev_splits[0]
    labels = np.array(
        [target.encode(one.label, one.source) for one in session.examples[split]]
    )
    if target.kind == SINGLE_LABEL:
        counts = collections.Counter(labels[:, 0].tolist())
        constant = np.array([max(counts, key=lambda label: counts[label])])
    elif target.kind == MULTI_LABEL:
        constant = (labels.mean(axis=0) > 0.5).astype(labels.dtype)
    else:
        constant = labels.mean(axis=0)
    answers = np.broadcast_to(constant, labels.shape)
    if labels.shape[1] == 1:
        labels, answers = labels[:, 0], answers[:, 0]
    return metrics.scores([metric], answers, labels)[metric]


def _identity(path: str) -> str:
    """What a path names: of a selection's best run, which run that is too."""
    best = checkpoints.read_best_file(path)
    return files.absolute(path) + (f" ({best.run})" if best and best.run else "")


def _best_of_run(
    folder: str, step: int, scores: Mapping[str, float], metric: str
) -> Outcome:
    """A run's last scores, or those of an evaluation on the way if they are better."""
    best = checkpoints.read_best(folder)
    last = scores.get(metric)
    if last is not None and not math.isfinite(last):
        raise DivergedError(f"The {metric} on the development set is {last}.")
    if best is not None and last is not None and best.metric == metric:
        before = Reporter(folder, step, is_chief=False).evaluation(best.step)
        if before and not checkpoints.is_better(last, best.value, metric):
            return Outcome(before, best.step)
    return Outcome(scores, step)
