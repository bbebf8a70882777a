from unittest import mock

from bert_tf.addons.teaching import small_data
from bert_tf.base.config import BertConfig
from tests.script_case import FolderCase


class SmallDataTest(FolderCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.documents = small_data.small_documents()

    def setUp(self):
        super().setUp()
        self.enter_context(
            mock.patch.object(small_data, "small_documents", lambda: self.documents)
        )

    def test_text_and_config(self):
        small_data.write_text(self.path("text"))
        config = BertConfig.from_json_file(self.path("text", "bert_config.json"))
        self.assertEqual((config.vocab_size, config.num_hidden_layers), (2000, 2))
        documents = self.read("text", "text.txt").split("\n\n")
        self.assertGreater(len(documents), 200)

    def test_sst2(self):
        small_data.write_sst2(self.path("glue"))
        for name, count in (("train", 1000), ("dev", 250), ("test", 1821)):
            header, *rows = self.read("glue", "SST-2", f"{name}.tsv").splitlines()
            self.assertLen(rows, count)
            self.assertEqual({row.count("\t") for row in [header, *rows]}, {1})

    def test_squad(self):
        unread = small_data.write_squad(self.path("squad"))
        for version, of_each in (("v1.1", 2), ("v2.0", 3)):
            for split, count in (("train", 500), ("dev", 100)):
                (article,) = self.read_json("squad", f"{split}-{version}.json")["data"]
                self.assertLen(article["paragraphs"], count)
                for paragraph in article["paragraphs"]:
                    self.assertNotEqual(paragraph["context"], unread)
                    self.assertLen(paragraph["qas"], of_each)
                    for question in paragraph["qas"]:
                        self.assertEqual(
                            question["is_impossible"], not question["answers"]
                        )
                        for answer in question["answers"]:
                            start = answer["answer_start"]
                            found = paragraph["context"][start:][: len(answer["text"])]
                            self.assertEqual(found, answer["text"])

    def test_sentences_and_tagged_words(self):
        small_data.write_sentences(self.path("sentences.txt"))
        self.assertLen(self.read("sentences.txt").splitlines(), 300)
        small_data.write_tagged(self.path("tagged.conll"))
        lines = self.read("tagged.conll").splitlines()
        self.assertContainsSubset(
            ["def keyword", "__init__ called", "self name", "( op"], lines
        )
        self.assertTrue(all(len(line.split(" ")) == 2 for line in lines if line))
