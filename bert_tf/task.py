"""What a task is, as data: a model, its losses, its metrics. The engine knows no task.

A loss or a metric is a `Mean`: a weighted sum and the weight that it is divided by. The
two are summed apart over replicas, micro-batches and evaluation batches and divided once,
so that N replicas, or k micro-batches, equal one large batch.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Batch = Mapping[str, Any]
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task, for the engine in `bert_tf.training`.

    Attributes:
        name: for messages and file names.
        build_model: makes the Keras model with its initial weights; called under the
            distribution strategy's scope.
        losses: (batch, outputs) -> the losses by name; training minimises the sum of
            their means.
        metrics: (batch, outputs) -> what else to report, by name, as means. The losses
            are reported under their own names.
        evaluation_names: the name in eval_results.txt of each loss or metric; one that
            is missing here keeps its name.
    """

    name: str
    build_model: Callable[[], Any]
    losses: Callable[[Batch, Outputs], dict[str, Mean]]
    metrics: Callable[[Batch, Outputs], dict[str, Mean]]
    evaluation_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
