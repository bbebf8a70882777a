"""Which tokens a token looks at, and how: masks as a bias, and self-attention.

Shapes: B batch, S sequence, H hidden, A heads, D = H / A.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.compilation import compiles_inference
from bert_tf.config import ATTENTION_MASK_PENALTY, BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.dropout import next_seed
from bert_tf.modeling.layers import dense
from bert_tf.modeling.lora import LowRankDense


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
        # LoRA is for queries and values, where it is asked for.
        self.query, self.key, self.value = (
            dense(config, config.hidden_size, self.dtype_policy, name, kind=kind)
            for name, kind in (
                ("query", LowRankDense),
                ("key", keras.layers.Dense),
                ("value", LowRankDense),
            )
        )
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
        if training or compiles_inference():
            if training and seed is None:
                seed = next_seed(self.dropout)
            context, probabilities = self._attend_by_pieces(x, attention_bias, seed)
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

    def _attend_by_pieces(
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
