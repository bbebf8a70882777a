"""One training step and one evaluation step, the same mathematics on any devices.

With N replicas, each of which splits its part of the batch into k micro-batches b:

    W_t = sum of the weights of loss t, over all replicas and micro-batches
    g   = sum over replicas and micro-batches of the gradient of
              sum_t total_t(b) / (W_t + epsilon_t)
    g  <- g min(1, 1 / |g|)                       (one norm, over all variables)
    optimizer: one update with g

So, up to rounding, a step equals one with a large batch on one device, whatever N and
k. The weights W_t depend only on the records, and are known before the first forward
pass. A loss that compares rows sees the outputs of all replicas: total_t(b) is the sum
of b's values, whose gradients flow back to every replica's rows; k is 1.

This module has the equations. `tensorflow_step` runs them with a replica of the model
on each device, and `jax_step` as one computation whose rows the devices share;
`on_devices` returns the module for Keras' back end.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from bert_tf.base.addons import addon
from bert_tf.modeling.objectives import Objective, Records, RowsOfReplica
from bert_tf.optimization.optimizers import clip_scale


def on_devices() -> Any:
    """Returns the module that runs steps with Keras' back end."""
    return addon(keras.backend.backend())


# The number formats of a model's computation: --precision.
#
#     float32   everything
#     bfloat16  matrix products and activations; weights, moments, losses, softmax and
#               the sums of layer normalization stay float32
#     float16   the same with float16, in which the smallest gradients would vanish: the
#               loss is multiplied by a scale, and the gradient divided by it
#               (Micikevicius et al. 2018, section 3.2)


_POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}


@contextlib.contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Returns the context in which models are built with this number format."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


INITIAL_LOSS_SCALE = 2.0**15
SMALLEST_LOSS_SCALE = 1.0
# A power of two that float32 can hold, with room for the next one.
LARGEST_LOSS_SCALE = 2.0**126
GROWTH_STEPS = 2000


class LossScale:
    """float16's loss scale; make it under the strategy's scope.

    It is as large as the gradients allow: it is halved after a step with gradients that
    are not finite, which changes nothing else, and doubled after GROWTH_STEPS finite
    steps in a row.
    """

    def __init__(self) -> None:
        # Updated between the replicas' steps, never within one.
        self.scale = keras.Variable(
            INITIAL_LOSS_SCALE, trainable=False, dtype="float32", name="scale"
        )
        # Finite steps since the scale last changed.
        self.good_steps = keras.Variable(
            0, trainable=False, dtype="int32", name="good_steps"
        )
        self.variables = {"scale": self.scale, "good_steps": self.good_steps}

    def update(self, is_finite: Any) -> None:
        """Updates the scale after a step with or without finite gradients."""
        scale, good_steps = self.scale.value, self.good_steps.value + 1
        grows = good_steps >= GROWTH_STEPS
        larger = ops.minimum(scale * 2.0, LARGEST_LOSS_SCALE)
        smaller = ops.maximum(scale / 2.0, SMALLEST_LOSS_SCALE)
        stays = ops.logical_and(is_finite, ops.logical_not(grows))
        self.scale.assign(
            ops.where(is_finite, ops.where(grows, larger, scale), smaller)
        )
        self.good_steps.assign(ops.where(stays, good_steps, 0))


# Devlin et al. 2018's code: "This is how the model was pre-trained."
GLOBAL_CLIP_NORM = 1.0

Sums = dict[str, Any]  # name -> [total, weight], float32
TOTAL_LOSS = "loss"
GRADIENT_NORM = "gradient_norm"
TOKENS = "tokens"
SEQUENCES = "sequences"
SKIPPED = "skipped_steps"
LOSS_SCALE = "loss_scale"


class StepResults(NamedTuple):
    """The reports of several steps, as float64 arrays."""

    # Summed over the steps. `loss` is the sum of the steps' losses and their number;
    # `tokens` counts tokens without padding, `sequences` also those within packed rows.
    sums: dict[str, np.ndarray]
    losses: np.ndarray  # [steps]
    input_seconds: float  # total wait of the steps for their batches


def loss_and_sums(
    objective: Objective,
    batch: Records,
    outputs: Mapping[str, Any],
    weights: Mapping[str, Any],
    rows: RowsOfReplica | None = None,
) -> tuple[Any, Sums]:
    """Returns a part's share of the loss by the whole batch's weights, and its sums."""
    means = objective.means(batch, outputs, rows)
    # Not add_n, which adds in no fixed order.
    loss = ops.sum(ops.stack([means[name].value(x) for name, x in weights.items()]))
    sums = {n: [ops.cast(x, "float32") for x in mean[:2]] for n, mean in means.items()}
    return loss, {name: ops.stack(parts) for name, parts in sums.items()}


def update(
    optimizer: keras.Optimizer,
    variables: list[Any],
    gradients: list[Any],
    scale: Any,
    num_replicas: int = 1,
    clip_norm: float = GLOBAL_CLIP_NORM,
) -> Any:
    """Clips and applies the sum of all gradients; returns the unscaled norm.

    `scale` is the loss scale; the result equals clipping the unscaled gradient. Keras'
    optimizer sums over the replicas once more.
    """
    clip, norm = clip_scale(gradients, clip_norm * scale)
    optimizer.apply(gradients, variables, scale=clip / (scale * num_replicas))
    return norm / scale


def add_reports(
    sums: Sums, batch: Records, norm: Any, scale: Any | None, share: float = 1.0
) -> Sums:
    """Returns a step's sums with `loss` [loss, any]; this part is `share` of the step.

    With a loss scale, a step may have been skipped.
    """
    sums = {**sums, TOTAL_LOSS: ops.stack([sums[TOTAL_LOSS][0], share])}
    sums[GRADIENT_NORM] = ops.stack([norm, 1.0]) * share
    sums[TOKENS] = ops.stack([_num_tokens(batch), share])
    sums[SEQUENCES] = ops.stack([_num_sequences(batch), share])
    if scale is not None:
        is_finite = ops.isfinite(norm)
        # A mean over steps that were not skipped.
        sums[GRADIENT_NORM] = ops.where(is_finite, sums[GRADIENT_NORM], 0.0)
        skipped = 1.0 - ops.cast(is_finite, "float32")
        sums[SKIPPED] = ops.stack([skipped, 1.0]) * share
        sums[LOSS_SCALE] = ops.stack([scale, 1.0]) * share
    return sums


def names_of_sums(objective: Objective, loss_scale: LossScale | None) -> list[str]:
    """Returns the names of the sums that `add_reports` returns."""
    names = [TOTAL_LOSS, *objective.losses, *objective.metrics]
    names += [GRADIENT_NORM, TOKENS, SEQUENCES]
    return names + ([SKIPPED, LOSS_SCALE] if loss_scale else [])


def _num_tokens(batch: Records) -> Any:
    """Returns the number of a batch's tokens but padding; 0 without a mask."""
    if "input_mask" not in batch:
        return ops.convert_to_tensor(0.0)
    return ops.cast(ops.sum(batch["input_mask"]), "float32")


def _num_sequences(batch: Records) -> Any:
    """Returns the number of a batch's sequences: one per row, or several if packed."""
    if "next_sentence_weights" in batch:
        return ops.cast(ops.sum(batch["next_sentence_weights"]), "float32")
    return ops.convert_to_tensor(float(next(iter(batch.values())).shape[0]))


def as_float64(sums: Sums) -> dict[str, np.ndarray]:
    """Converts sums to arrays on the host."""
    return {name: np.asarray(value).astype(np.float64) for name, value in sums.items()}
