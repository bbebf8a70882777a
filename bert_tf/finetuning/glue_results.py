"""What a task of GLUE came to, kept in OUTPUT_DIR/TASK/result.json.

    {"task": "MRPC", "scores": {"f1": 0.88, "accuracy": 0.84}, "metric": "f1",
     "run": "lr5e-05_bs32_ep3_seed12345",
     "restarts": [0.88, 0.86], "num_runs": 8, "num_failed": 1, "seconds": 812.4,
     "predicted": ["test"], "inputs": {"dev": SHA-256, "test": SHA-256}}

Scores are from 0 to 1 (correlations from -1).
"""

import dataclasses
import json
import math
import os
import statistics
import types
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert_tf import files, strict_json
from bert_tf.errors import InputError
from bert_tf.finetuning.selection import Selection
from bert_tf.finetuning.statistics import grouped, has_failed

RESULT_NAME = "result.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A task's result.

    Attributes:
        task: as GLUE spells it.
        scores: metric -> the best run's score on the development set; for MNLI's second
            set with `_mismatched` behind the name.
        metric: the one that the run was chosen by.
        run: the best run's name, which tells its settings.
        restarts: the scores of all runs with these settings, whatever their seed.
        num_runs: runs that were begun, whatever became of them.
        num_failed: those that diverged or learnt nothing.
        seconds: how long all of them took.
        predicted: the test splits whose predictions are written.
        inputs: split -> digest of what was scored or predicted.
    """

    task: str
    scores: Mapping[str, float]
    metric: str
    run: str
    restarts: tuple[float, ...]
    num_runs: int
    num_failed: int
    seconds: float
    predicted: tuple[str, ...] = ()
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The mean over the restarts."""
        return statistics.fmean(self.restarts) if self.restarts else math.nan

    @property
    def standard_deviation(self) -> float:
        """That of the sample, over n - 1; NaN for a single run."""
        return statistics.stdev(self.restarts) if len(self.restarts) > 1 else math.nan

    @property
    def has_failed(self) -> bool:
        """Whether even the best run learnt nothing."""
        return self.num_failed == self.num_runs

    def to_json(self) -> dict[str, Any]:
        """The object as the file has it."""
        return dataclasses.asdict(self)


def result_of(
    task: str,
    selection: Selection,
    scores: Mapping[str, float],
    predicted: tuple[str, ...] = (),
    inputs: Mapping[str, str] = types.MappingProxyType({}),
) -> TaskResult:
    """The result of a task whose best run has these scores."""
    (group,) = [
        group
        for group in grouped(selection.records, selection.metric, selection.baseline)
        if group.settings[:3] == selection.best.settings[:3]
    ]
    return TaskResult(
        task=task,
        scores=dict(scores),
        metric=selection.metric,
        run=selection.best.settings.name,
        restarts=group.scores,
        num_runs=len(selection.records),
        num_failed=sum(
            has_failed(one, selection.metric, selection.baseline)
            for one in selection.records
        ),
        seconds=sum(one.seconds for one in selection.records),
        predicted=predicted,
        inputs=dict(inputs),
    )


def write_result(result: TaskResult, folder: str) -> None:
    """Keeps a task's result in its folder."""
    files.write_atomically(
        os.path.join(folder, RESULT_NAME), json.dumps(result.to_json(), indent=1) + "\n"
    )


def read_result(folder: str) -> TaskResult | None:
    """The result in a task's folder; None where there is none, or a damaged one."""
    path = os.path.join(folder, RESULT_NAME)
    if not files.exists(path):
        return None
    try:
        result = strict_json.read(TaskResult, path)
        numbers = [*result.scores.values(), *result.restarts, result.seconds]
        if result.metric in result.scores and all(map(math.isfinite, numbers)):
            return result
        reason = f"{path}: scores must be finite, and {result.metric} one of them."
    except InputError as error:
        reason = str(error)
    logging.warning("%s It is made again.", reason)
    return None
