"""What the models with a head share: records for training, configs for saving.

They are fed with whole parsed records: a dict that holds the model's inputs and, for
training, the labels, under the same names. `compile(optimizer=...)` without a loss
trains on those labels, or on the targets given to `fit`: a dict of them, or label_ids
alone. With a loss Keras does as ever. A training loop of its own calls the model and
the functions of `objectives`.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.config import SINGLE_LABEL
from bert_tf.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.objectives import Objective
from bert_tf.modeling.record_model import RecordModel, check_range

# What an encoder can be given after it was made.
_LATER = ("lora_rank",)

# Keras takes a model's outputs for probabilities where a loss is named by a string;
# these models' are logits.
_LOSSES_OF_LOGITS = {
    "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
    "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
    "binary_crossentropy": keras.losses.BinaryCrossentropy,
}


class HeadModel(RecordModel):
    """The encoder with a task's head: a functional model with named outputs.

    Attributes:
        encoder: the BertEncoder.
        bert_config: its BertConfig.
        objective: what `fit` minimises and reports on records.
        weight_name: the record's name of `sample_weight`.
    """

    weight_name = "is_real_example"

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

    def compile(
        self, optimizer: Any = "rmsprop", loss: Any = None, **kwargs: Any
    ) -> None:
        """Keras' own; without a loss the model's objective is minimised.

        Args:
            optimizer: as Keras takes it.
            loss: a loss of the logits; a cross-entropy may be named by a string.
            **kwargs: handed to Keras.
        """
        if isinstance(loss, str) and loss in _LOSSES_OF_LOGITS:
            loss = _LOSSES_OF_LOGITS[loss](from_logits=True)
        self.loss = None  # Keras would keep that of an earlier call
        super().compile(optimizer, loss, **kwargs)

    def compile_from_config(self, config: Mapping[str, Any]) -> None:
        """Compiles a loaded model, as Keras' own does where `compile` is its own."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' own; InputError where an input or a label does not fit the model."""
        return super().fit(x, self._labels(y), *args, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' own; InputError where an input or a label does not fit the model."""
        return super().evaluate(x, self._labels(y), *args, **kwargs)

    def _labels(self, y: Any) -> Any:
        """Targets as Keras takes them, checked."""
        if isinstance(y, list | tuple):
            y = np.asarray(y)
        if not isinstance(y, np.ndarray):
            return y
        is_class = self._arguments.get("problem_type") in (None, SINGLE_LABEL)
        if is_class and "num_labels" in self._arguments:
            if y.dtype.kind in "iu":
                check_range(y, self._arguments["num_labels"], "y")
            elif self.loss is None and (
                y.dtype.kind not in "bf" or (y != y // 1).any()
            ):
                raise InputError(
                    "`y` must be the numbers of the classes, from 0. Received:"
                    f" {y.ravel()[:1].tolist()} of type {y.dtype}"
                )
        return y[:, None] if y.ndim == 1 else y  # as records have them

    def _records(self, x: Any, y: Any, sample_weight: Any) -> Any:
        """A batch with its targets under the records' names."""
        if y is None:
            return x
        labels = y if isinstance(y, Mapping) else {"label_ids": y}
        if sample_weight is not None:
            labels = {**labels, self.weight_name: sample_weight}
        return {**x, **labels}

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Keras' extension point: without a compiled loss, the model's objective."""
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        x = self._records(x, y, sample_weight)
        total = sum(
            function(x, y_pred).value() for function in self.objective.losses.values()
        )
        return self._scaled_loss(total, total)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Keras' extension point: the metrics of the records, or the compiled ones."""
        if self.loss is None:
            x = self._records(x, y, sample_weight)
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
