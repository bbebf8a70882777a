"""The encoder with a task's head, trained by Keras' own loop or by ours."""

import inspect
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.base.config import REGRESSION, SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.modeling.encoder import BertEncoder, DictInputModel, check_range
from bert_tf.modeling.objectives import Objective, check_labels


class HeadModel(DictInputModel):
    """The encoder with a task's head and named outputs."""

    # The records' names of the labels that the objective needs.
    label_names: tuple[str, ...] = ()

    def __init__(
        self,
        encoder: BertEncoder,
        inputs: dict[str, Any],
        outputs: dict[str, Any],
        objective: Objective,
        name: str,
        **arguments: Any,
    ):
        """Takes the head's own arguments, for `get_config`, without the encoder's."""
        super().__init__(inputs=inputs, outputs=outputs, name=name)
        self.dtype_policy = encoder.dtype_policy  # Keras' compile scales float16's loss
        self.encoder = encoder
        self.bert_config = encoder.bert_config
        self.objective = objective
        self._arguments = arguments
        self._record_metrics = [
            keras.metrics.Mean(name=name)
            for name in (*objective.losses, *objective.metrics)
        ]
        self._scaled_loss = _ScaledLoss(name="scaled_loss")

    def compile(
        self, optimizer: Any = "rmsprop", loss: Any = None, **kwargs: Any
    ) -> None:
        """Compiles as Keras does; without a loss, the model's objective is minimised.

        Losses and metrics of probabilities are refused: the outputs are logits.
        """
        kind, outputs = self._kind, self.output
        refuse_probabilities(loss, keras.losses, kind, outputs)
        if kind != REGRESSION or is_of_logits(loss):
            for name in ("metrics", "weighted_metrics"):
                refuse_probabilities(kwargs.get(name), keras.metrics, kind, outputs)
        self.loss = None  # Keras would keep the loss of an earlier call
        super().compile(optimizer, loss, **kwargs)

    def compile_from_config(self, config: Mapping[str, Any]) -> None:
        """Compiles a loaded model by its own `compile`, as Keras does."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    @property
    def _kind(self) -> str:
        return self._arguments.get("problem_type") or SINGLE_LABEL

    def _labels(self, y: Any) -> Any:
        """Returns checked targets in Keras' form."""
        if isinstance(y, list | tuple):
            y = np.asarray(y)
        if not isinstance(y, np.ndarray):
            return y
        if self._kind == SINGLE_LABEL and "num_labels" in self._arguments:
            if y.dtype.kind in "iu":
                check_range(y, self._arguments["num_labels"], "y")
            elif self.loss is None and (
                y.dtype.kind not in "bf" or (y != y // 1).any()
            ):
                raise InputError(
                    "`y` must be the numbers of the classes, from 0. Received:"
                    f" {y.ravel()[:1].tolist()} of type {y.dtype}"
                )
        if self.loss is None and "logits" in self.output:
            check_labels(y, self.output["logits"], self._kind)
        return y

    def _with_rank(self, y: Any, y_pred: Any) -> Any:
        """Returns labels whose rank is known, for a compiled loss that needs it."""
        # Unknown in a step that is traced again, for [B, 1] after [B].
        if not hasattr(y, "shape") or getattr(y.shape, "rank", 0) is not None:
            return y
        shape = ops.shape(y_pred["logits"])
        return ops.reshape(y, shape[:-1] if self._kind == SINGLE_LABEL else shape)

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains as Keras does. Raises InputError if an input or a label is wrong."""
        if kwargs.get("class_weight") is not None and (
            self._kind != SINGLE_LABEL or "label_weights" in self.label_names
        ):
            # Keras would take the position of the largest number as a row's class.
            raise InputError(
                "`class_weight` is for models that choose one class for each example."
                " Give `sample_weight`."
            )
        return super().fit(x, y, *args, **kwargs)

    def _records(self, x: Any, y: Any, sample_weight: Any) -> Any:
        """Returns a batch with its targets under the records' names."""
        del sample_weight
        if y is not None:
            x = {**x, **(y if isinstance(y, Mapping) else {"label_ids": y})}
        if missing := [name for name in self.label_names if name not in x]:
            raise InputError(
                f"{type(self).__name__} learns from labels under the names"
                f" {', '.join(self.label_names)}, in `x` or as a dict `y`."
                f" {', '.join(missing)} is missing."
            )
        return x

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Returns the compiled loss, or else the model's objective; called by Keras."""
        if self.loss is not None:
            y = self._with_rank(y, y_pred)
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        x = self._records(x, y, sample_weight)
        total = sum(
            function(x, y_pred, sample_weight).value()
            for function in self.objective.losses.values()
        )
        return self._scaled_loss(total, total)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Returns the compiled metrics, or else the records'; called by Keras."""
        if self.loss is None:
            x = self._records(x, y, sample_weight)
            means = self.objective.means(x, y_pred)
            for metric in self._record_metrics:
                mean = means[metric.name]._replace(epsilon=0.0, factor=1.0)
                metric.update_state(mean.value(), mean.weight)
        y = self._with_rank(y, y_pred)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """Keras' metrics; the records' only without a compiled loss."""
        if self.loss is None:
            return super().metrics
        return [m for m in super().metrics if m not in self._record_metrics]

    def _constructor_arguments(self) -> dict[str, Any]:
        options = self.encoder.options.items()
        return {
            "config": self.bert_config.to_dict(),
            **{name: value for name, value in options if name != "use_pooler"},
            **self._arguments,
            "dtype": keras.dtype_policies.serialize(self.encoder.dtype_policy),
            "name": self.name,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class _ScaledLoss(keras.losses.Loss):
    """A loss already computed, scaled as Keras expects of a strategy's replica."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the loss as a batch of one, because Keras does not scale a scalar."""
        del y_true
        return ops.reshape(y_pred, (1,))


# Keras' losses and metrics of probabilities are refused: a head's outputs are logits,
# and Keras treats outputs as probabilities unless `from_logits=True` is given.


# They compare probabilities, or apply a threshold to them; none takes logits.
_OF_PROBABILITIES = {
    "BinaryAccuracy",
    "BinaryIoU",
    "CategoricalGeneralizedCrossEntropy",
    "Dice",
    "FalseNegatives",
    "FalsePositives",
    "KLDivergence",
    "Precision",
    "PrecisionAtRecall",
    "Recall",
    "RecallAtPrecision",
    "SensitivityAtSpecificity",
    "SpecificityAtSensitivity",
    "TrueNegatives",
    "TruePositives",
    "Tversky",
}
_CHOSEN_BY_SHAPE = ("crossentropy", "ce")


def is_of_logits(losses: Any) -> bool:
    """Whether any of these losses was made with `from_logits=True`."""
    return any(_option(one, "from_logits") for one in keras.tree.flatten(losses))


def refuse_probabilities(
    given: Any, module: Any, kind: str, outputs: Mapping[str, Any]
) -> None:
    """Raises InputError for losses and metrics of probabilities, with the remedy.

    Args:
        given: losses or metrics in any form that `compile` takes.
        module: `keras.losses` or `keras.metrics`.
        kind: the head's problem type.
        outputs: the model's outputs by name.
    """
    if isinstance(given, Mapping) and "class_name" not in given:
        for name, one in given.items():
            own = {name: outputs[name]} if name in outputs else outputs
            refuse_probabilities(one, module, kind, own)
    elif isinstance(given, list | tuple):
        for one in given:
            refuse_probabilities(one, module, kind, outputs)
    elif given is not None:
        _refuse(given, module, kind, outputs)


def _refuse(given: Any, module: Any, kind: str, outputs: Mapping[str, Any]) -> None:
    if str(given).lower() in ("accuracy", "acc"):
        if any(tensor.shape[-1] == 1 for tensor in outputs.values()):
            raise _without_logits(given, kind)
        return
    is_chosen = str(given).lower() in _CHOSEN_BY_SHAPE
    found = module.get("sparse_categorical_crossentropy" if is_chosen else given)
    name = _class_name(found)
    has_threshold = name in ("F1Score", "FBetaScore") and _option(found, "threshold")
    # In a softmax, a label's logit alone does not give its probability.
    is_area = name == "AUC" and kind == SINGLE_LABEL
    if name in _OF_PROBABILITIES or has_threshold or is_area:
        raise _without_logits(given, kind)
    if name and _option(found, "from_logits") is False:
        prefix = module.__name__.replace(".src", "").removesuffix(".api")
        line = f"{prefix}.{name}(from_logits=True)"
        if not hasattr(module, name):
            line = (
                "keras.metrics.MeanMetricWrapper("
                f"keras.losses.{found.__name__}, from_logits=True)"
            )
        raise InputError(
            f"{_shown(given)} is of probabilities, and the model's outputs are logits."
            f" Write {line}."
        )


def _class_name(found: Any) -> str:
    """Returns the name of a class of Keras, or of its function's class; else ""."""
    if isinstance(found, keras.losses.Loss | keras.metrics.Metric):
        name = type(found).__name__
        is_own = type(found).__module__.split(".")[0] == "keras"
        return name if is_own else ""
    name = getattr(found, "__name__", "")
    if found not in (vars(keras.losses).get(name), vars(keras.metrics).get(name)):
        return ""
    classes = {*dir(keras.losses), *dir(keras.metrics)}
    same = (one for one in classes if one.lower() == name.replace("_", ""))
    return next((one for one in same if one[0].isupper()), "")


def _option(found: Any, name: str) -> Any:
    """Returns an option of a loss or metric of Keras; None if it has none."""
    if callable(found) and hasattr(found, "__kwdefaults__"):  # a function
        parameter = inspect.signature(found).parameters.get(name)
        return None if parameter is None else parameter.default
    # A user's own class may have no config.
    if type(found).__module__.split(".")[0] != "keras":
        return None
    config = found.get_config() if hasattr(found, "get_config") else {}
    return config.get(name)


def _shown(given: Any) -> str:
    name = given if isinstance(given, str) else getattr(given, "name", None)
    return repr(name or getattr(given, "__name__", given))


def _without_logits(given: Any, kind: str) -> InputError:
    function = "softmax" if kind == SINGLE_LABEL else "sigmoid"
    return InputError(
        f"{_shown(given)} is of probabilities, and the model's outputs are logits."
        f" Compile keras.Model(model.input, keras.ops.{function}(model.output['logits']"
        ")) instead, which outputs probabilities."
    )
