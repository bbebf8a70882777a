"""Freezing: parts of an encoder that training leaves as they are.

    embeddings    the three tables and their LayerNorm
    3, layer_3    a layer, counted from 0
    0-5           layers, both ends included
    encoder       all layers
    pooler        the pooler

with commas between them. What is frozen has no gradient, no weight decay and no
moments; dropout goes on within it. The masked LM's output matrix is the table of word
embeddings: where the embeddings are frozen it is, too, and the head learns its
transform and bias alone.
"""

import re
from typing import Any

from bert_tf.errors import InputError


def freeze(encoder: Any, frozen_layers: str) -> None:
    """Sets `trainable = False` on layers; call it before the optimizer is built.

    Args:
        encoder: a BertEncoder.
        frozen_layers: the parts, as above; "" for none.

    Raises:
        InputError: there is no such part.
    """
    if not frozen_layers.strip():
        return
    parts = _parts(encoder)
    for name in frozen_layers.split(","):
        for layer in _layers(name.strip(), parts):
            layer.trainable = False


def _parts(encoder: Any) -> dict[str, Any]:
    """The encoder's layers with weights, by name, in their order."""
    return {layer.name: layer for layer in encoder.layers if layer.variables}


def _layers(name: str, parts: dict[str, Any]) -> list[Any]:
    numbered = {
        int(match[1]): layer
        for match, layer in (
            (re.fullmatch(r"layer_(\d+)", part), layer) for part, layer in parts.items()
        )
        if match
    }
    if name in parts:
        return [parts[name]]
    if name == "encoder":
        return list(numbered.values())
    if match := re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", name):
        first, last = int(match[1]), int(match[2] or match[1])
        if first <= last and last in numbered:
            return [numbered[number] for number in range(first, last + 1)]
    others = [part for part in parts if not part.startswith("layer_")]
    raise InputError(
        f"`frozen_layers`: the model has no {name!r}. It has"
        f" {', '.join(others)}, encoder, and layers 0-{max(numbered)}."
    )
