import gzip
import itertools
import os
import pathlib
import zlib

import tensorflow as tf

from bert_tf.addons.study.readable_records import record_blocks
from bert_tf.base.errors import InputError

FRAMED = [b"one", b"", b"three" * 5, b"4"]


class BlocksOfBrokenFilesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.get_temp_dir(), "x.tfrecord")
        with tf.io.TFRecordWriter(self.path) as writer:
            for record in FRAMED:
                writer.write(record)
        with open(self.path, "rb") as file:
            self.content = file.read()

    def read(self, content, records_per_block=2):
        """The records that come out, and the complaint that ends them."""
        pathlib.Path(self.path).write_bytes(content)
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
            self.assertEqual([*itertools.chain(*blocks)], FRAMED)
            self.assertEqual({len(block) for block in blocks[:-1]} - {size}, set())
        self.assertEqual(self.read(b""), ([], ""))

    def test_broken_off_anywhere(self):
        # Where each record ends: its bytes and 16 around them.
        ends = [0, 19, 35, 76, 93]
        self.assertLen(self.content, ends[-1])
        for length in range(len(self.content)):
            num_whole = sum(end <= length for end in ends[1:])
            records, complaint = self.read(self.content[:length])
            self.assertEqual(records, FRAMED[:num_whole])
            expected = f"breaks off in record {num_whole + 1}"
            self.assertIn("" if length in ends else expected, complaint)
            self.assertEqual(complaint == "", length in ends)

    def test_a_byte_changed_anywhere(self):
        for place in range(len(self.content)):
            damaged = bytearray(self.content)
            damaged[place] ^= 0x40
            number = sum(place >= end for end in (19, 35, 76))
            records, complaint = self.read(bytes(damaged))
            self.assertEqual(records, FRAMED[:number])
            self.assertRegex(
                complaint,
                f"x.tfrecord: .*(length of )?record {number + 1} (is dam|does not)",
            )

    def test_compressed(self):
        for compress in (gzip.compress, zlib.compress):
            self.assertEqual(self.read(compress(self.content)), (FRAMED, ""))
            records, complaint = self.read(compress(self.content)[:-3])
            self.assertEqual(records, FRAMED)
            self.assertIn("breaks off", complaint)
