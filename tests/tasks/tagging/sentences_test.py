import bz2
import gzip
import json

import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.base.tfds_rows import TfdsRows
from bert_tf.tasks.tagging.sentences import Layout, read_sentences, read_tfds
from tests.script_case import FolderCase
from tests.tasks.tfds_sets import mocked


class SentencesTestCase(FolderCase):
    name = "file.txt"

    def write(self, text, name=None):
        name = name or self.name
        data = text.encode() if isinstance(text, str) else text
        return super().write(name, gzip.compress(data) if name[-3:] == ".gz" else data)

    def read(self, text, *, name=None, has_labels=True, **layout):
        paths = [self.write(text, name)]
        return read_sentences(paths, Layout(**layout), has_labels=has_labels)


# As CoNLL-2003's files are: a document's line has as many columns as a word's.
CONLL = """\
-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

# NN I-NP O

-DOCSTART- -X- O O

東\xa0京 NNP I-NP I-LOC
"""


class ReaderTest(SentencesTestCase):
    def test_columns(self):
        found = self.read("\ufeff" + CONLL.replace("\n", "\r\n"))
        self.assertEqual(
            [(one.words, one.labels, one.document) for one in found],
            [
                (("EU", "rejects"), ("I-ORG", "O"), 0),
                (("#",), ("O",), 0),
                (("東\xa0京",), ("I-LOC",), 1),
            ],
        )
        self.assertEndsWith(found[1].source, "file.txt:6")
        self.assertEqual(found[0].rows, ("EU NNP I-NP I-ORG", "rejects VBZ I-VP O"))
        self.assertEqual(found[2].before, ("", "-DOCSTART- -X- O O", ""))

    def test_other_columns_and_files(self):
        text = "1\tEr \tPPER\tO\n2\tlebt\tVV\tO\n\n\n\n1\tJa\tADV\tO\n"
        found = self.read(
            bz2.compress(text.encode()), name="x.bz2", word_column="1", label_column="2"
        )
        self.assertEqual([one.words for one in found], [("Er", "lebt"), ("Ja",)])
        self.assertEqual(found[0].labels, ("PPER", "VV"))
        # A stray carriage return is none of a line's end.
        found = self.read("a O\r\nb\r O\r\n\r\nc O\r\n")
        self.assertEqual([one.words for one in found], [("a", "b"), ("c",)])
        # Of several files each is a document, and a sentence does not reach over.
        paths = [self.write("a O", "1"), self.write("b O\n", "2")]
        found = read_sentences(paths, Layout())
        self.assertEqual([one.document for one in found], [0, 1])
        self.assertEqual(found[1].before, ("",))

    def test_comments_in_front_of_sentences(self):
        for comment, document in (
            ("# id 4037ff98\tdomain=en", 0),  # MultiCoNER: as many columns as a word's
            ("#\thttp://example.com/a\t[2009-10-17]\tx", 0),  # GermEval
            ("# text = It is.", 0),
            ("#begin document (bc/cctv/00); part 000", 1),  # CoNLL-2012
            ("# newdoc id = b", 1),
            ("# a b", 0),
        ):
            first, second = "it _ _ O\n# _ _ O\n\n", "# NN I-NP O\n\n#end document\n"
            found = self.read(f"{comment}\n{first}{comment}\n{second}")
            words = [one.words for one in found]
            self.assertEqual(words, [("it", "#"), ("#",)], comment)
            documents = [one.document for one in found]
            self.assertEqual(documents, [0, document], comment)
            # Predictions have no line for them.
            self.assertEqual(found[1].before, ("",))
        # Words with # in them are words.
        words = ("#begin", "#id", "#a=b", "#id=1", "#http://a")
        found = self.read("".join(f"{word} O\n\n" for word in words))
        self.assertEqual([one.words for one in found], [(word,) for word in words])
        for width in (1, 5):
            columns = " ".join(["O"] * width)
            text = "# newdoc id = a\n# sent_id = 1\n# newpar\n# text = a b c d e f\n"
            found = self.read(f"{text}it {columns}\n\n# newdoc\n# {columns}\n")
            self.assertEqual([one.words for one in found], [("it",), ("#",)])
            self.assertEqual([one.document for one in found], [0, 1])
        # Words alone.
        found = self.read("# NN\n1 CD\n\n# NN\n", has_labels=None)
        self.assertEqual([one.words for one in found], [("#", "1"), ("#",)])
        (found,) = self.read("# NN\n")
        self.assertEqual(found.words, ("#",))

    def test_lines_behind_a_files_last_sentence(self):
        for after in ((), ("",), ("", "")):
            paths = [self.write(CONLL + "\n" * len(after), "1"), self.write(CONLL, "2")]
            found = read_sentences(paths, Layout())
            self.assertEqual(found[2].after, after)
            before = found[3].before
            self.assertEqual(before, ("-DOCSTART- -X- O O", ""))
            self.assertEqual([one.document for one in found], [0, 0, 1, 2, 2, 3])

    def test_columns_without_labels(self):
        self.assertIsNone(self.read("a\nb\n\nc\n", has_labels=None)[0].labels)
        (found,) = self.read("a DT\nb NN\n", has_labels=False)
        self.assertIsNone(found.labels)
        self.assertEqual(found.rows, ("a DT", "b NN"))
        self.assertEqual(self.read("a DT\n", has_labels=None)[0].labels, ("DT",))

    def test_tabs_separate_where_cells_have_blanks(self):
        text = "the\tX\tO\n10 000\tY\tB-a b\n\n# c d\nwe\tX\tO\n"
        found = self.read(text)
        self.assertEqual([one.words for one in found], [("the", "10 000"), ("we",)])
        self.assertEqual(found[0].labels, ("O", "B-a_b"))
        self.assertEqual(found[0].rows, ("the X O", "10_000 Y B-a_b"))
        # Blanks and tabs mixed are as before, and so are labels that are not nested.
        found = self.read("a X\tI-A|x\nb\tY  O\n")
        self.assertEqual(found[0].labels, ("I-A|x", "O"))

    def test_json_lines(self):
        rows = [
            {"tokens": ["a b", ""], "ner_tags": ["O", "B-X"], "document_id": 7},
            {"tokens": ["c"], "ner_tags": ["O"], "document_id": 7},
            {"tokens": [], "ner_tags": [], "document_id": 8},
            {"tokens": ["d"], "ner_tags": ["O"], "document_id": 9},
        ]
        text = "\n".join(map(json.dumps, rows))
        found = self.read(text, name="x.jsonl")
        self.assertEqual([one.document for one in found], [0, 0, 1])
        self.assertEqual(found[0].words, ("a b", ""))
        # In columns no white space and nothing empty.
        self.assertEqual(found[0].rows, ("a_b O", "_ B-X"))
        # What says no document is not of the next one's.
        names = ("x", None, None, "y", "y")
        rows = [{"tokens": ["a"], "document_id": name} for name in names]
        text = "\n".join(map(json.dumps, rows))
        found = self.read(text, name="x.jsonl", has_labels=False)
        self.assertEqual([one.document for one in found], [0, 1, 1, 2, 2])
        numbers = json.dumps({"text": ["a", "b"], "pos": [1, 0]})
        columns = {"word_column": "text", "label_column": "pos"}
        (found,) = self.read(numbers, format="jsonl", labels=("nn", "vb"), **columns)
        self.assertEqual(found.labels, ("vb", "nn"))
        # UTF-8 cannot hold halves of characters.
        (found,) = self.read('{"words": ["\\ud83d"]}', name="x.json", has_labels=None)
        self.assertEqual(found.words, ("\ufffd",))
        (found,) = self.read('{"words": ["a"]}', name="x.json", has_labels=None)
        self.assertIsNone(found.labels)

    def test_what_is_wrong_is_named_with_its_line(self):
        json_lines = {"format": "jsonl"}
        number = '{"tokens": ["a"], "ner_tags": [2]}'
        for text, layout, message in (
            ("a O\nb\n", {}, ":2: 1 columns, but line 1, the first word's, has 2"),
            ("#end\na O\n", {}, ":1: 1 columns, but line 2, the first word's, has"),
            ("a\n", {}, ":1: 1 columns.*`label_column`"),
            ("a O\n", {"word_column": "4"}, ":1: `word_column=4`: no such column"),
            (
                "a O\n",
                {"label_column": "ner"},
                ":1: `label_column=ner`: no such column",
            ),
            ("\n\n", {}, "no sentence"),
            ("{]", json_lines, ":1: it must be one JSON object on one line: Exp"),
            ("3", json_lines, ":1: it must be a JSON object with words"),
            ('{"x": 1}', json_lines, "tokens or words must be a list.*are: x"),
            ('{"tokens": "a"}', json_lines, "must be a list"),
            ('{"tokens": [1]}', json_lines, "words must be text"),
            ('{"tokens": ["a"], "ner_tags": []}', json_lines, "1 words, but 0 labels"),
            (number, json_lines, "a number that `labels="),
            (number, json_lines | {"labels": ("O",)}, "name for, from 0. Received: 2"),
            (b"\xff O\n", {}, ":1: not UTF-8"),
            ("a O\nb B-A|I-B\n", {}, ":1: 'B-A|I-B' combines several"),
            ("a O\n\nb B-A+O\n", {}, ":3: 'B-A.O' combines several"),
            ('{"words": ["a"], "tags": ["O|I-B"]}', json_lines, ":1: 'O|I-B' is sev"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.read(text, **layout)
        with self.assertRaisesRegex(InputError, "No such file of tagged words"):
            read_sentences(["nowhere"], Layout())
        paths = [self.write("a O\n", "1"), self.write("b\n", "2")]
        with self.assertRaisesRegex(InputError, "1 of 2 sentences have no labels"):
            read_sentences(paths, Layout(), has_labels=None)


def conll2003(*rows):
    """Rows with the set's other features, which are not asked for."""
    return [{**row, "chunks": row["ner"], "pos": row["ner"]} for row in rows]


class LibrarysSetTest(tf.test.TestCase):
    def test_conll2003(self):
        rows = (
            {"tokens": ["EU", "rejects", "it"], "ner": [3, 0, 0]},
            {"tokens": [], "ner": []},
            {"tokens": ["東京"], "ner": [5]},
        )
        with mocked(conll2003(*rows)):
            split = TfdsRows("conll2003", "train", None)
            found = read_tfds(split, Layout())
            bare = read_tfds(split, Layout(), has_labels=False)
        self.assertEqual(
            [(one.words, one.labels) for one in found],
            [(("EU", "rejects", "it"), ("B-ORG", "O", "O")), (("東京",), ("B-LOC",))],
        )
        self.assertEqual(found[1].source, "tfds:conll2003/conll2003/1.0.0:train:2")
        self.assertIsNone(bare[0].labels)

    def test_what_cannot_be_read(self):
        for row, message in (
            ({"tokens": [b"a\xff"], "ner": [0]}, ":train:0: not UTF-8 .byte 0xff"),
            (
                {"tokens": ["a"], "ner": [-1]},
                "a number that `labels=.*` .* Received: -1",
            ),
            ({"tokens": ["a"], "ner": [0, 0]}, "1 words, but 2 labels"),
            ({"tokens": [], "ner": []}, "no sentences"),
        ):
            with mocked(conll2003(row)), self.assertRaisesRegex(InputError, message):
                read_tfds(TfdsRows("conll2003", "train", None), Layout())
