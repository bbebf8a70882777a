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

from bert_tf.base import keras_backend
from bert_tf.base.config import ATTENTION_MASK_PENALTY, BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.layers import SelfAttention, Stored, dense

# Added to the seed of a layer's dropout, for its global tokens.
_OTHER_MASK = 0x5EED


# The addends of local scores, 0 or a penalty, [B, 1, n, w, c + g]; with global tokens
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
        seen, size = self._of_keys(is_neighbour), self._of_queries(is_token).shape[3]
        width = seen.shape[4]
        distance = np.arange(width) - (width - size) // 2 - np.arange(size)[:, None]
        seen = seen & (np.abs(distance) <= self.window)
        if sequence_ids is not None:
            own, keys = self._of_queries(sequence_ids), self._of_keys(sequence_ids)
            seen &= ops.equal(own, keys)
        if not self.num_global:
            return (self._penalty(seen),)
        shape = (*ops.shape(seen)[:4], ops.shape(is_global)[1])
        columns = ops.broadcast_to(ops.expand_dims(is_global, (1, 2, 3)), shape)
        seen = ops.concatenate([seen, columns], axis=4)
        all_keys = ops.expand_dims(is_token, (1, 2))
        return self._penalty(seen), self._penalty(all_keys), is_global

    def compute_output_spec(self, input_mask: Any, *_: Any) -> LocalMask:
        """Returns what `call` does, whatever the length."""
        batch, dtype = input_mask.shape[0], self.compute_dtype
        local = keras.KerasTensor((batch, 1, None, None, None), dtype)
        if not self.num_global:
            return (local,)
        all_keys = keras.KerasTensor((batch, 1, 1, None), dtype)
        return local, all_keys, keras.KerasTensor((batch, None), "bool")

    # Indexing by None would be a strided slice, which LiteRT does not have.

    def _of_queries(self, x: Any) -> Any:
        """Maps [B, S] to [B, 1, n, w, 1]."""
        return _blocks(ops.expand_dims(x, (1, 3)), self.window)

    def _of_keys(self, x: Any) -> Any:
        """Maps [B, S] to [B, 1, n, 1, c]."""
        return ops.swapaxes(_neighbours(ops.expand_dims(x, (1, 3)), self.window), 3, 4)

    def _penalty(self, seen: Any) -> Any:
        return (1.0 - ops.cast(seen, self.compute_dtype)) * ATTENTION_MASK_PENALTY


class LocalSelfAttention(SelfAttention):
    """Attention to a window, and to and from the global tokens."""

    is_recomputed = False  # within a layer that is

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
        """Returns the context [B, S, H] and the local weights [B, A, n, w, c + g]."""
        if training and seed is None:
            seed = fused.next_seed(self.dropout)
        mask, *of_global = attention_bias
        projected = self._heads(x, training)
        num_global = ops.shape(of_global[1])[1] if of_global else 0

        def scores_and_values(query: Any, key: Any, value: Any) -> tuple[Any, Any]:
            keys, values = (
                _with_first(_neighbours(each, self.window), each, num_global)
                for each in (key, value)
            )
            queries = _blocks(query, self.window)
            return ops.matmul(queries, ops.swapaxes(keys, 3, 4)), values

        def attended(*projected: Any) -> Any:
            scores, values = scores_and_values(*projected)
            return fused.attended(scores, mask, values, seed, self.dropout.rate)

        scores, values = scores_and_values(*projected)
        weights = fused.softmax(scores, mask)
        if training:  # the weights cost nothing in a graph that does not use them
            # Computing it again takes 6 % more time, and a fifth less memory.
            is_kept = self.is_recomputed or not fused.is_on()
            attend = attended if is_kept else keras.remat(attended)
            context = attend(*projected)
        else:
            context = ops.matmul(weights, values)
        batch, heads, *_, size = ops.shape(context)
        context = ops.reshape(context, (batch, heads, -1, size))
        length = ops.shape(x)[1]
        if of_global:
            all_keys, is_global = of_global
            rows = self._of_global(x, all_keys, num_global, seed)
            local = _part(context, 2, 0, num_global)
            rows = ops.where(ops.expand_dims(is_global, (1, 3)), rows, local)
            others = _part(context, 2, num_global, length)
            context = ops.concatenate([rows, others], axis=2)
        else:
            context = _part(context, 2, 0, length)
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), ops.shape(x))
        return context, weights

    def probabilities(self, x: Any, attention_bias: LocalMask) -> Any:
        """Returns the local weights without dropout: see `call`."""
        return self.call(x, attention_bias)[1]

    def _heads(self, x: Any, training: bool | None) -> list[Any]:
        """Returns scaled queries, keys and values, [B, A, S, D]."""
        if not training and not fused.compiles_inference():
            query = self.query(x) * self.head_size**-0.5
            return [self._by_head(each) for each in (query, self.key(x), self.value(x))]
        if keras_backend.is_jax():
            return [ops.swapaxes(each, 1, 2) for each in self.projections(x)]
        return list(self.projections(x))

    def _of_global(self, x: Any, mask: Any, num_global: Any, seed: Any) -> Any:
        """Returns the context of the first tokens as global ones, [B, A, g, D]."""
        if seed is not None:
            other = ops.cast([_OTHER_MASK], seed.dtype)
            seed = ops.concatenate([seed[:1] + other, seed[1:]])
        query, key, value = self.of_global
        queries = self._by_head(
            query(_part(x, 1, 0, num_global)) * self.head_size**-0.5
        )
        keys, values = (self._by_head(layer(x)) for layer in (key, value))
        scores = ops.matmul(queries, ops.swapaxes(keys, 2, 3))
        return fused.attended(scores, mask, values, seed, self.dropout.rate)


def _blocks(x: Any, window: int) -> Any:
    """Cuts [B, A, S, D] into blocks [B, A, n, w, D]; the last one is padded with 0."""
    batch, heads, length, size = ops.shape(x)
    if isinstance(length, int) and length <= window:
        return ops.expand_dims(x, 2)
    padding = ops.zeros((batch, heads, -length % window, size), x.dtype)
    x = ops.concatenate([x, padding], axis=2)
    return ops.reshape(x, (batch, heads, -1, window, size))


def _neighbours(x: Any, window: int) -> Any:
    """Returns each block with the ones before and after it, [B, A, n, c, D]."""
    blocks = _blocks(x, window)
    if blocks.shape[2] == 1:
        return blocks
    none, num = ops.zeros_like(blocks[:, :, :1]), ops.shape(blocks)[2]
    before = ops.concatenate([none, _part(blocks, 2, 0, num - 1)], axis=2)
    after = ops.concatenate([_part(blocks, 2, 1, num), none], axis=2)
    return ops.concatenate([before, blocks, after], axis=3)


def _with_first(blocks: Any, x: Any, num: Any) -> Any:
    """Appends the first tokens of x [B, A, S, D] to each block [B, A, n, c, D]."""
    if isinstance(num, int) and not num:
        return blocks
    batch, heads, num_blocks, _, size = ops.shape(blocks)
    first = ops.expand_dims(_part(x, 2, 0, num), 2)
    first = ops.broadcast_to(first, (batch, heads, num_blocks, num, size))
    return ops.concatenate([blocks, first], axis=3)


def _part(x: Any, axis: int, start: Any, stop: Any) -> Any:
    """Returns x[start:stop] along an axis.

    TensorFlow's gradient of indexing, a strided slice's, takes as long as attention.
    """
    starts, shape = [0] * len(x.shape), list(ops.shape(x))
    starts[axis], shape[axis] = start, stop - start
    return ops.slice(x, starts, shape)
