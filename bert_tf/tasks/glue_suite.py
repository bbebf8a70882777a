"""All of GLUE: the runs of its tasks, the table of scores, the submission."""

import dataclasses
import json
import math
import os
import statistics
import types
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.base import files, pictures, strict_json
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.pictures import figure, table
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.data_set_options import ClassifierOptions, GlueOptions
from bert_tf.tasks.finetuning import FineTuning, check_batches, files_of
from bert_tf.tasks.glue import (
    COLUMNS,
    GLUE_TASKS,
    PAPER,
    find,
    task_file,
    write_submission,
)
from bert_tf.tasks.metrics import MISMATCHED, glue_average, mean, standard_deviation
from bert_tf.tasks.run_options import RECIPES, RunResult, RunSetting
from bert_tf.tasks.selection import Selection, clock, finished_scores
from bert_tf.tasks.tables import DataSet
from bert_tf.training import checkpoints
from bert_tf.training.run_folder import held_for_training
from bert_tf.training.strategy import create_strategy, is_chief
from bert_tf.training.training_options import with_recipe

# Not in the average: Devlin et al. 2018 leave out WNLI, and AX has no labels.
NOT_AVERAGED = ("WNLI", "AX")
TABLE_NAME = "glue.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A task's result; scores from 0 to 1, correlations from -1."""

    task: str  # spelled as by GLUE
    # Of the best run, on the development set; MNLI's second set has `_mismatched`.
    scores: Mapping[str, float]
    metric: str  # chose the best run
    run: str  # the best run's name, which shows its settings
    restarts: tuple[float, ...]  # scores of all runs with these settings
    num_runs: int  # runs that were started
    num_failed: int  # runs that diverged or learned nothing
    seconds: float  # total time of the runs
    predicted: tuple[str, ...] = ()  # test splits with written predictions
    # Split -> digest of the examples that were scored or predicted.
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def has_failed(self) -> bool:
        """Whether even the best run learned nothing."""
        return self.num_failed == self.num_runs


def result_of(
    task: str,
    selection: Selection,
    scores: Mapping[str, float],
    predicted: tuple[str, ...] = (),
    inputs: Mapping[str, str] = types.MappingProxyType({}),
) -> TaskResult:
    """Returns the result of a task whose best run has these scores."""
    records, metric = selection.records, selection.metric
    same = selection.best.settings[:3]
    return TaskResult(
        task=task,
        scores=dict(scores),
        metric=metric,
        run=selection.best.settings.name,
        restarts=finished_scores(
            [one for one in records if one.settings[:3] == same], metric
        ),
        num_runs=len(records),
        num_failed=sum(one.has_failed(metric, selection.baseline) for one in records),
        seconds=sum(one.seconds for one in records),
        predicted=predicted,
        inputs=dict(inputs),
    )


# The table of GLUE: OUTPUT_DIR/glue.md, glue.png, and glue.json, which also records the
# finished tasks: {"tasks": {"MRPC": {...}}, "average": 0.84, "average_over": ["MRPC"]},
# each task as `TaskResult`.
#
# Our scores are on the development sets, of runs chosen by those same scores; the
# paper's (Devlin et al. 2018, table 1) are the server's, on the test sets. The table
# says so: expect lower scores on the test sets.


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Table:
    tasks: dict[str, TaskResult]
    average: float | None = None
    average_over: list[str] = dataclasses.field(default_factory=list)


def write_report(results: Mapping[str, TaskResult], folder: str) -> None:
    """Writes the table as JSON, Markdown and a picture."""
    rows = [results[name] for name in GLUE_TASKS if name in results]
    average, tasks = average_of(rows)
    values = _Table(
        tasks={row.task: row for row in rows},
        average=None if math.isnan(average) else average,
        average_over=tasks,
    )
    for name, content in (
        (TABLE_NAME, json.dumps(dataclasses.asdict(values), indent=1) + "\n"),
        ("glue.md", report(rows)),
        ("glue.png", picture(rows)),
    ):
        files.write_atomically(os.path.join(folder, name), content)


def read_results(folder: str) -> dict[str, TaskResult]:
    """Reads earlier results from a folder's table; returns {} if it is damaged."""
    path = os.path.join(folder, TABLE_NAME)
    if not files.exists(path):
        return {}
    try:
        results = strict_json.read(_Table, path).tasks
        for one in results.values():
            numbers = [*one.scores.values(), *one.restarts, one.seconds]
            if one.metric not in one.scores or not all(map(math.isfinite, numbers)):
                raise InputError(f"{path}: scores must be finite, with {one.metric}.")
        return results
    except InputError as error:
        logging.warning("%s Its runs are scored again.", error)
        return {}


def short_name(metric: str) -> str:
    """Shortens a metric's name for a table's column."""
    name = metric.removesuffix(MISMATCHED)
    name = {"matthews_correlation": "MCC", "f1": "F1"}.get(name, name)
    return f"{name} (mm)" if metric.endswith(MISMATCHED) else name


def picture(results: Sequence[TaskResult]) -> bytes:
    """Draws the tasks' scores as bars, ours next to the paper's, as a PNG."""
    bars = [
        (result, metric)
        for result in results
        for metric in result.scores
        if metric.removesuffix(MISMATCHED) == result.metric
    ]
    ours = [100 * result.scores[metric] for result, metric in bars]
    series = {"ours, development set": ours}
    for model, tasks in PAPER.items():
        series[f"{model} of Devlin et al. 2018, test set"] = [
            tasks.get(result.task, {}).get(metric, math.nan) for result, metric in bars
        ]
    names = [
        f"{result.task}{', failed' * result.has_failed}\n{short_name(metric)}"
        for result, metric in bars
    ]

    def draw(drawn: Any) -> None:
        axes = drawn.add_subplot()
        width = 0.8 / len(series)
        for number, (label, scores) in enumerate(series.items()):
            places = np.arange(len(bars)) + (number - (len(series) - 1) / 2) * width
            drawn_bars = axes.bar(places, np.nan_to_num(scores), width, label=label)
            labels = ["" if math.isnan(score) else f"{score:.1f}" for score in scores]
            axes.bar_label(drawn_bars, labels, fontsize=7, rotation=90, padding=2)
        axes.set_xticks(range(len(bars)), names, fontsize=8)
        axes.set(ylabel="score, per cent")
        drawn.legend(loc="outside lower center", ncols=len(series), fontsize=7)

    return pictures.picture(draw, (4 + len(bars), 4.5))


def average_of(results: Sequence[TaskResult]) -> tuple[float, list[str]]:
    """Returns GLUE's average (NaN without tasks), and the tasks in it."""
    scores = {one.task: one.scores for one in results if one.task not in NOT_AVERAGED}
    return (glue_average(scores) if scores else math.nan), [*scores]


def report(results: Sequence[TaskResult]) -> str:
    """Returns the table as Markdown, with scores in per cent."""
    header = [
        *("task", "metric", "best, dev", "mean ± sd of restarts", "runs", "failed"),
        *("best settings", "duration"),
        *(f"{model}, test" for model in PAPER),
    ]
    rows = [_row(result) for result in results]
    average, tasks = average_of(results)
    of_average = ""
    if tasks:
        rows += _averages(results, average, len(tasks))
        missing = [one for one in GLUE_TASKS if one not in (*tasks, *NOT_AVERAGED)]
        of_average = (
            f" GLUE's average is the mean over {', '.join(tasks)} of the mean of each"
            " task's metrics, without WNLI"
            + (f"; missing: {', '.join(missing)}." if missing else ".")
            + " The paper's average is that of its table's columns, one metric each,"
            " and MNLI has two."
        )
    return (
        "# GLUE\n\nOurs: scores on the development sets, in per cent, of the runs that"
        f" were chosen on them. Devlin et al. 2018 ({', '.join(PAPER)}): scores on the"
        " test sets, by GLUE's server. The two differ: a run scores less on its test"
        " set than on the development set that it was chosen"
        f" by.\n\n{table(header, rows)}\nRestarts: runs with the best run's settings"
        " and other seeds; their deviation is that of a sample (n - 1). Failed runs"
        f" are no better than always answering the same, or diverged.{of_average}\n"
    )


def _averages(
    results: Sequence[TaskResult], average: float, num_tasks: int
) -> list[list[str]]:
    """Returns rows of GLUE's average, and of an average like the paper's."""
    scores = {result.task: result.scores for result in results}
    columns = [one for one in COLUMNS if one[1] in scores.get(one[0], {})]

    def average_of_columns(of: Mapping[str, Mapping[str, float]]) -> float:
        return statistics.fmean(of[task][metric] for task, metric in columns)

    empty = [""] * 5
    label = f"GLUE's average of {num_tasks} tasks"
    rows = [[label, "", figure(average, 100, 1), *empty, *([""] * len(PAPER))]]
    if columns:
        label = f"the paper's average of {len(columns)} of its {len(COLUMNS)} columns"
        ours = figure(average_of_columns(scores), 100, 1)
        papers = [figure(average_of_columns(each), 1, 1) for each in PAPER.values()]
        rows.append([label, "", ours, *empty, *papers])
    return rows


def _row(result: TaskResult) -> list[str]:
    restarts = result.restarts
    spread = ""
    if len(restarts) > 1:
        spread = f" ± {figure(standard_deviation(restarts), 100, 1)}"
    settings = RunSetting.of_name(result.run)
    papers = (models.get(result.task, {}) for models in PAPER.values())
    return [
        result.task,
        " / ".join(map(short_name, result.scores)),
        " / ".join(figure(score, 100, 1) for score in result.scores.values())
        + (" (failed)" if result.has_failed else ""),
        f"{figure(mean(restarts), 100, 1)}{spread} ({len(restarts)})",
        str(result.num_runs),
        str(result.num_failed),
        f"rate {settings.learning_rate:g}, batch {settings.train_batch_size},"
        f" epochs {settings.num_train_epochs:g}",
        clock(result.seconds),
        *(
            " / ".join(
                figure(scores.get(name, math.nan), 1, 1) for name in result.scores
            )
            for scores in papers
        ),
    ]


# The tasks of GLUE one after the other: which, where from, and their results.


ALL = "all"
SUBMISSION_NAME = "submission"
SUBMISSION_ZIP = "glue_submission.zip"
# Too small to learn entailment on their own: with --two_stage these start from MNLI's
# model (Phang et al. 2018, arXiv 1811.01088).
SECOND_STAGE = ("MRPC", "STS-B", "RTE")


def chosen_tasks(options: GlueOptions) -> list[DataSet]:
    """Returns the tasks of --tasks in the order of their runs."""
    if not files.is_folder(options.glue_dir):
        raise InputError(f"`glue_dir`: no such folder: {options.glue_dir}")
    wants_all = [name.lower() for name in options.tasks] == [ALL]
    names = [*GLUE_TASKS] if wants_all else options.tasks
    chosen: dict[str, DataSet] = {}
    for data_set in map(find, names):
        if data_set.name not in GLUE_TASKS:
            raise InputError(
                f"`tasks`: {data_set.name} is none of GLUE's: {', '.join(GLUE_TASKS)}."
                " Use bert_tf.run_classifier."
            )
        folder = _data_dir(data_set, options)
        names = [data_set.files[split] for split in _splits(data_set, options)]
        paths = [os.path.join(folder, name) for name in names]
        missing = next((path for path in paths if not files.exists(path)), None)
        if missing is None:
            chosen[data_set.name] = data_set
        elif wants_all and not files.exists(folder):
            logging.warning("%s is left out: no folder %s.", data_set.name, folder)
        else:
            raise InputError(
                f"{data_set.name}: no file {missing}. GLUE's files are at"
                " gluebenchmark.com/tasks; `tasks` names the tasks to run, and without"
                " `do_predict` no test files are needed."
            )
    has_mnli = "MNLI" in chosen or files.exists(_best_of(options, "MNLI"))
    if not has_mnli and "AX" in chosen:
        if not wants_all:
            raise InputError("`tasks`: AX is predicted by MNLI's model: add MNLI.")
        logging.warning("AX is left out: MNLI's model predicts it, and there is none.")
        del chosen["AX"]
    if not chosen:
        raise InputError(f"`glue_dir={options.glue_dir}` has none of GLUE's folders.")
    if options.two_stage and not has_mnli and {*chosen} & {*SECOND_STAGE}:
        raise InputError("`two_stage` begins with MNLI's model: add MNLI to `tasks`.")
    # MNLI comes first: other tasks start from its model, or are predicted by it.
    return sorted(chosen.values(), key=lambda data_set: data_set.name != "MNLI")


def check_examples(data_set: DataSet, options: GlueOptions) -> None:
    """Reads all examples of a task, so that errors appear before any training."""
    folder = _data_dir(data_set, options)
    data_set = dataclasses.replace(
        data_set, max_unusable_rows=options.max_unusable_rows
    )
    losses, target = addon("losses").of(options), data_set.target()
    if data_set.dev_splits and losses.changed:
        counts = np.ones(len(target.labels))
        addon("regularization").checked_class_weights(
            losses, data_set.name, target.kind, target.labels, counts
        )
    for split in _splits(data_set, options):
        count = len(data_set.read(folder, split, warns=False))  # the run warns
        wanted = task_file(data_set.name, split)
        if wanted is not None and count != wanted.num_examples:
            raise InputError(
                f"{data_set.path(folder, split)}: {count} examples; the test set of"
                f" {data_set.name} has {wanted.num_examples}, and GLUE's server takes"
                " no other number. Give the whole of it, or `do_predict=false`."
            )


def run(options: GlueOptions) -> RunResult:
    """Runs the tasks, then writes the table and the submission."""
    # Returns the best runs' scores, such as `scores["MRPC/accuracy"]`.
    options = with_recipe(options, RECIPES)
    tasks = chosen_tasks(options)
    strategy = create_strategy(options)
    check_batches(options, strategy)
    for data_set in tasks:
        check_examples(data_set, options)
    logging.info("GLUE: %s", ", ".join(data_set.name for data_set in tasks))
    output_dir = options.output_dir
    with held_for_training(output_dir, strategy):
        results = read_results(output_dir)
        for data_set in tasks:
            name = data_set.name
            found = run_task(data_set, options, strategy, results.get(name))
            if found:
                results[name] = found
                if is_chief(strategy):
                    write_report(results, output_dir)
    returned = RunResult(
        {
            f"{name}/{metric}": score
            for name, result in results.items()
            for metric, score in result.scores.items()
        },
        output_dir,
    )
    if not is_chief(strategy):
        return returned
    if results:
        for line in report([*results.values()]).splitlines():
            logging.info("%s", line)
    if options.do_predict:
        write_submission(
            os.path.join(output_dir, SUBMISSION_NAME),
            os.path.join(output_dir, SUBMISSION_ZIP),
            fill_missing=options.fill_missing_tasks,
        )
    return returned


def run_task(
    data_set: DataSet,
    options: GlueOptions,
    strategy: tf.distribute.Strategy,
    there: TaskResult | None,
) -> TaskResult | None:
    """Runs a task: selection, the best run's scores, predictions; reuses `there`."""
    if data_set.name == "AX" and not options.do_predict:
        return None
    logging.info("***** %s *****", data_set.name)
    values = _options_of(data_set, options)
    folder = values.output_dir
    found = files_of(values, folder)
    task = ClassificationTask(
        values,
        found,
        strategy,
        data_set=data_set,
        submission_dir=os.path.join(options.output_dir, SUBMISSION_NAME),
    )
    run = FineTuning(task, values, found, strategy)
    if data_set.name == "AX":
        model, _ = run.restore(_best_of(options, "MNLI"))
        files.make_folder(folder)
        _scores(run, model, task.test_splits, ())
        return None
    # run_classifier may be given the same folder.
    with held_for_training(folder, strategy):
        selection = run.select(folder)
    predicted = data_set.test_splits if options.do_predict else ()
    inputs: Mapping[str, str] = {
        split: task.identity(split) for split in (*data_set.dev_splits, *predicted)
    }
    is_same = there is not None and there.run == selection.best.settings.name
    if there is not None and is_same and inputs.items() <= there.inputs.items():
        logging.info("%s: the best run is scored already.", data_set.name)
        scores, predicted, inputs = there.scores, there.predicted, there.inputs
    else:
        model, _ = run.restore(_best_of(options, data_set.name))
        run.save_adapter(model, folder)
        scores = _scores(run, model, task.dev_splits, data_set.metrics)
        _scores(run, model, predicted, ())
    return result_of(data_set.name, selection, scores, predicted, inputs)


def _scores(
    run: FineTuning, model: keras.Model, splits: Sequence[str], metrics: Sequence[str]
) -> dict[str, float]:
    """Predicts splits, writes the predictions, and returns scores by some metrics."""
    scores: dict[str, float] = {}
    for split in splits:
        predictions = run.predict(model, split)
        ending = MISMATCHED if split.endswith(MISMATCHED) else ""
        found = run.task.score(split, predictions)
        scores |= {name + ending: found[name] for name in metrics}
        if run.is_chief:
            run.task.write(run.options.output_dir, split, predictions, 0)
    return scores


def _options_of(data_set: DataSet, options: GlueOptions) -> ClassifierOptions:
    """Returns the options of one task's runs."""
    changes: dict[str, Any] = {
        "task_name": data_set.name,
        "do_train": bool(data_set.dev_splits),  # AX has only a test set
        "data_dir": _data_dir(data_set, options),
        "output_dir": os.path.join(options.output_dir, data_set.name),
        "do_eval": bool(data_set.dev_splits),
    }
    if options.two_stage and data_set.name in SECOND_STAGE:
        changes |= {"init_checkpoint": _best_of(options, "MNLI"), "init_head": False}
    return options.to(ClassifierOptions, **changes)


def _splits(data_set: DataSet, options: GlueOptions) -> Sequence[str]:
    """Returns the splits to read."""
    training = ("train", *data_set.dev_splits) if data_set.dev_splits else ()
    return (*training, *(data_set.test_splits if options.do_predict else ()))


def _data_dir(data_set: DataSet, options: GlueOptions) -> str:
    return os.path.join(options.glue_dir, data_set.folder)


def _best_of(options: GlueOptions, task: str) -> str:
    """Returns the folder of a task's best run."""
    return checkpoints.folder_of(os.path.join(options.output_dir, task))
