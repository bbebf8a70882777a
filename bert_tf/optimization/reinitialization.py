"""Re-initialization: the top layers and the pooler begin anew, untrained.

Zhang, Wu, Katiyar, Weinberger and Artzi 2021, "Revisiting few-sample BERT fine-tuning",
section 4: the top layers are the most specialised on pre-training; with the pooler and
up to 6 layers drawn anew, fine-tuning on few examples is steadier and often better.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from bert_tf.errors import InputError


@contextlib.contextmanager
def keeping_initial(encoder: Any, num_layers: int) -> Iterator[None]:
    """Within it, weights are loaded; in the end, the top has its initial values again.

    Those are what the model was made with: drawn by its own initializers, LayerNorms 1
    and biases 0, from the seed of the run.

    Args:
        encoder: a BertEncoder, just made.
        num_layers: how many layers, from the top; the pooler is always one more. With
            0 nothing is kept.

    Raises:
        InputError: the encoder has fewer layers.
    """
    initial = [
        (variable, variable.numpy())
        for layer in _top(encoder, num_layers)
        for variable in layer.weights
    ]
    yield
    for variable, value in initial:
        variable.assign(value)


def _top(encoder: Any, num_layers: int) -> list[Any]:
    """The layers and the pooler; none where `num_layers` is 0."""
    if not num_layers:
        return []
    layers = [
        layer for layer in encoder.layers if re.fullmatch(r"layer_\d+", layer.name)
    ]
    if num_layers > len(layers):
        raise InputError(
            f"`reinitialize_layers={num_layers}`: the model has {len(layers)} layers."
        )
    poolers = [layer for layer in encoder.layers if layer.name == "pooler"]
    return layers[-num_layers:] + poolers
