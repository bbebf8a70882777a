"""Reports of a run while it trains: log lines, metrics.jsonl, TensorBoard, curves."""

import collections
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm
from absl import logging

from bert_tf.base import files, strict_json
from bert_tf.base.errors import InputError
from bert_tf.base.pictures import picture
from bert_tf.training.events import EVALUATION, Callback
from bert_tf.training.step import SEQUENCES, SKIPPED, TOKENS, TOTAL_LOSS
from bert_tf.training.strategy import is_chief

_COLUMNS = 100

# Metrics summed between two lines of the log.


Sums = Mapping[str, np.ndarray]  # name -> [total, weight]


class LogInterval:
    """The steps since the last report.

    The first call of a compiled function compiles it: its steps count towards the
    metrics, but not towards the rates.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Any] = collections.defaultdict(float)
        self._timed: dict[str, float] = collections.defaultdict(float)
        self._last: Sums = {}

    def add(
        self,
        sums: Sums,
        *,
        steps: int,
        flops_per_step: float | None = None,
        seconds: float | None = None,
        input_seconds: float = 0.0,
    ) -> None:
        """Adds a call of the device; without `seconds`, rates ignore it."""
        for name, value in sums.items():
            self._sums[name] = self._sums[name] + value
        self._last = sums
        if seconds is not None:
            self._timed["seconds"] += seconds
            self._timed["input_seconds"] += input_seconds
            self._timed["steps"] += steps
            self._timed["sequences"] += float(sums[SEQUENCES][0])
            self._timed["tokens"] += float(sums[TOKENS][0])
            self._timed["flops"] += steps * (flops_per_step or 0.0)

    def shown(self, learning_rate: float, seconds: float) -> dict[str, str]:
        """Returns the last call's loss, accuracies, rate and pace, for the bar."""
        losses = {
            name: f"{mean(value):.3f}"
            for name, value in self._last.items()
            if _is_shown(name)
        }
        return losses | {
            "learning_rate": f"{learning_rate:.2e}",
            "sequences/s": f"{self._last[SEQUENCES][0] / seconds:.0f}",
        }

    def metrics(self, peak_flops: float | None = None) -> dict[str, float]:
        """Returns the means over the steps, and the rates."""
        metrics = {
            name: mean(value)
            for name, value in self._sums.items()
            if name not in (TOKENS, SEQUENCES)
        }
        if SKIPPED in self._sums:
            metrics[SKIPPED] = float(self._sums[SKIPPED][0])
        seconds = self._timed["seconds"]
        if seconds:
            for name in ("steps", "sequences", "tokens"):
                if self._timed[name]:
                    metrics[f"{name}_per_second"] = self._timed[name] / seconds
            metrics["input_wait_share"] = self._timed["input_seconds"] / seconds
            if peak_flops and self._timed["flops"]:
                rate = self._timed["flops"] / seconds
                metrics["model_flops_utilization"] = rate / peak_flops
        return metrics


def _is_shown(name: str) -> bool:
    """Whether log lines show this metric."""
    return name == TOTAL_LOSS or name.endswith("accuracy")


def training_line(step: int, metrics: Mapping[str, float]) -> str:
    """Returns the log line for some training steps, at most 100 columns.

    All metrics, even those that do not fit into the line, are in metrics.jsonl.
    """
    ends = []
    if "sequences_per_second" in metrics:
        ends.append(f"{metrics['sequences_per_second']:,.0f} seq/s")
    if "learning_rate" in metrics:
        ends.append(f"lr {metrics['learning_rate']:.3g}")
    shown: list[str] = []
    for name, value in metrics.items():
        if _is_shown(name):
            is_first = not any("accuracy" in one for one in shown)
            short = name.removesuffix("_accuracy")
            if short != name and is_first:
                short = f"accuracy {short}"
            shown.append(f"{short} {value:.4g}")
    while True:
        line = f"step {step}: {', '.join(shown + ends)}"
        if len(line) <= _COLUMNS or not shown:
            return line
        shown.pop()


def mean(total_and_weight: np.ndarray) -> float:
    """Returns the mean of a sum; 0 if all weights are 0."""
    total, weight = total_and_weight
    return float(total / weight) if weight else 0.0


# A run's outputs: a progress bar, TensorBoard, metrics.jsonl.
#
# metrics.jsonl has one JSON object per line: `step`, `seconds` of all starts of the run
# together, and the metrics by name; an evaluation's names begin with `eval/`.
# TensorBoard has the same under train/NAME and eval/NAME. Training's metrics are means
# over the steps since the previous line:
#
#     loss, masked_lm_loss, ...   nats per prediction; `loss` is the one minimised
#     masked_lm_accuracy, ...     share of the predictions that are right, 0 to 1
#     learning_rate               of the last step
#     gradient_norm               over all weights, before clipping
#     steps_per_second, sequences_per_second
#     tokens_per_second           excluding padding
#     model_flops_utilization     share of the accelerators' peak that the model's own
#                                 matrix products take, 0 to 1: see
#                                 `bert_tf.training.throughput`; a CPU has none
#     input_wait_share            share of the time that steps waited for records,
#                                 0 to 1
#     loss_scale                  what float16's loss is multiplied by
#     skipped_steps               steps since the previous line that changed no weight
#                                 because float16's gradients overflowed
#
# A run that resumes from step N drops the lines after N, which it will write again, and
# an evaluation replaces an earlier one of the same step: each line appears once, even
# if the run was often killed. If a command evaluates a trained model, perhaps on other
# data, the line has `"after_training": true`, and the line of the evaluation within the
# run is kept. With several workers only the chief writes.


METRICS_NAME = "metrics.jsonl"
_TRAINING_TAG = "train/"
AFTER_TRAINING = "after_training"

_Entry = dict[str, Any]


class Reporter:
    """A run's metrics, written to its folder."""

    def __init__(
        self,
        folder: str,
        step: int = 0,
        *,
        seconds: float = 0.0,  # of the checkpoint at that step
        after_training: bool = False,
        is_chief: bool = True,
        observers: Sequence[Callable[[_Entry], object]] = (),  # called with every line
    ) -> None:
        self._observers = observers
        self._path = os.path.join(folder, METRICS_NAME)
        self._after_training = after_training
        self._is_chief = is_chief
        self._began = time.monotonic()
        self._summaries: tf.summary.SummaryWriter | None = None
        entries = self._keep(lambda entry: after_training or entry["step"] <= step)
        self._evaluations = {
            entry["step"]: _evaluation_of(entry)
            for entry in entries
            if self._is_of_our_kind(entry)
        }
        self._before = max(seconds, *(e.get("seconds", 0.0) for e in entries), 0.0)
        # The lines of the training so far.
        self.lines = [
            {"seconds": 0.0, **entry}
            for entry in entries
            if AFTER_TRAINING not in entry
        ]
        if is_chief:
            self._summaries = tf.summary.create_file_writer(folder)

    def report_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Records a step's evaluation, replacing an earlier one."""
        if step in self._evaluations:
            self._keep(
                lambda entry: entry["step"] != step or not self._is_of_our_kind(entry)
            )
        self.report(step, metrics, EVALUATION)
        self._evaluations[step] = {n: float(value) for n, value in metrics.items()}

    def evaluation(self, step: int) -> dict[str, float] | None:
        """Returns the evaluation of our kind recorded at a step, on any worker."""
        return self._evaluations.get(step)

    def seconds(self) -> float:
        """Returns the time of all starts of the run."""
        return self._before + time.monotonic() - self._began

    def close(self) -> None:
        """Closes the TensorBoard file."""
        if self._summaries is not None:
            self._summaries.close()

    def report(self, step: int, metrics: Mapping[str, float], prefix: str = "") -> None:
        """Records metrics at a step: of training, or of the kind named by a prefix."""
        if self._summaries is None:
            return
        named = {prefix + name: float(value) for name, value in metrics.items()}
        entry = {"step": step, "seconds": round(self.seconds(), 3), **named}
        if self._after_training:
            entry[AFTER_TRAINING] = True
        files.append(self._path, json.dumps(entry) + "\n")
        tagged = {(prefix or _TRAINING_TAG) + n: float(x) for n, x in metrics.items()}
        with self._summaries.as_default(step=step):
            for name, value in tagged.items():
                tf.summary.scalar(name, value)
        self._summaries.flush()
        for observe in self._observers:
            observe(entry)
        if prefix:
            shown = ", ".join(f"{name} {value:.4g}" for name, value in named.items())
            line = f"step {step}: {shown}"
        else:
            line = training_line(step, metrics)
        # Above the progress bar, if there is one, not through it.
        with tqdm.tqdm.external_write_mode(file=sys.stderr):
            logging.info("%s", line)

    def _is_of_our_kind(self, entry: _Entry) -> bool:
        """Whether a line is an evaluation, within the run or after it, as ours."""
        is_evaluation = any(name.startswith(EVALUATION) for name in entry)
        return is_evaluation and self._after_training == entry.get(
            AFTER_TRAINING, False
        )

    def _keep(self, wanted: Callable[[_Entry], bool]) -> list[_Entry]:
        """Drops unwanted lines and returns the others."""
        entries, lines, content = [], [], b""
        if files.exists(self._path):
            content = files.read_bytes(self._path)
            for line, entry in read_metrics(self._path, content):
                if wanted(entry):
                    entries.append(entry)
                    lines.append(line)
        # Only if necessary: a run in another process may be adding a line.
        if self._is_chief and b"".join(lines) != content:
            files.write_atomically(self._path, b"".join(lines))
        return entries


def read_metrics(path: str, content: bytes) -> Iterator[tuple[bytes, _Entry]]:
    """Yields the lines of a metrics.jsonl, each with its object.

    Damaged lines are left out with one warning. An incomplete last line, cut short by a
    kill or still being written, is left out silently.
    """
    damaged = []
    *lines, last = content.split(b"\n")
    for number, line in enumerate([*lines, last] if last else lines, start=1):
        try:
            values = files.parse_json(line.decode("utf-8"), path, number)
            yield line + b"\n", _entry(values, f"{path}:{number}")
        except (UnicodeDecodeError, InputError):
            if number <= len(lines):
                damaged.append(number)
    if damaged:
        logging.warning(
            "%s:%d: not a line of metrics; %d such lines are left out.",
            path,
            damaged[0],
            len(damaged),
        )


def _entry(values: Any, source: str) -> _Entry:
    """Returns a line's object; raises InputError for other lines."""
    entry = dict(strict_json.checked(dict, values, source, "line"))
    after_training = entry.pop(AFTER_TRAINING, False)
    entry = strict_json.checked(dict[str, float], entry, source, "line")
    step = entry.get("step", math.nan)
    if not step.is_integer() or not math.isfinite(entry.get("seconds", 0.0)):
        raise InputError(f"{source}: `step` must be an integer, `seconds` finite.")
    entry["step"] = int(step)
    return entry | ({AFTER_TRAINING: True} if after_training is True else {})


def _evaluation_of(entry: _Entry) -> dict[str, float]:
    """Returns an evaluation's metrics without their prefix."""
    return {
        name.removeprefix(EVALUATION): value
        for name, value in entry.items()
        if name.startswith(EVALUATION)
    }


# OUTPUT_DIR/curves.png: the run's metrics over its steps, drawn when training ends, and
# again after the trained model is evaluated.


CURVES_NAME = "curves.png"

# Endings of metric names -> their panels; other metrics of evaluations share one.
_PANELS = {
    "loss": "nats",
    "accuracy": "share that is right",
    "learning_rate": "learning rate",
}
_EVALUATION_PANEL = "evaluation"
# SQuAD's evaluations also report these, on another scale than scores.
_NO_SCORES = ("total", "_thresh")

# The steps, and the values at them.
Curve = tuple[Sequence[float], Sequence[float]]


def write_curves(
    folder: str, title: str, behind: Mapping[str, Curve] | None = None
) -> None:
    """Draws a run's curves into its folder, unless it has no metrics yet."""
    try:
        content = curves_picture(folder, title, behind)
    except InputError as error:
        logging.info("No %s: %s", CURVES_NAME, error)
        return
    files.write_atomically(os.path.join(folder, CURVES_NAME), content)


class Curves(Callback):
    """Draws a run's curves after training."""

    def ended(self) -> None:
        """Draws the curves into the run's folder."""
        if is_chief(self.run.strategy):
            write_curves(self.run.folder, self.run.task.name)


def curves_picture(
    folder: str, title: str | None = None, behind: Mapping[str, Curve] | None = None
) -> bytes:
    """Draws training's metrics as lines, evaluations as points, as a PNG.

    `behind` has another run's curves, to be drawn behind, by metric.
    """
    curves = read_curves(folder)
    if "loss" not in curves:
        raise InputError(
            f"{os.path.join(folder, METRICS_NAME)} has no loss yet: the first line"
            " comes after `log_steps` steps."
        )
    panels: dict[str, dict[str, Curve]] = {
        label: {} for label in (*_PANELS.values(), _EVALUATION_PANEL)
    }
    for name, curve in curves.items():
        label = next((p for end, p in _PANELS.items() if name.endswith(end)), None)
        if label is None and name.startswith(EVALUATION):
            label = None if name.endswith(_NO_SCORES) else _EVALUATION_PANEL
        if label is not None:
            panels[label][name] = curve
    panels = {label: panel for label, panel in panels.items() if panel}
    if title is None:
        title = os.path.basename(files.absolute(folder).rstrip("/"))

    def draw(figure: Any) -> None:
        figure.suptitle(title, fontsize="medium", parse_math=False)
        all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (label, panel) in zip(all_axes, panels.items(), strict=True):
            names = dict.fromkeys(name.removeprefix(EVALUATION) for name in panel)
            for number, name in enumerate(names):
                for one, style in ((name, ".-"), (EVALUATION + name, "o")):
                    if one in panel:
                        axes.plot(*panel[one], style, color=f"C{number}", label=one)
            for name, curve in (behind or {}).items():
                # A line needs two points to be seen.
                if name in panel and len(curve[0]) > 1:
                    axes.plot(*curve, "--", color="0.6", label=f"reference {name}")
            axes.set(xlabel="step", ylabel=label)
            axes.grid(alpha=0.3)
            axes.legend(fontsize="small")

    return picture(draw, (5.0 * len(panels), 4.0))


def metrics_of(folder: str, after_training: bool = True) -> list[_Entry]:
    """Returns the entries of a run's metrics.jsonl: all, or only the training's."""
    path = os.path.join(folder, METRICS_NAME)
    if not files.exists(path):
        return []
    found = [entry for _, entry in read_metrics(path, files.read_bytes(path))]
    return [one for one in found if after_training or AFTER_TRAINING not in one]


def tokens_seen(entries: Iterable[Mapping[str, Any]]) -> Curve:
    """Returns steps, and the tokens seen by then, from a run's lines."""
    steps, tokens = [0.0], [0.0]
    for entry in entries:
        if entry.get("steps_per_second") and "tokens_per_second" in entry:
            per_step = entry["tokens_per_second"] / entry["steps_per_second"]
            tokens.append(tokens[-1] + per_step * (entry["step"] - steps[-1]))
            steps.append(entry["step"])
    return steps, tokens


def read_curves(folder: str) -> dict[str, Curve]:
    """Returns the metrics in a metrics.jsonl by name; evaluations' as `eval/...`."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    path = os.path.join(folder, METRICS_NAME)
    for _, entry in read_metrics(path, files.read_bytes(path, "file of metrics")):
        for name in entry.keys() - {"step", "seconds", AFTER_TRAINING}:
            steps, values = curves.setdefault(name, ([], []))
            steps.append(entry["step"])
            values.append(entry[name])
    return dict(sorted(curves.items()))
