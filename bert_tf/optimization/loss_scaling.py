"""The scale of the loss for float16, whose smallest gradients would vanish.

The loss is multiplied by a scale before the backward pass, the gradients are divided by
it afterwards. The scale is as large as the gradients bear: halved after a step whose
gradients were not finite, which changes nothing else; doubled after so many finite
steps in a row (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2).
"""

from typing import Any

from keras import ops

INITIAL_LOSS_SCALE = 2.0**15
GROWTH_STEPS = 2000
FACTOR = 2.0
SMALLEST_LOSS_SCALE = 1.0
# A power of two that float32 holds, with room for the next one.
LARGEST_LOSS_SCALE = 2.0**126


def next_loss_scale(
    scale: Any, good_steps: Any, is_finite: Any, *, growth_steps: int = GROWTH_STEPS
) -> tuple[Any, Any]:
    """The scale of the next step.

    Args:
        scale: of the step just made, a float32 scalar.
        good_steps: the finite steps since the scale last changed, an int32 scalar.
        is_finite: whether all gradients of the step just made were finite, a bool
            scalar.
        growth_steps: finite steps in a row after which the scale doubles.

    Returns:
        (scale, good_steps) for the next step, of the same types.
    """
    scale, good_steps = ops.cast(scale, "float32"), ops.cast(good_steps, "int32")
    grows = good_steps + 1 >= growth_steps
    larger = ops.minimum(scale * FACTOR, LARGEST_LOSS_SCALE)
    smaller = ops.maximum(scale / FACTOR, SMALLEST_LOSS_SCALE)
    return (
        ops.where(is_finite, ops.where(grows, larger, scale), smaller),
        ops.where(
            ops.logical_and(is_finite, ops.logical_not(grows)), good_steps + 1, 0
        ),
    )
