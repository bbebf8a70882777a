"""The weights of a KerasHub preset: HDF5 files, read tensor by tensor.

    model.weights.h5    a backbone's; a large one's parts stand in model.weights.json
    task.weights.h5     a head's

In a file a tensor has a place, such as `layers/transformer_encoder_1/
_self_attention_layer/query_dense/vars/0`, but no name of its variable. Which variable
has which place is asked of KerasHub itself, by a model of the same depth and no width:
`small_model`. So no model lies in memory whole.
"""

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.conversion import names
from bert_tf.conversion.weights import Tensor, Weights, fits, listed, shown
from bert_tf.errors import InputError

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
