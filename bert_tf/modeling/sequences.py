"""Where the sequences of a row begin and end, for rows that hold several.

A packed row (`bert_tf.records.spec`) is several sequences one after another, each
with positions that start at 0 and a [CLS] of its own. `sequence_ids` numbers them from
1 and is 0 for padding; `cls_positions` says where they begin.

Shapes: B batch, S tokens of a row, N sequences of a row, H hidden.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.modeling.head_layers import GatherPositions


class PackedPositions(keras.layers.Layer):
    """The position of each token in its own sequence."""

    def call(self, sequence_ids: Any, cls_positions: Any) -> Any:
        """[B, S] and [B, N] to [B, S] int32; 0 for padding."""
        index = ops.arange(ops.shape(sequence_ids)[1], dtype="int32")[None, :]
        number = ops.maximum(sequence_ids - 1, 0)
        begins = ops.take_along_axis(cls_positions, number, axis=1)
        return ops.where(sequence_ids > 0, index - begins, 0)

    def compute_output_shape(
        self, sequence_ids_shape: tuple, cls_positions_shape: tuple
    ) -> tuple:
        """[B, S]."""
        return sequence_ids_shape


class PooledTokens(keras.layers.Layer):
    """The hidden states that stand for whole sequences.

    [CLS], the first token; or the last one where tokens see only what stands before
    them: there [CLS] has seen nothing of the sequence.

    Args:
        left_to_right: whether tokens see only what stands before them.
    """

    def __init__(self, left_to_right: bool, dtype: Any = None, name: str | None = None):
        super().__init__(dtype=dtype, name=name)
        self.left_to_right = left_to_right
        self.gather = GatherPositions(dtype=self.dtype_policy, name="gather_positions")

    def build(self, *_: Any) -> None:
        """Nothing here has weights."""
        self.gather.built = self.built = True

    def call(
        self,
        sequence_output: Any,
        input_mask: Any,
        sequence_ids: Any = None,
        cls_positions: Any = None,
    ) -> Any:
        """Picks one token of each sequence.

        Args:
            sequence_output: [B, S, H].
            input_mask: [B, S], 0 for padding.
            sequence_ids: [B, S], where rows are packed.
            cls_positions: [B, N], where rows are packed.

        Returns:
            [B, H]; [B, N, H] where rows are packed.
        """
        if sequence_ids is None or cls_positions is None:
            if not self.left_to_right:
                return sequence_output[:, 0, :]
            last = ops.sum(ops.cast(input_mask, "int32"), axis=1, keepdims=True) - 1
            return self.gather(sequence_output, ops.maximum(last, 0))[:, 0, :]
        if not self.left_to_right:
            return self.gather(sequence_output, cls_positions)
        number = ops.arange(1, ops.shape(cls_positions)[1] + 1, dtype="int32")
        is_own = ops.equal(sequence_ids[:, :, None], number[None, None, :])
        lengths = ops.sum(ops.cast(is_own, "int32"), axis=1)
        return self.gather(sequence_output, ops.maximum(cls_positions + lengths - 1, 0))
