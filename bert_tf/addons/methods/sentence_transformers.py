"""The files by which sentence-transformers pools an encoder's outputs to vectors.

They are next to the encoder's, or around its folder:

    modules.json               the modules in order: [{"idx": 0, "name": "0",
                               "path": "", "type": "....Transformer"}, ...]
    config_sentence_transformers.json
                               {"prompts": {...}, "default_prompt_name": null, ...}
    sentence_bert_config.json  {"max_seq_length": 128, "do_lower_case": false}
    1_Pooling/config.json      {"word_embedding_dimension": 384,
                               "pooling_mode_mean_tokens": true, ...}

Without "max_seq_length" the tokenizer's model_max_length counts. A folder with another
module, such as Dense, or another setting that changes vectors has an encoder that can
be used, and no vectors: `Reading.of_vectors`.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.conversion.huggingface import CONFIG_NAME, MODULES_NAME, model_folder
from bert_tf.conversion.reading import Reading
from bert_tf.conversion.source import Source
from bert_tf.conversion.tokenizer_files import SENTENCES_NAME, TOKENIZER_CONFIG_NAME

_WHOLE_NAME = "config_sentence_transformers.json"
_POOLING_MODES = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}

# The first module, by its names in all versions.
_ENCODERS = ("Transformer", "BERT", "DistilBERT")
# Settings that change vectors -> the values that do not, by module. Others cannot
# matter: they are for training, for the similarity of vectors, for images, for
# `encode_query` and `encode_document` alone, or, as include_prompt, for prompts.
_NONE: Sequence[Any] = (None, "", {})
_LAST_STATE = {"method": "forward", "method_output_name": "last_hidden_state"}
_ALLOWED: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "Transformer": {
        "transformer_task": (None, "feature-extraction"),
        "module_output_name": (None, "token_embeddings"),
        "modality_config": (None, {"text": _LAST_STATE}),
        **dict.fromkeys(("tokenizer_name_or_path", "processing_kwargs"), _NONE),
        **dict.fromkeys(("tokenizer_args", "processor_kwargs"), _NONE),
        **dict.fromkeys(("config_args", "config_kwargs"), _NONE),
    },
    "Normalize": {"module_input_name": (None, "sentence_embedding")},
}


def read_modules(folder: str) -> Reading:
    """Reads a folder's settings; logs a warning if its vectors are not computed."""
    path, encoder = os.path.join(folder, MODULES_NAME), model_folder(folder)
    lengths = os.path.join(encoder, SENTENCES_NAME)
    values, config, tokenizer = (
        _object_in(os.path.join(encoder, name))
        for name in (SENTENCES_NAME, CONFIG_NAME, TOKENIZER_CONFIG_NAME)
    )
    length = values.get("max_seq_length")
    if not isinstance(length, int | None):
        raise InputError(f"{lengths}: `max_seq_length` must be a number.")
    length = length or tokenizer.get("model_max_length", tokenizer.get("max_len"))
    positions = config.get("max_position_embeddings", 512)
    length = min((n for n in (length, positions) if isinstance(n, int)), default=None)
    kinds, pooling, others = [], None, []
    for module in files.read_json(path):
        module = module if isinstance(module, dict) else {}
        kind = str(module.get("type"))
        if kind.startswith("sentence_transformers."):
            kind = kind.rpartition(".")[2]
        if kind != "Dropout":  # which does nothing after training
            kinds.append(kind)
        place = files.inside(folder, str(module.get("path")), path)
        file = SENTENCES_NAME if kind in _ENCODERS else CONFIG_NAME
        place = os.path.join(place, file)
        settings = _object_in(place)
        for key, allowed in _ALLOWED.get(kind, {}).items():
            if settings.get(key) not in allowed:
                others.append(f"{place} sets {key}={json.dumps(settings[key])}")
        if kind == "Pooling":
            pooling = _pooling_in(settings)
            if pooling not in _POOLING_MODES.values():
                others.append(f"{place}: pooling of {pooling}")
    first = next((kind for kind in kinds[:1] if kind in _ENCODERS), "")
    if kinds == [first]:
        return Reading(max_seq_length=length)  # a model of another kind
    if kinds[:2] != [first, "Pooling"] or {*kinds[2:]} - {"Normalize"}:
        others.insert(0, f"{path} has {', '.join(kinds)}")
    whole = os.path.join(folder, _WHOLE_NAME)
    values, width = _object_in(whole), config.get("hidden_size", config.get("dim", 768))
    name, prompts = values.get("default_prompt_name"), values.get("prompts")
    if name is not None and isinstance(prompts, dict) and prompts.get(str(name)):
        others.append(f"{whole}: default_prompt_name={name!r}, before each text")
    size = values.get("truncate_dim")
    if size is not None and not (type(size) is type(width) is int and size >= width):
        others.append(f"{whole} sets truncate_dim={size!r}")
    if others:
        logging.warning("Not computed here: %s.", others[0])
        return Reading(max_seq_length=length, unknown_vectors=others[0])
    normalizes = "Normalize" in kinds
    return Reading(max_seq_length=length, pooling=pooling, normalize=normalizes)


def _object_in(path: str) -> dict[str, Any]:
    return files.read_object(path) if files.exists(path) else {}


def _pooling_in(values: Mapping[str, Any]) -> Any:
    """Returns a pooling by its name here, or else by its own."""
    mode = values.get("pooling_mode")
    if mode is None:
        modes = [n for n, is_on in values.items() if "_mode_" in n and is_on]
        mode = "+".join(n.removeprefix("pooling_mode_") for n in modes) or "mean"
    if isinstance(mode, list) and len(mode) == 1:
        mode = mode[0]
    return _POOLING_MODES.get(str(mode), mode)


def write(folder: str, model: Source) -> None:
    """Writes a sentence-transformers folder: the encoder and its pooling."""
    from bert_tf.conversion.export import write_huggingface

    encoder = dataclasses.replace(model, weights=model.weights.with_heads(()))
    write_huggingface(folder, encoder)
    write_modules(folder, model)


def write_modules(folder: str, model: Source) -> None:
    """Writes the files that sentence-transformers needs next to a model."""
    config, reading = model.require_config(), model.reading
    reading.of_vectors()
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
        (SENTENCES_NAME, {"max_seq_length": length}),
        (
            "1_Pooling/config.json",
            {"word_embedding_dimension": config.hidden_size, **modes},
        ),
        (MODULES_NAME, modules),
    ):
        path = os.path.join(folder, name)
        files.make_folder(os.path.dirname(path))
        files.write_atomically(path, json.dumps(content, indent=2) + "\n")
