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
    """The windows of a text.

    Args:
        num_tokens: of the text, 1 at least.
        room: r, the tokens of a window.
        stride: s, from one window's beginning to the next one's. Default: half of the
            room. At most all of it.
    """
    stride = min(stride or max(1, room // 2), room)
    last = max(0, num_tokens - room)
    starts = [*range(0, last, stride), last]
    return [Window(start, min(start + room, num_tokens)) for start in starts]


def best_windows(places: np.ndarray, found: list[Window]) -> np.ndarray:
    """Which window has most context of each token; of equal ones the first.

    What counts is the side on which there is less. That a window which reaches the
    text's own end lacks nothing there would change no choice: the other windows have
    less on their other side.

    Args:
        places: [N], the tokens' places in the text.
        found: its windows, in their order.

    Returns:
        [N], the numbers of the windows.
    """
    starts, ends = np.array(found).T[:, :, None]
    return np.minimum(places - starts, ends - 1 - places).argmax(axis=0)
