"""Gradients, between their computation and the optimizer."""

from collections.abc import Sequence
from typing import Any

from keras import ops


def dense_gradient(gradient: Any) -> Any:
    """The gradient as one dense tensor.

    TensorFlow gives the gradient of a lookup as the rows that were looked up
    (tf.IndexedSlices), a row looked up twice standing there twice. BERT's optimizer
    updates every row at each step, and a norm must see their sum.

    Args:
        gradient: a tensor, IndexedSlices, or None for a weight that the loss does not
            depend on.
    """
    if gradient is None or not hasattr(gradient, "indices"):
        return gradient
    num_rows = gradient.shape[0]
    if num_rows is None:
        num_rows = gradient.dense_shape[0]
    return ops.segment_sum(gradient.values, gradient.indices, num_segments=num_rows)


def global_norm(gradients: Sequence[Any]) -> Any:
    """Sqrt of the sum of all squares, over all gradients that are not None."""
    squares = [
        ops.sum(ops.square(ops.cast(dense_gradient(gradient), "float32")))
        for gradient in gradients
        if gradient is not None
    ]
    # Stacked, not added one to another: TensorFlow makes one operation of many
    # additions, whose order hangs on timing, and no run could be repeated to the bit.
    return ops.sqrt(ops.sum(ops.stack(squares)))


def clip_scale(gradients: Sequence[Any], clip_norm: float) -> tuple[Any, Any]:
    """What all gradients are multiplied by so that their global norm is at most this.

    clip_norm / max(norm, clip_norm), as tf.clip_by_global_norm: NaN where the norm is
    infinite or not a number, so that every gradient becomes NaN, not a wrong number.

    Args:
        gradients: tensors, IndexedSlices (their rows are summed first), or None.
        clip_norm: the largest norm.

    Returns:
        (scale, norm), float32 scalars: norm is that of the gradients as they came.
    """
    norm = global_norm(gradients)
    scale = clip_norm * ops.minimum(1.0 / norm, 1.0 / clip_norm)
    # norm - norm is 0, or NaN where the norm is not finite.
    return scale + (norm - norm), norm


def clip_by_global_norm(gradients: Sequence[Any], clip_norm: float) -> list[Any]:
    """The gradients times their `clip_scale`, in a pass over memory of its own.

    Args:
        gradients: tensors, IndexedSlices (made dense), or None (stays None).
        clip_norm: the largest norm.
    """
    gradients = [dense_gradient(gradient) for gradient in gradients]
    scale, _ = clip_scale(gradients, clip_norm)
    return [
        None if gradient is None else gradient * ops.cast(scale, gradient.dtype)
        for gradient in gradients
    ]
