"""The script: what it prints of records that are sound, foreign or broken."""

import os

import tensorflow as tf
from absl import logging

from bert_tf.addons.study import inspect_records
from bert_tf.base.errors import InputError
from bert_tf.records.manifest import Shard, SourceFile
from bert_tf.records.spec import RecordSpec
from bert_tf.text.vocabulary import Vocabulary
from tests.records.unmasked import write_manifest
from tests.script_case import FolderCase, printed

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat"]
VOCABULARY = Vocabulary(TOKENS)

RECORD = {
    "input_ids": [2, 5, 6, 7, 3, 4, 3, 0],
    "input_mask": [1, 1, 1, 1, 1, 1, 1, 0],
    "segment_ids": [0, 0, 0, 0, 0, 1, 1, 0],
    "masked_lm_positions": [5, 0],
    "masked_lm_ids": [8, 0],
    "masked_lm_weights": [1.0, 0.0],
    "next_sentence_labels": [1],
}
SPEC = RecordSpec.pretraining(8, 2)


class ScriptCase(FolderCase):
    def write(self, name, records, spec: RecordSpec = SPEC):
        with tf.io.TFRecordWriter(self.path(name)) as writer:
            for record in records:
                writer.write(
                    record if isinstance(record, bytes) else spec.serialize(record)
                )
        return self.path(name)

    def write_set(self, num_records=(3, 2), **changes):
        """Two shards, the manifest and the vocabulary."""
        shards = []
        for index, number in enumerate(num_records):
            name = f"out-0000{index}-of-00002"
            path = self.write(name, [RECORD] * number)
            shards.append(
                Shard(name=name, num_records=number, num_bytes=os.path.getsize(path))
            )
        fields = {
            "max_seq_length": 8,
            "max_predictions_per_seq": 2,
            "masking": "static",
            "masked_lm_prob": 0.15,
            "source_files": (SourceFile(path="a.txt", num_bytes=7, sha256="0"),),
            "shards": tuple(shards),
        }
        write_manifest(path, sum(num_records), VOCABULARY, **{**fields, **changes})

    def show(self, *arguments):
        return printed(inspect_records, *arguments)

    def vocabulary(self):
        VOCABULARY.save(self.path("vocab.txt"))
        return f"--vocab_file={self.path('vocab.txt')}"

    def show_and_warn(self, *arguments):
        with self.assertLogs("absl", "WARNING") as logs:
            output = self.show(*arguments)
        for record in logs.records:
            self.assertNotIn("\n", record.getMessage())
        return output, "\n".join(logs.output)


class SoundRecordsTest(ScriptCase):
    def test_manifest_examples_and_statistics(self):
        self.write_set()
        with self.assertNoLogs("absl", "WARNING"):
            output = self.show(self.path("out*"))
        for expected in (
            "complete: 5 records in 2 file(s); 9 entries in the vocabulary",
            "max_seq_length=8, max_predictions_per_seq=2, do_lower_case=True,"
            " segmenter=none, masking=static, do_whole_word_mask=False",
            "dupe_factor=1, random_seed=12345, pairs=nsp, nsp_labels=original",
            "1 of 7 bytes in all: a.txt",
            "7 of 8 tokens (A 5, B 2); 1 predictions; B is random\n",
            "  A [CLS] the cats [SEP]\n  B [MASK→sat] [SEP]\n",
            "records            5\n",
            "tokens             35; 12.5% of",
            "25.00% of the tokens (14.29%",
            "100.0% replaced by [MASK]",
            "all 5 records keep the rules",
        ):
            self.assertIn(expected, output)
        self.assertEqual(output.count("[MASK→sat]"), 3)

    def test_which_examples(self):
        self.write_set()
        output = self.show(self.path("out*"), "--start=2", "--num_examples=2")
        titles = [line for line in output.splitlines() if line.startswith("record ")]
        self.assertLen(titles, 2)
        first, second = (self.path(f"out-0000{index}-of-00002") for index in range(2))
        self.assertStartsWith(titles[0], f"record 2 (record 2 of {first})")
        self.assertStartsWith(titles[1], f"record 3 (record 0 of {second})")
        output = self.show(self.path("out*"), "--num_examples=0", "--nostatistics")
        self.assertLen(output.splitlines(), 5)
        output, warning = self.show_and_warn(
            self.path("out*"), "--start=5", "--nostatistics"
        )
        self.assertIn("`start=5`, but there are 5 records", warning)

    def test_other_kinds_of_records(self):
        names = ("input_ids", "input_mask", "segment_ids", "next_sentence_labels")
        record = {name: RECORD[name] for name in names}
        record["input_ids"] = [2, 5, 6, 7, 3, 8, 3, 0]
        unmasked = self.write("unmasked", [record], RecordSpec.pretraining(8))
        output = self.show(unmasked, self.vocabulary())
        self.assertIn("  B sat [SEP]\n", output)
        self.assertIn("all 1 records keep the rules", output)
        del record["next_sentence_labels"]
        padding = {name: [0] * len(values) for name, values in record.items()}
        records = [
            {**record, "label_ids": [1], "is_real_example": [1]},
            {**record, "label_ids": [3], "is_real_example": [1]},
            {**record, "label_ids": [1], "is_real_example": [1]},
            {**padding, "label_ids": [0], "is_real_example": [0]},
        ]
        classifier = self.write("classifier", records, RecordSpec.classification(8))
        output = self.show(classifier, self.vocabulary())
        for expected in (
            "(A 5, B 2); label 3\n",
            "records            3\n",
            "labels             1: 2, 3: 1\n",
            "1 more records only fill the last batch up",
            "all 3 records keep the rules",
        ):
            self.assertIn(expected, output)

    def test_records_of_the_model_garden(self):
        """With its second names, and without next sentence labels."""
        spec = RecordSpec.pretraining(8, 2)
        example = tf.train.Example.FromString(spec.serialize(RECORD))
        feature = example.features.feature
        for ours, theirs in (
            ("input_ids", "input_word_ids"),
            ("segment_ids", "input_type_ids"),
        ):
            feature[theirs].CopyFrom(feature[ours])
            del feature[ours]
        del feature["next_sentence_labels"]
        path = self.write("garden", [example.SerializeToString()])
        output = self.show(path, self.vocabulary())
        self.assertIn("7 of 8 tokens (A 5, B 2); 1 predictions; no pair\n", output)
        self.assertIn("all 1 records keep the rules", output)

    def test_packed_rows(self):
        row = {
            name: values[:7] + values[:7] + [0, 0]
            for name, values in RECORD.items()
            if len(values) == 8
        }
        row |= {
            "sequence_ids": [1] * 7 + [2] * 7 + [0, 0],
            "cls_positions": [0, 7, 0],
            "next_sentence_labels": [1, 0, 0],
            "next_sentence_weights": [1.0, 1.0, 0.0],
            "masked_lm_positions": [5, 12, 0, 0],
            "masked_lm_ids": [8, 8, 0, 0],
            "masked_lm_weights": [1.0, 1.0, 0.0, 0.0],
        }
        broken = {**row, "cls_positions": [0, 8, 0]}
        path = self.write("packed", [row, broken], RecordSpec.pretraining(16, 4, 3))
        output = self.show(path, self.vocabulary(), "--num_examples=1")
        for expected in (
            f"record 0, sequence 1 (record 0 of {path}): 7 of 16 tokens (A 5, B 2);"
            " 1 predictions; B is random\n",
            f"record 0, sequence 2 (record 0 of {path}): 7 of 16 tokens (A 5, B 2);"
            " 1 predictions; B follows A\n",
            "  B [MASK→sat] [SEP]\n",
            "rows               2 of 16 tokens, 2.00 sequences in each; 12.50% of all",
            "records            4\n",
            "1 record: sequence_ids are not 1, 2, ...",
        ):
            self.assertIn(expected, output)
        self.assertNotIn("sequence 3", output)


class BrokenRecordsTest(ScriptCase):
    def test_a_file_that_breaks_off(self):
        self.write_set()
        path = self.path("out-00000-of-00002")
        os.truncate(path, os.path.getsize(path) - 1)
        output, warning = self.show_and_warn(self.path("out*"))
        self.assertIn("records            4\n", output)
        self.assertIn("[MASK→sat]", output)
        self.assertIn("00000-of-00002 must have", warning)
        self.assertIn("breaks off in record 3", warning)

    def test_counts_that_the_manifest_does_not_know(self):
        self.write_set(max_seq_length=16)
        values = self.read_json("out.manifest.json")
        values["shards"][1]["num_records"] = 7
        FolderCase.write(self, "out.manifest.json", values)
        _, warning = self.show_and_warn(self.path("out*"))
        self.assertIn("00001-of-00002 has 2 records; its manifest says 7", warning)
        self.assertIn("max_seq_length is 16; records have 8", warning)

    def test_violations_are_counted_and_shown_with_the_example(self):
        bad = {**RECORD, "input_ids": [5, 5, 6, 7, 3, 4, 99, 0]}
        path = self.write("bad", [RECORD, bad, b"\xff", bad])
        output = self.show(path, self.vocabulary())
        self.assertIn("<id 99?>\n  ! an id is outside the vocabulary\n", output)
        self.assertEqual(output.count("  ! the first token is not [CLS]\n"), 1)
        self.assertIn("2 records: the first token is not [CLS]; the first is", output)
        self.assertIn("1 record: cannot be read, or has other", output)
        self.assertIn(f"the first is record 2 of {path}", output)
        self.assertIn("records            3\n", output)

    def test_a_file_of_other_records_is_passed_over(self):
        first = self.write("first", [RECORD])
        other = {
            name: values * 2 if len(values) == 8 else values
            for name, values in RECORD.items()
        }
        second = self.write("second", [other], RecordSpec.pretraining(16, 2))
        output, warning = self.show_and_warn(first, second)
        self.assertIn("records            1\n", output)
        self.assertIn(
            "second: pre-training records of 16 tokens and 2 predictions, so it is"
            " skipped; the first file has pre-training records of 8 tokens",
            warning,
        )


class WrongInputTest(ScriptCase):
    def test_one_line_each(self):
        self.write_set()
        records = self.path("out-00000-of-00002")
        other = self.path("other.txt")
        Vocabulary([*TOKENS, "more"]).save(other)
        image = tf.train.Example()
        image.features.feature["image"].bytes_list.value.append(b"png")
        foreign = self.write("foreign", [image.SerializeToString()])
        empty = self.write("empty", [])
        for arguments, message in (
            ([], "Give record files"),
            ([self.path("no*where")], "no file matches"),
            ([self.get_temp_dir()], "is a folder"),
            ([self.path("out.manifest.json")], "No record file, only"),
            ([other], "other.txt: not a whole TFRecord file .* If it is text"),
            ([foreign], r"foreign: these are neither .* Received: image bytes\[1\]"),
            ([empty], "there is no record in"),
            (
                [records, f"--vocab_file={other}"],
                r"other.txt \(10 tokens\) is not the vocabulary of .*\(9 tokens\)",
            ),
            ([records, f"--vocab_file={self.path('no')}"], "No such vocabulary"),
        ):
            with self.assertRaisesRegex(InputError, message) as context:
                self.show(*arguments)
            self.assertNotIn("\n", str(context.exception))


def setUpModule():
    logging.use_absl_handler()
