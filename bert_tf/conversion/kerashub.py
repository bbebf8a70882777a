"""KerasHub presets, read and written.

A preset is a folder written by `save_to_preset`, or a handle of one:

    config.json         the backbone's class and settings
    model.weights.h5    its weights
    metadata.json       versions, and the number of parameters
    task.json           the class and settings of a model with a head
    task.weights.h5     the head's weights
    tokenizer.json, assets/tokenizer/vocabulary.txt

The HDF5 files are read tensor by tensor, by the places in the table of names. Keras'
own `from_preset` would skip tensors without a layer in config.json, and would mistake
quantized numbers for weights; here both are errors.
"""

import contextlib
import functools
import importlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base import files
from bert_tf.base.config import LAYER_NORM_EPSILON, BertConfig
from bert_tf.base.errors import InputError, first_line
from bert_tf.conversion import names
from bert_tf.conversion.tokenizer_files import TokenizerFiles
from bert_tf.conversion.weights import (
    Tensor,
    Weights,
    fits,
    listed,
    refuse_differences,
    shown,
)
from bert_tf.text.vocabulary import PAD, Vocabulary

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.weights.h5"
METADATA_NAME = "metadata.json"
TASK_NAME = "task.json"
TASK_WEIGHTS_NAME = "task.weights.h5"
TOKENIZER_NAME = "tokenizer.json"
VOCABULARY_NAME = os.path.join("assets", "tokenizer", "vocabulary.txt")

_SCHEMES = ("kaggle://", "hf://", "modelscope://")
# The files of a preset; a repository may have more.
_FILES = ["*.json", "*.weights.h5", "assets/tokenizer/*"]

_BACKBONE = "BertBackbone"
# KerasHub's settings -> ours.
_FIELDS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
# Properties of every BertBackbone, not in its settings.
_COMPUTATION = {
    "hidden_act": "gelu",
    "layer_norm_eps": LAYER_NORM_EPSILON,
    "pooler_hidden_act": "tanh",
    "left_to_right": False,
    "embedding_size": None,
    "num_hidden_groups": None,
    "attention_window": None,
}
# The masked LM head has another GELU and another epsilon than the encoder.
_MASKED_LM_COMPUTATION = {
    "masked_lm_hidden_act": "gelu_erf",
    "masked_lm_layer_norm_eps": 1e-5,
}

# Settings of a BertTokenizer that must equal the original's. strip_accents is not one:
# it defaults to false even for models whose texts had no accents.
_TOKENIZER_FIXED = {
    "split": True,
    "split_on_cjk": True,
    "suffix_indicator": "##",
    "oov_token": "[UNK]",
    "sequence_length": None,
}

# Stored next to weights: optimizer state, dropout seeds.
_NO_WEIGHTS = ("optimizer/", "seed_generator/")


def is_handle(path: str) -> bool:
    """Whether a path names a preset to download, rather than a file or folder."""
    if path.startswith(_SCHEMES):
        return True
    # The cheap checks come first: the last one imports KerasHub.
    return (
        re.fullmatch(r"[a-z0-9_]+", path) is not None
        and not files.exists(path)
        and not files.exists(path + ".index")
        and path in _built_in()
    )


def is_preset_folder(folder: str) -> bool:
    """Returns whether a folder has the files of a KerasHub preset."""
    return files.exists(os.path.join(folder, WEIGHTS_NAME))


def preset_folder(path: str) -> str:
    """Returns a preset's folder; downloads the files of a handle first."""
    return _download(path) if is_handle(path) else path


def _built_in() -> Mapping[str, Any]:
    """Returns the presets that KerasHub knows by name."""
    import keras_hub

    return keras_hub.models.BertBackbone.presets


def _download(handle: str) -> str:
    """Downloads a preset into the cache that `from_preset` also uses."""
    import kagglehub

    address = _built_in().get(handle, {}).get("kaggle_handle", handle)
    scheme, _, name = address.partition("://")
    exceptions = kagglehub.exceptions
    try:
        if scheme == "kaggle":
            return kagglehub.model_download(name)
        package = "huggingface_hub" if scheme == "hf" else "modelscope"
        hub = importlib.import_module(package)
        return hub.snapshot_download(name, allow_patterns=_FILES)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{handle}: its download needs the package {error.name}: pip install"
            f" {error.name}"
        ) from error
    except (
        OSError,
        ValueError,
        exceptions.BackendError,
        exceptions.CredentialError,
        exceptions.NotFoundError,
        exceptions.UnauthenticatedError,
    ) as error:
        raise InputError(f"{handle} cannot be downloaded: {first_line(error)}") from (
            error
        )


def read_model(folder: str) -> tuple[BertConfig, Weights]:
    """Reads a preset's architecture, and the weights of its encoder and its head."""
    path = os.path.join(folder, CONFIG_NAME)
    name, settings = _read_object(path)
    if name != _BACKBONE:
        raise InputError(f"{path}: must be a {_BACKBONE}. Received: {name}.")
    missing = [key for key in _FIELDS if key not in settings]
    if missing:
        raise InputError(f"{path}: lacks {', '.join(missing)}.")
    head = _head_of(folder)
    fields = {ours: settings[theirs] for theirs, ours in _FIELDS.items()}
    fields["attention_probs_dropout_prob"] = fields["hidden_dropout_prob"]
    fields |= _COMPUTATION
    if head == names.MASKED_LM:
        fields |= _MASKED_LM_COMPUTATION
    config = BertConfig.from_dict(fields, path)
    return config, _read_weights(folder, config, head)


def read_tokenizer(folder: str) -> TokenizerFiles:
    """Reads a preset's vocabulary and casing."""
    path = os.path.join(folder, TOKENIZER_NAME)
    if not files.exists(path):
        return TokenizerFiles(None, None, None)
    name, settings = _read_object(path)
    casing = settings.get("lowercase", False)
    if not isinstance(casing, bool):
        raise InputError(
            f"{path}: `lowercase` must be true or false. Received: {casing!r}."
        )
    differences = [
        f"`{key}` is {settings[key]!r}, not {fixed!r}"
        for key, fixed in _TOKENIZER_FIXED.items()
        if settings.get(key, fixed) != fixed
    ]
    if settings.get("strip_accents") and not casing:
        differences.append("`strip_accents` without `lowercase`")
    if settings.get("special_tokens") and settings.get("special_tokens_in_strings"):
        differences.append("`special_tokens` are never split")
    preprocessor = os.path.join(folder, "preprocessor.json")
    if files.exists(preprocessor):
        cut = _read_object(preprocessor)[1].get("truncate", "round_robin")
        if cut != "round_robin":
            differences.append(f"preprocessor.json has `truncate` {cut!r}")
    if not name.endswith("BertTokenizer"):
        differences.insert(0, f"it is a {name}, no BertTokenizer")
    vocabulary_path = os.path.join(folder, VOCABULARY_NAME)
    return TokenizerFiles(
        Vocabulary.from_file(vocabulary_path),
        vocabulary_path,
        casing,
        f"{path}: {'; '.join(differences)}." if differences else None,
    )


def _read_object(path: str) -> tuple[str, dict[str, Any]]:
    """Reads the class and settings of a Keras object from a JSON file."""
    values = files.read_json(path, "file of a KerasHub preset")
    try:
        return values["registered_name"].split(">")[-1], dict(values["config"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        is_theirs = isinstance(values, dict) and "model_type" in values
        hint = " It is a Hugging Face model: download it and give the folder."
        raise InputError(
            f"{path}: must describe an object of KerasHub, by `registered_name` and"
            f" `config`.{hint if is_theirs else ''}"
        ) from error


def _head_of(folder: str) -> str | None:
    path = os.path.join(folder, TASK_NAME)
    if not files.exists(path):
        return None
    name = _read_object(path)[0]
    has_weights = files.exists(os.path.join(folder, TASK_WEIGHTS_NAME))
    heads = {task: head for head, row in names.HEADS.items() for task in row.keras_hub}
    if name not in heads and has_weights:
        raise InputError(
            f"{path}: the head must be one of {', '.join(heads)}. Received: {name}."
        )
    if name in heads and not has_weights:
        raise InputError(
            f"{folder}: {TASK_WEIGHTS_NAME} is missing, the head of {name}."
        )
    return heads.get(name)


def _rows(config: BertConfig, head: str | None) -> dict[str, names.Name]:
    """Returns the weights of KerasHub's model by their places."""
    encoder = (*names.encoder_names(config), *names.POOLER)
    rows = {str(row.keras_hub): row for row in encoder}
    for row in names.head_names(head, config):
        rows[f"{TASK_WEIGHTS_NAME}/{row.keras_hub}"] = row
    return rows


def _read_weights(folder: str, config: BertConfig, head: str | None) -> Weights:
    """Reads a preset's weights by the original's names."""
    path = os.path.join(folder, WEIGHTS_NAME)
    stored = stored_in(path, _NO_WEIGHTS)
    if head is not None:
        in_head = stored_in(os.path.join(folder, TASK_WEIGHTS_NAME), _NO_WEIGHTS)
        stored |= {f"{TASK_WEIGHTS_NAME}/{key}": x for key, x in in_head.items()}
    found: dict[str, Tensor] = {}
    missing, wrong = [], []
    for place, row in _rows(config, head).items():
        tensor = stored.pop(place, None)
        if tensor is None:
            missing.append(row.original)
        elif not fits(tensor.shape, wanted := _their_shape(row, config)):
            wrong.append(
                f"{row.original} is {shown(tensor.shape)}, not {shown(wanted)}"
            )
        else:
            found[row.original] = _in_our_layout(row, config, tensor)
    refuse_differences(
        f"{path} does not hold the model that config.json describes",
        wrong,
        missing,
        stored,
    )
    return Weights(folder, found)


def _their_shape(row: names.Name, config: BertConfig) -> tuple:
    """Returns KerasHub's shape, where attention's hidden size is split by heads."""
    shape = row.dimensions(config)
    if row.keras_hub_transposes:
        return shape[::-1]
    if "/attention/" not in row.original or "/LayerNorm/" in row.original:
        return shape
    heads = config.num_attention_heads
    split = (heads, config.hidden_size // heads)
    if "/attention/self/" in row.original:
        return (*shape[:-1], *split)
    return shape if len(shape) == 1 else (*split, shape[-1])


def _in_our_layout(row: names.Name, config: BertConfig, tensor: Tensor) -> Tensor:
    if row.keras_hub_transposes:
        return Tensor(tensor.shape[::-1], lambda: tensor.read().T)
    shape = row.dimensions(config)
    if None in shape:
        # Only the file shows a classifier's number of outputs.
        shape = tensor.shape
    return Tensor(shape, lambda: tensor.read().reshape(shape))


def write(
    folder: str,
    weights: Weights,
    config: BertConfig,
    vocabulary: Vocabulary | None = None,
    do_lower_case: bool | None = None,
) -> None:
    """Writes the encoder and the pooler as a preset of BertBackbone."""
    # KerasHub writes a model of the same depth with all sizes 1; then the weights are
    # put into its file one by one, so that the model is never whole in memory.
    _check_can_be_written(weights, config, vocabulary)
    import h5py
    import keras
    import keras_hub

    settings = {theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()}
    kept = {name: settings[name] for name in ("num_layers", "dropout")}
    # Built on the CPU: a conversion needs no accelerator.
    with keras.device("cpu"):
        small = keras_hub.models.BertBackbone(
            **(dict.fromkeys(_FIELDS, 1) | kept), dtype="float32", name="bert_backbone"
        )
    rows = _rows(config, head=None)
    with files.written_locally(folder) as folder:
        small.save_to_preset(folder)
        with h5py.File(os.path.join(folder, WEIGHTS_NAME), "r+") as file:
            for place, row in rows.items():
                del file[place]
                shape = _their_shape(row, config)
                file[place] = np.reshape(weights[row.original], shape)

        parameters = sum(math.prod(row.dimensions(config)) for row in rows.values())
        config_path, metadata_path = (
            os.path.join(folder, name) for name in (CONFIG_NAME, METADATA_NAME)
        )
        described = files.read_json(config_path)
        described["config"] |= settings
        metadata = files.read_json(metadata_path) | {"parameter_count": parameters}
        for path, values in ((config_path, described), (metadata_path, metadata)):
            files.write_atomically(path, json.dumps(values, indent=4) + "\n")
        if vocabulary is not None:
            keras_hub.models.BertTokenizer(
                vocabulary=list(vocabulary),
                lowercase=bool(do_lower_case),
                strip_accents=bool(do_lower_case),
            ).save_to_preset(folder)


def _check_can_be_written(
    weights: Weights, config: BertConfig, vocabulary: Vocabulary | None
) -> None:
    """Raises InputError if a BertBackbone preset cannot hold a model."""
    for field, only in _COMPUTATION.items():
        if getattr(config, field) != only:
            raise InputError(
                f"{weights.path}: KerasHub's BertBackbone computes only"
                f" {field}={only!r}. Received: {getattr(config, field)!r}. Export it"
                " in another format."
            )
    if names.POOLER[0].original not in weights:
        raise InputError(
            f"{weights.path}: KerasHub's BertBackbone has a pooler, and this model has"
            " none. Export it in another format."
        )
    if vocabulary is not None and PAD not in vocabulary:
        raise InputError(
            f"The vocabulary of {weights.path}: KerasHub's BertTokenizer needs {PAD}."
        )


# Keras' weight files (HDF5), read without trusting them.


@contextlib.contextmanager
def opened(path: str) -> Iterator[Any]:
    """Opens the file; raises InputError if it is, or turns out to be, damaged."""
    import h5py

    try:
        with contextlib.ExitStack() as stack:
            # HDF5 alone reads only local files.
            is_remote = files.is_remote(path)
            where = stack.enter_context(files.open_binary(path)) if is_remote else path
            yield stack.enter_context(h5py.File(where))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(
            f"{path} is damaged or no HDF5 file: {first_line(error)}"
        ) from error


def stored_in(path: str, ignored: Sequence[str] = ()) -> dict[str, Tensor]:
    """Returns a file's tensors by place; `ignored` are parts of places."""
    import h5py
    import ml_dtypes

    files.require(path)
    tensors: dict[str, Tensor] = {}
    refused: list[str] = []

    def is_bfloat16(item: Any) -> bool:
        # Keras' mark for bfloat16, which HDF5 does not have.
        return item.attrs.get("dtype") == "bfloat16"

    def read(place: str) -> np.ndarray:
        with opened(path) as file:
            item = file[place]
            array = item[()]
            if is_bfloat16(item):
                array = array.view(ml_dtypes.bfloat16)
            return array.astype(np.float32, copy=False)

    def visit(place: str | bytes, item: Any) -> None:
        place = str(place)  # bytes in a damaged file
        if not isinstance(item, h5py.Dataset) or any(
            part in f"{place}/" for part in ignored
        ):
            return
        if item.shape is None:
            refused.append(f"{place} is empty")
        # Such a tensor could refer to any file on this machine.
        elif item.external or item.is_virtual:
            refused.append(f"{place} is outside the file")
        elif item.dtype.kind != "f" and not is_bfloat16(item):
            refused.append(f"{place} is quantized, {item.dtype}")
        tensors[place] = Tensor(item.shape, functools.partial(read, place))

    with opened(path) as file:
        file.visititems(visit)
    if refused:
        raise InputError(f"{path}: cannot be read: {listed(refused)}.")
    return tensors
