"""A training of so many hours: the learning rate by their share, and the end.

After step s, with T seconds left for training and t seconds a step, the hours buy
s + T / t steps, and their schedule is that of a run of N steps at step

    N s / (s + T / t)

The schedule's warmup and decay are thus shares of the budget. Only the pace counts:
time for compiling or an interruption makes the run shorter, not its warmup. T does not
include the time for the last evaluation and checkpoint.
"""

import math
import time
from collections.abc import Callable, Mapping

import keras
import numpy as np
from absl import logging

from bert_tf.optimization.optimizers import AdamWeightDecay, WarmupSchedule
from bert_tf.training.events import Call, Callback

# Assumed speed of writing a checkpoint, before one was written: bytes per second.
_WRITING = 1e8
# A checkpoint is due after this share of the budget, and at least so many seconds.
_BETWEEN_CHECKPOINTS, _LEAST_BETWEEN = 0.05, 30.0
# The pace is an average over about this share of the budget.
_MEMORY = 0.02


class Budget(Callback):
    """The hours of a training, over all its starts: `max_train_hours`."""

    _schedule: WarmupSchedule  # both once the model is made
    _began: float

    def __init__(
        self, hours: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._hours = hours
        self._seconds = 3600.0 * hours
        self._num_evaluations = 0  # that follow the last step
        self._evaluation_seconds = 0.0  # after one was timed
        self._first_evaluation = 0.0  # of this start, which compiles
        self._foreseen_evaluation = (0.0, 0.0)  # seconds, and steps that take as long
        self._clock = clock
        self._before = 0.0  # seconds of earlier starts
        self._step = 0
        self._pace: float | None = None  # seconds per step, on average
        self._fastest = math.inf
        self._num_steps = math.inf  # that fit in the hours, by the pace so far
        self._left = 0.0  # seconds, after the last call
        self._left_when_saved: float | None = None

    def optimizer(self, optimizer: AdamWeightDecay) -> AdamWeightDecay:
        """Keeps the schedule: the rate is set before each call. The time begins."""
        run = self.run
        self._schedule = optimizer._learning_rate
        self._began = self._clock()
        self._num_evaluations = (
            bool(run.config.eval_steps) + run.phases[-1].evaluates_afterwards
        )
        # The weights and both moments.
        num_bytes = 12 * sum(int(np.prod(one.shape)) for one in run.model.weights)
        self._foreseen_saving = num_bytes / _WRITING
        self._used = keras.Variable(0.0, trainable=False, name="seconds_used")
        self._evaluation = keras.Variable(0.0, trainable=False, name="of_evaluation")
        self.state = {
            "seconds_used": self._used,
            "evaluation_seconds": self._evaluation,
        }
        return optimizer.from_config({**optimizer.get_config(), "learning_rate": 0.0})

    def restored(self) -> None:
        """Begins where the restored checkpoint was written."""
        self._before = float(self._used)
        self._evaluation_seconds = float(self._evaluation)  # it compiles again
        # Used-up hours are stored with this variable's precision.
        self.is_over = self._before >= float(np.float32(self._seconds))
        if self.is_over:
            logging.info(
                "Training is complete: its %g hours are used, at step %d. Raise"
                " `max_train_hours` to continue.",
                self._hours,
                self.run.step,
            )

    def before_call(self, step: int) -> int | None:
        """Sets the learning rate, which changes between calls alone."""
        share = min(step / self._num_steps, 1.0) if self._num_steps else 1.0
        rate = self._schedule(share * self._schedule.num_train_steps)
        self.run.optimizer.learning_rate = float(rate)
        if math.isinf(left := self._num_steps - step):
            return None
        return max(1, round(min(left, 1 + 0.001 * (step + left))))

    def after_call(self, call: Call) -> bool:
        """Predicts the last step; returns whether a checkpoint is due by the time."""
        # A mean: all workers have the same numbers.
        seconds, workers = self.run.summed(self._seconds_left(), 1.0)
        self._left = seconds / workers
        if call.pace is None:
            # Forward alone is a third of a step; the rest is a margin.
            num_steps = 0.5 * call.phase.num_evaluated / call.phase.batch_size
            self._foreseen_evaluation = (call.seconds, num_steps)
        else:
            self._update(self.run.step, call.pace)
            self.run.bar.total = round(self._num_steps)
        if self._left_when_saved is None:
            self._left_when_saved = self._left
        between = max(_BETWEEN_CHECKPOINTS * self._seconds, _LEAST_BETWEEN)
        if self._left_when_saved - self._left < between:
            return False
        self._left_when_saved = self._left
        return True

    def evaluated(
        self, step: int, results: Mapping[str, float], seconds: float
    ) -> None:
        """Records how long an evaluation took."""
        self._evaluation_seconds = seconds
        self._first_evaluation = self._first_evaluation or seconds

    def saving(self) -> None:
        """Sets the times that a checkpoint records."""
        # A training that has ended has used its hours, although a reserve was left.
        self._used.assign(self._seconds if self.is_over else self._used_now())
        if self._first_evaluation:
            self._evaluation.assign(self._first_evaluation)

    def _seconds_left(self) -> float:
        """Returns the time for training, without the last evaluation and checkpoint."""
        seconds, num_steps = self._foreseen_evaluation
        # A single slow step must not end the training.
        fastest = self._fastest if math.isfinite(self._fastest) else 0.0
        of_one = self._evaluation_seconds or seconds + num_steps * fastest
        of_saving = self.run.saving_seconds
        if of_saving is None:
            of_saving = self._foreseen_saving
        reserve = self._num_evaluations * of_one + of_saving
        return self._seconds - self._used_now() - reserve

    def _update(self, step: int, pace: float) -> None:
        seconds = (step - self._step) * pace
        self._step = step
        self._fastest = min(self._fastest, pace)
        if self._pace is None:
            self._pace = pace
        share = math.exp(-seconds / (_MEMORY * self._seconds))
        self._pace = share * self._pace + (1.0 - share) * pace
        self.is_over = self._left < 0.5 * self._pace
        self._num_steps = step + (0.0 if self.is_over else self._left / self._pace)

    def _used_now(self) -> float:
        return self._before + self._clock() - self._began
