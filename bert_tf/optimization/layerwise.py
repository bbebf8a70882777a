"""Settings by layer: frozen weights, learning rates, re-initialized layers."""

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from bert_tf.base.errors import InputError

# Freezing parts of an encoder, by names separated by commas:
#
#     embeddings    the three tables and their LayerNorm
#     3, layer_3    a layer, counted from 0; 0 is the one that ALBERT's all share
#     0-5           layers, both ends included
#     encoder       all layers
#     pooler        the pooler
#
# Frozen parts have no gradient, no weight decay and no moments; dropout still applies.
# The masked LM's output matrix is the table of word embeddings: if the embeddings are
# frozen, so is the matrix, and the head learns only its transform and bias.


def freeze(encoder: Any, frozen_layers: str) -> None:
    """Freezes these parts; call it before the optimizer is built."""
    if not frozen_layers.strip():
        return
    parts = {layer.name: layer for layer in encoder.layers if layer.variables}
    for name in frozen_layers.split(","):
        for layer in _layers(name.strip(), parts, _numbered(encoder)):
            layer.trainable = False


def log_untrained(model: Any) -> None:
    """Logs how many of a model's weights are trained, if not all."""
    weights = model.trainable_weights, model.weights
    trained, total = (sum(math.prod(w.shape) for w in some) for some in weights)
    if trained < total:
        share = 100.0 * trained / total
        logging.info("Training %d of %d weights (%.2f %%).", trained, total, share)


def _numbered(encoder: Any) -> list[Any]:
    """Returns the Transformer layers; `layer_mixture` is none."""
    return [
        each for each in encoder.layers if re.fullmatch(r"(layer|group)_\d+", each.name)
    ]


def _layers(name: str, parts: dict[str, Any], numbered: list[Any]) -> list[Any]:
    if name in parts:
        return [parts[name]]
    if name == "encoder":
        return numbered
    if match := re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", name):
        first, last = int(match[1]), int(match[2] or match[1])
        if first <= last < len(numbered):
            return numbered[first : last + 1]
    others = [part for part in parts if not part.startswith(("layer_", "group_"))]
    raise InputError(
        f"`frozen_layers`: the model has no {name!r}. It has"
        f" {', '.join(others)}, encoder, and layers 0-{len(numbered) - 1}."
    )


# Layer-wise decay of the learning rate: the lower the layer, the smaller its steps.
#
# Lower layers hold the general features of language. With L layers and a variable at
# depth d, the learning rate is multiplied by
#
#     decay^(L + 1 - d)
#
# where d is 0 for the embeddings, i + 1 for layer_i, and L + 1 for the pooler and the
# heads, which learn at the full rate. So each layer's rate is `decay` times that of the
# one above it: ULMFiT's "discriminative fine-tuning" (Howard and Ruder 2018, section
# 3.2, decay 1 / 2.6). ELECTRA's code (Clark et al. 2020; model/optimization.py) uses
# the same depths for embeddings and layers, but L + 2 for the task's head: there the
# last layer is two factors below the head, here one. L counts up to the highest trained
# layer: frozen layers below it count, those above it do not.


def rate_factors(paths: Sequence[str], decay: float) -> list[float]:
    """Returns the factor of each variable's learning rate, by its path."""
    if not 0.0 < decay <= 1.0:
        raise ValueError(
            "The layer-wise decay of the learning rate must be above 0 and at most 1."
            f" Received: {decay}"
        )
    layers = [re.search(r"(?:^|/)(?:layer|group)_(\d+)/", path) for path in paths]
    num_layers = max((int(layer[1]) + 1 for layer in layers if layer), default=0)
    factors = []
    for path, layer in zip(paths, layers, strict=True):
        if layer:
            depth = int(layer[1]) + 1
        elif re.search(r"(?:^|/)(embeddings|embedding_hidden_mapping_in)/", path):
            depth = 0
        else:
            depth = num_layers + 1
        factors.append(decay ** (num_layers + 1 - depth))
    return factors


# Re-initialization of the top layers and the pooler.
#
# Zhang, Wu, Katiyar, Weinberger and Artzi 2021, "Revisiting few-sample BERT
# fine-tuning", section 4: the top layers are the most specialised on pre-training. With
# the pooler and up to 6 layers re-initialized, fine-tuning on few examples is more
# stable and often better.


@contextlib.contextmanager
def keeping_initial(encoder: Any, num_layers: int) -> Iterator[None]:
    """Context for loading weights; restores the top's initial values at its end.

    The top is the highest `num_layers` layers and the pooler, with the values that the
    model was made with; with 0 layers nothing is restored.
    """
    layers = _numbered(encoder)
    if num_layers > len(layers):
        raise InputError(
            f"`reinitialize_layers={num_layers}`: the model has {len(layers)} layers."
        )
    poolers = [layer for layer in encoder.layers if layer.name == "pooler"]
    top = [*layers[-num_layers:], *poolers] if num_layers else []
    initial = [(weight, weight.numpy()) for layer in top for weight in layer.weights]
    yield
    for weight, value in initial:
        weight.assign(value)
