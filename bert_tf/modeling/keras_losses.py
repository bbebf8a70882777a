"""Refuses Keras' losses and metrics of probabilities: a head's outputs are logits.

Keras takes outputs for probabilities wherever `from_logits=True` is not given.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.base.config import SINGLE_LABEL
from bert_tf.base.errors import InputError

# They compare probabilities, or hold them against a threshold; none takes logits.
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
    """Raises InputError, with the line to write, for what reads probabilities.

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
    # A label's logit is one among several in a softmax.
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
    """Returns the name of one of Keras' own classes, or of its function's; else ""."""
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
    """Returns an option of one of Keras' losses or metrics; None if it has none."""
    if callable(found) and hasattr(found, "__kwdefaults__"):  # a function
        parameter = inspect.signature(found).parameters.get(name)
        return None if parameter is None else parameter.default
    # A user's own may have no config.
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
