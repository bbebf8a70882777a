"""The TF2 checkpoints of TensorFlow's Model Garden, by the original's names.

A `tf.train.Checkpoint` has as keys the attributes on the way to a variable, so one
weight has several: below `model/`, `encoder/` or `model/encoder/`, an encoder of
networks.BertEncoder has `layer_with_weights-4` where one of networks.BertEncoderV2 has
`_transformer_layers/0`. Arrays differ from the original's where attention's weights
have their heads as a dimension of its own, and in next sentence prediction's kernel,
which is [inputs, outputs].

BertPretrainerV2 has a pooler of next sentence prediction next to the encoder's, which
is not trained; it is the pooler that the original means.
"""

import re
from collections.abc import Callable, Iterable

import numpy as np

_Arrange = Callable[[np.ndarray], np.ndarray]

_NUMBERED = "layer_with_weights-"
# BertEncoder's layers by their numbers, before those of the Transformer.
_FIRST = (
    "_embedding_layer",
    "_position_embedding_layer",
    "_type_embedding_layer",
    "_embedding_norm_layer",
)
_ENCODER = {
    "_embedding_layer/embeddings": "bert/embeddings/word_embeddings",
    "_position_embedding_layer/embeddings": "bert/embeddings/position_embeddings",
    "_type_embedding_layer/embeddings": "bert/embeddings/token_type_embeddings",
    "_embedding_norm_layer/{}": "bert/embeddings/LayerNorm/{}",
    "_pooler_layer/{}": "bert/pooler/dense/{}",
}
_LAYER = {
    "_attention_layer/_query_dense": "attention/self/query",
    "_attention_layer/_key_dense": "attention/self/key",
    "_attention_layer/_value_dense": "attention/self/value",
    "_attention_layer/_output_dense": "attention/output/dense",
    "_attention_layer_norm": "attention/output/LayerNorm",
    "_intermediate_dense": "intermediate/dense",
    "_output_dense": "output/dense",
    "_output_layer_norm": "output/LayerNorm",
}
_HEADS = {
    "masked_lm/embedding_table": "bert/embeddings/word_embeddings",
    "masked_lm/dense/{}": "cls/predictions/transform/dense/{}",
    "masked_lm/layer_norm/{}": "cls/predictions/transform/LayerNorm/{}",
    "masked_lm/output_bias/bias": "cls/predictions/output_bias",
    "next_sentence.pooler_dense/{}": "bert/pooler/dense/{}",
    "classification_heads/0/out_proj/kernel": "cls/seq_relationship/output_weights",
    "classification_heads/0/out_proj/bias": "cls/seq_relationship/output_bias",
}
_VARIABLES = ("kernel", "bias", "gamma", "beta")
_NAMES = {
    key.format(variable): name.format(variable)
    for key, name in {**_ENCODER, **_HEADS}.items()
    for variable in _VARIABLES
}


def keys_by_name(keys: Iterable[str]) -> dict[str, str]:
    """The original's names of BERT's weights, and their keys (without escapes).

    Empty for a checkpoint of something else.
    """
    parts = {key: _parts(key) for key in keys}
    last = max(
        (number for number, _ in parts.values() if number is not None), default=0
    )
    found: dict[str, str] = {}  # by name
    for key, (number, rest) in parts.items():
        name = _name(number, rest, last)
        if name and (name not in found or rest.startswith("next_sentence.")):
            found[name] = key
    return found if "bert/embeddings/LayerNorm/gamma" in found else {}


def _parts(key: str) -> tuple[int | None, str]:
    """A numbered layer's number, and the key below it; else what may be a name."""
    match = re.search(rf"(?:^|/){_NUMBERED}(\d+)/(.*)", key)
    if match:
        return int(match[1]), match[2]
    start = re.search(
        r"(?:^|/)(_|masked_lm/|next_sentence\.|classification_heads/)", key
    )
    return None, key[start.start(1) :] if start else ""


def _name(number: int | None, rest: str, last: int) -> str | None:
    if number is not None:
        if number < len(_FIRST):
            rest = f"{_FIRST[number]}/{rest}"
        elif number == last and rest in ("kernel", "bias"):
            rest = f"_pooler_layer/{rest}"
        else:
            rest = f"_transformer_layers/{number - len(_FIRST)}/{rest}"
    if rest in _NAMES:
        return _NAMES[rest]
    layer = re.fullmatch(r"_transformer_layers/(\d+)/(.*)/(\w+)", rest)
    if layer is None or layer[2] not in _LAYER or layer[3] not in _VARIABLES:
        return None
    return f"bert/encoder/layer_{layer[1]}/{_LAYER[layer[2]]}/{layer[3]}"


def arranged(name: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], _Arrange]:
    """The original's shape of a weight of this shape, and what makes the array so."""
    if name == "cls/seq_relationship/output_weights":
        return shape[::-1], np.transpose
    if "/attention/self/" in name:
        wanted: tuple[int, ...] = (*shape[:-2], shape[-2] * shape[-1])
    elif name.endswith("attention/output/dense/kernel"):
        wanted = (shape[0] * shape[1], shape[2])
    else:
        return shape, np.asarray
    return wanted, lambda array: array.reshape(wanted)
