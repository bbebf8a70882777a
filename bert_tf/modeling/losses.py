"""Losses and accuracies as pairs (weighted sum, sum of weights).

Pairs add up: the sums over N replicas, or k micro-batches, are those of one large
batch, and one division gives its mean. All are computed in float32.

Shapes: B batch, P predictions, V vocabulary, C classes.
"""

from typing import Any

from keras import ops

# The original adds this to the number of predictions, lest a batch without any divide
# by 0.
MASKED_LM_EPSILON = 1e-5


def masked_lm_loss(logits: Any, ids: Any, weights: Any) -> tuple[Any, Any]:
    """-log p(id) at the masked positions (Devlin et al. 2018, section 3.1).

    Args:
        logits: [B, P, V].
        ids: [B, P] integers, the tokens that were masked.
        weights: [B, P] floats, 0 for the slots that hold no prediction.
    """
    return _weighted(_negative_log_likelihood(logits, ids), weights)


def masked_lm_accuracy(logits: Any, ids: Any, weights: Any) -> tuple[Any, Any]:
    """How often the likeliest token is the masked one; see `masked_lm_loss`."""
    return _weighted(_is_likeliest(logits, ids), weights)


def next_sentence_loss(
    logits: Any, labels: Any, weights: Any = None
) -> tuple[Any, Any]:
    """-log p(label) where label 1 stands for a random sentence.

    Args:
        logits: [B, 2].
        labels: B integers, of any shape.
        weights: B floats, of any shape, 0 for what is no sequence; all 1 where they
            are not given.
    """
    return classification_loss(logits, labels, weights)


def next_sentence_accuracy(
    logits: Any, labels: Any, weights: Any = None
) -> tuple[Any, Any]:
    """How often the likelier label is right; arguments as `next_sentence_loss`."""
    return classification_accuracy(logits, labels, weights)


def classification_loss(
    logits: Any, label_ids: Any, is_real_example: Any = None
) -> tuple[Any, Any]:
    """-log p(label).

    Args:
        logits: [B, C].
        label_ids: [B] or [B, 1] integers.
        is_real_example: [B] or [B, 1], 0 for examples that only fill up a batch; all
            are real where it is not given.
    """
    return _weighted(
        _negative_log_likelihood(logits, _flat(label_ids)), _flat(is_real_example)
    )


def classification_accuracy(
    logits: Any, label_ids: Any, is_real_example: Any = None
) -> tuple[Any, Any]:
    """How often the likeliest label is right; arguments as `classification_loss`."""
    return _weighted(_is_likeliest(logits, _flat(label_ids)), _flat(is_real_example))


def regression_loss(
    logits: Any, label_ids: Any, is_real_example: Any = None
) -> tuple[Any, Any]:
    """Squared error of logits [B, 1] to labels [B] or [B, 1], floats."""
    error = ops.cast(_flat(logits), "float32") - ops.cast(_flat(label_ids), "float32")
    return _weighted(ops.square(error), _flat(is_real_example))


def _flat(x: Any) -> Any:
    return None if x is None else ops.reshape(x, (-1,))


def _negative_log_likelihood(logits: Any, ids: Any) -> Any:
    return ops.sparse_categorical_crossentropy(
        ids, ops.cast(logits, "float32"), from_logits=True
    )


def _is_likeliest(logits: Any, ids: Any) -> Any:
    likeliest = ops.argmax(logits, axis=-1)
    return ops.cast(ops.equal(likeliest, ops.cast(ids, likeliest.dtype)), "float32")


def _weighted(values: Any, weights: Any) -> tuple[Any, Any]:
    if weights is None:
        weights = ops.ones_like(values)
    weights = ops.cast(weights, "float32")
    return ops.sum(values * weights), ops.sum(weights)
