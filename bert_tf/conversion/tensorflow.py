"""TensorFlow checkpoints: the original's TF1 releases, Model Garden's, and our runs'.

All have the same file format, and are distinguished by their keys:

- ours: a `tf.train.Checkpoint` whose `weights` are a dictionary of the original's
  names (see `bert_tf.training.checkpoints`);
- the original's, whose keys are the names themselves. As in the original, tensors that
  are not BERT's weights are left out: an optimizer's (`adam_m`, `global_step`, a loss
  scale), and, with a line in the log, those of other programs (`lamb_m`, moving
  averages, a CRF). ELECTRA's names are converted (see `names`);
- Model Garden's, a `tf.train.Checkpoint` of Keras layers (see `model_garden`).
"""

import dataclasses
import functools
import itertools
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from absl import logging

from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError, first_line
from bert_tf.base.options import no_checkpoint
from bert_tf.conversion import names
from bert_tf.conversion.weights import Tensor, Weights, listed

RELEASED_PREFIX = "bert_model.ckpt"
# Includes the prefixes of ALBERT's and ELECTRA's releases.
RELEASED_PREFIXES = (
    RELEASED_PREFIX,
    "model.ckpt-best",
    *("electra_small", "electra_base", "electra_large"),
)

_Shape = tuple[int, ...]

_TABLES = ("word", "token_type", "position")

_OUR_PREFIX = "weights/"
_GLOB = re.compile(r"[\[\\]")  # `*` and `?` match themselves
KEY_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"  # of a variable in `tf.train.Checkpoint`
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # objects and their variables
_OUR_STEP = "progress/step" + KEY_SUFFIX
# Moments of Adam and LAMB, and scalars such as steps and loss scales.
_OPTIMIZERS_OWN = re.compile(
    r".*/(adam_m|adam_v|Adam|Adam_1|LAMB|LAMB_1)|(.*/)?global_step|beta[12]_power"
    r"|.*good_steps|.*loss_scale|.*bad_steps"
)


class DamagedCheckpointError(InputError):
    """The checkpoint is damaged; the message names the part and the reason."""


class CheckpointReader:
    """A reader of one checkpoint.

    TensorFlow's reader checks the bytes of every tensor, and of the index itself,
    against the CRC-32C in the index.
    """

    def __init__(self, prefix: str) -> None:
        import tensorflow as tf

        self._prefix = prefix
        # TensorFlow's reader turns some of its errors into Python's: for missing bytes,
        # IndexError.
        of_python = (RuntimeError, ValueError, LookupError, MemoryError)
        self._errors = (tf.errors.OpError, *of_python)
        readable, self._link = _without_glob(prefix)
        try:
            self._reader = tf.train.load_checkpoint(readable)
            shapes = self._reader.get_variable_to_shape_map()
            self.dtypes = self._reader.get_variable_to_dtype_map()
        except self._errors as error:
            part = os.path.basename(prefix) + ".index"
            raise self._damage(part, error) from error
        self.shapes = {key: tuple(shape) for key, shape in shapes.items()}

    def read(self, key: str) -> np.ndarray:
        """Reads one tensor; raises InputError if the file is damaged."""
        try:
            return self._reader.get_tensor(key)
        except self._errors as error:
            raise self._damage(shown_key(key), error) from error

    def weight(self, key: str) -> np.ndarray:
        """Reads a weight as float32, of whatever type it is in the file."""
        return self.read(key).astype(np.float32, copy=False)

    def _damage(self, part: str, error: Exception) -> DamagedCheckpointError:
        reason = first_line(error).rstrip(".: ")
        if "hecksum" in str(error):
            reason = "its bytes do not match their checksum"
        return DamagedCheckpointError(
            f"{self._prefix} is damaged: {part} cannot be read: {reason}"
        )


def is_glob(path: str) -> bool:
    """Whether TensorFlow would read a path as a glob that does not match itself."""
    return bool(_GLOB.search(path))


def _without_glob(prefix: str) -> tuple[str, Any]:
    """Returns a prefix that TensorFlow can read, and an object to keep meanwhile."""
    # TensorFlow reads a name as a glob, which `run [1]` does not match; a link to the
    # folder avoids this.
    folder, name = os.path.split(prefix)
    if not is_glob(prefix):
        return prefix, None
    if files.is_remote(prefix) or is_glob(name):
        raise InputError(
            f"{prefix}: TensorFlow cannot read a checkpoint with [ or \\ in its name."
            " Rename it."
        )
    link = tempfile.TemporaryDirectory(prefix="bert_tf-")
    os.symlink(os.path.abspath(folder), os.path.join(link.name, "folder"))
    return os.path.join(link.name, "folder", name), link


def find_checkpoint(path: str) -> str:
    """Returns the checkpoint prefix at a path."""
    import tensorflow as tf

    if files.is_folder(path):
        state = os.path.join(path, "checkpoint")
        reason = "names a checkpoint that is not there"
        try:
            named = tf.train.get_checkpoint_state(path)
        except ValueError as error:
            named, reason = None, f"is damaged: {first_line(error)}"
        if named and files.exists(named.model_checkpoint_path + ".index"):
            return named.model_checkpoint_path
        for prefix in RELEASED_PREFIXES:
            released = os.path.join(path, prefix)
            if files.exists(released + ".index"):
                return released
        if files.exists(state) and not files.is_folder(state):
            raise InputError(
                f"{state} {reason}. Give a checkpoint's prefix, such as"
                f" {os.path.join(path, 'model.ckpt-1000')}."
            )
        raise InputError(f"{path}: no checkpoint in this folder.")
    prefix = path
    for ending in (".index", ".meta", ".data-00000-of-00001"):
        prefix = prefix.removesuffix(ending)
    if not files.exists(prefix + ".index"):
        raise InputError(no_checkpoint(prefix))
    return prefix


def is_of_a_run(prefix: str) -> bool:
    """Whether a run of this package wrote a checkpoint."""
    return any(key.startswith(_OUR_PREFIX) for key in CheckpointReader(prefix).shapes)


def is_of_model_garden(prefix: str) -> bool:
    """Whether Model Garden wrote a checkpoint."""
    return bool(_keys_of_model_garden(CheckpointReader(prefix).shapes))


def config_of_model_garden(path: str, config: BertConfig | None) -> BertConfig | None:
    """Returns the config of a Model Garden checkpoint, with what its file lacks."""
    shapes = CheckpointReader(find_checkpoint(path)).shapes
    if config and addon("model_garden").masked_lm_is_linear(_shown_shapes(shapes)):
        return dataclasses.replace(config, masked_lm_hidden_act="linear")
    return config


def read_weights(path: str) -> Weights:
    """Reads the weights of a checkpoint."""
    prefix = find_checkpoint(path)
    reader = CheckpointReader(prefix)
    shapes = reader.shapes
    ours = {
        shown_key(key).removeprefix(_OUR_PREFIX): key
        for key in shapes
        if key.startswith(_OUR_PREFIX)
    }
    if not ours and (of_garden := _keys_of_model_garden(shapes)):
        return _weights_of_model_garden(prefix, reader, of_garden)
    keys = ours
    if not ours:
        is_electra = _is_of_electra(shapes)
        keys = {
            names.name_of_electra(key) if is_electra else key: key
            for key in shapes
            if not _OPTIMIZERS_OWN.fullmatch(key)
        }
        # Below another tensor, or of an unknown head.
        foreign = [
            name
            for name in keys
            if os.path.dirname(name) in keys
            or not (names.is_known(name) or name.startswith("bert/"))
        ]
        for name in foreign:
            del keys[name]
        if foreign:
            logging.info(
                "%s: %d tensors are not BERT's weights and are not read: %s.",
                *(prefix, len(foreign), listed(sorted(foreign))),
            )
    tensors = {
        name: Tensor(shapes[key], functools.partial(reader.weight, key))
        for name, key in keys.items()
    }
    return Weights(prefix, tensors)


def _shown_shapes(shapes: Mapping[str, _Shape]) -> dict[str, _Shape]:
    """Returns the shapes of Keras' variables by their unescaped keys."""
    return {
        shown_key(k): shape for k, shape in shapes.items() if k.endswith(KEY_SUFFIX)
    }


def _keys_of_model_garden(shapes: Mapping[str, _Shape]) -> dict[str, str]:
    """Returns the keys of BERT's weights by name; {} if none is Model Garden's."""
    found = addon("model_garden").keys_by_name(_shown_shapes(shapes))
    keys = {shown_key(key): key for key in shapes}
    return {name: keys[shown] for name, shown in found.items()}


def _weights_of_model_garden(
    prefix: str, reader: CheckpointReader, keys: dict[str, str]
) -> Weights:
    left = reader.shapes.keys() - keys.values() - {_OBJECT_GRAPH}
    if left:
        logging.info("%s: %d tensors are no weights of BERT's.", prefix, len(left))

    def tensor(name: str, key: str) -> Tensor:
        shape, arrange = addon("model_garden").arranged(name, reader.shapes[key])
        return Tensor(shape, lambda: arrange(reader.weight(key)))

    return Weights(prefix, {name: tensor(name, key) for name, key in keys.items()})


def _is_of_electra(keys: Iterable[str]) -> bool:
    return any(key.startswith("electra/") for key in keys)


def config_of_electra(path: str, weights: Weights) -> BertConfig | None:
    """Returns the config of an ELECTRA release, which has no config file; else None."""
    # As in ELECTRA's code, the head size is 64, and GELU is exact.
    if not _is_of_electra(CheckpointReader(find_checkpoint(path)).shapes):
        return None
    layer = "bert/encoder/layer_{}/intermediate/dense/kernel"
    tables = [f"bert/embeddings/{t}_embeddings" for t in _TABLES]
    if not {layer.format(0), *tables} <= weights.keys():
        return None
    numbers = itertools.takewhile(
        lambda number: layer.format(number) in weights, itertools.count()
    )
    (vocab_size, width), (types, _), (positions, _) = (
        weights.shapes[table] for table in tables
    )
    hidden_size, intermediate_size = weights.shapes[layer.format(0)]
    return BertConfig(
        vocab_size=vocab_size,
        embedding_size=None if width == hidden_size else width,
        hidden_size=hidden_size,
        num_hidden_layers=len([*numbers]),
        num_attention_heads=max(1, hidden_size // 64),
        intermediate_size=intermediate_size,
        hidden_act="gelu_erf",
        max_position_embeddings=positions,
        type_vocab_size=types,
    )


def step_of(prefix: str) -> int | None:
    """Returns the training steps that a checkpoint records, or None."""
    reader = CheckpointReader(prefix)
    for key in (_OUR_STEP, "global_step"):
        if reader.shapes.get(key) == ():
            return int(reader.read(key))
    return None


def write(prefix: str, weights: Weights, *, as_electras: bool = False) -> None:
    """Writes a checkpoint that TensorFlow 1's Saver, and so the original, can read."""
    import tensorflow as tf

    ordered = sorted(weights)
    # The operation that Saver runs; it takes all tensors at once. Identity copies a
    # tensor into TensorFlow's memory, so that the array is dropped before the next one
    # is read.
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=[
            names.electra_name(name) if as_electras else name for name in ordered
        ],
        shape_and_slices=[""] * len(ordered),
        tensors=[tf.identity(tf.constant(weights[name])) for name in ordered],
    )


def shown_key(key: str) -> str:
    """Returns one of our keys unescaped: `.S` stands for a slash, `..` for a dot."""
    escaped = key.removesuffix(KEY_SUFFIX)
    return re.sub(r"\.(.)", lambda match: "/" if match[1] == "S" else ".", escaped)
