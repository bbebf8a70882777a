"""The TF2 checkpoints of Model Garden and of NVIDIA, by the original's names.

A `tf.train.Checkpoint` has as keys the attributes on the way to a variable. A model's
layers are numbered there: an encoder of networks.BertEncoder has `layer_with_weights-4`
where one of networks.BertEncoderV2 has `_transformer_layers/0`. The encoder is at the
top (`model/`, `encoder/`), or the first layer of a model whose other layers are heads.
NVIDIA's (DeepLearningExamples, TensorFlow 2) are those of Model Garden's first release.

Two kinds of arrays differ from the original's: attention's weights have a dimension for
the heads, and the kernels of output layers are [inputs, outputs].

A head with its own pooler leaves the encoder's untrained, so the head's is read as the
original's pooler. In the first release a head of two numbers per sequence was the span
head, as one of two numbers per token still is.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np

_Arrange = Callable[[np.ndarray], np.ndarray]

_NUMBERED = "layer_with_weights-"
_FIRST_LAYER, _SECOND_LAYER, _THIRD_LAYER = (f"{_NUMBERED}{n}" for n in range(3))
# BertEncoder's layers by their numbers, before those of the Transformer.
_FIRST = (
    "_embedding_layer",
    "_position_embedding_layer",
    "_type_embedding_layer",
    "_embedding_norm_layer",
)
_EMBEDDING_NORM = re.compile(
    rf"((?:.*/)?)(?:{_NUMBERED}{len(_FIRST) - 1}|{_FIRST[-1]})/gamma"
)
_VARIABLES = ("kernel", "bias", "gamma", "beta")


def _each(table: Mapping[str, str]) -> dict[str, str]:
    """Returns a table whose `{}` stand for the variables of a layer."""
    return {
        key.format(variable): name.format(variable)
        for key, name in table.items()
        for variable in _VARIABLES
    }


def _scores(layer: str, head: str) -> dict[str, str]:
    return {
        f"{layer}kernel": f"{head}output_weights",
        f"{layer}bias": f"{head}output_bias",
    }


_ENCODER = _each(
    {
        "_embedding_layer/embeddings": "bert/embeddings/word_embeddings",
        "_position_embedding_layer/embeddings": "bert/embeddings/position_embeddings",
        "_type_embedding_layer/embeddings": "bert/embeddings/token_type_embeddings",
        "_embedding_norm_layer/{}": "bert/embeddings/LayerNorm/{}",
        "_pooler_layer/{}": "bert/pooler/dense/{}",
    }
)
_LAYER = {
    "_attention_layer/_query_dense": "attention/self/query",
    "_attention_layer/_key_dense": "attention/self/key",
    "_attention_layer/_value_dense": "attention/self/value",
    "_attention_layer/_output_dense": "attention/output/dense",
    "_attention_output_dense": "attention/output/dense",  # in the first release
    "_attention_layer_norm": "attention/output/LayerNorm",
    "_intermediate_dense": "intermediate/dense",
    "_output_dense": "output/dense",
    "_output_layer_norm": "output/LayerNorm",
}
_TRANSFORM = "cls/predictions/transform"
_MASKED_LM = _each(
    {
        "embedding_table": "bert/embeddings/word_embeddings",
        "dense/{}": f"{_TRANSFORM}/dense/{{}}",
        "layer_norm/{}": f"{_TRANSFORM}/LayerNorm/{{}}",
        "output_bias/bias": "cls/predictions/output_bias",
    }
)
_FIRST_MASKED_LM = _each(
    {
        f"{_FIRST_LAYER}/{{}}": f"{_TRANSFORM}/dense/{{}}",
        f"{_SECOND_LAYER}/{{}}": f"{_TRANSFORM}/LayerNorm/{{}}",
        f"{_THIRD_LAYER}/bias": "cls/predictions/output_bias",
    }
)
_POOLER = _each({"dense/{}": "bert/pooler/dense/{}"})
_NEXT_SENTENCE = "cls/seq_relationship/"
_CLASSIFIER = _POOLER | _scores("out_proj/", "")
# Heads with names of their own, as in BertPretrainerV2.
_NAMED = {
    r"masked_lm/(.*)": _MASKED_LM,
    r"classification_heads/0/(.*)": _POOLER | _scores("out_proj/", _NEXT_SENTENCE),
    r"[^/]*\.pooler_(dense/.*)": _POOLER,
}


def keys_by_name(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """The original's names of BERT's weights, and their keys.

    Empty for a checkpoint of something else.

    Args:
        shapes: of the variables, by their keys without escapes.
    """
    norms = [match[1] for match in map(_EMBEDDING_NORM.fullmatch, shapes) if match]
    if not norms:
        return {}
    encoder = norms[0]
    names = _encoder_names([key for key in shapes if key.startswith(encoder)], encoder)
    others = {key: shapes[key] for key in shapes if key not in names}
    heads = _numbered_heads(others, encoder) | _named_heads(others)
    found = {name: key for key, name in (names | heads).items()}
    return found if "bert/encoder/layer_0/output/dense/kernel" in found else {}


def masked_lm_is_linear(shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the masked LM's head has no activation, as in the first release."""
    key = keys_by_name(shapes).get(f"{_TRANSFORM}/LayerNorm/gamma", "")
    return key.endswith(f"{_SECOND_LAYER}/gamma")


def _encoder_names(keys: list[str], encoder: str) -> dict[str, str]:
    """Returns the names of the encoder's weights by key."""
    rests = {key: key.removeprefix(encoder) for key in keys}
    numbers = [re.match(rf"{_NUMBERED}(\d+)/", rest) for rest in rests.values()]
    last = max((int(number[1]) for number in numbers if number), default=0)
    named = {key: _name(rest, last) for key, rest in rests.items()}
    return {key: name for key, name in named.items() if name is not None}


def _name(rest: str, last: int) -> str | None:
    if match := re.match(rf"{_NUMBERED}(\d+)/(.*)", rest):
        number, rest = int(match[1]), match[2]
        if number < len(_FIRST):
            rest = f"{_FIRST[number]}/{rest}"
        elif number == last and rest in ("kernel", "bias"):
            rest = f"_pooler_layer/{rest}"
        else:
            rest = f"_transformer_layers/{number - len(_FIRST)}/{rest}"
    if rest in _ENCODER:
        return _ENCODER[rest]
    layer = re.fullmatch(r"_transformer_layers/(\d+)/(.*)/(\w+)", rest)
    if layer is None or layer[2] not in _LAYER or layer[3] not in _VARIABLES:
        return None
    return f"bert/encoder/layer_{layer[1]}/{_LAYER[layer[2]]}/{layer[3]}"


def _numbered_heads(
    shapes: Mapping[str, tuple[int, ...]], encoder: str
) -> dict[str, str]:
    """Returns the names of the weights of numbered heads, by key."""
    above = "model/"
    if encoder.endswith(f"{_FIRST_LAYER}/"):
        above = encoder.removesuffix(f"{_FIRST_LAYER}/")
    heads: dict[str, dict[str, str]] = {}  # layer -> its keys by the rest of the path
    for key in shapes:
        if match := re.fullmatch(rf"{re.escape(above)}{_NUMBERED}(\d+)/(.*)", key):
            heads.setdefault(match[1], {})[match[2]] = key
    tables: dict[str, Mapping[str, str]] = {}
    for number, keys in heads.items():
        if "layer_norm/gamma" in keys:
            tables[number] = _MASKED_LM
        elif f"{_SECOND_LAYER}/gamma" in keys:
            tables[number] = _FIRST_MASKED_LM
    is_pretrainer = bool(tables)
    for number, keys in heads.items():
        if number in tables:
            continue
        head = _NEXT_SENTENCE if is_pretrainer else ""
        kernel = keys.get(f"{_FIRST_LAYER}/kernel")
        if kernel and not is_pretrainer and shapes[kernel][-1] == 2:
            head = "cls/squad/"
        tables[number] = (
            _CLASSIFIER
            | _scores("", "cls/tagging/")
            | _scores(f"{_FIRST_LAYER}/", head)
        )
    return {
        key: tables[number][rest]
        for number, keys in heads.items()
        for rest, key in keys.items()
        if rest in tables[number]
    }


def _named_heads(keys: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Returns the names of the weights of named heads, by key."""
    found = {}
    for key in keys:
        for pattern, table in _NAMED.items():
            match = re.fullmatch(rf"(?:.*/)?{pattern}", key)
            if match and match[1] in table:
                found[key] = table[match[1]]
    return found


def arranged(name: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], _Arrange]:
    """Returns a weight's shape in the original, and the function that converts it."""
    if name.endswith("output_weights"):
        return shape[::-1], np.transpose
    if "/attention/self/" in name:
        wanted: tuple[int, ...] = (*shape[:-2], shape[-2] * shape[-1])
    elif name.endswith("attention/output/dense/kernel"):
        wanted = (shape[0] * shape[1], shape[2])
    else:
        return shape, np.asarray
    return wanted, lambda array: array.reshape(wanted)
