"""Adapters: small networks between the frozen parts of each layer.

Houlsby et al. 2019, "Parameter-efficient transfer learning for NLP", section 2.1. Each
layer has two, one after the attention's output projection and one after that of the
feed-forward network, before the residual and the normalization:

    LayerNorm(residual + Adapter(Dropout(Dense(x))))
    Adapter(h) = h + gelu(h D + c) U + d      D [H, M], U [M, H]

D and U begin near 0, so that training starts near the pre-trained function.

Shapes: B batch, S sequence, H hidden, M the adapter's size.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.modeling import fused
from bert_tf.modeling.layers import gelu, truncated_normal

# The default of the paper's code; all below 1e-2 work alike (section 3.6).
INITIALIZER_RANGE = 1e-3


class Adapter(keras.layers.Layer):
    """A bottleneck with a residual of its own.

    Args:
        size: M.
        hidden_size: H.
        dtype: Keras dtype policy.
        name: the layer's name.
    """

    def __init__(
        self, size: int, hidden_size: int, dtype: Any = None, name: str = "adapter"
    ):
        super().__init__(dtype=dtype, name=name)
        self.down, self.up = (
            keras.layers.Dense(
                units,
                kernel_initializer=truncated_normal(INITIALIZER_RANGE),
                dtype=self.dtype_policy,
                name=name,
            )
            for units, name in ((size, "down"), (hidden_size, "up"))
        )

    def build(self, input_shape: tuple) -> None:
        """Builds the two projections."""
        self.down.build(input_shape)
        self.up.build((*input_shape[:-1], self.down.units))
        self.built = True

    def call(self, x: Any, training: bool | None = None) -> Any:
        """[B, S, H] to [B, S, H]."""
        down, up = self.down, self.up
        if not training:
            return x + up(gelu(down(x)))
        inner = fused.bias_activation(ops.matmul(x, down.kernel), down.bias, gelu)
        return fused.dropped_residual(
            ops.matmul(inner, up.kernel), up.bias, x, None, 0.0
        )
