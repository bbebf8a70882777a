"""Hugging Face folders: config.json, model.safetensors and the tokenizer's files.

A folder of transformers (any BERT with or without its head), or of
sentence-transformers, whose first module is such a folder. Weights are read from
safetensors alone: a pickle can run any code when it is opened.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_tf import files
from bert_tf.config import CLASSIFIER_DROPOUT, BertConfig
from bert_tf.conversion import names
from bert_tf.conversion.weights import Tensor, Weights, listed
from bert_tf.errors import InputError

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
_MODULES_NAME = "modules.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt")

# transformers' name -> ours. Its "gelu" is the exact function; the tanh approximation
# has three names.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
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

# Fields with the same name in both configs.
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
# What transformers assumes where a config does not say it.
_DEFAULTS = {"vocab_size": 30522, "type_vocab_size": 2}

# Generic labels, which say nothing.
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


def import_safetensors() -> Any:
    """The package safetensors.

    Raises:
        InputError: it is not installed.
    """
    try:
        import safetensors
    except ModuleNotFoundError as error:
        raise InputError(
            "Hugging Face folders need the package safetensors: "
            "pip install 'bert-tf[hf]'."
        ) from error
    return safetensors


def model_folder(folder: str) -> str:
    """The folder of the model itself, in one of sentence-transformers maybe another."""
    path = os.path.join(folder, _MODULES_NAME)
    if not files.exists(path):
        return folder
    modules = files.read_json(path)
    try:
        first = modules[0]["path"]
    except (KeyError, IndexError, TypeError) as error:
        raise InputError(f"{path}: must list modules, each with its `path`.") from error
    return os.path.join(folder, first) if first else folder


def is_folder_of_hugging_face(folder: str) -> bool:
    """Whether a folder's files are those of transformers or sentence-transformers."""
    there = [
        name
        for name in (_MODULES_NAME, WEIGHTS_NAME, INDEX_NAME, "pytorch_model.bin")
        if files.exists(os.path.join(folder, name))
    ]
    return bool(there)


def read_config(folder: str) -> tuple[BertConfig, dict[str, Any]]:
    """A BertConfig from config.json, and all that the file says.

    Raises:
        InputError: no such file, not a BERT, or a BERT that computes something else.
    """
    path = os.path.join(folder, CONFIG_NAME)
    values = files.read_json(path, "Hugging Face config")
    if not isinstance(values, dict):
        raise InputError(f"{path}: must hold one JSON object of settings.")
    if values.get("model_type", "bert") != "bert":
        raise InputError(
            f"{path}: `model_type` must be 'bert'. Found: {values['model_type']!r}."
        )
    activation = values.get("hidden_act", "gelu")
    # No activation, in transformers' way of writing it.
    activation = "linear" if activation is None else activation
    if activation not in _ACTIVATIONS:
        raise InputError(
            f"{path}: `hidden_act` must be one of {', '.join(_ACTIVATIONS)}."
            f" Found: {activation!r}."
        )
    for key, wanted in (
        ("position_embedding_type", "absolute"),
        ("add_cross_attention", False),
    ):
        if values.get(key, wanted) != wanted:
            raise InputError(
                f"{path}: `{key}` must be {wanted!r}, as BERT has it. Found:"
                f" {values[key]!r}."
            )
    fields = {
        **_DEFAULTS,
        **{key: values[key] for key in _SAME_FIELDS if key in values},
        "hidden_act": _ACTIVATIONS[activation],
        "left_to_right": bool(values.get("is_decoder", False)),
    }
    return BertConfig.from_dict(fields, source=path), values


def labels_in(values: Mapping[str, Any]) -> tuple[str, ...] | None:
    """A config's labels in the order of the outputs; None where they say nothing."""
    labels = values.get("id2label")
    if not isinstance(labels, dict):
        return None
    try:
        ordered = tuple(str(labels[str(i)]) for i in range(len(labels)))
    except KeyError:
        return None
    if all(label.startswith(_NO_LABEL) for label in ordered):
        return None
    return ordered


def read_weights(folder: str, config: BertConfig, values: Mapping[str, Any]) -> Weights:
    """The weights of a folder by the original's names.

    Args:
        folder: the folder.
        config: its config.
        values: all that its config.json says; `architectures` tells whose head
            `classifier` is.

    Raises:
        InputError: there are none, or only pickled ones; a file is damaged; a tensor has
            no place in BERT; tied weights differ.
    """
    stored = _stored(folder)
    table = _table(config, _architecture(values, stored, folder))
    tensors: dict[str, Tensor] = {}
    left_over, copies = [], []
    for key, (shape, read) in stored.items():
        name = key.removeprefix(names.HUGGING_FACE_ENCODER)
        for old, new in _OLD_ENDINGS.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        if name in _BUFFERS:
            continue
        if name in _COPIES:
            copies.append((key, read))
        elif name in table:
            tensors[table[name].original] = _in_our_layout(table[name], shape, read)
        else:
            left_over.append(key)
    if left_over:
        raise InputError(
            f"{folder}: tensors that have no place in BERT: {listed(left_over)}."
        )
    weights = Weights(folder, tensors)
    for key, read in copies:
        original = table[_COPIES[key]].original
        if original in weights and not np.array_equal(read(), weights[original]):
            raise InputError(
                f"{folder}: {key} is not {_COPIES[key]}: a BERT with untied word"
                " embeddings, which cannot be represented."
            )
    return weights


def _architecture(
    values: Mapping[str, Any], stored: Iterable[str], folder: str
) -> Architecture:
    """The architecture that the config names, or else what the tensors' names tell."""
    for name in values.get("architectures") or ():
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
        raise InputError(
            f"{os.path.join(folder, CONFIG_NAME)}: `architectures` must be one of"
            f" {', '.join(ARCHITECTURES)}. Found: {name!r}."
        )
    if any(key.startswith("classifier.") for key in stored):
        raise InputError(
            f"{os.path.join(folder, CONFIG_NAME)}: `architectures` is missing, so it is"
            " not known what the tensor `classifier.weight` classifies; say"
            ' ["BertForSequenceClassification"] or another one.'
        )
    return Architecture((names.MASKED_LM, names.NEXT_SENTENCE, names.SPAN), True)


def _table(config: BertConfig, architecture: Architecture) -> dict[str, names.Name]:
    """Rows of the table by Hugging Face's names, without `bert.`."""
    rows = [*names.encoder_names(config), *names.POOLER]
    for head in architecture.heads:
        rows += names.HEADS[head]
    return {row.hugging_face: row for row in rows}


def _in_our_layout(
    row: names.Name, shape: tuple[int, ...], read: Callable[[], np.ndarray]
) -> Tensor:
    if row.hugging_face_transposes:
        return Tensor(shape[::-1], lambda: read().T)
    return Tensor(shape, read)


def _stored(folder: str) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files, by the names and layout there."""
    index = os.path.join(folder, INDEX_NAME)
    single = os.path.join(folder, WEIGHTS_NAME)
    if files.exists(single):
        parts = [single]
    elif files.exists(index):
        try:
            parts = sorted(set(files.read_json(index)["weight_map"].values()))
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{index}: must have a `weight_map`.") from error
        parts = [os.path.join(folder, part) for part in parts]
    else:
        refuse_pickles(folder)
        raise InputError(f"{folder}: no {WEIGHTS_NAME} in this folder.")
    stored: dict[str, Tensor] = {}
    for part in parts:
        stored.update(_stored_in(part))
    return stored


def refuse_pickles(path: str) -> None:
    """Raises InputError if `path` is a pickle, or a folder with nothing but pickles."""
    found = [
        name
        for ending in PICKLES
        for name in files.glob(os.path.join(path, f"*{ending}"))
    ]
    if path.endswith(PICKLES):
        found, path = [path], os.path.dirname(path)
    if not found:
        return
    architecture = "BertForPreTraining"
    config = os.path.join(path, CONFIG_NAME)
    if files.exists(config):
        architecture = (read_config(path)[1].get("architectures") or [architecture])[0]
    raise InputError(
        f"{found[0]} is a pickle, which can run any code when it is opened, and is not"
        " read. With PyTorch and transformers installed, this writes model.safetensors"
        f' beside it: python -c "from transformers import {architecture} as M;'
        f' M.from_pretrained({path!r}).save_pretrained({path!r})"'
    )


def _stored_in(path: str) -> dict[str, Tensor]:
    safetensors = import_safetensors()
    if files.is_remote(path):
        raise InputError(
            f"{path}: safetensors are read from a local disk; copy the folder first."
        )
    if not files.exists(path):
        raise InputError(f"No such file: {path}")
    try:
        with safetensors.safe_open(path, framework="np") as opened:
            shapes = {
                key: tuple(opened.get_slice(key).get_shape()) for key in opened.keys()
            }
    except (safetensors.SafetensorError, OSError) as error:
        raise InputError(
            f"{path} is damaged or no safetensors file: {_first_line(error)}"
        ) from error

    def reading(key: str) -> Callable[[], np.ndarray]:
        def read() -> np.ndarray:
            # Opened for each tensor: an open file stays mapped, and what was read of it
            # would count as this process' memory.
            with safetensors.safe_open(path, framework="np") as opened:
                return np.asarray(opened.get_tensor(key), dtype=np.float32)

        return read

    return {key: Tensor(shape, reading(key)) for key, shape in shapes.items()}


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def architecture_of(weights: Iterable[str], config: BertConfig) -> str:
    """The class of transformers that has just these heads.

    Raises:
        InputError: there is none.
    """
    there = set(weights)
    heads = tuple(names.heads_of(there))
    if config.left_to_right:
        if heads != (names.MASKED_LM,):
            raise InputError(
                "A left-to-right model is transformers' BertLMHeadModel, which has a"
                f" language model and nothing else; here: {', '.join(heads) or 'none'}."
            )
        return "BertLMHeadModel"
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
    is_regression: bool = False,
) -> dict[str, Any]:
    """What config.json says of a model.

    Args:
        config: the architecture.
        architecture: transformers' class.
        labels: the labels of a classifier or tagger.
        num_labels: how many there are, where they have no names.
        is_regression: whether a classifier's one output is a number.
    """
    fields = dataclass_fields(config)
    values = {
        "architectures": [architecture],
        "model_type": "bert",
        **{key: fields[key] for key in _SAME_FIELDS},
        "hidden_act": _THEIR_ACTIVATIONS[config.hidden_act],
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
        "use_cache": True,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if config.left_to_right:
        values["is_decoder"] = True
    if labels is None and num_labels is not None:
        labels = [f"{_NO_LABEL}{i}" for i in range(num_labels)]
    if labels is not None:
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
        values["classifier_dropout"] = CLASSIFIER_DROPOUT
    if architecture == "BertForSequenceClassification":
        values["problem_type"] = (
            "regression" if is_regression else "single_label_classification"
        )
    return values


def dataclass_fields(config: BertConfig) -> dict[str, Any]:
    """All fields of a config, those that its file leaves out too."""
    return {key: getattr(config, key) for key in _SAME_FIELDS}


def write(
    folder: str, weights: Weights, config: BertConfig, values: Mapping[str, Any]
) -> None:
    """Writes config.json and model.safetensors.

    Args:
        folder: an existing folder.
        weights: the weights; what the architecture has no place for is left out.
        config: their config.
        values: what config.json says, of `to_config`.
    """
    safetensors = import_safetensors()
    (name,) = values["architectures"]
    architecture = ARCHITECTURES[name]
    rows = list(names.encoder_names(config))
    if architecture.pooler:
        rows += names.POOLER
    prefix = "" if name == "BertModel" else names.HUGGING_FACE_ENCODER
    stored: dict[str, Any] = {}
    for row in rows:
        stored[prefix + row.hugging_face] = _serialized(row, weights)
    for head in architecture.heads:
        for row in names.HEADS[head]:
            stored[row.hugging_face] = _serialized(row, weights)
    files.write_atomically(
        os.path.join(folder, CONFIG_NAME), json.dumps(values, indent=2) + "\n"
    )
    path = os.path.join(folder, WEIGHTS_NAME)
    # transformers asks for the framework that a file was written by.
    safetensors.serialize_file(stored, path, metadata={"format": "pt"})


def _serialized(row: names.Name, weights: Weights) -> dict[str, Any]:
    array = weights[row.original]
    array = array.T if row.hugging_face_transposes else array
    return {
        "dtype": "float32",
        "shape": list(array.shape),
        "data": np.ascontiguousarray(array, "<f4").tobytes(),
    }
