"""What a split's outputs are worth: the task's loss, and metrics.

Shapes: N examples, C outputs.
"""

from collections.abc import Sequence
from typing import Protocol

import keras
import numpy as np

from bert_tf.errors import DivergedError
from bert_tf.metrics import glue as metrics
from bert_tf.modeling.objectives import Objective
from bert_tf.tasks.targets import Target

LOSS = "loss"
EXAMPLE_LOSS = "eval_loss"
MAJORITY = "majority"


class Labelled(Protocol):
    """What a score asks of an example."""

    @property
    def label(self) -> str | None:
        """Its label as written."""

    @property
    def source(self) -> str:
        """Where it stands, "file:line", for messages."""


def scores(
    examples: Sequence[Labelled],
    target: Target,
    logits: np.ndarray,
    *,
    objective: Objective,
    metric_names: Sequence[str],
    batch_size: int,
) -> dict[str, float]:
    """Losses and metrics of labelled examples."""
    labels = np.array(
        [target.encode(example.label, example.source) for example in examples],
        target.label_dtype,
    )
    loss = _mean_loss(objective, logits, labels)
    if not np.isfinite(loss):
        raise DivergedError(
            "The loss on the evaluation data is not finite: the model's weights are too"
            " large to be of use. Train again with a lower --learning_rate."
        )
    batches = [
        slice(start, start + batch_size) for start in range(0, len(labels), batch_size)
    ]
    losses = [_mean_loss(objective, logits[batch], labels[batch]) for batch in batches]
    predictions = target.predictions(logits)
    majority = {}
    if "accuracy" in metric_names:
        majority[MAJORITY] = float(np.unique(labels, return_counts=True)[1].max())
        majority[MAJORITY] /= labels.size
    return {
        LOSS: float(np.mean(losses)),
        EXAMPLE_LOSS: loss,
        **metrics.scores(metric_names, predictions, labels.reshape(predictions.shape)),
        **majority,
    }


def _mean_loss(objective: Objective, logits: np.ndarray, labels: np.ndarray) -> float:
    """The task's loss on some examples: a mean."""
    (loss,) = objective.losses.values()
    mean = loss({"label_ids": labels}, {"logits": logits})
    return float(keras.ops.convert_to_numpy(mean.value()))
