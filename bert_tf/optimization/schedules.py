"""Learning-rate schedules: linear warmup, then one of several decays.

With peak r, end rate e, N training and W warmup steps, at step s = 0, 1, 2, ...

    r s / W                      for s < W
    e + (r - e) f(p)             from W on, where p goes from 0 to 1:

    p = min(s, N) / N                      decay_from="start", the original's
    p = (min(s, N) - W) / (N - W)          decay_from="warmup"

    linear        f(p) = 1 - p
    polynomial    f(p) = (1 - p)^power
    cosine        f(p) = (1 + cos(pi p)) / 2         (Loshchilov and Hutter 2017)

warmup, stable, decay, whose rate is r until the last d N steps (Hu et al. 2024), so
that a run can get another N until then:

    wsd           e + (r - e) min(1, (N - s) / (d N))

and two without a last step:

    inverse_sqrt  r sqrt(W / s), W at least 1        (Vaswani et al. 2017)
    constant      r

The first step of a warmup has rate 0. The original counts the decay from step 0, not
from the end of the warmup: there its rate falls from about r to r (1 - W / N).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

SHAPES = ("linear", "cosine", "polynomial", "wsd", "inverse_sqrt", "constant")
_ENDLESS = ("inverse_sqrt", "constant")


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, repr=False)
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warmup, then decay; by default the original's schedule.

    Args:
        learning_rate: r, the peak.
        num_train_steps: N.
        num_warmup_steps: W; 0 for no warmup.
        shape: of the decay, one of SHAPES.
        end_learning_rate: e, the rate from step N on.
        power: of the polynomial.
        decay_from: "start" or "warmup": where the decay begins to count.
        decay_share: d of wsd, above 0 and at most 1.

    Raises:
        ValueError: a value is out of its range, or the shape does not use it.

    Examples:
        >>> schedule = bert_tf.WarmupSchedule(1.0, 10, num_warmup_steps=4)
        >>> [float(schedule(step)) for step in (0, 2, 5, 10)]
        [0.0, 0.5, 0.5, 0.0]
    """

    learning_rate: float
    num_train_steps: int
    num_warmup_steps: int = 0
    _: dataclasses.KW_ONLY
    shape: str = "linear"
    end_learning_rate: float = 0.0
    power: float = 1.0
    decay_from: str = "start"
    decay_share: float = 0.2

    def __post_init__(self) -> None:
        if self.num_train_steps < 1 or self.num_warmup_steps < 0:
            raise ValueError(
                "`num_train_steps` must be positive, `num_warmup_steps` not negative."
                f" Received: {self.num_train_steps} and {self.num_warmup_steps}"
            )
        for name, values in (("shape", SHAPES), ("decay_from", ("start", "warmup"))):
            if (value := getattr(self, name)) not in values:
                raise ValueError(
                    f"`{name}` must be one of {', '.join(values)}. Received: {value}"
                )
        if not 0.0 < self.decay_share <= 1.0:
            raise ValueError(
                "`decay_share` must be above 0 and at most 1."
                f" Received: {self.decay_share}"
            )
        if self.shape == "wsd" and self.decay_from != "start":
            raise ValueError("The schedule wsd has no use for `decay_from`.")
        has_end = self.end_learning_rate or self.decay_from != "start"
        if self.shape in _ENDLESS and has_end:
            raise ValueError(
                f"The schedule {self.shape} must not have `end_learning_rate` or"
                f" `decay_from`: it has no end. Received: {self.end_learning_rate},"
                f" {self.decay_from}"
            )
        if self.power <= 0.0 or (self.power != 1.0 and self.shape != "polynomial"):
            raise ValueError(
                "`power` must be positive, and 1 unless the schedule is polynomial."
                f" Received: {self.power}, {self.shape}"
            )

    def __call__(self, step: Any) -> Any:
        """Returns the rate of a step: a float32 scalar (or the shape of `step`)."""
        step = ops.cast(step, "float32")
        rate = ops.cast(self.learning_rate, "float32")
        decayed = self._decayed(step, rate)
        if not self.num_warmup_steps:
            return decayed
        num_warmup_steps = ops.cast(self.num_warmup_steps, "float32")
        # One or the other, with each operation as in the original: the same bits.
        return ops.where(
            step < num_warmup_steps, rate * (step / num_warmup_steps), decayed
        )

    def _decayed(self, step: Any, rate: Any) -> Any:
        if self.shape == "constant":
            return rate * ops.ones_like(step)
        if self.shape == "inverse_sqrt":
            first = float(max(self.num_warmup_steps, 1))
            return rate * ops.sqrt(first / ops.maximum(step, first))
        if self.shape == "wsd":
            length = self.decay_share * self.num_train_steps
            factor = ops.clip((self.num_train_steps - step) / length, 0.0, 1.0)
        else:
            factor = _FACTORS[self.shape](self._progress(step), self.power)
        if not self.end_learning_rate:
            return rate * factor
        end = ops.cast(self.end_learning_rate, "float32")
        return end + (rate - end) * factor

    def _progress(self, step: Any) -> Any:
        """Returns p, from 0 to 1."""
        num_train_steps = ops.cast(self.num_train_steps, "float32")
        step = ops.minimum(step, num_train_steps)
        if self.decay_from == "start":
            return step / num_train_steps
        start = ops.cast(self.num_warmup_steps, "float32")
        # A warmup that takes all steps leaves none for the decay.
        length = ops.cast(
            max(self.num_train_steps - self.num_warmup_steps, 1), "float32"
        )
        return ops.clip((step - start) / length, 0.0, 1.0)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return dataclasses.asdict(self)


_FACTORS: dict[str, Callable[[Any, float], Any]] = {
    "linear": lambda p, power: 1.0 - p,
    "polynomial": lambda p, power: (1.0 - p) ** power,
    "cosine": lambda p, power: 0.5 * (1.0 + ops.cos(math.pi * p)),
}
