"""MediaWiki's XML dumps (pages-articles.xml) to documents, one per article.

Pages of the main namespace are read, without redirects. Of their wikitext, which
mwparserfromhell parses, the text passages are kept (Devlin et al. 2018, section 3.1):

- A paragraph ends at a blank line, a heading, a list or a table; its other line ends
  are spaces, as MediaWiki shows them.
- A link is its label, an external one too. Bold, italics and tags are their content.
- Templates, tables, references, list items, headings, files, categories, formulas,
  preformatted lines and the like are left out, and counted. Parentheses in which
  nothing else stood go with them.
"""

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Protocol
from xml.parsers import expat

from bert_tf.base.errors import InputError
from bert_tf.text import blocks
from bert_tf.text.dropped import drop

_FILE, _CATEGORY = "6", "14"  # the numbers of namespaces
_NAMESPACE = re.compile(r'<namespace key="(-?\d+)"[^>/]*>([^<]*)<')
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z-]+)?|simple")
_ALIASES = {_FILE: ("file", "image"), _CATEGORY: ("category",)}
_WITHOUT_TEXT = "text outside text passages"
_BOXES = """
    categorytree gallery graph hiero imagemap includeonly indicator inputbox mapframe
    maplink pre score source style syntaxhighlight templatestyles timeline
"""
_TAGS = {
    "ref": "references",
    "references": "references",
    "table": "tables",
    "math": "formulas",
    "chem": "formulas",
    "ce": "formulas",
    **dict.fromkeys(("ul", "ol", "dl", "li", "dd", "dt"), "list items"),
    **dict.fromkeys(_BOXES.split(), "galleries, code and other boxes"),
}
_BLOCKS = {"blockquote", "center", "div", "p", "poem"}

# Characters for private use, which mark places until the lines are known.
_LIST, _SPACE, _GAP = "\ue000", "\ue001", "\ue002"
_MARKS = re.compile(f"[{_LIST}-{_GAP}]")
_EMPTY_PARENTHESES = re.compile(
    rf"\s*\((?=[^()]*{_GAP})[\s,;:/–—{_GAP}-]*\)|\s*（(?=[^（）]*{_GAP})[\s，；{_GAP}]*）"
)
_FIRST_IN_PARENTHESES = re.compile(rf"([(（]){_GAP}[\s,;{_GAP}]*")
_BEFORE_PUNCTUATION = re.compile(rf"\s*{_GAP}[\s{_GAP}]*(?=[,.;:!?)），。；])")
_BETWEEN_SPACES = re.compile(rf"(?:(?<=\s)|^)[\s{_GAP}]*{_GAP}\s*")
_LEFT_MARKUP = re.compile(r"'{2,}|__[A-Z]+__|\[\[|\]\]|\{\{|\}\}")
_BROKEN_TABLE = ("{|", "|")


_SIMPLE = (
    (re.compile(r"<!--.*?-->", re.S), "comments"),
    (re.compile(r"<ref\b[^<>]*/>", re.I), "references"),
    (re.compile(r"<ref\b[^<>]*>(?:(?!<ref\b).)*?</ref>", re.I | re.S), "references"),
    (re.compile(r"\{\{\{[^{}]*\}\}\}|\{\{[^{}]*\}\}"), "templates"),
)


class _Source(Protocol):
    def read(
        self, start: int, stop: int | None, border: blocks.Border
    ) -> Iterator[blocks.Block]: ...

    def place(self, offset: int, index: int) -> str: ...


def is_dump(beginning: bytes) -> bool:
    """Whether a file begins as a dump does."""
    return beginning.startswith((b"<mediawiki", b"<?xml")) and (
        b"<mediawiki" in beginning[:4096]
    )


def require_parser() -> None:
    """Raises InputError if the parser of wikitext is not installed."""
    try:
        import mwparserfromhell  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            "MediaWiki's dumps need mwparserfromhell: pip install 'bert-tf[wiki]'"
        ) from error


def read_mediawiki(
    source: _Source, start: int, stop: int | None, dropped: Counter[str]
) -> Iterator[list[str]]:
    """Yields the paragraphs of each article."""
    leave_out = None
    parser = _PageParser(dropped)
    first = None
    for block in source.read(start, stop, _page_border):
        if first is None:
            first = block
            head = next(source.read(0, None, _page_border)).data
            leave_out = _prefixes(head[: 1 << 20].decode("utf-8", "replace"))
        try:
            pages = parser.feed(block.data, is_first=block.offset == 0)
        except expat.ExpatError as error:
            place = source.place(first.offset, error.lineno - 1)
            raise InputError(f"{place}: not XML: {error}.") from error
        except _DoctypeError as error:
            raise InputError(
                f"{source.place(first.offset, 0)}: it declares a document type, which"
                " no dump does; it is not read."
            ) from error
        for text in pages:
            assert leave_out is not None
            yield paragraphs_of_wikitext(text, dropped, leave_out)
    if first is not None and parser.is_open(stop is None):
        raise InputError(
            f"{source.place(first.offset, 0)}: from here on there is a page, or a"
            " dump, without its end; the file may have been cut off: fetch it again."
        )


def _page_border(line: bytes) -> int | None:
    return 0 if line.strip() == b"<page>" else None


def _prefixes(head: str) -> dict[str, str]:
    """What links to files and categories begin with, by lower case."""
    reasons = {_FILE: "files and images", _CATEGORY: "categories"}
    found = {name: reasons[key] for key in reasons for name in _ALIASES[key]}
    for key, name in _NAMESPACE.findall(head):
        if key in reasons:
            found[html.unescape(name).lower()] = reasons[key]
    return found


class _DoctypeError(Exception):
    """XML that may define entities."""


class _PageParser:
    """XML in pieces to the wikitext of articles; see `read_mediawiki`."""

    def __init__(self, dropped: Counter[str]) -> None:
        self._dropped = dropped
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._data
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._stack: list[str] = []
        self._page: dict[str, str] = {}
        self._parts: list[str] = []
        self._found: list[str] = []
        self._has_begun = False

    def feed(self, data: bytes, *, is_first: bool) -> list[str]:
        """The articles that end in a piece."""
        if not self._has_begun and not is_first:
            self._parser.Parse(b"<mediawiki>")
        self._has_begun = True
        self._found = []
        self._parser.Parse(data)
        return self._found

    def is_open(self, at_end: bool) -> bool:
        """Whether a page has no end; at a file's end, whether the dump has none."""
        return len(self._stack) > (0 if at_end else 1)

    def _doctype(self, *_: Any) -> None:
        raise _DoctypeError

    def _start(self, name: str, _: dict[str, str]) -> None:
        self._stack.append(name)
        self._parts = []
        if name == "page":
            self._page = {}
        elif name == "redirect":
            self._page[name] = ""

    def _data(self, data: str) -> None:
        self._parts.append(data)

    def _end(self, name: str) -> None:
        self._stack.pop()
        if name in ("ns", "text", "model"):  # of several revisions, the last one's
            self._page[name] = "".join(self._parts)
        self._parts = []
        if name != "page":
            return
        page = self._page
        if page.get("ns", "0") != "0":
            drop(self._dropped, "pages of other namespaces")
        elif "redirect" in page:
            drop(self._dropped, "redirects")
        elif page.get("model", "wikitext") != "wikitext":
            drop(self._dropped, "pages that are not wikitext")
        else:
            self._found.append(page.get("text", ""))


def paragraphs_of_wikitext(
    text: str, dropped: Counter[str], leave_out: dict[str, str] | None = None
) -> list[str]:
    """The text passages of an article; `leave_out` as `_prefixes` has it."""
    import mwparserfromhell

    text = _without_simple_markup("\n" + _MARKS.sub("", text), dropped)
    try:
        code = mwparserfromhell.parse(text)
    except mwparserfromhell.parser.ParserError:
        drop(dropped, "pages that the parser cannot read", characters=len(text))
        return []
    rendered = _Renderer(dropped, leave_out or _prefixes("")).render(code.nodes)
    paragraphs: list[str] = []
    lines: list[str] = []
    for line in [*rendered.split("\n"), ""]:
        plain = _MARKS.sub("", line).strip()
        reason = ""
        if line.lstrip().startswith(_LIST):
            reason = "list items"
        elif plain.startswith(_BROKEN_TABLE):
            reason = "tables"
        elif plain and line.startswith(_SPACE):
            reason = "preformatted lines"
        if plain and not reason:
            lines.append(line)
            continue
        if plain:
            drop(dropped, reason, characters=len(plain))
        elif _GAP in line:
            continue  # what stood alone in a line ends no paragraph
        if lines:
            paragraph = _tidy(" ".join(lines))
            if any(map(str.isalnum, paragraph)):
                paragraphs.append(paragraph)
            elif paragraph:
                drop(dropped, _WITHOUT_TEXT, characters=len(paragraph))
        lines = []
    return paragraphs


def _without_simple_markup(text: str, dropped: Counter[str]) -> str:
    """Leaves out what is as simple to find as it is slow to parse: half of the text."""
    for pattern, reason in _SIMPLE:
        found = 1
        while found:  # a template within another one comes first
            num_characters = len(text)
            text, found = pattern.subn(_GAP, text)
            num_characters -= len(text) - found
            if found:
                drop(dropped, reason, found, characters=num_characters)
    return text


def _tidy(text: str) -> str:
    text = _LEFT_MARKUP.sub("", text.replace(_LIST, "").replace(_SPACE, ""))
    if _GAP in text:
        text = _EMPTY_PARENTHESES.sub(_GAP, text)
        text = _FIRST_IN_PARENTHESES.sub(r"\1", text)
        text = _BEFORE_PUNCTUATION.sub("", text)
        text = _BETWEEN_SPACES.sub("", text).replace(_GAP, "")
    return " ".join(text.split())


class _Renderer:
    """Wikitext to lines, with marks for what is left out."""

    def __init__(self, dropped: Counter[str], leave_out: dict[str, str]) -> None:
        from mwparserfromhell import nodes

        self._dropped = dropped
        self._leave_out = leave_out
        self._by_type = {
            nodes.Text: self._text,
            nodes.Wikilink: self._link,
            nodes.ExternalLink: self._external_link,
            nodes.Tag: self._tag,
            nodes.HTMLEntity: lambda node: node.normalize(),
            nodes.Heading: lambda node: self._left_out(
                node, "section headings", "\n\n"
            ),
            **dict.fromkeys(
                (nodes.Template, nodes.Argument, nodes.Comment),
                lambda node: self._left_out(node, "templates"),
            ),
        }

    def render(self, found: Iterable[Any]) -> str:
        """The lines of some nodes."""
        return "".join([self._by_type[type(node)](node) for node in found])

    def _left_out(self, node: Any, reason: str, mark: str = _GAP) -> str:
        drop(self._dropped, reason, characters=len(str(node)))
        return mark

    def _text(self, node: Any) -> str:
        return str(node.value).replace("\n ", f"\n{_SPACE} ")

    def _link(self, node: Any) -> str:
        title = str(node.title).strip()
        prefix, colon, _ = title.partition(":")
        prefix = prefix.strip().replace("_", " ").lower()
        if colon and prefix:
            if reason := self._leave_out.get(prefix):
                return self._left_out(node, reason)
            if node.text is None and _LANGUAGE.fullmatch(prefix):
                return self._left_out(node, "links to other languages")
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
        return f"\n\n{content}\n\n" if name in _BLOCKS else content
