"""Training few parameters: LoRA and adapters."""

from typing import Any

import keras
from keras import ops

from bert_tf.modeling import fused
from bert_tf.modeling.layers import gelu, truncated_normal

# LoRA: the update of a frozen kernel as a product of two thin matrices.
#
#     y = x (W + A B) + b        A [inputs, rank], B [rank, outputs]
#
# W and b are frozen; A is initialized at random (He et al. 2015) and B to 0, so
# training starts from the pre-trained function (Hu et al. 2021, "LoRA: Low-rank
# adaptation of large language models", section 4.1). The paper scales A B by alpha /
# rank and does not tune alpha, as it acts like the learning rate. Like KerasHub, we
# leave the scale at 1.
#
# The product is Keras' own (`keras.layers.Dense.enable_lora`), in the layers that
# KerasHub chooses (`keras_hub.models.Backbone.enable_lora`): queries and values. The
# two kernels are added once per batch, so code that reads `layer.kernel`, such as the
# single product for queries, keys and values, works unchanged.


class LowRankDense(keras.layers.Dense):
    """A dense layer whose A and B are saved separately.

    Keras' own saves W + A B and loads it with A = B = 0, from where neither would get
    a gradient.
    """

    def save_own_variables(self, store: Any) -> None:
        """Keras' extension point, for .keras and .h5 files."""
        if not self.lora_enabled:
            super().save_own_variables(store)
            return
        for number, variable in enumerate(self._saved()):
            store[str(number)] = variable

    def load_own_variables(self, store: Any) -> None:
        """Keras' extension point; takes files without LoRA too."""
        if not self.lora_enabled or len(store.keys()) < len(self._saved()):
            super().load_own_variables(store)
            return
        for number, variable in enumerate(self._saved()):
            variable.assign(store[str(number)])

    def _saved(self) -> list[keras.Variable]:
        return [self._kernel, self.bias, self.lora_kernel_a, self.lora_kernel_b]


# Adapters: small networks between the frozen parts of each layer.
#
# Houlsby et al. 2019, "Parameter-efficient transfer learning for NLP", section 2.1.
# Each layer has two, one after the attention's output projection and one after that of
# the feed-forward network, before the residual and the normalization:
#
#     LayerNorm(residual + Adapter(Dropout(Dense(x))))
#     Adapter(h) = h + gelu(h D + c) U + d      D [H, M], U [M, H]
#
# D and U are initialized near 0, so training starts near the pre-trained function.
#
# Shapes: B batch, S sequence, H hidden, M the adapter's size.


# The default of the paper's code; all below 1e-2 work alike (section 3.6).
INITIALIZER_RANGE = 1e-3


class Adapter(keras.layers.Layer):
    """A bottleneck of `size` numbers, M, with its own residual."""

    def __init__(self, size: int, hidden_size: int, dtype: Any = None):
        super().__init__(dtype=dtype, name="adapter")
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
        """Builds `down` from H to the bottleneck, and `up` back to H."""
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
