"""Conditions that end a run early: `stop_if`, `patience`.

    METRIC>VALUE@WHEN, or METRIC<VALUE@WHEN

WHEN is a step, such as 5000, or hours of training over all starts, such as 3h. METRIC
is a name in metrics.jsonl; `eval/` may be left out where training has no such metric.
Each condition is checked once, on the first line at WHEN or later that has its METRIC.
The lines of earlier starts count, so a run that is started again decides as before.
"""

import functools
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.base.errors import InputError, NotReachedError
from bert_tf.training.events import EVALUATION, Callback
from bert_tf.training.training_options import is_better

_FORM = re.compile(
    r"([\w/]+)([<>])(-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?)@(?:(\d+)|(\d+\.?\d*)h)"
)


class Condition(NamedTuple):
    """A metric that is bad above or below a value, and the time of the check."""

    text: str
    metric: str
    is_above: bool
    value: float
    step: int | None
    hours: float | None

    def is_due(self, line: Mapping[str, Any]) -> bool:
        """Whether a line of metrics.jsonl is at WHEN or later."""
        if self.step is not None:
            return line["step"] >= self.step
        assert self.hours is not None
        return line["seconds"] >= 3600.0 * self.hours

    def name_in(self, training: Container[str]) -> str:
        """Returns the metric's name in metrics.jsonl, given the names in training."""
        if self.metric in training or self.metric.startswith(EVALUATION):
            return self.metric
        return EVALUATION + self.metric


def parse(texts: Sequence[str]) -> list[Condition]:
    """Returns the conditions; InputError for a text that is none."""
    found = []
    for text in texts:
        match = _FORM.fullmatch(text.replace(" ", ""))
        if match is None:
            raise InputError(
                "`stop_if`: a condition must be METRIC>VALUE@STEP or METRIC<VALUE@STEP,"
                " the step a number, or hours as in 3h, such as loss>6@5000."
                f' Received: "{text}".'
            )
        metric, sign, value, step, hours = match.groups()
        found.append(
            Condition(
                text,
                metric,
                sign == ">",
                float(value),
                int(step) if step else None,
                float(hours) if hours else None,
            )
        )
    return found


def problems(options: Any) -> Iterator[str]:
    """Yields errors of conditions: their form, or that they come too late."""
    hours = options.max_train_hours
    try:
        conditions = parse(options.stop_if)
    except InputError as error:
        yield str(error)
        return
    for one in conditions:
        if hours is not None and one.hours is not None and one.hours >= hours:
            yield f"`stop_if={one.text}`: the training ends at {hours:g} hours."
        if hours is None and one.step is not None and one.step >= options.last_step:
            yield f"`stop_if={one.text}`: the training ends at {options.last_step}."


class Stopping(Callback):
    """Ends a run by the lines of its metrics.jsonl: `stop_if`."""

    problems = staticmethod(problems)

    def __init__(self, texts: Sequence[str]) -> None:
        self._conditions = parse(texts)
        self._left: dict[Condition, str] = {}  # -> the metric's name
        self.reason = ""  # why the run ends; "" if it does not
        self._ends = False

    @staticmethod
    def refuse_unknown(
        texts: Sequence[str],
        training: Sequence[str],
        evaluation: Sequence[str],
        evaluates: bool,
    ) -> None:
        """Raises InputError for a metric that training or evaluations do not have."""
        for one in parse(texts):
            name = one.name_in(training)
            if name in training:
                continue
            if name.removeprefix(EVALUATION) not in evaluation:
                raise InputError(
                    f"`stop_if={one.text}`: the metrics are {', '.join(evaluation)};"
                    f" with {EVALUATION} they are those of the evaluations."
                )
            if not evaluates:
                raise InputError(
                    f"`stop_if={one.text}` is about evaluations in training: give"
                    " `eval_steps`, or a metric of training, such as loss."
                )

    def started(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Checks the conditions by the lines of earlier starts."""
        objective = self.run.task.objective
        training = ["loss", *objective.losses, *objective.metrics]
        self._left = {one: one.name_in(training) for one in self._conditions}
        for line in lines:
            self.logged(line)

    def logged(self, line: Mapping[str, Any]) -> None:
        """Checks the conditions that are due at a line."""
        for one, name in list(self._left.items()):
            if name not in line or not one.is_due(line):
                continue
            del self._left[one]
            value = line[name]
            if value > one.value if one.is_above else value < one.value:
                self.reason = self.reason or (
                    f"{name} is {value:.4g} at step {line['step']}"
                    f" (`stop_if={one.text}`)"
                )

    def should_end(self) -> bool:
        """Returns whether a condition holds, on any worker."""
        self._ends = bool(self.run.summed(float(bool(self.reason)))[0])
        return self._ends

    def ended(self) -> None:
        """Raises NotReachedError if a condition has ended the run."""
        if not self._ends:
            return
        from bert_tf.training.reporting import CURVES_NAME

        run = self.run
        raise NotReachedError(
            f"The run has ended at step {run.step}:"
            f" {self.reason or 'a condition of `stop_if` holds'}. Look at"
            f" {os.path.join(run.folder, CURVES_NAME)}: if the loss hardly falls, raise"
            " `learning_rate` or shorten the warmup; if it jumps, lower the rate. With"
            " another `stop_if`, or none, the same command resumes from"
            f" {run.checkpoints.latest}."
        )


class Patience(Callback):
    """Ends a run after so many evaluations without a better one: `patience`."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._values: dict[int, float] = {}  # of `best_metric`, by step
        self._reason = ""

    def started(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Takes the evaluations of earlier starts."""
        name = EVALUATION + self.run.config.best_metric
        self._values = {one["step"]: one[name] for one in lines if name in one}

    def evaluated(
        self, step: int, results: Mapping[str, float], seconds: float
    ) -> None:
        """Takes an evaluation, in place of an earlier one of its step."""
        name = self.run.config.best_metric
        if name in results:
            self._values[step] = float(results[name])

    def should_end(self) -> bool:
        """Returns whether the last evaluations were not better than an earlier one."""
        name = self.run.config.best_metric
        values = [self._values[step] for step in sorted(self._values)]
        if not values:
            return False
        best = functools.reduce(
            lambda one, other: other if is_better(other, one, name) else one, values
        )
        since = len(values) - 1 - values.index(best)
        if since < self._patience:
            return False
        self._reason = (
            f"The run ends at step {self.run.step}: no better {name} for {since}"
            f" evaluations (best: {best:.6g}; `patience={self._patience}`)."
        )
        return True

    def ended(self) -> None:
        """Logs the reason."""
        if self._reason:
            logging.info("%s", self._reason)
