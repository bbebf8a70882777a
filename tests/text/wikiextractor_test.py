"""wikiextractor's files: documents, what is left out, errors."""

import html
import os
import tempfile
from collections import Counter

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.text.readers import read_chunk
from bert_tf.text.sources import make_chunks

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


class WikiextractorTest(tf.test.TestCase):
    def write(self, content, name="wiki_00"):
        path = os.path.join(tempfile.mkdtemp(dir=self.get_temp_dir()), name)
        with open(path, "wb") as file:
            file.write(content.encode())
        return path

    def read(self, content, **kwargs):
        dropped = Counter()
        lines = [
            line
            for chunk in make_chunks([self.write(content)], **kwargs)
            for line in read_chunk(chunk, dropped)
        ]
        return [list(line.sentences) for line in lines], dropped, lines

    def test_text_passages_alone_whatever_the_chunks(self):
        for chunk_bytes in range(1, len(ARTICLES.encode()) + 2):
            sentences, dropped, lines = self.read(ARTICLES, chunk_bytes=chunk_bytes)
            self.assertEqual(sentences, EXPECTED)
            self.assertEqual(
                dropped,
                {
                    "title lines": 3,
                    "section headings": 1,
                    "list items": 2,
                    "documents without text": 1,
                },
            )
            self.assertEqual(lines[1].text, "Tea is a drink. It is hot.")

    def test_windows_line_ends_and_a_byte_order_mark(self):
        content = "\ufeff" + ARTICLES.replace("\n", "\r\n")
        for chunk_bytes in (1, 100, 10_000):
            self.assertEqual(self.read(content, chunk_bytes=chunk_bytes)[0], EXPECTED)

    def test_without_splitting_a_paragraph_is_one_sentence(self):
        self.assertEqual(
            self.read(ARTICLES, split_sentences=False)[0][1],
            ["Tea is a drink. It is hot."],
        )

    def test_lines_like_titles_and_headers(self):
        article = '<doc id="1" title="Echo">\nEcho\n\nEcho\n<doc of it.\nEcho\n</doc>\n'
        for chunk_bytes in (1, 1000):
            sentences, dropped, _ = self.read(article, chunk_bytes=chunk_bytes)
            self.assertEqual(sentences, [[], ["Echo"], ["<doc of it."], ["Echo"], []])
            self.assertEqual(dropped, {"title lines": 1})

    def test_articles_longer_than_a_block(self):
        paragraph = "Word & word. " * 1000
        article = f'<doc id="1" title="T">\nT\n\n{html.escape(paragraph)}\n'
        content = (article + f"{paragraph}\n\n" * 200 + "</doc>\n") * 2
        for chunk_bytes in (100_000, 1 << 30):
            sentences, dropped, lines = self.read(content, chunk_bytes=chunk_bytes)
            document = [["Word & word."] * 1000] * 201
            self.assertEqual(sentences, [[], *document, [], *document, []])
            self.assertEqual(dropped, {"title lines": 2})
            self.assertLessEqual(
                sum(line.num_bytes for line in lines), len(content.encode())
            )

    def test_text_outside_documents(self):
        for chunk_bytes in (1, 50, 10_000):
            with self.assertRaisesRegex(InputError, "wiki_00:31: text outside <doc"):
                self.read(ARTICLES + "\nlost\n", chunk_bytes=chunk_bytes)
            with self.assertRaisesRegex(InputError, "wiki_00:1: text outside <doc"):
                self.read(
                    "lost\n" + ARTICLES,
                    chunk_bytes=chunk_bytes,
                    input_format="wikiextractor",
                )

    def test_documents_without_an_end(self):
        begin = ARTICLES.index("</doc>\n")
        within = ARTICLES[:begin] + ARTICLES[begin + len("</doc>\n") :]
        for chunk_bytes in (1, 50, 10_000):
            with self.assertRaisesRegex(InputError, "wiki_00:1: this <doc .*no </doc>"):
                self.read(within, chunk_bytes=chunk_bytes)
            with self.assertRaisesRegex(InputError, "wiki_00:25: this <doc .*cut off"):
                self.read(ARTICLES.removesuffix("</doc>\n"), chunk_bytes=chunk_bytes)

    def test_an_end_of_no_document(self):
        with self.assertRaisesRegex(InputError, "wiki_00:30: text outside"):
            self.read(ARTICLES + "</doc>\n")


if __name__ == "__main__":
    tf.test.main()
