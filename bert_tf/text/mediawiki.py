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
import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from bert_tf.base.errors import InputError
from bert_tf.text.dropped import drop

if TYPE_CHECKING:
    from bert_tf.text.documents import FileSource

# The namespaces of files and of categories.
_NAMESPACE = re.compile(r'<namespace key="(6|14)"[^>/]*>([^<]*)<')
_IMAGES = "files and images"
_PREFIXES = {"file": _IMAGES, "image": _IMAGES, "category": "categories"}
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z-]+)?|simple")
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
# What is found without parsing.
_SIMPLE = (
    (re.compile(r"<!--.*?-->", re.S), "comments"),
    (re.compile(r"<ref\b[^<>]*/>", re.I), "references"),
    (re.compile(r"<ref\b[^<>]*>(?:(?!<ref\b).)*?</ref>", re.I | re.S), "references"),
    (re.compile(r"\{\{\{[^{}]*\}\}\}|\{\{[^{}]*\}\}"), "templates"),
)


def is_dump(beginning: bytes) -> bool:
    """Whether a file begins as a dump does."""
    return beginning.startswith((b"<mediawiki", b"<?xml")) and (
        b"<mediawiki" in beginning[:4096]
    )


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
    end = b"</mediawiki>"
    try:
        for block in source.read(start, stop, _page_border):
            if first is None:
                first = block.offset
                head = next(source.read(0, None, _page_border)).data
                leave_out = _prefixes(head[: 1 << 20].decode("utf-8", "replace"))
                parser.feed(b"<mediawiki>" if first else b"")
            parser.feed(block.data)
            if stop is not None and block.data.rstrip().endswith(end):
                end = b""
            for event, element in parser.read_events():
                root = element if root is None else root
                if event == "end" and element.tag.rpartition("}")[2] == "page":
                    text = _wikitext(element, dropped)
                    root.clear()
                    if text is not None:
                        yield paragraphs_of_wikitext(text, dropped, leave_out)
        if first is not None:
            parser.feed(b"" if stop is None else end)
            parser.close()
    except ElementTree.ParseError as error:
        raise InputError(
            f"{source.place(first or 0, error.position[0] - 1)}: not the XML of a dump"
            f" ({error}); if it was cut off, download it again."
        ) from error


def _page_border(line: bytes) -> int | None:
    return 0 if line.strip() == b"<page>" else None


def _prefixes(head: str) -> dict[str, str]:
    """What links to files and categories begin with, by lower case."""
    return _PREFIXES | {
        html.unescape(name).lower(): _PREFIXES["file" if key == "6" else "category"]
        for key, name in _NAMESPACE.findall(head)
    }


def _wikitext(page: ElementTree.Element, dropped: Counter[str]) -> str | None:
    """The text of a page that is an article."""
    prefix = page.tag.removesuffix("page")  # a namespace
    values = {each.tag.removeprefix(prefix): each.text for each in page.iter()}
    if values.get("ns", "0") != "0":
        drop(dropped, "pages of other namespaces")
    elif "redirect" in values:
        drop(dropped, "redirects")
    elif values.get("model", "wikitext") != "wikitext":
        drop(dropped, "pages that are not wikitext")
    else:
        return values.get("text") or ""  # of several revisions, the last one's
    return None


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
