from collections import Counter

from bert_tf.addons.corpora.pdf import paragraphs_of_pdf
from bert_tf.base.errors import InputError
from bert_tf.text.documents import read_chunk
from bert_tf.text.sources import make_chunks
from tests.script_case import FolderCase

# As pdftotext writes pages, with a running header whose number changes, a title on
# even pages, and numbers below.
BOOK = """\
A HISTORY OF TEA 11

Tea came to the west by sea. The \ufb01rst mer-
chants sold it as a medicine, a well-known
rem-
edy of the time.

The Anglo-
Saxon world took to it later, in the years 1650-
1700, and drank it in coffee
-
- 1 -
\fThe Leaves

houses. Two things are needed:
• leaves of the plant, picked by hand and
dried in the sun
• water

Short end.
This is a new paragraph, for the line before it ends soon.

- 2 -
\fA HISTORY OF TEA 13

A well-
known saying has it that tea is natu\u00ad
ral.
– It is.

- 3 -
\fA HISTORY OF TEA 14

The Leaves
are green.

- 4 -
\f"""

PARAGRAPHS = [
    "Tea came to the west by sea. The first merchants sold it as a medicine, a"
    " well-known remedy of the time.",
    "The Anglo-Saxon world took to it later, in the years 1650-1700, and drank it in"
    " coffee - houses. Two things are needed:",
    "• leaves of the plant, picked by hand and dried in the sun",
    "• water",
    "Short end.",
    "This is a new paragraph, for the line before it ends soon.",
    "A well-known saying has it that tea is natural.",
    "– It is.",
    "The Leaves are green.",
]


class PdfTest(FolderCase):
    def cleaned(self, text):
        dropped = Counter()
        return paragraphs_of_pdf(text, dropped), dropped

    def test_a_book(self):
        text = BOOK.replace("\fThe Leaves\n\nhouses", "\fhouses")
        paragraphs, dropped = self.cleaned(text)
        self.assertEqual(paragraphs, PARAGRAPHS)
        self.assertEqual(
            dropped,
            {
                "page numbers": 4,
                "characters of page numbers": 4 * len("- 1 -"),
                "running headers and footers": 3,
                "characters of running headers and footers": 3 * 19,
                "hyphens at line ends": 3,
                "characters of hyphens at line ends": 3,
            },
        )

    def test_what_stands_on_two_pages_is_text(self):
        pages = ["Tea\nis hot.", "Tea\nis cold.", "Coffee\nis black."]
        paragraphs, dropped = self.cleaned("\f".join(pages))
        self.assertEqual(
            paragraphs, ["Tea is hot.", "Tea is cold.", "Coffee is black."]
        )
        self.assertEmpty(dropped)

    def test_page_numbers_of_many_kinds(self):
        for first, second in (
            ("1", "2"),
            ("xi", "xii"),
            ("Page 9", "Page 10"),
            ("Page 1 of 2", "Page 2 of 2"),
            ("3/90", "4/90"),
            ("[ 7 ]", "[ 8 ]"),
        ):
            paragraphs, dropped = self.cleaned(f"Tea\n{first}\n\fis hot.\n\n{second}\n")
            self.assertEqual(paragraphs, ["Tea is hot."], first)
            self.assertEqual(dropped["page numbers"], 2)
        for first, second in (
            ("1.5", "2.5"),
            ("3 May 1999", "4 May 1999"),
            ("I am", ""),
        ):
            paragraphs, dropped = self.cleaned(f"Tea\n{first}\n\fIs hot.\n{second}\n")
            self.assertLen(
                " ".join(paragraphs).split(), 3 + len(f"{first} {second}".split())
            )
            self.assertEmpty(dropped)

    def test_without_form_feeds_no_line_is_left_out(self):
        text = "Tea\n1\n\nis\n2\n\nhot\n3\n\n"
        self.assertEqual(self.cleaned(text), (["Tea 1", "is 2", "hot 3"], {}))
        self.assertEqual(self.cleaned("")[0], [])
        self.assertEqual(self.cleaned("\f\n\f")[0], [])

    def test_scripts_without_spaces(self):
        self.assertEqual(
            self.cleaned("茶は熱\nい飲み物\nTea")[0], ["茶は熱い飲み物 Tea"]
        )

    def test_a_text_file_is_a_document_and_an_object_one(self):
        dropped = Counter()
        paths = [
            self.write("a.txt", "Tea is\nhot. It is\n\ngreen."),
            self.write("b.jsonl", '{"text": "Cof-\\nfee is\\nblack.", "title": "x"}\n'),
        ]
        chunks = make_chunks(paths, clean="pdf", chunk_bytes=3)
        lines = [list(x.sentences) for c in chunks for x in read_chunk(c, dropped)]
        self.assertEqual(
            lines,
            [
                [],
                ["Tea is hot.", "It is"],
                ["green."],
                [],
                [],
                ["Coffee is black."],
                [],
            ],
        )
        wiki = self.write("wiki_00", '<doc id="1" title="T">\nT\n</doc>\n')
        with self.assertRaisesRegex(InputError, "wiki_00: `clean=pdf` is for text ex"):
            make_chunks([wiki], clean="pdf")

    def test_text_that_looks_like_it_gets_a_hint(self):
        hyphens = BOOK.replace("\f", "")
        paths = [self.write("1.txt", BOOK), self.write("2.txt", hyphens)]
        plain = self.write("3.txt", "Pre- and post-war\nmer- chants\n- a\n" * 99)
        with self.assertLogs("absl", "WARNING") as logs:
            make_chunks([*paths, plain])
        (message,) = logs.output
        self.assertRegex(message, "1.txt and 1 more: form feeds, .* `clean=pdf` joins")
        with self.assertNoLogs("absl", "WARNING"):
            make_chunks([plain])
            make_chunks([self.write("image.png", b"\x89PNG\0" + BOOK.encode())])
            make_chunks(paths, clean="pdf")
