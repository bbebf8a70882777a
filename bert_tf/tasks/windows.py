"""Texts longer than the model, read in windows that overlap.

Window k of a text of n tokens, of which r fit, is its tokens [k s, k s + r), with the
stride s; the windows end with the first one that reaches the text's end. So each token
is in one of them at least. Of a pair the longer text is read in windows, at equal
lengths the second one, and the other stands whole in each, up to half of the room.

Each window is a record with the example's label, and in training an example of weight
1, so that a text of k windows weighs k times as much as a short one. In evaluation the
example's outputs are the mean of its windows' logits: of classes, the geometric mean of
their probabilities; of numbers, their mean.

Shapes: N examples, R records, C outputs.
"""

from collections.abc import Sequence

import numpy as np

from bert_tf.text.wordpiece import Tokens


def windows_of_pair(
    tokens_a: Tokens, tokens_b: Tokens, room: int, stride: int | None = None
) -> tuple[list[tuple[Tokens, Tokens]], bool]:
    """The windows of a text or a pair."""
    if len(tokens_a) + len(tokens_b) <= room:
        return [(tokens_a, tokens_b)], False
    if len(tokens_a) > len(tokens_b):
        whole = tokens_b[: room // 2]
        pairs = [(window, whole) for window in _windows(tokens_a, room, whole, stride)]
        return pairs, len(whole) < len(tokens_b)
    whole = tokens_a[: room // 2]
    pairs = [(whole, window) for window in _windows(tokens_b, room, whole, stride)]
    return pairs, len(whole) < len(tokens_a)


def _windows(
    tokens: Tokens, room: int, beside: Tokens, stride: int | None
) -> list[Tokens]:
    """A text's windows beside a text that stands whole in each."""
    size = room - len(beside)
    stride = min(stride or max(1, size // 2), size)
    last = max(0, len(tokens) - size)
    return [tokens[start : start + size] for start in range(0, last + stride, stride)]


def average_windows(logits: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """The outputs of examples from those of their windows: the mean of the logits."""
    numbers = np.array(counts, np.int64)
    if numbers.sum() != len(logits) or (numbers < 1).any():
        raise ValueError(
            f"`counts` must be positive and add up to {len(logits)}, the number of"
            f" windows. Received: a sum of {numbers.sum()}"
        )
    starts = np.cumsum(numbers) - numbers
    sums = np.add.reduceat(logits, starts, axis=0)
    return sums / numbers[:, None].astype(logits.dtype)
