"""What the models with a head share: records for training, configs for saving.

They are fed with whole parsed records: a dict that holds the model's inputs and, for
training, the labels, under the same names. `compile(optimizer=...)` without a loss
trains on those labels; with a loss and targets given to `fit`, Keras does as ever. A
training loop of its own calls the model and the functions of `objectives`.
"""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.objectives import Objective
from bert_tf.modeling.record_model import RecordModel

# What an encoder can be given after it was made.
_LATER = ("lora_rank",)


class HeadModel(RecordModel):
    """The encoder with a task's head: a functional model with named outputs.

    Attributes:
        encoder: the BertEncoder.
        bert_config: its BertConfig.
        objective: what `fit` minimises and reports on records.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        inputs: dict[str, Any],
        outputs: dict[str, Any],
        arguments: dict[str, Any],
        objective: Objective,
        **kwargs: Any,
    ):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.encoder = encoder
        self.bert_config = encoder.bert_config
        self._arguments = arguments
        self.objective = objective
        self._record_metrics = [
            keras.metrics.Mean(name=name)
            for name in (*objective.losses, *objective.metrics)
        ]
        self._scaled_loss = _ScaledLoss(name="scaled_loss")

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Keras' extension point: without targets, the labels in the records."""
        if y is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        total = sum(
            function(x, y_pred).value() for function in self.objective.losses.values()
        )
        return self._scaled_loss(total, total)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Keras' extension point: the metrics of the records, or the compiled ones."""
        if y is None:
            means = self.objective.means(x, y_pred)
            for metric in self._record_metrics:
                _, weight, _ = mean = means[metric.name]
                metric.update_state(mean._replace(epsilon=0.0).value(), weight)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """What Keras reports: the records' metrics, unless a loss is compiled."""
        if self.loss is None:
            return super().metrics
        return [m for m in super().metrics if m not in self._record_metrics]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, for .keras files."""
        config = {
            "config": self.bert_config.to_dict(),
            **self._arguments,
            "dtype": keras.dtype_policies.serialize(self.encoder.dtype_policy),
            "name": self.name,
            "trainable": self.trainable,
        }
        # LoRA may have come after the constructor.
        encoder = self.encoder.get_config()
        config.update((name, encoder[name]) for name in config if name in _LATER)
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "HeadModel":
        """The model that `get_config` describes."""
        config = dict(config)
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        return cls(**config)


@keras.saving.register_keras_serializable(package="bert_tf")
class _ScaledLoss(keras.losses.Loss):
    """A loss already computed, scaled as Keras expects of a strategy's replica."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss itself, as a batch of one: Keras does not scale a scalar."""
        del y_true
        return ops.reshape(y_pred, (1,))
