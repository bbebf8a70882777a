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
BOTH_SIDES = (-1, 1)


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


def neighbour_kernels(
    width: int, num_heads: int, shifts: tuple[int, int] = BOTH_SIDES
) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernels [width, width] of queries and keys, to attend to neighbours by.

    Pair i of the columns of `sinusoids` is 2i and 2i + 1, and w_i its frequency. Head a
    of A has the pairs a, a + A, a + 2A, ... and the shift s, the first for even heads.
    From sinusoids whose pairs have the norm b, position p scores position r by

        SHARPNESS (b^2 / 8) (64 / D) sum over the head's i of cos(w_i (p + s - r))

    if nothing else is in the layer's input: most at r = p + s. The 64 / D lets heads of
    any size D be as sharp. Trockman and Kolter 2023 ("Mimetic Initialization of
    Self-Attention Layers") have products near the identity, which is s = 0.
    """
    size, pairs = width // num_heads, np.arange(width // 2)
    heads, columns = pairs % num_heads, 2 * (pairs // num_heads)
    fits = columns + 1 < size  # a head of an odd size has a column without a partner
    key = np.zeros((width, width), np.float32)
    for parity in (0, 1):
        key[2 * pairs + parity, heads * size + columns + parity] = fits
    sines, cosines = key[: 2 * len(pairs) : 2], key[1::2]
    angles = (np.take(shifts, heads % 2) * _frequencies(width)[pairs])[:, None]
    query = np.zeros_like(key)
    query[: 2 * len(pairs) : 2] = np.cos(angles) * sines - np.sin(angles) * cosines
    query[1::2] = np.sin(angles) * sines + np.cos(angles) * cosines
    factor = (SHARPNESS * (64.0 / size) ** 0.5) ** 0.5
    return factor * query, factor * key


def place(model: Any, kind: str) -> None:
    """Sets a new model's position embeddings; adds to queries and keys if asked to."""
    encoder = model.encoder
    table, config = encoder.embeddings.position_embeddings, encoder.bert_config
    table.assign(sinusoids(*table.shape))
    if kind != "neighbours":
        return
    if table.shape[1] != config.hidden_size:
        logging.warning(
            "Heads keep their random first values: `initial_positions=neighbours` needs"
            " embeddings as wide as the layers. Received: %d and %d",
            *(table.shape[1], config.hidden_size),
        )
        return
    side = -1 if config.left_to_right else 1
    shifts = BOTH_SIDES if config.is_bidirectional else (side, side)
    kernels = neighbour_kernels(config.hidden_size, config.num_attention_heads, shifts)
    for layer in encoder.layers:
        if isinstance(layer, TransformerLayer):
            parts = (layer.attention.query, layer.attention.key)
            for part, kernel in zip(parts, kernels, strict=True):
                part.kernel.assign_add(kernel)
