"""Masking as the records are read: every epoch sees a sequence with other masks.

The procedure is that of `bert_tf.instances.masking` (Devlin et al. 2018, section 3.1
"Task #1"), and so is the distribution; only the random stream is another one. Here it
is a function of (seed, epoch, record) and nothing else: the same record in the same
epoch has the same masks at any batch size, in any order, after any resume.

In packed rows each sequence is masked as if it were alone, at the same rates.

Shapes: B batch, L tokens of a record, P predictions.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf.instances.creation import TokenIds
from bert_tf.instances.settings import MASK_RATE, RANDOM_RATE
from bert_tf.records.masking_units import CHOOSERS, Choice, Sequences
from bert_tf.records.noise import Purpose, RecordNoise
from bert_tf.records.packed_batches import RowSequences
from bert_tf.records.pipeline import RecordKeys

UNITS = tuple(CHOOSERS)


class DynamicMasking:
    """Masks batches of unmasked records, in TensorFlow's operations alone."""

    def __init__(
        self,
        ids: TokenIds,
        *,
        max_seq_length: int,
        max_predictions_per_seq: int,
        max_sequence_length: int | None = None,
        max_predictions_per_sequence: int | None = None,
        masked_lm_prob: float = 0.15,
        unit: str = "piece",
        mask_rate: float = MASK_RATE,
        random_rate: float = RANDOM_RATE,
        seed: int,
    ) -> None:
        if unit not in UNITS:
            raise ValueError(
                f"`unit` must be one of {', '.join(UNITS)}. Received: {unit!r}"
            )
        if max_predictions_per_seq < 1:
            raise ValueError(
                "`max_predictions_per_seq` must be at least 1. "
                f"Received: {max_predictions_per_seq}"
            )
        if not 0.0 < masked_lm_prob <= 1.0:
            raise ValueError(
                f"`masked_lm_prob` must be in (0, 1]. Received: {masked_lm_prob}"
            )
        if min(mask_rate, random_rate) < 0.0 or mask_rate + random_rate > 1.0:
            raise ValueError(
                "`mask_rate` and `random_rate` must not be negative, nor more than 1 "
                f"together. Received: {mask_rate} and {random_rate}"
            )
        self._ids = ids
        self._max_predictions_per_seq = max_predictions_per_seq
        self._max_sequence_length = max_sequence_length or max_seq_length
        self._max_limit = max_predictions_per_sequence or max_predictions_per_seq
        self._choose = CHOOSERS[unit]
        self._mask_until = mask_rate
        self._random_until = mask_rate + random_rate
        self._seed = seed
        # How many to choose of so many tokens: rounded half to even, as Python rounds.
        shares = np.rint(np.arange(max_seq_length + 1) * masked_lm_prob)
        self._limits = np.clip(shares, 1, self._max_limit).astype(np.int32)
        self._is_continuation = np.zeros(max(ids.word_ids) + 1, bool)
        self._is_continuation[sorted(ids.continuation_ids)] = True

    def __call__(
        self, batch: Mapping[str, tf.Tensor], keys: RecordKeys
    ) -> dict[str, tf.Tensor]:
        """Masks a batch."""
        noise = RecordNoise(self._seed, keys.epochs, keys.records)
        input_ids = batch["input_ids"]
        if "sequence_ids" in batch:
            choice = self._choose_in_rows(batch, keys)
        else:
            choice = self._choose(
                noise, self._sequences(input_ids, batch["input_mask"])
            )
        length = input_ids.shape[1]
        num_slots = min(self._max_predictions_per_seq, length)

        # The chosen positions in their order, then zeros.
        index = tf.range(length)[None]
        distances = tf.where(choice.is_chosen, length - index, 0)
        distances = tf.math.top_k(distances, num_slots).values
        is_used = distances > 0
        positions = tf.where(is_used, length - distances, 0)
        labels = tf.where(is_used, tf.gather(input_ids, positions, batch_dims=1), 0)
        groups = tf.broadcast_to(choice.groups, tf.shape(input_ids))
        groups = tf.gather(groups, positions, batch_dims=1)

        replacements = self._replacements(noise, positions, groups, labels)
        rows = tf.broadcast_to(
            tf.range(tf.shape(positions)[0])[:, None], tf.shape(positions)
        )
        # What is not used adds nothing, at position 0.
        masked_ids = tf.tensor_scatter_nd_add(
            input_ids,
            tf.stack([rows, positions], axis=-1),
            tf.where(is_used, replacements - labels, 0),
        )
        padding = [[0, 0], [0, self._max_predictions_per_seq - num_slots]]
        return {
            **batch,
            "input_ids": masked_ids,
            "masked_lm_positions": tf.pad(positions, padding),
            "masked_lm_ids": tf.pad(labels, padding),
            "masked_lm_weights": tf.pad(tf.cast(is_used, tf.float32), padding),
        }

    def _choose_in_rows(
        self, batch: Mapping[str, tf.Tensor], keys: RecordKeys
    ) -> Choice:
        """The choice of packed rows, made in each sequence by its own noise."""
        apart = RowSequences(batch, keys, self._max_sequence_length)
        choice = self._choose(
            RecordNoise(self._seed, *apart.keys),
            self._sequences(apart.input_ids, apart.input_mask),
        )
        # A group's number is that of a word or a token of its sequence.
        groups = tf.broadcast_to(choice.groups, tf.shape(apart.input_ids))
        return Choice(
            apart.in_rows(tf.cast(choice.is_chosen, tf.int32)) > 0,
            apart.positions_in_rows(groups),
        )

    def _sequences(self, input_ids: tf.Tensor, input_mask: tf.Tensor) -> Sequences:
        is_token = input_mask > 0
        is_separator = is_token & (
            (input_ids == self._ids.cls_id) | (input_ids == self._ids.sep_id)
        )
        limits = tf.gather(self._limits, tf.reduce_sum(input_mask, axis=1))
        return Sequences(
            is_candidate=is_token & ~is_separator,
            is_separator=is_separator,
            is_continuation=tf.gather(self._is_continuation, input_ids),
            limits=limits[:, None],
            max_limit=self._max_limit,
        )

    def _replacements(
        self,
        noise: RecordNoise,
        positions: tf.Tensor,
        groups: tf.Tensor,
        labels: tf.Tensor,
    ) -> tf.Tensor:
        """[B, P], what stands there now: [MASK], a random token, or what stood there.

        Each token of a span that is replaced gets a random one of its own.
        """
        word_ids = self._ids.word_ids
        random_ids = tf.gather(
            tf.constant(word_ids, tf.int32),
            noise.below(Purpose.RANDOM_TOKEN, positions, len(word_ids)),
        )
        treatment = noise.uniform(Purpose.TREATMENT, groups)
        return tf.where(
            treatment < self._mask_until,
            self._ids.mask_id,
            tf.where(treatment < self._random_until, random_ids, labels),
        )
