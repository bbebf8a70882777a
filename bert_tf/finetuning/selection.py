"""Choosing a fine-tuning run's settings by its score on the development set.

Devlin et al. 2018, section 4.1: each task's learning rate is chosen that way among
four, and for the large model from random restarts too. Each run has a folder of its
own, OUTPUT_DIR/runs/NAME, and a record (`bert_tf.finetuning.records`). Killed at any
moment and started again, a selection goes on with what is missing; with other settings,
their runs are added to those that are there.

Stopping early is the scheme of Dodge et al. 2020 (arXiv 2002.06305): start many runs,
stop all of them after a share of their steps, and go on with the best alone.
"""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.errors import InputError
from bert_tf.finetuning.records import FAILED, RECORDS_NAME, Record, Records
from bert_tf.finetuning.settings import Settings
from bert_tf.finetuning.trials import Keeper, Run, Trials, ranked


class StopEarly(NamedTuple):
    """How runs are stopped early.

    Attributes:
        at: the share of the steps after which all runs are compared, above 0 and
            below 1.
        keep: how many of them go on; None for a third, rounded up.
    """

    at: float
    keep: int | None = None

    def num_kept(self, num_runs: int) -> int:
        """How many of so many runs go on."""
        return min(self.keep or math.ceil(num_runs / 3), num_runs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """What came out.

    Attributes:
        metric: the score that the runs were compared by.
        best: the finished run with the best score, the first one of equals.
        best_folder: that run's folder.
        records: all runs, those of earlier starts with other settings too.
        baseline: the score of who always answers the same; None where nobody knows.
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
    """Makes the runs that are missing, and finds the best one."""
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
        # Where one of them fails, the next best takes its place.
        while trials.missing(hopeful, 1.0):
            trials.make(hopeful, 1.0)
            hopeful = _hopeful(records, settings, stop_early, metric)
    best = trials.best()
    if best is None:
        failures = [one.failure for one in records.all() if one.failure]
        raise InputError(
            f"All {len(failures)} runs have failed; without their lines in"
            f" {os.path.join(folder, RECORDS_NAME)} they are made again. The first one:"
            f" {failures[0]}"
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
    """The runs to go on with, best first."""
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
