"""Texts longer than the model's input, read in overlapping windows.

If r tokens fit, window k has a text's tokens [k s, k s + r), with the stride s; the
last window is the first that reaches the text's end. So each token is in at least one
window. This module does not import TensorFlow.

N examples, R windows in all, C outputs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.text.wordpiece import Tokens

# The `window_pooling` that the model itself computes.
ATTENTION = "attention"

# The value of one more token in a window, in tokens of context.
_WORTH_OF_LENGTH = 0.01


class Window(NamedTuple):
    """A part of a text: its first token, and its number of tokens."""

    start: int
    length: int


def windows(num_tokens: int, room: int, stride: int | None = None) -> list[Window]:
    """Returns a text's windows; without a stride they overlap by half."""
    stride = min(stride or max(1, room // 2), room)
    last = max(0, num_tokens - room)
    return [
        Window(start, min(room, num_tokens - start))
        for start in range(0, last + stride, stride)
    ]


def best_windows(found: Sequence[Window], num_tokens: int) -> np.ndarray:
    """Returns every token's window with the most context, the first of equal ones."""
    # A token's context is the smaller number of tokens on either side. As in the
    # original's SQuAD, each token of a window's length counts as another hundredth of a
    # token of context.
    best = np.zeros(num_tokens, np.int64)
    if len(found) == 1:
        return best
    best_score = np.zeros(num_tokens)
    for number, (start, length) in enumerate(found):
        left = np.arange(length)
        # Float arithmetic decides ties, so it equals the original's.
        score = np.minimum(left, left[::-1]) + _WORTH_OF_LENGTH * length
        part = slice(start, start + length)
        is_better = score > best_score[part]
        best_score[part][is_better] = score[is_better]
        best[part][is_better] = number
    return best


def windows_of_pair(
    tokens_a: Tokens, tokens_b: Tokens, room: int, stride: int | None = None
) -> tuple[list[tuple[Tokens, Tokens]], bool]:
    """Splits a text or pair into windows; returns them, and whether tokens are lost."""
    # The longer text (the second, if they are equally long) is split, and each window
    # also has the other text, cut to half of the room.
    if len(tokens_a) + len(tokens_b) <= room:
        return [(tokens_a, tokens_b)], False
    is_first = len(tokens_a) > len(tokens_b)
    split, other = (tokens_a, tokens_b) if is_first else (tokens_b, tokens_a)
    whole = other[: room // 2]
    parts = [
        split[start : start + length]
        for start, length in windows(len(split), room - len(whole), stride)
    ]
    pairs = [(part, whole) if is_first else (whole, part) for part in parts]
    return pairs, len(whole) < len(other)


def pooled_windows(
    logits: np.ndarray, counts: Sequence[int], pooling: str = "mean"
) -> np.ndarray:
    """Returns the outputs of examples [N, C], the means of windows' logits [R, C]."""
    # For classes, this is the geometric mean of probabilities. `pooling` may be "max".
    # With attention to windows, or without counts, the logits are returned unchanged.
    if pooling == ATTENTION or not counts:
        return logits
    numbers = np.array(counts, np.int64)
    assert numbers.sum() == len(logits)
    starts = np.cumsum(numbers) - numbers
    if pooling == "max":
        return np.maximum.reduceat(logits, starts, axis=0)
    sums = np.add.reduceat(logits, starts, axis=0)
    return sums / numbers[:, None].astype(logits.dtype)
