"""Longformer in transformers (Beltagy et al. 2020): a BERT with local attention.

Its window counts both sides. Positions begin after the padding's id, so that its table
has one row more. Its classifier has the pooler's layer in the head, its masked LM is
always of the exact GELU, and every layer has the projections of global tokens.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion.huggingface import named_architecture
from bert_tf.conversion.weights import Tensor

_CLASSIFIER = "ForSequenceClassification"
_MASKED_LM = "ForMaskedLM"
_CLASSES = (
    *("Model", _MASKED_LM, _CLASSIFIER),
    *("ForTokenClassification", "ForQuestionAnswering"),
)
_POSITIONS = "embeddings.position_embeddings.weight"
_PROJECTIONS = tuple(f".self.{part}." for part in ("query", "key", "value"))

# Its tensors' names, and BERT's; those of the classifier, in its class alone.
_NAMES = (
    ("longformer.", "bert."),
    ("lm_head.dense.", "cls.predictions.transform.dense."),
    ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("lm_head.decoder.", "cls.predictions.decoder."),
    ("lm_head.bias", "cls.predictions.bias"),
)
_OF_CLASSIFIER = (
    ("classifier.dense.", "bert.pooler.dense."),
    ("classifier.out_proj.", "classifier."),
)


def as_bert(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns Longformer's settings as BERT's. InputError: windows that differ."""
    kind = (named_architecture(values) or "LongformerModel").removeprefix("Longformer")
    windows = values.get("attention_window", 512)
    first, *others = windows if isinstance(windows, list) and windows else [windows]
    is_even = type(first) is int and first > 0 and first % 2 == 0
    if not is_even or any(one != first for one in others):
        raise InputError(
            f"{path}: `attention_window` must be the same even number in all layers."
            f" Received: {windows}."
        )
    if kind not in _CLASSES:
        raise InputError(
            f"{path}: of Longformer's classes {', '.join(_CLASSES)} are read. Received:"
            f" {kind}."
        )
    is_exact = values.get("hidden_act", "gelu") in ("gelu", "gelu_python")
    sizes = {"max_position_embeddings": 512, "pad_token_id": 1}
    positions, padding = (values.get(name, size) for name, size in sizes.items())
    if type(positions) is not int or type(padding) is not int:
        raise InputError(
            f"{path}: {' and '.join(f'`{name}`' for name in sizes)} must be integers."
            f" Received: {positions!r} and {padding!r}."
        )
    return {
        **values,
        "architectures": [f"Bert{kind}"],
        "max_position_embeddings": positions - (padding + 1),
        "attention_window": first // 2,
        "global_tokens": values.get(
            "global_tokens", 1 if kind == _CLASSIFIER else None
        ),
        "masked_lm_hidden_act": None if is_exact else "gelu_erf",
    }


def by_berts_names(
    stored: Mapping[str, Tensor], _: BertConfig, values: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Returns Longformer's tensors by BERT's names, without the padding's positions."""
    names: tuple[tuple[str, str], ...] = _NAMES
    if any(name.startswith("classifier.out_proj.") for name in stored):
        names += _OF_CLASSIFIER
    found = {}
    for name, tensor in stored.items():
        for theirs, ours in names:
            if name.startswith(theirs):
                name = ours + name.removeprefix(theirs)
        if name.endswith(_POSITIONS):
            tensor = _without_rows(tensor, values.get("pad_token_id", 1) + 1)
        found[name] = tensor
    return found


def from_bert(
    values: Mapping[str, Any], tensors: Mapping[str, Tensor], config: BertConfig
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns the content of config.json and the tensors of a model of transformers.

    Raises:
        InputError: transformers' Longformer cannot compute the model.
    """
    kind = values["architectures"][0].removeprefix("Bert")
    problem = ""
    if kind not in _CLASSES:
        problem = f"no class like Bert{kind}; leave heads out by `heads`"
    elif kind == _CLASSIFIER and config.global_tokens != 1:
        problem = f"[CLS] alone global, and here are {config.global_tokens} tokens"
    elif kind == _MASKED_LM and values["hidden_act"] != "gelu":
        problem = "the masked LM of exact GELU alone; leave it out by `heads`"
    if problem:
        raise InputError(f"transformers' Longformer has {problem}.")
    names = (*_NAMES, *(_OF_CLASSIFIER if kind == _CLASSIFIER else ()))
    found = {}
    for name, tensor in tensors.items():
        if name.endswith(_POSITIONS):
            tensor = _with_row(tensor)
        for theirs, ours in reversed(names):
            if name.startswith(ours):
                name = name.replace(ours, theirs)
                break
        found[name] = tensor
        for part in _PROJECTIONS:
            if part in name:
                found.setdefault(name.replace(part, f"{part[:-1]}_global."), tensor)
    changed = {
        "architectures": [f"Longformer{kind}"],
        "model_type": "longformer",
        "max_position_embeddings": config.max_position_embeddings + 1,
        "attention_window": [2 * (config.attention_window or 0)]
        * config.num_hidden_layers,
    }
    return {**values, **changed}, found


def _without_rows(table: Tensor, num_rows: int) -> Tensor:
    shape = (table.shape[0] - num_rows, *table.shape[1:])
    return Tensor(shape, lambda: table.read()[num_rows:])


def _with_row(table: Tensor) -> Tensor:
    """Returns a table with a row for the padding, before the others."""
    shape = (table.shape[0] + 1, *table.shape[1:])
    return Tensor(shape, lambda: np.pad(table.read(), [(1, 0), (0, 0)], "edge"))
