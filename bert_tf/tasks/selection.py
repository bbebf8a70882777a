"""Several runs with different settings, and the best of them.

Devlin et al. 2018, section 4.1: each task's learning rate is chosen among four by the
score on the development set, for the large model with several random restarts. Each run
has its own folder, OUTPUT_DIR/runs/NAME, and a record. A selection can be killed at any
time; started again, it makes only the missing runs. Runs with other settings are added
to the existing ones.

Early stopping is the scheme of Dodge et al. 2020 (arXiv 2002.06305): start many runs,
stop all of them after a share of their steps, and continue only the best.

OUTPUT_DIR/selection.jsonl (`bert_tf.tasks.run_log`) is written before the first run, so
that a selection with other data cannot resume it, and again after each run; runs listed
in it are not repeated.

OUTPUT_DIR/best has the best run's weights, and can be given as --init_checkpoint: it
has `model.ckpt-STEP...` (hard links, or copies), best.json, which also names the run,
and the other files of that run's best/. It is replaced as a whole, and never mixes the
files of two runs.
"""

import dataclasses
import glob
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import DivergedError, InputError
from bert_tf.base.options import BEST_FOLDER, deciding, declarations
from bert_tf.base.pictures import figure, table
from bert_tf.conversion.source import folder_of
from bert_tf.tasks import run_log
from bert_tf.tasks.metrics import (
    LEVEL,
    expected_best,
    mean,
    paired_test,
    standard_deviation,
)
from bert_tf.tasks.run_log import FAILED, FINISHED, STOPPED, RunRecord, Scores
from bert_tf.tasks.run_options import FineTuningOptions, RunSetting
from bert_tf.tasks.task import FineTuningTask
from bert_tf.training import checkpoints
from bert_tf.training.checkpoints import (
    STATE_NAME,
    candidates,
    is_better,
    remove_checkpoint,
)
from bert_tf.training.reporting import Reporter
from bert_tf.training.strategy import (
    Strategy,
    check_batch_size,
    is_chief,
    sum_over_workers,
)

RUNS_NAME = "runs"
REPORT_NAME = "selection.md"


@dataclasses.dataclass(eq=False)
class RunLog:
    """A folder's run records, in the order of the runs' first records."""

    folder: str
    metric: str
    made_with: Mapping[str, Any]
    is_chief: bool = True

    def __post_init__(self) -> None:
        # Converted like the values that are read back: tuples become lists.
        made_with = json.loads(json.dumps(dict(self.made_with)))
        self._header = run_log.Header(made_with=made_with, metric=self.metric)
        self._records: dict[RunSetting, RunRecord] = {}
        if files.exists(run_log.path_in(self.folder)):
            self._read()
        if not self._records:
            self._write()

    def __getitem__(self, settings: RunSetting) -> RunRecord:
        """Returns the run with these settings, or a new record."""
        return self._records.get(settings, RunRecord(settings=settings))

    def all(self) -> list[RunRecord]:
        """Returns all runs, including other settings of earlier starts."""
        return list(self._records.values())

    def put(self, record: RunRecord) -> None:
        """Adds a run, or replaces its record."""
        self._records[record.settings] = record
        self._write()

    def best(self) -> RunRecord | None:
        """Returns the best finished run (the first of equals), or None."""
        finished = [one.settings for one in self.all() if one.status == FINISHED]
        return self[self.ranked(finished)[0]] if finished else None

    def ranked(
        self, settings: Iterable[RunSetting], share: float = 1.0
    ) -> list[RunSetting]:
        """Sorts runs by score after a share of the steps, best first, NaN last."""
        sign = -1.0 if is_better(1.0, 0.0, self.metric) else 1.0
        scores = {one: sign * self[one].score(self.metric, share) for one in settings}
        return sorted(scores, key=lambda one: (math.isnan(scores[one]), scores[one]))

    def _write(self) -> None:
        if self.is_chief:
            run_log.write(self.folder, self._header, self.all())

    def _read(self) -> None:
        there, records = run_log.read(self.folder)
        self._records = {one.settings: one for one in records}
        # Even without a record, a run may have a checkpoint to resume from.
        runs = os.path.join(glob.escape(self.folder), RUNS_NAME)
        if not self._records and not files.glob(os.path.join(runs, "*", STATE_NAME)):
            return
        old = {**there.made_with, "the metric": there.metric}
        new = {**self._header.made_with, "the metric": self._header.metric}
        # A name in only one of them is a flag that the other version lacks.
        for name in new:
            if name in old and new[name] != old[name]:
                raise InputError(
                    f"{run_log.path_in(self.folder)} has other runs than these: {name}"
                    f" is {old[name]} there, {new[name]} here. Give another"
                    " `output_dir`."
                )


@dataclasses.dataclass
class BestRun:
    """The best run's weights; removes all others."""

    output_dir: str
    keep_all_runs: bool = False
    is_chief: bool = True

    def keep(self, folder: str) -> None:
        """Makes a run's best checkpoint the best of the selection."""
        if not self.is_chief:
            return  # nor may it read files that the chief is replacing
        name, target = os.path.basename(folder), checkpoints.folder_of(self.output_dir)
        kept = checkpoints.read_best(target)
        if kept and kept.run == name:
            return
        source = checkpoints.folder_of(folder)
        best = checkpoints.read_best(source)
        if best is None:
            raise InputError(
                f"{source} has no checkpoint, but its run is the best one. Bring its"
                " files back, or remove the run's line from selection.jsonl."
            )
        # An incomplete copy of a killed run.
        for leftover in files.glob(f"{glob.escape(target)}.tmp-*"):
            files.remove(leftover)
        temporary = files.temporary_name(target)
        files.make_folder(temporary)
        for file in files.names_in(source):
            if file != checkpoints.BEST_NAME:
                checkpoints.link(
                    os.path.join(source, file), os.path.join(temporary, file)
                )
        described = {"metric": best.metric, "step": best.step, "value": best.value}
        files.write_atomically(
            os.path.join(temporary, checkpoints.BEST_NAME),
            json.dumps({**described, "run": name}) + "\n",
        )
        if files.exists(target):
            files.remove(target)
        files.replace(temporary, target)

    def discard(self, folder: str) -> None:
        """Removes a run's checkpoints, but keeps its metrics and flags."""
        if not self.is_chief or self.keep_all_runs or not files.is_folder(folder):
            return
        for prefix in candidates(folder):
            remove_checkpoint(prefix)
        for name in (STATE_NAME, BEST_FOLDER):
            path = os.path.join(folder, name)
            if files.exists(path):
                files.remove(path)


# (setting, the run's folder, share of its steps to train) -> (scores on the development
# set, their step). A call with a larger share resumes the run in its folder.
# DivergedError: the run has failed.
Run = Callable[[RunSetting, str, float], tuple[Scores, int]]


class Selection(NamedTuple):
    """The result of a selection."""

    metric: str
    best: RunRecord  # the finished run with the best score, the first of equals
    # All runs, including other settings of earlier starts.
    records: Sequence[RunRecord]
    baseline: float | None = None  # the majority class's score; None if unknown


def select(
    run: Run,
    settings: Sequence[RunSetting],
    records: RunLog,
    keeper: BestRun,
    *,
    stop_early_at: float | None = None,  # share of the steps; None: never
    stop_early_keep: int | None = None,  # default: a third, rounded up
) -> RunRecord:
    """Makes the missing runs, and returns the best one."""
    metric, runs = records.metric, os.path.join(records.folder, RUNS_NAME)

    def tidy() -> None:
        """Keeps the best run's weights; removes those of other ended runs."""
        best = records.best()
        if best is not None:
            keeper.keep(os.path.join(runs, best.settings.name))
        for record in records.all():
            if record.status != STOPPED and record is not best:
                keeper.discard(os.path.join(runs, record.settings.name))

    def make(wanted: Sequence[RunSetting], share: float) -> bool:
        """Trains runs to a share of their steps; returns whether any was left to do."""
        missing = [
            one
            for one in wanted
            if records[one].status != FAILED and records[one].share < share
        ]
        if made := len(wanted) - len(missing):
            logging.info("%d of %d runs are made already.", made, len(wanted))
        for one in missing:
            record = _made(run, records[one], os.path.join(runs, one.name), share)
            records.put(record)
            tidy()
            result = "failed, its numbers are not finite"
            if not record.failure:
                result = f"{metric} {record.score(metric, share):.4g}"
                result += f" after {share:g} of its steps" if share < 1.0 else ""
            best = records.best()
            logging.info(
                "run %d of %d: %s -> %s%s, %s",
                wanted.index(one) + 1,
                len(wanted),
                one.name,
                result,
                f" (best {best.score(metric):.4g})" if best else "",
                clock(record.seconds),
            )
        return bool(missing)

    tidy()  # a kill may have come between record and weights
    if stop_early_at is None:
        make(settings, 1.0)
    else:
        count = min(stop_early_keep or math.ceil(len(settings) / 3), len(settings))
        make(settings, stop_early_at)
        logging.info("The best %d of the %d runs continue.", count, len(settings))
        # If one fails, the next best takes its place.
        is_changed = True
        while is_changed:
            going = [one for one in settings if records[one].status != FAILED]
            is_changed = make(records.ranked(going, stop_early_at)[:count], 1.0)
    best = records.best()
    if best is None:
        failures = [one.failure for one in records.all() if one.failure]
        path = run_log.path_in(records.folder)
        raise InputError(
            f"All {len(failures)} runs have failed; to run them again, remove their"
            f" lines from {path}. The first one: {failures[0]}"
        )
    return best


def _made(run: Run, before: RunRecord, folder: str, share: float) -> RunRecord:
    """Trains a run to a share of its steps, and returns its record."""
    began = time.monotonic()
    try:
        scores, step = run(before.settings, folder, share)
    except DivergedError as error:
        after = dataclasses.replace(before, failure=" ".join(str(error).split()))
    else:
        all_scores = {**before.scores, share: dict(scores)}
        after = dataclasses.replace(before, scores=all_scores, step=step)
    seconds = before.seconds + time.monotonic() - began
    return dataclasses.replace(after, seconds=seconds)


def search(
    task: FineTuningTask,
    options: FineTuningOptions,
    strategy: Strategy,
    fine_tune: Callable[..., tuple[Scores, int]],
    *,
    metric: str,
    output_dir: str,
) -> Selection:
    """Makes the requested runs, and keeps the best one's weights in OUTPUT_DIR/best.

    `fine_tune(folder, options, until=share)` returns a run's last scores and step.
    """
    if files.exists(os.path.join(output_dir, STATE_NAME)):
        raise InputError(
            f"`output_dir={output_dir}` holds a single run, whose best/ would be"
            " overwritten. Give another folder."
        )
    several = "train_batch_sizes" if options.train_batch_sizes else "train_batch_size"
    for one in options.settings:
        check_batch_size(
            strategy,
            one.train_batch_size,
            options.gradient_accumulation_steps,
            flag=several,
        )
    chief = is_chief(strategy)

    def run(settings: RunSetting, folder: str, until: float) -> tuple[Scores, int]:
        last_scores, last_step = fine_tune(folder, settings.of(options), until=until)
        scores, step = _best_of_run(folder, last_step, last_scores, metric)
        # The best intermediate evaluation is kept already. A run stopped here for a
        # comparison is not kept: its weights would stay the best even if the whole run
        # ended worse.
        if chief and until == 1.0 and step == last_step and metric in scores:
            checkpoints.keep_if_best(folder, step, scores[metric], metric)
        return scores, step

    records = RunLog(output_dir, metric, made_with(task, options), chief)
    best = select(
        run,
        options.settings,
        records,
        BestRun(output_dir, keep_all_runs=options.keep_all_runs, is_chief=chief),
        stop_early_at=options.stop_early_at if options.stop_early else None,
        stop_early_keep=options.stop_early_keep,
    )
    baseline = task.baseline(task.dev_splits[0], metric)
    selection = Selection(metric, best, records.all(), baseline)
    if chief:
        write_report(selection, output_dir)
    # Wait until the chief has written the best run's files.
    sum_over_workers(strategy, [0.0])
    return selection


def made_with(task: FineTuningTask, options: FineTuningOptions) -> dict[str, Any]:
    """Returns all values that decide a run's result, except its settings, by name."""
    found: dict[str, Any] = {"the task": task.name}
    names = deciding(type(options), "numbers", "reading", "model", "result")
    values = options.as_flags()
    declared = declarations(type(options))
    for name in sorted(names):
        value = values[name]
        if declared[name].path and value and files.exists(value):
            # A selection's best checkpoint also has the name of its run.
            best = checkpoints.read_best(folder_of(value))
            value = files.absolute(value)
            value += f" ({best.run})" if best and best.run else ""
        found[name] = value
    for split in ("train", task.dev_splits[0]):
        found[f"the {split} examples"] = task.identity(split)
    return found


def _best_of_run(
    folder: str, step: int, scores: Scores, metric: str
) -> tuple[Scores, int]:
    """Returns a run's last scores, or an intermediate evaluation's if better."""
    best = checkpoints.read_best(checkpoints.folder_of(folder))
    last = scores.get(metric)
    if last is not None and not math.isfinite(last):
        raise DivergedError(f"The {metric} on the development set is {last}.")
    if best is not None and last is not None and best.metric == metric:
        before = Reporter(folder, step, is_chief=False).evaluation(best.step)
        if before and not is_better(last, best.value, metric):
            return before, best.step
    return scores, step


# The report: OUTPUT_DIR/selection.md, and the log.


def clock(seconds: float) -> str:
    """Returns seconds as HH:MM:SS."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def finished_scores(records: Sequence[RunRecord], metric: str) -> tuple[float, ...]:
    """Returns the scores of finished runs that have one."""
    scores = (one.score(metric) for one in records if one.status == FINISHED)
    return tuple(score for score in scores if not math.isnan(score))


def write_report(selection: Selection, folder: str) -> None:
    """Writes the report, and logs its part on the settings."""
    files.write_atomically(os.path.join(folder, REPORT_NAME), report(selection))
    for line in (*_groups(selection).splitlines(), _headline(selection)):
        logging.info("%s", line)


def report(selection: Selection) -> str:
    """Returns a Markdown report: the best run, and the runs of every setting."""
    failed = "one whose numbers were not finite."
    if selection.baseline is not None:
        failed = (
            "one that is no better than always answering the same"
            f" ({selection.baseline:.4f}; Mosbach et al. 2021), or whose numbers were"
            " not finite."
        )
    return (
        f"# {_headline(selection)}\n\n"
        f"Scores are the {selection.metric} on the development set. The runs were"
        " chosen by it, so expect less than the best run's score on other data. A"
        f" failed run is {failed}\n\n"
        f"{_groups(selection)}\n"
        f"{_what_seeds_explain(selection)}\n\n"
        "Standard deviations are those of samples (n - 1). Runs that were stopped early"
        f" are in no figure; they can be resumed. Each run is in {run_log.NAME}.\n"
    )


def _what_seeds_explain(selection: Selection) -> str:
    """Describes whether the best settings beat chance, and how much trying helps."""
    metric = selection.metric
    groups: dict[tuple, dict[int, float]] = {}
    for record in selection.records:
        if finished_scores([record], metric):
            scores = groups.setdefault(record.settings[:3], {})
            scores[record.settings.random_seed] = record.score(metric)
    best = groups.pop(selection.best.settings[:3])
    sign = 1.0 if is_better(1.0, 0.0, metric) else -1.0
    every = [*best.values(), *(x for each in groups.values() for x in each.values())]
    expected = expected_best([sign * score for score in every])
    lines = [
        "Expected best of 1, 2, ... such runs (Dodge et al. 2019): "
        + ", ".join(figure(sign * score) for score in expected)
        + "."
    ]
    if not groups:
        return lines[0]
    next_best = max(groups.values(), key=lambda of: sign * mean([*of.values()]))
    p_value = paired_test(next_best, best).p_value
    if math.isnan(p_value):
        return lines[0] + (
            " What seeds alone explain is unknown: give `num_restarts=5`, and the best"
            " settings are compared with the next best."
        )
    is_better_on_average = sign * mean([*best.values()]) > sign * mean(
        [*next_best.values()]
    )
    is_chance = p_value > 1.0 - LEVEL or not is_better_on_average
    lines.append(
        "The best run's settings are"
        + (" within what seeds explain of" if is_chance else " better than")
        + f" the next best: p = {p_value:.3f} (paired t-test over"
        f" {len({*best} & {*next_best})} seeds)."
    )
    return " ".join(lines)


def _headline(selection: Selection) -> str:
    best, metric = selection.best, selection.metric
    count, name = len(selection.records), best.settings.name
    return f"Best of {count} runs: {name}, {metric} {best.score(metric):.4f}"


def _groups(selection: Selection) -> str:
    """Returns a table of settings: their runs' scores over all seeds."""
    header = [
        *("learning rate", "batch", "epochs", "runs"),
        *("mean", "standard deviation", "maximum", "minimum", "failed"),
        "stopped early",
    ]
    groups: dict[tuple, list[RunRecord]] = {}
    for record in selection.records:
        groups.setdefault(record.settings[:3], []).append(record)
    rows = []
    metric, baseline = selection.metric, selection.baseline
    for (rate, batch_size, epochs), records in groups.items():
        scores = finished_scores(records, metric)
        figures = [mean(scores), standard_deviation(scores)]
        figures += [max(scores, default=math.nan), min(scores, default=math.nan)]
        failed = sum(one.has_failed(metric, baseline) for one in records)
        stopped = sum(one.status == STOPPED for one in records)
        row = [f"{rate:g}", str(batch_size), f"{epochs:g}", str(len(scores))]
        rows.append([*row, *map(figure, figures), str(failed), str(stopped)])
    return table(header, rows)
