"""KerasHub's presets, read and written."""

import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.config import LAYER_NORM_EPSILON, BertConfig
from bert_tf.conversion import names
from bert_tf.conversion.weights import (
    Tensor,
    Weights,
    check_against_config,
    fits,
    listed,
    shown,
)
from bert_tf.errors import InputError
from bert_tf.text.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary

# KerasHub's handles of presets: their names, and their download.
#
# KerasHub's own `from_preset` takes the files from these packages one by one; here
# they
# are asked for all files of a preset, and keep them in the same cache.


_SCHEMES = ("kaggle://", "hf://", "modelscope://")
# What a preset consists of; a repository may hold more.
_FILES = ["*.json", "*.weights.h5", "assets/tokenizer/*"]


def is_handle(path: str) -> bool:
    """Whether `path` names a preset to be downloaded, rather than a file or folder.

    Handles are kaggle://, hf:// and modelscope:// addresses, and the names that
    KerasHub knows, such as bert_base_en_uncased.
    """
    if path.startswith(_SCHEMES):
        return True
    # The cheap questions first: the last one imports KerasHub.
    if not re.fullmatch(r"[a-z0-9_]+", path) or _is_taken(path):
        return False
    return path in _built_in()


def _is_taken(path: str) -> bool:
    """Whether a folder, a file or a checkpoint of that name is there."""
    return files.exists(path) or files.exists(path + ".index")


def _built_in() -> Mapping[str, Any]:
    """The presets that KerasHub knows by name."""
    import keras_hub

    return keras_hub.models.BertBackbone.presets


def download(handle: str) -> str:
    """Downloads a preset, unless the cache has it."""
    address = _built_in().get(handle, {}).get("kaggle_handle", handle)
    scheme, _, name = address.partition("://")
    try:
        return {
            "kaggle": _from_kaggle,
            "hf": _from_hugging_face,
            "modelscope": _from_model_scope,
        }[scheme](name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{handle}: its download needs the package {error.name}: pip install"
            f" {error.name}."
        ) from error
    except (OSError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{handle} cannot be downloaded: {reason}") from error


def _from_kaggle(name: str) -> str:
    import kagglehub
    from kagglehub import exceptions

    try:
        return kagglehub.model_download(name)
    except (
        exceptions.BackendError,
        exceptions.CredentialError,
        exceptions.NotFoundError,
        exceptions.UnauthenticatedError,
    ) as error:
        raise ValueError(str(error)) from error


def _from_hugging_face(name: str) -> str:
    import huggingface_hub

    return huggingface_hub.snapshot_download(name, allow_patterns=_FILES)


def _from_model_scope(name: str) -> str:
    import modelscope

    return modelscope.snapshot_download(name, allow_patterns=_FILES)


# The weights of a KerasHub preset: HDF5 files, read tensor by tensor.
#
#     model.weights.h5    a backbone's; a large one's parts stand in
#     model.weights.json
#     task.weights.h5     a head's
#
# In a file a tensor has a place, such as `layers/transformer_encoder_1/
# _self_attention_layer/query_dense/vars/0`, but no name of its variable. Which
# variable
# has which place is asked of KerasHub itself, by a model of the same depth and no
# width:
# `small_model`. So no model lies in memory whole.


WEIGHTS_NAME = "model.weights.h5"
INDEX_NAME = "model.weights.json"
TASK_WEIGHTS_NAME = "task.weights.h5"

# KerasHub's setting -> ours.
FIELDS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}

# What h5py raises for a damaged file.
_DAMAGED = (OSError, ValueError, KeyError, RuntimeError)
# In the files, beside weights: an optimizer's state, dropout's seeds.
_NO_WEIGHTS = ("optimizer/", "seed_generator/")


def small_model(config: BertConfig, head: str | None) -> Any:
    """KerasHub's model with a config's layers, whose every size is 1."""
    import keras
    import keras_hub

    kept = ("num_layers", "dropout")
    settings = {
        setting: value if setting in kept else 1
        for setting, value in settings_of(config).items()
    }
    # In the machine's memory: a converter needs no accelerator.
    with keras.device("cpu"):
        backbone = keras_hub.models.BertBackbone(
            **settings, dtype="float32", name="bert_backbone"
        )
        if head == names.MASKED_LM:
            return keras_hub.models.BertMaskedLM(backbone)
        if head == names.CLASSIFIER:
            return keras_hub.models.BertTextClassifier(backbone, num_classes=1)
    return backbone


def settings_of(config: BertConfig) -> dict[str, Any]:
    """The settings of KerasHub's BertBackbone."""
    return {theirs: getattr(config, ours) for theirs, ours in FIELDS.items()}


def read_weights(
    folder: str, config: BertConfig, head: str | None, small: Any
) -> Weights:
    """The weights of a preset by the original's names."""
    places = _places(small)
    stored = _stored(folder, with_head=head is not None)
    found: dict[str, Tensor] = {}
    missing, wrong = [], []
    for row in rows_of(config, head):
        tensor = stored.pop(places[_path(row)], None)
        if tensor is None:
            missing.append(row.original)
        elif not fits(tensor.shape, wanted := _their_shape(row, config)):
            wrong.append(
                f"{row.original} is {shown(tensor.shape)}, not {shown(wanted)}"
            )
        else:
            found[row.original] = _in_our_layout(row, config, tensor)
    problems = [
        f"{what}: {listed(values)}"
        for what, values in (
            ("shapes that are not the config's", wrong),
            ("weights that have no tensor", missing),
            ("tensors that have no place in the model", stored),
        )
        if values
    ]
    if problems:
        raise InputError(
            f"{os.path.join(folder, WEIGHTS_NAME)} does not hold the model that"
            f" config.json describes: {'; '.join(problems)}."
        )
    return Weights(folder, found)


def write_weights(
    folder: str, weights: Weights, config: BertConfig, small: Any
) -> None:
    """Puts a backbone's weights into the file of the small model, tensor by tensor."""
    import h5py

    places = _places(small)
    with h5py.File(os.path.join(folder, WEIGHTS_NAME), "r+") as file:
        for row in rows_of(config, head=None):
            place = places[_path(row)]
            del file[place]
            file[place] = np.reshape(weights[row.original], _their_shape(row, config))


def rows_of(config: BertConfig, head: str | None) -> list[names.Name]:
    """The rows of the table of names that KerasHub's model has."""
    heads = () if head is None else names.HEADS[head]
    return [*names.encoder_names(config), *names.POOLER, *heads]


def _path(row: names.Name) -> str:
    assert row.keras_hub is not None, f"{row.original} is no weight of KerasHub's"
    return row.keras_hub


def _their_shape(row: names.Name, config: BertConfig) -> tuple:
    """The shape of KerasHub's variable: attention's hidden size is split by heads."""
    shape = row.dimensions(config)
    if row.keras_hub_transposes:
        return shape[::-1]
    path = _path(row)
    if "/self_attention_layer/" not in path:
        return shape
    heads = config.num_attention_heads
    split = (heads, config.hidden_size // heads)
    if "/attention_output/" not in path:
        return (*shape[:-1], *split)
    return shape if len(shape) == 1 else (*split, shape[-1])


def _in_our_layout(row: names.Name, config: BertConfig, tensor: Tensor) -> Tensor:
    if row.keras_hub_transposes:
        return Tensor(tensor.shape[::-1], lambda: tensor.read().T)
    shape = row.dimensions(config)
    if None in shape:
        # A classifier's outputs, which only the file counts.
        shape = tensor.shape
    return Tensor(shape, lambda: tensor.read().reshape(shape))


def _places(model: Any) -> dict[str, str]:
    """Where KerasHub's files have each of a model's variables: path -> place.

    Each variable is filled with a number of its own, the model is written, and the
    numbers are found again in the files.
    """
    for number, variable in enumerate(model.weights):
        variable.assign(np.full(variable.shape, number))
    with tempfile.TemporaryDirectory() as folder:
        model.save_to_preset(folder)
        has_head = files.exists(os.path.join(folder, TASK_WEIGHTS_NAME))
        numbers = {
            int(tensor.read().flat[0]): place
            for place, tensor in _stored(folder, with_head=has_head).items()
        }
    return {
        variable.path: numbers[number] for number, variable in enumerate(model.weights)
    }


def _stored(folder: str, with_head: bool) -> dict[str, Tensor]:
    """The tensors of a preset by their places, in KerasHub's layout.

    The places in the head's file have its name before them: a layer of the head may be
    called as one of the backbone.
    """
    stored: dict[str, Tensor] = {}
    for part in _backbone_files(folder):
        stored.update(_stored_in(part))
    if with_head:
        in_head = _stored_in(os.path.join(folder, TASK_WEIGHTS_NAME))
        stored.update(
            {f"{TASK_WEIGHTS_NAME}/{place}": found for place, found in in_head.items()}
        )
    return stored


def _backbone_files(folder: str) -> list[str]:
    """The one file of a backbone's weights, or its parts."""
    single, index = (os.path.join(folder, name) for name in (WEIGHTS_NAME, INDEX_NAME))
    if files.exists(single):
        return [single]
    if not files.exists(index):
        raise InputError(f"{folder}: {WEIGHTS_NAME} is missing.")
    try:
        lists = files.read_json(index)["weight_map"].values()
        parts = {
            os.path.basename(part)
            for names_ in lists
            for part in ([names_] if isinstance(names_, str) else names_)
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{index}: must have a `weight_map`.") from error
    return [os.path.join(folder, part) for part in sorted(parts)]


def _stored_in(path: str) -> dict[str, Tensor]:
    """The tensors of a file by their places, in KerasHub's layout."""
    import h5py
    import ml_dtypes

    if not files.exists(path):
        raise InputError(f"No such file: {path}")
    shapes: dict[str, tuple[int, ...]] = {}
    refused: list[str] = []

    def visit(place: str | bytes, item: Any) -> None:
        # Bytes where a name is no UTF-8, in a damaged file.
        place = str(place)
        if not isinstance(item, h5py.Dataset) or any(
            part in f"{place}/" for part in _NO_WEIGHTS
        ):
            return
        if item.shape is None:
            refused.append(f"{place} is empty")
            return
        shapes[place] = item.shape
        # Such a tensor may lie in any file of this machine.
        if item.external or item.is_virtual:
            refused.append(f"{place} lies outside the file")
        elif item.dtype.kind != "f" and not _is_bfloat16(item):
            refused.append(f"{place} is quantized, {item.dtype}")

    try:
        with h5py.File(path) as file:
            file.visititems(visit)
    except _DAMAGED as error:
        raise _damaged(path, error) from error
    if refused:
        raise InputError(f"{path}: cannot be read: {listed(refused)}.")

    def reading(place: str) -> Callable[[], np.ndarray]:
        def read() -> np.ndarray:
            try:
                with h5py.File(path) as file:
                    item = file[place]
                    array = item[()]
                    if _is_bfloat16(item):
                        array = array.view(ml_dtypes.bfloat16)
                    return array.astype(np.float32, copy=False)
            except _DAMAGED as error:
                raise _damaged(path, error) from error

        return read

    return {place: Tensor(shape, reading(place)) for place, shape in shapes.items()}


def _is_bfloat16(item: Any) -> bool:
    """Whether a dataset holds numbers of 16 bits that HDF5 has no type for."""
    return item.attrs.get("dtype") == "bfloat16"


def _damaged(path: str, error: Exception) -> InputError:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return InputError(f"{path} is damaged or no HDF5 file: {reason}")


# KerasHub presets: a folder as `save_to_preset` writes it, or a handle of one.
#
#     config.json         the backbone's class and settings
#     model.weights.h5    its weights; from 10 GB on in parts, named in
#     model.weights.json
#     metadata.json       versions, and the number of parameters
#     task.json           of a model with a head: its class and settings
#     task.weights.h5     the head's weights
#     tokenizer.json, assets/tokenizer/vocabulary.txt
#
# What the layers compute is asked of KerasHub's layers. Its masked LM has another
# GELU
# and another epsilon than its encoder: they become `masked_lm_hidden_act` and
# `masked_lm_layer_norm_eps`. How the weights are found in their files stands in
# `kerashub_weights`.


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
