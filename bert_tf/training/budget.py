"""A training of so many hours: the rate by the share of them, and when to stop.

After step s, with T seconds left for training and t seconds a step, the hours buy
s + T / t steps, and their schedule is that of a run of N steps at step

    N s / (s + T / t)

The schedule's warmup and decay are thus shares of the budget. Only the pace counts:
what compiling or an interruption has taken makes the run shorter, not its warmup. T
leaves what the last evaluation and checkpoint need.
"""

import math
import time
from collections.abc import Callable

import keras
import numpy as np

from bert_tf.optimization.schedules import WarmupSchedule

# What a checkpoint is counted with before one was written: bytes per second.
_WRITING = 1e8
# A checkpoint is due each such share of the budget, and when this many seconds passed.
_BETWEEN_CHECKPOINTS, _LEAST_BETWEEN = 0.05, 30.0
# The pace is that of about this share of the budget.
_MEMORY = 0.02


class Budget:
    """The hours of a training, over all its starts."""

    def __init__(
        self,
        hours: float,
        schedule: WarmupSchedule,
        *,
        num_evaluations: int = 0,  # that follow the last step
        checkpoint_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_over = False
        self._seconds = 3600.0 * hours
        self._schedule = schedule
        self._num_evaluations = num_evaluations
        self._evaluation_seconds = 0.0  # once one was timed
        self._first_evaluation = 0.0  # of this start, which compiles
        self._foreseen_evaluation = (0.0, 0.0)  # seconds, and steps that last as long
        self._saving_seconds = checkpoint_bytes / _WRITING
        self._clock = clock
        self._began = clock()
        self._before = 0.0  # seconds of earlier starts
        self._step = 0
        self._pace: float | None = None  # seconds per step, on average
        self._fastest = math.inf
        self._num_steps = math.inf  # that the hours buy, as far as is known
        self._left_when_saved: float | None = None
        # In the checkpoints.
        self.used = keras.Variable(0.0, trainable=False, name="seconds_used")
        self._evaluation = keras.Variable(0.0, trainable=False, name="of_evaluation")

    @property
    def variables(self) -> dict[str, keras.Variable]:
        """What a checkpoint holds."""
        return {"seconds_used": self.used, "evaluation_seconds": self._evaluation}

    def resume(self) -> None:
        """Begins where the restored checkpoint was written."""
        self._before = float(self.used)
        self._evaluation_seconds = float(self._evaluation)  # it compiles again
        # Hours that are used up are kept as what this variable can hold.
        self.is_over = self._before >= float(np.float32(self._seconds))

    def seconds_left(self) -> float:
        """The time left for training, without the last evaluation and checkpoint."""
        seconds, num_steps = self._foreseen_evaluation
        # A single slow step must not end the training.
        fastest = self._fastest if math.isfinite(self._fastest) else 0.0
        of_one = self._evaluation_seconds or seconds + num_steps * fastest
        reserve = self._num_evaluations * of_one + self._saving_seconds
        return self._seconds - self._used_now() - reserve

    def foresee_evaluation(self, seconds: float, num_steps: float) -> None:
        """Says what one may take: seconds, and the time of so many steps."""
        self._foreseen_evaluation = (seconds, num_steps)

    def evaluated(self, seconds: float) -> None:
        """Records how long an evaluation took."""
        self._evaluation_seconds = seconds
        self._first_evaluation = self._first_evaluation or seconds

    def saved(self, seconds: float) -> None:
        """Records how long a checkpoint took."""
        self._saving_seconds = seconds

    def saves(self, seconds_left: float) -> bool:
        """Whether a checkpoint is due; all workers give the same number."""
        if self._left_when_saved is None:
            self._left_when_saved = seconds_left
        between = max(_BETWEEN_CHECKPOINTS * self._seconds, _LEAST_BETWEEN)
        if self._left_when_saved - seconds_left < between:
            return False
        self._left_when_saved = seconds_left
        return True

    def update(self, step: int, seconds_left: float, seconds_per_step: float) -> None:
        """Predicts the last step; all workers must pass the same numbers."""
        seconds = (step - self._step) * seconds_per_step
        self._step = step
        self._fastest = min(self._fastest, seconds_per_step)
        if self._pace is None:
            self._pace = seconds_per_step
        share = math.exp(-seconds / (_MEMORY * self._seconds))
        self._pace = share * self._pace + (1.0 - share) * seconds_per_step
        self.is_over = seconds_left < 0.5 * self._pace
        left = 0.0 if self.is_over else seconds_left / self._pace
        self._num_steps = step + left

    def steps_left(self, step: int) -> float:
        """How many more steps are predicted; infinite before the first `update`."""
        return self._num_steps - step

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        share = min(step / self._num_steps, 1.0) if self._num_steps else 1.0
        return float(self._schedule(share * self._schedule.num_train_steps))

    def keep(self) -> None:
        """Sets what a checkpoint records, before it is written."""
        # A training that has ended has used its hours, although a reserve was left.
        self.used.assign(self._seconds if self.is_over else self._used_now())
        if self._first_evaluation:
            self._evaluation.assign(self._first_evaluation)

    def _used_now(self) -> float:
        return self._before + self._clock() - self._began
