"""AdamWeightDecay as in the original, and learning-rate schedules."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.base.addons import addon
from bert_tf.modeling.fused import compiled
from bert_tf.optimization.layerwise import rate_factors


def dense_gradient(gradient: Any) -> Any:
    """Returns a gradient as one dense tensor; None if the loss ignores the weight.

    TensorFlow gives the gradient of a lookup as the rows that were looked up
    (tf.IndexedSlices), with a row looked up twice occurring twice. BERT's optimizer
    updates every row at each step, and a norm needs their sum.
    """
    if gradient is None or not hasattr(gradient, "indices"):
        return gradient
    num_rows = gradient.shape[0]
    if num_rows is None:
        num_rows = gradient.dense_shape[0]
    return ops.segment_sum(gradient.values, gradient.indices, num_segments=num_rows)


def clip_scale(gradients: Sequence[Any], clip_norm: float) -> tuple[Any, Any]:
    """Returns the factor of all gradients that limits their global norm, and the norm.

    clip_norm / max(norm, clip_norm), as tf.clip_by_global_norm: NaN if the norm is
    infinite or not a number, so that every gradient becomes NaN, not a wrong number.
    Both are float32 scalars; gradients may be None.
    """
    squares = [
        ops.sum(ops.square(ops.cast(dense_gradient(gradient), "float32")))
        for gradient in gradients
        if gradient is not None
    ]
    # Stacked, not added one by one: TensorFlow merges many additions into one step,
    # whose order depends on timing, and no run could be repeated bit for bit.
    norm = ops.sqrt(ops.sum(ops.stack(squares)))
    scale = clip_norm * ops.minimum(1.0 / norm, 1.0 / clip_norm)
    # norm - norm is 0, or NaN if the norm is not finite.
    return scale + (norm - norm), norm


# Searched for in a variable's path. As in the original, "bias" covers output_bias too.
# A mixture's scores and scale are excluded as well: they are not weights of features.
EXCLUDED_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias", "layer_mixture")

# A smaller variable is updated operation by operation: compiling takes about 0.1 s per
# shape, and gains nothing for data that fit in a cache.
SMALLEST_COMPILED_SIZE = 1 << 16


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """The original's AdamWeightDecayOptimizer.

    With gradient g, moments m and v, weight w, rate r,

        m <- beta_1 m + (1 - beta_1) g
        v <- beta_2 v + (1 - beta_2) g^2
        u  = m / (sqrt(v) + epsilon) + weight_decay_rate w
        w <- w - r u

    Adam (Kingma and Ba 2015) without bias correction, and with weight decay outside the
    moments (Loshchilov and Hutter 2019), from which LayerNorm and biases are excluded.

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
        skip_nonfinite: whether a step whose `scale` is not finite, as `clip_scale`
            makes it where a gradient is not, leaves weights and moments as they are. It
            is counted all the same.
        layerwise_decay: factor of the learning rate from a layer to the one below it;
            see `bert_tf.optimization.layerwise`.
        name: the optimizer's name.
        **kwargs: Keras' own: global_clipnorm, use_ema, ...

    Raises:
        ValueError: `weight_decay`, Keras' name for another kind of decay, is given.

    Examples:
        >>> weight = keras.Variable([1.0])
        >>> optimizer = bert_tf.AdamWeightDecay(0.1, weight_decay_rate=0.5)
        >>> optimizer.apply([np.array([0.0], np.float32)], [weight])
        >>> print(f"{float(weight[0]):.2f}")  # 1 - 0.1 * 0.5
        0.95
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
        self.exclude_from_weight_decay = tuple(exclude_from_weight_decay)
        self.skip_nonfinite = skip_nonfinite
        self.layerwise_decay = layerwise_decay
        self._scale: Any = None

    def next_values(
        self,
        excluded: bool,
        w: Any,
        gradient: Any,
        m: Any,
        v: Any,
        rate: Any,
        scale: Any,
        corrections: Any,
    ) -> tuple[Any, Any, Any]:
        """(w, g, m, v) to the next (w, m, v), a pure function.

        g is multiplied by `scale`, if there is one; with bias correction, the moments
        by (1 / (1 - beta_1^t), 1 / (1 - beta_2^t)). An excluded weight does not decay.
        """
        g, rate = ops.cast(gradient, w.dtype), ops.cast(rate, w.dtype)
        if scale is not None:
            g = g * ops.cast(scale, w.dtype)
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
            first, second = (ops.cast(factor, w.dtype) for factor in corrections)
            update = (next_m * first) / (ops.sqrt(next_v * second) + self.epsilon)
        else:
            update = next_m / (ops.sqrt(next_v) + self.epsilon)
        if self.weight_decay_rate and not excluded:
            update = update + self.weight_decay_rate * w
        length = rate * (1.0 if excluded else self.step_factor(w, update))
        return w - length * update, next_m, next_v

    def step_factor(self, w: Any, update: Any) -> Any:
        """The step size, as a multiple of the learning rate."""
        return 1.0

    def _assign_next_values(
        self, excluded: bool, variable: Any, gradient: Any, m: Any, v: Any, *args: Any
    ) -> None:
        # A cast reads the variable; convert_to_tensor returns it as is.
        targets = (variable, m, v)
        w, m, v = (ops.cast(target, target.dtype) for target in targets)
        next_values = self.next_values(excluded, w, gradient, m, v, *args)
        for target, value in zip(targets, next_values, strict=True):
            target.assign(value)

    def build(self, variables: list[Any]) -> None:
        """Makes the moments; call it under the strategy's scope, before a trace."""
        if self.built:
            return
        super().build(variables)
        self._first_moments, self._second_moments = self.add_optimizer_variables(
            variables, ["adam_m", "adam_v"]
        )
        paths = [getattr(variable, "path", variable.name) for variable in variables]
        # One by one: joined, a pattern's flags or groups would be those of all.
        patterns = self.exclude_from_weight_decay
        self._excluded = [any(re.search(p, path) for p in patterns) for path in paths]
        self._rate_factors = rate_factors(paths, self.layerwise_decay)
        # As one kernel that takes the variables, not their values, and writes in place:
        # with new arrays for the results it takes half as long again.
        self._assignments: list[Callable[..., None]] = []
        kernels: dict[bool, Callable[..., None]] = {}
        for variable, excluded in zip(variables, self._excluded, strict=True):
            assignment: Callable[..., None] = functools.partial(
                self._assign_next_values, excluded
            )
            if math.prod(variable.shape) >= SMALLEST_COMPILED_SIZE:
                assignment = kernels.setdefault(excluded, compiled(assignment))
            self._assignments.append(assignment)

    @property
    def decayed_variables(self) -> list[Any]:
        """Returns the variables that weight decay shrinks."""
        both = zip(self._trainable_variables, self._excluded, strict=True)
        return [variable for variable, excluded in both if not excluded]

    def moments(self, variable: Any) -> tuple[Any, Any]:
        """Returns the variables (m, v) of one of the model's variables."""
        index = self._get_variable_index(variable)
        return self._first_moments[index], self._second_moments[index]

    def apply(
        self, grads: Sequence[Any], trainable_variables: Any = None, scale: Any = None
    ) -> Any:
        """Updates the variables; over several replicas the gradients' sum counts.

        `scale`, the same on every replica, is what every gradient is multiplied by, in
        the pass over memory that updates its variable.
        """
        clips = self.clipnorm or self.global_clipnorm or self.clipvalue
        if scale is not None and clips:
            raise ValueError(
                "With `scale` the caller clips, so the optimizer must not: build it "
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
        """Updates one variable and its moments; the rate is the step's scalars."""
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
        """Returns 1 / (1 - beta^t), t = 1, 2, ...; 1 - 0.999 would lose digits."""
        t = ops.cast(self.iterations + 1, "float32")
        return -1.0 / ops.expm1(t * math.log(beta)) if beta else ops.ones_like(t)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        config.update(
            weight_decay_rate=self.weight_decay_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            bias_correction=self.bias_correction,
            exclude_from_weight_decay=list(self.exclude_from_weight_decay),
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


# Learning-rate schedules: linear warmup, then one of several decays.
#
# With peak r, end rate e, N training and W warmup steps, at step s = 0, 1, 2, ...
#
#     r s / W                      for s < W
#     e + (r - e) f(p)             from W on, where p goes from 0 to 1:
#
#     p = min(s, N) / N                      decay_from="start", the original's
#     p = (min(s, N) - W) / (N - W)          decay_from="warmup"
#
#     linear        f(p) = 1 - p
#     polynomial    f(p) = (1 - p)^power
#     cosine        f(p) = (1 + cos(pi p)) / 2         (Loshchilov and Hutter 2017)
#
# warmup, stable, decay, whose rate is r until the last d N steps (Hu et al. 2024), so
# that a run can get another N until then:
#
#     wsd           e + (r - e) min(1, (N - s) / (d N))
#
# and two without a last step:
#
#     inverse_sqrt  r sqrt(W / s), W at least 1        (Vaswani et al. 2017)
#     constant      r
#
# The first step of a warmup has rate 0. The original counts the decay from step 0, not
# from the end of the warmup: there its rate falls from about r to r (1 - W / N).

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
    decay_share: float = 0.2,
    bias_correction: bool = False,
    global_clipnorm: float | None = 1.0,
    **kwargs: Any,
) -> AdamWeightDecay:
    """The original's optimizer and schedule, unless told otherwise.

    Args:
        learning_rate: the peak.
        num_train_steps: steps until the rate is `end_learning_rate`.
        num_warmup_steps: steps of warmup; 0 for none.
        optimizer: "adamw", "lamb" or "muon".
        learning_rate_schedule: "linear", "cosine", "polynomial", "wsd",
            "inverse_sqrt" or "constant"; see WarmupSchedule.
        end_learning_rate: see WarmupSchedule.
        power: see WarmupSchedule.
        decay_from: see WarmupSchedule.
        decay_share: see WarmupSchedule.
        bias_correction: AdamWeightDecay's; the others have it always.
        global_clipnorm: the largest global norm of the gradients; None if a training
            loop clips them itself (Keras clips each replica's before adding them up).
        **kwargs: what all of them take: weight_decay_rate, layerwise_decay,
            skip_nonfinite, ...

    Raises:
        ValueError: an argument is out of its range.

    Examples:
        >>> optimizer = bert_tf.create_optimizer(1e-4, 1000, 100)
        >>> model = bert_tf.load_classifier("classifier")
        >>> model.compile(optimizer)
    """
    schedule = WarmupSchedule(
        learning_rate,
        num_train_steps,
        num_warmup_steps,
        shape=learning_rate_schedule,
        end_learning_rate=end_learning_rate,
        power=power,
        decay_from=decay_from,
        decay_share=decay_share,
    )
    kwargs["global_clipnorm"] = global_clipnorm
    if optimizer == "adamw":
        return AdamWeightDecay(schedule, bias_correction=bias_correction, **kwargs)
    if optimizer in ("lamb", "muon"):
        kind: type[AdamWeightDecay] = addon(optimizer)
        return kind(schedule, **kwargs)
    raise ValueError(f"Not one of adamw, lamb, muon: `optimizer={optimizer}`.")


def rate_of(optimizer: keras.Optimizer, step: int) -> float:
    """Returns the learning rate of the last of `step` steps: schedules start from 0."""
    schedule = optimizer._learning_rate
    return float(schedule(step - 1) if callable(schedule) else schedule)
