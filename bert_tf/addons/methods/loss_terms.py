"""Terms added to the labels' likelihood in a training loss.

Means over labels, or numbers, are defined as in `bert_tf.modeling.objectives`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import ops

from bert_tf.base import config
from bert_tf.modeling.objectives import Loss, Outputs, Records


def smoothed(loss: Loss, share: float) -> Loss:
    """Returns the loss for the labels (1 - e) y + e u, uniform u (Szegedy et al. 2016).

    For C classes, u is 1 / C; for several labels, 1 / 2 for each. The loss is linear in
    the labels.
    """
    uniform = loss.of_scores(_uniform_loss, "")

    def values(records: Records, outputs: Outputs) -> Any:
        own, of_uniform = (one.values(records, outputs) for one in (loss, uniform))
        return (1.0 - share) * own + share * of_uniform

    return dataclasses.replace(loss, values=values)


def _uniform_loss(kind: str, logits: Any) -> Any:
    if kind == config.MULTI_LABEL:
        return ops.mean(ops.softplus(logits) - 0.5 * logits, axis=-1)
    return ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)


def with_class_weights(loss: Loss, weights: Sequence[float]) -> Loss:
    """Returns the loss as a mean weighted by the examples' classes.

    It is sum w_y loss / sum w_y, as in torch.nn.CrossEntropyLoss(weight=w), so that the
    weight of a batch depends on its labels alone.
    """
    table = np.array(weights, np.float32)

    def of_records(records: Records) -> Any:
        ids = ops.cast(ops.ravel(records["label_ids"]), "int32")
        of_classes = ops.take(ops.convert_to_tensor(table), ids, axis=0)
        return ops.cast(loss.weights(records), "float32") * of_classes

    return dataclasses.replace(loss, weights=of_records)


def kl_divergence(kind: str, p: Any, q: Any) -> Any:
    """Returns KL(P, Q) of two rows of scores, the mean over labels or numbers: [N].

    A number stands for a normal distribution of deviation 1: (p - q)^2 / 2.
    """
    if kind == config.REGRESSION:
        return 0.5 * ops.mean(ops.square(p - q), axis=-1)
    if kind == config.MULTI_LABEL:
        # For sigmoids -log p = softplus(-x), -log(1 - p) = x + softplus(-x).
        change = ops.softplus(-q) - ops.softplus(-p)
        return ops.mean(change + (1.0 - ops.sigmoid(p)) * (q - p), axis=-1)
    log_p = ops.log_softmax(p, axis=-1)
    return ops.sum(ops.exp(log_p) * (log_p - ops.log_softmax(q, axis=-1)), axis=-1)


def divergence(kind: str, one: Any, other: Any) -> Any:
    """Returns KL(P, Q) + KL(Q, P); for numbers, the squared difference: [N]."""
    return kl_divergence(kind, one, other) + kl_divergence(kind, other, one)


def soft_targets(temperature: float) -> Callable[[str, Any, Any], Any]:
    """Returns a function for T^2 KL(teacher, student) at T (Hinton et al. 2015): [N].

    The factor T^2 makes the gradient's size independent of T.
    """

    def values(kind: str, student: Any, teacher: Any) -> Any:
        kl = kl_divergence(kind, teacher / temperature, student / temperature)
        return temperature**2 * kl

    return values


def of_tokens(name: str) -> Loss:
    """Returns the mean over all tokens but padding of an output [..., S]."""

    def weights(records: Records) -> Any:
        mask = ops.cast(records["input_mask"], "float32")
        if "is_real_example" in records:
            is_real = ops.cast(ops.ravel(records["is_real_example"]), "float32")
            mask *= ops.reshape(is_real, (-1, *[1] * (len(mask.shape) - 1)))
        return ops.ravel(mask)

    return Loss(
        values=lambda records, outputs: ops.ravel(outputs[name]), weights=weights
    )
