"""config.json of Hugging Face's transformers, and a BertConfig: one from the other."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bert_tf import files
from bert_tf.config import (
    CLASSIFIER_DROPOUT,
    MULTI_LABEL,
    PROBLEM_TYPES,
    REGRESSION,
    SINGLE_LABEL,
    BertConfig,
)
from bert_tf.conversion import names
from bert_tf.errors import InputError

CONFIG_NAME = "config.json"

# transformers' name -> ours. Its "gelu" is the exact function; the tanh approximation
# has several names.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_THEIR_ACTIVATIONS = {
    "gelu": "gelu_new",
    "gelu_erf": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}

# Fields with the same name and meaning in both.
_SAME_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
)
# What transformers assumes where a file does not say it, and BertConfig does not.
_DEFAULTS = {"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"}

# What the computation depends on and BERT has in one way only.
_FIXED = {"position_embedding_type": "absolute", "add_cross_attention": False}

# Labels without names are called this and a number.
_NO_LABEL = "LABEL_"


class Architecture(NamedTuple):
    """A model class of transformers: its heads, and whether it has a pooler."""

    heads: tuple[str, ...]
    pooler: bool


ARCHITECTURES: Mapping[str, Architecture] = {
    "BertModel": Architecture((), True),
    "BertForPreTraining": Architecture((names.MASKED_LM, names.NEXT_SENTENCE), True),
    "BertForMaskedLM": Architecture((names.MASKED_LM,), False),
    "BertLMHeadModel": Architecture((names.MASKED_LM,), False),
    "BertForNextSentencePrediction": Architecture((names.NEXT_SENTENCE,), True),
    "BertForSequenceClassification": Architecture((names.CLASSIFIER,), True),
    "BertForQuestionAnswering": Architecture((names.SPAN,), False),
    "BertForMultipleChoice": Architecture((names.MULTIPLE_CHOICE,), True),
    "BertForTokenClassification": Architecture((names.TAGGING,), False),
}


def read_config(folder: str) -> tuple[BertConfig, dict[str, Any]]:
    """A BertConfig from config.json, and all that the file says."""
    path = os.path.join(folder, CONFIG_NAME)
    values = files.read_json(path, "Hugging Face config")
    if not isinstance(values, dict):
        raise InputError(f"{path}: must hold one JSON object of settings.")
    if values.get("model_type", "bert") != "bert":
        raise InputError(
            f"{path}: `model_type` must be 'bert'. Found: {values['model_type']!r}."
        )
    for key, wanted in _FIXED.items():
        if values.get(key, wanted) != wanted:
            raise InputError(
                f"{path}: `{key}` must be {wanted!r}, as BERT has it. Found:"
                f" {values[key]!r}."
            )
    fields = {**_DEFAULTS, **{k: values[k] for k in _SAME_FIELDS if k in values}}
    activation = values.get("hidden_act", fields["hidden_act"])
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise InputError(
            f"{path}: `hidden_act` must be one of {', '.join(_ACTIVATIONS)}."
            f" Found: {activation!r}."
        )
    problem_type = values.get("problem_type")
    if problem_type is not None and problem_type not in PROBLEM_TYPES:
        raise InputError(
            f"{path}: `problem_type` must be one of {', '.join(PROBLEM_TYPES)}. Found:"
            f" {problem_type!r}."
        )
    fields["hidden_act"] = _ACTIVATIONS[activation]
    fields["left_to_right"] = bool(values.get("is_decoder", False))
    return BertConfig.from_dict(fields, source=path), values


def named_architecture(values: Mapping[str, Any]) -> str | None:
    """The class of transformers that a config names; None where it names none."""
    classes = values.get("architectures")
    if isinstance(classes, list) and classes and isinstance(classes[0], str):
        return classes[0]
    return None


def problem_type_in(values: Mapping[str, Any]) -> str | None:
    """What a config's classifier predicts; None where nothing says it.

    One output is a number, as transformers has it, unless it is said to be a label.
    """
    if named_architecture(values) != "BertForSequenceClassification":
        return None
    problem_type = values.get("problem_type")
    if problem_type != MULTI_LABEL and _num_labels(values) == 1:
        return REGRESSION
    return problem_type


def labels_in(values: Mapping[str, Any]) -> tuple[str, ...] | None:
    """A config's labels in the order of the outputs."""
    labels = values.get("id2label")
    if problem_type_in(values) == REGRESSION and _num_labels(values) == 1:
        return ()
    if not isinstance(labels, dict):
        return None
    found = [labels.get(str(i)) for i in range(len(labels))]
    ordered = tuple(label for label in found if isinstance(label, str))
    if len(ordered) < len(found):
        return None
    if all(label == f"{_NO_LABEL}{i}" for i, label in enumerate(ordered)):
        return None
    return ordered


def _num_labels(values: Mapping[str, Any]) -> Any:
    """How many labels a config has; None where it does not say it."""
    labels = values.get("id2label")
    return len(labels) if isinstance(labels, dict) else values.get("num_labels")


def architecture_of(weights: Iterable[str], config: BertConfig) -> str:
    """The class of transformers that has just these heads."""
    there = set(weights)
    heads = tuple(names.heads_of(there))
    if heads == (names.MASKED_LM,):
        return "BertLMHeadModel" if config.left_to_right else "BertForMaskedLM"
    for name, architecture in ARCHITECTURES.items():
        if architecture.heads == heads:
            return name
    raise InputError(
        f"transformers has no class with these heads: {', '.join(heads)}. Choose one by"
        " --heads."
    )


def to_config(
    config: BertConfig,
    architecture: str,
    *,
    labels: Iterable[str] | None = None,
    num_labels: int | None = None,
    problem_type: str | None = None,
) -> dict[str, Any]:
    """What config.json says of a model."""
    heads = ARCHITECTURES[architecture].heads
    if names.MASKED_LM in heads:
        _check_masked_lm(config, architecture)
    values: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": "bert",
        **{key: getattr(config, key) for key in _SAME_FIELDS},
        "hidden_act": _THEIR_ACTIVATIONS[config.hidden_act],
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if config.left_to_right:
        values["is_decoder"] = True
    if {names.CLASSIFIER, names.MULTIPLE_CHOICE, names.TAGGING} & set(heads):
        values["classifier_dropout"] = CLASSIFIER_DROPOUT
    if {names.CLASSIFIER, names.TAGGING} & set(heads):
        labels = tuple(labels or ())
        labels = labels or tuple(f"{_NO_LABEL}{i}" for i in range(num_labels or 1))
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if names.CLASSIFIER in heads:
        values["problem_type"] = problem_type or SINGLE_LABEL
    return values


def _check_masked_lm(config: BertConfig, architecture: str) -> None:
    """Refuses a masked LM's head with an activation or epsilon of its own."""
    for field, encoders in (
        ("masked_lm_hidden_act", "hidden_act"),
        ("masked_lm_layer_norm_eps", "layer_norm_eps"),
    ):
        own = getattr(config, field)
        if own is not None and own != getattr(config, encoders):
            raise InputError(
                f"transformers' {architecture} has one `{encoders}` for the encoder and"
                f" the masked LM's head; here `{field}` is {own!r} and `{encoders}`"
                f" {getattr(config, encoders)!r}. Leave the head out by --heads."
            )
