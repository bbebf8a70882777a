"""Selection of the layers and tokens whose hidden states represent a sequence."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.modeling.layers import Stored, at_positions

# A learned mixture of all layers' outputs, like ELMo's.
#
#     gamma * sum_j w_j h_j        w = softmax(c s)
#
# over the embeddings and every layer's output h_j (Peters et al. 2018, section 3.2; for
# BERT's layers Tenney et al. 2019, "BERT rediscovers the classical NLP pipeline"). It
# starts as the mean: s = 0, gamma = 1.
#
# ELMo has c = 1. Adam changes a number by about the learning rate per step; with the
# rates used to fine-tune BERT, about 1e-5, the scores of ELMo's softmax would hardly
# leave 0.


# So that s moves as with ELMo's learning rate, 1e-3.
SCORE_SCALE = 100.0


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerMixture(Stored, keras.layers.Layer):
    """A mixture of tensors; c is the `score_scale`."""

    def __init__(self, score_scale: float = SCORE_SCALE, dtype: Any = None):
        super().__init__(dtype=dtype, name="layer_mixture")
        self.score_scale = score_scale

    def build(self, input_shape: Sequence[tuple]) -> None:
        """Makes a score for each tensor, and gamma."""
        self.scores = self.add_weight(
            name="scores",
            shape=(len(input_shape),),
            initializer="zeros",
            autocast=False,
        )
        self.gamma = self.add_weight(
            name="gamma", shape=(), initializer="ones", autocast=False
        )
        self.built = True

    def call(self, states: Sequence[Any]) -> Any:
        """Maps tensors [..., H], all of the same shape, to one."""
        weights = self.gamma * ops.softmax(self.score_scale * self.scores)
        weights = ops.cast(weights, self.compute_dtype)
        return ops.tensordot(weights, ops.stack(states), axes=1)


# Begin and end of the sequences in a packed row.
#
# A packed row (`bert_tf.records.spec`) holds several sequences one after another, each
# with positions that start at 0 and its own [CLS]. `sequence_ids` numbers them from 1
# and is 0 for padding; `cls_positions` gives their starts.
#
# Shapes: B batch, S tokens of a row, N sequences of a row, H hidden.


@keras.saving.register_keras_serializable(package="bert_tf")
class PackedPositions(Stored, keras.layers.Layer):
    """Computes tokens' positions in their own sequences."""

    def call(self, sequence_ids: Any, cls_positions: Any) -> Any:
        """Maps [B, S] and [B, N] to [B, S] int32; 0 for padding."""
        index = ops.arange(ops.shape(sequence_ids)[1], dtype="int32")[None, :]
        number = ops.maximum(sequence_ids - 1, 0)
        begins = ops.take_along_axis(cls_positions, number, axis=1)
        return ops.where(sequence_ids > 0, index - begins, 0)


@keras.saving.register_keras_serializable(package="bert_tf")
class PooledTokens(Stored, keras.layers.Layer):
    """Selects the hidden states that represent whole sequences.

    [CLS], the first token; or the last one if tokens only attend to earlier ones,
    because then [CLS] has not seen the sequence.
    """

    def __init__(self, left_to_right: bool, dtype: Any = None, name: str | None = None):
        super().__init__(dtype=dtype, name=name)
        self.left_to_right = left_to_right

    def call(
        self,
        sequence_output: Any,
        input_mask: Any,
        sequence_ids: Any = None,
        cls_positions: Any = None,
    ) -> Any:
        """Maps [B, S, H] to [B, H] or, for packed rows (the last two), to [B, N, H]."""
        if sequence_ids is None or cls_positions is None:
            if not self.left_to_right:
                return sequence_output[:, 0, :]
            last = ops.sum(ops.cast(input_mask, "int32"), axis=1, keepdims=True) - 1
            return at_positions(sequence_output, ops.maximum(last, 0))[:, 0, :]
        if not self.left_to_right:
            return at_positions(sequence_output, cls_positions)
        number = ops.arange(1, ops.shape(cls_positions)[1] + 1, dtype="int32")
        is_own = ops.equal(sequence_ids[:, :, None], number[None, None, :])
        lengths = ops.sum(ops.cast(is_own, "int32"), axis=1)
        return at_positions(
            sequence_output, ops.maximum(cls_positions + lengths - 1, 0)
        )


# One vector for a text.
#
# The output at [CLS], or the mean or the maximum of the tokens' outputs, [CLS] and
# [SEP] included (Reimers and Gurevych 2019, section 3).


POOLINGS = ("mean", "max", "cls")


def pooled_tokens(states: Any, input_mask: Any, pooling: str) -> Any:
    """Maps tokens' outputs [B, S, ...] and the mask [B, S] to vectors [B, ...]."""
    if pooling == "cls":
        return states[:, 0]
    mask = input_mask
    for _ in states.shape[2:]:
        mask = ops.expand_dims(mask, -1)
    if pooling == "max":
        return ops.max(ops.where(mask > 0, states, -1e9), axis=1)
    is_token = ops.cast(mask, states.dtype)
    # A row of padding has no tokens.
    count = ops.maximum(ops.sum(is_token, axis=1), 1.0)
    return ops.sum(states * is_token, axis=1) / count


@keras.saving.register_keras_serializable(package="bert_tf")
class SentencePooling(Stored, keras.layers.Layer):
    """Pools texts into vectors, in float32 under any policy."""

    def __init__(self, pooling: str, dtype: Any = None, name: str | None = None):
        super().__init__(autocast=False, dtype=dtype, name=name)
        self.pooling = pooling

    def call(self, sequence_output: Any, input_mask: Any) -> Any:
        """Maps outputs [B N, S, H] and the mask [B, N, S] to [B, N, H]."""
        mask = ops.reshape(input_mask, ops.shape(sequence_output)[:2])
        states = ops.cast(sequence_output, "float32")
        vectors = pooled_tokens(states, mask, self.pooling)
        return ops.reshape(vectors, (*ops.shape(input_mask)[:2], vectors.shape[-1]))

    def compute_output_spec(self, sequence_output: Any, input_mask: Any) -> Any:
        """Returns the outputs of `call` on symbolic inputs."""
        shape = (*input_mask.shape[:2], sequence_output.shape[-1])
        return keras.KerasTensor(shape, "float32")
