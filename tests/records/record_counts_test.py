import gzip
import json
import os
import struct
import tempfile
import zlib
from unittest import mock

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.records import record_counts
from bert_tf.records.record_counts import (
    RecordCounts,
    compression_of,
    count_records,
    first_record,
)
from bert_tf.records.tfrecord_files import masked_checksum


class RecordCountsTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(dir=self.get_temp_dir())

    def write(self, name, count, compression="", record_bytes=10):
        """Records of 0, 10, 20, ... bytes, by TensorFlow's own writer."""
        path = os.path.join(self.folder, name)
        with tf.io.TFRecordWriter(path, compression) as writer:
            for number in range(count):
                writer.write(os.urandom(record_bytes * number))
        return path


def framed_length(length):
    """The beginning of a record that says it has so many bytes, checksum included."""
    packed = struct.pack("<Q", length)
    return packed + masked_checksum(packed)


class FirstRecordTest(RecordCountsTestCase):
    def test_first_record(self):
        path = os.path.join(self.folder, "r")
        for compression in ("", "GZIP", "ZLIB"):
            for record in (b"", b"one", os.urandom(3_000_000)):
                with tf.io.TFRecordWriter(path, compression) as writer:
                    for value in (record, b"two"):
                        writer.write(value)
                self.assertEqual(first_record(path), record)
            self.assertIsNone(first_record(self.write("empty", 0, compression)))

    def test_a_length_beyond_the_file(self):
        path = os.path.join(self.folder, "r")
        # TensorFlow's own reader ends the process over some of these.
        for length in (1000, 1 << 40, 1 << 62, (1 << 64) - 1):
            content = framed_length(length) + b"1234"
            for packed in (content, gzip.compress(content), zlib.compress(content)):
                with open(path, "wb") as file:
                    file.write(packed)
                with self.assertRaisesRegex(InputError, "r: .*breaks off in record 1"):
                    first_record(path)

    def test_a_damaged_record(self):
        path = self.write("r", 1)
        with open(path, "ab") as file:
            file.write(framed_length(4) + b"12345678")
        self.assertEqual(first_record(path), b"")
        with open(path, "wb") as file:
            file.write(framed_length(4) + b"12345678")
        with self.assertRaisesRegex(InputError, "record 1 does not match"):
            first_record(path)


class CountRecordsTest(RecordCountsTestCase):
    def test_counts(self):
        for compression in ("", "GZIP", "ZLIB"):
            for count in (0, 1, 5, 700):
                path = self.write("r", count, compression)
                self.assertEqual(count_records(path), count)

    def test_chunks_that_end_anywhere(self):
        for compression in ("", "GZIP"):
            path = self.write("r", 12, compression)
            for size in (12, 13, 16, 29, 100):
                with mock.patch.object(record_counts, "_CHUNK_BYTES", size):
                    self.assertEqual(count_records(path), 12, size)

    def test_files_put_together(self):
        path = os.path.join(self.folder, "all")
        with open(path, "wb") as file:
            for count in (3, 4):
                with open(self.write("r", count, "GZIP"), "rb") as part:
                    file.write(part.read())
        self.assertEqual(count_records(path), 7)

    def test_a_file_that_breaks_off_is_named(self):
        path = self.write("r", 3)
        with open(path, "rb") as file:
            content = file.read()
        for length in (len(content) - 1, len(content) - 30):
            with open(path, "wb") as file:
                file.write(content[:length])
            with self.assertRaisesRegex(InputError, "r: .*breaks off in record 3"):
                count_records(path)

    def test_a_compressed_file_that_breaks_off_is_named(self):
        for compression in ("GZIP", "ZLIB"):
            path = self.write("r", 90, compression)
            os.truncate(path, os.path.getsize(path) - 2)
            with self.assertRaisesRegex(InputError, "breaks off after record 90"):
                count_records(path)
            os.truncate(path, os.path.getsize(path) // 2)
            with self.assertRaisesRegex(InputError, "r: not a whole TFRecord file"):
                count_records(path)

    def test_damage_is_named(self):
        path = self.write("r", 3)
        with open(path, "r+b") as file:
            file.seek(16 + 3)  # in the second record's length
            file.write(b"\xff")
        with self.assertRaisesRegex(InputError, "length of record 2 is damaged"):
            count_records(path)
        path = self.write("z", 200, "GZIP")
        with open(path, "r+b") as file:
            file.seek(5000)
            file.write(b"\xff" * 100)
        with self.assertRaisesRegex(InputError, "z: not a whole TFRecord file"):
            count_records(path)

    def test_other_files_are_named(self):
        path = os.path.join(self.folder, "text.txt")
        for content in (
            b"not a record file at all\n" * 9,
            b"short",
            b"\x1f\x8b\x08...",
        ):
            with open(path, "wb") as file:
                file.write(content)
            with self.assertRaisesRegex(InputError, "not a whole TFRecord file"):
                count_records(path)
        with gzip.open(path, "wb") as file:
            file.write(b"text")
        with self.assertRaisesRegex(InputError, "breaks off in record 1"):
            count_records(path)


class CompressionOfTest(RecordCountsTestCase):
    def test_by_the_first_bytes_whatever_the_name(self):
        for compression in ("", "GZIP", "ZLIB"):
            for count in (1, 9):
                path = self.write("data.gz", count, compression)
                self.assertEqual(compression_of(path), compression)
                self.assertLen(
                    list(tf.data.TFRecordDataset(path, compression_of(path))), count
                )
        self.assertEqual(compression_of(self.write("empty", 0)), "")

    def test_a_records_length_may_look_like_a_compressed_file(self):
        # 0x9c78 = 40056 bytes: the file begins as zlib's do. 0x088b1f: as gzip's.
        for magic in (b"\x78\x9c", b"\x1f\x8b\x08"):
            length = magic.ljust(8, b"\0")
            path = os.path.join(self.folder, "r")
            with open(path, "wb") as file:
                file.write(length + masked_checksum(length))
                file.write(b"x" * (struct.unpack("<Q", length)[0] + 4))
            self.assertEqual(compression_of(path), "")
            self.assertEqual(count_records(path), 1)


class RememberedCountsTest(RecordCountsTestCase):
    def setUp(self):
        super().setUp()
        self.cache = os.path.join(self.folder, "record_counts.json")
        self.paths = [
            self.write("a", 3),
            self.write("b", 0),
            self.write("c", 7, "GZIP"),
        ]

    def counted(self, paths=None):
        """The counts, and the files that were read for them."""
        with mock.patch.object(
            record_counts, "count_records", side_effect=count_records
        ) as count:
            counts = RecordCounts(self.cache).counts(paths or self.paths)
        return counts, sorted(os.path.basename(c.args[0]) for c in count.mock_calls)

    def test_each_file_is_counted_once(self):
        self.assertEqual(self.counted(), ([3, 0, 7], ["a", "b", "c"]))
        self.assertEqual(self.counted(), ([3, 0, 7], []))
        self.assertEqual(self.counted(self.paths[::-1] * 2)[0], [7, 0, 3, 7, 0, 3])
        with open(self.cache) as file:
            known = json.load(file)
        status = os.stat(self.paths[0])
        self.assertEqual(
            known[self.paths[0]],
            {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "records": 3},
        )

    def test_without_a_cache(self):
        self.assertEqual(RecordCounts().count(self.paths[2]), 7)

    def test_a_changed_file_is_counted_again(self):
        self.counted()
        self.write("a", 4)
        self.assertEqual(self.counted(), ([4, 0, 7], ["a"]))
        os.utime(self.paths[2], ns=(5, 5))
        self.assertEqual(self.counted(), ([4, 0, 7], ["c"]))

    def test_a_cache_that_cannot_be_read_is_left_aside(self):
        for content in ("", "{", "[]", '{"a": 3}', '{"/x": {"size": 1}}', "\0\0"):
            with open(self.cache, "w") as file:
                file.write(content)
            with self.assertLogs(level="WARNING") as logs:
                self.assertEqual(self.counted()[0], [3, 0, 7])
            self.assertRegex(
                "".join(logs.output), "record_counts.json.* The records are counted"
            )
            with self.assertNoLogs(level="WARNING"):
                self.assertEqual(self.counted(), ([3, 0, 7], []))

    def test_what_was_counted_before_a_broken_file_is_remembered(self):
        os.truncate(self.paths[2], 20)
        with (
            mock.patch.object(record_counts, "available_cores", lambda: 1),
            self.assertRaisesRegex(InputError, "c: not a whole"),
        ):
            self.counted()
        self.write("c", 7)
        self.assertEqual(self.counted(), ([3, 0, 7], ["c"]))


if __name__ == "__main__":
    tf.test.main()
