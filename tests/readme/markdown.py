"""What is in a Markdown file, with its lines: fenced blocks, spans, tables, links."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"^```(.*)$")
_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CELL_END = re.compile(r"(?<!\\)\|")


class Block(NamedTuple):
    """A fenced block."""

    line: int
    language: str
    title: str
    text: str


class Span(NamedTuple):
    """A piece of the text between the blocks, and its line."""

    line: int
    text: str


def blocks(markdown: str) -> list[Block]:
    """The fenced blocks, in their order."""
    found = []
    start, info, content = 0, None, []
    for number, line in enumerate(markdown.splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence and info is None:
            start, info, content = number + 1, fence[1], []
        elif fence:
            title = re.search(r'title="([^"]*)"', info)
            language = info.split(maxsplit=1)[0] if info.strip() else ""
            found.append(
                Block(start, language, title[1] if title else "", "\n".join(content))
            )
            info = None
        elif info is not None:
            content.append(line)
    assert info is None, f"line {start - 1}: a block is not closed"
    return found


def prose(markdown: str) -> list[str]:
    """The lines, those of blocks empty, so that a line keeps its number."""
    lines, is_code = [], False
    for line in markdown.splitlines():
        is_fence = _FENCE.match(line) is not None
        lines.append("" if is_fence or is_code else line)
        is_code ^= is_fence
    return lines


def without_columns(lines: list[str], headers: re.Pattern) -> list[str]:
    """The lines, with the cells of some columns of tables empty."""
    found, hidden = [], None
    for line in lines:
        if not line.startswith("|"):
            found.append(line)
            hidden = None
            continue
        cells = _CELL_END.split(line)
        if hidden is None:
            hidden = {i for i, cell in enumerate(cells) if headers.match(cell.strip())}
        kept = ("" if i in hidden else cell for i, cell in enumerate(cells))
        found.append("|".join(kept))
    return found


def paragraphs(lines: list[str]) -> Iterator[Span]:
    """Lines that belong together, a row of a table by itself."""
    start, collected = 0, []
    for number, line in enumerate([*lines, ""], start=1):
        ends = not line.strip() or line.startswith(("|", "- ", "#"))
        if ends and collected:
            yield Span(start, "\n".join(collected))
            collected = []
        if line.strip():
            start = start if collected else number
            collected.append(line)


def code_spans(lines: list[str]) -> Iterator[Span]:
    """What stands between single backticks; a span may go on in the next line."""
    for paragraph in paragraphs(lines):
        for span in _SPAN.finditer(paragraph.text):
            line = paragraph.line + paragraph.text[: span.start()].count("\n")
            yield Span(line, " ".join(span[1].replace("\\|", "|").split()))


def links(lines: list[str]) -> Iterator[Span]:
    """The targets of links."""
    for number, line in enumerate(lines, start=1):
        for link in _LINK.finditer(line):
            yield Span(number, link[1])


def anchors(lines: list[str]) -> set[str]:
    """The targets that the headings are, as GitHub makes them."""
    headings = (re.sub(r"^#+ +", "", line) for line in lines if line.startswith("#"))
    return {
        re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings
    }
