"""The runs of a selection, one after the other: made, recorded, kept or thrown away."""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from absl import logging

from bert_tf.errors import DivergedError, InputError
from bert_tf.finetuning.records import FAILED, FINISHED, RUNS_NAME, Record, Records
from bert_tf.finetuning.settings import Settings
from bert_tf.training.checkpoints import is_better


class Outcome(NamedTuple):
    """What a run came to.

    Attributes:
        scores: its scores on the development set.
        step: the step at which they were measured.
    """

    scores: Mapping[str, float]
    step: int


# Settings, the run's folder, the share of its steps to train for. The same again with
# a larger share goes on where the folder stands. DivergedError: the run has failed.
Run = Callable[[Settings, str, float], Outcome]


class Keeper(Protocol):
    """Looks after the weights of runs. Both methods may be called again and again."""

    def keep(self, folder: str) -> None:
        """Makes the weights of the run in this folder those that are kept."""

    def discard(self, folder: str) -> None:
        """Gives the room back that the weights in this folder take."""


class Trials:
    """Makes runs and records them; knows the best one."""

    def __init__(
        self, run: Run, records: Records, folder: str, metric: str, keeper: Keeper
    ) -> None:
        self._run = run
        self._records = records
        self._folder = folder
        self._metric = metric
        self._keeper = keeper
        # Whoever killed the selection may have come between a record and its weights.
        self._tidy()

    def missing(self, settings: Sequence[Settings], share: float) -> list[Settings]:
        """Those of the runs that have neither come to that share nor failed."""
        return [
            one
            for one in settings
            if self._records[one].status != FAILED and self._records[one].share < share
        ]

    def make(
        self, settings: Sequence[Settings], share: float, *, num_to_end: int = 0
    ) -> None:
        """Lets each run go on to a share of its steps, unless it is there already."""
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
        """The finished run with the best score, the first one of equals, if any."""
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
        """Keeps the best run's weights; gives the room of the other ended ones back."""
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
