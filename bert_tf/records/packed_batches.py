"""Batches of packed rows, taken apart into sequences and put together again.

Shapes: B batch, L tokens of a row, N sequences of a row; M sequences of the batch, S
tokens of a sequence.
"""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf.records.pipeline import RecordKeys


def as_packed(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Records of one sequence as packed rows of one, for a model of packed rows."""
    labels = batch["next_sentence_labels"]
    return {
        **batch,
        "sequence_ids": batch["input_mask"],
        "cls_positions": tf.zeros_like(labels),
        "next_sentence_weights": tf.ones_like(labels, tf.float32),
    }


class RowSequences:
    """The sequences of a batch of rows, each as a row of its own.

    Attributes:
        input_ids: [M, S] int32, 0 for padding.
        input_mask: [M, S] int32.
        keys: [M], each sequence's own.
    """

    def __init__(
        self,
        batch: Mapping[str, tf.Tensor],
        keys: RecordKeys,
        max_sequence_length: int,
    ) -> None:
        length = batch["input_ids"].shape[1]
        num_slots = batch["cls_positions"].shape[1]
        slots = tf.where(batch["next_sentence_weights"] > 0)
        rows, numbers = tf.unstack(slots, num=2, axis=1)
        self._begins = tf.gather_nd(batch["cls_positions"], slots)[:, None]
        places = self._begins + tf.range(max_sequence_length)[None]
        is_inside = places < length
        offsets = tf.cast(rows, tf.int32)[:, None] * length
        self._places = tf.minimum(places, length - 1) + offsets
        owners = tf.gather(tf.reshape(batch["sequence_ids"], [-1]), self._places)
        own = tf.cast(numbers, tf.int32)[:, None] + 1
        self._is_token = is_inside & (owners == own)
        ids = tf.gather(tf.reshape(batch["input_ids"], [-1]), self._places)
        self.input_ids = tf.where(self._is_token, ids, 0)
        self.input_mask = tf.cast(self._is_token, tf.int32)
        self.keys = RecordKeys(
            tf.gather(keys.epochs, rows),
            tf.gather(keys.records, rows) * num_slots + numbers,
        )
        self._row_length = length
        self._num_rows = tf.shape(batch["input_ids"])[0]

    def in_rows(self, values: tf.Tensor) -> tf.Tensor:
        """[M, S] int32 to [B, L], 0 for padding."""
        flat = tf.scatter_nd(
            tf.boolean_mask(self._places, self._is_token)[:, None],
            tf.boolean_mask(values, self._is_token),
            tf.reshape(self._num_rows * self._row_length, [1]),
        )
        return tf.reshape(flat, [-1, self._row_length])

    def positions_in_rows(self, positions: tf.Tensor) -> tf.Tensor:
        """[M, S] positions in the sequences to positions in the rows, [B, L]."""
        return self.in_rows(self._begins + positions)
