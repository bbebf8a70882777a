"""The pooled output standardized: `cls_normalization`, Zhou et al. 2019."""

from typing import Any

import keras
from keras import ops

from bert_tf.modeling.layers import Stored, observe

# The mean and the deviation of `cls_normalization`, in our runs' checkpoints alone.
STANDARDIZATION = ("bert/standardization/mean", "bert/standardization/deviation")


@keras.saving.register_keras_serializable(package="bert_tf")
class Standardization(Stored, keras.layers.Layer):
    """(x - mean) / deviation, of each number by its own, which are not trained."""

    def build(self, input_shape: tuple) -> None:
        """Makes both; until they are known, x stays as it is."""
        self.mean, self.deviation = (
            self.add_weight(
                name=name,
                shape=input_shape[-1:],
                initializer=initializer,
                trainable=False,
                autocast=False,
            )
            for name, initializer in (("mean", "zeros"), ("deviation", "ones"))
        )
        self.built = True

    def call(self, x: Any) -> Any:
        """[..., W] to [..., W]."""
        x = ops.cast(observe("pooled", x), "float32")
        return ops.cast((x - self.mean) / self.deviation, self.compute_dtype)
