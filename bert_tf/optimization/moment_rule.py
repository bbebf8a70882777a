"""One variable's update: the mathematics, and its assignment in one kernel."""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras import ops

from bert_tf.compilation import compiled


@dataclasses.dataclass(frozen=True, kw_only=True)
class MomentRule:
    """One variable's update, a pure function.

    Attributes:
        excluded: whether the variable is one of those that do not decay.
        weight_decay_rate: of the variables that do.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of the second moment.
        bias_correction: whether the moments are divided by 1 - beta^t.
        skip_nonfinite: whether a scale that is not finite changes nothing.
    """

    excluded: bool
    weight_decay_rate: float
    beta_1: float
    beta_2: float
    epsilon: float
    bias_correction: bool
    skip_nonfinite: bool

    def next_values(
        self,
        weight: Any,
        gradient: Any,
        m: Any,
        v: Any,
        rate: Any,
        scale: Any,
        corrections: Any,
    ) -> tuple[Any, Any, Any]:
        """(w, g, m, v) to the next (w, m, v); the equations stand with the optimizers.

        Args:
            weight: w, any shape.
            gradient: g, of the same shape.
            m: the first moment, of the same shape.
            v: the second moment, of the same shape.
            rate: the learning rate, a scalar.
            scale: what g is multiplied by, a scalar, or None.
            corrections: (1 / (1 - beta_1^t), 1 / (1 - beta_2^t)), scalars.
        """
        dtype = weight.dtype
        g, rate = ops.cast(gradient, dtype), ops.cast(rate, dtype)
        if scale is not None:
            g = g * ops.cast(scale, dtype)
        decay_1, share_1 = self.beta_1, 1.0 - self.beta_1
        decay_2, share_2 = self.beta_2, 1.0 - self.beta_2
        if self.skip_nonfinite:
            # Numbers that change nothing: w and the moments come out as they went in.
            finite = ops.isfinite(scale)
            g, rate = ops.where(finite, g, 0.0), ops.where(finite, rate, 0.0)
            decay_1 = ops.where(finite, decay_1, 1.0)
            decay_2 = ops.where(finite, decay_2, 1.0)
        next_m = decay_1 * m + share_1 * g
        next_v = decay_2 * v + share_2 * ops.square(g)
        if self.bias_correction:
            first, second = (ops.cast(factor, dtype) for factor in corrections)
            update = (next_m * first) / (ops.sqrt(next_v * second) + self.epsilon)
        else:
            update = next_m / (ops.sqrt(next_v) + self.epsilon)
        if self.weight_decay_rate and not self.excluded:
            update = update + self.weight_decay_rate * weight
        length = rate * self.step_factor(weight, update)
        return weight - length * update, next_m, next_v

    def step_factor(self, weight: Any, update: Any) -> Any:
        """How far to go along the update, as a multiple of the learning rate."""
        return 1.0


def assign_next_values(
    rule: MomentRule,
    variable: Any,
    gradient: Any,
    first_moment: Any,
    second_moment: Any,
    rate: Any,
    scale: Any,
    corrections: Any,
) -> None:
    """Updates a variable and its moments by the rule."""
    targets = (variable, first_moment, second_moment)
    # A cast reads the variable; convert_to_tensor hands it back as it is.
    w, m, v = (ops.cast(target, target.dtype) for target in targets)
    next_values = rule.next_values(w, gradient, m, v, rate, scale, corrections)
    for target, value in zip(targets, next_values, strict=True):
        target.assign(value)


def compiled_assignment(rule: MomentRule) -> Callable[..., None]:
    """`assign_next_values` of a rule as one kernel, compiled once a shape.

    It takes the variables, not their values, so that the kernel writes where it reads:
    with new arrays for the results it takes half as long again. Its traces refer to
    these variables: it must not outlive them.
    """

    def assignment(*args: Any) -> None:
        assign_next_values(rule, *args)

    return compiled(assignment)
