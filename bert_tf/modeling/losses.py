"""Losses and accuracies as pairs (weighted sum, sum of weights).

Pairs add up: the sums over N replicas, or k micro-batches, are those of one large
batch, and one division gives its mean. All are computed in float32.

Shapes: B batch, S sequence, P predictions, V vocabulary, C classes.
"""

from typing import Any

from keras import ops

from bert_tf.compilation import compiled

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
    rows = _masked_lm_likelihood(_rows(logits), _flat(ids))
    return _weighted(rows, _flat(weights))


def masked_lm_accuracy(logits: Any, ids: Any, weights: Any) -> tuple[Any, Any]:
    """How often the likeliest token is the masked one; see `masked_lm_loss`."""
    return _weighted(_is_likeliest_row(_rows(logits), _flat(ids)), _flat(weights))


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
    """An example's mean squared error: of one number, or of several.

    Args:
        logits: [B, C].
        label_ids: [B, C] floats; [B] too where C is 1.
        is_real_example: as in `classification_loss`.
    """
    logits, labels = _outputs_and_labels(logits, label_ids)
    error = ops.mean(ops.square(logits - labels), axis=-1)
    return _weighted(error, _flat(is_real_example))


def multi_label_loss(
    logits: Any, label_ids: Any, is_real_example: Any = None
) -> tuple[Any, Any]:
    """The mean over the labels of -log p(label is there, or is not).

    Each label is a question of its own, p its sigmoid; so the whole is the mean over
    B C of them, as of Hugging Face's multi-label classifiers.

    Args:
        logits: [B, C].
        label_ids: [B, C] floats, 1.0 where a label is there, else 0.0; [B] too where C
            is 1.
        is_real_example: as in `classification_loss`.
    """
    logits, labels = _outputs_and_labels(logits, label_ids)
    likelihood = ops.binary_crossentropy(labels, logits, from_logits=True)
    return _weighted(ops.mean(likelihood, axis=-1), _flat(is_real_example))


def exact_match(
    logits: Any, label_ids: Any, is_real_example: Any = None
) -> tuple[Any, Any]:
    """How often all labels are right, each there if p > 0.5; see `multi_label_loss`."""
    logits, labels = _outputs_and_labels(logits, label_ids)
    is_right = ops.equal(logits > 0, labels > 0.5)
    all_right = ops.min(ops.cast(is_right, "float32"), axis=-1)
    return _weighted(all_right, _flat(is_real_example))


def span_loss(
    start_logits: Any,
    end_logits: Any,
    start_positions: Any,
    end_positions: Any,
    is_real_example: Any = None,
) -> tuple[Any, Any]:
    """The mean of -log p(start) and -log p(end) (Devlin et al. 2018, section 4.2).

    The original's mean of the two, where the paper speaks of their sum. Probabilities
    are over all S tokens, padding included.

    Args:
        start_logits: [B, S].
        end_logits: [B, S].
        start_positions: [B] or [B, 1] integers, the answer's first token.
        end_positions: [B] or [B, 1] integers, its last token.
        is_real_example: as in `classification_loss`.
    """
    start = _negative_log_likelihood(start_logits, _flat(start_positions))
    end = _negative_log_likelihood(end_logits, _flat(end_positions))
    return _weighted(0.5 * (start + end), _flat(is_real_example))


def span_accuracy(
    start_logits: Any,
    end_logits: Any,
    start_positions: Any,
    end_positions: Any,
    is_real_example: Any = None,
) -> tuple[Any, Any]:
    """How often both the likeliest start and end are right; see `span_loss`."""
    start = _is_likeliest(start_logits, _flat(start_positions))
    end = _is_likeliest(end_logits, _flat(end_positions))
    return _weighted(start * end, _flat(is_real_example))


def tagging_loss(logits: Any, label_ids: Any, label_weights: Any) -> tuple[Any, Any]:
    """-log p(label) at the first token of each word (Devlin et al. 2018, section 5.3).

    Args:
        logits: [B, S, C].
        label_ids: [B, S] integers.
        label_weights: [B, S], 1 at the first token of each word, else 0.
    """
    likelihood = _negative_log_likelihood(_rows(logits), _flat(label_ids))
    return _weighted(likelihood, _flat(label_weights))


def tagging_accuracy(
    logits: Any, label_ids: Any, label_weights: Any
) -> tuple[Any, Any]:
    """How often the likeliest label is right; arguments as `tagging_loss`."""
    return _weighted(
        _is_likeliest(_rows(logits), _flat(label_ids)), _flat(label_weights)
    )


def _outputs_and_labels(logits: Any, label_ids: Any) -> tuple[Any, Any]:
    """Both as float32 [B, C]."""
    logits = ops.cast(logits, "float32")
    labels = ops.cast(label_ids, "float32")
    return logits, ops.reshape(labels, (-1, logits.shape[-1]))


def _rows(logits: Any) -> Any:
    """[B, P, V] to [B P, V]."""
    logits = ops.convert_to_tensor(logits)
    return ops.reshape(logits, (-1, logits.shape[-1]))


def _flat(x: Any) -> Any:
    return None if x is None else ops.reshape(x, (-1,))


def _negative_log_likelihood(logits: Any, ids: Any) -> Any:
    return ops.sparse_categorical_crossentropy(
        ids, ops.cast(logits, "float32"), from_logits=True
    )


def _is_likeliest(logits: Any, ids: Any) -> Any:
    likeliest = ops.argmax(logits, axis=-1)
    return ops.cast(ops.equal(likeliest, ops.cast(ids, likeliest.dtype)), "float32")


# Compiled, for a vocabulary of tens of thousands, whose scores of a batch fill more
# memory than all else in a small model: each kernel reads them once or twice.


def _masked_lm_likelihood(logits: Any, ids: Any) -> Any:
    """log(sum_v exp(logits_v)) - logits_id of [N, V] and [N] integers: [N]."""
    logits, ids = ops.cast(logits, "float32"), ops.cast(ids, "int32")

    @ops.custom_gradient
    def likelihood(logits: Any) -> Any:
        loss, log_sum = _likelihood_and_log_sum(logits, ids)

        def gradient(upstream: Any) -> Any:
            return _likelihood_gradient(logits, ids, log_sum, upstream)

        return loss, gradient

    return likelihood(logits)


@compiled
def _likelihood_and_log_sum(logits: Any, ids: Any) -> tuple[Any, Any]:
    largest = ops.max(logits, axis=-1, keepdims=True)
    log_sum = ops.log(ops.sum(ops.exp(logits - largest), axis=-1)) + largest[:, 0]
    return log_sum - _at(logits, ids), log_sum


@compiled
def _likelihood_gradient(logits: Any, ids: Any, log_sum: Any, upstream: Any) -> Any:
    probabilities = ops.exp(logits - log_sum[:, None])
    is_id = _index(logits) == ids[:, None]
    return ops.where(is_id, probabilities - 1.0, probabilities) * upstream[:, None]


def _is_likeliest_row(logits: Any, ids: Any) -> Any:
    """Whether the id is the first of the largest, as `_is_likeliest`: [N]."""
    return _is_first_of_largest(logits, ops.cast(ids, "int32"))


@compiled
def _is_first_of_largest(logits: Any, ids: Any) -> Any:
    own = _at(logits, ids)[:, None]
    is_before = _index(logits) < ids[:, None]
    is_better = ops.where(is_before, logits >= own, logits > own)
    # XLA's maximum of floats is quicker than its `any`.
    return 1.0 - ops.max(ops.cast(is_better, "float32"), axis=-1)


def _at(logits: Any, ids: Any) -> Any:
    """logits[i, ids[i]] of [N, V] and [N]: [N]."""
    return ops.take_along_axis(logits, ids[:, None], axis=1)[:, 0]


def _index(logits: Any) -> Any:
    """0, 1, 2, ... V - 1: [1, V]."""
    return ops.arange(ops.shape(logits)[1], dtype="int32")[None, :]


def _weighted(values: Any, weights: Any) -> tuple[Any, Any]:
    if weights is None:
        weights = ops.ones_like(values)
    weights = ops.cast(weights, "float32")
    return ops.sum(values * weights), ops.sum(weights)
