"""What AdamWeightDecay and Lamb share: moments, weight decay, one pass a variable.

A `MomentRule` is the mathematics of one variable's update, a `MomentOptimizer` keeps
the moments and applies the rule to every variable.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.compilation import compiled
from bert_tf.optimization.gradients import dense_gradient

# Searched for in a variable's path. As in the original, "bias" covers output_bias too.
EXCLUDED_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")

# A variable with fewer elements is updated operation by operation: compiling takes
# about 0.1 s a shape, and wins nothing where all that is read lies in a cache.
SMALLEST_COMPILED_SIZE = 1 << 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class MomentRule:
    """One variable's update, a pure function.

    Attributes:
        weight_decay_rate: 0 for a variable that does not decay.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of the second moment.
        bias_correction: whether the moments are divided by 1 - beta^t.
        skip_nonfinite: whether a gradient that is not finite changes nothing.
    """

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
            corrections: (1 - beta_1^t, 1 - beta_2^t), scalars.
        """
        g = ops.cast(gradient, weight.dtype)
        if scale is not None:
            g = g * ops.cast(scale, weight.dtype)
        finite = ops.isfinite(g) if self.skip_nonfinite else None
        if finite is not None:
            g = ops.where(finite, g, 0.0)
        next_m = self.beta_1 * m + (1.0 - self.beta_1) * g
        next_v = self.beta_2 * v + (1.0 - self.beta_2) * ops.square(g)
        if self.bias_correction:
            first, second = corrections
            update = (next_m / first) / (ops.sqrt(next_v / second) + self.epsilon)
        else:
            update = next_m / (ops.sqrt(next_v) + self.epsilon)
        if self.weight_decay_rate:
            update = update + self.weight_decay_rate * weight
        step = ops.cast(rate, weight.dtype) * self.step_factor(weight, update)
        next_weight = weight - step * update
        if finite is None:
            return next_weight, next_m, next_v
        return (
            ops.where(finite, next_weight, weight),
            ops.where(finite, next_m, m),
            ops.where(finite, next_v, v),
        )

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


@functools.lru_cache(maxsize=64)
def compiled_assignment(rule: MomentRule) -> Callable[..., None]:
    """`assign_next_values` of a rule as one kernel, compiled once a shape.

    It takes the variables, not their values, so that the kernel writes where it reads:
    with new arrays for the results it takes half as long again.
    """

    def assignment(*args: Any) -> None:
        assign_next_values(rule, *args)

    return compiled(assignment)


class MomentOptimizer(keras.optimizers.Optimizer):
    """An optimizer of two moments, with weight decay outside them.

    Args:
        learning_rate: a float, or a schedule.
        weight_decay_rate: the share of a weight that decays, times the learning rate.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of the second moment.
        bias_correction: whether to divide the moments by 1 - beta^t.
        exclude_from_weight_decay: regular expressions; a variable whose path one of
            them matches anywhere does not decay.
        skip_nonfinite: whether elements whose gradient, after scaling, is infinite or
            not a number stay as they are, moments and all; `clip_scale` is NaN, and so
            skips a whole step, where any gradient is such. Steps are counted all the
            same.
        name: the optimizer's name.
        **kwargs: Keras' own: global_clipnorm, use_ema, ...

    Raises:
        ValueError: `weight_decay`, Keras' name for another kind of decay, is given.
    """

    def __init__(
        self,
        learning_rate: Any,
        *,
        weight_decay_rate: float,
        beta_1: float,
        beta_2: float,
        epsilon: float,
        bias_correction: bool,
        exclude_from_weight_decay: Sequence[str],
        skip_nonfinite: bool,
        name: str,
        **kwargs: Any,
    ):
        if kwargs.get("weight_decay") is not None:
            raise ValueError(
                "Weight decay must be given as `weight_decay_rate`. "
                f"Received: weight_decay={kwargs['weight_decay']!r}"
            )
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction
        self.exclusions = tuple(exclude_from_weight_decay)
        self.skip_nonfinite = skip_nonfinite
        self._scale: Any = None
        self._decays: list[bool] = []

    def build(self, variables: list[Any]) -> None:
        """Makes the moments of each variable, and settles which variables decay.

        Must have run before `apply` is traced: call it with the model's
        trainable_variables, under the strategy's scope.
        """
        if self.built:
            return
        super().build(variables)
        self._first_moments, self._second_moments = self.add_optimizer_variables(
            variables, ["adam_m", "adam_v"]
        )
        self._decays = [self._does_decay(variable) for variable in variables]

    @property
    def decayed_variables(self) -> list[Any]:
        """The variables that weight decay shrinks."""
        return [
            variable
            for variable, decays in zip(
                self._trainable_variables, self._decays, strict=True
            )
            if decays
        ]

    def moments(self, variable: Any) -> tuple[Any, Any]:
        """The variables (m, v) of one of the model's variables."""
        index = self._get_variable_index(variable)
        return self._first_moments[index], self._second_moments[index]

    def apply(
        self, grads: Sequence[Any], trainable_variables: Any = None, scale: Any = None
    ) -> Any:
        """Updates the variables.

        Args:
            grads: a gradient for each variable; sparse ones become dense. Over several
                replicas their sum counts.
            trainable_variables: the variables, if not all that it was built with.
            scale: a scalar tensor that every gradient is multiplied by, in the pass
                over memory that updates its variable; the same on every replica.

        Raises:
            ValueError: `scale` is given, and Keras shall clip too.
        """
        if scale is not None and self._clips:
            raise ValueError(
                "Whoever gives `scale` must clip, so the optimizer must not: build it "
                "with global_clipnorm=None."
            )
        self._scale = scale
        try:
            grads = [dense_gradient(gradient) for gradient in grads]
            return super().apply(grads, trainable_variables)
        finally:
            self._scale = None

    @property
    def _clips(self) -> bool:
        return any((self.clipnorm, self.global_clipnorm, self.clipvalue))

    def _backend_update_step(
        self, grads: Any, trainable_variables: Any, learning_rate: Any
    ) -> None:
        # Computed once a step, and handed to every variable's update in the place of
        # the learning rate: tf.distribute then takes each replica its own.
        scalars = (
            ops.cast(learning_rate, "float32"),
            None if self._scale is None else ops.cast(self._scale, "float32"),
            (self._correction(self.beta_1), self._correction(self.beta_2)),
        )
        super()._backend_update_step(grads, trainable_variables, scalars)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable and its moments.

        Args:
            gradient: its gradient, dense.
            variable: the variable.
            learning_rate: the scalars of the step: (rate, scale, corrections).
        """
        index = self._get_variable_index(variable)
        rule = self._rule(decays=self._decays[index])
        if math.prod(variable.shape) < SMALLEST_COMPILED_SIZE:
            assign = functools.partial(assign_next_values, rule)
        else:
            assign = compiled_assignment(rule)
        assign(
            variable,
            gradient,
            _on_this_replica(self._first_moments[index]),
            _on_this_replica(self._second_moments[index]),
            *learning_rate,
        )

    def _rule(self, *, decays: bool) -> MomentRule:
        """The rule of the variables that decay, or of those that do not."""
        return MomentRule(**self._rule_arguments(decays))

    def _rule_arguments(self, decays: bool) -> dict[str, Any]:
        return {
            "weight_decay_rate": self.weight_decay_rate if decays else 0.0,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "bias_correction": self.bias_correction,
            "skip_nonfinite": self.skip_nonfinite,
        }

    def _correction(self, beta: float) -> Any:
        """1 - beta^t at step t = 1, 2, ..., where 1 - 0.999 would lose its digits."""
        t = ops.cast(self.iterations + 1, "float32")
        return -ops.expm1(t * math.log(beta)) if beta else ops.ones_like(t)

    def _does_decay(self, variable: Any) -> bool:
        path = getattr(variable, "path", variable.name)
        return not any(re.search(pattern, path) for pattern in self.exclusions)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = super().get_config()
        config.update(
            weight_decay_rate=self.weight_decay_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            bias_correction=self.bias_correction,
            exclude_from_weight_decay=list(self.exclusions),
            skip_nonfinite=self.skip_nonfinite,
        )
        return config


def _on_this_replica(variable: Any) -> Any:
    """The variable that Keras' TensorFlow optimizer hands to `update_step`.

    That is TensorFlow's own, and of a mirrored one the copy to be updated.
    """
    if keras.backend.backend() != "tensorflow":
        return variable
    copy = getattr(variable.value, "_get", None)
    return variable.value if copy is None else copy()
