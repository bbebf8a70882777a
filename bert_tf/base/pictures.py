"""Pictures as PNG, the same bytes for the same content; tables as Markdown."""

import io
import logging
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any


def picture(
    draw: Callable[[Any], None], size: tuple[float, float], title: str = ""
) -> bytes:
    """Returns a PNG of a function's drawing on a figure of that size in inches."""
    import matplotlib.style
    from matplotlib.figure import Figure

    content = io.BytesIO()
    font_log = logging.getLogger("matplotlib.font_manager")
    level = font_log.level
    # Matplotlib's own style, whatever the user's matplotlibrc.
    with matplotlib.style.context("default"), warnings.catch_warnings():
        # Characters that the font lacks (it has no Chinese) become boxes.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        font_log.setLevel(logging.ERROR)
        try:
            figure = Figure(figsize=size, layout="constrained")
            draw(figure)
            if title:
                # Plain text: $ must not start a formula.
                figure.axes[0].set_title(title, fontsize="medium", parse_math=False)
            # Without metadata that varies: versions of software, dates.
            figure.savefig(content, format="png", metadata={"Software": None})
        finally:
            font_log.setLevel(level)
    return content.getvalue()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table with its first column left-aligned, the others right."""
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(c.rjust(width) for c, width in others)]
        return f"| {' | '.join(padded)} |\n"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return line(header) + line(rule) + "".join(map(line, rows))


def figure(value: float, scale: float = 1.0, digits: int = 4) -> str:
    """Returns a score as text; a dash if there is none."""
    return "–" if math.isnan(value) else f"{scale * value:.{digits}f}"
