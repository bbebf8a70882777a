"""create_pretraining_data at scale: shards, workers, kills, other input and pairs."""

import hashlib
import json
import os
import pathlib
import random
from unittest import mock

import numpy as np
import tensorflow as tf
from absl import flags
from absl.testing import parameterized

from bert_tf.addons.corpora import packing
from bert_tf.addons.study.inspect_records import unpacked_columns
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.records import create_pretraining_data, record_sets
from bert_tf.records.manifest import Manifest
from bert_tf.records.pretraining_input import PretrainingRecords
from tests.instances.plain_pretraining import as_record, plain_instances
from tests.script_case import FolderCase
from tests.tfrecords.killed_command import was_killed

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "##s", "play", "##ing", "run"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
SETTINGS = {
    "max_seq_length": 24,
    "max_predictions_per_seq": 4,
    "masked_lm_prob": 0.15,
    "short_seq_prob": 0.1,
    "dupe_factor": 3,
    "do_whole_word_mask": True,
}


def corpus(seed=0, num_documents=37):
    """Documents of sentences of pieces."""
    rng = random.Random(seed)
    return [
        [
            ["the", *(rng.choice(WORDS) for _ in range(rng.randint(0, 9)))]
            for _ in range(rng.randint(1, 8))
        ]
        for _ in range(num_documents)
    ]


def as_text(documents):
    lines = []
    for document in documents:
        lines += [" ".join(sentence).replace(" ##", "") for sentence in document]
        lines.append("")
    return "\n".join(lines)


class ScriptCase(FolderCase):
    def setUp(self):
        super().setUp()
        self.folder = self.path()
        self.documents = corpus()
        self.write("vocab.txt", "".join(token + "\n" for token in TOKENS))
        self.write("text.txt", as_text(self.documents))

    def arguments(self, **changes):
        values = {
            "input_file": self.path("text.txt"),
            "output_file": self.path("out"),
            "vocab_file": self.path("vocab.txt"),
            "num_workers": 1,
            **SETTINGS,
            **changes,
        }
        return [f"--{name}={value}" for name, value in values.items() if value != ""]

    def run_script(self, **changes):
        create_pretraining_data.run(
            cli.parse(create_pretraining_data.run, self.arguments(**changes))
        )

    def manifest(self, name="out"):
        return Manifest.from_json_file(self.path(f"{name}.manifest.json"))

    def files(self, prefix="out"):
        """The digest of what the script wrote, hidden files included, by name."""
        return {
            path.name: "a folder"
            if path.is_dir()
            else hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(pathlib.Path(self.folder).iterdir())
            if path.name.lstrip(".").startswith(prefix)
        }

    def work_folder(self):
        """The name of the work folder; "" if there is none."""
        names = os.listdir(self.folder)
        return "".join(name for name in names if name.startswith(".out.work"))

    def features(self, name):
        for record in tf.data.TFRecordDataset(self.path(name)):
            example = tf.train.Example.FromString(record.numpy())
            yield {
                key: list(feature.int64_list.value or feature.float_list.value)
                for key, feature in example.features.feature.items()
            }


class ShardsTest(ScriptCase):
    def test_a_shard_is_the_original_of_its_documents_and_seed(self):
        self.run_script(num_shards=4, random_seed=9)
        manifest = self.manifest()
        self.assertEqual(
            [shard.name for shard in manifest.shards],
            [f"out-0000{shard}-of-00004" for shard in range(4)],
        )
        seeds = [shard.random_seed for shard in manifest.shards]
        self.assertLen(set(seeds), 4)
        self.assertLess(max(seeds), 2**31)
        for number, shard in enumerate(manifest.shards):
            expected = plain_instances(
                self.documents[number::4],
                TOKENS,
                {**SETTINGS, "random_seed": shard.random_seed},
            )
            records = list(self.features(shard.name))
            self.assertEqual(shard.num_records, len(expected))
            for record, plain in zip(records, expected, strict=True):
                self.assertEqual(record, as_record(plain, TOKENS, 24, 4))

    def test_the_number_of_workers_does_not_matter(self):
        # Small chunks, so that each worker gets some.
        with mock.patch("bert_tf.text.sources._CHUNK_BYTES", 100):
            for changes in ({"num_shards": 5}, {"deduplicate": "documents"}):
                self.run_script(num_workers=1, overwrite=True, **changes)
                expected = self.files()
                self.run_script(num_workers=3, overwrite=True, **changes)
                self.assertEqual(self.files(), expected)

    def test_done_already_and_other_settings(self):
        self.run_script(num_shards=3)
        before = self.files()
        with self.assertLogs("absl", "INFO") as logs:
            self.run_script(num_shards=3, num_workers=2)
        self.assertIn("All is done already", logs.output[0])
        with self.assertRaisesRegex(InputError, "`dupe_factor=3`, not 4"):
            self.run_script(num_shards=3, dupe_factor=4)
        outputs = ",".join(self.path(f"out-0000{n}-of-00003") for n in range(3))
        with self.assertRaisesRegex(InputError, "`num_shards=3`, not None"):
            self.run_script(output_file=outputs)
        self.assertEqual(self.files(), before)

    def test_wrong_use(self):
        for changes, message in (
            (
                {"num_shards": 2, "output_file": self.path("a") + "," + self.path("b")},
                "`num_shards`: `output_file` must be one name",
            ),
            ({"deduplicate": "paragraphs"}, "`deduplicate=paragraphs`: .*sentences"),
            ({"num_shards": 99}, "`num_shards=99` takes 99 documents .*Received: 37"),
            (
                {"num_shards": 30, "nsp_labels": "exact"},
                "`num_shards=30` takes 60 documents or more. Received: 37",
            ),
            (
                {"num_shards": 20, "min_document_tokens": 25},
                "-of-00020 must be at least 1. Received: 0",
            ),
            (
                {"num_shards": 18, "min_document_tokens": 25, "nsp_labels": "exact"},
                "-of-00018 must be at least 2, .*another one. Received: ",
            ),
            (
                {"min_document_tokens": 999},
                "must be at least 1. Received: 0. .*smaller .*`min_document_tokens`",
            ),
            ({"vocab_file": self.path("text.txt")}, "text.txt: .*CLS"),
            ({"work_dir": "gs://bucket"}, "`work_dir=gs://bucket` must be a folder"),
            ({"input_file": self.path("no")}, "`input_file`: no file matches"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script(overwrite=True, **changes)
            # Nor a hidden folder of what was tokenized.
            self.assertEmpty([n for n in os.listdir(self.path()) if ".work-" in n])


class PackedTest(ScriptCase, parameterized.TestCase):
    def sequences(self, prefix):
        """Each sequence of the records without padding, in a canonical order."""
        found = []
        for name in sorted(self.files(prefix)):
            if name.endswith((".json", ".txt")):
                continue
            rows = list(self.features(name))
            columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
            if "sequence_ids" in columns:
                columns, _, _ = unpacked_columns(columns)
            for values in zip(*columns.values(), strict=True):
                record = dict(zip(columns, values, strict=True))
                num_tokens = record["input_mask"].sum()
                num_masks = int(sum(record.get("masked_lm_weights", [])))
                widths = dict.fromkeys(record, num_tokens) | {
                    key: num_masks for key in record if key.startswith("masked_lm")
                }
                widths["next_sentence_labels"] = 1
                parts = {key: record[key][:n].tolist() for key, n in widths.items()}
                found.append(json.dumps(parts, sort_keys=True))
        return sorted(found)

    @parameterized.parameters(
        {},
        {"masking": "dynamic"},
        {"pairs": "sop", "num_shards": 3},
        {"pairs": "none", "num_shards": 2, "masking": "dynamic"},
    )
    def test_each_sequence_lands_in_one_row(self, **changes):
        self.run_script(output_file=self.path("apart"), **changes)
        expected = self.sequences("apart")
        self.run_script(packed_length=80, **changes)
        self.assertEqual(self.sequences("out"), expected)
        manifest, apart = self.manifest(), self.manifest("apart")
        self.assertTrue(manifest.packed)
        row = (manifest.max_seq_length, manifest.max_predictions_per_seq)
        self.assertEqual((*row, manifest.max_sequences_per_row), (80, 14, 13))
        sequence = manifest.max_sequence_length, manifest.max_predictions_per_sequence
        self.assertEqual(sequence, (24, 4))
        self.assertEqual(manifest.report["records"], apart.report["records"])
        rows = manifest.report["rows"]
        self.assertEqual(rows["sequences"], len(expected))
        self.assertEqual(rows["rows"], manifest.num_records)
        records = PretrainingRecords(
            [self.path(shard.name) for shard in manifest.shards]
        )
        batch = next(iter(records.training_dataset(2, seed=1)))
        self.assertEqual(batch["sequence_ids"].shape, (2, 80))
        self.assertEqual(batch["masked_lm_ids"].shape, (2, 14))

    def test_windows_and_blocks_lose_nothing(self):
        self.run_script(output_file=self.path("apart"))
        with (
            mock.patch.object(packing, "_WINDOW_TOKENS", 60),
            mock.patch.object(record_sets, "_BLOCK_TOKENS", 80),
        ):
            self.run_script(packed_length=80)
        self.assertEqual(self.sequences("out"), self.sequences("apart"))

    def test_other_rows_are_refused(self):
        self.run_script(packed_length=80)
        before = self.files()
        self.run_script(packed_length=80)
        for changes, message in (
            ({"packed_length": 90}, "made with `packed_length=80`, not 90"),
            ({}, "made with `packed_length=80`, not None"),
            ({"packed_length": 80, "max_seq_length": 30}, "`max_seq_length=24`, not"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script(**changes)
        with self.assertRaisesRegex(flags.Error, "=20 of a row must not be less than"):
            self.run_script(packed_length=20)
        self.assertEqual(self.files(), before)


class KilledTest(ScriptCase):
    def test_within_the_shards(self):
        self.run_script(num_shards=4)
        expected = self.files()
        for name in expected:
            os.remove(self.path(name))
        self.assertTrue(was_killed(7, self.arguments(num_shards=4)))
        finished = {
            name: os.stat(self.path(name)).st_mtime_ns
            for name in os.listdir(self.folder)
            if name.startswith("out-") and "tmp" not in name
        }
        self.assertNotEmpty(finished)
        # With other workers than before: that makes no difference either.
        self.run_script(num_shards=4, num_workers=2)
        self.assertEqual(self.files(), expected)
        for name, changed in finished.items():
            self.assertEqual(os.stat(self.path(name)).st_mtime_ns, changed)

    def test_a_full_disk_leaves_what_is_finished(self):
        real, count = record_sets.write_instances, 0

        def full(*arguments, **options):
            nonlocal count
            count += 1
            if count == 3:
                raise OSError(28, "No space left on device", "out-00002-of-00004")
            return real(*arguments, **options)

        with (
            mock.patch.object(record_sets, "write_instances", full),
            self.assertRaisesRegex(OSError, "No space left"),
        ):
            self.run_script(num_shards=4)
        left = {name for name in os.listdir(self.folder) if name.startswith("out-")}
        self.assertEqual(left, {"out-00000-of-00004", "out-00001-of-00004"})
        self.assertFalse(self.manifest().complete)
        with self.assertLogs("absl", "INFO") as logs:
            self.run_script(num_shards=4)
        self.assertIn("2 of 4 shards are finished already", "".join(logs.output))
        self.assertTrue(self.manifest().complete)


class InputTest(ScriptCase):
    def test_another_format_gives_the_same_records(self):
        text = [[" ".join(s).replace(" ##", "") for s in doc] for doc in self.documents]
        lines = (json.dumps({"body": "\n".join(each)}) + "\n" for each in text)
        path = self.write("text.jsonl", "".join(lines))
        self.run_script()
        expected = self.files()["out"]
        options = {"text_field": "body", "split_sentences": False, "overwrite": True}
        self.run_script(input_file=path, **options)
        self.assertEqual(self.files()["out"], expected)
        self.assertEqual(self.manifest().report["read"]["documents"], 37)
        self.assertEqual(self.manifest().input_format, "jsonl:body")


class OtherRecordsTest(ScriptCase):
    def test_dynamic_masking_writes_each_pair_once_unmasked(self):
        arguments = {"masking": "dynamic", "dupe_factor": ""}
        self.run_script(**arguments)
        manifest = self.manifest()
        self.assertEqual((manifest.masking, manifest.dupe_factor), ("dynamic", 1))
        mask_id = TOKENS.index("[MASK]")
        for record in self.features("out"):
            self.assertEqual(
                set(record),
                {"input_ids", "input_mask", "segment_ids", "next_sentence_labels"},
            )
            self.assertNotIn(mask_id, record["input_ids"])
        self.run_script(masking="dynamic", dupe_factor=2, overwrite=True)
        self.assertEqual(self.manifest().dupe_factor, 2)
