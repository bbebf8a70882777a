"""Checkpoints of Hugging Face's transformers, read and written.

A folder of transformers (BERT, ALBERT, ELECTRA's discriminator, DistilBERT, Longformer;
with or without a head), or of sentence-transformers, whose first module is such a
folder, has config.json, model.safetensors and the tokenizer's files. Weights are read
from safetensors, or from tf_model.h5, the file of TensorFlow classes (TFBertModel, ...)
that transformers 5 no longer has; not from pickles, as opening one can run any code.
"""

import contextlib
import dataclasses
import functools
import glob
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import safetensors
from absl import logging

from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.base.config import (
    ALBERT_FIELDS,
    CLASSIFIER_DROPOUT,
    MULTI_LABEL,
    ORIGINAL_FIELDS,
    PROBLEM_TYPES,
    REGRESSION,
    SINGLE_LABEL,
    BertConfig,
)
from bert_tf.base.errors import InputError, first_line
from bert_tf.conversion import names
from bert_tf.conversion.weights import Tensor, Weights, check_against_config, listed

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
TF_WEIGHTS_NAME = "tf_model.h5"
MODULES_NAME = "modules.json"

# The files of an adapter of PEFT, without its base.
ADAPTER_NAME = "adapter_config.json"
ADAPTER_WEIGHTS_NAME = "adapter_model.safetensors"

# Files that stand for their folder.
WEIGHTS_NAMES = (WEIGHTS_NAME, TF_WEIGHTS_NAME, ADAPTER_WEIGHTS_NAME)

# PyTorch's pickled weights.
_PICKLES = (".bin", ".pt", ".pth")

# Types that float32 holds exactly.
_DTYPES = ("F32", "F16", "BF16")

# Their name -> ours. Their "gelu" is the exact function; the tanh approximation has
# several names.
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
_THEIR_GELUS = {"gelu": "gelu_new", "gelu_erf": "gelu"}

# Fields with the same name and meaning in both configs.
_SAME_FIELDS = (
    *(name for name in ORIGINAL_FIELDS if name != "hidden_act"),
    "layer_norm_eps",
)
# Defaults in transformers that BertConfig lacks, by `model_type`.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "bert": {"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"},
    "albert": {
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "type_vocab_size": 2,
        "num_hidden_groups": 1,
        "inner_group_num": 1,
    },
    "electra": {
        "vocab_size": 30522,
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
        "hidden_act": "gelu",
        "type_vocab_size": 2,
    },
}
# A class whose pooler is a part of the head, with exact GELU.
_GELU_CLASSIFIER = "ElectraForSequenceClassification"
# Prefixes of BERT's tensor names -> prefixes in other models, and in that class.
_RENAMED: Mapping[str, Mapping[str, str]] = {
    "bert": {},
    "albert": {
        "pooler.dense.": "pooler.",
        "cls.predictions.transform.": "predictions.",
        "cls.predictions.": "predictions.",
        "cls.seq_relationship.": "sop_classifier.classifier.",
    },
    "electra": {"encoder.embedding_hidden_mapping_in.": "embeddings_project."},
    _GELU_CLASSIFIER: {
        "encoder.embedding_hidden_mapping_in.": "embeddings_project.",
        "pooler.dense.": "classifier.dense.",
        "classifier.": "classifier.out_proj.",
    },
}
# Models whose settings and names are in add-ons, and fields that these may add.
_OTHERS = ("distilbert", "longformer")
_OF_OTHERS = ("pooler_hidden_act", "masked_lm_hidden_act")
# Of Longformer, and of ONNX exports, which are BERT for other libraries.
_LOCAL = ("attention_window", "global_tokens")
# Settings that change the computation, and their only values in BERT.
_POSITIONS = "position_embedding_type"
_FIXED = {_POSITIONS: "absolute", "add_cross_attention": False}
# Prefix of transformers' names for unnamed labels.
_NO_LABEL = "LABEL_"

# Classes of transformers without a head -> whether they have a pooler. Classes with
# heads are in the heads' rows.
_ENCODERS = {"BertModel": True, "AlbertModel": True, "ElectraModel": False}

# Tensors that may repeat another -> the other one. The head computes with the former.
_MATRIX, _BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
_COPIES = {
    _MATRIX: "embeddings.word_embeddings.weight",
    _BIAS: "cls.predictions.bias",
}
# Prefixes of the encoder's tensors in a model without a head.
_ENCODER = ("embeddings.", "embeddings_project.", "encoder.", "pooler.")
# Constants stored among the weights.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def read_tensors(path: str) -> dict[str, Tensor]:
    """Returns a safetensors file's tensors by name; reads only the header now."""
    files.require(path)
    copy = None
    if files.is_remote(path):
        # The package reads only local files. The tensors keep the copy alive.
        copy = tempfile.NamedTemporaryFile(suffix=".safetensors")  # noqa: SIM115
        with files.open_binary(path) as file:
            shutil.copyfileobj(file, copy)
        copy.flush()

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        try:
            with safetensors.safe_open(copy.name if copy else path, "np") as file:
                yield file
        except (safetensors.SafetensorError, OSError) as error:
            reason = first_line(error)
            raise InputError(
                f"{path} is damaged or no safetensors file: {reason}."
            ) from error

    def read(name: str) -> np.ndarray:
        with opened() as file:
            return file.get_tensor(name).astype(np.float32, copy=False)

    tensors = {}
    with opened() as file:
        for name in file.keys():  # noqa: SIM118 (the file is not a mapping)
            part = file.get_slice(name)
            if part.get_dtype() not in _DTYPES and not name.endswith(_BUFFERS):
                raise InputError(
                    f"{path}: {name} is of type {part.get_dtype()}; only"
                    f" {', '.join(_DTYPES)} are read."
                )
            shape = tuple(part.get_shape())
            tensors[name] = Tensor(shape, functools.partial(read, name))
    return tensors


def is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are bitwise equal: NaN equals itself."""
    return one.shape == other.shape and one.read().tobytes() == other.read().tobytes()


def write_tensors(path: str, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file as float32, under a temporary name until complete."""
    # Tensors are read one at a time; the package's writer needs all of them, twice.

    # transformers checks which framework wrote the file.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + 4 * math.prod(tensor.shape)
        offsets = begin, end
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the tensors are aligned
    with files.replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.read().astype("<f4", copy=False).tobytes())


def _pickles_in(folder: str) -> list[str]:
    every = os.path.join(glob.escape(folder), "*")
    return [path for ending in _PICKLES for path in files.glob(every + ending)]


def refuse_pickles(path: str) -> None:
    """Raises InputError if a path is a pickle, or a folder with only pickles."""
    if files.is_folder(path):
        path = next(iter(_pickles_in(path)), "")
    if path.endswith(_PICKLES):
        raise InputError(
            f"{path} is a pickle, which can run any code when it is opened, and is not"
            " read. Load the model with transformers: `save_pretrained` writes"
            f" {WEIGHTS_NAME}."
        )


def read_config(folder: str) -> tuple[BertConfig, dict[str, Any]]:
    """Returns a BertConfig from config.json, and all of the file's settings."""
    path = os.path.join(folder, CONFIG_NAME)
    if is_of_peft(folder):
        path, values = addon("peft").config_of(folder)
    else:
        values = files.read_object(path, "Hugging Face config")
    model_type = values.get("model_type", "bert")
    known_types = (*_DEFAULTS, *_OTHERS)
    if model_type not in known_types:
        types = " or ".join(map(repr, known_types))
        why = ""
        if model_type == "big_bird":
            why = " Its random blocks are others in transformers than in its own code."
        raise InputError(
            f"{path}: `model_type` must be {types}. Received: {model_type!r}.{why}"
        )
    same: tuple[str, ...] = _SAME_FIELDS + _LOCAL
    if model_type in _OTHERS:
        same += _OF_OTHERS
        values, model_type = addon(model_type).as_bert(values, path), "bert"
    for key, wanted in _FIXED.items():
        if values.get(key, wanted) != wanted:
            raise InputError(
                f"{path}: `{key}` must be {wanted!r}, as BERT has it. Received:"
                f" {values[key]!r}."
            )
    defaults = _DEFAULTS[model_type]
    same += tuple(key for key in ALBERT_FIELDS if key in defaults)
    fields = {**defaults, **{k: values[k] for k in same if k in values}}
    activation = values.get("hidden_act", fields["hidden_act"])
    problem_type = values.get("problem_type")
    for key, value, known in (
        ("hidden_act", activation, tuple(_ACTIVATIONS)),
        ("problem_type", problem_type, (*PROBLEM_TYPES, None)),
    ):
        if value not in known:
            choices = ", ".join(filter(None, known))
            raise InputError(
                f"{path}: `{key}` must be one of {choices}. Received: {value!r}."
            )
    fields["hidden_act"] = _ACTIVATIONS[activation]
    if model_type == "electra" and fields["embedding_size"] == fields["hidden_size"]:
        del fields["embedding_size"]
    if named_architecture(values) == _GELU_CLASSIFIER:
        fields["pooler_hidden_act"] = "gelu_erf"
    # The classes of other models do not look at it.
    if values.get("model_type", "bert") in ("bert", "electra"):
        fields["left_to_right"] = bool(values.get("is_decoder"))
    return BertConfig.from_dict(fields, source=path), values


def named_architecture(values: Mapping[str, Any]) -> str | None:
    """Returns the class of transformers that a config names."""
    classes = values.get("architectures")
    if isinstance(classes, list) and classes and isinstance(classes[0], str):
        return classes[0]
    return None


def problem_type_in(values: Mapping[str, Any]) -> str | None:
    """Returns a config's problem type, or None if it gives none."""
    # As in transformers, a single output is a regression unless declared multi-label.
    architecture = named_architecture(values) or ""
    if names.CLASSIFIER not in _heads_of(architecture):
        return None
    problem_type = values.get("problem_type")
    if problem_type != MULTI_LABEL and num_labels_in(values) == 1:
        return REGRESSION
    return problem_type


def labels_in(values: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Returns a config's labels in the order of the outputs, as text."""
    labels = values.get("id2label")
    if problem_type_in(values) == REGRESSION and num_labels_in(values) == 1:
        return ()
    if not isinstance(labels, dict):
        return None
    found = [labels.get(str(i)) for i in range(len(labels))]
    if not all(isinstance(label, str | int | float) for label in found):
        raise InputError(
            f"{CONFIG_NAME}: `id2label` must name the outputs 0 to {len(found) - 1}, by"
            f" text or numbers. Received: {json.dumps(labels)}."
        )
    has_names = found != [f"{_NO_LABEL}{i}" for i in range(len(found))]
    return tuple(map(str, found)) if has_names else None


def num_labels_in(values: Mapping[str, Any]) -> Any:
    """Returns a config's number of labels, or None if it gives none."""
    labels = values.get("id2label")
    return len(labels) if isinstance(labels, dict) else values.get("num_labels")


def architecture_of(weights: Iterable[str], config: BertConfig) -> str:
    """Returns the class of transformers with exactly these heads."""
    heads = tuple(names.heads_of(weights))
    if heads == (names.MASKED_LM,) and config.left_to_right:
        return "BertLMHeadModel"
    model_type = "electra" if names.is_electra(config, heads) else "bert"
    if config.shares_layers:
        model_type = "albert"
    rows = names.HEADS.values()
    for name in (*_ENCODERS, *(its for head in rows for its in head.hugging_face)):
        if name == _GELU_CLASSIFIER and config.pooler_hidden_act != "gelu_erf":
            continue
        if _heads_of(name) == heads and _model_type_of(name) == model_type:
            return name
    other = config.pooler_hidden_act
    pooler = "" if other == "tanh" else f" (and the pooler's {other})"
    raise InputError(
        f"transformers has no class with these heads: {', '.join(heads)}{pooler}."
        " Choose one by `heads`."
    )


def _heads_of(architecture: str) -> tuple[str, ...]:
    """Returns the heads of a class of transformers; () for an unknown class."""
    rows = names.HEADS.values()
    return tuple(head.name for head in rows if architecture in head.hugging_face)


def _model_type_of(architecture: str) -> str:
    """Returns a transformers class's `model_type`, the beginning of its name."""
    lower = architecture.lower()
    return next(model for model in _DEFAULTS if lower.startswith(model))


def _renamed(name: str, model_type: str) -> str:
    """Returns a tensor's name in a model, or a class, from its name in BERT."""
    return names.replace_prefix(name, _RENAMED[model_type])


def to_config(
    config: BertConfig,
    architecture: str,
    *,
    labels: Iterable[str] | None = None,
    num_labels: int | None = None,
    problem_type: str | None = None,
) -> dict[str, Any]:
    """Returns the content of a model's config.json."""
    heads = _heads_of(architecture)
    for field in ("hidden_act", "layer_norm_eps"):
        own, encoders = getattr(config, f"masked_lm_{field}"), getattr(config, field)
        if names.MASKED_LM in heads and own not in (None, encoders):
            raise InputError(
                f"transformers' {architecture} has one `{field}` for the encoder and"
                f" the masked LM's head; here `masked_lm_{field}` is {own!r} and"
                f" `{field}` {encoders!r}. Leave the head out by `heads`."
            )
    model_type = _model_type_of(architecture)
    further = [key for key in ALBERT_FIELDS if key in _DEFAULTS[model_type]]
    values: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": model_type,
        **{key: getattr(config, key) for key in _SAME_FIELDS},
        **{key: x for key in _LOCAL if (x := getattr(config, key)) is not None},
        **dict.fromkeys(further, 1),
        **({"embedding_size": config.embedding_width} if further else {}),
        "hidden_act": _THEIR_GELUS.get(config.hidden_act, config.hidden_act),
        "pad_token_id": 0,
        "tie_word_embeddings": config.tie_word_embeddings,
        "dtype": "float32",
    }
    if model_type == "bert":
        # transformers 5 leaves it out, but CTranslate2 requires it.
        values[_POSITIONS] = _FIXED[_POSITIONS]
    if config.left_to_right:
        if model_type != "bert":
            raise InputError(f"transformers' {architecture} is never left-to-right.")
        values["is_decoder"] = True
    if any(map(_is_named_classifier, heads)):
        key = "classifier_dropout" + ("_prob" if model_type == "albert" else "")
        values[key] = CLASSIFIER_DROPOUT
    if any(names.HEADS[head].has_labels for head in heads):
        labels = tuple(labels or ())
        labels = labels or tuple(f"{_NO_LABEL}{i}" for i in range(num_labels or 1))
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if names.CLASSIFIER in heads:
        values["problem_type"] = problem_type or SINGLE_LABEL
    return values


def model_folder(folder: str) -> str:
    """Returns the model's folder; for sentence-transformers, the first module's."""
    path = os.path.join(folder, MODULES_NAME)
    if not files.exists(path):
        return folder
    modules = files.read_json(path)
    is_list = isinstance(modules, list) and modules and isinstance(modules[0], dict)
    first = modules[0].get("path") if is_list else None
    if not isinstance(first, str):
        raise InputError(f"{path}: must list modules, each with its `path`.")
    return files.inside(folder, first, path) if first else folder


def is_folder_of_hugging_face(folder: str) -> bool:
    """Returns whether transformers or sentence-transformers wrote a folder's files."""
    known = (MODULES_NAME, WEIGHTS_NAME, INDEX_NAME, TF_WEIGHTS_NAME, ADAPTER_NAME)
    return any(files.exists(os.path.join(folder, name)) for name in known) or bool(
        _pickles_in(folder)
    )


def is_of_peft(folder: str) -> bool:
    """Returns whether a folder has an adapter, for a base in another folder."""
    return files.exists(os.path.join(folder, ADAPTER_NAME))


def _is_named_classifier(head: str) -> bool:
    """Whether a head is named `classifier`: then the config tells which one it is."""
    return names.HEADS[head].weights[0].hugging_face == "classifier.weight"


def read_weights(folder: str, config: BertConfig, values: Mapping[str, Any]) -> Weights:
    """Reads the weights of a folder, by the original's names."""
    class_name = named_architecture(values) or ""
    heads = _heads_of(class_name)
    classifier = next(filter(_is_named_classifier, heads), None)
    heads_rows = (
        row
        for head in names.HEADS.values()
        if head.name == classifier or not _is_named_classifier(head.name)
        for row in head.weights
    )
    model_type = values.get("model_type", "bert")
    path, stored = stored_tensors(folder)
    if name := next((name for name in stored if "/" in name), ""):
        raise InputError(
            f"{path}: {name} is a name of TensorFlow, which is read from"
            f" {TF_WEIGHTS_NAME} alone: transformers 4 writes it by"
            " save_pretrained(NEW_FOLDER, safe_serialization=False)."
        )
    if model_type in _OTHERS:
        stored = addon(model_type).by_berts_names(stored, config, values)
        model_type = "bert"
    encoder = (*names.encoder_names(config, names.has_global(stored)), *names.POOLER)
    kind = class_name if class_name in _RENAMED else model_type
    rows = {_renamed(row.hugging_face, kind): row for row in (*encoder, *heads_rows)}
    copied = {
        _renamed(copy, model_type): _renamed(name, model_type)
        for copy, name in _COPIES.items()
    }
    found: dict[str, Tensor] = {}
    foreign: dict[str, Tensor] = {}
    left_over = []
    for name, tensor in stored.items():
        # Older files have TensorFlow's names.
        key = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        key = key.replace("LayerNorm.beta", "LayerNorm.bias")
        key = key.removeprefix(f"{model_type}.")
        is_known = key in {*rows, *copied, *_BUFFERS}
        if not is_known and name == key and not key.startswith(_ENCODER):
            foreign[names.FOREIGN + name] = tensor
        elif key in found or not is_known:
            left_over.append(name)
        found[key] = tensor
    if left_over:
        raise InputError(
            f"{path}: tensors that have no place in {model_type.upper()}:"
            f" {listed(left_over)}."
        )
    matrix, bias = copied  # a file may have either of two copies, or both
    if bias in found:
        found[copied[bias]] = found[bias]
    if matrix in found:
        words = found.setdefault(copied[matrix], found[matrix])
        if is_same(found[matrix], words):
            del found[matrix]
    there = ((found[key], row) for key, row in rows.items() if key in found)
    ours = {row.original: transposed(x, row) for x, row in there}
    if not files.exists(os.path.join(folder, "export.json")):  # not of this package
        _check_pooler(path, config, ours)
        if config.left_to_right:
            for row in names.POOLER:
                ours.pop(row.original, None)
    weights = Weights(folder, ours | foreign)
    config = dataclasses.replace(config, tie_word_embeddings=matrix not in found)
    check_against_config(Weights(path, ours | foreign), config)
    return weights


def _check_pooler(path: str, config: BertConfig, weights: Iterable[str]) -> None:
    """Raises InputError for a head of [CLS] where here it is of the last token."""
    pooled = [head for head in names.heads_of(weights) if names.HEADS[head].is_pooled]
    if config.left_to_right and pooled:
        raise InputError(
            f"{path}: in a left-to-right model (`is_decoder`), the {pooled[0]} head of"
            " transformers reads [CLS], and here the last token. Leave it out."
        )


def transposed(tensor: Tensor, row: names.Name) -> Tensor:
    """Converts a tensor to the other layout: see `names`."""
    return turned(tensor) if row.original.endswith("/kernel") else tensor


def turned(tensor: Tensor) -> Tensor:
    """Returns a tensor with its dimensions in reverse."""
    return Tensor(tensor.shape[::-1], lambda: tensor.read().T)


def stored_tensors(folder: str) -> tuple[str, dict[str, Tensor]]:
    """Returns a folder's file, and all tensors as safetensors names and lays them."""
    if is_of_peft(folder):
        return addon("peft").stored_tensors(folder)
    single = os.path.join(folder, WEIGHTS_NAME)
    index = os.path.join(folder, INDEX_NAME)
    if files.exists(single):
        return single, read_tensors(single)
    if not files.exists(index):
        of_tf = os.path.join(folder, TF_WEIGHTS_NAME)
        if files.exists(of_tf):
            return of_tf, addon("tf_model").read_tensors(of_tf)
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
    if missing := [name for name in places if name not in stored]:
        raise InputError(
            f"{index} lists tensors that its files lack: {listed(missing)}."
        )
    return index, stored


def rows_in_class(
    weights: Weights, config: BertConfig, values: Mapping[str, Any]
) -> dict[str, names.Name]:
    """Returns the rows of all tensors of a config's class, by its names for them."""
    (name,) = values["architectures"]
    heads = _heads_of(name)
    _check_pooler(weights.path, config, weights)
    has_pooler = any(names.HEADS[head].is_pooled for head in heads)
    if not heads and names.POOLER[0].original in weights:
        has_pooler = _ENCODERS[name] and not config.left_to_right
    model_type = _model_type_of(name)
    of_encoder = names.encoder_names(config, names.has_global(weights))
    every = [*of_encoder, *(names.POOLER if has_pooler else ())]
    every += (row for head in heads for row in names.head_names(head, config))
    kind = name if name in _RENAMED else model_type
    rows = {_renamed(row.hugging_face, kind): row for row in every}
    if _renamed(_MATRIX, kind) in rows:  # not tied, and then its bias is not, either
        rows[_renamed(_BIAS, kind)] = rows[_renamed(_COPIES[_BIAS], kind)]
    # A model without a head has no prefix.
    prefix = f"{model_type}." if heads else ""
    rows = {prefix * k.startswith(_ENCODER) + k: row for k, row in rows.items()}
    if missing := {row.original for row in rows.values()} - {*weights}:
        raise InputError(
            f"{weights.path}: transformers' {name} needs weights that are missing:"
            f" {listed(sorted(missing))}."
        )
    if left_out := {*weights} - {row.original for row in rows.values()}:
        logging.info(
            "Left out, as transformers' %s has no place for them: %s.",
            name,
            listed(sorted(left_out)),
        )
    return rows


def write(
    folder: str, weights: Weights, config: BertConfig, values: Mapping[str, Any]
) -> None:
    """Writes config.json and model.safetensors."""
    tensors = {
        key: transposed(weights.tensors[row.original], row)
        for key, row in rows_in_class(weights, config, values).items()
    }
    if config.attention_window:
        values, tensors = addon("longformer").from_bert(values, tensors, config)
    write_tensors(os.path.join(folder, WEIGHTS_NAME), tensors)
    files.write_atomically(
        os.path.join(folder, CONFIG_NAME), json.dumps(values, indent=2) + "\n"
    )
