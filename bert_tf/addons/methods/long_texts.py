"""Checkpoints for longer texts: more positions, a window, and global tokens.

A longer model begins as Longformer does (Beltagy et al. 2020, section 5): the rows of
the position table are repeated, and the projections of the global tokens are copies of
the others.
"""

import dataclasses
import functools
import re

import numpy as np
from absl import logging

from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.source import Source
from bert_tf.conversion.weights import Tensor, Weights

_POSITIONS = names.EMBEDDINGS[2].original
_GLOBAL = "_global/"
_PROJECTION = re.compile(r"(bert/.*/self/(?:query|key|value))/(kernel|bias)")


def lengthened(source: Source, config: BertConfig) -> Source:
    """Returns a checkpoint for a config with more positions or local attention.

    Raises:
        InputError: the config has fewer positions.
    """
    tensors = dict(source.weights.tensors)
    rows, width = tensors[_POSITIONS].shape
    wanted = config.max_position_embeddings
    if wanted < rows:
        raise InputError(
            f"`max_position_embeddings={wanted}` must not be less than the {rows} of"
            f" {source.path}."
        )
    if wanted > rows:
        repeated = functools.partial(_repeated, tensors[_POSITIONS], wanted)
        tensors[_POSITIONS] = Tensor((wanted, width), repeated)
        logging.info(
            "Positions: the %d rows of %s are repeated, up to %d.",
            *(rows, source.path, wanted),
        )
    has_global = names.has_global(tensors)
    if has_global and not config.global_tokens:
        tensors = {name: x for name, x in tensors.items() if _GLOBAL not in name}
    elif config.global_tokens and not has_global:
        for name, tensor in source.weights.tensors.items():
            if match := _PROJECTION.fullmatch(name):
                tensors[f"{match[1]}{_GLOBAL}{match[2]}"] = tensor
        logging.info("Projections of global tokens: copies of the others.")
    fields = ("max_position_embeddings", "attention_window", "global_tokens")
    changed = {name: getattr(config, name) for name in fields}
    own = source.config and dataclasses.replace(source.config, **changed)
    weights = Weights(source.weights.path, tensors)
    return dataclasses.replace(source, weights=weights, config=own)


def _repeated(table: Tensor, num_rows: int) -> np.ndarray:
    return np.resize(table.read(), (num_rows, table.shape[1]))
