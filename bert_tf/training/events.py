"""Events around a run's steps and evaluations: callbacks and signals.

The loop and the tasks call each callback's methods as a run proceeds, and know no
callback by name. The optional callbacks are add-ons, imported when an option asks for
them.
"""

import signal
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from bert_tf.base.addons import addon

if TYPE_CHECKING:
    import contextlib

    import keras
    import numpy as np
    import tensorflow as tf

    from bert_tf.optimization.optimizers import AdamWeightDecay
    from bert_tf.training.checkpoints import RunCheckpoints
    from bert_tf.training.step import LossScale, StepResults
    from bert_tf.training.strategy import Strategy
    from bert_tf.training.task import Phase, Task
    from bert_tf.training.training_options import TrainingConfig

EVALUATION = "eval/"  # prefix of an evaluation's metric names

# Callbacks of `bert_tf.base.addons` in the order of calls: those of every training, and
# options that each ask for one.
_ALWAYS = ("divergence", "curves")
_OPTIONS = ("profile_steps", "max_train_hours", "stop_if", "patience", "report_to")


def asked_for(options: Any) -> list["Callback"]:
    """Makes a training's callbacks; raises InputError for impossible options."""
    names = [name for name in _OPTIONS if options.has(name)]
    given = [addon(n)(getattr(options, n)) for n in names if getattr(options, n)]
    return [*(addon(name)() for name in _ALWAYS), *given]


class Signals:
    """Catches SIGTERM and SIGINT while in use; the loop polls it, saves and stops."""

    def __init__(self) -> None:
        self.received: int | None = None  # the signal's number
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Signals":
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._before[number] = signal.signal(number, self._hear)
            except ValueError:  # not the main thread, as in some notebooks
                break
        return self

    def _hear(self, number: int, frame: object) -> None:
        if self.received == number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once
        self.received = number

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def numbers(self) -> list[float]:
        """Returns [SIGTERMs, SIGINTs] received by this worker."""
        return [float(self.received == n) for n in (signal.SIGTERM, signal.SIGINT)]


def exit_after(number: signal.Signals, state: str) -> NoReturn:
    """Exits with the signal's code, and says how to resume."""
    print(
        f"Stopped by {number.name} {state}. Start the same command again to resume.",
        file=sys.stderr,
    )
    sys.exit(128 + number)


class Run(Protocol):
    """A training as its callbacks see it."""

    task: "Task"
    config: "TrainingConfig"
    folder: str
    strategy: "Strategy"
    phases: Sequence["Phase"]
    flags: Mapping[str, Any]
    model: "keras.Model"
    optimizer: "keras.Optimizer"
    checkpoints: "RunCheckpoints"
    closing: "contextlib.ExitStack"  # closed however the run ends
    loss_scale: "LossScale | None"  # for float16
    step: int  # steps made
    records: int  # training records read
    bar: Any  # progress bar, while it trains
    saving_seconds: float | None  # of the last checkpoint, without writing it

    def summed(self, *numbers: float) -> "np.ndarray":
        """Returns the sums over all workers, all of which must call this."""

    def wait_for_all(self) -> None:
        """Waits until all is written; all workers must call this."""


class Call(NamedTuple):
    """A call of the device, which made some steps."""

    phase: "Phase"
    steps: int
    results: "StepResults"
    seconds: float  # on this worker
    pace: float | None  # seconds per step, mean of all workers; None: it compiled


class Evaluation(NamedTuple):
    """An evaluation, with the task's own metrics."""

    results: Mapping[str, float]
    dataset: Callable[[bool], "tf.data.Dataset"]  # its records, repeated or not
    measure: Callable[["tf.data.Dataset"], Mapping[str, float]]


class Callback:
    """Reacts to a run's events; all workers have the same callbacks.

    Methods with a result must return the same one on all workers.
    """

    run: Run
    # Variables in the checkpoints, with names that no other callback uses.
    state: Mapping[str, "keras.Variable"] = types.MappingProxyType({})
    is_over = False  # whether the training is complete, whatever its number of steps

    def optimizer(self, optimizer: "AdamWeightDecay") -> "AdamWeightDecay":
        """Returns the optimizer, or one in its place; the model exists by then."""
        return optimizer

    def restored(self) -> None:
        """Follows the restoring of the last checkpoint, if any."""

    def started(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Precedes the steps; `lines` are the lines of metrics.jsonl so far."""

    def before_call(self, step: int) -> int | None:
        """Precedes a call of the device; returns its maximum number of steps."""
        return None

    def after_call(self, call: Call) -> bool:
        """Follows a call of the device; returns whether a checkpoint is due."""
        return False

    def logged(self, line: Mapping[str, Any]) -> None:
        """Follows each line of metrics.jsonl, on the chief only."""

    def evaluated(
        self, step: int, results: Mapping[str, float], seconds: float
    ) -> None:
        """Follows an evaluation within the training."""

    def saving(self) -> None:
        """Precedes a checkpoint."""

    def should_end(self) -> bool:
        """Returns whether to end early; called after lines of metrics."""
        return False

    def ended(self) -> None:
        """Follows a completed training, when everything is written."""

    # Around a task's evaluations, within its training or after it.

    metrics: Sequence[str] = ()  # its scores that options may name
    passes = 0  # maximum passes of its scores through the evaluation's records

    def observe(self, batch: Mapping[str, Any]) -> None:
        """Follows each batch of an evaluation."""

    def scores(self, evaluation: Evaluation) -> Mapping[str, float]:
        """Returns scores to add to the results of an evaluation."""
        return {}

    def reported(self, model: "keras.Model", step: int) -> None:
        """Follows a command's last evaluation, once it is written."""
