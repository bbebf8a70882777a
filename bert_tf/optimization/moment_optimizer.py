"""What AdamWeightDecay and Lamb share: the moments, and the rule of each variable."""

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.optimization.gradients import clip_scale, dense_gradient
from bert_tf.optimization.layer_rates import rate_factors
from bert_tf.optimization.moment_rule import (
    MomentRule,
    assign_next_values,
    compiled_assignment,
)

# Searched for in a variable's path. As in the original, "bias" covers output_bias too.
# A mixture's scores and scale are no weights of features either.
EXCLUDED_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias", "layer_mixture")

# A variable with fewer elements is updated operation by operation: compiling takes
# about 0.1 s a shape, and wins nothing where all that is read lies in a cache.
SMALLEST_COMPILED_SIZE = 1 << 16


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
        skip_nonfinite: whether a step whose `scale` is not finite, as `clip_scale`
            makes it where a gradient is not, leaves weights and moments as they are. It
            is counted all the same.
        layerwise_decay: factor of the learning rate from a layer to the one below it;
            see layer_rates.py.
        name: the optimizer's name.
        **kwargs: Keras' own: global_clipnorm, use_ema, ...

    Raises:
        ValueError: `weight_decay`, Keras' name for another kind of decay, is given.

    Attributes:
        rule_class: the kind of MomentRule.
    """

    rule_class: type[MomentRule] = MomentRule

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
        layerwise_decay: float,
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
        self.layerwise_decay = layerwise_decay
        self._rules: list[MomentRule] = []
        self._rate_factors: list[float] = []
        self._assignments: list[Callable[..., None]] = []

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
        paths = [getattr(variable, "path", variable.name) for variable in variables]
        rules = {excluded: self.rule(excluded) for excluded in (False, True)}
        self._rules = [rules[self._is_excluded(path)] for path in paths]
        self._rate_factors = rate_factors(paths, self.layerwise_decay)
        compiled = {rule: compiled_assignment(rule) for rule in rules.values()}
        self._assignments = [
            functools.partial(assign_next_values, rule)
            if math.prod(variable.shape) < SMALLEST_COMPILED_SIZE
            else compiled[rule]
            for rule, variable in zip(self._rules, variables, strict=True)
        ]

    @property
    def decayed_variables(self) -> list[Any]:
        """The variables that weight decay shrinks."""
        return [
            variable
            for variable, rule in zip(
                self._trainable_variables, self._rules, strict=True
            )
            if not rule.excluded
        ]

    def rule(self, excluded: bool) -> MomentRule:
        """The rule of the variables that do not decay, or of those that do."""
        return self.rule_class(
            excluded=excluded,
            weight_decay_rate=self.weight_decay_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            bias_correction=self.bias_correction,
            skip_nonfinite=self.skip_nonfinite,
        )

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
            ValueError: `scale` is given, and Keras shall clip too; or it is not given,
                and must tell which steps to skip.
        """
        if scale is not None and self._clips:
            raise ValueError(
                "Whoever gives `scale` must clip, so the optimizer must not: build it "
                "with global_clipnorm=None."
            )
        if scale is None and self.skip_nonfinite:
            raise ValueError(
                "`scale` must be given to an optimizer with skip_nonfinite: it tells "
                "which steps to skip."
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

    def _clip_gradients(self, grads: Any) -> Any:
        """Where one replica is all, the update's pass clips by the global norm too."""
        strategy = getattr(self, "_distribution_strategy", None)
        if not self.global_clipnorm or getattr(strategy, "num_replicas_in_sync", 1) > 1:
            return super()._clip_gradients(grads)
        self._scale, _ = clip_scale(grads, self.global_clipnorm)
        return grads

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
        rate, scale, corrections = learning_rate
        index = self._get_variable_index(variable)
        factor = self._rate_factors[index]
        self._assignments[index](
            variable,
            gradient,
            _on_this_replica(self._first_moments[index]),
            _on_this_replica(self._second_moments[index]),
            rate if factor == 1.0 else rate * factor,
            scale,
            corrections,
        )

    def _correction(self, beta: float) -> Any:
        """1 / (1 - beta^t) at step t = 1, 2, ...; 1 - 0.999 would lose its digits."""
        t = ops.cast(self.iterations + 1, "float32")
        return -1.0 / ops.expm1(t * math.log(beta)) if beta else ops.ones_like(t)

    def _is_excluded(self, path: str) -> bool:
        return any(re.search(pattern, path) for pattern in self.exclusions)

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
            layerwise_decay=self.layerwise_decay,
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
