import os

from bert_tf.base.errors import InputError
from bert_tf.conversion.reading import Reading, of_flags, read_reading
from bert_tf.conversion.source import open_reading
from bert_tf.conversion.tokenizer_files import TrainedWords
from tests.script_case import FolderCase


class ReadingTest(FolderCase):
    def test_of_an_earlier_runs_flags(self):
        flags = {
            "learning_rate": 1e-4,
            "max_seq_length": 64,
            "long_text": "window",
            "window_pooling": "max",
            "doc_stride": None,
            "text_a_column": "review",
            "text_b_column": None,
            "ending_columns": ["one", "other"],
            "labels": ["no", "yes"],
            "task_name": "SST-2",
            "tfds_name": None,
        }
        expected = Reading(
            max_seq_length=64,
            long_text="window",
            window_pooling="max",
            columns={"text_a_column": "review", "ending_columns": ["one", "other"]},
            labels=("no", "yes"),
            data_set="SST-2",
        )
        self.assertEqual(of_flags(flags), expected)
        self.write("run/flags.json", flags)
        self.assertEqual(read_reading(self.path("run")), expected)
        with self.assertRaisesRegex(InputError, '"max_seq_length" must be an integer'):
            of_flags({"max_seq_length": "64"})

    def test_the_file_goes_before_the_flags(self):
        folder = self.folder("run")
        self.write("run/flags.json", {"max_seq_length": 64})
        reading = Reading(max_seq_length=32, null_score_diff_threshold=-1.5)
        reading.write(folder)
        self.assertEqual(
            self.read_json("run", "reading.json"),
            {"max_seq_length": 32, "null_score_diff_threshold": -1.5},
        )
        self.assertEqual(read_reading(folder), reading)
        self.write("run/words.json", {"longest": 3})
        self.assertEqual(read_reading(folder).words, TrainedWords(longest=3))
        for content, message in (
            ({"later": 1}, "Unknown: later"),
            ({"pooling": 3}, '"pooling" must be a string'),
            ({"doc_stride": 0}, "at least 1. Received: 0"),
        ):
            self.write("run/reading.json", content)
            with self.assertRaisesRegex(InputError, message):
                read_reading(folder)

    def test_nothing_is_known_of_another_folder(self):
        Reading().write(self.folder("other"))
        self.assertEqual(os.listdir(self.path("other")), [])
        self.assertEqual(read_reading(self.path("other")), Reading())
        self.assertEqual(Reading().length(512), 512)
        self.assertEqual(Reading().length(64, default=128), 64)
        self.assertEqual(Reading(max_seq_length=32).length(64, default=128), 32)

    def test_of_sentence_transformers(self):
        kinds = "Transformer", "Pooling", "Normalize"
        modules = [
            {"path": f"{number}_{kind}", "type": f"sentence_transformers.models.{kind}"}
            for number, kind in enumerate(kinds)
        ]
        self.write("them/modules.json", modules)
        self.write("them/1_Pooling/config.json", {"pooling_mode_cls_token": True})
        length = {"max_seq_length": 256}
        self.write("them/0_Transformer/sentence_bert_config.json", length)
        expected = Reading(max_seq_length=256, pooling="cls", normalize=True)
        self.assertEqual(open_reading(self.path("them")), expected)
