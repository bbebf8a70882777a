"""create_pretraining_data under a name that was used before, or is in use just now."""

import os
import shutil
import stat
from unittest import mock

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.records import record_sets
from tests.tfrecords.sharded_pretraining_data_test import ScriptCase


class AgainTest(ScriptCase):
    def stop_at(self, name, **changes):
        """A run that ends where one of `generation`'s functions is called."""
        with (
            mock.patch.object(record_sets, name, side_effect=KeyboardInterrupt),
            self.assertRaises(KeyboardInterrupt),
        ):
            self.run_script(**changes)

    def test_a_chunk_that_a_power_cut_has_torn(self):
        self.run_script()
        expected = self.files()
        for torn in ("tokens", "sentence_lengths", "chunk.json"):
            self.stop_at("write_instances", overwrite=True)
            os.truncate(self.path(f"{self.work_folder()}/chunk-00000/{torn}"), 0)
            self.run_script(overwrite=True)
            self.assertEqual(self.files(), expected)


class InputBesideOutputTest(ScriptCase):
    """A folder of text that the records and the vocabulary are written to."""

    def setUp(self):
        super().setUp()
        self.run_script(output_file=self.path("../expected"))
        self.addCleanup(lambda: shutil.rmtree(self.folder))

    def expected(self, name="expected"):
        return list(self.features(f"../{name}"))

    def test_records_vocabulary_and_another_set(self):
        self.run_script(output_file=self.path("another"), num_shards=3)
        for _ in range(2):
            self.run_script(input_file=self.folder)
            self.assertEqual(list(self.features("out")), self.expected())

    def test_shards(self):
        arguments = {"input_file": self.folder, "num_shards": 3}
        self.run_script(**arguments)
        finished = self.files()
        with self.assertLogs("absl", "INFO") as logs:
            self.run_script(**arguments)
        self.assertIn("All is done already", "".join(logs.output))
        self.assertIn("6 of 7 files", "".join(logs.output))
        # Killed after the first shard: the others are removed by hand.
        os.remove(self.path("out-00002-of-00003"))
        self.run_script(**arguments)
        self.assertEqual(self.files(), finished)


class AtOnceTest(ScriptCase):
    def test_a_second_run_is_refused_and_the_first_goes_on(self):
        real, refusals = record_sets.write_shard, []

        def with_a_second_run(*arguments):
            for changes in ({}, {"random_seed": 1, "overwrite": True}):
                with self.assertRaises(InputError) as raised:
                    self.run_script(num_shards=2, **changes)
                refusals.append(str(raised.exception).partition(": ")[2])
            return real(*arguments)

        with mock.patch.object(record_sets, "write_shard", with_a_second_run):
            self.run_script(num_shards=2)
        self.assertStartsWith(refusals[0], "another run is making these records")
        self.assertTrue(self.manifest().complete)
        self.assertFalse(self.work_folder())

    def test_a_folder_among_those_of_other_users_is_ours_alone(self):
        shared = self.path("shared")
        os.mkdir(shared)
        os.chmod(shared, 0o1777)
        arguments = {"work_dir": shared, "num_shards": 2}
        with (
            mock.patch.object(
                record_sets, "write_shard", side_effect=KeyboardInterrupt
            ),
            self.assertRaises(KeyboardInterrupt),
        ):
            self.run_script(**arguments)
        (path,) = (os.path.join(shared, name) for name in os.listdir(shared))
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o700)
        os.chmod(path, 0o770)
        with self.assertRaisesRegex(InputError, "another user may"):
            self.run_script(**arguments)
        os.chmod(path, 0o755)
        os.rename(path, self.path("elsewhere"))
        os.symlink(self.path("elsewhere"), path)
        with self.assertRaisesRegex(InputError, "another user may"):
            self.run_script(**arguments)
        os.remove(path)
        os.rename(self.path("elsewhere"), path)
        with self.assertLogs("absl", "INFO") as logs:
            self.run_script(**arguments)
        self.assertIn("Resuming from", "".join(logs.output))
        self.assertEqual(os.listdir(shared), [])

    def test_a_folder_that_cannot_be_locked(self):
        error = OSError(37, "No locks available")
        with mock.patch.object(files.fcntl, "flock", side_effect=error):
            self.run_script()
        self.assertTrue(self.manifest().complete)
