"""Weights from a checkpoint into a model, by the original's variable names.

Two layouts are read, and told apart by their keys:

- ours: a `tf.train.Checkpoint` whose `weights` are a dictionary of the original's names
  (see `bert_tf.training.checkpoints`);
- the original's TF1 releases, whose keys are those names themselves; `adam_m`, `adam_v`
  and `global_step` are left out.
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.modeling.names import weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer

CONFIG_NAME = "bert_config.json"
VOCAB_NAME = "vocab.txt"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"
_RELEASED_PREFIX = "bert_model.ckpt"

_OUR_PREFIX = "weights/"
_OUR_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def find_checkpoint(path: str) -> str:
    """The prefix of the checkpoint that `path` means.

    Args:
        path: a folder (its latest checkpoint, or bert_model.ckpt in it), a prefix, or
            one of the checkpoint's own files.

    Raises:
        InputError: there is no checkpoint.
    """
    if files.is_folder(path):
        try:
            latest = tf.train.latest_checkpoint(path)
        except ValueError as error:
            raise InputError(
                f"{os.path.join(path, 'checkpoint')} is damaged:"
                f" {str(error).splitlines()[0]} Give a checkpoint's prefix, such as"
                f" {os.path.join(path, 'model.ckpt-1000')}."
            ) from error
        if latest:
            return latest
        released = os.path.join(path, _RELEASED_PREFIX)
        if files.exists(released + ".index"):
            return released
        raise InputError(
            f"{path}: no checkpoint in this folder (neither a run's `checkpoint` file"
            f" nor {_RELEASED_PREFIX}.index)."
        )
    prefix = path
    for ending in (".index", ".meta", ".data-00000-of-00001"):
        prefix = prefix.removesuffix(ending)
    if not files.exists(prefix + ".index"):
        raise InputError(
            f"No checkpoint {path}: {prefix}.index is missing. Give a folder, or the"
            " part of the name before .index."
        )
    return prefix


class CheckpointWeights(Mapping[str, np.ndarray]):
    """The weights in a checkpoint by the original's names; each is read when asked for.

    Args:
        path: as for `find_checkpoint`.

    Raises:
        InputError: there is no checkpoint, or it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.prefix = find_checkpoint(path)
        try:
            self._reader = tf.train.load_checkpoint(self.prefix)
            shapes = self._reader.get_variable_to_shape_map()
        except (tf.errors.OpError, RuntimeError) as error:
            raise InputError(
                f"{self.prefix}: not a readable checkpoint:"
                f" {str(error).splitlines()[0]}"
            ) from error
        ours = [key for key in shapes if key.startswith(_OUR_PREFIX)]
        if ours:
            self._keys = {_name_of(key): key for key in ours}
        else:
            self._keys = {
                key: key
                for key in shapes
                if not key.endswith(("/adam_m", "/adam_v")) and key != "global_step"
            }
        self.shapes = {name: tuple(shapes[key]) for name, key in self._keys.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._reader.get_tensor(self._keys[name])
        except tf.errors.OpError as error:
            raise InputError(
                f"{self.prefix}: {name} cannot be read: {str(error).splitlines()[0]}"
            ) from error

    def __iter__(self):
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _name_of(key: str) -> str:
    """The original's name in a key of ours: `.S` stands for a slash, `..` for a dot."""
    escaped = key.removeprefix(_OUR_PREFIX).removesuffix(_OUR_SUFFIX)
    return re.sub(r"\.(.)", lambda match: "/" if match[1] == "S" else ".", escaped)


def load_weights(model: keras.Model, path: str) -> list[str]:
    """Gives a model the weights of a checkpoint.

    Args:
        model: a model of `bert_tf.modeling`.
        path: as for `find_checkpoint`.

    Returns:
        The names of the model's weights that the checkpoint does not have: heads, which
        keep their initial values. They are logged in one line.

    Raises:
        InputError: no readable checkpoint, a shape differs, or a weight of the encoder
            is missing or left over. Nothing is assigned then.
    """
    weights = CheckpointWeights(path)
    variables = weights_by_name(model)
    wrong = [
        f"{name} is {list(weights.shapes[name])} there, {list(variable.shape)} here"
        for name, variable in variables.items()
        if name in weights.shapes and weights.shapes[name] != tuple(variable.shape)
    ]
    if wrong:
        raise InputError(
            f"{weights.prefix} does not fit the model: {'; '.join(wrong[:3])}"
            + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
            + ". Use the bert_config.json that belongs to the checkpoint."
        )
    missing = [name for name in variables if name not in weights]
    # A model without next sentence prediction has no pooler.
    left_over = [
        name
        for name in weights
        if name.startswith("bert/")
        and name not in variables
        and not name.startswith("bert/pooler/")
    ]
    if left_over:
        raise InputError(
            f"{weights.prefix} has {len(left_over)} weights of the encoder that the"
            f" model lacks, {left_over[0]} among them. Use the bert_config.json that"
            " belongs to the checkpoint."
        )
    missing_encoder = [name for name in missing if name.startswith("bert/")]
    if missing_encoder:
        raise InputError(
            f"{weights.prefix} lacks {len(missing_encoder)} weights of the encoder,"
            f" {missing_encoder[0]} among them: a checkpoint of another model?"
        )
    for name, variable in variables.items():
        if name in weights:
            variable.assign(weights[name])
    logging.info(
        "Initialized %d weights from %s.", len(variables) - len(missing), weights.prefix
    )
    if missing:
        logging.info("Not in the checkpoint, so new: %s.", ", ".join(missing))
    return missing


def folder_of(path: str) -> str:
    """The folder that a checkpoint's config and vocabulary lie in."""
    return path if files.is_folder(path) else os.path.dirname(path)


def load_config(path: str) -> BertConfig:
    """The config beside a checkpoint."""
    return BertConfig.from_json_file(os.path.join(folder_of(path), CONFIG_NAME))


def checked_casing(
    init_checkpoint: str | None, vocabulary: Vocabulary, do_lower_case: bool | None
) -> bool:
    """Whether to lower-case: what the user says, or else the checkpoint's folder.

    Args:
        init_checkpoint: what the run starts from, if anything.
        vocabulary: the run's.
        do_lower_case: the user's word; None where there is none.

    Raises:
        InputError: the user's word or the vocabulary contradicts the checkpoint's
            folder: its tokenizer_config.json and vocab.txt, or the name of a release
            (cased_..., uncased_...).
    """
    there = None
    if init_checkpoint:
        folder = folder_of(init_checkpoint)
        vocab_path = os.path.join(folder, VOCAB_NAME)
        if (
            files.exists(vocab_path)
            and Vocabulary.from_file(vocab_path).sha256 != vocabulary.sha256
        ):
            raise InputError(
                f"--vocab_file has other tokens than {vocab_path}, which"
                f" --init_checkpoint={init_checkpoint} was trained with."
            )
        there = casing_of(folder)
    if do_lower_case is None:
        return True if there is None else there
    if there is not None and there != do_lower_case:
        raise InputError(
            f"--do_lower_case={do_lower_case}, but --init_checkpoint={init_checkpoint}"
            f" was trained with {there}."
        )
    return do_lower_case


def casing_of(folder: str) -> bool | None:
    """A checkpoint folder's casing; None where nothing says it."""
    path = os.path.join(folder, TOKENIZER_CONFIG_NAME)
    if files.exists(path):
        try:
            return json.loads(files.read_text(path)).get("do_lower_case")
        except (json.JSONDecodeError, AttributeError) as error:
            raise InputError(f"{path}: must hold one JSON object.") from error
    name = os.path.basename(os.path.normpath(folder)) if folder else ""
    # The releases' names, such as multi_cased_L-12_H-768_A-12; the first multilingual
    # model and the Chinese one are lower-cased and do not say so.
    match = re.fullmatch(
        r"(?:wwm_)?(?:multi_)?(uncased|cased|multilingual|chinese)_L-\d+_H-\d+_A-\d+",
        name,
    )
    return None if match is None else match[1] != "cased"


def load_tokenizer(path: str, **options: bool) -> WordPieceTokenizer:
    """The tokenizer of a checkpoint's folder: its vocab.txt and its casing.

    Args:
        path: a run's output_dir, or a checkpoint in it.
        **options: handed to WordPieceTokenizer; `do_lower_case` where the folder does
            not say it (a TF1 release).
    """
    folder = folder_of(path)
    casing = casing_of(folder)
    if casing is not None:
        options.setdefault("do_lower_case", casing)
    path = os.path.join(folder, VOCAB_NAME)
    vocabulary = Vocabulary.from_file(path)
    vocabulary.require_special_tokens(path)
    return WordPieceTokenizer(vocabulary, **options)


def load_encoder(path: str, **options: Any) -> BertEncoder:
    """The encoder of a checkpoint.

    Args:
        path: a run's output_dir, a released folder, or a checkpoint's prefix.
        **options: handed to BertEncoder, such as `output_hidden_states=True`.
    """
    encoder = BertEncoder(load_config(path), **options)
    load_weights(encoder, path)
    return encoder


def load_pretrainer(path: str) -> BertPretrainer:
    """The model of a pre-training checkpoint, with both heads.

    Raises:
        InputError: as `load_weights`, or the checkpoint has no pre-training heads.
    """
    model = BertPretrainer(load_config(path))
    missing = load_weights(model, path)
    if missing:
        raise InputError(
            f"{path}: no pre-training checkpoint ({missing[0]} is missing)."
        )
    return model


def load_classifier(path: str, num_labels: int | None = None) -> BertClassifier:
    """A classifier from a checkpoint.

    Args:
        path: the output_dir of a fine-tuned classifier, or of a pre-training run.
        num_labels: the number of outputs. Default: the checkpoint's own.

    Raises:
        InputError: as `load_weights`, or `num_labels` is not given and the checkpoint
            has no classifier.
    """
    if num_labels is None:
        shapes = CheckpointWeights(path).shapes
        if "output_weights" not in shapes:
            raise InputError(
                f"{path}: not a classifier's checkpoint; give `num_labels` to start one"
                " from it."
            )
        num_labels = shapes["output_weights"][0]
    model = BertClassifier(load_config(path), num_labels)
    load_weights(model, path)
    return model
