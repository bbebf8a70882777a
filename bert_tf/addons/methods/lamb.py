"""LAMB: steps in proportion to the weights."""

import math
from typing import Any

import keras
from keras import ops

from bert_tf.optimization.optimizers import AdamWeightDecay


@keras.saving.register_keras_serializable(package="bert_tf")
class Lamb(AdamWeightDecay):
    """LAMB: Adam with steps in proportion to the weights' norm, for large batches.

    Algorithm 2 of You et al. 2020 ("Large Batch Optimization for Deep Learning:
    Training BERT in 76 minutes"), for each variable with gradient g, moments m and v,
    weights w, at step t = 1, 2, ..., with rate r and weight decay l:

        m <- beta_1 m + (1 - beta_1) g
        v <- beta_2 v + (1 - beta_2) g^2
        u  = (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + epsilon) + l w
        w <- w - r (|w| / |u|) u

    The decay l w is part of the norm |u|; the ratio |w| / |u| is 1 where either is 0
    (the paper's function phi is the identity). LayerNorm and biases have no decay and
    no ratio, as in the authors' code, NVIDIA's DeepLearningExamples and the TensorFlow
    Model Garden. By contrast, optax's `lamb` applies the ratio to them, and
    keras.optimizers.Lamb decays outside the ratio.
    """

    def __init__(self, learning_rate: Any, *, name: str = "lamb", **kwargs: Any):
        super().__init__(learning_rate, bias_correction=True, name=name, **kwargs)

    def step_factor(self, w: Any, update: Any) -> Any:
        """Returns |w| / |u|, or 1 where one of them is 0."""
        w_norm, update_norm = _norm(w), _norm(update)
        both = ops.logical_and(w_norm > 0.0, update_norm > 0.0)
        ratio = w_norm / ops.where(both, update_norm, 1.0)
        return ops.where(both, ratio, 1.0)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        del config["bias_correction"]
        return config


def _norm(tensor: Any) -> Any:
    """The Euclidean norm, as XLA computes it fast on a CPU.

    TensorFlow's adds up one number after the other, on one core; the sum of two halves
    is vectors, on all cores. On JAX the halves could be on different devices.
    """
    if keras.backend.backend() == "jax":
        return ops.sqrt(ops.sum(ops.square(tensor)))
    squares = ops.reshape(ops.square(tensor), [-1])
    size = math.prod(tensor.shape)
    for _ in range(5):
        if size % 2 == 0:
            size //= 2
            squares = squares[:size] + squares[size:]
    return ops.sqrt(ops.sum(squares))
