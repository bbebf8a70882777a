"""Files read as far as they go, broken off or damaged at any byte."""

import gzip
import itertools
import os
import struct
import zlib

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.records.reading import record_blocks
from bert_tf.records.writing import masked_checksum

RECORDS = [b"one", b"", b"three" * 5, b"4"]


class RecordBlocksTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.get_temp_dir(), "x.tfrecord")
        with tf.io.TFRecordWriter(self.path) as writer:
            for record in RECORDS:
                writer.write(record)
        with open(self.path, "rb") as file:
            self.content = file.read()

    def read(self, content, records_per_block=2):
        """The records that come out, and the complaint that ends them."""
        with open(self.path, "wb") as file:
            file.write(content)
        records = []
        try:
            for block in record_blocks(self.path, records_per_block):
                records += block
        except InputError as error:
            return records, str(error)
        return records, ""

    def test_a_whole_file_in_blocks(self):
        for size in (1, 2, 3, 4, 5):
            blocks = list(record_blocks(self.path, size))
            self.assertEqual([*itertools.chain(*blocks)], RECORDS)
            self.assertEqual({len(block) for block in blocks[:-1]} - {size}, set())
        self.assertEqual(self.read(b""), ([], ""))

    def test_a_length_beyond_the_file_whose_checksum_is_right(self):
        for length in (100, 1 << 40, 1 << 62, (1 << 64) - 1):
            packed = struct.pack("<Q", length)
            content = self.content + packed + masked_checksum(packed) + b"1234"
            records, complaint = self.read(content)
            self.assertEqual(records, RECORDS)
            self.assertIn("breaks off in record 4, at byte 93;", complaint)

    def test_broken_off_anywhere(self):
        # Where each record ends: its bytes and 16 around them.
        ends = [19, 35, 76, 93]
        self.assertLen(self.content, ends[-1])
        for length in range(len(self.content)):
            whole = [end for end in [0, *ends] if end <= length]
            records, complaint = self.read(self.content[:length])
            self.assertEqual(records, RECORDS[: len(whole) - 1])
            if length == whole[-1]:
                self.assertEqual(complaint, "")
            else:
                self.assertIn(
                    f"breaks off in record {len(records)}, at byte {whole[-1]};",
                    complaint,
                )

    def test_a_byte_changed_anywhere(self):
        for place in range(len(self.content)):
            damaged = bytearray(self.content)
            damaged[place] ^= 0x40
            number = sum(place >= end for end in (19, 35, 76))
            records, complaint = self.read(bytes(damaged))
            self.assertEqual(records, RECORDS[:number])
            if place < 12:
                self.assertIn("x.tfrecord: not a TFRecord file", complaint)
            else:
                self.assertIn(f"checksum in record {number}, at byte", complaint)

    def test_something_else(self):
        _, complaint = self.read(b"Some text, one sentence a line.\n")
        self.assertEqual(complaint, f"{self.path}: not a TFRecord file.")

    def test_compressed(self):
        for name, compress in (("GZIP", gzip.compress), ("ZLIB", zlib.compress)):
            _, complaint = self.read(compress(self.content))
            self.assertEqual(
                complaint, f"{self.path} is compressed ({name}): unpack it first."
            )


if __name__ == "__main__":
    tf.test.main()
