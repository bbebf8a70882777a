"""The model: the mean and the variance of a number, each [B], and what it minimises."""

from typing import Any

import keras
from keras import ops

from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.head_model import HeadModel
from bert_tf.modeling.heads import HEAD_INITIALIZER_RANGE, OutputProjection
from bert_tf.modeling.objectives import Loss, Objective


def _negative_log_likelihood(records: Any, outputs: Any) -> Any:
    """-log N(y; m, v) up to a constant: ((y - m)^2 / v + log v) / 2."""
    squared = ops.square(records["label_ids"][:, 0] - outputs["mean"])
    return (squared * ops.exp(-outputs["log_variance"]) + outputs["log_variance"]) / 2


def _error(records: Any, outputs: Any) -> Any:
    return ops.abs(records["label_ids"][:, 0] - outputs["mean"])


def _weights(records: Any) -> Any:
    return ops.ones_like(records["label_ids"][:, 0])


OBJECTIVE = Objective(
    {"loss_of_density": Loss(values=_negative_log_likelihood, weights=_weights)},
    {"error": Loss(values=_error, weights=_weights)},
)


@keras.saving.register_keras_serializable(package="made_up_head")
class BertNormal(HeadModel):
    """A number's mean and the logarithm of its variance, each [B], float32."""

    label_names = ("label_ids",)

    def __init__(
        self,
        config: Any,
        *,
        dtype: Any = None,
        name: str = "bert_normal",
        **options: Any,
    ):
        encoder = BertEncoder(config, dtype=dtype, **options)
        projection = OutputProjection(
            2, HEAD_INITIALIZER_RANGE, dtype=dtype, name="normal"
        )
        inputs = dict(encoder.input)
        with keras.name_scope("cls"):
            both = projection(encoder(inputs)["pooled_output"])
        mean, log_variance = ops.unstack(both, 2, axis=-1)
        outputs = {"mean": mean, "log_variance": log_variance}
        super().__init__(encoder, inputs, outputs, OBJECTIVE, name)
