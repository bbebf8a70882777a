"""First values by position: `initial_positions=sinusoids` and `neighbours`."""

from typing import Any

import numpy as np
from absl import logging

from bert_tf.modeling.layers import TransformerLayer

# With `tiny` at Muon's rate of 4e-3, 0.08 and 0.4 shorten the beginning less, and 0.02,
# the deviation of the other embeddings, does not shorten it.
DEVIATION = 0.16
# How sharply heads attend to a neighbour; `tiny` learns less with 4.
SHARPNESS = 2.0


def _frequencies(width: int) -> np.ndarray:
    return 10000.0 ** -(np.arange(0, width, 2) / width)


def sinusoids(rows: int, width: int) -> np.ndarray:
    """Returns the table [rows, width] of Vaswani et al. 2017, section 3.5, times a.

        a sin(p / 10000^(2i / width)) at [p, 2i],   a cos(the same) at [p, 2i + 1]

    a = sqrt(2) DEVIATION. Then one linear map takes each position to its neighbour, so
    that heads which attend to neighbours are found soon; random vectors need a map of
    their own for each position.
    """
    angles = np.arange(rows)[:, None] * _frequencies(width)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(rows, -1)
    return (2**0.5 * DEVIATION * table[:, :width]).astype(np.float32)


def neighbour_kernels(width: int, num_heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernels [width, width] of queries and keys that attend to a neighbour.

    Head a of A has the pairs of columns a, a + A, a + 2A and so on of `sinusoids`. With
    their w_i = 1 / 10000^(2i / width) and a shift s, -1 for even heads and 1 for odd
    ones, position p scores position r by

        SHARPNESS b^2 sum over i of cos(w_i (p + s - r))

    where b is the pairs' norm: most at r = p + s. Trockman and Kolter 2023 ("Mimetic
    Initialization of Self-Attention Layers") have s = 0, products near the identity.
    """
    size, pairs = width // num_heads, np.arange(width // 2)
    heads, columns = pairs % num_heads, 2 * (pairs // num_heads)
    fits = columns + 1 < size  # a head of an odd size has a column without a partner
    key = np.zeros((width, width), np.float32)
    for parity in (0, 1):
        key[2 * pairs + parity, heads * size + columns + parity] = fits
    sines, cosines = key[: 2 * len(pairs) : 2], key[1::2]
    angles = (np.where(heads % 2, 1, -1) * _frequencies(width)[pairs])[:, None]
    query = np.zeros_like(key)
    query[: 2 * len(pairs) : 2] = np.cos(angles) * sines - np.sin(angles) * cosines
    query[1::2] = np.sin(angles) * sines + np.cos(angles) * cosines
    return SHARPNESS**0.5 * query, SHARPNESS**0.5 * key


def place(model: Any, kind: str) -> None:
    """Sets a new model's position embeddings, and what its heads attend to first."""
    encoder = model.encoder
    table, config = encoder.embeddings.position_embeddings, encoder.bert_config
    table.assign(sinusoids(*table.shape))
    if kind != "neighbours":
        return
    if table.shape[1] != config.hidden_size:
        logging.warning(
            "The heads begin as random: they can begin at the neighbours only where"
            " embeddings are as wide as layers, not %d and %d.",
            *(table.shape[1], config.hidden_size),
        )
        return
    kernels = neighbour_kernels(config.hidden_size, config.num_attention_heads)
    for layer in encoder.layers:
        if isinstance(layer, TransformerLayer):
            attention = layer.attention
            for part, kernel in zip(
                (attention.query, attention.key), kernels, strict=True
            ):
                part.kernel.assign_add(kernel)
