"""Records by Apache Beam are those of a local run, whatever happens on the way."""

import importlib.util
import json
import os
import random
import sys
import unittest
from unittest import mock

import pytest
from absl import logging

from bert_tf.base import cli
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.records import create_pretraining_data, record_sets
from bert_tf.records.manifest import Manifest
from bert_tf.records.tokenized_corpus import tokenized_parts
from bert_tf.records.writing import ShardWriter
from tests.tfrecords.killed_command import was_killed
from tests.tfrecords.sharded_pretraining_data_test import ScriptCase

needs_beam = unittest.skipUnless(
    importlib.util.find_spec("apache_beam"),
    "Apache Beam is not installed: `make test-beam` has it in its own environment",
)


def text_of(num_documents=60, seed=0):
    """Paragraphs of sentences; each fifth document, and many lines, come again."""
    rng = random.Random(seed)
    documents = []
    for number in range(num_documents):
        if number % 5 == 4:
            documents.append(rng.choice(documents))
            continue
        documents.append(
            "".join(
                rng.choice(["The cat sat. The dogs play on.\n", "Run!\n"])
                if rng.random() < 0.3
                else "The "
                + " ".join(rng.choices(["cats", "mat", "sat", "dog"], k=8))
                + ". Playing dogs.\n"
                for _ in range(rng.randint(1, 6))
            )
        )
    return "\n".join(documents)


class BeamCase(ScriptCase):
    def setUp(self):
        super().setUp()
        self.write("1.txt", text_of())
        # Goes on with the first file's last document, but not where shards are made.
        self.write("2.txt", text_of(seed=1))
        # Many chunks of several parts, so that repetitions lie in different ones.
        for patch in (
            mock.patch("bert_tf.text.sources._CHUNK_BYTES", 1000),
            mock.patch.object(tokenized_parts, "__defaults__", (300,)),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def arguments(self, *options, **changes):
        values = {
            "input_file": self.path("[12].txt"),
            "num_workers": "",
            "split_sentences": True,
            "num_shards": 4,
            "dupe_factor": 2,
            **changes,
        }
        return [*super().arguments(**values), *options]

    def run_script(self, *options, **changes):
        create_pretraining_data.run(
            cli.parse(create_pretraining_data.run, self.arguments(*options, **changes))
        )

    def run_local(self, **changes):
        self.run_script(num_workers=1, **changes)

    def run_beam(self, *options, **changes):
        self.run_script(*options, **{"runner": "DirectRunner", **changes})

    def names(self):
        return sorted(name for name in os.listdir(self.folder) if "out" in name)

    def taken_files(self):
        """What was written, hidden files included; it is removed."""
        found = {}
        for name in self.names():
            with open(self.path(name), "rb") as file:
                found[name] = file.read()
            os.remove(self.path(name))
        return found


@needs_beam
class SameFilesTest(BeamCase):
    """The records, the manifest with its report, the vocabulary; and nothing else."""

    def assert_same(self, *options, **changes):
        self.run_local(**changes)
        expected = self.taken_files()
        self.assertLen(expected, 6)
        self.run_beam(*options, **changes)
        found = self.taken_files()
        self.assertEqual(found.keys(), expected.keys())
        for name, content in expected.items():
            self.assertEqual(found[name], content, name)
        return json.loads(expected["out.manifest.json"])["report"]

    def test_settings(self):
        for changes, dropped in (
            ({}, []),
            ({"packed_length": 80}, []),
            (
                {"deduplicate": "documents", "min_document_tokens": 30},
                ["documents shorter than `min_document_tokens`", "repeated documents"],
            ),
            ({"deduplicate": "paragraphs"}, ["repeated paragraphs"]),
        ):
            report = self.assert_same(**changes)
            self.assertEqual(report["read"]["documents"], 120)
            self.assertIn("unknown_tokens", report)
            self.assertContainsSubset(dropped, report["dropped"])

    def test_other_records_of_an_empty_file_and_odd_lines(self):
        self.write("2.txt", "\x01\n\nthe cat\n\n\n")
        self.write("1.txt", text_of() + "\n\n")
        self.write("3.txt", "\n")
        report = self.assert_same(
            input_file=self.path("[123].txt"), masking="dynamic", pairs="sop"
        )
        self.assertEqual(
            report["dropped"]["sentences without a token (control characters, say)"], 1
        )


@needs_beam
class InterruptedTest(BeamCase):
    def test_goes_on_with_the_shards_that_are_missing(self):
        self.run_local()
        expected = self.taken_files()
        real, groups = record_sets.write_instances, []

        def write_two(instances, writer, *arguments):
            if len(groups) == 2:
                raise OSError(28, "No space left on device", writer.paths[0])
            groups.extend(writer.paths)
            return real(instances, writer, *arguments)

        with (
            mock.patch.object(record_sets, "write_instances", write_two),
            self.assertRaisesRegex(Exception, "No space left"),
            self.assertLogs(level="ERROR"),  # Beam's, before the error
        ):
            self.run_beam()
        self.assertFalse(
            Manifest.from_json_file(self.path("out.manifest.json")).complete
        )
        self.assertLen([name for name in self.names() if name.startswith(".out")], 1)
        before = {path: os.stat(path).st_mtime_ns for path in groups}
        self.write("out-00003-of-00004.tmp-77", "what a lost worker left")
        with self.assertLogs("absl", "INFO") as logs:
            self.run_beam()
        self.assertIn("2 of 4 shards are finished already", "".join(logs.output))
        self.assertEqual({path: os.stat(path).st_mtime_ns for path in groups}, before)
        self.assertEqual(self.taken_files(), expected)

    @pytest.mark.slow
    def test_killed_at_any_moment(self):
        self.run_local()
        expected = self.taken_files()
        for moment in range(0, 12, 2):
            arguments = self.arguments(runner="DirectRunner")
            self.assertTrue(was_killed(moment, arguments, chunk_bytes=1000))
            if moment:
                manifest = Manifest.from_json_file(self.path("out.manifest.json"))
                self.assertFalse(manifest.complete)
            self.run_beam()
            self.assertEqual(self.taken_files(), expected)

    def test_what_another_run_left_is_made_again(self):
        self.run_local(random_seed=1)
        expected = self.taken_files()
        self.run_beam(random_seed=2)
        os.remove(self.path("out-00001-of-00004"))
        with self.assertRaisesRegex(InputError, "`random_seed=2`, not 1"):
            self.run_beam(random_seed=1)
        os.mkdir(self.path(".out.beam-0123"))
        self.run_beam(random_seed=1, overwrite=True)
        self.assertEqual(self.taken_files(), expected)

    def test_done_already(self):
        self.run_local()
        with self.assertLogs("absl", "INFO") as logs:
            self.run_beam()
        self.assertIn("All is done already", logs.output[0])

    def test_one_file_is_made_by_two_workers_at_once(self):
        path = self.path("out")
        with ShardWriter([path], is_alone=False) as one:
            one.write([b"a"])
            with ShardWriter([path], is_alone=False) as other:
                other.write([b"a"])
                self.assertLen(self.names(), 2)
            self.assertIn("out", self.names())
        self.assertEqual(self.names(), ["out"])


@needs_beam
class WrongInputTest(BeamCase):
    def test_wrong_text_is_one_line_and_leaves_nothing(self):
        latin = self.write("latin.txt", b"the cat\n\n" * 300 + b"Bl\xe4tter\n")
        more = self.write("more.txt", b"\xff\n")
        empty = self.write("empty.txt", "\n \n")
        for changes, message in (
            (
                {"input_file": latin},
                r"latin.txt:601: not UTF-8 [^\n]*iconv -f WINDOWS-1252 [^\n]*$",
            ),
            (
                {"input_file": f"{latin},{more}"},
                r"latin.txt:601: not UTF-8 [^\n]* \(1 more like this\.\)$",
            ),
            ({"input_file": empty}, "`input_file`: nothing in .*empty.txt"),
            ({"num_shards": 150}, "00120-of-00150 must be at least 1. Received: 0"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_beam(**changes)
            if "input_file" in changes:
                self.assertEqual(self.names(), [])

    def test_wrong_options(self):
        for options, changes, message in (
            ([], {"runner": "NoRunner"}, "`runner=NoRunner`: Unexpected pipeline"),
            (
                ["--beam_option=--direct_num_workers=many"],
                {},
                "`beam_option`: argument --direct_num_workers: invalid int",
            ),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_beam(*options, **changes)
        self.assertEqual(self.names(), [])


class WithoutBeamTest(BeamCase):
    def test_says_how_to_install_it(self):
        names = {name: None for name in sys.modules if name.startswith("apache_beam")}
        ours = [name for name in sys.modules if "bert_tf.addons.corpora.beam" in name]
        addon.cache_clear()
        self.addCleanup(addon.cache_clear)
        with mock.patch.dict(sys.modules, {**names, "apache_beam": None}):
            for name in ours:
                del sys.modules[name]
            with self.assertRaisesRegex(InputError, r"pip install 'bert-tf\[beam\]'"):
                self.run_beam()

    def test_options_for_the_other_way(self):
        for options, changes, message in (
            ([], {"num_shards": ""}, "--runner needs --num_shards"),
            ([], {"num_workers": 2}, "--num_workers is only for this machine"),
            ([], {"work_dir": self.folder}, "--work_dir is only for this machine"),
            (["--beam_option=--x=2"], {"runner": ""}, "--beam_option .* --runner too"),
        ):
            with self.assertRaisesRegex(cli.flags.Error, message):
                self.run_beam(*options, **changes)


def setUpModule():
    logging.use_absl_handler()
