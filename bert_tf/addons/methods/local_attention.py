"""Attention to a window and to global tokens (Beltagy et al. 2020, "Longformer").

A token attends to the tokens at most w positions away, and to the global ones: the
first tokens of the first text. These attend to all tokens, by projections of their own.
Memory and time grow with the length, not with its square: the sequence is cut into
blocks of w tokens, and the queries of a block see the keys of three blocks.

    scores = q k / sqrt(D) + bias      of 3 w neighbours and g global tokens

The blocks of all sequences are the rows of one batch, in full attention's layouts: so a
TPU's compiler joins the scores with their softmax.

Shapes: B batch, S sequence, N = B n blocks of w tokens, n of each sequence; c their
keys (3 w; S if one block has the whole sequence), g global tokens, A heads, H hidden,
D = H / A.
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


# The addends of local scores, 0 or a penalty, [N, 1, w, c + g]; with global tokens also
# those of their scores, [B, 1, S], and which tokens they are, bool [B, S].
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
        is_first = ops.arange(ops.shape(is_token)[1]) < self.num_global
        is_global = is_token & ops.equal(segment_ids, 0) & is_first
        seen = self._of_keys(is_token & ~is_global)
        blocks, num_blocks = self._cut(is_token)
        width, size = seen.shape[3], blocks.shape[1]
        distance = np.arange(width) - (width - size) // 2 - np.arange(size)[:, None]
        seen = seen & (np.abs(distance) <= self.window)
        if sequence_ids is not None:
            own = ops.expand_dims(self._cut(sequence_ids)[0], (1, 3))
            seen &= ops.equal(own, self._of_keys(sequence_ids))
        if not self.num_global:
            return (self._penalty(seen),)
        columns = _columns(is_global, self.num_global)
        columns = _for_blocks(ops.expand_dims(columns, (1, 2)), num_blocks)
        shape = (*ops.shape(seen)[:3], ops.shape(columns)[3])
        seen = ops.concatenate([seen, ops.broadcast_to(columns, shape)], axis=3)
        all_keys = ops.expand_dims(is_token, 1)
        return self._penalty(seen), self._penalty(all_keys), is_global

    def compute_output_spec(self, input_mask: Any, *_: Any) -> LocalMask:
        """Returns what `call` does, whatever the length."""
        batch, dtype = input_mask.shape[0], self.compute_dtype
        local = keras.KerasTensor((None, 1, None, None), dtype)
        if not self.num_global:
            return (local,)
        all_keys = keras.KerasTensor((batch, 1, None), dtype)
        return local, all_keys, keras.KerasTensor((batch, None), "bool")

    # Indexing by None would be a strided slice, which LiteRT does not have.

    def _of_keys(self, x: Any) -> Any:
        """Maps [B, S] to [N, 1, 1, c]."""
        blocks, num_blocks = self._cut(x)
        return ops.expand_dims(_seen(num_blocks, 1, blocks), (1, 2))

    def _cut(self, x: Any) -> tuple[Any, Any]:
        return _blocks(x, self.window)

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
        """Returns the context [B, S, H] and the local weights [N, A, w, c + g]."""
        if training and seed is None:
            seed = fused.next_seed(self.dropout)
        mask, *of_global = attention_bias
        blocks, num_blocks = _blocks(x, self.window)
        projected, axis = self._heads(blocks, training)
        if of_global:
            columns = _columns(x, self.num_global)
            projected += self._heads(columns, training)[0][1:]

        def scores_and_values(query: Any, *others: Any) -> tuple[Any, Any]:
            pairs = others[::2], others[1::2]  # of blocks, and of columns
            keys, values = (_seen(num_blocks, axis, *each) for each in pairs)
            if axis == 1:
                scores = ops.einsum("nqad,nkad->naqk", query, keys)
                return scores, ops.swapaxes(values, 1, 2)
            return ops.matmul(query, ops.swapaxes(keys, 2, 3)), values

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
        batch, length, width = ops.shape(x)
        context = ops.reshape(ops.swapaxes(context, 1, 2), (batch, -1, width))
        if not of_global:
            return _part(context, 1, 0, length), weights
        all_keys, is_global = of_global
        rows = self._of_global(x, all_keys, seed)
        rows = _with_zeros(rows, length - ops.shape(rows)[1])
        is_global = ops.expand_dims(is_global, 2)
        return ops.where(is_global, rows, _part(context, 1, 0, length)), weights

    def probabilities(self, x: Any, attention_bias: LocalMask) -> Any:
        """Returns the local weights without dropout: see `call`."""
        return self.call(x, attention_bias)[1]

    def _heads(self, x: Any, training: bool | None) -> tuple[list[Any], int]:
        """Returns scaled queries, keys and values of blocks, and the axis of tokens."""
        if not training and not fused.compiles_inference():
            query = self.query(x) * self.head_size**-0.5
            others = self.key(x), self.value(x)
            return [self._by_head(each) for each in (query, *others)], 2
        return list(self.projections(x)), 1 if keras_backend.is_jax() else 2

    def _of_global(self, x: Any, mask: Any, seed: Any) -> Any:
        """Returns the context of the first tokens as global ones, [B, g, H].

        q (W x + b) = (W^T q) x + q b: for few queries the kernels are applied to them
        and to what they have read, not to all tokens.
        """
        if seed is not None:
            other = ops.cast([_OTHER_MASK], seed.dtype)
            seed = ops.concatenate([seed[:1] + other, seed[1:]])
        query, *others = self.of_global
        first, rate = _first(x, self.num_global), self.dropout.rate
        q = self._by_head(query(first) * self.head_size**-0.5)
        if self.num_global > self.head_size or query.quantization_mode:
            keys, values = (self._by_head(layer(x)) for layer in others)
            scores = ops.matmul(q, ops.swapaxes(keys, 2, 3))
            mask = ops.expand_dims(mask, 1)
            context = fused.attended(scores, mask, values, seed, rate)
        else:
            key, key_bias, value, value_bias = (
                ops.reshape(weight, (-1, self.num_heads, self.head_size))
                for each in others
                for weight in (each.kernel, each.bias)
            )
            batch, _, num, _ = ops.shape(q)
            of_kernel, of_bias = (
                ops.reshape(ops.einsum("bagd,had->bagh", q, each), (batch, -1, size))
                for each, size in ((key, ops.shape(x)[2]), (key_bias, 1))
            )
            scores = ops.matmul(of_kernel, ops.swapaxes(x, 1, 2)) + of_bias
            context, kept = (
                ops.reshape(
                    fused.attended(scores, mask, tokens, seed, rate),
                    (batch, self.num_heads, num, ops.shape(tokens)[2]),
                )
                for tokens in (x, ops.ones_like(_part(x, 2, 0, 1)))  # 1, of a bias
            )
            context = ops.einsum("bagh,had->bagd", context, value)
            context += ops.einsum("bagh,had->bagd", kept, value_bias)
        return ops.reshape(ops.swapaxes(context, 1, 2), ops.shape(first))


def _blocks(x: Any, window: int) -> tuple[Any, Any]:
    """Returns blocks [N, w, ...] of [B, S, ...], the last padded with 0, and n."""
    batch, length, *others = ops.shape(x)
    if isinstance(length, int) and length <= window:
        return x, 1
    num = -(-length // window)
    x = _with_zeros(x, -length % window)
    return ops.reshape(x, (batch * num, window, *others)), num


def _with_zeros(x: Any, count: Any) -> Any:
    """Returns [B, S, ...] with `count` further tokens of zeros."""
    if isinstance(count, int) and not count:
        return x
    batch, _, *others = ops.shape(x)
    return ops.concatenate([x, ops.zeros((batch, count, *others), x.dtype)], axis=1)


def _columns(x: Any, num_global: int) -> Any:
    """Returns the first tokens of [B, S, ...], which are columns of all blocks' scores.

    In training on a TPU there are more than the global ones, which the mask hides: its
    compiler joins scores with their softmax if they fill its 128 lanes.
    """
    lanes = 128 if fused.are_products_by_head() else 1
    return _first(x, -(-num_global // lanes) * lanes)


def _first(x: Any, count: int) -> Any:
    """Returns the first tokens of [B, S, ...], at most S."""
    length = ops.shape(x)[1]
    least = min if isinstance(length, int) else ops.minimum
    return _part(x, 1, 0, least(count, length))


def _seen(num_blocks: Any, axis: int, blocks: Any, *columns: Any) -> Any:
    """Returns what each block sees: three blocks, and a sequence's columns.

    Tokens are counted along the axis: w become c + g.
    """
    shape = ops.shape(blocks)
    parts = [blocks]
    if not isinstance(num_blocks, int) or num_blocks > 1:
        rows = ops.reshape(blocks, (-1, num_blocks, *shape[1:]))
        none = ops.zeros_like(_part(rows, 1, 0, 1))
        padded = ops.concatenate([none, rows, none], axis=1)
        before, after = (
            ops.reshape(_part(padded, 1, start, start + num_blocks), shape)
            for start in (0, 2)
        )
        parts = [before, blocks, after]
    parts += [_for_blocks(each, num_blocks) for each in columns]
    return ops.concatenate(parts, axis=axis)


def _for_blocks(x: Any, num_blocks: Any) -> Any:
    """Repeats [B, ...] for each block of a sequence, [N, ...]."""
    shape = ops.shape(x)
    x = ops.broadcast_to(ops.expand_dims(x, 1), (shape[0], num_blocks, *shape[1:]))
    return ops.reshape(x, (shape[0] * num_blocks, *shape[1:]))


def _part(x: Any, axis: int, start: Any, stop: Any) -> Any:
    """Returns x[start:stop] along an axis.

    TensorFlow's gradient of indexing, a strided slice's, takes as long as attention.
    """
    starts, shape = [0] * len(x.shape), list(ops.shape(x))
    starts[axis], shape[axis] = start, stop - start
    return ops.slice(x, starts, shape)
