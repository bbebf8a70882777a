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
from collections.abc import Collection, Mapping
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
_LAST_STATE = {"method": "forward", "method_output_name": "last_hidden_state"}
_OF_OTHERS = (
    *("tokenizer_name_or_path", "tokenizer_args", "config_args"),
    *("processing_kwargs", "processor_kwargs", "config_kwargs"),
)
_ALLOWED: Mapping[str, Mapping[str, Collection[Any]]] = {
    "Transformer": {
        "transformer_task": (None, "feature-extraction"),
        "module_output_name": (None, "token_embeddings"),
        "modality_config": (None, {"text": _LAST_STATE}),
        **dict.fromkeys(_OF_OTHERS, (None, "", {})),
    },
    "Pooling": {"pooling_mode": [*_POOLING_MODES.values()]},
    "Normalize": {"module_input_name": (None, "sentence_embedding")},
}


def with_modules(reading: Reading, folder: str) -> Reading:
    """Adds a folder's settings; logs a warning if its vectors are not computed."""
    path, encoder = os.path.join(folder, MODULES_NAME), model_folder(folder)
    values, config, tokenizer = (
        _object_in(os.path.join(encoder, name))
        for name in (SENTENCES_NAME, CONFIG_NAME, TOKENIZER_CONFIG_NAME)
    )
    length = values.get("max_seq_length")
    if not isinstance(length, int | None):
        raise InputError(f"{encoder}: `max_seq_length` must be a number.")
    length = length or tokenizer.get("model_max_length", tokenizer.get("max_len"))
    positions = config.get("max_position_embeddings", 512)
    length = min((n for n in (length, positions) if isinstance(n, int)), default=None)
    length = reading.max_seq_length or length
    reading = dataclasses.replace(
        reading, max_seq_length=length, pooling=None, normalize=None
    )
    kinds, pooling, others = [], None, []
    for module in files.read_json(path):
        module = module if isinstance(module, dict) else {}
        kind, name = str(module.get("type")), CONFIG_NAME
        if kind.startswith("sentence_transformers."):
            kind = kind.rpartition(".")[2]
        if kind in _ENCODERS:
            kind, name = "Transformer", SENTENCES_NAME
        if kind != "Dropout":  # which does nothing after training
            kinds.append(kind)
        place = os.path.join(files.inside(folder, str(module.get("path")), path), name)
        settings = _object_in(place)
        if kind == "Pooling":
            pooling = settings["pooling_mode"] = _pooling_in(settings)
        for key, allowed in _ALLOWED.get(kind, {}).items():
            if settings.get(key) not in allowed:
                others.append(f"{place} sets {key}={json.dumps(settings[key])}")
    if kinds == ["Transformer"]:
        return reading  # of a model of another kind
    if kinds[:2] != ["Transformer", "Pooling"] or {*kinds[2:]} - {"Normalize"}:
        others.insert(0, f"{path} has {', '.join(kinds)}")
    whole = os.path.join(folder, _WHOLE_NAME)
    values = _object_in(whole)
    name, prompts = str(values.get("default_prompt_name")), values.get("prompts")
    if isinstance(prompts, dict) and prompts.get(name):
        others.append(f"{whole} sets default_prompt_name={name!r}, before each text")
    size = values.get("truncate_dim")
    width = config.get("hidden_size", config.get("dim", 768))
    if type(size) is type(width) is int and size < width:
        others.append(f"{whole} sets truncate_dim={size}")
    if others:
        logging.warning("Not computed here: %s.", others[0])
        return dataclasses.replace(reading, unknown_vectors=others[0])
    normalizes = "Normalize" in kinds
    return dataclasses.replace(reading, pooling=pooling, normalize=normalizes)


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
