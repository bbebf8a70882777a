"""The text of a PDF file, as pdftotext and its like write it, to paragraphs.

1. Pages end at form feeds. A line at a page's edge that stands at that edge of three
   pages or more, whatever its numbers, is a running header or footer, and is left out.
   One without letters (12, - 12 -, 3/90, xii), or "page 12", is a page number: two
   pages are enough. The line after it is then the edge.
2. A paragraph ends at a blank line; before a line that begins with a bullet; and after
   a line that ends a sentence and is shorter than half of the usual line. It continues
   over the end of a page, unless it ends a sentence or the next page begins with a
   capital letter.
3. The lines of a paragraph are joined by spaces. A hyphen between two lines is left out
   before a small letter ("natu-", "ral"), unless the text has the word with its hyphen
   and not the word without ("well-known"); else it is kept, without a space
   ("Anglo-", "Saxon"). A soft hyphen is left out.
4. Ligatures become letters.

Without form feeds, pages are unknown: there, no line is left out.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from bert_tf.text.documents import drop

PAGE_NUMBERS = "page numbers"
RUNNING_LINES = "running headers and footers"
HYPHENS = "hyphens at line ends"

_LEAST_PAGES = 3
_LEAST_NUMBERED_PAGES = 2
_MOST_EDGE_LINES = 3

_ROMAN = r"(?=[ivxl])(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})"
_NUMBER = re.compile(rf"\d+|^{_ROMAN}\b|\b{_ROMAN}$")
_PAGE_NUMBER = re.compile(
    r"(?:page|p\.|seite|página|pagina)?[\s|()\[\]–—-]*"
    r"#(?:\s*(?:/|of|de|di|von|van|sur)\s*#)?[\s|()\[\]–—.-]*"
)
_LIGATURES = re.compile("[\ufb00-\ufb06]")
_BULLET = re.compile(r"(?:[•‣▪◦●■–*-]|\(?\d{1,2}[.)]|\(?[a-z]\))\s")
_ENDS_SENTENCE = re.compile(r"[.!?:;…。！？।။།។][\"'”’»)\]\d]*$")
_HYPHEN = re.compile(r"(?<=\w)[-\u2010\u00ad]$")
_WIDE = "[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]"  # no spaces between those
_NO_SPACE = re.compile(rf"{_WIDE}\n{_WIDE}")
_WORD = re.compile(r"\w+(?:[-\u2010]\w+)*")
_SOFT_HYPHEN = "\u00ad"
# "mer-", and a small letter on the next line; in UTF-8.
_HYPHENATED = re.compile(
    rb"[a-z\x80-\xff](?:-|\xc2\xad|\xe2\x80\x90)\r?\n[ \t]*[a-z\x80-\xff]"
)
_NOT_BLANK = re.compile(rb"[^\s].*")


def looks_extracted(text: bytes) -> bool:
    """Whether a file begins with pages, or with words split between lines."""
    # Of 100 lines from PDF files several end in a hyphen; of other texts hardly any.
    least = max(3, 0.01 * len(_NOT_BLANK.findall(text)))
    return b"\f" in text or len(_HYPHENATED.findall(text)) >= least


def paragraphs_of_pdf(text: str, dropped: Counter[str]) -> list[str]:
    """Yields the paragraphs of a document."""
    text = _LIGATURES.sub(lambda m: unicodedata.normalize("NFKC", m.group()), text)
    pages = [
        [line.strip() for line in page.split("\n")]
        for page in text.replace("\r", "").split("\f")
    ]
    if len(pages) > 1:
        for is_bottom in (False, True):
            for _ in range(_MOST_EDGE_LINES):
                if not _leave_edges_out(pages, is_bottom, dropped):
                    break
    lengths = sorted(len(line) for page in pages for line in page if line)
    usual = lengths[len(lengths) * 9 // 10] if lengths else 0
    paragraphs: list[list[str]] = [[]]
    for page in pages:
        _trim(page)
        before = paragraphs[-1][-1] if paragraphs[-1] else ""
        if page and (_ENDS_SENTENCE.search(before) or not _goes_on(page[0])):
            paragraphs.append([])
        for line in page:
            last = paragraphs[-1][-1] if paragraphs[-1] else ""
            is_short = len(last) < usual / 2 and _ENDS_SENTENCE.search(last)
            if not line or is_short or _BULLET.match(line):
                paragraphs.append([])
            if line:
                paragraphs[-1].append(line)
    words = Counter(_WORD.findall(text))
    return [_joined(lines, words, dropped) for lines in paragraphs if lines]


def _goes_on(line: str) -> bool:
    return not (line[0].isupper() or line[0].istitle())


def _trim(page: list[str]) -> None:
    while page and not page[0]:
        del page[0]
    while page and not page[-1]:
        del page[-1]


def _leave_edges_out(
    pages: Sequence[list[str]], is_bottom: bool, dropped: Counter[str]
) -> bool:
    """Leaves out each page's first or last line if it is a running one."""
    place = -1 if is_bottom else 0
    for page in pages:
        _trim(page)
    shapes = [_NUMBER.sub("#", page[place].lower()) if page else "" for page in pages]
    counts = Counter(shapes)
    found = False
    for page, shape in zip(pages, shapes, strict=True):
        is_number = _PAGE_NUMBER.fullmatch(shape) is not None
        least = _LEAST_NUMBERED_PAGES if is_number else _LEAST_PAGES
        if page and counts[shape] >= least:
            reason = PAGE_NUMBERS if is_number else RUNNING_LINES
            drop(dropped, reason, characters=len(page.pop(place)))
            found = True
    return found


def _joined(lines: Sequence[str], words: Counter[str], dropped: Counter[str]) -> str:
    text = lines[0]
    for line in lines[1:]:
        hyphen = _HYPHEN.search(text)
        if not hyphen or not line[0].isalnum():
            is_wide = _NO_SPACE.fullmatch(f"{text[-1]}\n{line[0]}")
            text += line if is_wide else f" {line}"
            continue
        before = _WORD.findall(text[: hyphen.start()])[-1]
        after = _WORD.findall(line)[0]
        is_written_so = words[f"{before}-{after}"] and not words[before + after]
        if hyphen.group() == _SOFT_HYPHEN or (line[0].islower() and not is_written_so):
            text = text[: hyphen.start()]
            drop(dropped, HYPHENS, characters=1)
        text += line
    return text
