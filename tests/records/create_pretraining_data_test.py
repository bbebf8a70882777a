"""The script: the right records in the right files, and a line for what is wrong."""

import json
import os
from unittest import mock

import pyarrow
from absl import flags, logging
from pyarrow import parquet

from bert_tf.base.errors import InputError
from bert_tf.records import writing
from bert_tf.records.manifest import find_manifests
from bert_tf.records.writing import record_files
from bert_tf.text.vocabulary import Vocabulary
from tests.instances.plain_pretraining import as_record, plain_instances
from tests.tfrecords.sharded_pretraining_data_test import (
    TOKENS,
    ScriptCase,
    as_text,
)


class RecordsTest(ScriptCase):
    def test_settings_and_several_files(self):
        length, slots = 12, 4
        settings = {
            "max_seq_length": length,
            "max_predictions_per_seq": slots,
            "masked_lm_prob": 0.3,
            "short_seq_prob": 0.5,
            "dupe_factor": 7,
            "do_whole_word_mask": True,
            "random_seed": 3,
        }
        # The second file goes on with the first one's last document.
        cut = [[self.documents[9][:1]], [self.documents[9][1:]]]
        texts = (self.documents[:9] + cut[0], cut[1] + self.documents[10:])
        for number, documents in enumerate(texts):
            self.write(f"{number}.txt", as_text(documents).rstrip() + "\n")
        outputs = [self.path(f"out-{index}") for index in range(3)]
        files = {"input_file": self.path("[01].txt"), "output_file": ",".join(outputs)}
        self.run_script(**files, **settings)
        expected = plain_instances(self.documents, TOKENS, settings)
        written = [list(self.features(path)) for path in outputs]
        self.assertEqual(sum(map(len, written)), len(expected))
        for index, plain in enumerate(expected):
            record = written[index % 3][index // 3]
            self.assertEqual(record, as_record(plain, TOKENS, length, slots))

    def test_casing(self):
        self.write("text.txt", "The CAT sat\n")
        known = [TOKENS.index(token) for token in ("the", "cat", "sat")]
        for do_lower_case, expected in ((True, known), (False, [1, 1, known[2]])):
            self.run_script(
                do_lower_case=do_lower_case, masking="dynamic", overwrite=True
            )
            record = next(self.features("out"))
            self.assertEqual(record["input_ids"][1:4], expected)

    def test_the_share_of_unknown_tokens(self):
        self.write("text.txt", "The CAT sat\n\nthe cat sat\n")
        with self.assertLogs("absl", "WARNING") as logs:
            self.run_script(do_lower_case=False, masking="dynamic")
        self.assertRegex(
            "\n".join(logs.output),
            r"2 of 6 tokens read are \[UNK\] \(33.33%\). Give .* its `do_lower_case`",
        )
        report = json.loads(self.read("out.manifest.json"))["report"]
        self.assertEqual(report["unknown_tokens"], 2)
        self.write("cased.txt", "\n".join([*TOKENS, "The", "CAT", "Sat"]) + "\n")
        with self.assertLogs("absl", "WARNING") as logs:
            self.run_script(
                vocab_file=self.path("cased.txt"), masking="dynamic", overwrite=True
            )
        message = "has capital letters, .*: give `do_lower_case=false`, unless"
        self.assertRegex("\n".join(logs.output), message)


class AnyNameTest(ScriptCase):
    def test_commas_and_brackets_in_folders_and_files(self):
        self.write("a, [1]/b, c.txt", "the cat sat\n")
        outputs = [self.path(f"a, [1]/out-{number}") for number in range(2)]
        # What a start that was killed has left.
        self.write("a, [1]/out-0.tmp-123", "")
        text = self.path("a, [1]/b, c.txt")
        self.run_script(input_file=text, output_file=",".join(outputs))
        there = os.listdir(self.path("a, [1]"))
        for name in ("out-0", "out-1"):
            self.assertIn(name, there)
        self.assertNotIn("out-0.tmp-123", there)
        (found,) = find_manifests(outputs[1:])
        self.assertLen(found.shards, 2)


class SetTest(ScriptCase):
    def test_other_encodings_and_formats_give_the_same_records(self):
        self.run_script(deduplicate="documents", split_sentences=True)
        expected = self.files()["out"]
        text = self.read("text.txt")
        self.write("wide.txt", text.encode("utf-16"))
        documents = [document for document in text.split("\n\n") if document.strip()]
        rows = pyarrow.Table.from_pylist([{"a": {"b": each}} for each in documents])
        parquet.write_table(rows, self.path("rows.parquet"), row_group_size=3)
        for name, changes in (
            ("wide.txt", {"encoding": "auto", "split_sentences": True}),
            ("rows.parquet", {"text_field": "a.b"}),
        ):
            self.run_script(
                input_file=self.path(name),
                deduplicate="documents",
                num_workers=2,
                overwrite=True,
                **changes,
            )
            self.assertEqual(self.files()["out"], expected, name)
        manifest = json.loads(self.read("out.manifest.json"))
        self.assertEqual(manifest["input_format"], "parquet:a.b")

    def test_long_lines_are_cut_into_pieces_or_counted(self):
        text = self.write("long.txt", f"{'the cat ' * 20}\n\nthe cat\n")
        reports = []
        for split in (True, False):
            self.run_script(
                input_file=text,
                split_sentences=split,
                max_seq_length=11,
                short_seq_prob=0.0,
                dupe_factor=1,
                overwrite=True,
            )
            reports.append(json.loads(self.read("out.manifest.json"))["report"])
        # One sentence is cut into pieces of four tokens, of which two make a sequence.
        self.assertEqual(
            reports[0]["read"], {"documents": 2, "sentences": 2, "tokens": 42}
        )
        self.assertEqual(reports[0]["cut_tokens"], 0)
        self.assertGreater(reports[0]["records"]["records"], 5)
        # Two sequences have six of the 40 tokens each.
        self.assertEqual(reports[1]["read"]["sentences"], 2)
        self.assertGreaterEqual(reports[1]["cut_tokens"], 28)

    def test_manifest_and_vocabulary_beside_the_records(self):
        shards = [self.path(f"out-0000{index}-of-00002") for index in range(2)]
        self.run_script(output_file=",".join(shards), max_seq_length=32)
        self.assertEqual(
            list(self.files()),
            [*map(os.path.basename, shards), "out.manifest.json", "out.vocab.txt"],
        )
        self.assertEqual(record_files(self.path("out*"), "input_file"), shards)
        (manifest,) = find_manifests(shards)
        self.assertTrue(manifest.complete)
        self.assertEqual(
            manifest.records_by_path(),
            {path: len(list(self.features(path))) for path in shards},
        )
        vocabulary = Vocabulary.from_file(manifest.vocab_path)
        self.assertEqual(vocabulary.tokens, tuple(TOKENS))
        self.assertEqual(vocabulary.sha256, manifest.vocab_sha256)

    def test_overwriting_with_fewer_shards_leaves_none_of_the_old(self):
        old = [self.path(f"out-0000{index}-of-00002") for index in range(2)]
        self.run_script(output_file=",".join(old))
        self.run_script(output_file=self.path("out-00000-of-00001"), overwrite=True)
        self.assertEqual(
            list(self.files()),
            ["out-00000-of-00001", "out.manifest.json", "out.vocab.txt"],
        )

    def test_stopped_between_two_renames_the_same_command_ends_the_same(self):
        outputs = [self.path("out-a"), self.path("out-b")]
        self.run_script(output_file=",".join(outputs))
        expected = self.files()
        for name in expected:
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
        self.assertFalse(os.path.exists(outputs[1]))
        with self.assertRaisesRegex(InputError, "not complete"):
            find_manifests(outputs[:1])
        self.run_script(output_file=",".join(outputs))
        self.assertEqual(self.files(), expected)

    def test_a_failed_run_leaves_the_finished_set(self):
        self.run_script()
        expected = self.files()
        with (
            mock.patch.object(writing, "write_records", side_effect=OSError),
            self.assertRaises(OSError),
        ):
            self.run_script(random_seed=2, overwrite=True)
        self.assertEqual(self.files(), expected | {self.work_folder(): "a folder"})


class WrongInputTest(ScriptCase):
    def test_one_line_for_what_is_wrong(self):
        empty = self.write("empty.txt", " \n\n")
        latin = self.write("latin.txt", b"the cat\nBl\xe4tter\n")
        no_mask = self.write("no_mask.txt", "[UNK]\n[CLS]\n[SEP]\nthe\n")
        for changes, message in (
            ({"input_file": empty}, "`input_file`: nothing in .*empty.txt"),
            ({"input_file": latin}, "latin.txt:2: not UTF-8"),
            ({"vocab_file": no_mask}, r"no_mask.txt: .*Missing: \[MASK\]"),
            ({"vocab_file": self.path("no")}, "No such vocabulary file"),
            ({"output_file": self.path("o") + "," + self.path("o")}, "o is also"),
            ({"output_file": self.path("o") + ","}, "empty"),
            ({"output_file": self.get_temp_dir()}, "is a folder"),
            (
                {"output_file": self.path("text.txt"), "overwrite": True},
                "text.txt is also the input file",
            ),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script(**changes)
        read = {"input_file": "", "tfds_name": "wikipedia"}
        for changes, message in (
            ({"pairs": "sop", "nsp_labels": "exact"}, "only for --pairs=nsp"),
            ({"tfds_split": "test"}, "--tfds_split has no effect without --tfds_name"),
            ({"tfds_data_dir": "x"}, "--tfds_data_dir has no effect without --tfds_na"),
            (read | {"input_format": "text"}, "has no effect without --input_file"),
        ):
            with self.assertRaisesRegex(flags.Error, message):
                self.run_script(**changes)
        self.assertEmpty(self.files("o"))

    def test_oddities_are_warnings(self):
        one = self.write("one.txt", "the cat\nthe dog\n")
        long = self.write("long.txt", f"{'the cat ' * 20}\n" * 3)
        apart = self.write("apart.txt", "the cat\n\nthe dog\n\na mat\n")
        for changes, message in (
            (
                {"max_seq_length": 128, "max_predictions_per_seq": 3},
                "`max_predictions_per_seq=3` is few for `max_seq_length=128`: .* 19",
            ),
            ({"input_file": one}, "one document only: random"),
            ({"input_file": apart}, "9 of 9 instances have a random"),
            (
                {"input_file": long},
                "of 120 tokens read are in no record .*: a sequence of .* A line has 40"
                " tokens on average: .* `split_sentences` splits it",
            ),
        ):
            with self.assertLogs("absl", "WARNING") as logs:
                self.run_script(**changes, overwrite=True)
            self.assertRegex("\n".join(logs.output), message)
        with self.assertNoLogs("absl", "WARNING"):
            self.run_script(overwrite=True)


def setUpModule():
    logging.use_absl_handler()
