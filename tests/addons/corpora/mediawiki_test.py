import bz2
import importlib.util
import random
import unittest
from collections import Counter
from unittest import mock
from xml.sax.saxutils import escape

from bert_tf.base.errors import InputError
from bert_tf.text.documents import read_chunk
from bert_tf.text.sources import make_chunks
from tests.script_case import FolderCase

HEAD = """\
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="de">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <namespaces>
      <namespace key="-2" case="first-letter">Medium</namespace>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Diskussion</namespace>
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>
  </siteinfo>
"""
SENTENCE = "the cat sat on Tea & mat's naïve 3 < 4 Größe water, green. end (of it) a-b"
WORDS = f"{SENTENCE} «so» 語 well; known: it's".split()

# Text within a line -> how it is written in wikitext.
SPELLINGS = (
    "[[{0}]]",
    "[[Some page#part|{0}]]",
    "[[:Kategorie:Tea|{0}]]",
    "[[wikt:x|{0}]]",
    "[[a|''{0}'']]",
    "''{0}''",
    "'''{0}'''",
    "'''''{0}'''''",
    "<small>{0}</small>",
    '<span style="x: y">[[{0}]]</span>',
    "[http://a.org/x?y=z {0}]",
    "<nowiki>{0}</nowiki>",
    "{0}<ref>A. {{{{cite|x=[[y]]|z={{{{w}}}}}}}} B.</ref>",
    '{0}<ref name="a" />',
    "{0}{{{{sfn|A|2000|p=3}}}}",
    "{0}<!-- no [[link -->",
    "{0} {{{{IPA|x|{{{{y|z}}}}}}}}",
    "{0} ({{{{lang|de|x}}}}; {{{{IPA|y}}}})",
    "{0} <math>x < y_{{1}}</math>",
    "{0} [[Datei:X.jpg|thumb|A [[caption]] of ''it'']]",
    "{0} [http://a.org]",
)

# What is no text passage, alone in its lines.
BLOCKS = (
    "== History ==",
    "=== [[Tea]] ===",
    "* one ''two''\n** three [[four]]\n# five\n: six\n; seven : eight",
    '{| class="wikitable"\n! head\n|-\n| cell || [[cell]]\n|-\n|\n{| \n| inner\n|}\n|}',
    "<table><tr><td>cell</td></tr></table>",
    "<gallery>\nFile:X.jpg|A caption\n</gallery>",
    "[[Datei:X.jpg|mini|Some ''caption'']]",
    "[[File:X.jpg]]",
    "[[Kategorie:Tea]]\n[[Category:Tea|*]]",
    "[[fr:Thé]]\n[[zh-min-nan:Tê]]",
    "{{Infobox\n| name = Tea\n| text = A [[link]].\n\n Another.\n}}",
    "{{Main|Tea}}",
    "<references />",
    '<references>\n<ref name="a">A.</ref>\n</references>',
    '<syntaxhighlight lang="c">\nint main() {}\n</syntaxhighlight>',
    " preformatted\n  lines",
    "----",
    "__NOTOC__",
    "<!--\n\nA comment.\n\n-->",
    "<ul>\n<li>one</li>\n</ul>",
    '<math display="block">\nx\n</math>',
)


class Generator:
    """Articles: their wikitext, and the paragraphs that it was made from."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def paragraph(self):
        """A paragraph and its markup."""
        words = ["Tea", *self.random.choices(WORDS, k=self.random.randint(5, 40))]
        written = []
        for word in words:
            spelled = word.replace("&", "&amp;").replace("<", "&lt;")
            if self.random.random() < 0.3 and word.isalnum():
                spelled = self.random.choice(SPELLINGS).format(spelled)
            written.append(spelled)
        text = written[0]
        for word in written[1:]:
            text += self.random.choice([" "] * 9 + ["&nbsp;", "\n"]) + word
        return " ".join(words), text

    def article(self):
        """Paragraphs, and wikitext."""
        parts = []
        paragraphs = []
        for _ in range(self.random.randint(1, 12)):
            if self.random.random() < 0.5:
                parts.append(self.random.choice(BLOCKS))
                continue
            paragraph, text = self.paragraph()
            paragraphs.append(paragraph)
            quote = (
                "<blockquote>{}</blockquote>" if self.random.random() < 0.1 else "{}"
            )
            parts.append(quote.format(text))
        return paragraphs, "\n\n".join(parts)


def page(text, ns=0, extra="", model="wikitext"):
    return (
        f"  <page>\n    <title>T &amp; T</title>\n    <ns>{ns}</ns>\n    <id>1</id>\n"
        f"{extra}    <revision>\n      <id>2</id>\n      <contributor><username>A"
        f"</username></contributor>\n      <model>{model}</model>\n"
        f'      <text bytes="3" xml:space="preserve">{escape(text)}</text>\n'
        "    </revision>\n  </page>\n"
    )


def dump(*pages):
    return (HEAD + "".join(pages) + "</mediawiki>\n").encode()


@unittest.skipUnless(importlib.util.find_spec("mwparserfromhell"), "the extra `wiki`")
class MediaWikiTest(FolderCase):
    def articles(self, content, name="x.xml", **kwargs):
        """The articles' paragraphs, and what was left out."""
        path = self.write(name, content)
        dropped = Counter()
        found = [[]]
        for chunk in make_chunks([path], **kwargs):
            for line in read_chunk(chunk, dropped):
                found[-1].append(line.text) if line.text else found.append([])
        return [each for each in found if each], dropped

    def paragraphs(self, text):
        """An article's paragraphs, of wikitext."""
        (found,), dropped = self.articles(dump(page(text)))
        return found, dropped

    def test_generated_articles_give_the_text_that_they_were_made_from(self):
        generator = Generator(1)
        made = [generator.article() for _ in range(300)]
        content = dump(*[page(text) for _, text in made])
        expected = [paragraphs for paragraphs, _ in made if paragraphs]
        found, dropped = self.articles(bz2.compress(content), "x.xml.bz2")
        self.assertLen(found, len(expected))
        pairs = [
            (mine, theirs)
            for mines, theirses in zip(found, expected, strict=True)
            for mine, theirs in zip(mines, theirses, strict=True)
        ]
        self.assertGreater(len(pairs), 900)
        self.assertEqual([mine for mine, _ in pairs], [theirs for _, theirs in pairs])
        for reason in (
            *("templates", "tables", "references", "list items", "section headings"),
            *("files and images", "categories", "links to other languages", "formulas"),
            *("comments", "preformatted lines", "galleries, code and other boxes"),
        ):
            self.assertGreater(dropped[reason], 5, reason)

    def test_the_same_whatever_the_chunks(self):
        generator = Generator(2)
        content = dump(*[page(generator.article()[1]) for _ in range(30)])
        expected = self.articles(content)
        for chunk_bytes in (100, 1000, 3333):
            self.assertEqual(self.articles(content, chunk_bytes=chunk_bytes), expected)
        self.assertEqual(
            self.articles(content.decode().encode("utf-16"), encoding="auto"), expected
        )

    def test_only_articles(self):
        redirect = '    <redirect title="x" />\n'
        content = dump(
            page("One."),
            page("No.", ns=1),
            page("#REDIRECT [[x]]", extra=redirect),
            page("{}", model="json"),
            page(""),
            page("Two."),
        )
        found, dropped = self.articles(content)
        self.assertEqual(found, [["One."], ["Two."]])
        self.assertEqual(
            dropped,
            {
                "pages of other namespaces": 1,
                "redirects": 1,
                "pages that are not wikitext": 1,
                "documents without text": 1,
            },
        )

    def test_what_templates_leave_behind(self):
        for text, expected in (
            ("'''Tea''' ({{IPA|x}}) is hot.", "Tea is hot."),
            ("Tea ({{IPA|x}}, Japanese 茶) is.", "Tea (Japanese 茶) is."),
            ("Tea (born {{date|1}}) is.", "Tea (born) is."),
            ("{{Coord|1}} Tea is.", "Tea is."),
            ("Tea{{cn}}, {{x}} is {{y}}.", "Tea, is."),
            ("Tea ; is () .", "Tea ; is () ."),
            ("Tea is\n{{clear}}\nhot.", "Tea is hot."),
            ("l'''Iliade'' is.\n''Unbalanced", "l'Iliade is. Unbalanced"),
            ("Tea {{unclosed|x is hot", "Tea unclosed|x is hot"),
        ):
            self.assertEqual(self.paragraphs(text)[0], [expected])

    def test_text_is_what_mediawiki_shows(self):
        hiding = [
            ("<math>{{x</math>", "<math>y}}</math>", "", ""),
            ("<pre><!--</pre>", "<pre>--></pre>", "", ""),
            ("<source>\n<ref></source>", "<ref>x</ref>", "", ""),
        ]
        for pair in (("{{", "}}"), ("<!--", "-->"), ("<ref>", "</ref>")):
            written = [f"<nowiki>{each}</nowiki>" for each in pair]
            hiding.append((*written, *(f" {each}" for each in pair)))
        for text, *expected in (
            # Apostrophes belong to their line.
            ("''Titanic'''s crew.\n\n'''A''' b.", "Titanic's crew.", "A b."),
            ("''Hamlet'''s ''Ophelia'' is.", "Hamlet's Ophelia is."),
            ("'''T''' x. Dans ''A'', l'''arbre'' vert.", "T x. Dans A, l'arbre vert."),
            ("In ''Time'''s '''B''' c, '''''d'' ef''' g.", "In Time's B c, d ef g."),
            ("Ab''' c''' d''' ''e.", "Ab c' d e."),
            ("''''A'''' b, '''''c''' d''.\n\n''''''e.", "'A' b, c d.", "'e."),
            ("'''''A b.", "A b."),
            ("f&#39;&#39;(x) is <nowiki>''y''</nowiki>.", "f''(x) is ''y''."),
            # What begins a line in bold or behind <nowiki/> is no markup.
            *(
                (f"{a}{x} is{b}.\n\nC.", f"{x} is.", "C.")
                for x in ("#Me", "*N", ":W:", "; d", "|x|", "== x ==", "__init__")
                for a, b in (("'''", "'''"), ("<nowiki/>", ""))
            ),
            ("''' A''' b.", "A b."),
            ("''A''<nowiki/>'s and ''B''<nowiki></nowiki>'s c.", "A's and B's c."),
            ("A (<!-- x -->; b) is <!-- c -->, d (<!-- y -->).", "A (b) is, d."),
            ("[[commons:File:A.jpg|A]] b, [http://x.org''C''] d.", "A b, C d."),
            ("A &#xFDD5; b &#xFDD0; c<nowiki>&#xFDD5;</nowiki>.", "A b c."),
            # What hides markup.
            *(
                (f"A {one} b.\n\nC.\n\nD {two} e.", f"A{x} b.", "C.", f"D{y} e.")
                for one, two, x, y in hiding
            ),
            ("A <nowiki>{{x}} &amp; [[y]]</nowiki> b.", "A {{x}} & [[y]] b."),
            ("A{{x|<nowiki>}}</nowiki>|y}}s<nowiki/> b.<ref/>", "As b."),
            ("<!-- x -->== H ==\nA b.\n<!-- x --> <!-- y -->\nc.", "A b. c."),
            ("<!-- x -->* a\nA b.<!-- not closed\n\nC.", "A b."),
            # Titles that look like links to other languages; files by other names.
            ("See [[CSI: NY]], [[Re:Zero]].\n[[be-tarask:X]]", "See CSI: NY, Re:Zero."),
            ("[[Bild:a.JPG|thumb|[[y]]]] A [[Media:x.ogg|b]].", "A b."),
            # Tags without their other half.
            ("A <small>b.\n\n<p>C.\n</div>\nD </span>e.", "A b.", "C.", "D e."),
            ("A <ref name=x> b.\n\nC<ref>d</ref> <br/ >e.", "A b.", "C e."),
            # Characters that are no markup.
            ("<code>a[b[0]]</code>, x__INIT__.", "a[b[0]], x__INIT__."),
            ("__KEIN_INHALTSVERZEICHNIS__\nA b. __NOTOC__", "A b."),
            ("A ({{IPA|x}} ({{y}})), b （{{x}}、{{y}}） c.", "A, b c."),
        ):
            self.assertEqual(self.paragraphs(text)[0], expected, text)
        _, dropped = self.paragraphs("A [[b. C}} d.")
        self.assertEqual(dropped["marks of links and templates that are not closed"], 2)

    def test_dumps_of_other_versions(self):
        titles = ("A", "A: b", "Diskussion:A", "File:A")
        old = (
            "<page>\n<title>{}</title>\n<revision><text>A b.</text></revision>\n"
            "</page>\n"
        )
        found, dropped = self.articles(dump(*map(old.format, titles)))
        self.assertEqual(found, [["A b."]] * 2)
        self.assertEqual(dropped, {"pages of other namespaces": 2})
        slot = "<content><model>json</model><text>{}</text></content>\n    </revision>"
        with_slot = page("A b.").replace("    </revision>", slot)
        self.assertEqual(self.articles(dump(with_slot))[0], [["A b."]])
        two = page("C.").replace("    <revision>", "<revision/>\n    <revision>")
        found, _ = self.articles(b"<!-- a copy -->\n" + dump(two))
        self.assertEqual(found, [["C."]])

    def test_a_dump_that_was_cut_between_pages(self):
        content = dump(page("One."), page("Two."))[: -len("</mediawiki>\n")]
        for chunk_bytes in (len(content) - 10, 300, 1 << 20):
            with self.assertRaisesRegex(InputError, "no element found"):
                self.articles(content, chunk_bytes=chunk_bytes)

    def test_what_is_wrong_names_the_place(self):
        good = dump(page("One."), page("Two."))
        for content, message in (
            (good[: good.index(b"Two")], r"x.xml:31: .* dump \(no element found"),
            (good[: -len("</mediawiki>\n")], r"x.xml:34: .* dump \(no element found"),
            (good.replace(b"One.", b"One & two"), r"x.xml:20: .* dump \(not well-f"),
            (
                b'<?xml version="1.0"?>\n'
                b'<!DOCTYPE mediawiki [<!ENTITY b SYSTEM "file:///etc/passwd">]>\n'
                + good.replace(b"One.", b"&b;"),
                r"x.xml:22: .* \(undefined entity",
            ),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.articles(content)
            if b"One & two" in content:
                with self.assertRaisesRegex(InputError, message):
                    self.articles(content, chunk_bytes=300)

    def test_without_the_parser(self):
        path = self.write("x.xml", dump())
        with (
            mock.patch.dict("sys.modules", mwparserfromhell=None),
            self.assertRaisesRegex(InputError, "need mwparserfromhell: pip install"),
        ):
            make_chunks([path])
