"""Record files: round robin, and a name means a complete file."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from unittest import mock

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.records import shards
from bert_tf.records.shards import ShardWriter, record_files


def read(path):
    return [record.numpy() for record in tf.data.TFRecordDataset(path)]


class ShardWriterTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.get_temp_dir()

    def path(self, name):
        return os.path.join(self.folder, name)

    def names(self):
        return sorted(os.listdir(self.folder))

    def test_deals_records_in_turn(self):
        paths = [self.path("a"), self.path("new/b"), self.path("c")]
        with ShardWriter(paths) as writer:
            writer.write([b"0"])
            writer.write([b"1", b"2", b"3", b"4"])
            writer.write([])
            writer.write([b"5", b"6"])
            sizes = writer.close()
        self.assertEqual(read(paths[0]), [b"0", b"3", b"6"])
        self.assertEqual(read(paths[1]), [b"1", b"4"])
        self.assertEqual(read(paths[2]), [b"2", b"5"])
        self.assertEqual(writer.num_records, [3, 2, 2])
        self.assertEqual(sizes, [os.path.getsize(path) for path in paths])
        self.assertEqual(self.names(), ["a", "c", "new"])

    def test_no_name_before_the_end(self):
        with ShardWriter([self.path("a"), self.path("b")]) as writer:
            writer.write([b"x"])
            self.assertNotIn("a", self.names())
            writer.close()
            self.assertNotIn("a", self.names())
            writer.publish()
            self.assertEqual(self.names(), ["a", "b"])

    def test_an_exception_leaves_what_was_there(self):
        with open(self.path("a"), "wb") as file:
            file.write(b"precious")
        with self.assertRaises(KeyError), ShardWriter([self.path("a")]) as writer:
            writer.write([b"x"])
            raise KeyError("stop")
        self.assertEqual(self.names(), ["a"])
        with open(self.path("a"), "rb") as file:
            self.assertEqual(file.read(), b"precious")

    def test_killed_in_the_middle_leaves_no_name_and_the_next_run_cleans_up(self):
        script = """
            import os, signal, sys
            from bert_tf.records.shards import ShardWriter
            with ShardWriter(sys.argv[1:]) as writer:
                writer.write([b"x" * 100] * 100000)
                os.kill(os.getpid(), signal.SIGKILL)
        """
        paths = [self.path("a"), self.path("b")]
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), *paths],
            stderr=subprocess.DEVNULL,
        )
        self.assertEqual(done.returncode, -signal.SIGKILL)
        leftovers = self.names()
        self.assertLen(leftovers, 2)
        for name in leftovers:
            self.assertRegex(name, r"^[ab]\.tmp-\d+$")
        with open(self.path("a.tmp-mine"), "w"):
            pass  # not ours: no process id
        with ShardWriter(paths) as writer:
            writer.write([b"x"])
        self.assertEqual(self.names(), ["a", "a.tmp-mine", "b"])

    def test_a_full_disk_is_an_os_error_and_leaves_nothing(self):
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with (
            mock.patch.object(shards, "write_records", side_effect=full),
            self.assertRaisesRegex(OSError, "a cannot be written: No space left"),
            ShardWriter([self.path("a")]) as writer,
        ):
            writer.write([b"x"])
        self.assertEqual(self.names(), [])

    def test_a_file_in_the_place_of_a_folder(self):
        with (
            self.assertRaisesRegex(InputError, "must be a folder"),
            ShardWriter(["/dev/null/a"]),
        ):
            pass

    def test_a_callers_mistakes(self):
        for paths in ([], ["a", "a"]):
            with self.assertRaisesRegex(ValueError, "different files"):
                ShardWriter(paths)


class RecordFilesTest(tf.test.TestCase):
    def test_leaves_out_what_stands_beside_the_records(self):
        folder = self.get_temp_dir()
        for name in (
            "n-00000-of-00002",
            "n-00001-of-00002",
            "n.manifest.json",
            "n.vocab.txt",
            "n-00001-of-00002.tmp-123",
            "z.txt",
        ):
            with open(os.path.join(folder, name), "w"):
                pass
        found = record_files(f"{folder}/n*,{folder}/z*", "input_file")
        self.assertEqual(
            [os.path.basename(path) for path in found],
            ["n-00000-of-00002", "n-00001-of-00002", "z.txt"],
        )
        with self.assertRaisesRegex(InputError, "`input_file`: no record file, only"):
            record_files(f"{folder}/n.*", "input_file")
        with self.assertRaisesRegex(InputError, "`eval_input_file`: no file matches"):
            record_files(f"{folder}/q*", "eval_input_file")


if __name__ == "__main__":
    tf.test.main()
