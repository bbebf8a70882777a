"""Layer-wise decay of the learning rate: the lower the layer, the smaller its steps.

Lower layers hold what is general about language. With L layers and a variable at depth
d, the learning rate is multiplied by

    decay^(L + 1 - d)

d is 0 for the embeddings, i + 1 for layer_i, and L + 1 for all else: the pooler and the
heads, which learn at the full rate. So each layer's rate is `decay` times that of the
one above it: ULMFiT's "discriminative fine-tuning" (Howard and Ruder 2018, section 3.2,
decay 1 / 2.6). ELECTRA's code (Clark et al. 2020; model/optimization.py) has the same
depths of embeddings and layers, and L + 2 for the task's head: there the last layer is
two factors below the head, here one. L counts up to the highest layer that is trained:
frozen ones below it count, frozen ones above it do not.
"""

import re
from collections.abc import Sequence

_LAYER = re.compile(r"(?:^|/)layer_(\d+)/")
_EMBEDDINGS = re.compile(r"(?:^|/)embeddings/")


def rate_factors(paths: Sequence[str], decay: float) -> list[float]:
    """What the learning rate of each variable is multiplied by.

    Args:
        paths: the paths of all variables, such as "bert/encoder/layer_3/...".
        decay: above 0; 1 for the same rate everywhere.

    Raises:
        ValueError: `decay` is out of its range.
    """
    if not 0.0 < decay <= 1.0:
        raise ValueError(
            "The layer-wise decay of the learning rate must be above 0 and at most 1."
            f" Received: {decay}"
        )
    layers = [_LAYER.search(path) for path in paths]
    num_layers = max((int(layer[1]) + 1 for layer in layers if layer), default=0)
    factors = []
    for path, layer in zip(paths, layers, strict=True):
        if layer:
            depth = int(layer[1]) + 1
        elif _EMBEDDINGS.search(path):
            depth = 0
        else:
            depth = num_layers + 1
        factors.append(decay ** (num_layers + 1 - depth))
    return factors
