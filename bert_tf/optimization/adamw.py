"""AdamWeightDecay: BERT's optimizer.

With gradient g, moments m and v, weight w, rate r:

    m <- beta_1 m + (1 - beta_1) g
    v <- beta_2 v + (1 - beta_2) g^2
    u  = m / (sqrt(v) + epsilon) + weight_decay_rate w
    w <- w - r u

Adam (Kingma and Ba 2015) without its bias correction, and with weight decay outside the
moments (Loshchilov and Hutter 2019), which LayerNorm and biases are spared.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.optimization.gradients import dense_gradient
from bert_tf.optimization.schedules import WarmupLinearDecay

# Searched for in a variable's path. As in the original, "bias" covers output_bias too.
EXCLUDED_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(keras.optimizers.Optimizer):
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
        self.exclusions = tuple(exclude_from_weight_decay)
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

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        """Updates the variables; see the base class. Sparse gradients become dense."""
        grads = [dense_gradient(gradient) for gradient in grads]
        return super().apply(grads, trainable_variables)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable and its moments."""
        index = self._get_variable_index(variable)
        first_moment = self._first_moments[index]
        second_moment = self._second_moments[index]
        new_variable, new_first_moment, new_second_moment = self._next_values(
            ops.convert_to_tensor(variable),
            ops.cast(gradient, variable.dtype),
            ops.convert_to_tensor(first_moment),
            ops.convert_to_tensor(second_moment),
            ops.cast(learning_rate, variable.dtype),
            weight_decay_rate=self.weight_decay_rate if self._decays[index] else 0.0,
        )
        self.assign(first_moment, new_first_moment)
        self.assign(second_moment, new_second_moment)
        self.assign(variable, new_variable)

    def _next_values(
        self,
        weight: Any,
        gradient: Any,
        m: Any,
        v: Any,
        learning_rate: Any,
        weight_decay_rate: float,
    ) -> tuple[Any, Any, Any]:
        """The equations above: (w, g, m, v) to the next (w, m, v)."""
        m = self.beta_1 * m + (1.0 - self.beta_1) * gradient
        v = self.beta_2 * v + (1.0 - self.beta_2) * ops.square(gradient)
        if self.bias_correction:
            first, second = self._correction(self.beta_1), self._correction(self.beta_2)
            update = (m / first) / (ops.sqrt(v / second) + self.epsilon)
        else:
            update = m / (ops.sqrt(v) + self.epsilon)
        if weight_decay_rate:
            update = update + weight_decay_rate * weight
        return weight - learning_rate * update, m, v

    def _correction(self, beta: float) -> Any:
        """1 - beta^t at step t = 1, 2, ..., where 1 - 0.999 would lose its digits."""
        t = ops.cast(self.iterations + 1, "float32")
        return -ops.expm1(t * math.log(beta)) if beta else 1.0

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
        )
        return config


def create_optimizer(
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int,
    *,
    global_clipnorm: float | None = 1.0,
    **kwargs: Any,
) -> AdamWeightDecay:
    """AdamWeightDecay with warmup, linear decay and clipping at a global norm of 1.

    Args:
        learning_rate: the peak.
        num_train_steps: steps until the rate is 0.
        num_warmup_steps: steps of warmup; 0 for none.
        global_clipnorm: the largest global norm of the gradients; None where a training
            loop clips them itself (Keras clips each replica's before it adds them up).
        **kwargs: further arguments of AdamWeightDecay.
    """
    return AdamWeightDecay(
        WarmupLinearDecay(learning_rate, num_train_steps, num_warmup_steps),
        global_clipnorm=global_clipnorm,
        **kwargs,
    )
