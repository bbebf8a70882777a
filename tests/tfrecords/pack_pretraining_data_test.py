import glob
import itertools
import json
import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import cli
from bert_tf.errors import InputError
from bert_tf.records import packing
from bert_tf.records.manifest import Manifest, find_manifests
from bert_tf.records.packing import unpacked_columns
from bert_tf.records.spec import packed_schema, unmasked_packed_schema
from tests.records import masked, unmasked
from tests.records.unmasked import VOCABULARY
from tests.tfrecords.killed_command import was_killed
from tfrecords import pack_pretraining_data

L, P, N = 40, 10, 4


def run(*arguments):
    pack_pretraining_data.run(
        cli.parse(pack_pretraining_data.define_flags, [*arguments, "--num_workers=1"])
    )


def read(path, schema):
    """The columns of one file."""
    records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    parsed = schema.parse(tf.constant(records, tf.string, shape=[len(records)]))
    return {name: values.numpy() for name, values in parsed.items()}


def sequences_of(columns):
    """Each sequence of some rows as lists without padding, in a canonical order."""
    unpacked, _, _ = unpacked_columns(columns)
    found = []
    for row in range(len(unpacked["input_ids"])):
        record = {name: values[row] for name, values in unpacked.items()}
        num_tokens = record["input_mask"].sum()
        num_masks = int(record.get("masked_lm_weights", np.zeros(1)).sum())
        found.append(
            {
                name: values[: num_masks if name.startswith("masked") else num_tokens]
                for name, values in record.items()
            }
        )
    return canonical(found)


def canonical(sequences):
    return sorted(
        json.dumps(
            {name: np.array(values).tolist() for name, values in sequence.items()},
            sort_keys=True,
        )
        for sequence in sequences
    )


def bytes_of(folder, but=()):
    return {
        os.path.relpath(path, folder): open(path, "rb").read()
        for path in glob.glob(os.path.join(folder, "**"), recursive=True)
        if os.path.isfile(path) and os.path.basename(path) not in but
    }


class PackTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.get_temp_dir()
        self.sequences = masked.write_set(self.path("a"), 23, seed=1)
        self.sequences += masked.write_set(self.path("b"), 17, seed=2)
        self.output = self.path("out/rows")
        self.arguments = [
            f"--input_file={self.path('a')},{self.path('b')}",
            f"--output_file={self.output}",
            f"--max_seq_length={L}",
            f"--max_sequences_per_row={N}",
        ]

    def path(self, name):
        return os.path.join(self.folder, name)

    def shards(self, count=2):
        return [f"{self.output}-{i:05d}-of-{count:05d}" for i in range(count)]

    def test_each_sequence_lands_once(self):
        run(*self.arguments)
        found = []
        num_rows = 0
        for path in self.shards():
            columns = read(path, packed_schema(L, P, N))
            num_rows += len(columns["input_ids"])
            found += sequences_of(columns)
        self.assertEqual(sorted(found), canonical(self.sequences))
        (manifest,) = find_manifests(self.shards())
        self.assertTrue(manifest.packed)
        self.assertTrue(manifest.complete)
        self.assertEqual(
            (
                manifest.max_seq_length,
                manifest.max_predictions_per_seq,
                manifest.max_sequences_per_row,
                manifest.max_sequence_length,
                manifest.max_predictions_per_sequence,
            ),
            (L, P, N, 12, 3),
        )
        self.assertEqual(manifest.masked_lm_prob, 0.2)  # as the records'
        self.assertEqual(manifest.num_records, num_rows)
        num_tokens = sum(len(each["input_ids"]) for each in self.sequences)
        self.assertEqual(manifest.report["rows"]["sequences"], 40)
        self.assertAllClose(
            manifest.report["rows"]["padding_share"], 1 - num_tokens / (num_rows * L)
        )
        self.assertEqual(manifest.report["sequences"]["tokens"], num_tokens)

    def test_windows_and_blocks_lose_nothing(self):
        with mock.patch.multiple(packing, _WINDOW_TOKENS=60, _BLOCK_TOKENS=80):
            run(*self.arguments)
        found = [
            sequence
            for path in self.shards()
            for sequence in sequences_of(read(path, packed_schema(L, P, N)))
        ]
        self.assertEqual(sorted(found), canonical(self.sequences))

    def test_the_number_of_files_and_the_seed(self):
        for count in (1, 3, 5):
            run(*self.arguments, f"--num_shards={count}", "--overwrite")
            found = [
                sequences_of(read(path, packed_schema(L, P, N)))
                for path in self.shards(count)
            ]
            self.assertEqual(sorted(itertools.chain(*found)), canonical(self.sequences))
            self.assertTrue(all(len(part) == 40 // count for part in found[:1]))
        self.assertLen(glob.glob(self.output + "-*"), 5)
        before = bytes_of(self.path("out"))
        run(*self.arguments, "--num_shards=5", "--overwrite", "--random_seed=3")
        self.assertNotEqual(bytes_of(self.path("out")), before)

    @pytest.mark.slow
    def test_the_number_of_workers_changes_nothing(self):
        run(*self.arguments)
        before = bytes_of(self.path("out"))
        arguments = [*self.arguments, "--overwrite", "--num_workers=2"]
        pack_pretraining_data.run(
            cli.parse(pack_pretraining_data.define_flags, arguments)
        )
        self.assertEqual(bytes_of(self.path("out")), before)

    def test_one_file_keeps_its_name(self):
        run(f"--input_file={self.path('a')}", *self.arguments[1:])
        self.assertEqual(
            sorted(os.listdir(self.path("out"))),
            ["rows", "rows.manifest.json", "rows.vocab.txt"],
        )

    def test_unmasked_records_keep_room_for_their_predictions(self):
        unmasked.write_set(self.path("c"), 31)
        run(
            f"--input_file={self.path('c')}",
            *self.arguments[1:],
            "--max_predictions_per_seq=5",
        )
        columns = read(self.output, unmasked_packed_schema(L, N))
        self.assertLen(sequences_of(columns), 31)
        # At 0.2 of the tokens a sequence of 8 to 12 has 2.
        num_sequences = columns["next_sentence_weights"].sum(axis=1)
        self.assertEqual(num_sequences.max(), 2)
        self.assertEqual(
            Manifest.from_json_file(self.output + ".manifest.json").masking, "dynamic"
        )

    def test_records_of_two_lengths_and_without_manifest(self):
        masked.write_set(self.path("d"), 9, seed=4, length=14, with_manifest=False)
        masked.write_set(self.path("e"), 9, seed=5, with_manifest=False)
        inputs = f"--input_file={self.path('d')},{self.path('e')}"
        with self.assertRaisesRegex(InputError, "no manifest: give --vocab_file"):
            run(inputs, *self.arguments[1:])
        VOCABULARY.save(self.path("vocab.txt"))
        run(
            inputs,
            *self.arguments[1:],
            f"--vocab_file={self.path('vocab.txt')}",
            "--do_lower_case=False",
        )
        (manifest,) = find_manifests(self.shards())
        self.assertFalse(manifest.do_lower_case)
        self.assertEqual(manifest.max_sequence_length, 14)
        self.assertEqual(manifest.vocab_sha256, VOCABULARY.sha256)
        self.assertEqual(manifest.report["rows"]["sequences"], 18)

    def test_what_cannot_be_packed(self):
        unmasked.write_set(self.path("c"))
        masked.write_set(self.path("d"), 3, with_manifest=False)
        masked.write_set(self.path("e"), 3, pairs="none")
        a, link = self.path("a"), self.path("link")
        os.symlink(a, link)
        for inputs, arguments, message in (
            (a, ["--max_seq_length=11"], "=11 of a row must not be less than .* 12"),
            (a, ["--max_predictions_per_seq=2"], "=2 of a row must not be less .* 3"),
            (f"{a},{self.path('c')}", [], "masked and records without masks"),
            (f"{a},{self.path('d')}", [], "/d has no manifest, but other files"),
            (f"{a},{self.path('e')}", [], "pairs=nsp, those of .*: pack them apart"),
            (a, [f"--output_file={a}"], "/a is also an input file"),
            (a, [f"--output_file={link}"], "/link is also an input file"),
            (a, ["--do_lower_case=False"], "were made with True"),
        ):
            with self.assertRaisesRegex(InputError, message):
                run(f"--input_file={inputs}", *self.arguments[1:], *arguments)
        run(*self.arguments)
        with self.assertRaisesRegex(
            InputError, "packed pre-training.* cannot be packed"
        ):
            run(f"--input_file={self.output}-*", f"--output_file={self.path('more')}")
        os.remove(self.path("e.vocab.txt"))
        with self.assertRaisesRegex(InputError, "e.vocab.txt is missing: give"):
            run(f"--input_file={self.path('e')}", f"--output_file={self.path('more')}")

    def test_again_and_with_other_settings(self):
        run(*self.arguments)
        before = bytes_of(self.path("out"))
        run(*self.arguments)
        self.assertEqual(bytes_of(self.path("out")), before)
        for arguments, message in (
            (["--max_seq_length=50"], "made with --max_seq_length=40, not 50"),
            (["--max_sequences_per_row=5"], "--max_sequences_per_row=4, not 5"),
            (["--random_seed=5"], "--random_seed=12345, not 5"),
            ([f"--input_file={self.path('b')},{self.path('a')}"], "--input_file="),
        ):
            with self.assertRaisesRegex(InputError, message):
                run(*self.arguments, *arguments)

    def test_killed_and_started_again(self):
        run(*self.arguments)
        expected = bytes_of(self.path("out"))
        again = [*self.arguments, f"--output_file={self.path('killed/rows')}"]
        self.assertTrue(
            was_killed(6, [*again, "--num_workers=1"], script="pack_pretraining_data")
        )
        with open(self.path("killed/rows.manifest.json")) as file:
            self.assertFalse(json.load(file)["complete"])
        self.assertEqual(len(glob.glob(self.path("killed/rows-*-of-00002"))), 1)
        run(*again)
        self.assertEqual(bytes_of(self.path("killed")), expected)

    @pytest.mark.slow
    def test_killed_at_any_moment(self):
        run(*self.arguments)
        expected = bytes_of(self.path("out"))
        moment = 0
        again = [*self.arguments, f"--output_file={self.path('killed/rows')}"]
        while was_killed(
            moment, [*again, "--num_workers=1"], script="pack_pretraining_data"
        ):
            run(*again)
            self.assertEqual(bytes_of(self.path("killed")), expected, moment)
            tf.io.gfile.rmtree(self.path("killed"))
            moment += 1
        self.assertGreater(moment, 7)


if __name__ == "__main__":
    tf.test.main()
