"""What a picture says, without reading its pixels."""

import unittest.mock

from matplotlib.text import Text


def drawn(draw):
    """(the texts that `draw` puts into its picture, the PNG that it returns)."""
    texts = set()
    plain = Text.draw

    def listed(text, renderer):
        texts.add(text.get_text())
        return plain(text, renderer)

    with unittest.mock.patch.object(Text, "draw", listed):
        content = draw()
    assert content.startswith(b"\x89PNG\r\n")
    return texts, content
