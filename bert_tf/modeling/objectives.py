"""Losses, and the sums that their means over a global batch are made of."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from keras import ops

from bert_tf import config
from bert_tf.modeling.fused import compiled

# Losses and accuracies as pairs (weighted sum, sum of weights).
#
# Pairs add up: the sums over N replicas, or k micro-batches, are those of one large
# batch, and one division gives its mean. All are computed in float32.
#
# Shapes: B batch, S sequence, P predictions, V vocabulary, C classes.


# The original adds this to the number of predictions, to avoid a division by 0.
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
    """The accuracy of the likeliest token; see `masked_lm_loss`."""
    return _weighted(_is_likeliest_row(_rows(logits), _flat(ids)), _flat(weights))


def next_sentence_loss(
    logits: Any, labels: Any, weights: Any = None
) -> tuple[Any, Any]:
    """-log p(label), where label 1 is a random sentence.

    Args:
        logits: [B, 2].
        labels: B integers, of any shape.
        weights: B floats, of any shape, 0 for what is no sequence; all 1 if not
            given.
    """
    return classification_loss(logits, labels, weights)


def next_sentence_accuracy(
    logits: Any, labels: Any, weights: Any = None
) -> tuple[Any, Any]:
    """The accuracy of the likelier label; arguments as for `next_sentence_loss`."""
    return classification_accuracy(logits, labels, weights)


def classification_loss(
    logits: Any, label_ids: Any, is_real_example: Any = None
) -> tuple[Any, Any]:
    """-log p(label).

    Args:
        logits: [B, C].
        label_ids: [B] or [B, 1] integers.
        is_real_example: [B] or [B, 1], 0 for examples that only fill up a batch; all
            are real if it is not given.
    """
    return _weighted(
        _negative_log_likelihood(logits, _flat(label_ids)), _flat(is_real_example)
    )


def classification_accuracy(
    logits: Any, label_ids: Any, is_real_example: Any = None
) -> tuple[Any, Any]:
    """The accuracy of the likeliest label; arguments as for `classification_loss`."""
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

    Each label is a separate question, with p its sigmoid; so the whole is the mean over
    B C of them, as in Hugging Face's multi-label classifiers.

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

    The original takes the mean of the two, the paper their sum. Probabilities
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


# Compiled: with tens of thousands of tokens in the vocabulary, a batch's scores fill
# more memory than all else in a small model. Each kernel reads them once or twice.


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
    # XLA's maximum of floats is faster than its `any`.
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


# What is minimised and measured, from a batch and a model's outputs.
#
# Devlin et al. 2018: pre-training minimises the sum of the mean negative
# log-likelihoods of the masked LM and of next sentence prediction (section A.2). A
# classifier minimises the mean cross-entropy of its labels (section 4.1). So do
# multiple choice (4.4), whose labels are the choices, span prediction (4.2), whose
# labels are the tokens, and a tagger (5.3), whose examples are words.
#
# Each is a `Mean`: a weighted sum and the weight that it is divided by. Both are summed
# separately over replicas, micro-batches and evaluation batches and divided once, so N
# replicas, or k micro-batches, equal one large batch.


Records = Mapping[str, Any]
Outputs = Mapping[str, Any]


class Mean(NamedTuple):
    """A weighted mean before the division: total / (weight + epsilon).

    Attributes:
        total: scalar float32 tensor, the weighted sum.
        weight: scalar float32 tensor, the sum of the weights.
        epsilon: added to the weight of the whole batch (the original's masked-LM loss
            divides by weight + 1e-5, so that a batch without masks is no 0 / 0).
    """

    total: Any
    weight: Any
    epsilon: float = 0.0

    def value(self, weight: Any = None) -> Any:
        """The mean; 0 if nothing has a weight.

        Args:
            weight: the weight of the whole batch, if this is a part of it.
        """
        weight = self.weight if weight is None else weight
        return ops.divide_no_nan(self.total, weight + self.epsilon)


MeanFunction = Callable[[Records, Outputs], Mean]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loss:
    """A mean to minimise, whose weight depends on the records alone.

    So that the weight of a global batch is known before any part of it is computed.

    Attributes:
        total: (records, outputs) -> scalar float32 tensor, the weighted sum.
        weight: records -> scalar float32 tensor, the sum of the weights.
        epsilon: as in `Mean`.
    """

    total: Callable[[Records, Outputs], Any]
    weight: Callable[[Records], Any]
    epsilon: float = 0.0

    def __call__(self, records: Records, outputs: Outputs) -> Mean:
        """The mean of a batch."""
        return Mean(self.total(records, outputs), self.weight(records), self.epsilon)


@dataclasses.dataclass(frozen=True)
class Objective:
    """The losses, whose means add up to what is minimised, and further metrics.

    Attributes:
        losses: by their reported names.
        metrics: by their reported names.
    """

    losses: Mapping[str, Loss]
    metrics: Mapping[str, MeanFunction] = dataclasses.field(default_factory=dict)

    def __add__(self, other: "Objective") -> "Objective":
        """Both objectives at once."""
        return Objective(
            {**self.losses, **other.losses}, {**self.metrics, **other.metrics}
        )

    def means(self, records: Records, outputs: Outputs) -> dict[str, Mean]:
        """All losses and metrics of a batch."""
        functions: dict[str, MeanFunction] = {**self.losses, **self.metrics}
        return {name: mean(records, outputs) for name, mean in functions.items()}

    def weights(self, records: Records) -> dict[str, Any]:
        """The weights of the losses of a batch, from its records alone."""
        return {name: loss.weight(records) for name, loss in self.losses.items()}


# The arguments of a function of `losses`, from a batch and a model's outputs.
_Arguments = Callable[[Records, Outputs], tuple[Any, ...]]


def _loss(
    function: Callable,
    arguments: _Arguments,
    weight: Callable[[Records], Any],
    epsilon: float = 0.0,
) -> Loss:
    return Loss(
        total=lambda records, outputs: function(*arguments(records, outputs))[0],
        weight=weight,
        epsilon=epsilon,
    )


def _metric(function: Callable, arguments: _Arguments) -> MeanFunction:
    return lambda records, outputs: Mean(*function(*arguments(records, outputs)))


def _sum(weights: Any) -> Any:
    return ops.sum(ops.cast(weights, "float32"))


def _masked_lm(records: Records, outputs: Outputs) -> tuple[Any, ...]:
    return (
        outputs["masked_lm_logits"],
        records["masked_lm_ids"],
        records["masked_lm_weights"],
    )


def _masked_lm_weight(records: Records) -> Any:
    return _sum(records["masked_lm_weights"])


def _next_sentence(records: Records, outputs: Outputs) -> tuple[Any, ...]:
    # One label for each row, or, if rows are packed, for each of its sequences.
    logits = ops.reshape(outputs["next_sentence_logits"], (-1, 2))
    labels = records["next_sentence_labels"]
    return logits, labels, records.get("next_sentence_weights")


def _next_sentence_weight(records: Records) -> Any:
    if "next_sentence_weights" in records:
        return _sum(records["next_sentence_weights"])
    return _sum(ops.ones_like(records["next_sentence_labels"]))


def _labelled(records: Records, outputs: Outputs) -> tuple[Any, ...]:
    return outputs["logits"], records["label_ids"], records.get("is_real_example")


def _labelled_weight(records: Records) -> Any:
    return _num_real(records, "label_ids")


def _span(records: Records, outputs: Outputs) -> tuple[Any, ...]:
    return (
        outputs["start_logits"],
        outputs["end_logits"],
        records["start_positions"],
        records["end_positions"],
        records.get("is_real_example"),
    )


def _span_weight(records: Records) -> Any:
    return _num_real(records, "start_positions")


def _num_real(records: Records, labels: str) -> Any:
    """The number of examples; each has a row of these labels."""
    if "is_real_example" in records:
        return _sum(records["is_real_example"])
    return ops.cast(ops.shape(records[labels])[0], "float32")


def _tagging(records: Records, outputs: Outputs) -> tuple[Any, ...]:
    return outputs["logits"], records["label_ids"], records["label_weights"]


def _tagging_weight(records: Records) -> Any:
    return _sum(records["label_weights"])


MASKED_LM = Objective(
    {
        "masked_lm_loss": _loss(
            masked_lm_loss,
            _masked_lm,
            _masked_lm_weight,
            MASKED_LM_EPSILON,
        )
    },
    {"masked_lm_accuracy": _metric(masked_lm_accuracy, _masked_lm)},
)
NEXT_SENTENCE = Objective(
    {
        "next_sentence_loss": _loss(
            next_sentence_loss, _next_sentence, _next_sentence_weight
        )
    },
    {"next_sentence_accuracy": _metric(next_sentence_accuracy, _next_sentence)},
)
CLASSIFICATION = Objective(
    {"cross_entropy": _loss(classification_loss, _labelled, _labelled_weight)},
    {"accuracy": _metric(classification_accuracy, _labelled)},
)
REGRESSION = Objective(
    {"mean_squared_error": _loss(regression_loss, _labelled, _labelled_weight)}
)
MULTI_LABEL = Objective(
    {"cross_entropy": _loss(multi_label_loss, _labelled, _labelled_weight)},
    {"exact_match": _metric(exact_match, _labelled)},
)
# What a classifier minimises, by its problem type.
CLASSIFIERS = {
    config.SINGLE_LABEL: CLASSIFICATION,
    config.REGRESSION: REGRESSION,
    config.MULTI_LABEL: MULTI_LABEL,
}
SPAN = Objective(
    {"cross_entropy": _loss(span_loss, _span, _span_weight)},
    {"span_accuracy": _metric(span_accuracy, _span)},
)
TAGGING = Objective(
    {"cross_entropy": _loss(tagging_loss, _tagging, _tagging_weight)},
    {"accuracy": _metric(tagging_accuracy, _tagging)},
)
