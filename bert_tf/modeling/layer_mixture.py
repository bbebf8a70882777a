"""A learned mixture of all layers' outputs, as ELMo's.

    gamma * sum_j w_j h_j        w = softmax(c s)

over the embeddings and every layer's output h_j (Peters et al. 2018, section 3.2; of
BERT's layers Tenney et al. 2019, "BERT rediscovers the classical NLP pipeline"). It
begins as the mean: s = 0, gamma = 1.

c is ours; ELMo's is 1. Adam moves a number by about the learning rate a step; with the
rates that fine-tune BERT, some 1e-5, the scores of ELMo's softmax would hardly leave 0.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

# So that s moves as with ELMo's learning rate, 1e-3.
SCORE_SCALE = 100.0


class LayerMixture(keras.layers.Layer):
    """The mixture of tensors of one shape.

    Args:
        score_scale: c.
        dtype: Keras dtype policy.
        name: the layer's name.
    """

    def __init__(
        self,
        score_scale: float = SCORE_SCALE,
        dtype: Any = None,
        name: str = "layer_mixture",
    ):
        super().__init__(dtype=dtype, name=name)
        self.score_scale = score_scale

    def build(self, input_shape: Sequence[tuple]) -> None:
        """Makes a score for each tensor, and gamma."""
        self.scores = self.add_weight(
            name="scores",
            shape=(len(input_shape),),
            initializer="zeros",
            autocast=False,
        )
        self.gamma = self.add_weight(
            name="gamma", shape=(), initializer="ones", autocast=False
        )
        self.built = True

    def call(self, states: Sequence[Any]) -> Any:
        """Tensors [..., H], each of the same shape, to one."""
        weights = self.gamma * ops.softmax(self.score_scale * self.scores)
        weights = ops.cast(weights, self.compute_dtype)
        return ops.tensordot(weights, ops.stack(states), axes=1)

    def compute_output_shape(self, input_shape: Sequence[tuple]) -> tuple:
        """The shape of each."""
        return input_shape[0]
