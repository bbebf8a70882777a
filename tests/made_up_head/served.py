"""The SavedModel: it takes texts."""

import tensorflow as tf

from bert_tf.addons.serving.saved_model import ServedModel


class ServedNormal(ServedModel):
    """Returns mean and deviation [B]."""

    def _answer(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = self._call(inputs)
        deviation = tf.exp(outputs["log_variance"] / 2)
        return {"mean": outputs["mean"], "deviation": deviation}
