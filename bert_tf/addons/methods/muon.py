"""Muon: steps for whole matrices."""

import math
from typing import Any

import keras
from keras import ops

from bert_tf.optimization.optimizers import AdamWeightDecay

_MOMENTUM = 0.95
_ITERATIONS = 5
_NEWTON_SCHULZ = keras.optimizers.Muon().zeropower_via_newtonschulz5


@keras.saving.register_keras_serializable(package="bert_tf")
class Muon(AdamWeightDecay):
    """Muon for the matrices of layers, AdamW with bias correction for all else.

    Jordan et al. 2024 ("Muon: An optimizer for hidden layers in neural networks"), with
    the step of Liu et al. 2025 ("Muon is Scalable for LLM Training", equation 4), which
    is about as long as Adam's. For a matrix W [n, k] with gradient G and moment M, at
    rate r, with weight decay l and mu = 0.95:

        M <- mu M + (1 - mu) G
        O  = NewtonSchulz(mu M + (1 - mu) G)
        W <- W - r (0.2 sqrt(max(n, k)) O + l W)

    O is nearly the orthogonal matrix next to its argument: all of its singular values
    are about 1. Five iterations of a polynomial (keras.optimizers.Muon) find it. Tables
    of embeddings, output matrices of heads, biases and LayerNorm are AdamW's.

    Args:
        learning_rate: a float, or a schedule.
        name: the optimizer's name.
        **kwargs: AdamWeightDecay's, but `bias_correction`.
    """

    def __init__(self, learning_rate: Any, *, name: str = "muon", **kwargs: Any):
        super().__init__(learning_rate, bias_correction=True, name=name, **kwargs)

    def build(self, variables: list[Any]) -> None:
        """Makes the moments; the second ones of matrices stay 0."""
        if self.built:
            return
        super().build(variables)
        for index, variable in enumerate(variables):
            if len(variable.shape) == 2 and variable.name == "kernel":
                self._assignments[index] = self._assign_orthogonal

    def _assign_orthogonal(
        self,
        variable: Any,
        gradient: Any,
        m: Any,
        v: Any,
        rate: Any,
        scale: Any,
        corrections: Any,
    ) -> None:
        del v, corrections
        w, moment = (ops.cast(target, target.dtype) for target in (variable, m))
        g, rate = ops.cast(gradient, w.dtype), ops.cast(rate, w.dtype)
        share: Any = 1.0 - _MOMENTUM
        if scale is not None:
            g = g * ops.cast(scale, w.dtype)
        if self.skip_nonfinite:
            finite = ops.isfinite(scale)
            g, rate = ops.where(finite, g, 0.0), ops.where(finite, rate, 0.0)
            share = ops.where(finite, share, 0.0)
        moment = moment + share * (g - moment)
        orthogonal = _NEWTON_SCHULZ(moment + share * (g - moment), _ITERATIONS)
        update = 0.2 * math.sqrt(max(w.shape)) * orthogonal
        variable.assign(w - rate * (update + self.weight_decay_rate * w))
        m.assign(moment)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        del config["bias_correction"]
        return config
