"""The script: the right tokens in the file, and a line for what is wrong."""

import json
import lzma
import os
from unittest import mock

from absl import logging

from bert_tf.base import cli, files
from bert_tf.base.errors import InputError
from bert_tf.records import learn_vocabulary
from bert_tf.text.learning import learn_vocabulary as learn
from bert_tf.text.sources import make_chunks
from tests.script_case import FolderCase

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARACTERS = [*"bghnpsu", *(f"##{char}" for char in "bghnpsu")]
# Worked by hand in tests/text/learning_test.py.
PIECES = ["##ug", "##un", "hug", "pun", "hugs", "pug", "bun"]
LINES = ["hug " * 10, "PUG " * 5, "pun " * 12, "bun " * 4, "hugs " * 5]

DOC = '<doc id="1" url="u" title="Zzz">\nZzz\n\n{}\n</doc>\n'


class LearnVocabularyTest(FolderCase):
    def tokens(self, name="vocab.txt"):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read().split("\n")[:-1]

    def run_script(self, *arguments, output="vocab.txt", vocab_size=26):
        output = f"--output_file={self.path(output)}"
        given = output, f"--vocab_size={vocab_size}", "--num_workers=1", *arguments
        learn_vocabulary.run(cli.parse(learn_vocabulary.run, given))

    def test_formats(self):
        text = "\n".join(LINES)
        inputs = {
            "text": self.write("a/hug.txt", text),
            "xz": self.write("a/hug.txt.xz", lzma.compress(text.encode())),
            "wiki": self.write("a/wiki_00", DOC.format(text)),
            "jsonl": self.write("a/hug.jsonl", json.dumps({"text": text})),
            "folder": os.path.dirname(self.write("b/c/hug.txt", text)),
        }
        for name, path in inputs.items():
            self.run_script(f"--input_file={path}", output=f"new/{name}.txt")
            self.assertEqual(
                self.tokens(f"new/{name}.txt"), [*SPECIAL, *CHARACTERS, *PIECES]
            )
        body = self.write("body.jsonl", json.dumps({"body": text}))
        self.run_script(f"--input_file={body}", "--text_field=body")
        self.assertEqual(self.tokens(), [*SPECIAL, *CHARACTERS, *PIECES])

    def test_tensorflow_datasets(self):
        chunks = make_chunks([self.write("in.txt", "\n".join(LINES))])
        with mock.patch(
            "bert_tf.text.tfds.make_tfds_chunks", return_value=chunks
        ) as make:
            self.run_script(
                "--tfds_name=wikipedia/20230601.en",
                "--tfds_split=train[:3]",
                "--tfds_data_dir=data",
                "--text_field=body",
            )
        make.assert_called_once_with(
            "wikipedia/20230601.en",
            split="train[:3]",
            text_field="body",
            data_dir="data",
            split_sentences=False,
            language="en",
            clean="none",
        )
        self.assertEqual(self.tokens(), [*SPECIAL, *CHARACTERS, *PIECES])

    def test_flags_reach_the_learner(self):
        lines = [f"Ab{'é' * (n % 3)} aB{n % 11}, ☃"[: 4 + n % 9] for n in range(300)]
        path = self.write("in.txt", "\n".join(lines))
        for flag, settings in (
            ("--do_lower_case=false", {"do_lower_case": False}),
            ("--num_unused=3", {"num_unused": 3}),
            ("--min_frequency=40", {"min_frequency": 40}),
            ("--character_coverage=0.8", {"character_coverage": 0.8}),
        ):
            # The last size is too large for the text.
            for size in (*range(12, 60, 6), 60):
                given = f"--input_file={path}", flag, "--overwrite"
                try:
                    wanted = list(learn(lines, vocab_size=size, **settings))
                except InputError as error:
                    with self.assertRaisesRegex(InputError, str(error)):
                        self.run_script(*given, vocab_size=size)
                    break
                self.run_script(*given, vocab_size=size)
                self.assertEqual(self.tokens(), wanted)
            else:
                self.fail("no size was too large")

    def test_same_command_again(self):
        text = self.write("in.txt", "\n".join(LINES))
        self.run_script(f"--input_file={text}")
        before = os.stat(self.path("vocab.txt")).st_mtime_ns
        with mock.patch.object(logging, "info") as info:
            # The pattern takes in the vocabulary too, which is no text.
            self.run_script(f"--input_file={self.path('*.txt')}")
        self.assertIn("All is done already", info.call_args.args[0])
        self.assertEqual(os.stat(self.path("vocab.txt")).st_mtime_ns, before)

        self.write("in.txt", "other words of other letters " * 9)
        with self.assertRaisesRegex(InputError, "another vocabulary"):
            self.run_script(f"--input_file={text}")
        self.assertEqual(os.stat(self.path("vocab.txt")).st_mtime_ns, before)
        self.run_script(f"--input_file={text}", "--overwrite")
        self.assertIn("##er", self.tokens())
        with self.assertRaisesRegex(InputError, "has only files"):
            self.run_script(f"--input_file={self.path('vocab.txt')}", "--overwrite")

    def test_refused_before_the_work(self):
        text = self.write("in.txt", "\n".join(LINES))
        given = f"--input_file={text}"
        with mock.patch("bert_tf.text.learning.count_words") as count:
            for content in (
                "a poem\n",
                "\n".join([*SPECIAL, "a\n"]),
                "[PAD]\nx\n" * 13,
            ):
                self.write("vocab.txt", content)
                with self.assertRaisesRegex(InputError, "another vocabulary, or none"):
                    self.run_script(given)
                self.assertEqual(files.read_text(self.path("vocab.txt")), content)
            for argument, options, message in (
                (given, {"output": ""}, "is a folder"),
                (given, {"output": "in.txt/vocab.txt"}, "a file is in its way"),
                (given, {"output": "x", "vocab_size": 5}, "must exceed the 5 "),
                ("--input_file=/no/such", {"output": "x"}, "no file matches"),
            ):
                with self.assertRaisesRegex(InputError, message):
                    self.run_script(argument, **options)
            count.assert_not_called()

    def test_text_that_is_no_use(self):
        for content, size, message in (
            ("\n \n", 26, "must have words"),
            (b"caf\xe9", 26, "in.txt:1: not UTF-8"),
            ("\n".join(LINES), 27, "at most 26"),
        ):
            path = self.write("in.txt", content)
            with self.assertRaisesRegex(InputError, message):
                self.run_script(f"--input_file={path}", vocab_size=size)
        self.assertFalse(os.path.exists(self.path("vocab.txt")))

    def test_what_is_left_out_is_said(self):
        rare = "".join(f"w{number}\n\n" for number in range(2000))
        text = self.write("in", DOC.format("\n".join(LINES) + "\n" + rare + "hug ☃"))
        with (
            mock.patch.object(logging, "info") as info,
            mock.patch.object(logging, "warning") as warning,
        ):
            self.run_script(
                f"--input_file={text}",
                "--max_words=1000",
                "--character_coverage=0.999",
                vocab_size=45,
            )
        said = [call.args[0] % call.args[1:] for call in info.call_args_list]
        self.assertIn("Dropped 1 (3 characters): title lines", said)
        # 36 words, then 2,000, then two.
        self.assertRegex(said[0], "Counted 2038 words, ")
        warned = warning.call_args.args[0] % warning.call_args.args[1:]
        self.assertRegex(warned, "more than `max_words=1000` .*: 2001 words, .* than 1")
        # Of 9,007 characters the rarest are b, 4 times, and the snowman of a word that
        # was forgotten; all but these are 99.9%. Then the word bun has no spelling.
        self.assertEqual(said[-2], "4 words (0.1963%) become [UNK]")
