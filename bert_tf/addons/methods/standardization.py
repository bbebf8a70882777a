"""The pooled output standardized: `cls_normalization`, Zhou et al. 2019."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.modeling.layers import Stored, observe, observing

_NAME = "standardization"


@keras.saving.register_keras_serializable(package="bert_tf")
class Standardization(Stored, keras.layers.Layer):
    """(x - mean) / deviation per component; both are not trained."""

    def __init__(self, dtype: Any = None, name: str = _NAME):
        super().__init__(dtype=dtype, name=name)

    def build(self, input_shape: tuple) -> None:
        """Makes both; x does not change until they are set."""
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
        """Maps [..., W] to [..., W]."""
        x = ops.cast(observe("pooled", x), "float32")
        return ops.cast((x - self.mean) / self.deviation, self.compute_dtype)


def standardize(model: Any, batches: Iterable[Mapping[str, Any]]) -> None:
    """Sets the mean and deviation of a model's pooled output to those of batches."""
    # 1e-3 is added to the variance, as in Keras' batch normalization, so that
    # near-constant features stay small.
    pooled: list[np.ndarray] = []

    def note(point: str, x: Any) -> Any:
        if point == "pooled":
            single = ops.cast(x, "float32")  # numpy has no bfloat16
            pooled.append(ops.convert_to_numpy(single).astype(np.float64))
        return x

    with observing(note):
        for batch in batches:
            model(batch, training=False)
    rows = np.concatenate(pooled)
    layer = model.encoder.get_layer(_NAME)
    layer.mean.assign(rows.mean(axis=0).astype(np.float32))
    layer.deviation.assign(np.sqrt(rows.var(axis=0) + 1e-3).astype(np.float32))
