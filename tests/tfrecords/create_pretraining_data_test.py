"""The script: the right records in the right files, and a line for what is wrong."""

import os
import subprocess
import sys
from unittest import mock

import tensorflow as tf
from absl import flags, logging

from bert_tf import cli
from bert_tf.errors import InputError
from bert_tf.records import writing
from bert_tf.records.manifest import Manifest, find_manifests
from bert_tf.records.writing import record_files
from bert_tf.text.vocabulary import Vocabulary
from tests.instances.plain_pretraining import plain_instances
from tfrecords import create_pretraining_data

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat"]
TOKENS += ["##s", "##ting", "on", "a", "mat", ".", "run", "##ning"]

# Words of one or two pieces, so that the plain implementation needs no tokenizer.
PIECES = {"cats": ["cat", "##s"], "dogs": ["dog", "##s"], "running": ["run", "##ning"]}

FIRST = "the cats sat on a mat .\nthe dogs sat .\n\nrunning dogs sat on cats .\n"
# Goes on with the first file's last document.
SECOND = "a cat .\n\nthe mat sat on a dog .\nthe dog sat .\ncats sat running .\n"

DEFAULTS = {
    "max_seq_length": 128,
    "max_predictions_per_seq": 20,
    "masked_lm_prob": 0.15,
    "short_seq_prob": 0.1,
    "dupe_factor": 10,
    "do_whole_word_mask": False,
    "random_seed": 12345,
}


def documents(text):
    return [
        [
            [piece for word in line.split() for piece in PIECES.get(word, [word])]
            for line in block.splitlines()
        ]
        for block in text.strip().split("\n\n")
    ]


class ScriptCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.vocabulary = self.write("vocab.txt", "".join(f"{t}\n" for t in TOKENS))
        self.input = ",".join([self.write("1.txt", FIRST), self.write("2.txt", SECOND)])

    def path(self, name):
        return os.path.join(self.get_temp_dir(), name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def run_script(self, **changes):
        values = {
            "input_file": self.input,
            "output_file": self.path("out.tfrecord"),
            "vocab_file": self.vocabulary,
            **changes,
        }
        arguments = [f"--{name}={value}" for name, value in values.items()]
        create_pretraining_data.run(cli.parse(create_pretraining_data.run, arguments))

    def features(self, path):
        return [
            {
                name: list(feature.int64_list.value or feature.float_list.value)
                for name, feature in tf.train.Example.FromString(
                    record.numpy()
                ).features.feature.items()
            }
            for record in tf.data.TFRecordDataset(path)
        ]

    def names(self):
        return sorted(
            name for name in os.listdir(self.get_temp_dir()) if name.startswith("out")
        )


class RecordsTest(ScriptCase):
    def assert_records(self, num_outputs=1, **changes):
        outputs = [self.path(f"out-{index}") for index in range(num_outputs)]
        self.run_script(output_file=",".join(outputs), overwrite=True, **changes)
        settings = {**DEFAULTS, **changes}
        expected = plain_instances(documents(FIRST + SECOND), TOKENS, settings)
        written = [self.features(path) for path in outputs]
        self.assertEqual(sum(map(len, written)), len(expected))
        length = settings["max_seq_length"]
        slots = settings["max_predictions_per_seq"]

        def padded(values, size):
            return list(values) + [0] * (size - len(values))

        for index, plain in enumerate(expected):
            record = written[index % num_outputs][index // num_outputs]
            ids = [TOKENS.index(token) for token in plain["tokens"]]
            labels = [TOKENS.index(token) for token in plain["labels"]]
            self.assertEqual(
                record,
                {
                    "input_ids": padded(ids, length),
                    "input_mask": padded([1] * len(ids), length),
                    "segment_ids": padded(plain["segment_ids"], length),
                    "masked_lm_positions": padded(plain["positions"], slots),
                    "masked_lm_ids": padded(labels, slots),
                    "masked_lm_weights": padded([1.0] * len(labels), slots),
                    "next_sentence_labels": [int(plain["is_random_next"])],
                },
            )

    def test_the_flags_defaults(self):
        self.assert_records()

    def test_settings_and_several_files(self):
        self.assert_records(
            num_outputs=3,
            max_seq_length=12,
            max_predictions_per_seq=4,
            masked_lm_prob=0.3,
            short_seq_prob=0.5,
            dupe_factor=7,
            do_whole_word_mask=True,
            random_seed=3,
        )

    def test_casing(self):
        self.write("1.txt", "The CAT sat\n")
        for do_lower_case, expected in ((True, [5, 6, 8]), (False, [1, 1, 8])):
            self.run_script(
                input_file=self.path("1.txt"),
                do_lower_case=do_lower_case,
                overwrite=True,
            )
            record = self.features(self.path("out.tfrecord"))[0]
            tokens = dict(
                zip(record["masked_lm_positions"], record["masked_lm_ids"], strict=True)
            )
            shown = [
                tokens.get(position, record["input_ids"][position])
                for position in (1, 2, 3)
            ]
            self.assertEqual(shown, expected)


class SetTest(ScriptCase):
    def test_manifest_and_vocabulary_beside_the_records(self):
        shards = [self.path(f"out-0000{index}-of-00002") for index in range(2)]
        self.run_script(output_file=",".join(shards), max_seq_length=32)
        self.assertEqual(
            self.names(),
            [*map(os.path.basename, shards), "out.manifest.json", "out.vocab.txt"],
        )
        self.assertEqual(record_files(self.path("out*"), "input_file"), shards)
        (manifest,) = find_manifests(shards)
        self.assertTrue(manifest.complete)
        self.assertEqual(manifest.max_seq_length, 32)
        self.assertEqual(manifest.vocab_size, len(TOKENS))
        self.assertEqual(
            manifest.records_by_path(),
            {path: len(self.features(path)) for path in shards},
        )
        vocabulary = Vocabulary.from_file(manifest.vocab_path)
        self.assertEqual(vocabulary.tokens, tuple(TOKENS))
        self.assertEqual(vocabulary.sha256, manifest.vocab_sha256)

    def test_the_same_command_again_is_done_already(self):
        self.run_script()
        before = os.stat(self.path("out.tfrecord")).st_mtime_ns
        with self.assertLogs("absl", "INFO") as logs:
            self.run_script()
        self.assertIn("All is done already", logs.output[0])
        self.assertEqual(os.stat(self.path("out.tfrecord")).st_mtime_ns, before)

    def test_other_settings_or_input_are_refused_unless_overwrite(self):
        self.run_script(random_seed=1)
        with self.assertRaisesRegex(InputError, "--random_seed=1, not 2"):
            self.run_script(random_seed=2)
        self.run_script(random_seed=2, overwrite=True)
        manifest = Manifest.from_json_file(self.path("out.tfrecord.manifest.json"))
        self.assertEqual(manifest.random_seed, 2)
        self.write("1.txt", "the dog\n")
        with self.assertRaisesRegex(InputError, "--input_file=.*1.txt has .* bytes"):
            self.run_script(random_seed=2)

    def test_overwriting_with_fewer_shards_leaves_none_of_the_old(self):
        old = [self.path(f"out-0000{index}-of-00002") for index in range(2)]
        self.run_script(output_file=",".join(old))
        self.run_script(output_file=self.path("out-00000-of-00001"), overwrite=True)
        self.assertEqual(
            self.names(), ["out-00000-of-00001", "out.manifest.json", "out.vocab.txt"]
        )

    def test_someones_own_file_is_not_written_over(self):
        self.write("out.tfrecord", "precious")
        with self.assertRaisesRegex(InputError, "out.tfrecord exists"):
            self.run_script()
        with open(self.path("out.tfrecord")) as file:
            self.assertEqual(file.read(), "precious")
        self.run_script(overwrite=True)
        self.assertNotEmpty(self.features(self.path("out.tfrecord")))

    def test_stopped_between_two_renames_the_same_command_ends_the_same(self):
        outputs = [self.path("out-a"), self.path("out-b")]
        self.run_script(output_file=",".join(outputs))
        expected = {name: self.read(name) for name in self.names()}
        for name in self.names():
            os.remove(self.path(name))

        replace = os.replace

        def stop(source, target):
            if target == outputs[1]:
                raise KeyboardInterrupt
            replace(source, target)

        with (
            mock.patch.object(os, "replace", stop),
            self.assertRaises(KeyboardInterrupt),
        ):
            self.run_script(output_file=",".join(outputs))
        self.assertIn("out-a", self.names())
        self.assertNotIn("out-b", self.names())
        with self.assertRaisesRegex(InputError, "not complete"):
            find_manifests(outputs[:1])
        self.run_script(output_file=",".join(outputs))
        self.assertEqual({name: self.read(name) for name in self.names()}, expected)

    def test_a_failed_run_leaves_the_finished_set(self):
        self.run_script()
        expected = {name: self.read(name) for name in self.names()}
        with (
            mock.patch.object(writing, "write_records", side_effect=OSError),
            self.assertRaises(OSError),
        ):
            self.run_script(random_seed=2, overwrite=True)
        self.assertEqual({name: self.read(name) for name in self.names()}, expected)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()


class WrongInputTest(ScriptCase):
    def test_one_line_for_what_is_wrong(self):
        empty = self.write("empty.txt", " \n\n")
        latin = self.write("latin.txt", b"the cat\nBl\xe4tter\n")
        no_mask = self.write("no_mask.txt", "[UNK]\n[CLS]\n[SEP]\nthe\n")
        for changes, message in (
            ({"input_file": self.path("no*where")}, "--input_file: no file matches"),
            ({"input_file": empty}, "--input_file: nothing in .*empty.txt"),
            ({"input_file": latin}, "latin.txt:2: not UTF-8"),
            ({"vocab_file": no_mask}, r"no_mask.txt: .*Missing: \[MASK\]"),
            ({"vocab_file": self.path("no")}, "No such vocabulary file"),
            ({"output_file": self.path("o") + "," + self.path("o")}, "o is also"),
            ({"output_file": self.path("o") + ","}, "empty"),
            ({"output_file": self.get_temp_dir()}, "is a folder"),
            (
                {"output_file": self.path("1.txt"), "overwrite": True},
                "1.txt is also the input file",
            ),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script(**changes)
        self.assertEqual(self.names(), [])

    def test_flags_out_of_range(self):
        for name, value in (
            ("max_seq_length", 4),
            ("max_predictions_per_seq", 0),
            ("dupe_factor", 0),
            ("masked_lm_prob", 0),
            ("masked_lm_prob", 1.1),
            ("short_seq_prob", -1),
        ):
            with self.assertRaisesRegex(flags.Error, name):
                self.run_script(**{name: value})
        with self.assertRaisesRegex(flags.Error, "for --pairs=nsp alone"):
            self.run_script(pairs="sop", nsp_labels="exact")

    def assert_warns(self, message, **changes):
        with self.assertLogs("absl", "WARNING") as logs:
            self.run_script(**changes)
        self.assertRegex("\n".join(logs.output), message)

    def test_oddities_are_warnings_with_counts(self):
        empty = self.write("empty.txt", "\n")
        self.assert_warns(
            "1 of 3 input files have nothing in them: .*empty.txt",
            input_file=f"{self.input},{empty}",
        )

    def test_few_predictions(self):
        self.assert_warns(
            "--max_predictions_per_seq=3 is few for --max_seq_length=128: .* needs 19",
            max_predictions_per_seq=3,
        )
        with self.assertNoLogs("absl", "WARNING"):
            self.run_script(overwrite=True)

    def test_one_document(self):
        text = self.write("one.txt", "the cat .\nthe dog .\n")
        self.assert_warns("one document only: random", input_file=text)

    def test_a_blank_line_after_each_sentence(self):
        text = self.write("apart.txt", "the cat .\n\nthe dog .\n\na mat .\n")
        self.assert_warns("All 30 instances have a random", input_file=text)

    def test_lines_without_a_token(self):
        text = self.write("odd.txt", "the cat .\n\x01\n\nthe dog .\n")
        self.run_script(input_file=text)
        manifest = Manifest.from_json_file(self.path("out.tfrecord.manifest.json"))
        self.assertEqual(
            manifest.report["dropped"],
            {"sentences without a token (control characters, say)": 1},
        )


class CommandLineTest(ScriptCase):
    def command(self, *arguments):
        options = ["-X", "importtime"] if "--help" in arguments else []
        module = ["-m", "tfrecords.create_pretraining_data"]
        return subprocess.run(
            [sys.executable, *options, *module, *arguments],
            capture_output=True,
            text=True,
        )

    def test_help_names_the_flags_and_needs_no_tensorflow(self):
        done = self.command("--help")
        for name in (*DEFAULTS, "input_file", "output_file", "vocab_file", "overwrite"):
            self.assertIn(name, done.stdout)
        # -X importtime lists every module that is imported.
        self.assertIn("absl.flags", done.stderr)
        self.assertNotIn("tensorflow", done.stderr)

    def test_exit_codes_and_one_line(self):
        done = self.command("--input_file=nowhere.txt", "--output_file=o")
        self.assertEqual(done.returncode, 1)
        self.assertIn("vocab_file", done.stderr)
        done = self.command(
            "--input_file=nowhere.txt",
            "--output_file=o",
            f"--vocab_file={self.vocabulary}",
        )
        self.assertEqual(done.returncode, 2)
        self.assertEqual(
            done.stderr,
            "create_pretraining_data: --input_file: no file matches 'nowhere.txt'.\n",
        )


def setUpModule():
    logging.use_absl_handler()


if __name__ == "__main__":
    tf.test.main()
