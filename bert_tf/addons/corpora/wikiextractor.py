"""wikiextractor's files: Wikipedia's articles as paragraphs of text.

    <doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">
    Anarchism

    Anarchism is a political philosophy ...
    </doc>

Each doc is a document; blank lines in it end nothing. Only text passages are kept
(Devlin et al. 2018, section 3.1), without the title line, headings ("Section::::")
and list items ("BULLET::::", both of versions 2). Versions 3 write `&`, `<` and `>`
as entities, which are decoded.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator

from bert_tf.base.errors import InputError
from bert_tf.text.documents import BYTE_ORDER_MARK, TITLE_LINES, FileSource, drop

# A title may contain quotation marks: wikiextractor does not escape them.
_TITLE = re.compile(r'\btitle="(.*)">$')
_LEFT_OUT = {"Section": "section headings", "BULLET": "list items"}
_LEFT_OUT_PREFIXES = tuple(f"{kind}::::" for kind in _LEFT_OUT)


def is_header(line: bytes) -> bool:
    """Whether a line begins a document of wikiextractor's."""
    line = line.removeprefix(BYTE_ORDER_MARK)
    return line.startswith(b"<doc ") and b"id=" in line


def _article_border(line: bytes) -> int | None:
    return 0 if is_header(line) else None


def read_wikiextractor(
    source: FileSource, start: int, stop: int | None, dropped: Counter[str]
) -> Iterator[list[str]]:
    """Yields the paragraphs of each document."""
    paragraphs: list[str] | None = None  # of the document that is open
    title = None
    header_at = (0, 0)

    def unclosed() -> InputError:
        return InputError(
            f"{source.place(*header_at)}: this <doc ...> has no </doc>; the file may"
            " have been cut off: extract it again."
        )

    for block in source.read(start, stop, _article_border):
        for index, line in enumerate(source.lines(block, dropped)):
            text = line.strip()
            if not text:
                continue
            if text == "</doc>" and paragraphs is not None:
                yield paragraphs
                paragraphs = None
            elif text.startswith("<doc ") and is_header(text.encode()):
                if paragraphs is not None:
                    raise unclosed()
                found = _TITLE.search(text)
                title = html.unescape(found.group(1)).strip() if found else None
                paragraphs, header_at = [], (block.offset, index)
            elif paragraphs is None:
                raise InputError(
                    f"{source.place(block.offset, index)}: text outside <doc ...> and"
                    " </doc>; if this is not a file of wikiextractor's, give"
                    " `input_format`."
                )
            elif not paragraphs and title and html.unescape(text) == title:
                title = None
                drop(dropped, TITLE_LINES, characters=len(text))
            elif text.startswith(_LEFT_OUT_PREFIXES):
                reason = _LEFT_OUT[text.partition("::::")[0]]
                drop(dropped, reason, characters=len(text))
            else:
                # The three entities that wikiextractor writes, in reverse order.
                for entity, character in (("gt", ">"), ("lt", "<"), ("amp", "&")):
                    text = text.replace(f"&{entity};", character)
                paragraphs.append(text)
    if paragraphs is not None:
        raise unclosed()
