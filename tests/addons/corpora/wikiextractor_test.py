from bert_tf.base.errors import InputError
from tests.text.documents_test import ReaderTestCase

ARTICLES = """\
<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Tea">
Tea

Tea is a drink. It is hot.

Dr. Tea likes it.
Section::::History.
BULLET::::- green
BULLET::::1. black
The end.


</doc>
<doc id="13" revid="7" url="u" title="A &amp; "B"">
A &amp; "B"

A &lt;b&gt; c &amp;lt; d.
Tea

</doc>
<doc id="14" url="u" title="Redirect">
Redirect

</doc>
<doc id="15" url="u" title="Ünïcode">
No title line 語.
Ünïcode

</doc>
"""

EXPECTED = [
    [],
    *(["Tea is a drink.", "It is hot."], ["Dr. Tea likes it."], ["The end."], []),
    *(["A <b> c &lt; d."], ["Tea"], []),
    *(["No title line 語."], ["Ünïcode"], []),
]


class WikiextractorTest(ReaderTestCase):
    name = "wiki_00"

    def test_text_passages_alone_whatever_the_chunks(self):
        for chunk_bytes in range(1, len(ARTICLES.encode()) + 2):
            sentences, dropped = self.read(ARTICLES, chunk_bytes=chunk_bytes)
            self.assertEqual(sentences, EXPECTED)
            counts = {"title lines": 3, "section headings": 1, "list items": 2}
            lengths = {"title lines": 22, "section headings": 19, "list items": 35}
            counts |= {f"characters of {what}": n for what, n in lengths.items()}
            self.assertEqual(dropped, counts | {"documents without text": 1})

    def test_text_outside_documents(self):
        for chunk_bytes in (1, 50, 10_000):
            options = {"chunk_bytes": chunk_bytes, "input_format": "wikiextractor"}
            with self.assertRaisesRegex(InputError, "wiki_00:31: text outside <doc"):
                self.read(ARTICLES + "\nlost\n", chunk_bytes=chunk_bytes)
            with self.assertRaisesRegex(InputError, "wiki_00:1: text outside <doc"):
                self.read("lost\n" + ARTICLES, **options)

    def test_documents_without_an_end(self):
        begin = ARTICLES.index("</doc>\n")
        within = ARTICLES[:begin] + ARTICLES[begin + len("</doc>\n") :]
        for chunk_bytes in (1, 50, 10_000):
            with self.assertRaisesRegex(InputError, "wiki_00:1: this <doc .*no </doc>"):
                self.read(within, chunk_bytes=chunk_bytes)
            with self.assertRaisesRegex(InputError, "wiki_00:25: this <doc .*cut off"):
                self.read(ARTICLES.removesuffix("</doc>\n"), chunk_bytes=chunk_bytes)
