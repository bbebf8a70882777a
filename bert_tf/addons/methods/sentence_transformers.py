"""The files by which sentence-transformers pools an encoder's outputs to vectors.

They are next to the encoder's, or around its folder:

    modules.json               the modules in order: [{"idx": 0, "name": "0",
                               "path": "", "type": "....Transformer"}, ...]
    sentence_bert_config.json  {"max_seq_length": 128}
    1_Pooling/config.json      {"word_embedding_dimension": 384,
                               "pooling_mode_mean_tokens": true, ...}
"""

import dataclasses
import json
import os

from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.conversion.huggingface import CONFIG_NAME, MODULES_NAME, model_folder
from bert_tf.conversion.reading import Reading
from bert_tf.conversion.source import Source

_LENGTH_NAME = "sentence_bert_config.json"
_POOLING_MODES = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}


def read_modules(folder: str) -> Reading:
    """Reads a folder's settings; logs a warning for modules not computed here."""
    path = os.path.join(folder, MODULES_NAME)
    lengths = os.path.join(model_folder(folder), _LENGTH_NAME)
    values = files.read_object(lengths) if files.exists(lengths) else {}
    length, pooling, normalizes = values.get("max_seq_length"), None, False
    if not isinstance(length, int | None):
        raise InputError(f"{lengths}: `max_seq_length` must be a number.")
    config = os.path.join(model_folder(folder), CONFIG_NAME)
    if length and files.exists(config):
        positions = files.read_object(config).get("max_position_embeddings")
        length = min(length, positions) if isinstance(positions, int) else length
    for module in files.read_json(path)[1:]:
        kind = str(module.get("type") if isinstance(module, dict) else module)
        if kind.endswith(".Normalize"):
            normalizes = True
        elif kind.endswith(".Pooling"):
            place = files.inside(folder, str(module.get("path")), path)
            pooling = _pooling_in(os.path.join(place, CONFIG_NAME))
        else:
            logging.warning("%s: %s is not computed here.", path, kind)
    return Reading(max_seq_length=length, pooling=pooling, normalize=normalizes)


def _pooling_in(path: str) -> str | None:
    values = files.read_object(path) if files.exists(path) else {}
    old = [name for name, value in values.items() if value is True]
    modes = [n.removeprefix("pooling_mode_") for n in old if "_mode_" in n]
    mode = values.get("pooling_mode") or "+".join(modes)
    known = _POOLING_MODES | {ours: ours for ours in _POOLING_MODES.values()}
    if mode and mode not in known:
        logging.warning("%s: pooling of %s is not computed here.", path, mode)
    return known.get(mode)


def write(folder: str, model: Source) -> None:
    """Writes a sentence-transformers folder: the encoder and its pooling."""
    from bert_tf.conversion.export import write_huggingface

    encoder = dataclasses.replace(model, weights=model.weights.with_heads(()))
    write_huggingface(folder, encoder)
    write_modules(folder, model)


def write_modules(folder: str, model: Source) -> None:
    """Writes the files that sentence-transformers needs next to a model."""
    config, reading = model.require_config(), model.reading
    kinds = ["Transformer", "Pooling", *["Normalize"] * bool(reading.normalize)]
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{kind}" if number else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
    modes = {
        f"pooling_mode_{theirs}": ours == (reading.pooling or "mean")
        for theirs, ours in _POOLING_MODES.items()
    }
    length = reading.length(config.max_position_embeddings)
    for name, content in (
        (_LENGTH_NAME, {"max_seq_length": length}),
        (
            "1_Pooling/config.json",
            {"word_embedding_dimension": config.hidden_size, **modes},
        ),
        (MODULES_NAME, modules),
    ):
        path = os.path.join(folder, name)
        files.make_folder(os.path.dirname(path))
        files.write_atomically(path, json.dumps(content, indent=2) + "\n")
