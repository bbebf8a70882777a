"""Targets of a left-to-right language model: at every token, the one that follows.

The ablation "LTR" of Devlin et al. 2018, section 5.1: nothing is masked, and a model
with `left_to_right` in its config predicts each token from those before it. The targets
come in the masked LM's features, so that its head and its loss serve here, too.

Shapes: B batch, L tokens of a record.
"""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf.records.pipeline import RecordKeys


def next_token_targets(
    batch: Mapping[str, tf.Tensor], keys: RecordKeys | None = None
) -> dict[str, tf.Tensor]:
    """Asks for the next token at the positions 0 to L - 2."""
    del keys
    ids, mask = batch["input_ids"], batch["input_mask"]
    has_next = mask[:, 1:] > 0
    if "sequence_ids" in batch:
        numbers = batch["sequence_ids"]
        has_next &= numbers[:, 1:] == numbers[:, :-1]
    labels = tf.where(has_next, ids[:, 1:], 0)
    positions = tf.where(has_next, tf.range(ids.shape[1] - 1)[None], 0)
    return {
        **batch,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": tf.cast(has_next, tf.float32),
    }
