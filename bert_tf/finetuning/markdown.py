"""Tables in Markdown, as reports have them."""

import math
from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is text, the others stand to the right."""
    widths = [
        max(3, *(len(row[column]) for row in (header, *rows)))
        for column in range(len(header))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |\n"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return line(header) + line(rule) + "".join(map(line, rows))


def figure(value: float, scale: float = 1.0, digits: int = 4) -> str:
    """A score; a dash where there is none."""
    return "–" if math.isnan(value) else f"{scale * value:.{digits}f}"
