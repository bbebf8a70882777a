"""Learning-rate schedules."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """The original's schedule: linear warmup, then linear decay to 0.

    With rate r, N training and W warmup steps, at step s = 0, 1, 2, ...

        r s / W                  for s < W
        r (1 - min(s, N) / N)    from W on

    The first step of a warmup has rate 0, and the decay counts from step 0, not from
    the end of the warmup: there the rate falls from about r to r (1 - W / N).

    Args:
        learning_rate: r, the peak.
        num_train_steps: N.
        num_warmup_steps: W; 0 for no warmup.

    Raises:
        ValueError: a number of steps is out of its range.
    """

    def __init__(
        self, learning_rate: float, num_train_steps: int, num_warmup_steps: int = 0
    ):
        if num_train_steps < 1:
            raise ValueError(
                f"`num_train_steps` must be positive. Received: {num_train_steps}"
            )
        if num_warmup_steps < 0:
            raise ValueError(
                f"`num_warmup_steps` must not be negative. Received: {num_warmup_steps}"
            )
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps

    def __call__(self, step: Any) -> Any:
        """The rate of a step: a float32 scalar (or the shape of `step`)."""
        step = ops.cast(step, "float32")
        rate = ops.cast(self.learning_rate, "float32")
        num_train_steps = ops.cast(self.num_train_steps, "float32")
        decayed = rate * (1.0 - ops.minimum(step, num_train_steps) / num_train_steps)
        if not self.num_warmup_steps:
            return decayed
        num_warmup_steps = ops.cast(self.num_warmup_steps, "float32")
        # Exactly 0 or 1, so that each rate is to the bit what the original computes.
        return ops.where(
            step < num_warmup_steps, rate * (step / num_warmup_steps), decayed
        )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            "learning_rate": self.learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
        }
