"""Keras' losses and metrics, of outputs that are logits.

Keras takes outputs for probabilities wherever `from_logits=True` is not given, as it
cannot be with a name, a class or a function. A model whose outputs are logits gives it
then; what was made without it, or cannot have it, is refused with the line to write.
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


def losses_of_logits(losses: Any, kind: str, outputs: Mapping[str, Any]) -> Any:
    """A loss, or a list or dict of them, in any of Keras' spellings; of logits."""
    return _of_each(losses, keras.losses, kind, outputs)


def metrics_of_logits(metrics: Any, kind: str, outputs: Mapping[str, Any]) -> Any:
    """Like `losses_of_logits`."""
    return _of_each(metrics, keras.metrics, kind, outputs)


def is_of_logits(losses: Any) -> bool:
    """Whether any of these losses, which `losses_of_logits` returned, is of logits."""
    return any(_option(one, "from_logits") for one in keras.tree.flatten(losses))


def _of_each(given: Any, module: Any, kind: str, outputs: Mapping[str, Any]) -> Any:
    if isinstance(given, Mapping) and "class_name" not in given:
        return {
            name: _of_each(
                one, module, kind, {name: outputs[name]} if name in outputs else outputs
            )
            for name, one in given.items()
        }
    if isinstance(given, list | tuple):
        return [_of_each(one, module, kind, outputs) for one in given]
    return given if given is None else _one_of_logits(given, module, kind, outputs)


def _one_of_logits(
    given: Any, module: Any, kind: str, outputs: Mapping[str, Any]
) -> Any:
    is_loss = module is keras.losses
    prefix = "keras.losses" if is_loss else "keras.metrics"
    if is_loss and str(given).lower() in _CHOSEN_BY_SHAPE:
        raise InputError(
            f"`loss={given!r}` is of probabilities, and the model's outputs are logits."
            f" Write {prefix}.SparseCategoricalCrossentropy(from_logits=True), or"
            " another one."
        )
    if not is_loss and str(given).lower() in ("accuracy", "acc"):
        if any(tensor.shape[-1] == 1 for tensor in outputs.values()):
            raise _refusal(given, kind)
        return given
    found = module.get(given)
    if not isinstance(found, keras.losses.Loss | keras.metrics.Metric):
        return _function_of_logits(given, found, module, kind)
    name = type(found).__name__
    is_own = getattr(module, name, None) is type(found)
    has_threshold = name in ("F1Score", "FBetaScore") and _option(found, "threshold")
    if is_own and (name in _OF_PROBABILITIES or has_threshold):
        raise _refusal(given, kind)
    if name == "AUC" and is_own and kind == SINGLE_LABEL:
        # Its logits would be those of a label alone, not of one among several.
        raise _refusal(given, kind)
    if _option(found, "from_logits") is not False:
        return found if isinstance(given, Mapping) or found is given else given
    is_given = not isinstance(given, Mapping) or "from_logits" in given["config"]
    if is_given and not isinstance(given, str | type):
        raise InputError(
            f"{name} was made for probabilities, and the model's outputs are logits."
            f" Write {prefix}.{name}(from_logits=True)."
        )
    config = {**found.get_config(), "from_logits": True}
    if isinstance(given, str):
        config["name"] = given
    return type(found).from_config(config)


def _function_of_logits(given: Any, found: Any, module: Any, kind: str) -> Any:
    """Of a function of Keras' own, the class; any other function is as it was."""
    name = getattr(found, "__name__", "")
    if keras.losses.__dict__.get(name) is not found and (
        keras.metrics.__dict__.get(name) is not found
    ):
        return given
    label = {"name": given if isinstance(given, str) else name}
    class_name = next(
        (
            one
            for one in {*dir(keras.losses), *dir(keras.metrics)}
            if one.lower() == name.replace("_", "") and one[0].isupper()
        ),
        "",
    )
    if class_name in _OF_PROBABILITIES:
        raise _refusal(given if isinstance(given, str) else name, kind)
    if "from_logits" not in inspect.signature(found).parameters:
        return given
    kind_of_object = getattr(module, class_name, None)
    if kind_of_object is not None:
        return kind_of_object(from_logits=True, **label)
    return keras.metrics.MeanMetricWrapper(found, from_logits=True, **label)


def _option(found: Any, name: str) -> Any:
    """An option of one of Keras' losses or metrics; None if it has none like it."""
    # A user's own may have no config.
    if type(found).__module__.split(".")[0] != "keras":
        return None
    config = found.get_config() if hasattr(found, "get_config") else {}
    return config.get(name)


def _refusal(given: Any, kind: str) -> InputError:
    function = "softmax" if kind == SINGLE_LABEL else "sigmoid"
    name = given if isinstance(given, str) else getattr(given, "name", given)
    return InputError(
        f"{name!r} is of probabilities, and the model's outputs are logits. Compile"
        f" keras.Model(model.input, keras.ops.{function}(model.output['logits']))"
        " instead, which outputs probabilities."
    )
