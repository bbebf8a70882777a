import errno
import os
from unittest import mock

import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.records import writing
from bert_tf.records.writing import (
    ShardWriter,
    record_files,
    write_records,
)
from tests.script_case import FolderCase


class WriteRecordsTest(FolderCase):
    def test_tensorflow_writes_the_same_bytes(self):
        records = [b"", b"a", b"12345" * 1000, bytes(range(256))]
        ours, theirs = self.path("a"), self.path("b")
        with open(ours, "wb") as file:
            write_records(file, records[:1])
            write_records(file, records[1:])
        with tf.io.TFRecordWriter(theirs) as writer:
            for record in records:
                writer.write(record)
        with open(ours, "rb") as one, open(theirs, "rb") as other:
            self.assertEqual(one.read(), other.read())
        self.assertEqual(
            [record.numpy() for record in tf.data.TFRecordDataset(ours)], records
        )


def read(path):
    return [record.numpy() for record in tf.data.TFRecordDataset(path)]


class ShardWriterTest(FolderCase):
    def names(self):
        return sorted(os.listdir(self.path()))

    def test_deals_records_in_turn(self):
        paths = [self.path("a"), self.path("new/b"), self.path("c")]
        with ShardWriter(paths) as writer:
            writer.write([b"0"])
            writer.write([b"1", b"2", b"3", b"4"])
            writer.write([])
            writer.write([b"5", b"6"])
        self.assertEqual(read(paths[0]), [b"0", b"3", b"6"])
        self.assertEqual(read(paths[1]), [b"1", b"4"])
        self.assertEqual(read(paths[2]), [b"2", b"5"])
        self.assertEqual(writer.num_records, [3, 2, 2])
        self.assertEqual(writer.num_bytes, [os.path.getsize(path) for path in paths])
        self.assertEqual(self.names(), ["a", "c", "new"])

    def test_an_exception_leaves_what_was_there(self):
        self.write("a", "precious")
        with self.assertRaises(KeyError), ShardWriter([self.path("a")]) as writer:
            writer.write([b"x"])
            raise KeyError("stop")
        self.assertEqual(self.names(), ["a"])
        self.assertEqual(self.read("a"), "precious")

    def test_a_full_disk_is_an_os_error_and_leaves_nothing(self):
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with (
            mock.patch.object(writing, "write_records", side_effect=full),
            self.assertRaisesRegex(OSError, "a cannot be written: No space left"),
            ShardWriter([self.path("a")]) as writer,
        ):
            writer.write([b"x"])
        self.assertEqual(self.names(), [])

    def test_the_file_that_cannot_be_renamed_is_named(self):
        os.mkdir(self.path("b"))
        paths = [self.path(name) for name in "abc"]
        with (
            self.assertRaisesRegex(OSError, "b cannot be written: Is a directory"),
            ShardWriter(paths) as writer,
        ):
            writer.write([b"x", b"y", b"z"])
        self.assertEqual(self.names(), ["b", "c"])


class RecordFilesTest(FolderCase):
    def test_leaves_out_what_stands_beside_the_records(self):
        for name in (
            "n-00000-of-00002",
            "n-00001-of-00002",
            "n.manifest.json",
            "n.vocab.txt",
            "n-00001-of-00002.tmp-123",
            "z.txt",
        ):
            self.write(name, "")
        found = record_files(f"{self.path('n*')},{self.path('z*')}", "input_file")
        self.assertEqual(
            [os.path.basename(path) for path in found],
            ["n-00000-of-00002", "n-00001-of-00002", "z.txt"],
        )
        with self.assertRaisesRegex(InputError, "`input_file`: no record file, only"):
            record_files(self.path("n.*"), "input_file")
        with self.assertRaisesRegex(InputError, "`eval_input_file`: no file matches"):
            record_files(self.path("q*"), "eval_input_file")
