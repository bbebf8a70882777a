"""In which numbers a model computes: --precision.

float32   everything
bfloat16  matrix products and activations; weights, moments, losses, softmax and
the sums of layer normalization stay float32
float16   the same with float16, whose smallest gradients would vanish: the loss is
multiplied by a scale, the gradient divided by it (Micikevicius et al.
2018, section 3.2)
"""

import contextlib
from collections.abc import Iterator

import keras
import tensorflow as tf

from bert_tf.optimization.optimizers import INITIAL_LOSS_SCALE, next_loss_scale

_POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}
PRECISIONS = tuple(_POLICIES)


@contextlib.contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Models that are built within it compute in these numbers."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


class LossScale:
    """The scale of float16's loss, which follows what the gradients bear.

    Make it under the strategy's scope.

    Attributes:
        scale: scalar float32 variable.
        good_steps: scalar int32 variable: finite steps since the scale last changed.
    """

    def __init__(self) -> None:
        # Updated between the replicas' steps, never within.
        self.scale = tf.Variable(INITIAL_LOSS_SCALE, trainable=False, dtype=tf.float32)
        self.good_steps = tf.Variable(0, trainable=False, dtype=tf.int32)

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """What a checkpoint must hold."""
        return {"scale": self.scale, "good_steps": self.good_steps}

    def update(self, is_finite: tf.Tensor) -> None:
        """Moves on after a step whose gradient was finite, or was not."""
        scale, good_steps = next_loss_scale(self.scale, self.good_steps, is_finite)
        self.scale.assign(scale)
        self.good_steps.assign(good_steps)
