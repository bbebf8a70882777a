import gzip
import json
import os
import pathlib
import struct
import zlib
from unittest import mock

import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.records import pipeline
from bert_tf.records.pipeline import (
    compression_of,
    count_records,
    first_record,
    record_counts,
)
from bert_tf.records.spec import Feature, RecordSpec
from bert_tf.records.writing import masked_checksum
from tests.script_case import FolderCase


class RecordCountsTestCase(FolderCase):
    def records(self, name, count, compression=""):
        """Records of 0, 10, 20, ... bytes, by TensorFlow's own writer."""
        path = self.path(name)
        with tf.io.TFRecordWriter(path, compression) as writer:
            for number in range(count):
                writer.write(os.urandom(10 * number))
        return path


def framed_length(length):
    """The beginning of a record that says it has so many bytes, checksum included."""
    packed = struct.pack("<Q", length)
    return packed + masked_checksum(packed)


class FirstRecordTest(RecordCountsTestCase):
    def test_first_record(self):
        for compression in ("", "GZIP", "ZLIB"):
            empty = self.records("empty", 0, compression)
            self.assertIsNone(first_record([empty]))
            path = self.path("r")
            for record in (b"", b"one", os.urandom(3_000_000)):
                with tf.io.TFRecordWriter(path, compression) as writer:
                    for value in (record, b"two"):
                        writer.write(value)
                self.assertEqual(first_record([empty, path]), (path, record))

    def test_a_length_beyond_the_file(self):
        path = self.path("r")
        # TensorFlow's own reader ends the process over some of these.
        for length in (1000, 1 << 40, 1 << 62, (1 << 64) - 1):
            content = framed_length(length) + b"1234"
            for packed in (content, gzip.compress(content), zlib.compress(content)):
                pathlib.Path(path).write_bytes(packed)
                with self.assertRaisesRegex(InputError, "r: .*breaks off in record 1"):
                    first_record([path])


class CountRecordsTest(RecordCountsTestCase):
    def test_counts(self):
        for compression in ("", "GZIP", "ZLIB"):
            for count in (0, 1, 5, 700):
                path = self.records("r", count, compression)
                self.assertEqual(count_records(path), count)

    def test_files_put_together(self):
        path = self.path("all")
        with open(path, "wb") as file:
            for count in (3, 4):
                with open(self.records("r", count, "GZIP"), "rb") as part:
                    file.write(part.read())
        self.assertEqual(count_records(path), 7)


class CompressionOfTest(RecordCountsTestCase):
    def test_a_records_length_may_look_like_a_compressed_file(self):
        # 0x9c78 = 40056 bytes: the file begins as zlib's do. 0x088b1f: as gzip's.
        for magic in (b"\x78\x9c", b"\x1f\x8b\x08"):
            length = magic.ljust(8, b"\0")
            path = self.path("r")
            with open(path, "wb") as file:
                file.write(length + masked_checksum(length))
                file.write(b"x" * (struct.unpack("<Q", length)[0] + 4))
            self.assertEqual(compression_of(path), "")
            self.assertEqual(count_records(path), 1)


class RememberedCountsTest(RecordCountsTestCase):
    def setUp(self):
        super().setUp()
        self.cache = self.path("record_counts.json")
        self.paths = [
            self.records("a", 3),
            self.records("b", 0),
            self.records("c", 7, "GZIP"),
        ]

    def counted(self, paths=None):
        """The counts, and the files that were read for them."""
        with mock.patch.object(
            pipeline, "count_records", side_effect=count_records
        ) as count:
            counts = record_counts(paths or self.paths, self.cache)
        return counts, sorted(os.path.basename(c.args[0]) for c in count.mock_calls)

    def test_each_file_is_counted_once(self):
        self.assertEqual(self.counted(), ([3, 0, 7], ["a", "b", "c"]))
        self.assertEqual(self.counted(), ([3, 0, 7], []))
        self.assertEqual(self.counted(self.paths[::-1] * 2)[0], [7, 0, 3, 7, 0, 3])
        with open(self.cache) as file:
            self.assertEqual(json.load(file)["results"][self.paths[0]]["result"], 3)

    def test_a_changed_file_is_counted_again(self):
        self.counted()
        self.records("a", 4)
        self.assertEqual(self.counted(), ([4, 0, 7], ["a"]))
        os.utime(self.paths[2], ns=(5, 5))
        self.assertEqual(self.counted(), ([4, 0, 7], ["c"]))

    def test_a_cache_that_cannot_be_read_is_left_aside(self):
        for content in ("", "{", "[]", '{"a": 3}', '{"/x": {"size": 1}}', "\0\0"):
            pathlib.Path(self.cache).write_text(content)
            with self.assertLogs(level="WARNING") as logs:
                self.assertEqual(self.counted()[0], [3, 0, 7])
            self.assertRegex(
                "".join(logs.output), "record_counts.json.* What it held is made again"
            )
            with self.assertNoLogs(level="WARNING"):
                self.assertEqual(self.counted(), ([3, 0, 7], []))


SPEC = RecordSpec([Feature("input_ids", "int64", (1,))])


class PipelineTestCase(tf.test.TestCase):
    def write(self, *counts):
        """Files of records that hold the numbers 0, 1, 2, ... over all files."""
        self.paths, number = [], 0
        for index, count in enumerate(counts):
            path = os.path.join(self.get_temp_dir(), f"part-{index}.tfrecord")
            with tf.io.TFRecordWriter(path) as writer:
                for _ in range(count):
                    writer.write(SPEC.serialize({"input_ids": [number]}))
                    number += 1
            self.paths.append(path)
        self.counts = list(counts)
        return number


class TrainingDatasetTest(PipelineTestCase):
    def batches(self, count, batch_size=1, **options):
        options = {"seed": 7, "shuffle_buffer": 4, **options}
        dataset = pipeline.training_dataset(
            self.paths, self.counts, SPEC, batch_size=batch_size, **options
        )
        return dataset.take(count).as_numpy_iterator()

    def stream(self, count, **options):
        """The records' contents."""
        return [int(b["input_ids"][0, 0]) for b in self.batches(count, **options)]

    def keys(self, count, **options):
        """(record's content, its epoch, its number): what a transform is told."""

        def with_keys(batch, keys):
            return {"content": batch["input_ids"][:, 0], **keys._asdict()}

        return [
            triple
            for batch in self.batches(count, transform=with_keys, **options)
            for triple in zip(
                *(batch[name].tolist() for name in ("content", "epochs", "records")),
                strict=True,
            )
        ]

    def test_the_order_is_a_function_of_the_seed(self):
        total = self.write(5, 5, 5)
        self.assertEqual(self.stream(2 * total), self.stream(2 * total))
        self.assertNotEqual(self.stream(total), self.stream(total, seed=8))

    def test_the_order_does_not_depend_on_the_global_seed_of_the_process(self):
        total = self.write(9)
        first = self.stream(total)
        for global_seed in (0, 1):
            tf.random.set_seed(global_seed)
            self.assertEqual(first, self.stream(total))

    def test_an_id_outside_the_vocabulary_is_named(self):
        total = self.write(6)
        self.assertLen(self.stream(total, vocab_size=6), total)
        with self.assertRaises(tf.errors.InvalidArgumentError) as caught:
            self.stream(total, vocab_size=5)
        self.assertEqual(
            pipeline.record_error(caught.exception),
            "an id in `input_ids` is outside the vocabulary of 5 tokens (`vocab_size`"
            " of the config): make the records again.",
        )

    def test_every_epoch_reads_every_record_once_with_its_own_number(self):
        total = self.write(3, 5, 1, 0, 4, 2)
        triples = self.keys(3 * total)
        self.assertEqual(
            [epoch for _, epoch, _ in triples], [1] * total + [2] * total + [3] * total
        )
        contents = [content for content, _, _ in triples]
        for epoch in range(3):
            part = contents[epoch * total : (epoch + 1) * total]
            self.assertCountEqual(part, range(total))
        self.assertNotEqual(contents[:total], sorted(contents[:total]))
        self.assertNotEqual(contents[:total], contents[total : 2 * total])
        numbers = {(content, number) for content, _, number in triples}
        self.assertLen(numbers, total)
        self.assertLen({number for _, number in numbers}, total)

    def test_units_of_files_are_shuffled_differently(self):
        total = self.write(*[5] * 8)
        rows = [content % 5 for content in self.stream(total)]
        self.assertNotEqual(rows[: total // 2], rows[total // 2 :])

    def test_starting_at_a_position_gives_the_rest_of_the_same_stream(self):
        # Ten files are three units; the second one has the large files.
        total = self.write(5, 1, 5, 2, 1, 5, 5, 1, 2, 1)
        whole = self.keys(3 * total)
        for start in (*range(0, total, 3), total, total + 1, 2 * total):
            self.assertEqual(
                self.keys(total, start=start), whole[start : start + total], start
            )
        # Batches of four run across the seams of epochs.
        self.assertEqual(self.keys(total // 2, batch_size=4), whole[: total // 2 * 4])


class EvaluationDatasetTest(PipelineTestCase):
    def stream(self, batches=100, **options):
        dataset = pipeline.evaluation_dataset(self.paths, SPEC, batch_size=4, **options)
        return [
            batch["input_ids"][:, 0].tolist()
            for batch in dataset.take(batches).as_numpy_iterator()
        ]

    def test_in_order_once(self):
        self.write(3, 3)
        self.assertEqual(self.stream(), [[0, 1, 2, 3], [4, 5]])

    def test_repeated_as_the_original_does(self):
        self.write(3, 3)
        self.assertEqual(
            self.stream(3, repeat=True), [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]]
        )
