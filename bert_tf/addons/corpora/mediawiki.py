"""MediaWiki's XML dumps (pages-articles.xml) to documents, one per article.

Pages of the main namespace are read, without redirects. mwparserfromhell parses their
wikitext, whose text passages are kept (Devlin et al. 2018, section 3.1):

- A paragraph ends at a blank line, a heading, a list or a table; its other line ends
  are spaces, as MediaWiki shows them.
- A link is its label, an external one too. Bold, italics and tags are their content.
- Templates, tables, references, list items, headings, files, categories, formulas,
  preformatted lines and the like are left out, and counted. Parentheses in which
  nothing else stood go with them.

Two things are done before the parser, which would get them wrong: elements that hide
markup, such as <nowiki>, and apostrophes, which MediaWiki converts to bold and italics
line by line.
"""

import html
import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.parsers import expat

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.text.documents import drop

if TYPE_CHECKING:
    from bert_tf.text.documents import FileSource

# A namespace's number and name; articles have none.
_NAMESPACE = re.compile(r'<namespace key="(-?\d+)"[^>/]*>([^<]*)<')
_FILE, _CATEGORY = 6, 14
# Names that each wiki has in addition to its own.
_NAMESPACES = {"media": -2, "file": _FILE, "image": _FILE, "category": _CATEGORY}
_FILES = "files and images"
_SHOW_NO_TEXT = {_FILE: _FILES, _CATEGORY: "categories"}
_FILE_NAME = re.compile(
    r"[^:]+:[^:]+\.(djvu|flac|gif|jpe?g|mid|mp3|og[agv]|opus|pdf|png|svg|tiff?|wav|web[mp])",
    re.IGNORECASE,
)
_LANGUAGE = re.compile(r"([a-z]{2,3}(-[a-z-]+)?|simple):\S.*")
_BOXES = """
    categorytree gallery graph hiero imagemap includeonly indicator inputbox mapframe
    maplink pre score source style syntaxhighlight templatedata templatestyles timeline
"""
# Elements that hide markup, and are left out.
_HIDDEN = {
    "ref": "references",
    "references": "references",
    "math": "formulas",
    "chem": "formulas",
    "ce": "formulas",
    **dict.fromkeys(_BOXES.split(), "galleries, code and other boxes"),
}
_TAGS = {
    **_HIDDEN,
    "table": "tables",
    **dict.fromkeys(("ul", "ol", "dl", "li", "dd", "dt"), "list items"),
}
_BLOCKS = {"blockquote", "center", "div", "p", "poem"}
_CODE = {"code", "kbd", "samp", "tt", "var"}
_INLINE = """
    abbr b bdi bdo big cite data del dfn em font i ins mark noinclude nowiki onlyinclude
    q ref rp rt ruby s section small span strike strong sub sup time u wbr
"""

# Characters that no text has, which mark places until the lines are known. The last one
# marks markup that shows nothing but separates its neighbours.
_LIST, _SPACE, _GAP, _NOTHING = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
# Marks for characters that could be markup but are text.
_MARKUP = "'[]{}|=<>*#:;_-!~"
_TO_MARKS = {ord(each): 0xFDD4 + n for n, each in enumerate(_MARKUP)}
_FROM_MARKS = {mark: each for each, mark in _TO_MARKS.items()}
_PLACES = re.compile(f"[{_LIST}-{_GAP}]")
_UNSEEN = re.compile(f"[{_LIST}{_SPACE}{_NOTHING}]")
_MARKS = re.compile("[\ufdd0-\ufdef]")
_EMPTY_PARENTHESES = re.compile(
    rf"\s*\((?=[^()]*{_GAP})[\s,;:/–—{_GAP}-]*\)|\s*（(?=[^（）]*{_GAP})[\s，；、{_GAP}]*）"
)
_FIRST_IN_PARENTHESES = re.compile(rf"([(（]){_GAP}[\s,;，；、{_GAP}]*")
_BEFORE_PUNCTUATION = re.compile(rf"\s*{_GAP}[\s{_GAP}]*(?=[,.;:!?)），。；])")
_BETWEEN_SPACES = re.compile(rf"(?:(?<=\s)|^)[\s{_GAP}]*{_GAP}\s*")
_BROKEN_TABLE = ("{|", "|")
_WITHOUT_TEXT = "text outside text passages"

_COMMENT = r"<!--(?>.*?(?:-->|\Z))"
_HIDING = re.compile(
    rf"(?P<line>(?<=\n)[ \t]*+(?:{_COMMENT}[ \t]*+)++(?:\n|\Z))|(?:{_COMMENT})++"
    rf"|<(?P<tag>nowiki|{'|'.join(_HIDDEN)})(?:[\s/][^<>]*)?>",
    re.IGNORECASE | re.DOTALL,
)
_REFERENCE = re.compile(r"<ref\b[^<>]*(?<!/)>", re.IGNORECASE)
_TEMPLATE = re.compile(r"\{\{\{[^{}]*\}\}\}|\{\{[^{}]*\}\}")
_APOSTROPHES = re.compile("('{2,})")
_ADDRESS = re.compile(r"(\[(?:[a-z]+:)?//[^\s\[\]<>'\"]*)(?='')", re.IGNORECASE)
# Tags without their other half, which the parser takes for text.
_LEFT_TAG = re.compile(
    rf"</?(?:(?P<block>{'|'.join(_BLOCKS)})|(?P<line>[bh]r)"
    rf"|{'|'.join([*_CODE, *_INLINE.split()])})(?:[\s/][^<>\n]*)?>",
    re.IGNORECASE,
)
_LEFT_MARK = re.compile(r"\[\[|\]\]|\{\{|\}\}")
_NOT_CLOSED = "marks of links and templates that are not closed"
_SWITCH = re.compile(
    r"__((FORCE|NO)?TOC|NOEDITSECTION|(NO)?NEWSECTIONLINK|NOGALLERY|HIDDENCAT|DISAMBIG"
    r"|NO(CONTENTCONVERT|CC|TITLECONVERT|TC)|(NO)?INDEX|STATICREDIRECT)__|^__\w+__$",
    re.MULTILINE,
)


def is_dump(beginning: bytes) -> bool:
    """Whether a file begins as a dump does."""
    is_xml = beginning.startswith((b"<mediawiki", b"<?xml", b"<!--"))
    return is_xml and b"<mediawiki" in beginning[:16384]


def require_parser() -> None:
    """Raises InputError if the parser of wikitext is not installed."""
    if importlib.util.find_spec("mwparserfromhell") is None:
        raise InputError(
            "MediaWiki's dumps need mwparserfromhell: pip install 'bert-tf[wiki]'"
        )


def read_mediawiki(
    source: "FileSource", start: int, stop: int | None, dropped: Counter[str]
) -> Iterator[list[str]]:
    """Yields the paragraphs of each article."""
    # It fetches no external entities, and expat limits what others grow to.
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    first = root = None
    is_last = stop is None
    try:
        for block in source.read(start, stop, _page_border):
            if first is None:
                first = block.offset
                head = next(source.read(0, None, _page_border)).data
                namespaces = _namespaces(head[: 1 << 20].decode("utf-8", "replace"))
                parser.feed(b"<mediawiki>" if first else b"")
            parser.feed(block.data)
            if stop is not None:  # the dump may end without a further page
                is_last = block.offset + len(block.data) == files.size(source.path)
            for event, element in parser.read_events():
                root = element if root is None else root
                if event == "end" and element.tag.rpartition("}")[2] == "page":
                    text = _wikitext(element, namespaces, dropped)
                    root.clear()
                    if text is not None:
                        yield paragraphs_of_wikitext(text, dropped, namespaces)
        if first is not None:
            parser.feed(b"" if is_last else b"</mediawiki>")
            parser.close()
    except ElementTree.ParseError as error:
        raise InputError(
            f"{source.place(first or 0, error.position[0] - 1)}: not the XML of a dump"
            f" ({expat.ErrorString(error.code)}); if it was cut off, download it again."
        ) from error


def _page_border(line: bytes) -> int | None:
    return 0 if line.strip() == b"<page>" else None


def _namespaces(head: str) -> dict[str, int]:
    """Returns the numbers of a wiki's namespaces, by their names in lower case."""
    found = _NAMESPACE.findall(head)
    return _NAMESPACES | {html.unescape(name).lower(): int(n) for n, name in found}


def _namespace(title: str, namespaces: Mapping[str, int]) -> int | None:
    """Returns the number of the namespace that a title begins with, if any."""
    name, colon, _ = title.partition(":")
    name = name.strip().replace("_", " ").lower()
    return namespaces.get(name) if colon and name else None


def _wikitext(
    page: ElementTree.Element, namespaces: Mapping[str, int], dropped: Counter[str]
) -> str | None:
    """Returns the text of a page if it is an article."""
    prefix = page.tag.removesuffix("page")  # XML's namespace
    # The last revision, and of it the main slot.
    revision = page.findall(f"{prefix}revision")[-1:]
    children = [*page, *(child for one in revision for child in one)]
    values = {each.tag.removeprefix(prefix): each.text for each in children}
    number = values.get("ns")  # the format has it from version 0.6 on
    if number is None:
        number = str(_namespace(values.get("title") or "", namespaces) or 0)
    if number != "0":
        drop(dropped, "pages of other namespaces")
    elif "redirect" in values:
        drop(dropped, "redirects")
    elif values.get("model", "wikitext") != "wikitext":
        drop(dropped, "pages that are not wikitext")
    else:
        return values.get("text") or ""
    return None


def paragraphs_of_wikitext(
    text: str, dropped: Counter[str], namespaces: Mapping[str, int] | None = None
) -> list[str]:
    """Yields an article's text passages; `namespaces` by their names in lower case."""
    import mwparserfromhell

    text = _without_hidden("\n" + _MARKS.sub("", text), dropped)
    text = _without_simple_templates(text, dropped)
    text = "\n".join(map(_without_apostrophes, text.split("\n")))
    try:
        code = mwparserfromhell.parse(text, skip_style_tags=True)
    except mwparserfromhell.parser.ParserError:
        drop(dropped, "pages that the parser cannot read", characters=len(text))
        return []
    rendered = _Renderer(dropped, namespaces or _NAMESPACES).render(code.nodes)
    rendered = _SWITCH.sub(_GAP, _LEFT_TAG.sub(_instead_of_tag, rendered))
    paragraphs: list[str] = []
    lines: list[str] = []
    for line in [*rendered.split("\n"), ""]:
        plain = _MARKS.sub("", line.translate(_FROM_MARKS)).strip()
        reason = ""
        if line.lstrip().startswith(_LIST):
            reason = "list items"
        elif _PLACES.sub("", line).lstrip().startswith(_BROKEN_TABLE):
            reason = "tables"
        elif plain and line.startswith(_SPACE):
            reason = "preformatted lines"
        if plain and not reason:
            lines.append(line)
            continue
        if plain:
            drop(dropped, reason, characters=len(plain))
        elif _GAP in line:
            continue  # a line with nothing else ends no paragraph
        if lines:
            paragraph = _tidy(" ".join(lines), dropped)
            if any(map(str.isalnum, paragraph)):
                paragraphs.append(paragraph)
            elif paragraph:
                drop(dropped, _WITHOUT_TEXT, characters=len(paragraph))
        lines = []
    return paragraphs


def _without_hidden(text: str, dropped: Counter[str]) -> str:
    """Removes elements that hide markup, in their order; <nowiki> becomes text."""
    kept: list[str] = []
    place = 0
    not_closed: set[str] = set()
    while found := _HIDING.search(text, place):
        start, end = found.span()
        kept.append(text[place:start])
        place = end
        tag, content = (found["tag"] or "").lower(), ""
        if tag and not found[0].endswith("/>"):
            last = None
            if tag not in not_closed:
                last = re.compile(rf"</{tag}\s*>", re.IGNORECASE).search(text, end)
            if last is None:
                not_closed.add(tag)
                continue
            if tag == "ref" and _REFERENCE.search(text, end, last.start()):
                continue  # it is the end of a later one
            content = text[end : last.start()]
            place = last.end()
        if tag == "nowiki":
            kept += [_NOTHING, _as_text(html.unescape(content)), _NOTHING]
            continue
        drop(dropped, _HIDDEN.get(tag, "comments"), characters=place - start)
        # Markup after a comment may be the first in its line.
        kept.append(_GAP if tag or text[start - 1] != "\n" else "")
    return "".join([*kept, text[place:]])


def _as_text(text: str) -> str:
    """Returns text without the characters of markup."""
    return _MARKS.sub("", text).translate(_TO_MARKS)


def _without_simple_templates(text: str, dropped: Counter[str]) -> str:
    """Removes templates that are simple to find and slow to parse."""
    found = 1
    while found:  # a template within another one comes first
        num_characters = len(text)
        text, found = _TEMPLATE.subn(_GAP, text)
        num_characters -= len(text) - found
        if found:
            drop(dropped, "templates", found, characters=num_characters)
    return text


def _without_apostrophes(line: str) -> str:
    """Removes apostrophes of bold and italics, found as by MediaWiki's `doQuotes`."""
    if "''" not in line:
        return line
    # Text, apostrophes, text, ...; they end an address.
    parts = _APOSTROPHES.split(_ADDRESS.sub(r"\1 ", line))
    sizes = [min(len(each), 5) if len(each) != 4 else 3 for each in parts[1::2]]
    parts[1::2] = [
        each[size:] + _NOTHING for each, size in zip(parts[1::2], sizes, strict=True)
    ]
    num_italics = sum(size != 3 for size in sizes)
    num_bold = sum(size != 2 for size in sizes)
    if num_italics % 2 and num_bold % 2:
        # One that looked bold is an apostrophe and italics: the first behind a word of
        # one letter, else behind a longer one, else behind a space.
        before = {
            2 * n: parts[2 * n] + parts[2 * n + 1].removesuffix(_NOTHING)
            for n, size in enumerate(sizes)
            if size == 3
        }
        if before:
            parts[min(before, key=lambda n: _lateness(before[n]))] += "'"
    return "".join(parts)


def _lateness(before: str) -> int:
    """Rank of the place after this text in the search for an apostrophe."""
    if before.endswith(" "):
        return 2
    return 0 if before[-2:-1] == " " else 1


def _instead_of_tag(tag: re.Match[str]) -> str:
    if tag["block"]:
        return "\n\n"
    return " " if tag["line"] else ""


def _tidy(text: str, dropped: Counter[str]) -> str:
    text, num_left = _LEFT_MARK.subn("", _UNSEEN.sub("", text))
    if num_left:
        drop(dropped, _NOT_CLOSED, num_left, characters=2 * num_left)
    before = ""
    while _GAP in text and before != text:  # parentheses may be in others
        before, text = text, _EMPTY_PARENTHESES.sub(_GAP, text)
    if _GAP in text:
        text = _FIRST_IN_PARENTHESES.sub(r"\1", text)
        text = _BEFORE_PUNCTUATION.sub("", text)
        text = _BETWEEN_SPACES.sub("", text).replace(_GAP, "")
    return " ".join(text.translate(_FROM_MARKS).split())


class _Renderer:
    """Converts wikitext to lines, with marks for what is left out."""

    def __init__(self, dropped: Counter[str], namespaces: Mapping[str, int]) -> None:
        from mwparserfromhell import nodes

        self._dropped = dropped
        self._namespaces = namespaces
        self._by_type = {
            nodes.Text: self._text,
            nodes.Wikilink: self._link,
            nodes.ExternalLink: self._external_link,
            nodes.Tag: self._tag,
            nodes.HTMLEntity: lambda node: _as_text(node.normalize()),
            nodes.Heading: lambda node: self._left_out(
                node, "section headings", "\n\n"
            ),
            **dict.fromkeys(
                (nodes.Template, nodes.Argument, nodes.Comment),
                lambda node: self._left_out(node, "templates"),
            ),
        }

    def render(self, found: Iterable[Any]) -> str:
        """Returns the lines of some nodes."""
        return "".join([self._by_type[type(node)](node) for node in found])

    def _left_out(self, node: Any, reason: str, mark: str = _GAP) -> str:
        drop(self._dropped, reason, characters=len(str(node)))
        return mark

    def _text(self, node: Any) -> str:
        return str(node.value).replace("\n ", f"\n{_SPACE} ")

    def _link(self, node: Any) -> str:
        title = str(node.title).strip()
        namespace = _namespace(title, self._namespaces)
        reason = None if namespace is None else _SHOW_NO_TEXT.get(namespace)
        if namespace is None and _FILE_NAME.fullmatch(title):
            reason = _FILES
        elif node.text is None and _LANGUAGE.fullmatch(title):
            reason = "links to other languages"
        if reason:
            return self._left_out(node, reason)
        shown = node.title if node.text is None else node.text
        return self.render(shown.nodes).removeprefix(":" if node.text is None else "")

    def _external_link(self, node: Any) -> str:
        if node.title is not None:
            return self.render(node.title.nodes)
        return self._left_out(node, "addresses") if node.brackets else str(node.url)

    def _tag(self, node: Any) -> str:
        name = str(node.tag).strip().lower()
        if node.wiki_markup and name in ("li", "dd", "dt"):
            return _LIST
        if name in ("br", "hr"):
            return " " if name == "br" else "\n\n"
        if reason := _TAGS.get(name):
            return self._left_out(node, reason, "\n\n" if name == "table" else _GAP)
        content = self.render(node.contents.nodes) if node.contents else ""
        if name in _CODE:
            return content.translate(_TO_MARKS)
        return f"\n\n{content}\n\n" if name in _BLOCKS else content
