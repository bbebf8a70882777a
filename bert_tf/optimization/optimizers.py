"""AdamWeightDecay as in the original, and LAMB."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.modeling.fused import compiled
from bert_tf.optimization.layerwise import rate_factors
from bert_tf.optimization.schedules import WarmupSchedule

# One variable's update: the mathematics, and its assignment in one kernel.


@dataclasses.dataclass(frozen=True, kw_only=True)
class MomentRule:
    """One variable's update, a pure function.

    Attributes:
        excluded: whether the variable does not decay.
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
        """The step size, as a multiple of the learning rate."""
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
    # A cast reads the variable; convert_to_tensor returns it as is.
    w, m, v = (ops.cast(target, target.dtype) for target in targets)
    next_values = rule.next_values(w, gradient, m, v, rate, scale, corrections)
    for target, value in zip(targets, next_values, strict=True):
        target.assign(value)


def compiled_assignment(rule: MomentRule) -> Callable[..., None]:
    """`assign_next_values` of a rule as one kernel, compiled once per shape.

    It takes the variables, not their values, so that the kernel writes in place:
    with new arrays for the results it takes half as long again. Its traces refer to
    these variables: it must not outlive them.
    """

    def assignment(*args: Any) -> None:
        assign_next_values(rule, *args)

    return compiled(assignment)


# Gradients, between their computation and the optimizer.


def dense_gradient(gradient: Any) -> Any:
    """The gradient as one dense tensor.

    TensorFlow gives the gradient of a lookup as the rows that were looked up
    (tf.IndexedSlices), with a row looked up twice occurring twice. BERT's optimizer
    updates every row at each step, and a norm needs their sum.

    Args:
        gradient: a tensor, IndexedSlices, or None for a weight that the loss does not
            depend on.
    """
    if gradient is None or not hasattr(gradient, "indices"):
        return gradient
    num_rows = gradient.shape[0]
    if num_rows is None:
        num_rows = gradient.dense_shape[0]
    return ops.segment_sum(gradient.values, gradient.indices, num_segments=num_rows)


def global_norm(gradients: Sequence[Any]) -> Any:
    """Sqrt of the sum of all squares, over all gradients that are not None."""
    squares = [
        ops.sum(ops.square(ops.cast(dense_gradient(gradient), "float32")))
        for gradient in gradients
        if gradient is not None
    ]
    # Stacked, not added one by one: TensorFlow merges many additions into one step,
    # whose order depends on timing, and no run could be repeated bit for bit.
    return ops.sqrt(ops.sum(ops.stack(squares)))


def clip_scale(gradients: Sequence[Any], clip_norm: float) -> tuple[Any, Any]:
    """The factor of all gradients that limits their global norm.

    clip_norm / max(norm, clip_norm), as tf.clip_by_global_norm: NaN if the norm is
    infinite or not a number, so that every gradient becomes NaN, not a wrong number.

    Args:
        gradients: tensors, IndexedSlices (their rows are summed first), or None.
        clip_norm: the largest norm.

    Returns:
        (scale, norm), float32 scalars: norm is that of the gradients before scaling.
    """
    norm = global_norm(gradients)
    scale = clip_norm * ops.minimum(1.0 / norm, 1.0 / clip_norm)
    # norm - norm is 0, or NaN if the norm is not finite.
    return scale + (norm - norm), norm


def clip_by_global_norm(gradients: Sequence[Any], clip_norm: float) -> list[Any]:
    """The gradients times their `clip_scale`, in a separate pass over memory.

    Args:
        gradients: tensors, IndexedSlices (made dense), or None (stays None).
        clip_norm: the largest norm.
    """
    gradients = [dense_gradient(gradient) for gradient in gradients]
    scale, _ = clip_scale(gradients, clip_norm)
    return [
        None if gradient is None else gradient * ops.cast(scale, gradient.dtype)
        for gradient in gradients
    ]


# Loss scaling for float16, whose smallest gradients would vanish.
#
# The loss is multiplied by a scale before the backward pass, and the gradients are
# divided by it afterwards. The scale is as large as the gradients allow: halved after a
# step with gradients that are not finite, which changes nothing else, and doubled after
# a number of finite steps in a row (Micikevicius et al. 2018, "Mixed Precision
# Training", section 3.2).


INITIAL_LOSS_SCALE = 2.0**15
GROWTH_STEPS = 2000
FACTOR = 2.0
SMALLEST_LOSS_SCALE = 1.0
# A power of two that float32 can hold, with room for the next one.
LARGEST_LOSS_SCALE = 2.0**126


def next_loss_scale(
    scale: Any, good_steps: Any, is_finite: Any, *, growth_steps: int = GROWTH_STEPS
) -> tuple[Any, Any]:
    """The scale of the next step.

    Args:
        scale: of the step just made, a float32 scalar.
        good_steps: the finite steps since the scale last changed, an int32 scalar.
        is_finite: whether all gradients of the step just made were finite, a bool
            scalar.
        growth_steps: finite steps in a row after which the scale doubles.

    Returns:
        (scale, good_steps) for the next step, of the same types.
    """
    scale, good_steps = ops.cast(scale, "float32"), ops.cast(good_steps, "int32")
    grows = good_steps + 1 >= growth_steps
    larger = ops.minimum(scale * FACTOR, LARGEST_LOSS_SCALE)
    smaller = ops.maximum(scale / FACTOR, SMALLEST_LOSS_SCALE)
    return (
        ops.where(is_finite, ops.where(grows, larger, scale), smaller),
        ops.where(
            ops.logical_and(is_finite, ops.logical_not(grows)), good_steps + 1, 0
        ),
    )


# What AdamWeightDecay and Lamb share: the moments, and the rule of each variable.


# Searched for in a variable's path. As in the original, "bias" covers output_bias too.
# A mixture's scores and scale are excluded as well: they are not weights of features.
EXCLUDED_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias", "layer_mixture")

# A smaller variable is updated operation by operation: compiling takes about 0.1 s per
# shape, and gains nothing for data that fit in a cache.
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
            see `bert_tf.optimization.layerwise`.
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
        """Makes the moments of each variable, and determines which variables decay.

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
            ValueError: `scale` is given, and Keras is to clip too; or it is not given,
            and is needed to know which steps to skip.
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
        """With a single replica the update's pass also clips by the global norm."""
        strategy = getattr(self, "_distribution_strategy", None)
        if not self.global_clipnorm or getattr(strategy, "num_replicas_in_sync", 1) > 1:
            return super()._clip_gradients(grads)
        self._scale, _ = clip_scale(grads, self.global_clipnorm)
        return grads

    def _backend_update_step(
        self, grads: Any, trainable_variables: Any, learning_rate: Any
    ) -> None:
        # Computed once per step, and passed to every variable's update in place of
        # the learning rate: tf.distribute then gives each replica its own.
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
        """1 / (1 - beta^t) at step t = 1, 2, ...; computing 1 - 0.999 loses digits."""
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
    """The variable that Keras' TensorFlow optimizer passes to `update_step`.

    It is TensorFlow's own; for a mirrored one, the copy to be updated.
    """
    if keras.backend.backend() != "tensorflow":
        return variable
    copy = getattr(variable.value, "_get", None)
    return variable.value if copy is None else copy()


# AdamWeightDecay: with gradient g, moments m and v, weight w, rate r,
#
#     m <- beta_1 m + (1 - beta_1) g
#     v <- beta_2 v + (1 - beta_2) g^2
#     u  = m / (sqrt(v) + epsilon) + weight_decay_rate w
#     w <- w - r u
#
# Adam (Kingma and Ba 2015) without bias correction, and with weight decay outside the
# moments (Loshchilov and Hutter 2019), from which LayerNorm and biases are excluded.


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(MomentOptimizer):
    """The original's AdamWeightDecayOptimizer.

    Args:
        learning_rate: a float, or a schedule, whose first step is 0.
        weight_decay_rate: the share of a weight that decays, times the learning rate.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of the second moment.
        bias_correction: whether to divide the moments by 1 - beta^t, as Adam's authors
            do and the original does not.
        exclude_from_weight_decay: regular expressions; a variable whose path one of
            them matches anywhere does not decay.
        skip_nonfinite: whether a step whose `scale` is not finite changes nothing; see
            MomentOptimizer.
        layerwise_decay: factor of the learning rate from a layer to the one below it;
            see `bert_tf.optimization.layerwise`.
        name: the optimizer's name.
        **kwargs: Keras' own: global_clipnorm, use_ema, ...

    Raises:
        ValueError: `weight_decay`, Keras' name for another kind of decay, is given.
    """

    def __init__(
        self,
        learning_rate: Any,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        bias_correction: bool = False,
        exclude_from_weight_decay: Sequence[str] = EXCLUDED_FROM_WEIGHT_DECAY,
        skip_nonfinite: bool = False,
        layerwise_decay: float = 1.0,
        name: str = "adam_weight_decay",
        **kwargs: Any,
    ):
        super().__init__(
            learning_rate,
            weight_decay_rate=weight_decay_rate,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            bias_correction=bias_correction,
            exclude_from_weight_decay=exclude_from_weight_decay,
            skip_nonfinite=skip_nonfinite,
            layerwise_decay=layerwise_decay,
            name=name,
            **kwargs,
        )


# LAMB: Adam with steps proportional to the weights' norm, for batches of many
# thousands.
#
# Algorithm 2 of You et al. 2020 ("Large Batch Optimization for Deep Learning: Training
# BERT in 76 minutes"), for each variable with gradient g, moments m and v, weights w,
# at step t = 1, 2, ..., with rate r and weight decay l:
#
#     m <- beta_1 m + (1 - beta_1) g
#     v <- beta_2 v + (1 - beta_2) g^2
#     u  = (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + epsilon) + l w
#     w <- w - r (|w| / |u|) u
#
# The decay l w is part of the norm |u|; the ratio |w| / |u| is 1 where either is 0 (the
# paper's function phi is the identity). LayerNorm and biases have no decay and no
# ratio, as in the authors' code, NVIDIA's DeepLearningExamples and the TensorFlow Model
# Garden. By contrast, optax's `lamb` applies the ratio to them, and
# keras.optimizers.Lamb decays outside the ratio.


@dataclasses.dataclass(frozen=True, kw_only=True)
class LambRule(MomentRule):
    """MomentRule with the trust ratio."""

    def step_factor(self, weight: Any, update: Any) -> Any:
        """|w| / |u|, or 1 where one of them is 0."""
        if self.excluded:
            return 1.0
        weight_norm, update_norm = _norm(weight), _norm(update)
        both = ops.logical_and(weight_norm > 0.0, update_norm > 0.0)
        ratio = weight_norm / ops.where(both, update_norm, 1.0)
        return ops.where(both, ratio, 1.0)


def _norm(tensor: Any) -> Any:
    """The Euclidean norm, as XLA computes it fast on a CPU.

    XLA adds up one number after the other, on one core; the sum of two halves is
    vectors, on all cores.
    """
    squares = ops.reshape(ops.square(tensor), [-1])
    size = math.prod(tensor.shape)
    for _ in range(5):
        if size % 2 == 0:
            size //= 2
            squares = squares[:size] + squares[size:]
    return ops.sqrt(ops.sum(squares))


@keras.saving.register_keras_serializable(package="bert_tf")
class Lamb(MomentOptimizer):
    """LAMB, by the equations above.

    Args:
        learning_rate: a float, or a schedule.
        weight_decay_rate: l.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of the second moment.
        exclude_from_weight_decay: regular expressions; a variable whose path one of
            them matches anywhere has neither decay nor ratio.
        skip_nonfinite: whether a step whose `scale` is not finite changes nothing; see
            MomentOptimizer.
        layerwise_decay: factor of the learning rate from a layer to the one below it;
            see `bert_tf.optimization.layerwise`.
        name: the optimizer's name.
        **kwargs: Keras' own: global_clipnorm, use_ema, ...

    Raises:
        ValueError: `weight_decay`, Keras' name for another kind of decay, is given.
    """

    rule_class = LambRule

    def __init__(
        self,
        learning_rate: Any,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Sequence[str] = EXCLUDED_FROM_WEIGHT_DECAY,
        skip_nonfinite: bool = False,
        layerwise_decay: float = 1.0,
        name: str = "lamb",
        **kwargs: Any,
    ):
        super().__init__(
            learning_rate,
            weight_decay_rate=weight_decay_rate,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            bias_correction=True,
            exclude_from_weight_decay=exclude_from_weight_decay,
            skip_nonfinite=skip_nonfinite,
            layerwise_decay=layerwise_decay,
            name=name,
            **kwargs,
        )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = super().get_config()
        del config["bias_correction"]
        return config


# The optimizer of a run, with its schedule, by the flags' names.


OPTIMIZERS = ("adamw", "lamb")


def create_optimizer(
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int,
    *,
    optimizer: str = "adamw",
    learning_rate_schedule: str = "linear",
    end_learning_rate: float = 0.0,
    power: float = 1.0,
    decay_from: str = "start",
    bias_correction: bool = False,
    global_clipnorm: float | None = 1.0,
    **kwargs: Any,
) -> MomentOptimizer:
    """The original's optimizer and schedule, unless told otherwise.

    Args:
        learning_rate: the peak.
        num_train_steps: steps until the rate is `end_learning_rate`.
        num_warmup_steps: steps of warmup; 0 for none.
        optimizer: "adamw" or "lamb".
        learning_rate_schedule: "linear", "cosine", "polynomial", "inverse_sqrt" or
            "constant"; see WarmupSchedule.
        end_learning_rate: see WarmupSchedule.
        power: see WarmupSchedule.
        decay_from: see WarmupSchedule.
        bias_correction: AdamWeightDecay's; LAMB has it always.
        global_clipnorm: the largest global norm of the gradients; None if a training
            loop clips them itself (Keras clips each replica's before adding them up).
        **kwargs: what both optimizers take: weight_decay_rate, layerwise_decay,
            skip_nonfinite, ...

    Raises:
        ValueError: an argument is out of its range.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(
            f"`optimizer` must be one of {', '.join(OPTIMIZERS)}. Received: {optimizer}"
        )
    schedule = WarmupSchedule(
        learning_rate,
        num_train_steps,
        num_warmup_steps,
        shape=learning_rate_schedule,
        end_learning_rate=end_learning_rate,
        power=power,
        decay_from=decay_from,
    )
    kwargs["global_clipnorm"] = global_clipnorm
    if optimizer == "lamb":
        return Lamb(schedule, **kwargs)
    return AdamWeightDecay(schedule, bias_correction=bias_correction, **kwargs)
