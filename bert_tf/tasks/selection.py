"""Several runs with other options, and the best of them."""

import dataclasses
import gc
import glob
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import keras
from absl import logging

from bert_tf import files, strict_json
from bert_tf.errors import DivergedError, InputError
from bert_tf.tasks.finetuning import MAJORITY, SELECTION_NAME, FineTuning
from bert_tf.tasks.run_options import Settings
from bert_tf.training import checkpoints
from bert_tf.training.checkpoints import (
    STATE_NAME,
    candidates,
    is_better,
    remove_checkpoint,
)
from bert_tf.training.reporting import Reporter
from bert_tf.training.strategy import Agreement, check_batch_size, is_chief

# Tables in Markdown, for reports.


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is left-aligned, the others right-aligned."""
    widths = [
        max(3, *(len(row[column]) for row in (header, *rows)))
        for column in range(len(header))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |\n"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return line(header) + line(rule) + "".join(map(line, rows))


def figure(value: float, scale: float = 1.0, digits: int = 4) -> str:
    """A score; a dash if there is none."""
    return "–" if math.isnan(value) else f"{scale * value:.{digits}f}"


# The runs of a selection, recorded in OUTPUT_DIR/selection.jsonl.
#
# The first line has what the runs have in common: the data, the initial checkpoint, and
# the metric by which they are compared. Then follows one JSON object per run:
#
#     {"made_with": {"init_checkpoint": ..., ...}, "metric": "accuracy"}
#     {"name": "lr5e-05_bs16_ep3_seed12345", "learning_rate": 5e-05,
#      "train_batch_size": 16, "num_train_epochs": 3.0, "random_seed": 12345,
#      "status": "finished", "scores": {"0.3": {"accuracy": 0.7}, "1.0": {...}},
#      "step": 687, "seconds": 41.2}
#
# `scores` are those on the development set, by the share of the run's steps at which
# they were measured; `step` is the step of the last ones. `status` is `finished`,
# `stopped` (before its last step, to be resumed later) or `failed` (its numbers were
# not finite: `failure` gives the step). `seconds` count the starts that led to a score.
# The file is written before the first run, so that a selection with other data cannot
# resume it, and again after each run; a run listed in it is not repeated.


RUNS_NAME = "runs"

FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """One run.

    Attributes:
        settings: what it was run with.
        scores: share of its steps -> its scores by name after them.
        step: the step of the last of these scores.
        seconds: their duration, with the evaluations.
        failure: why it ended without a score; empty if it did not.
    """

    settings: Settings
    scores: Mapping[float, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    step: int = 0
    seconds: float = 0.0
    failure: str = ""

    @property
    def status(self) -> str:
        """`finished`, `stopped` or `failed`."""
        if self.failure:
            return FAILED
        return FINISHED if 1.0 in self.scores else STOPPED

    @property
    def share(self) -> float:
        """The share of its steps that the run has done."""
        return max(self.scores, default=0.0)

    def score(self, metric: str, share: float = 1.0) -> float:
        """The score after a share of the steps; NaN if there is none.

        If that share was not measured, the next larger one that was.
        """
        later = [at for at in self.scores if at >= share]
        return self.scores[min(later)][metric] if later else math.nan

    def to_json(self) -> dict[str, Any]:
        """The object in the file."""
        return {
            "name": self.settings.name,
            **self.settings._asdict(),
            "status": self.status,
            "scores": {str(share): dict(s) for share, s in self.scores.items()},
            "step": self.step,
            "seconds": round(self.seconds, 3),
            **({"failure": self.failure} if self.failure else {}),
        }

    @classmethod
    def from_json(cls, values: Any, metric: str, source: str) -> "Record":
        """The record that such an object describes."""
        line = strict_json.from_values(_Line, values, source)
        scores = {_share(share, source): named for share, named in line.scores.items()}
        for named in scores.values():
            if not math.isfinite(named.get(metric, math.nan)):
                raise InputError(f"{source}: `scores` must have a finite {metric}.")
        return cls(
            settings=Settings(
                line.learning_rate,
                line.train_batch_size,
                line.num_train_epochs,
                line.random_seed,
            ),
            scores=scores,
            step=line.step,
            seconds=line.seconds,
            failure=line.failure,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Header:
    """The first line."""

    made_with: dict
    metric: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Line:
    """The line of a run."""

    name: str
    learning_rate: float
    train_batch_size: int
    num_train_epochs: float
    random_seed: int
    status: str
    scores: dict[str, dict[str, float]]
    step: int
    seconds: float
    failure: str = ""


def _share(text: str, source: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"{source}: `scores` has {text!r} for a share.") from error


class Records:
    """The records of a folder, in the order in which its runs were first recorded."""

    def __init__(
        self,
        folder: str,
        metric: str,
        made_with: Mapping[str, Any],
        *,
        is_chief: bool = True,
    ) -> None:
        self._path = os.path.join(folder, SELECTION_NAME)
        self._is_chief = is_chief
        # As read back from the file: tuples as lists.
        self._header = json.loads(
            json.dumps({"made_with": dict(made_with), "metric": metric})
        )
        self._records: dict[Settings, Record] = {}
        if files.exists(self._path):
            self._read()

    def __getitem__(self, settings: Settings) -> Record:
        """The run with these settings, or a new record of it."""
        return self._records.get(settings, Record(settings=settings))

    def all(self) -> list[Record]:
        """All runs, including those of earlier starts with other settings."""
        return list(self._records.values())

    def put(self, record: Record) -> None:
        """Adds a run, or replaces it in its place."""
        self._records[record.settings] = record
        self._write()

    def begin(self) -> None:
        """Records what the runs have in common, before the first of them begins."""
        if not self._records:
            self._write()

    def _write(self) -> None:
        if not self._is_chief:
            return
        lines = [self._header, *(one.to_json() for one in self._records.values())]
        files.make_folder(os.path.dirname(self._path))
        files.write_atomically(
            self._path, "".join(json.dumps(line) + "\n" for line in lines)
        )

    def _read(self) -> None:
        lines = files.read_text(self._path).splitlines() or [""]
        advice = "Give another --output_dir."
        try:
            for number, line in enumerate(lines, start=1):
                source = f"{self._path}:{number}"
                values = files.parse_json(line, self._path, number)
                if number == 1:
                    header = strict_json.from_values(_Header, values, source)
                    advice = "Remove the line, and that run is made again."
                    continue
                record = Record.from_json(values, header.metric, source)
                self._records[record.settings] = record
        except InputError as error:
            raise InputError(f"{error} {advice}") from error
        if self._records or self._have_begun():
            self._refuse_others(header.made_with, header.metric)

    def _have_begun(self) -> bool:
        """Whether a run without a record has a checkpoint to resume from."""
        runs = os.path.join(os.path.dirname(self._path), RUNS_NAME)
        return bool(files.glob(os.path.join(glob.escape(runs), "*", STATE_NAME)))

    def _refuse_others(self, there: Mapping[str, Any], metric: str) -> None:
        here = self._header["made_with"]
        # A name that only one of them has is a flag that the other version lacks.
        differing = [name for name in here if name in there]
        differing = [name for name in differing if here[name] != there[name]]
        pairs = [(name, there[name], here[name]) for name in differing]
        if metric != self._header["metric"]:
            pairs.append(("the metric", metric, self._header["metric"]))
        if pairs:
            name, old, new = pairs[0]
            raise InputError(
                f"{self._path} has other runs than these: {name} is {old} there, {new}"
                " here. Give another --output_dir."
            )


# The results of a selection's runs, grouped over their seeds.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The runs of the same settings, whatever their seed.

    Attributes:
        settings: those of its first run.
        scores: of its finished runs that have one.
        num_stopped: runs that were stopped early; no figure includes them.
        num_failed: runs that diverged, or finished with a score no better than the
            majority-class baseline's: failed runs, as Mosbach et al. 2021 define
            them. The latter are in the figures.
    """

    settings: Settings
    scores: tuple[float, ...]
    num_stopped: int
    num_failed: int

    @property
    def num_runs(self) -> int:
        """Runs that ended."""
        return len(self.scores)

    @property
    def mean(self) -> float:
        """The mean score; NaN if no run has one."""
        return statistics.fmean(self.scores) if self.scores else math.nan

    @property
    def standard_deviation(self) -> float:
        """The sample standard deviation, over n - 1; NaN for fewer than two runs."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else math.nan

    @property
    def maximum(self) -> float:
        """The largest score; NaN if no run has one."""
        return max(self.scores, default=math.nan)

    @property
    def minimum(self) -> float:
        """The smallest score; NaN if no run has one."""
        return min(self.scores, default=math.nan)


def grouped(
    records: Sequence[Record], metric: str, baseline: float | None = None
) -> list[Group]:
    """The runs by settings, in the order in which settings first appear."""
    members: dict[tuple[float, int, float], list[Record]] = {}
    for record in records:
        members.setdefault(record.settings[:3], []).append(record)
    return [_group(those, metric, baseline) for those in members.values()]


def has_failed(record: Record, metric: str, baseline: float | None) -> bool:
    """Whether a run diverged, or is no better than the majority-class baseline."""
    if record.status == FAILED:
        return True
    if record.status == STOPPED:
        return False
    score = record.score(metric)
    if math.isnan(score):
        return True
    return baseline is not None and not is_better(score, baseline, metric)


def _group(records: Sequence[Record], metric: str, baseline: float | None) -> Group:
    finished = [record.score(metric) for record in records if record.status == FINISHED]
    return Group(
        settings=records[0].settings,
        scores=tuple(score for score in finished if not math.isnan(score)),
        num_stopped=sum(record.status == STOPPED for record in records),
        num_failed=sum(has_failed(record, metric, baseline) for record in records),
    )


# The weights that a selection keeps: OUTPUT_DIR/best, those of its best run.
#
#     model.ckpt-STEP...      the run's best checkpoint: hard links, or copies
#     best.json               {"metric": ..., "step": ..., "value": ..., "run": NAME}
#     bert_config.json, vocab.txt, ...    the other files of that folder
#
# so that `--init_checkpoint=OUTPUT_DIR/best` means the best run. The folder is replaced
# as a whole and never mixes the files of two runs.


class BestRun:
    """Keeps the best run's weights, and removes those of the others."""

    def __init__(
        self, folder: str, *, keep_all_runs: bool = False, is_chief: bool = True
    ) -> None:
        self._folder = checkpoints.folder_of(folder)
        self._keep_all_runs = keep_all_runs
        self._is_chief = is_chief

    def keep(self, folder: str) -> None:
        """Makes the best checkpoint of the run in this folder the selection's."""
        name = os.path.basename(folder)
        if not self._is_chief or self._kept() == name:
            return
        source = checkpoints.folder_of(folder)
        best = checkpoints.read_best(folder)
        if best is None:
            raise InputError(
                f"{source} has no checkpoint, but its run is the best one. Bring its"
                " files back, or remove the run's line from selection.jsonl to make it"
                " again."
            )
        # Left incomplete by a kill.
        for leftover in files.glob(f"{glob.escape(self._folder)}.tmp-*"):
            files.remove(leftover)
        temporary = files.temporary_name(self._folder)
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
        if files.exists(self._folder):
            files.remove(self._folder)
        files.replace(temporary, self._folder)

    def discard(self, folder: str) -> None:
        """Removes a run's checkpoints, but not its metrics and flags."""
        if not self._is_chief or self._keep_all_runs or not files.is_folder(folder):
            return
        for prefix in candidates(folder):
            remove_checkpoint(prefix)
        for name in (STATE_NAME, checkpoints.FOLDER_NAME):
            path = os.path.join(folder, name)
            if files.exists(path):
                files.remove(path)

    def _kept(self) -> str | None:
        """The run whose weights are kept there."""
        best = checkpoints.read_best_file(self._folder)
        return best.run if best else None


# The runs of a selection, one after the other: made, recorded, kept or removed.


class Outcome(NamedTuple):
    """A run's result.

    Attributes:
        scores: its scores on the development set.
        step: the step at which they were measured.
    """

    scores: Mapping[str, float]
    step: int


# Settings, the run's folder, the share of its steps to train for. A second call with a
# larger share resumes the run in its folder. DivergedError: the run has failed.
Run = Callable[[Settings, str, float], Outcome]


class Keeper(Protocol):
    """Manages the weights of runs. Both methods may be called repeatedly."""

    def keep(self, folder: str) -> None:
        """Makes the weights of the run in this folder the ones to keep."""

    def discard(self, folder: str) -> None:
        """Frees the space that the weights in this folder take."""


class Trials:
    """Makes and records runs, and finds the best one."""

    def __init__(
        self, run: Run, records: Records, folder: str, metric: str, keeper: Keeper
    ) -> None:
        self._run = run
        self._records = records
        self._folder = folder
        self._metric = metric
        self._keeper = keeper
        # The selection may have been killed between a record and its weights.
        self._tidy()

    def missing(self, settings: Sequence[Settings], share: float) -> list[Settings]:
        """The runs that have neither reached that share nor failed."""
        return [
            one
            for one in settings
            if self._records[one].status != FAILED and self._records[one].share < share
        ]

    def make(
        self, settings: Sequence[Settings], share: float, *, num_to_end: int = 0
    ) -> None:
        """Trains each run to a share of its steps, unless it is there already."""
        missing = self.missing(settings, share)
        if len(missing) < len(settings):
            logging.info(
                "%d of %d runs are made already.",
                len(settings) - len(missing),
                len(settings),
            )
        epochs = [one.num_train_epochs for one in settings]
        later = num_to_end * (1.0 - share) * sum(epochs) / len(epochs)
        for position, one in enumerate(missing, start=1):
            record = self._make_one(one, share)
            self._records.put(record)
            self._tidy()
            left = later + sum(
                (share - self._records[other].share) * other.num_train_epochs
                for other in missing[position:]
            )
            label = f"run {settings.index(one) + 1} of {len(settings)}"
            self._log(label, record, share, left)

    def best(self) -> Record | None:
        """The finished run with the best score, the first of equals, if any."""
        finished = {
            one.settings: one.score(self._metric)
            for one in self._records.all()
            if one.status == FINISHED
        }
        return self._records[ranked(finished, self._metric)[0]] if finished else None

    def folder_of(self, settings: Settings) -> str:
        """A run's folder."""
        return os.path.join(self._folder, RUNS_NAME, settings.name)

    def _make_one(self, settings: Settings, share: float) -> Record:
        before = self._records[settings]
        began = time.monotonic()
        try:
            outcome = self._run(settings, self.folder_of(settings), share)
        except DivergedError as error:
            after = dataclasses.replace(before, failure=" ".join(str(error).split()))
        else:
            if self._metric not in outcome.scores:
                raise InputError(
                    f"--best_metric={self._metric} is none of the scores on the"
                    f" development set: {', '.join(outcome.scores)}."
                )
            after = dataclasses.replace(
                before,
                scores={**before.scores, share: dict(outcome.scores)},
                step=outcome.step,
            )
        seconds = before.seconds + time.monotonic() - began
        return dataclasses.replace(after, seconds=seconds)

    def _tidy(self) -> None:
        """Keeps the best run's weights; frees the space of the other ended ones."""
        best = self.best()
        if best is not None:
            self._keeper.keep(self.folder_of(best.settings))
        for record in self._records.all():
            has_ended = record.status in (FINISHED, FAILED)
            if has_ended and (best is None or record.settings != best.settings):
                self._keeper.discard(self.folder_of(record.settings))

    def _log(self, label: str, record: Record, share: float, left: float) -> None:
        """One line for the run just made; `left` are the epochs still to train."""
        records = self._records.all()
        done = sum(one.share * one.settings.num_train_epochs for one in records)
        seconds = sum(one.seconds for one in records if one.share)
        best = self.best()
        if record.failure:
            came_to = "failed, its numbers are not finite"
        else:
            came_to = f"{self._metric} {record.score(self._metric, share):.4g}"
            came_to += f" after {share:g} of its steps" if share < 1.0 else ""
        logging.info(
            "%s: %s -> %s%s, %s%s",
            label,
            record.settings.name,
            came_to,
            f" (best {best.score(self._metric):.4g})" if best else "",
            clock(record.seconds),
            f", about {clock(seconds / done * left)} left" if done and left else "",
        )


def ranked(scores: Mapping[Settings, float], metric: str) -> list[Settings]:
    """The settings, best score first, equals in their order; NaN comes last."""
    order: list[Settings] = []
    for settings, score in scores.items():
        position = len(order)
        while position and is_better(score, scores[order[position - 1]], metric):
            position -= 1
        order.insert(position, settings)
    return order


def clock(seconds: float) -> str:
    """HH:MM:SS."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


# Choosing a fine-tuning run's settings by its score on the development set.
#
# Devlin et al. 2018, section 4.1: each task's learning rate is chosen among four in
# this way, for the large model with several random restarts. Each run has its own
# folder, OUTPUT_DIR/runs/NAME, and a record. A selection can be killed at any time;
# started again, it completes what is missing. With other settings, their runs are added
# to the existing ones.
#
# Early stopping is the scheme of Dodge et al. 2020 (arXiv 2002.06305): start many runs,
# stop all of them after a share of their steps, and continue only the best.


class StopEarly(NamedTuple):
    """How runs are stopped early.

    Attributes:
        at: the share of the steps after which all runs are compared, above 0 and
            below 1.
        keep: how many of them to continue; None for a third, rounded up.
    """

    at: float
    keep: int | None = None

    def num_kept(self, num_runs: int) -> int:
        """How many of that many runs to continue."""
        return min(self.keep or math.ceil(num_runs / 3), num_runs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """The result of a selection.

    Attributes:
        metric: the score by which the runs were compared.
        best: the finished run with the best score, the first of equals.
        best_folder: that run's folder.
        records: all runs, including those of earlier starts with other settings.
        baseline: the majority-class baseline's score; None if unknown.
    """

    metric: str
    best: Record
    best_folder: str
    records: Sequence[Record]
    baseline: float | None = None


def select(
    run: Run,
    settings: Sequence[Settings],
    *,
    folder: str,
    metric: str,
    keeper: Keeper,
    made_with: Mapping[str, Any],
    stop_early: StopEarly | None = None,
    baseline: float | None = None,
    is_chief: bool = True,
) -> Selection:
    """Makes the missing runs, and finds the best one."""
    records = Records(folder, metric, made_with, is_chief=is_chief)
    records.begin()
    trials = Trials(run, records, folder, metric, keeper)
    if stop_early is None:
        trials.make(settings, 1.0)
    else:
        count = stop_early.num_kept(len(settings))
        trials.make(settings, stop_early.at, num_to_end=count)
        hopeful = _hopeful(records, settings, stop_early, metric)
        _log_hopeful(records, hopeful, len(settings), stop_early, metric)
        # If one of them fails, the next best takes its place.
        while trials.missing(hopeful, 1.0):
            trials.make(hopeful, 1.0)
            hopeful = _hopeful(records, settings, stop_early, metric)
    best = trials.best()
    if best is None:
        failures = [one.failure for one in records.all() if one.failure]
        raise InputError(
            f"All {len(failures)} runs have failed; without their lines in"
            f" {os.path.join(folder, SELECTION_NAME)} they are made again. The first"
            f" one: {failures[0]}"
        )
    return Selection(
        metric=metric,
        best=best,
        best_folder=trials.folder_of(best.settings),
        records=records.all(),
        baseline=baseline,
    )


def _hopeful(
    records: Records, settings: Sequence[Settings], stop_early: StopEarly, metric: str
) -> list[Settings]:
    """The runs to continue, best first."""
    scores = {
        one: records[one].score(metric, stop_early.at)
        for one in settings
        if records[one].status != FAILED
    }
    return ranked(scores, metric)[: stop_early.num_kept(len(settings))]


def _log_hopeful(
    records: Records,
    hopeful: Sequence[Settings],
    num_runs: int,
    stop_early: StopEarly,
    metric: str,
) -> None:
    if hopeful:
        logging.info(
            "After %g of their steps, going on with the best %d of %d runs (%s from"
            " %.4g up to %.4g); the others stay where they are.",
            stop_early.at,
            len(hopeful),
            num_runs,
            metric,
            records[hopeful[-1]].score(metric, stop_early.at),
            records[hopeful[0]].score(metric, stop_early.at),
        )


# A selection's report: OUTPUT_DIR/selection.md, and the log.


REPORT_NAME = "selection.md"


def write_report(selection: Selection, folder: str) -> None:
    """Writes the report, and logs its part on each of the settings."""
    files.write_atomically(os.path.join(folder, REPORT_NAME), report(selection))
    for line in _groups(selection).splitlines():
        logging.info("%s", line)
    logging.info("%s", _headline(selection))


def report(selection: Selection) -> str:
    """The report, as Markdown: the best run, the settings, all runs."""
    return (
        f"# {_headline(selection)}\n\n"
        f"By the {selection.metric} on the development set, which the runs were chosen"
        f" by: on other data expect less than the best run's. {_failed(selection)}\n\n"
        f"{_groups(selection)}\n"
        "Standard deviations are those of samples (n - 1). Runs that were stopped early"
        " are in no figure; their checkpoints wait to be gone on with.\n\n"
        f"{_runs(selection)}"
    )


def _headline(selection: Selection) -> str:
    best = selection.best
    return (
        f"Best of {len(selection.records)} runs: {best.settings.name},"
        f" {selection.metric} {best.score(selection.metric):.4f}"
    )


def _failed(selection: Selection) -> str:
    if selection.baseline is None:
        return "A failed run is one whose numbers were not finite."
    return (
        "A failed run is one that is no better than always answering the same"
        f" ({selection.baseline:.4f}; Mosbach et al. 2021), or whose numbers were not"
        " finite."
    )


def _groups(selection: Selection) -> str:
    header = [
        *("learning rate", "batch", "epochs", "runs"),
        *("mean", "standard deviation", "maximum", "minimum", "failed"),
        "stopped early",
    ]
    groups = grouped(selection.records, selection.metric, selection.baseline)
    return table(header, [_selection_report_group(group) for group in groups])


def _selection_report_group(group: Group) -> list[str]:
    return [
        f"{group.settings.learning_rate:g}",
        str(group.settings.train_batch_size),
        f"{group.settings.num_train_epochs:g}",
        str(group.num_runs),
        figure(group.mean),
        figure(group.standard_deviation),
        figure(group.maximum),
        figure(group.minimum),
        str(group.num_failed),
        str(group.num_stopped),
    ]


def _runs(selection: Selection) -> str:
    others = {
        name: None
        for record in selection.records
        for scores in record.scores.values()
        for name in scores
        if name not in (selection.metric, MAJORITY)
    }
    header = ["run", "status", selection.metric, *others, "at step", "duration"]
    return table(header, [_run(one, selection, [*others]) for one in selection.records])


def _run(record: Record, selection: Selection, others: list[str]) -> list[str]:
    status = record.status
    if status == STOPPED:
        status = f"stopped at {record.share:g}"
    elif status != FAILED and has_failed(record, selection.metric, selection.baseline):
        status += ", failed"
    scores = record.scores[record.share] if record.scores else {}
    return [
        record.settings.name,
        status,
        *(figure(scores.get(n, float("nan"))) for n in (selection.metric, *others)),
        str(record.step),
        clock(record.seconds),
    ]


# A selection for a session: a single run, and what all runs have in common.


# Flags that decide where and how fast a run is made, or what is logged, or that a
# record's settings already include: runs that differ in them belong together.
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


def search(tuning: FineTuning, output_dir: str) -> Selection:
    """Makes the runs that the options ask for, and keeps the best one.

    Its weights are in OUTPUT_DIR/best, from where `FineTuning.restore` takes them.
    """
    options, task, metric = tuning.options, tuning.task, tuning.metric
    settings = options.settings
    _refuse_what_would_fail_later(tuning, settings, output_dir)
    chief = is_chief(tuning.strategy)
    stop_early = None
    if options.stop_early:
        stop_early = StopEarly(options.stop_early_at, options.stop_early_keep)

    def run(settings: Settings, folder: str, until: float) -> Outcome:
        model, step = tuning.fine_tune(folder, settings, until=until)
        scores = tuning.scores(model, task.dev_splits[0])
        outcome = _best_of_run(folder, step, scores, metric)
        # Those of intermediate evaluations are kept already. A run stopped for
        # comparison is not: its weights would stay the best even if it ends worse.
        is_last = until == 1.0 and outcome.step == step
        if chief and is_last and metric in outcome.scores:
            checkpoints.keep_if_best(folder, step, outcome.scores[metric], metric)
        del model
        tuning.forget_model()
        # Graphs and variables form reference cycles.
        keras.backend.clear_session()
        gc.collect()
        return outcome

    selection = select(
        run,
        settings,
        folder=output_dir,
        metric=metric,
        keeper=BestRun(output_dir, keep_all_runs=options.keep_all_runs, is_chief=chief),
        made_with=made_with(tuning),
        stop_early=stop_early,
        baseline=task.baseline(metric),
        is_chief=chief,
    )
    if chief:
        write_report(selection, output_dir)
    # The best run's files are read after the chief has written them.
    Agreement(tuning.strategy, 1).sum([0.0])
    return selection


def _refuse_what_would_fail_later(
    tuning: FineTuning, settings: Sequence[Settings], output_dir: str
) -> None:
    """Raises InputError for errors that would stop a later run, or the end."""
    if files.exists(os.path.join(output_dir, STATE_NAME)):
        raise InputError(
            f"--output_dir={output_dir} holds a single run, whose best/ would make way"
            " for the best of several. Give another folder."
        )
    several = tuning.options.train_batch_sizes
    flag = "train_batch_sizes" if several else "train_batch_size"
    for batch_size in {one.train_batch_size for one in settings}:
        check_batch_size(
            tuning.strategy,
            batch_size,
            tuning.options.gradient_accumulation_steps,
            flag=flag,
        )


def made_with(tuning: FineTuning) -> dict[str, Any]:
    """Name -> value of all that decides a run's result, except its settings."""
    task, options = tuning.task, tuning.options
    found: dict[str, Any] = {"the task": task.name}
    for name, value in sorted(options.as_flags().items()):
        if name in _NO_DIFFERENCE:
            continue
        if name in _PATHS and value and files.exists(value):
            value = _identity(value)
        found[name] = value
    for split in ("train", task.dev_splits[0]):
        found[f"the {split} examples"] = task.identity(split)
    return found


def _identity(path: str) -> str:
    """What a path names; for a selection's best run, also which run it is."""
    best = checkpoints.read_best_file(path)
    return files.absolute(path) + (f" ({best.run})" if best and best.run else "")


def _best_of_run(
    folder: str, step: int, scores: Mapping[str, float], metric: str
) -> Outcome:
    """A run's last scores, or those of an intermediate evaluation if better."""
    best = checkpoints.read_best(folder)
    last = scores.get(metric)
    if last is not None and not math.isfinite(last):
        raise DivergedError(f"The {metric} on the development set is {last}.")
    if best is not None and last is not None and best.metric == metric:
        before = Reporter(folder, step, is_chief=False).evaluation(best.step)
        if before and not checkpoints.is_better(last, best.value, metric):
            return Outcome(before, best.step)
    return Outcome(scores, step)
