"""KerasHub presets: a folder as `save_to_preset` writes it, or a handle of one.

    config.json         the backbone's class and settings
    model.weights.h5    its weights; from 10 GB on in parts, named in model.weights.json
    metadata.json       versions, and the number of parameters
    task.json           of a model with a head: its class and settings
    task.weights.h5     the head's weights
    tokenizer.json, assets/tokenizer/vocabulary.txt

What the layers compute is asked of KerasHub's layers. Its masked LM has another GELU
and another epsilon than its encoder: they become `masked_lm_hidden_act` and
`masked_lm_layer_norm_eps`. How the weights are found in their files stands in
`kerashub_weights`.
"""

import json
import math
import os
from typing import Any, NamedTuple

from absl import logging

from bert_tf import files
from bert_tf.config import LAYER_NORM_EPSILON, BertConfig
from bert_tf.conversion import names
from bert_tf.conversion.kerashub_handles import download, is_handle
from bert_tf.conversion.kerashub_weights import (
    FIELDS,
    INDEX_NAME,
    TASK_WEIGHTS_NAME,
    WEIGHTS_NAME,
    read_weights,
    rows_of,
    settings_of,
    small_model,
    write_weights,
)
from bert_tf.conversion.weights import Weights, check_against_config
from bert_tf.errors import InputError
from bert_tf.text.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary

CONFIG_NAME = "config.json"
METADATA_NAME = "metadata.json"
TASK_NAME = "task.json"
TOKENIZER_NAME = "tokenizer.json"
VOCABULARY_NAME = os.path.join("assets", "tokenizer", "vocabulary.txt")

_BACKBONE = "BertBackbone"
# Tasks with a head that is one of ours; BertClassifier is an older name.
_TASKS = {
    "BertMaskedLM": names.MASKED_LM,
    "BertTextClassifier": names.CLASSIFIER,
    "BertClassifier": names.CLASSIFIER,
}

# The name of a layer's activation function -> ours.
_ACTIVATIONS = {
    "gelu_approximate": "gelu",
    "gelu": "gelu_erf",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}


class Preset(NamedTuple):
    """A preset, read.

    Attributes:
        config: the architecture.
        weights: by the original's names; each is read when it is asked for.
        vocabulary: None where the preset has no tokenizer.
        vocabulary_path: its file, for messages.
        do_lower_case: None where the preset has no tokenizer.
        labels: None; KerasHub's classifiers name no labels.
        tokenizer_difference: as `TokenizerFiles.difference`.
    """

    config: BertConfig
    weights: Weights
    vocabulary: Vocabulary | None
    vocabulary_path: str | None
    do_lower_case: bool | None
    labels: tuple[str, ...] | None
    tokenizer_difference: str | None = None


def is_preset_folder(folder: str) -> bool:
    """Whether a folder's files are those of a KerasHub preset."""
    return any(
        files.exists(os.path.join(folder, name)) for name in (WEIGHTS_NAME, INDEX_NAME)
    )


def read(path: str) -> Preset:
    """Reads a preset: its encoder, its head, its tokenizer."""
    folder = download(path) if is_handle(path) else path
    if files.is_remote(folder):
        raise InputError(
            f"{path}: a preset is read from a local disk; copy the folder first."
        )
    settings = _read_settings(folder)
    head = _head_of(folder)
    config = BertConfig.from_dict(settings, os.path.join(folder, CONFIG_NAME))
    small = small_model(config, head)
    config = BertConfig.from_dict({**settings, **_computation(small, head)}, folder)
    vocabulary, do_lower_case, difference = _read_tokenizer(folder)
    return Preset(
        config=config,
        weights=read_weights(folder, config, head, small),
        vocabulary=vocabulary,
        vocabulary_path=(
            None if vocabulary is None else os.path.join(folder, VOCABULARY_NAME)
        ),
        do_lower_case=do_lower_case,
        labels=None,
        tokenizer_difference=difference,
    )


def write(
    folder: str,
    weights: Weights,
    config: BertConfig,
    vocabulary: Vocabulary | None = None,
    do_lower_case: bool | None = None,
) -> None:
    """Writes the encoder and the pooler as a preset of BertBackbone."""
    check_can_be_written(weights, config, vocabulary)
    import keras_hub

    if config.hidden_dropout_prob != config.attention_probs_dropout_prob:
        logging.warning(
            "KerasHub's BertBackbone has one dropout rate, for training: %s, the"
            " hidden_dropout_prob, stands for attention_probs_dropout_prob=%s too.",
            config.hidden_dropout_prob,
            config.attention_probs_dropout_prob,
        )
    small = small_model(config, head=None)
    small.save_to_preset(folder)
    write_weights(folder, weights, config, small)
    # What the small model's files say of its sizes.
    path = os.path.join(folder, CONFIG_NAME)
    values = files.read_json(path)
    values["config"].update(settings_of(config))
    files.write_atomically(path, json.dumps(values, indent=4) + "\n")
    path = os.path.join(folder, METADATA_NAME)
    values = files.read_json(path)
    values["parameter_count"] = sum(
        math.prod(row.dimensions(config)) for row in rows_of(config, head=None)
    )
    files.write_atomically(path, json.dumps(values, indent=4) + "\n")
    if vocabulary is not None:
        keras_hub.models.BertTokenizer(
            vocabulary=list(vocabulary),
            lowercase=bool(do_lower_case),
            strip_accents=bool(do_lower_case),
        ).save_to_preset(folder)


def check_can_be_written(
    weights: Weights, config: BertConfig, vocabulary: Vocabulary | None = None
) -> None:
    """Raises InputError if a model is none that a BertBackbone preset can hold."""
    for field, only in (
        ("hidden_act", "gelu"),
        ("layer_norm_eps", LAYER_NORM_EPSILON),
        ("left_to_right", False),
    ):
        if getattr(config, field) != only:
            raise InputError(
                f"{weights.path}: KerasHub's BertBackbone computes {field}={only!r}"
                f" alone. Found: {getattr(config, field)!r}. Export it in another"
                " format."
            )
    if names.POOLER[0].original not in weights:
        raise InputError(
            f"{weights.path}: KerasHub's BertBackbone has a pooler, and this model has"
            " none. Export it in another format."
        )
    check_against_config(weights, config)
    missing = [
        token
        for token in (PAD, UNK, CLS, SEP, MASK)
        if vocabulary is not None and token not in vocabulary
    ]
    if missing:
        raise InputError(
            f"The vocabulary of {weights.path}: KerasHub's BertTokenizer needs"
            f" {', '.join(missing)}."
        )


def _read_object(path: str) -> tuple[str, dict[str, Any]]:
    """The class and the settings of a Keras object in a JSON file."""
    values = files.read_json(path, "file of a KerasHub preset")
    try:
        return values["registered_name"].split(">")[-1], dict(values["config"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        hint = (
            " It is a Hugging Face model: download it and give the folder."
            if isinstance(values, dict) and "model_type" in values
            else ""
        )
        raise InputError(
            f"{path}: must describe an object of KerasHub, by `registered_name` and"
            f" `config`.{hint}"
        ) from error


def _read_settings(folder: str) -> dict[str, Any]:
    """The fields of BertConfig that config.json says."""
    path = os.path.join(folder, CONFIG_NAME)
    name, settings = _read_object(path)
    if name != _BACKBONE:
        raise InputError(f"{path}: must be a {_BACKBONE}. Found: {name}.")
    missing = [key for key in FIELDS if key not in settings]
    if missing:
        raise InputError(f"{path}: lacks {', '.join(missing)}.")
    fields = {ours: settings[theirs] for theirs, ours in FIELDS.items()}
    return {**fields, "attention_probs_dropout_prob": fields["hidden_dropout_prob"]}


def _head_of(folder: str) -> str | None:
    """The head of a preset's task; None where it has none."""
    path = os.path.join(folder, TASK_NAME)
    if not files.exists(path):
        return None
    name = _read_object(path)[0]
    has_weights = files.exists(os.path.join(folder, TASK_WEIGHTS_NAME))
    if name in _TASKS:
        if not has_weights:
            raise InputError(
                f"{folder}: {TASK_WEIGHTS_NAME} is missing, the head of {name}."
            )
        return _TASKS[name]
    if has_weights:
        raise InputError(
            f"{path}: the head must be one of {', '.join(_TASKS)}. Found: {name}."
        )
    return None


def _computation(model: Any, head: str | None) -> dict[str, Any]:
    """What the layers of KerasHub's model compute, as fields of BertConfig."""
    backbone = model if head is None else model.backbone
    layer = backbone.transformer_layers[0]
    fields: dict[str, Any] = {
        "hidden_act": _ACTIVATIONS[layer.activation.__name__],
        "layer_norm_eps": layer.layer_norm_epsilon,
    }
    if head == names.MASKED_LM:
        theirs = model.masked_lm_head
        activation = _ACTIVATIONS[theirs.intermediate_activation.__name__]
        if activation != fields["hidden_act"]:
            fields["masked_lm_hidden_act"] = activation
        if theirs.layer_norm_epsilon != fields["layer_norm_eps"]:
            fields["masked_lm_layer_norm_eps"] = theirs.layer_norm_epsilon
    return fields


# Settings of a BertTokenizer that must be as they are in the original. strip_accents is
# not among them: KerasHub's default is false, of models too whose text had none.
_TOKENIZER_FIXED = {
    "split": True,
    "split_on_cjk": True,
    "suffix_indicator": "##",
    "oov_token": "[UNK]",
}


def _read_tokenizer(
    folder: str,
) -> tuple[Vocabulary | None, bool | None, str | None]:
    """Vocabulary, casing and difference of a preset; all None without a tokenizer."""
    path = os.path.join(folder, TOKENIZER_NAME)
    if not files.exists(path):
        return None, None, None
    name, settings = _read_object(path)
    casing = settings.get("lowercase", False)
    if not isinstance(casing, bool):
        raise InputError(
            f"{path}: `lowercase` must be true or false. Found: {casing!r}."
        )
    differences = [
        f"`{key}` is {settings[key]!r}, not {fixed!r}"
        for key, fixed in _TOKENIZER_FIXED.items()
        if settings.get(key, fixed) != fixed
    ]
    if not name.endswith("BertTokenizer"):
        differences.insert(0, f"it is a {name}, no BertTokenizer")
    return (
        Vocabulary.from_file(os.path.join(folder, VOCABULARY_NAME)),
        casing,
        f"{path}: {'; '.join(differences)}." if differences else None,
    )
