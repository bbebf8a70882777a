"""LAMB: Adam whose step is as long as the weights are, for batches of many thousands.

Algorithm 2 of You et al. 2020 ("Large Batch Optimization for Deep Learning: Training
BERT in 76 minutes"), for each variable with gradient g, moments m and v, weights w, at
step t = 1, 2, ..., with rate r and weight decay l:

    m <- beta_1 m + (1 - beta_1) g
    v <- beta_2 v + (1 - beta_2) g^2
    u  = (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + epsilon) + l w
    w <- w - r (|w| / |u|) u

The decay l w is within the norm |u|; the ratio |w| / |u| is 1 where one of them is 0
(the paper's function phi is the identity). LayerNorm and biases have no decay and no
ratio, as in the authors' code, in NVIDIA's DeepLearningExamples and in the TensorFlow
Model Garden, where what is excluded from the decay is excluded from the ratio. Unlike
there, optax's `lamb` gives them the ratio, and keras.optimizers.Lamb decays outside of
it.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.optimization.moment_optimizer import (
    EXCLUDED_FROM_WEIGHT_DECAY,
    MomentOptimizer,
)
from bert_tf.optimization.moment_rule import MomentRule


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
            see layer_rates.py.
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
