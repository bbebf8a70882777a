"""The transformer block: attention, then the feed-forward layers."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.base import keras_backend
from bert_tf.base.config import ATTENTION_MASK_PENALTY, BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.fused import compiles_inference, next_seed
from bert_tf.modeling.layers import (
    Stored,
    activation,
    dense,
    gelu,
    layer_norm,
    observe,
    truncated_normal,
)

# Shapes: B batch, S sequence, H hidden, A heads, D = H / A.


@keras.saving.register_keras_serializable(package="bert_tf")
class AttentionBias(Stored, keras.layers.Layer):
    """Addend of attention scores: 0 where a token may attend, else the penalty."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(dtype=dtype, name="attention_bias")
        self.left_to_right = config.left_to_right
        self.right_to_left = config.right_to_left

    def call(
        self, input_mask: Any, attention_mask: Any = None, sequence_ids: Any = None
    ) -> Any:
        """The bias [B, 1, 1 or S, S] of masks [B, S] and [B, S (from), S (to)].

        In a packed row a token attends only to those with its own sequence's id.
        """
        # Indexing by None would be a strided slice, which LiteRT does not have.
        visible = ops.expand_dims(ops.cast(input_mask, self.compute_dtype), (1, 2))
        if attention_mask is not None:
            visible *= ops.cast(attention_mask, self.compute_dtype)[:, None, :, :]
        if sequence_ids is not None:
            is_same = ops.equal(sequence_ids[:, :, None], sequence_ids[:, None, :])
            visible *= ops.cast(is_same, self.compute_dtype)[:, None, :, :]
        if self.left_to_right or self.right_to_left:
            index = ops.arange(ops.shape(input_mask)[1], dtype="int32")
            to, attending = index[None, :], index[:, None]
            is_seen = to <= attending if self.left_to_right else to >= attending
            is_seen = ops.cast(is_seen, self.compute_dtype)
            visible *= ops.expand_dims(is_seen, (0, 1))
        return (1.0 - visible) * ATTENTION_MASK_PENALTY


class SelfAttention(keras.layers.Layer):
    """Scaled dot-product attention with A heads (Vaswani et al. 2017, section 3.2).

    The kernels are [H, H], as the original's: head a owns columns a * D to (a + 1) * D.
    """

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(dtype=dtype, name="self")
        self.num_heads = config.num_attention_heads
        self.head_size = config.hidden_size // config.num_attention_heads
        # LoRA is for queries and values, if requested.
        self.query, self.key, self.value = (
            dense(config, config.hidden_size, self.dtype_policy, name, kind=kind)
            for name, kind in (
                ("query", LowRankDense),
                ("key", keras.layers.Dense),
                ("value", LowRankDense),
            )
        )
        self.dropout = keras.layers.Dropout(
            config.attention_probs_dropout_prob, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, input_shape: tuple, *_: Any) -> None:
        """Builds the projections to queries, keys and values."""
        for layer in (self.query, self.key, self.value, self.dropout):
            layer.build(input_shape)
        self.built = True

    def call(
        self,
        x: Any,
        attention_bias: Any,
        training: bool | None = None,
        seed: Any = None,
    ) -> tuple[Any, Any]:
        """The context [B, S, H] and the probabilities before dropout [B, A, S, S].

        The bias is added to the scores; the dropout's seed is drawn if it is not given.
        """
        if training or compiles_inference():
            if training and seed is None:
                seed = next_seed(self.dropout)
            context, probabilities = self._attend_by_pieces(x, attention_bias, seed)
        else:
            probabilities = self.probabilities(x, attention_bias)
            context = ops.matmul(probabilities, self._by_head(self.value(x)))
            context = ops.transpose(context, (0, 2, 1, 3))
        return ops.reshape(context, ops.shape(x)), probabilities

    def probabilities(self, x: Any, attention_bias: Any) -> Any:
        """The attention probabilities [B, A, S, S]; arguments as the call's."""
        # The original scales the scores. Scaling the queries is the same, on fewer
        # numbers, and exact where D is a power of 4 (64 in every release).
        query = self._by_head(self.query(x) * self.head_size**-0.5)
        key = self._by_head(self.key(x))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        scores, attention_bias = observe("scores", (scores, attention_bias))
        return fused.softmax(scores, attention_bias)

    def _attend_by_pieces(
        self, x: Any, attention_bias: Any, seed: Any
    ) -> tuple[Any, Any]:
        """Returns the call's outputs, with a context [B, S, A, D]."""
        query, key, value = self.query, self.key, self.value
        scale = self.head_size**-0.5
        kernels = [query.kernel * scale, key.kernel, value.kernel]
        biases = [query.bias * scale, key.bias, value.bias]
        if keras_backend.is_jax():
            # XLA chooses layouts for these products, and needs no transposed copies.
            queries, keys, values = (
                self._projected(x, kernel, bias)
                for kernel, bias in zip(kernels, biases, strict=True)
            )
            scores = ops.einsum("bqad,bkad->baqk", queries, keys)
        else:
            # One product for queries, keys and values.
            queries, keys, values = fused.split_heads(
                ops.matmul(x, ops.concatenate(kernels, axis=1)),
                ops.concatenate(biases, axis=0),
                self.num_heads,
            )
            scores = ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2)))
        scores, attention_bias = observe("scores", (scores, attention_bias))
        weights = fused.dropped_softmax(scores, attention_bias, seed, self.dropout.rate)
        # These cost nothing in a graph that does not use them.
        probabilities = fused.softmax(scores, attention_bias)
        if keras_backend.is_jax():
            return ops.einsum("baqk,bkad->bqad", weights, values), probabilities
        context = ops.transpose(ops.matmul(weights, values), (0, 2, 1, 3))
        return context, probabilities

    def _projected(self, x: Any, kernel: Any, bias: Any) -> Any:
        """[B, S, H] to [B, S, A, D]."""
        heads = (self.num_heads, self.head_size)
        if fused.are_products_by_head():
            kernel, bias = ops.reshape(kernel, (-1, *heads)), ops.reshape(bias, heads)
            return fused.plus_bias(ops.einsum("bsh,had->bsad", x, kernel), bias)
        x = fused.plus_bias(ops.matmul(x, kernel), bias)
        return ops.reshape(x, (*ops.shape(x)[:2], *heads))

    def _by_head(self, x: Any) -> Any:
        """[B, S, H] to [B, A, S, D]."""
        batch, length = ops.shape(x)[:2]
        x = ops.reshape(x, (batch, length, self.num_heads, self.head_size))
        return ops.transpose(x, (0, 2, 1, 3))


# One layer of the post-layer-norm Transformer (Devlin et al. 2018, section 3 and A.2).


class ResidualOutput(keras.layers.Layer):
    """LayerNorm(residual + Dropout(Dense(x))), an adapter after the dropout if any."""

    def __init__(
        self,
        config: BertConfig,
        adapter_size: int = 0,
        dtype: Any = None,
        norm_name: str = "LayerNorm",
        num_heads: int = 1,
    ):
        super().__init__(dtype=dtype, name="output")
        self.num_heads = num_heads  # whose outputs the inputs are
        self.dense = dense(config, config.hidden_size, self.dtype_policy)
        self.adapter = (
            Adapter(adapter_size, config.hidden_size, self.dtype_policy)
            if adapter_size
            else None
        )
        self.dropout = keras.layers.Dropout(
            config.hidden_dropout_prob, dtype=self.dtype_policy, name="dropout"
        )
        self.layer_norm = layer_norm(
            config.layer_norm_eps, self.dtype_policy, norm_name
        )

    def build(self, input_shape: tuple, *_: Any) -> None:
        """Builds the projection and, unless it has been, the normalization."""
        self.dense.build(input_shape)
        output_shape = (*input_shape[:-1], self.dense.units)
        self.dropout.build(output_shape)
        if not self.layer_norm.built:
            self.layer_norm.build(output_shape)
        if self.adapter is not None:
            self.adapter.build(output_shape)
        self.built = True

    def call(
        self, x: Any, residual: Any, training: bool | None = None, seed: Any = None
    ) -> Any:
        """[B, S, any] and a residual [B, S, H] to [B, S, H]; see `SelfAttention`."""
        dense, norm, dropout = self.dense, self.layer_norm, self.dropout
        by_pieces = self.adapter is None and compiles_inference()
        if not training and not by_pieces:
            x = dense(x)
            x = x if self.adapter is None else self.adapter(x)
            return norm(residual + x)
        if training and seed is None:
            seed = next_seed(dropout)
        if self.num_heads > 1 and fused.are_products_by_head():
            kernel = ops.reshape(dense.kernel, (self.num_heads, -1, dense.units))
            x = ops.reshape(x, (*ops.shape(x)[:2], *kernel.shape[:2]))
            x = ops.einsum("bsad,adh->bsh", x, kernel)
        else:
            x = ops.matmul(x, dense.kernel)
        if self.adapter is None:
            x = fused.dropped_residual(x, dense.bias, residual, seed, dropout.rate)
        else:
            x = fused.dropped(ops.add(x, dense.bias), seed, dropout.rate)
            x = residual + self.adapter(x, training=True)
        return fused.layer_norm(x, norm.gamma, norm.beta, norm.epsilon)


@keras.saving.register_keras_serializable(package="bert_tf")
class TransformerLayer(Stored, keras.layers.Layer):
    """Self-attention, then the feed-forward network, each with its residual.

    With `recompute` the backward pass computes the layer again from its input instead
    of keeping what it computed (Chen et al. 2016, "Training deep nets with sublinear
    memory cost"): with the same masks of dropout, less memory and about a third more
    time.

    Where a config's layers share their weights, these have ALBERT's names.
    """

    def __init__(
        self,
        config: BertConfig,
        recompute: bool = False,
        adapter_size: int = 0,
        dtype: Any = None,
        name: str = "layer_0",
    ):
        super().__init__(dtype=dtype, name=name)
        self.recompute = recompute
        self.activation = activation(config.hidden_act)
        self.attention = SelfAttention(config, self.dtype_policy)
        self.attention_output = ResidualOutput(
            config,
            adapter_size,
            self.dtype_policy,
            num_heads=config.num_attention_heads,
        )
        self.intermediate = dense(config, config.intermediate_size, self.dtype_policy)
        self.feed_forward_output = ResidualOutput(
            config,
            adapter_size,
            self.dtype_policy,
            norm_name="LayerNorm_1" if config.shares_layers else "LayerNorm",
        )
        self.is_shared = config.shares_layers

    def build(self, input_shape: tuple, *_: Any) -> None:
        """Builds the parts, in the original's scopes."""
        if self.is_shared:
            with keras.name_scope("inner_group_0"):
                self._build_as_alberts(input_shape)
            self.built = True
            return
        with keras.name_scope("attention"):
            self.attention.build(input_shape)
            self.attention_output.build(input_shape)
        with keras.name_scope("intermediate"):
            self.intermediate.build(input_shape)
        self.feed_forward_output.build((*input_shape[:-1], self.intermediate.units))
        self.built = True

    def _build_as_alberts(self, input_shape: tuple) -> None:
        """Builds the parts in the scopes of ALBERT's code."""
        for part in (self.attention_output, self.feed_forward_output):
            part.layer_norm.build(input_shape)
        with keras.name_scope("attention_1"):
            self.attention.build(input_shape)
            self.attention_output.build(input_shape)
        with keras.name_scope("ffn_1"), keras.name_scope("intermediate"):
            self.intermediate.build(input_shape)
            self.feed_forward_output.build((*input_shape[:-1], self.intermediate.units))

    def call(
        self, x: Any, attention_bias: Any, training: bool | None = None
    ) -> tuple[Any, Any]:
        """The layer's output [B, S, H] and its attention probabilities."""
        if training and self.recompute:
            # These cost nothing in a graph that does not use them.
            probabilities = self.attention.probabilities(x, attention_bias)
            return observe("layer", self._recomputed(x, attention_bias)), probabilities
        x, probabilities = self._transform(x, attention_bias, training)
        return observe("layer", x), probabilities

    def _recomputed(self, x: Any, attention_bias: Any) -> Any:
        """The output in training, of which only the input is kept.

        The seeds are drawn once, for both times that the layer is computed. Within a
        stateless scope the layer is a function of its weights.
        """
        parts = (self.attention, self.attention_output, self.feed_forward_output)
        seeds = [next_seed(part.dropout) for part in parts]
        weights = self.trainable_variables
        frozen = [
            (weight, ops.copy(weight))
            for weight in self.weights
            if not any(weight is other for other in weights)
        ]

        def transform(x: Any, *values: Any) -> Any:
            mapping = [*zip(weights, values, strict=True), *frozen]
            with keras.StatelessScope(state_mapping=mapping):
                return self._transform(x, attention_bias, True, seeds)[0]

        return keras.remat(transform)(x, *(ops.copy(weight) for weight in weights))

    def _transform(
        self,
        x: Any,
        attention_bias: Any,
        training: bool | None,
        seeds: Sequence[Any] = (None, None, None),
    ) -> tuple[Any, Any]:
        context, probabilities = self.attention(
            x, attention_bias, training=training, seed=seeds[0]
        )
        x = self.attention_output(context, x, training=training, seed=seeds[1])
        dense = self.intermediate
        if training or compiles_inference():
            # Cast here: Keras' scope that casts weights has ended when the backward
            # pass computes this again.
            kernel, bias = (
                ops.cast(weight, self.compute_dtype)
                for weight in (dense.kernel, dense.bias)
            )
            product = fused.widening_product(x, kernel)
            intermediate = fused.bias_activation(product, bias, self.activation)
        else:
            intermediate = self.activation(dense(x))
        x = self.feed_forward_output(intermediate, x, training=training, seed=seeds[2])
        return x, probabilities


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


# Adapters: small networks between the frozen parts of a layer.
#
# Houlsby et al. 2019, "Parameter-efficient transfer learning for NLP", section 2.1.
# A layer has two, one after the attention's output projection and one after the
# feed-forward network's, before the residual and the normalization:
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
