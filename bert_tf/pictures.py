"""Pictures as PNG, the same bytes for the same content."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Draws in matplotlib's own style, whatever the user's matplotlibrc.

    Signs that the font lacks (it has no Chinese) become boxes without a warning each.
    """
    import matplotlib.style

    with matplotlib.style.context("default"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        font_log = logging.getLogger("matplotlib.font_manager")
        level = font_log.level
        font_log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            font_log.setLevel(level)


def png(figure: "Figure") -> bytes:
    """The picture's bytes, without what varies: no version of the software, no date."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    content = io.BytesIO()
    FigureCanvasAgg(figure).print_png(content, metadata={"Software": None})
    return content.getvalue()
