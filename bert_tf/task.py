"""What a task is, as data: a model, its losses, its metrics. The engine knows no task.

A loss or a metric is a `Mean`: a weighted sum and the weight that it is divided by. The
two are summed apart over replicas, micro-batches and evaluation batches and divided
once, so that N replicas, or k micro-batches, equal one large batch.
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


MeanFunction = Callable[[Batch, Outputs], Mean]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task, for the engine in `bert_tf.training`.

    Attributes:
        name: for messages and file names.
        build_model: makes the Keras model with its initial weights; called under the
            distribution strategy's scope.
        losses: the losses by name; training minimises the sum of their means.
        metrics: what else to report, by name.
    """

    name: str
    build_model: Callable[[], Any]
    losses: Mapping[str, MeanFunction]
    metrics: Mapping[str, MeanFunction] = dataclasses.field(default_factory=dict)
