"""Adapter files: weights added by LoRA or adapters, for any base of the same shape.

A run with --lora_rank or --adapter_size writes OUTPUT_DIR/adapter/:

    adapter.safetensors  the trained weights by our names: LoRA's matrices, or adapters
                         and LayerNorms; the head; the mixture of layers; the pooler if
                         it was trained
    adapter.json         {"format_version": 1,
                          "model": {"lora_rank": 8, ...},   arguments of the model
                          "labels": ["no", "yes"],          [] for one number
                          "problem_type": "single_label_classification",
                          "base": {"hidden_size": 768, ...},
                          "base_sha256": "..."}             of the base's frozen weights

The base must have the `base` fields of the one used in training. If its weights
differ, a warning is logged.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from bert_tf.base import files, strict_json
from bert_tf.base.config import PROBLEM_TYPES, SINGLE_LABEL, BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion.huggingface import read_tensors, write_tensors
from bert_tf.conversion.loading import load_weights
from bert_tf.conversion.names import window_pooling
from bert_tf.conversion.source import Source, open_source
from bert_tf.conversion.weights import Tensor, Weights, listed, shown
from bert_tf.modeling.heads import BertClassifier
from bert_tf.modeling.weight_names import is_added, weights_by_name

FOLDER_NAME = "adapter"
DESCRIPTION_NAME = "adapter.json"
WEIGHTS_NAME = "adapter.safetensors"
FORMAT_VERSION = 1

# Arguments of BertClassifier for the added and trained weights, and their types.
MODEL_OPTIONS = {
    "lora_rank": int,
    "adapter_size": int,
    "layer_mixture": bool,
    "train_pooler": bool,
}

# Fields in which the base must be equal.
_BASE_FIELDS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "layer_norm_eps",
    "left_to_right",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdapterFiles:
    """The content of adapter.json, and the weights that it describes."""

    format_version: int
    model: dict[str, Any]
    labels: tuple[str, ...]
    problem_type: str
    base: dict[str, Any]
    base_sha256: str
    # Of an opened adapter: its folder, and its weights by our names.
    path: str = dataclasses.field(default="", compare=False)
    weights: Weights = dataclasses.field(
        default_factory=lambda: Weights("", {}), compare=False
    )


def write_adapter(
    folder: str, model: keras.Model, *, labels: Sequence[str], problem_type: str
) -> str:
    """Writes a model's added and trained weights."""
    path = os.path.join(folder, FOLDER_NAME)
    files.make_folder(path)
    own: dict[str, keras.Variable] = {}
    frozen: dict[str, keras.Variable] = {}
    for name, variable in weights_by_name(model).items():
        is_base = name.startswith("bert/") and not is_added(name)
        (frozen if is_base and not variable.trainable else own)[name] = variable
    write_tensors(
        os.path.join(path, WEIGHTS_NAME),
        {
            name: Tensor(tuple(variable.shape), variable.numpy)
            for name, variable in own.items()
        },
    )
    arguments = model.get_config()
    description = {
        "format_version": FORMAT_VERSION,
        "model": {name: arguments[name] for name in MODEL_OPTIONS},
        "labels": list(labels),
        "problem_type": problem_type,
        "base": {name: getattr(model.bert_config, name) for name in _BASE_FIELDS},
        "base_sha256": _sha256(frozen),
    }
    # Written last: without it, the folder is no adapter.
    files.write_atomically(
        os.path.join(path, DESCRIPTION_NAME), json.dumps(description, indent=2) + "\n"
    )
    size = sum(int(np.prod(variable.shape)) for variable in own.values())
    logging.info("Wrote %s: %d weights in %d tensors.", path, size, len(own))
    return path


def is_adapter(path: str) -> bool:
    """Whether a run's folder has an adapter."""
    return files.exists(os.path.join(path, FOLDER_NAME, DESCRIPTION_NAME))


def open_adapter(path: str) -> AdapterFiles:
    """Opens the adapter of a run, or of a folder with an adapter's own files."""
    path = os.path.join(path, FOLDER_NAME) if is_adapter(path) else path
    file_path = os.path.join(path, DESCRIPTION_NAME)
    if not files.exists(file_path):
        raise InputError(
            f"{path}: no adapter in this folder: no {DESCRIPTION_NAME}. A folder of"
            " PEFT is a checkpoint of its own, without `init_adapter`."
        )
    values = files.read_json(file_path)
    if not isinstance(values, dict) or values.get("format_version") != FORMAT_VERSION:
        raise InputError(f"{file_path}: not of format_version {FORMAT_VERSION}.")
    found = strict_json.from_values(AdapterFiles, values, file_path)
    model = {
        name: strict_json.checked(kind, found.model.get(name, kind()), file_path, name)
        for name, kind in MODEL_OPTIONS.items()
    }
    sizes = model["lora_rank"], model["adapter_size"]
    if min(sizes) < 0 or all(sizes):
        raise InputError(
            f'{file_path}: one of "lora_rank" and "adapter_size" must be 0, the other'
            f" not negative. Received: {sizes[0]} and {sizes[1]}"
        )
    if found.problem_type not in PROBLEM_TYPES:
        raise InputError(
            f'{file_path}: "problem_type" must be one of {", ".join(PROBLEM_TYPES)}.'
            f" Received: {found.problem_type}"
        )
    weights_path = os.path.join(path, WEIGHTS_NAME)
    return dataclasses.replace(
        found,
        model=model,
        path=path,
        weights=Weights(weights_path, read_tensors(weights_path)),
    )


def refuse_other_base(adapter: AdapterFiles, config: BertConfig) -> None:
    """Raises InputError if an adapter was trained on a base of another shape."""
    for name in _BASE_FIELDS:
        there, here = adapter.base.get(name), getattr(config, name)
        if there != here:
            raise InputError(
                f"{adapter.path} was trained on a model with {name}={there}; this one"
                f" has {here}."
            )


def load_adapter(
    model: keras.Model, adapter: str | AdapterFiles, *, init_head: bool = True
) -> list[str]:
    """Loads an adapter's weights into a model that has the base's weights."""
    if isinstance(adapter, str):
        adapter = open_adapter(adapter)
    refuse_other_base(adapter, model.bert_config)
    variables = weights_by_name(model)
    weights = adapter.weights if init_head else adapter.weights.with_heads(())
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    wrong = [
        f"{name} is {shown(shape)} there,"
        f" {shown(shapes[name]) if name in shapes else 'nothing'} here"
        for name, shape in weights.shapes.items()
        if shapes.get(name) != shape
    ]
    wrong += [
        f"{n} is not there" for n in variables if is_added(n) and n not in weights
    ]
    if wrong:
        raise InputError(f"{weights.path} does not fit the model: {listed(wrong)}.")
    base = {
        name: variable
        for name, variable in variables.items()
        if name.startswith("bert/") and name not in weights
    }
    if _sha256(base) != adapter.base_sha256:
        logging.warning(
            "%s was trained on another base than this one: its scores will differ.",
            adapter.path,
        )
    for name in weights:
        variables[name].assign(weights[name])
    logging.info("Initialized %d weights from %s.", len(weights), weights.path)
    return list(weights)


def _sha256(variables: dict[str, keras.Variable]) -> str:
    digest = hashlib.sha256()
    for name in sorted(variables):
        digest.update(name.encode())
        digest.update(variables[name].numpy().astype("<f4", copy=False).tobytes())
    return digest.hexdigest()


def load_adapted_classifier(path: str | Source, adapter: str) -> BertClassifier:
    """Returns a classifier from a base's checkpoint and an adapter.

    Args:
        path: the base, as for `open_source`, or the opened checkpoint.
        adapter: OUTPUT_DIR/adapter of a run with --lora_rank or --adapter_size.

    Raises:
        InputError: one of them cannot be read, or they do not match.

    Examples:
        >>> model = bert_tf.load_adapted_classifier("pretrained", "run/adapter")
        >>> model.num_labels
        2
    """
    source = open_source(path) if isinstance(path, str) else path
    opened = open_adapter(adapter)
    if opened.problem_type == SINGLE_LABEL and len(opened.labels) < 2:
        raise InputError(
            f"{opened.path} is no classifier's: its {DESCRIPTION_NAME} names"
            f" {len(opened.labels)} labels."
        )
    model = BertClassifier(
        source.require_config(),
        max(1, len(opened.labels)),
        problem_type=opened.problem_type,
        window_pooling=window_pooling(opened.weights),
        **opened.model,
    )
    load_weights(model, source, init_head=False)
    load_adapter(model, opened)
    return model
