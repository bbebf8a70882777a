"""wikiextractor's files: Wikipedia's articles as paragraphs of text.

    <doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">
    Anarchism

    Anarchism is a political philosophy ...

    </doc>

Each doc is a document; blank lines in it end nothing. Of the articles, text passages
alone are kept (Devlin et al. 2018, section 3.1): the title line, headings
("Section::::") and list items ("BULLET::::", both written by versions 2) are left out.
Versions 3 write `&`, `<` and `>` as entities, which become characters again.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator

from bert_tf.errors import InputError
from bert_tf.text import blocks

TITLE_LINES = "title lines"

# A title may hold quotation marks: wikiextractor writes it as it is.
_TITLE = re.compile(r'\btitle="(.*)">$')
_LEFT_OUT = {"Section": "section headings", "BULLET": "list items"}
_LEFT_OUT_PREFIXES = tuple(f"{kind}::::" for kind in _LEFT_OUT)


def is_header(line: bytes) -> bool:
    """Whether a line begins a document."""
    return line.startswith(b"<doc ") and b"id=" in line


_BORDERS = blocks.Borders(
    is_at=lambda line: is_header(line.removeprefix(blocks.BYTE_ORDER_MARK)),
    is_after=False,
)


def read_documents(
    path: str, start: int, stop: int | None, dropped: Counter[str]
) -> Iterator[tuple[list[str], int]]:
    """Yields the paragraphs of each document, and the bytes read since the last one."""
    paragraphs: list[str] | None = None  # of the document that is open
    title = header_at = None
    num_bytes = 0
    for block in blocks.read_blocks(path, start, stop, _BORDERS):
        num_bytes += block.num_bytes
        for index, line in enumerate(blocks.lines(block, path, keep_mark=False)):
            text = line.strip()
            if not text:
                continue
            if text == "</doc>" and paragraphs is not None:
                yield paragraphs, num_bytes
                paragraphs, num_bytes = None, 0
            elif text.startswith("<doc ") and is_header(text.encode()):
                if header_at is not None and paragraphs is not None:
                    raise _unclosed(path, *header_at)
                found = _TITLE.search(text)
                title = html.unescape(found.group(1)).strip() if found else None
                paragraphs, header_at = [], (block.offset, index)
            elif paragraphs is None:
                number = blocks.line_number(path, block.offset) + index
                raise InputError(
                    f"{path}:{number}: text outside <doc ...> and </doc>; if this is "
                    "not a file of wikiextractor's, give --input_format."
                )
            elif not paragraphs and title and html.unescape(text) == title:
                title = None
                dropped[TITLE_LINES] += 1
            elif text.startswith(_LEFT_OUT_PREFIXES):
                dropped[_LEFT_OUT[text.partition("::::")[0]]] += 1
            else:
                paragraphs.append(_without_entities(text) if "&" in text else text)
    if header_at is not None and paragraphs is not None:
        raise _unclosed(path, *header_at)


def _unclosed(path: str, offset: int, index: int) -> InputError:
    number = blocks.line_number(path, offset) + index
    return InputError(
        f"{path}:{number}: this <doc ...> has no </doc>; the file may have been cut "
        "off: extract it again."
    )


def _without_entities(text: str) -> str:
    # The three that wikiextractor makes, in its opposite order.
    return text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")
