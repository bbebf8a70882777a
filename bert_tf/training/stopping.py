"""What a run must have reached by when, or else it ends: `stop_if`.

    METRIC>VALUE@WHEN, or METRIC<VALUE@WHEN

WHEN is a step, such as 5000, or hours of training over all starts, such as 3h. METRIC
is a name in metrics.jsonl; `eval/` may be left out where training has no such metric.
Each condition is checked once, on the first line at WHEN or later that has its METRIC.
The lines of earlier starts count, so a run that is started again decides as before.
"""

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.base.errors import InputError

EVALUATION = "eval/"  # what the names of an evaluation's metrics begin with

_FORM = re.compile(
    r"([\w/]+)([<>])(-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?)@(?:(\d+)|(\d+\.?\d*)h)"
)


class Condition(NamedTuple):
    """A metric that is bad above or below a value, and when it is looked at."""

    text: str
    metric: str
    is_above: bool
    value: float
    step: int | None
    hours: float | None

    def is_due(self, line: Mapping[str, Any]) -> bool:
        """Whether a line of metrics.jsonl is at its WHEN or later."""
        if self.step is not None:
            return line["step"] >= self.step
        assert self.hours is not None
        return line["seconds"] >= 3600.0 * self.hours

    def name_in(self, training: Container[str]) -> str:
        """Its metric's name in metrics.jsonl, given the names of training's."""
        if self.metric in training or self.metric.startswith(EVALUATION):
            return self.metric
        return EVALUATION + self.metric


def parse(texts: Sequence[str]) -> list[Condition]:
    """The conditions; InputError for what is none."""
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


class Stopping:
    """Watches the lines of a run's metrics.jsonl for conditions that hold."""

    def __init__(self, texts: Sequence[str], training: Container[str]) -> None:
        self._left = {one: one.name_in(training) for one in parse(texts)}
        self.reason = ""  # why the run ends; "" if it does not

    def see(self, line: Mapping[str, Any]) -> None:
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
