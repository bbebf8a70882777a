"""Hugging Face folders: config.json, model.safetensors and the tokenizer's files.

A folder of transformers (any BERT with or without its head), or of
sentence-transformers, whose first module is such a folder. Weights are read from
safetensors alone: a pickle can run any code when it is opened.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.conversion import names
from bert_tf.conversion.huggingface_config import (
    ARCHITECTURES,
    CONFIG_NAME,
    architecture_of,
    labels_in,
    named_architecture,
    problem_type_in,
    read_config,
    to_config,
)
from bert_tf.conversion.pickles import WEIGHTS_NAME, pickles_in, refuse_pickles
from bert_tf.conversion.safetensors_files import read_tensors, write_tensors
from bert_tf.conversion.weights import (
    Tensor,
    Weights,
    check_against_config,
    listed,
)
from bert_tf.errors import InputError

__all__ = [
    "WEIGHTS_NAME",
    "architecture_of",
    "is_folder_of_hugging_face",
    "labels_in",
    "model_folder",
    "problem_type_in",
    "read_config",
    "read_weights",
    "refuse_pickles",
    "to_config",
    "write",
]

INDEX_NAME = "model.safetensors.index.json"
_MODULES_NAME = "modules.json"

# Tensors that repeat another: theirs -> whose values they must have.
_COPIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Buffers, no weights.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
# Older files have TensorFlow's names of these.
_OLD_ENDINGS = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
}
# These share the name `classifier`; only the config tells whose it is.
_CLASSIFIERS = (names.CLASSIFIER, names.MULTIPLE_CHOICE, names.TAGGING)


def model_folder(folder: str) -> str:
    """The folder of the model itself; in one of sentence-transformers maybe another."""
    path = os.path.join(folder, _MODULES_NAME)
    if not files.exists(path):
        return folder
    modules = files.read_json(path)
    try:
        first = modules[0]["path"]
    except (KeyError, IndexError, TypeError):
        first = None
    if not isinstance(first, str):
        raise InputError(f"{path}: must list modules, each with its `path`.")
    return files.inside(folder, first, path) if first else folder


def is_folder_of_hugging_face(folder: str) -> bool:
    """Whether a folder's files are those of transformers or sentence-transformers."""
    known = (_MODULES_NAME, WEIGHTS_NAME, INDEX_NAME)
    return any(files.exists(os.path.join(folder, name)) for name in known) or bool(
        pickles_in(folder)
    )


def read_weights(folder: str, config: BertConfig, values: Mapping[str, Any]) -> Weights:
    """The weights of a folder by the original's names."""
    stored = _stored(folder)
    rows = dict(_rows(config, _classifier_in(values)))
    keys = [*rows, *_COPIES, *_BUFFERS]
    found: dict[str, Tensor] = {}
    left_over = []
    for name, tensor in stored.items():
        key = _current_name(name)
        if key not in keys or key in found:
            left_over.append(name)
        found[key] = tensor
    if left_over:
        if _classifier_in(values) is None and "classifier.weight" in left_over:
            raise InputError(
                f"{os.path.join(folder, CONFIG_NAME)}: `architectures` must say what"
                f" `classifier.weight` classifies: {', '.join(_classes(_CLASSIFIERS))}."
                f" Found: {values.get('architectures')!r}."
            )
        raise InputError(
            f"{folder}: tensors that have no place in BERT: {listed(left_over)}."
        )
    for key in rows:
        if key in found and found[key].problem:
            raise InputError(f"{folder}: {found[key].problem}.")
    copies = {copy: found.pop(copy) for copy in _COPIES if copy in found}
    for copy, tensor in copies.items():
        # A file may have the one or the other, or both.
        found.setdefault(_COPIES[copy], tensor)
    weights = Weights(
        folder,
        {
            row.original: _transposed(found[key], row)
            for key, row in rows.items()
            if key in found
        },
    )
    check_against_config(weights, config)
    _check_labels(weights, values, os.path.join(folder, CONFIG_NAME))
    for copy, tensor in copies.items():
        _check_same(folder, copy, tensor, found[_COPIES[copy]])
    return weights


def _rows(
    config: BertConfig, classifier: str | None
) -> Iterator[tuple[str, names.Name]]:
    """Hugging Face's names, without `bert.`, and their rows of the table."""
    for row in (*names.encoder_names(config), *names.POOLER):
        yield row.hugging_face, row
    for head, rows in names.HEADS.items():
        if head not in _CLASSIFIERS or head == classifier:
            for row in rows:
                yield row.hugging_face, row


def _classifier_in(values: Mapping[str, Any]) -> str | None:
    """Which head the config's class calls `classifier`; None where it has none."""
    architecture = ARCHITECTURES.get(named_architecture(values) or "")
    heads = architecture.heads if architecture else ()
    return next((head for head in heads if head in _CLASSIFIERS), None)


def _classes(heads: Iterable[str]) -> list[str]:
    """The classes of transformers with one of the heads."""
    return [
        name
        for name, architecture in ARCHITECTURES.items()
        if set(heads) & set(architecture.heads)
    ]


def _current_name(name: str) -> str:
    """A tensor's name as transformers has it today, the encoder's without `bert.`."""
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name.removeprefix(names.HUGGING_FACE_ENCODER)


def _transposed(tensor: Tensor, row: names.Name) -> Tensor:
    """A tensor in the other layout, where the two differ."""
    if not row.hugging_face_transposes:
        return tensor
    return Tensor(tensor.shape[::-1], lambda: tensor.read().T)


def _check_labels(weights: Weights, values: Mapping[str, Any], path: str) -> None:
    """Raises InputError if a classifier has not as many outputs as there are labels."""
    labels = values.get("id2label")
    for head in (names.CLASSIFIER, names.TAGGING):
        shape = weights.shapes.get(names.HEADS[head][0].original)
        if shape and isinstance(labels, dict) and len(labels) != shape[0]:
            raise InputError(
                f"{path}: `id2label` has {len(labels)} labels, but the {head} in"
                f" {weights.path} has {shape[0]} outputs."
            )


def _check_same(folder: str, copy: str, tensor: Tensor, other: Tensor) -> None:
    """Raises InputError unless a copy is one, bit for bit: NaN is equal to itself."""
    if tensor is other:
        return
    if tensor.shape != other.shape or not np.array_equal(
        tensor.read().view(np.int32), other.read().view(np.int32)
    ):
        raise InputError(
            f"{folder}: {copy} is not {_COPIES[copy]}: a BERT whose weights are not"
            " tied, which cannot be represented."
        )


def _stored(folder: str) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files, by the names and layout there."""
    single = os.path.join(folder, WEIGHTS_NAME)
    index = os.path.join(folder, INDEX_NAME)
    if files.exists(single):
        return read_tensors(single)
    if not files.exists(index):
        refuse_pickles(folder)
        raise InputError(f"{folder}: no {WEIGHTS_NAME} in this folder.")
    content = files.read_json(index)
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not all(
        isinstance(part, str) for part in places.values()
    ):
        raise InputError(f"{index}: must have a `weight_map` from tensors to files.")
    stored: dict[str, Tensor] = {}
    for part in sorted(set(places.values())):
        stored |= read_tensors(files.inside(folder, part, index))
    missing = [name for name in places if name not in stored]
    if missing:
        raise InputError(
            f"{index} lists tensors that its files lack: {listed(missing)}."
        )
    return stored


def write(
    folder: str, weights: Weights, config: BertConfig, values: Mapping[str, Any]
) -> None:
    """Writes config.json and model.safetensors."""
    (name,) = values["architectures"]
    check_against_config(weights, config)
    rows = dict(_rows_of(name, config))
    missing = [row.original for row in rows.values() if row.original not in weights]
    if missing:
        raise InputError(
            f"{weights.path}: transformers' {name} has weights that are not there:"
            f" {listed(missing)}."
        )
    left_out = set(weights) - {row.original for row in rows.values()}
    if left_out:
        logging.info(
            "Left out, as transformers' %s has no place for them: %s.",
            name,
            listed(sorted(left_out)),
        )
    write_tensors(
        os.path.join(folder, WEIGHTS_NAME),
        {
            key: _transposed(_tensor(weights, row.original), row)
            for key, row in rows.items()
        },
    )
    files.write_atomically(
        os.path.join(folder, CONFIG_NAME), json.dumps(values, indent=2) + "\n"
    )


def _tensor(weights: Weights, name: str) -> Tensor:
    return Tensor(weights.shapes[name], lambda: weights[name])


def _rows_of(name: str, config: BertConfig) -> Iterator[tuple[str, names.Name]]:
    """The tensors' names in files of a class of transformers, and their rows."""
    architecture = ARCHITECTURES[name]
    prefix = "" if name == "BertModel" else names.HUGGING_FACE_ENCODER
    for row in names.encoder_names(config):
        yield prefix + row.hugging_face, row
    for row in names.POOLER if architecture.pooler else ():
        yield prefix + row.hugging_face, row
    for head in architecture.heads:
        for row in names.HEADS[head]:
            yield row.hugging_face, row
