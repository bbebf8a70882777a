"""What is minimised and what is measured, from a batch and a model's outputs.

Devlin et al. 2018: pre-training minimises the sum of the masked LM's and the next
sentence prediction's mean likelihoods (section A.2); a classifier minimises the mean
cross-entropy of its labels (section 4.1).

Each is a `Mean`: a weighted sum and the weight that it is divided by. The two add up
apart over replicas, micro-batches and evaluation batches and are divided once, so that
N replicas, or k micro-batches, equal one large batch.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from keras import ops

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


@dataclasses.dataclass(frozen=True)
class Objective:
    """The losses, whose means add up to what is minimised, and further metrics.

    Attributes:
        losses: by the name that they are reported under.
        metrics: by the name that they are reported under.
    """

    losses: Mapping[str, MeanFunction]
    metrics: Mapping[str, MeanFunction] = dataclasses.field(default_factory=dict)

    def __add__(self, other: "Objective") -> "Objective":
        """Both objectives at once."""
        return Objective(
            {**self.losses, **other.losses}, {**self.metrics, **other.metrics}
        )

    def means(self, records: Records, outputs: Outputs) -> dict[str, Mean]:
        """All losses and metrics of a batch."""
        functions = {**self.losses, **self.metrics}
        return {name: mean(records, outputs) for name, mean in functions.items()}


def _masked_lm(function: Callable, epsilon: float) -> MeanFunction:
    def mean(records: Records, outputs: Outputs) -> Mean:
        total, weight = function(
            outputs["masked_lm_logits"],
            records["masked_lm_ids"],
            records["masked_lm_weights"],
        )
        return Mean(total, weight, epsilon)

    return mean


def _next_sentence(function: Callable) -> MeanFunction:
    return lambda records, outputs: Mean(
        *function(outputs["next_sentence_logits"], records["next_sentence_labels"])
    )


def _labelled(function: Callable) -> MeanFunction:
    return lambda records, outputs: Mean(
        *function(
            outputs["logits"], records["label_ids"], records.get("is_real_example")
        )
    )


MASKED_LM = Objective(
    {"masked_lm_loss": _masked_lm(losses.masked_lm_loss, losses.MASKED_LM_EPSILON)},
    {"masked_lm_accuracy": _masked_lm(losses.masked_lm_accuracy, 0.0)},
)
NEXT_SENTENCE = Objective(
    {"next_sentence_loss": _next_sentence(losses.next_sentence_loss)},
    {"next_sentence_accuracy": _next_sentence(losses.next_sentence_accuracy)},
)
CLASSIFICATION = Objective(
    {"cross_entropy": _labelled(losses.classification_loss)},
    {"accuracy": _labelled(losses.classification_accuracy)},
)
REGRESSION = Objective({"mean_squared_error": _labelled(losses.regression_loss)})
