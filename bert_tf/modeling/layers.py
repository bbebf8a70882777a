"""The parts of BERT's encoder: embeddings, self-attention, Transformer layer, pooler.

Post-layer-norm Transformer of Devlin et al. 2018 (section 3 and appendix A.2). Layers
and weights bear the original's names, so that a variable's `path` is its name in a
released checkpoint: bert/encoder/layer_0/attention/self/query/kernel.

In training, where shapes seldom change, what lies between the matrix products is
compiled (`bert_tf.modeling.fused`); in inference it is Keras' layers.

Shapes: B batch, S sequence, H hidden, A heads, D = H / A.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.config import ATTENTION_MASK_PENALTY, LAYER_NORM_EPSILON, BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.dropout import next_seed


def truncated_normal(stddev: float) -> keras.initializers.Initializer:
    """Normal values, redrawn beyond two `stddev`; not rescaled to that deviation.

    Each weight needs its own: an unseeded Keras initializer repeats its values.
    """
    return keras.initializers.TruncatedNormal(stddev=stddev)


def gelu(x: Any) -> Any:
    """The tanh approximation of GELU (Hendrycks and Gimpel 2016, section 2).

    0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as
    x sigmoid(2u): the same function in fewer passes over memory, and exact where
    1 + tanh(u) cancels.
    """
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    return x * ops.sigmoid(x * (scale + (scale * 0.044715) * (x * x)))


def gelu_erf(x: Any) -> Any:
    """GELU itself, x P(X <= x) for a standard normal X."""
    return ops.gelu(x, approximate=False)


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


def hidden_activation(config: BertConfig) -> Callable[[Any], Any]:
    """The function that `config.hidden_act` names."""
    return _ACTIVATIONS[config.hidden_act]


def layer_norm(dtype: Any) -> keras.layers.LayerNormalization:
    """The layer normalization that every part of BERT uses."""
    return keras.layers.LayerNormalization(
        epsilon=LAYER_NORM_EPSILON, dtype=dtype, name="LayerNorm"
    )


def dense(
    config: BertConfig, units: int, dtype: Any, name: str = "dense", **kwargs: Any
) -> keras.layers.Dense:
    """A dense layer with the original's initial values: truncated normal, zero bias."""
    return keras.layers.Dense(
        units,
        kernel_initializer=truncated_normal(config.initializer_range),
        dtype=dtype,
        name=name,
        **kwargs,
    )


class Embeddings(keras.layers.Layer):
    """Word, segment and position embeddings: summed, normalized, dropped out."""

    def __init__(self, config: BertConfig, dtype: Any = None, name: str = "embeddings"):
        super().__init__(dtype=dtype, name=name)
        self.bert_config = config
        self.layer_norm = layer_norm(self.dtype_policy)
        self.dropout = keras.layers.Dropout(
            config.hidden_dropout_prob, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, *_: Any) -> None:
        """Makes the three tables."""
        config = self.bert_config
        for table_name, rows in (
            ("word_embeddings", config.vocab_size),
            ("token_type_embeddings", config.type_vocab_size),
            ("position_embeddings", config.max_position_embeddings),
        ):
            table = self.add_weight(
                name=table_name,
                shape=(rows, config.hidden_size),
                initializer=truncated_normal(config.initializer_range),
                # Under mixed precision the few rows that are read are cast, not the
                # whole table.
                autocast=False,
            )
            setattr(self, table_name, table)
        self.layer_norm.build((None, None, config.hidden_size))
        self.dropout.build((None, None, config.hidden_size))
        self.built = True

    def call(
        self,
        input_ids: Any,
        segment_ids: Any,
        position_ids: Any = None,
        training: bool | None = None,
    ) -> Any:
        """Embeds ids.

        Args:
            input_ids: [B, S] int32.
            segment_ids: [B, S] int32.
            position_ids: [B, S] int32; 0, 1, 2, ... where it is not given.
            training: whether to drop out.

        Returns:
            [B, S, H].

        Raises:
            ValueError: the sequence is longer than the table of positions.
        """
        words = ops.take(self.word_embeddings, input_ids, axis=0)
        # So few segments that a matrix product is quicker than a lookup, above all
        # backwards. It is exact: 1 * row + 0 * the others.
        segments = ops.matmul(
            ops.one_hot(segment_ids, self.bert_config.type_vocab_size, dtype="float32"),
            self.token_type_embeddings,
        )
        if position_ids is None:
            limit = self.bert_config.max_position_embeddings
            length = ops.shape(input_ids)[1]
            if isinstance(length, int) and length > limit:
                raise ValueError(
                    f"`input_ids` must not be longer than the model's {limit} "
                    f"positions. Received: {length} ids a sequence"
                )
            positions = ops.convert_to_tensor(self.position_embeddings)[:length]
        else:
            positions = ops.take(self.position_embeddings, position_ids, axis=0)
        x = words + segments + positions
        if not training:
            return self.layer_norm(x)
        norm, dropout = self.layer_norm, self.dropout
        x = ops.cast(x, self.compute_dtype)
        x = fused.layer_norm(x, norm.gamma, norm.beta)
        return fused.dropped(x, next_seed(dropout), dropout.rate)

    def compute_output_shape(self, input_ids_shape: tuple, *_: Any) -> tuple:
        """[B, S, H]."""
        return (*input_ids_shape, self.bert_config.hidden_size)


class AttentionBias(keras.layers.Layer):
    """What to add to attention scores: 0 where a token may look, else the penalty.

    Args:
        left_to_right: whether a token sees only itself and those before it.
    """

    def __init__(
        self, left_to_right: bool = False, dtype: Any = None, name: str | None = None
    ):
        super().__init__(dtype=dtype, name=name)
        self.left_to_right = left_to_right

    def call(
        self, input_mask: Any, attention_mask: Any = None, sequence_ids: Any = None
    ) -> Any:
        """Turns masks of zeros and ones into a bias.

        Args:
            input_mask: [B, S], 0 for padding, which no token sees.
            attention_mask: [B, S (from), S (to)], 0 where the one token does not see
                the other.
            sequence_ids: [B, S], the number of each token's sequence in a packed row;
                a token sees those of its own sequence alone.

        Returns:
            [B, 1, 1 or S, S].
        """
        visible = ops.cast(input_mask, self.compute_dtype)[:, None, None, :]
        if attention_mask is not None:
            visible *= ops.cast(attention_mask, self.compute_dtype)[:, None, :, :]
        if sequence_ids is not None:
            is_same = ops.equal(sequence_ids[:, :, None], sequence_ids[:, None, :])
            visible *= ops.cast(is_same, self.compute_dtype)[:, None, :, :]
        if self.left_to_right:
            index = ops.arange(ops.shape(input_mask)[1], dtype="int32")
            is_before = index[None, :] <= index[:, None]
            visible *= ops.cast(is_before, self.compute_dtype)[None, None, :, :]
        return (1.0 - visible) * ATTENTION_MASK_PENALTY


class SelfAttention(keras.layers.Layer):
    """Scaled dot-product attention with A heads (Vaswani et al. 2017, section 3.2).

    The kernels are [H, H], as the original's: head a owns columns a * D to (a + 1) * D.
    """

    def __init__(self, config: BertConfig, dtype: Any = None, name: str = "self"):
        super().__init__(dtype=dtype, name=name)
        self.num_heads = config.num_attention_heads
        self.head_size = config.hidden_size // config.num_attention_heads
        self.query = dense(config, config.hidden_size, self.dtype_policy, "query")
        self.key = dense(config, config.hidden_size, self.dtype_policy, "key")
        self.value = dense(config, config.hidden_size, self.dtype_policy, "value")
        self.dropout = keras.layers.Dropout(
            config.attention_probs_dropout_prob,
            dtype=self.dtype_policy,
            name="dropout",
        )

    def build(self, input_shape: tuple, *_: Any) -> None:
        """Builds the three projections."""
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
        """Attends.

        Args:
            x: [B, S, H].
            attention_bias: [B, 1, 1 or S, S], added to the scores.
            training: whether to drop out attention probabilities.
            seed: of the dropout; drawn where it is not given.

        Returns:
            The context [B, S, H] and the probabilities before dropout [B, A, S, S].
        """
        if training:
            seed = next_seed(self.dropout) if seed is None else seed
            context, probabilities = self._attend_in_training(x, attention_bias, seed)
        else:
            probabilities = self.probabilities(x, attention_bias)
            context = ops.matmul(probabilities, self._by_head(self.value(x)))
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), ops.shape(x))
        return context, probabilities

    def probabilities(self, x: Any, attention_bias: Any) -> Any:
        """The attention probabilities [B, A, S, S]; arguments as the call's."""
        # The original scales the scores. Scaling the queries is the same, on fewer
        # numbers, and to the bit where D is a power of 4 (64 in every release).
        query = self._by_head(self.query(x) * self.head_size**-0.5)
        key = self._by_head(self.key(x))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        return fused.softmax(scores, attention_bias)

    def _attend_in_training(
        self, x: Any, attention_bias: Any, seed: Any
    ) -> tuple[Any, Any]:
        """The same, with one product for queries, keys and values."""
        query, key, value = self.query, self.key, self.value
        scale = self.head_size**-0.5
        kernel = [query.kernel * scale, key.kernel, value.kernel]
        bias = [query.bias * scale, key.bias, value.bias]
        queries, keys, values = fused.split_heads(
            ops.matmul(x, ops.concatenate(kernel, axis=1)),
            ops.concatenate(bias, axis=0),
            self.num_heads,
        )
        scores = ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2)))
        weights = fused.dropped_softmax(scores, attention_bias, seed, self.dropout.rate)
        # These cost nothing in a graph that does not use them.
        probabilities = fused.softmax(scores, attention_bias)
        return ops.matmul(weights, values), probabilities

    def _by_head(self, x: Any) -> Any:
        """[B, S, H] to [B, A, S, D]."""
        batch, length = ops.shape(x)[:2]
        x = ops.reshape(x, (batch, length, self.num_heads, self.head_size))
        return ops.transpose(x, (0, 2, 1, 3))


class ResidualOutput(keras.layers.Layer):
    """LayerNorm(residual + Dropout(Dense(x))): how both halves of a layer end."""

    def __init__(self, config: BertConfig, dtype: Any = None, name: str = "output"):
        super().__init__(dtype=dtype, name=name)
        self.dense = dense(config, config.hidden_size, self.dtype_policy)
        self.dropout = keras.layers.Dropout(
            config.hidden_dropout_prob, dtype=self.dtype_policy, name="dropout"
        )
        self.layer_norm = layer_norm(self.dtype_policy)

    def build(self, input_shape: tuple, *_: Any) -> None:
        """Builds the projection and the normalization."""
        self.dense.build(input_shape)
        output_shape = (*input_shape[:-1], self.dense.units)
        self.dropout.build(output_shape)
        self.layer_norm.build(output_shape)
        self.built = True

    def call(
        self, x: Any, residual: Any, training: bool | None = None, seed: Any = None
    ) -> Any:
        """[B, S, any] and a residual [B, S, H] to [B, S, H]; see `SelfAttention`."""
        dense, norm, dropout = self.dense, self.layer_norm, self.dropout
        if not training:
            return norm(residual + dense(x))
        seed = next_seed(dropout) if seed is None else seed
        x = ops.matmul(x, dense.kernel)
        x = fused.dropped_residual(x, dense.bias, residual, seed, dropout.rate)
        return fused.layer_norm(x, norm.gamma, norm.beta)


class TransformerLayer(keras.layers.Layer):
    """Self-attention, then the feed-forward network, each with its residual.

    Args:
        config: the architecture.
        recompute: whether the backward pass computes the layer again from its input,
            instead of keeping what it computed (Chen et al. 2016, "Training deep nets
            with sublinear memory cost"): with the same masks of dropout, less memory
            and about a third more time.
        dtype: Keras dtype policy.
        name: the layer's name.
    """

    def __init__(
        self,
        config: BertConfig,
        recompute: bool = False,
        dtype: Any = None,
        name: str = "layer_0",
    ):
        super().__init__(dtype=dtype, name=name)
        self.recompute = recompute
        self.activation = hidden_activation(config)
        self.attention = SelfAttention(config, self.dtype_policy)
        self.attention_output = ResidualOutput(config, self.dtype_policy)
        self.intermediate = dense(config, config.intermediate_size, self.dtype_policy)
        self.feed_forward_output = ResidualOutput(config, self.dtype_policy)

    def build(self, input_shape: tuple, *_: Any) -> None:
        """Builds the parts, in the original's scopes."""
        with keras.name_scope("attention"):
            self.attention.build(input_shape)
            self.attention_output.build(input_shape)
        with keras.name_scope("intermediate"):
            self.intermediate.build(input_shape)
        self.feed_forward_output.build((*input_shape[:-1], self.intermediate.units))
        self.built = True

    def call(
        self, x: Any, attention_bias: Any, training: bool | None = None
    ) -> tuple[Any, Any]:
        """Transforms [B, S, H] into [B, S, H]; arguments as `SelfAttention`.

        Returns:
            The layer's output and its attention probabilities.
        """
        if training and self.recompute:
            # These cost nothing in a graph that does not use them.
            probabilities = self.attention.probabilities(x, attention_bias)
            return self._recomputed(x, attention_bias), probabilities
        return self._transform(x, attention_bias, training)

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
        if training:
            product = ops.matmul(x, dense.kernel)
            intermediate = fused.bias_activation(product, dense.bias, self.activation)
        else:
            intermediate = self.activation(dense(x))
        x = self.feed_forward_output(intermediate, x, training=training, seed=seeds[2])
        return x, probabilities


class Pooler(keras.layers.Layer):
    """tanh of a dense layer on the token that stands for a sequence, [CLS]."""

    def __init__(self, config: BertConfig, dtype: Any = None, name: str = "pooler"):
        super().__init__(dtype=dtype, name=name)
        self.dense = dense(
            config, config.hidden_size, self.dtype_policy, activation="tanh"
        )

    def build(self, input_shape: tuple) -> None:
        """Builds the dense layer."""
        self.dense.build(input_shape)
        self.built = True

    def call(self, x: Any) -> Any:
        """[..., H] to [..., H]."""
        return self.dense(x)
