"""TensorFlow Datasets: a dataset made here, in its slices."""

import pickle
import tempfile
from collections import Counter
from typing import ClassVar

import tensorflow as tf
import tensorflow_datasets as tfds

from bert_tf.base.errors import InputError
from bert_tf.base.tfds_rows import TfdsRows
from bert_tf.text.documents import read_chunk
from bert_tf.text.tfds import make_tfds_chunks
from tests.tasks.tfds_sets import MadeHere, TinyRows, mocked

NUM_TRAIN, NUM_TEST = 60, 3


class TinyArticles(MadeHere):
    """Articles by number; number 4 is empty."""

    VERSION = tfds.core.Version("1.2.3")
    SIZES: ClassVar = {"train": NUM_TRAIN, "test": NUM_TEST}
    FEATURES: ClassVar = {
        **dict.fromkeys(("text", "title"), tfds.features.Text()),
        "number": tf.int64,
    }

    @staticmethod
    def row(number):
        text = f"Document {number}. Second é.\n\n More.\n" if number != 4 else " \n"
        return {"text": text, "title": f"T{number}", "number": number}


class UnreachableArticles(TinyArticles):
    """A dataset whose server does not answer."""

    def _split_generators(self, dl_manager):
        raise ConnectionError("no route to articles.example\nand a second line")


class TfdsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.data_dir = tempfile.mkdtemp(dir=self.get_temp_dir())
        tfds.disable_progress_bar()

    def chunks(self, name="tiny_articles", **kwargs):
        return make_tfds_chunks(name, data_dir=self.data_dir, **kwargs)

    def read(self, **kwargs):
        dropped = Counter()
        chunks = pickle.loads(pickle.dumps(self.chunks(**kwargs)))
        lines = [line for chunk in chunks for line in read_chunk(chunk, dropped)]
        return [list(line.sentences) for line in lines], dropped, lines

    def numbers(self, **kwargs):
        sentences = self.read(**kwargs)[0]
        return [int(found[0][9:-1]) for found in sentences if len(found) == 2]

    def test_examples_are_documents(self):
        sentences, dropped, _ = self.read(split="test")
        self.assertEqual(sentences[0], [])
        documents = [sentences[i : i + 3] for i in range(1, len(sentences), 3)]
        first = [[f"Document {number}.", "Second é."] for number in range(NUM_TEST)]
        self.assertCountEqual(documents, [[one, ["More."], []] for one in first])
        self.assertEqual(dropped, {})

    def test_the_order_does_not_depend_on_the_chunks(self):
        # Two shards, each longer than the blocks that the library would interleave.
        config = tfds.download.DownloadConfig(num_shards=2)
        TinyArticles(data_dir=self.data_dir).download_and_prepare(
            download_config=config
        )
        numbers = self.numbers()
        self.assertCountEqual(numbers, {*range(NUM_TRAIN)} - {4})
        for examples_per_chunk in (7, 59):
            size = {"examples_per_chunk": examples_per_chunk}
            self.assertLen(self.chunks(**size), -(-NUM_TRAIN // examples_per_chunk))
            self.assertEqual(self.numbers(**size), numbers)
        dropped = self.read(examples_per_chunk=5)[1]
        self.assertEqual(dropped, {"documents without text": 1})

    def test_slices(self):
        numbers = self.numbers()
        sliced = self.numbers(split="train[:10]") + self.numbers(split="train[10:]")
        self.assertEqual(sliced, numbers)
        both = self.chunks(split="train[57:]+test", examples_per_chunk=2)
        self.assertEqual(
            [(c.source.split, c.start, c.stop) for c in both],
            [("train", 57, 59), ("train", 59, 60), ("test", 0, 2), ("test", 2, 3)],
        )

    def test_sources_are_identified(self):
        whole = self.chunks()[0].source
        self.assertEqual(whole.path, "tfds:tiny_articles:1.2.3:train")
        self.assertEqual((whole.begin, whole.end), (0, NUM_TRAIN))
        part = self.chunks(split="train[5:7]")[0].source
        self.assertEqual(part.path, "tfds:tiny_articles:1.2.3:train[5:7]")
        self.assertEqual(part.end - part.begin, 2)
        self.assertNotEqual(part.sha256, whole.sha256)
        self.assertEqual(whole.sha256, self.chunks(language="de")[0].source.sha256)

    def test_other_fields_and_no_splitting(self):
        sentences = self.read(text_field="title", split="test")[0]
        self.assertCountEqual(sentences, [[], ["T0"], [], ["T1"], [], ["T2"], []])
        sentences = self.read(split="test", split_sentences=False)[0]
        self.assertIn(["Document 1. Second é."], sentences)

    def test_errors_are_one_line(self):
        for reason, arguments in (
            ("'nowhere': Dataset nowhere not found", {"name": "nowhere"}),
            ("cannot be loaded at version 9.9.9", {"name": "tiny_articles:9.9.9"}),
            ("Parsing builder name string", {"name": "tiny articles"}),
            ("no split 'dev'; it has: train, test", {"split": "dev"}),
            ("no split 'train\\[:99\\]'", {"split": "train[:99]"}),
            ("no text feature 'body'.*: text, title", {"text_field": "body"}),
            ("no text feature 'number'", {"text_field": "number"}),
            ("not prepared in .*: no route to", {"name": "unreachable_articles"}),
        ):
            with self.assertRaisesRegex(InputError, reason) as raised:
                self.chunks(**arguments)
            self.assertNotIn("\n", str(raised.exception))


class TfdsRowsTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tfds.disable_progress_bar()
        # One for all tests: the set is prepared once.
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())

    def read(self, split="train", features=None):
        rows = TfdsRows("tiny_rows", split, self.folder)
        wanted = dict.fromkeys(features or rows.features, True)
        if "answers" in wanted:
            wanted["answers"] = {"answer_start": True, "text": True}
        return [*rows.read(wanted)]

    def test_rows_are_plain_values(self):
        found = self.read()
        self.assertCountEqual([int(row.cells["id"]) for row in found], range(300))
        for place, one in enumerate(found):
            row = one.cells
            self.assertEqual(one.place, f"tfds:tiny_rows/1.0.0:train:{place}")
            self.assertEqual(row, TinyRows.row(int(row["id"])))
            self.assertIs(type(row["is_odd"]), bool)
            self.assertIs(type(row["score"]), float)

    def test_texts_that_are_not_utf8(self):
        values = {"id": b"1", "title": b"t", "question": b"Wo\xdf?", "context": b"c"}
        row = {**values, "answers": {"text": [], "answer_start": []}}
        with mocked([row]), self.assertRaisesRegex(
            InputError, r"^tfds:squad/v1.1/3.0.0:train:0: not UTF-8 \(byte 0xdf\)"
        ):  # fmt: skip
            [*TfdsRows("squad/v1.1", "train", None).read({"question": True})]
