"""Texts longer than the model in windows, and the one that shows a word best.

Windows of r tokens begin every s tokens; the last one is moved back to be as long as
the others. So each token is in one of them at least.
"""

from typing import NamedTuple

import numpy as np


class Window(NamedTuple):
    """A part of a text's tokens.

    Attributes:
        start: its first token there.
        end: the token behind its last one.
    """

    start: int
    end: int


def windows(num_tokens: int, room: int, stride: int | None = None) -> list[Window]:
    """The windows of a text."""
    stride = min(stride or max(1, room // 2), room)
    last = max(0, num_tokens - room)
    starts = [*range(0, last, stride), last]
    return [Window(start, min(start + room, num_tokens)) for start in starts]


def best_windows(places: np.ndarray, found: list[Window]) -> np.ndarray:
    """Which window has most context of each token; of equal ones the first.

    What counts is the side on which there is less. That a window which reaches the
    text's own end lacks nothing there would change no choice: the other windows have
    less on their other side. Of windows of one length it is the one whose middle is
    nearest, which needs no table of tokens by windows: a document may have millions.
    """
    # Start and last token together are twice the middle.
    twice_middles = np.array([start + end - 1 for start, end in found])
    # Between two neighbours' middles; a token right on it is the first one's.
    borders = (twice_middles[:-1] + twice_middles[1:]) / 4
    return np.searchsorted(borders, places, side="left")
