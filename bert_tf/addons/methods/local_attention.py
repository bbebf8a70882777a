"""Attention to a window and to global tokens (Beltagy et al. 2020, "Longformer").

A token attends to the tokens at most w positions away, and to the global ones: the
first tokens of the first text. These attend to all tokens, by projections of their own.
Memory and time grow with the length, not with its square: the sequence is cut into
blocks of w tokens, and the queries of a block see the keys of three blocks.

    scores = q k / sqrt(D) + bias      of 3 w neighbours and g global tokens

Shapes: B batch, S sequence, n blocks of w tokens, c their keys (3 w; S if one block has
the whole sequence), g global tokens, A heads, H hidden, D = H / A.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.base.config import ATTENTION_MASK_PENALTY, BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.layers import SelfAttention, Stored, dense

# Added to the seed of a layer's dropout, for its global tokens.
_OTHER_MASK = 0x5EED


# The addends of local scores, 0 or a penalty, [B, n, 1, w, c + g]; with global tokens
# also those of their scores, [B, 1, 1, S], and which tokens they are, bool [B, g].
LocalMask = tuple[Any, ...]


@keras.saving.register_keras_serializable(package="bert_tf")
class LocalAttentionMask(Stored, keras.layers.Layer):
    """Masks of local attention, which all layers use."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(dtype=dtype, name="attention_bias")
        self.window: int = config.attention_window or 0
        self.num_global = config.global_tokens or 0

    def call(
        self, input_mask: Any, segment_ids: Any, sequence_ids: Any = None
    ) -> LocalMask:
        """Returns the masks of rows [B, S]; a packed row's sequences stay apart."""
        is_token = ops.cast(input_mask, "bool")
        is_global = (is_token & ops.equal(segment_ids, 0))[:, : self.num_global]
        rest = ops.zeros_like(is_token[:, self.num_global :])
        is_neighbour = is_token & ~ops.concatenate([is_global, rest], axis=1)
        # Indexing by None would be a strided slice, which LiteRT does not have.
        seen = ops.expand_dims(_neighbours(is_neighbour, self.window), 2)
        width, size = seen.shape[3], _blocks(is_token, self.window).shape[2]
        distance = np.arange(width) - (width - size) // 2 - np.arange(size)[:, None]
        seen = seen & (np.abs(distance) <= self.window)
        if sequence_ids is not None:
            keys = ops.expand_dims(_neighbours(sequence_ids, self.window), 2)
            own = ops.expand_dims(_blocks(sequence_ids, self.window), 3)
            seen &= ops.equal(own, keys)
        if not self.num_global:
            return (self._penalty(seen, 2),)
        shape = (*ops.shape(seen)[:3], ops.shape(is_global)[1])
        columns = ops.broadcast_to(ops.expand_dims(is_global, (1, 2)), shape)
        seen = ops.concatenate([seen, columns], axis=3)
        return self._penalty(seen, 2), self._penalty(is_token, (1, 2)), is_global

    def compute_output_spec(self, input_mask: Any, *_: Any) -> LocalMask:
        """Returns what `call` does, whatever the length."""
        batch, dtype = input_mask.shape[0], self.compute_dtype
        local = keras.KerasTensor((batch, None, 1, None, None), dtype)
        if not self.num_global:
            return (local,)
        all_keys = keras.KerasTensor((batch, 1, 1, None), dtype)
        return local, all_keys, keras.KerasTensor((batch, None), "bool")

    def _penalty(self, seen: Any, axis: Any) -> Any:
        hidden = 1.0 - ops.cast(seen, self.compute_dtype)
        return ops.expand_dims(hidden * ATTENTION_MASK_PENALTY, axis)


class LocalSelfAttention(SelfAttention):
    """Attention to a window, and to and from the global tokens."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(config, dtype)
        self.window: int = config.attention_window or 0
        self.num_global = config.global_tokens or 0
        names = ("query_global", "key_global", "value_global")
        self.of_global = [
            dense(config, config.hidden_size, self.dtype_policy, name)
            for name in names[: 3 * bool(self.num_global)]
        ]

    def build(self, input_shape: tuple, *_: Any) -> None:
        """Builds the projections, those of the global tokens last."""
        super().build(input_shape)
        for layer in self.of_global:
            layer.build(input_shape)

    def call(
        self,
        x: Any,
        attention_bias: LocalMask,
        training: bool | None = None,
        seed: Any = None,
    ) -> tuple[Any, Any]:
        """Returns the context [B, S, H] and the local weights [B, n, A, w, c + g]."""
        if training and seed is None:
            seed = fused.next_seed(self.dropout)
        mask, *of_global = attention_bias
        rate = self.dropout.rate
        query, key, value = self._projections((self.query, self.key, self.value), x, x)
        queries = _blocks(query, self.window)
        keys, values = (_neighbours(each, self.window) for each in (key, value))
        scores = ops.einsum("bnqad,bnkad->bnaqk", queries, keys)
        if of_global:
            first, first_values = key[:, : self.num_global], value[:, : self.num_global]
            columns = ops.einsum("bnqad,bgad->bnaqg", queries, first)
            scores = ops.concatenate([scores, columns], axis=-1)
        weights = fused.dropped_softmax(scores, mask, seed, rate)
        width = keys.shape[2]
        context = ops.einsum("bnaqk,bnkad->bnqad", weights[..., :width], values)
        if of_global:
            columns = weights[..., width:]
            context += ops.einsum("bnaqg,bgad->bnqad", columns, first_values)
        context = ops.reshape(context, (ops.shape(x)[0], -1, *ops.shape(context)[3:]))
        context = context[:, : ops.shape(x)[1]]
        if of_global:
            all_keys, is_global = of_global
            rows = self._of_global(x, all_keys, seed)
            rows = ops.where(
                ops.expand_dims(is_global, (2, 3)), rows, context[:, : self.num_global]
            )
            context = ops.concatenate([rows, context[:, self.num_global :]], axis=1)
        return ops.reshape(context, ops.shape(x)), weights

    def probabilities(self, x: Any, attention_bias: LocalMask) -> Any:
        """Returns the local weights without dropout: see `call`."""
        return self.call(x, attention_bias)[1]

    def _of_global(self, x: Any, mask: Any, seed: Any) -> Any:
        """Returns the context of the first tokens as global ones, [B, g, A, D]."""
        if seed is not None:
            other = ops.cast([_OTHER_MASK], seed.dtype)
            seed = ops.concatenate([seed[:1] + other, seed[1:]])
        first = x[:, : self.num_global]
        queries, keys, values = self._projections(self.of_global, first, x)
        scores = ops.einsum("bgad,bkad->bagk", queries, keys)
        weights = fused.dropped_softmax(scores, mask, seed, self.dropout.rate)
        return ops.einsum("bagk,bkad->bgad", weights, values)

    def _projections(self, layers: Any, x: Any, others: Any) -> tuple[Any, Any, Any]:
        """Returns the scaled queries of x, and keys and values of others, by head."""
        query, key, value = layers
        scale = self.head_size**-0.5
        return (
            self._projected(x, query.kernel * scale, query.bias * scale),
            self._projected(others, key.kernel, key.bias),
            self._projected(others, value.kernel, value.bias),
        )


def _blocks(x: Any, window: int) -> Any:
    """Cuts [B, S, ...] into blocks [B, n, w, ...]; the last one is padded with 0."""
    batch, length, *rest = ops.shape(x)
    if isinstance(length, int) and length <= window:
        return ops.expand_dims(x, 1)
    padding = ops.zeros((batch, -length % window, *rest), x.dtype)
    return ops.reshape(
        ops.concatenate([x, padding], axis=1), (batch, -1, window, *rest)
    )


def _neighbours(x: Any, window: int) -> Any:
    """Returns each block with the ones before and after it, [B, n, c, ...]."""
    blocks = _blocks(x, window)
    if blocks.shape[1] == 1:
        return blocks
    none = ops.zeros_like(blocks[:, :1])
    return ops.concatenate(
        [
            ops.concatenate([none, blocks[:, :-1]], axis=1),
            blocks,
            ops.concatenate([blocks[:, 1:], none], axis=1),
        ],
        axis=2,
    )
