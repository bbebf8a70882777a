"""What is minimised and what is measured, from a batch and a model's outputs.

Devlin et al. 2018: pre-training minimises the sum of the masked LM's and the next
sentence prediction's mean likelihoods (section A.2); a classifier minimises the mean
cross-entropy of its labels (section 4.1), and so do the choice among several sequences
(4.4), whose labels are the choices, a span's start and end (4.2), whose labels are the
tokens, and a tagger (5.3), whose examples are words.

Each is a `Mean`: a weighted sum and the weight that it is divided by. The two add up
apart over replicas, micro-batches and evaluation batches and are divided once, so that
N replicas, or k micro-batches, equal one large batch.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from keras import ops

from bert_tf import config
from bert_tf.modeling import losses

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
        """The mean; 0 where nothing has a weight.

        Args:
            weight: the weight of the whole batch, where this is a part of it.
        """
        weight = self.weight if weight is None else weight
        return ops.divide_no_nan(self.total, weight + self.epsilon)


MeanFunction = Callable[[Records, Outputs], Mean]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loss:
    """A mean to minimise, whose weight the records alone tell.

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
        losses: by the name that they are reported under.
        metrics: by the name that they are reported under.
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


# What a function of `losses` wants, the logits and what belongs to them, from a batch.
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
    # One label for each row, or, where rows are packed, for each of its sequences.
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
            losses.masked_lm_loss,
            _masked_lm,
            _masked_lm_weight,
            losses.MASKED_LM_EPSILON,
        )
    },
    {"masked_lm_accuracy": _metric(losses.masked_lm_accuracy, _masked_lm)},
)
NEXT_SENTENCE = Objective(
    {
        "next_sentence_loss": _loss(
            losses.next_sentence_loss, _next_sentence, _next_sentence_weight
        )
    },
    {"next_sentence_accuracy": _metric(losses.next_sentence_accuracy, _next_sentence)},
)
CLASSIFICATION = Objective(
    {"cross_entropy": _loss(losses.classification_loss, _labelled, _labelled_weight)},
    {"accuracy": _metric(losses.classification_accuracy, _labelled)},
)
REGRESSION = Objective(
    {"mean_squared_error": _loss(losses.regression_loss, _labelled, _labelled_weight)}
)
MULTI_LABEL = Objective(
    {"cross_entropy": _loss(losses.multi_label_loss, _labelled, _labelled_weight)},
    {"exact_match": _metric(losses.exact_match, _labelled)},
)
# What a classifier minimises, by its problem type.
CLASSIFIERS = {
    config.SINGLE_LABEL: CLASSIFICATION,
    config.REGRESSION: REGRESSION,
    config.MULTI_LABEL: MULTI_LABEL,
}
SPAN = Objective(
    {"cross_entropy": _loss(losses.span_loss, _span, _span_weight)},
    {"span_accuracy": _metric(losses.span_accuracy, _span)},
)
TAGGING = Objective(
    {"cross_entropy": _loss(losses.tagging_loss, _tagging, _tagging_weight)},
    {"accuracy": _metric(losses.tagging_accuracy, _tagging)},
)
