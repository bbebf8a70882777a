"""AdamWeightDecay: BERT's optimizer.

With gradient g, moments m and v, weight w, rate r:

    m <- beta_1 m + (1 - beta_1) g
    v <- beta_2 v + (1 - beta_2) g^2
    u  = m / (sqrt(v) + epsilon) + weight_decay_rate w
    w <- w - r u

Adam (Kingma and Ba 2015) without its bias correction, and with weight decay outside the
moments (Loshchilov and Hutter 2019), which LayerNorm and biases are spared.
"""

from collections.abc import Sequence
from typing import Any

import keras

from bert_tf.optimization.moment_optimizer import (
    EXCLUDED_FROM_WEIGHT_DECAY,
    MomentOptimizer,
)


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
            see layer_rates.py.
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
