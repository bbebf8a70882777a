"""Commands that are killed at their file operations, and given again, end the same."""

import json
import os
import subprocess
import sys
import tempfile

import pytest
import tensorflow as tf

from bert_tf.base import keras_backend

# The back end JAX: `make test-jax PYTEST_ARGS="-m 'jax and slow'"`.
_ON_JAX = ("pre-training",)


class KilledCommandsTest(tf.test.TestCase):
    @pytest.mark.jax
    @pytest.mark.slow
    def test_given_again_they_end_with_the_same_files(self):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        names = _ON_JAX if keras_backend.is_jax() else ()
        child = subprocess.run(
            [sys.executable, "-m", "tests.killed_commands_child", folder, *names],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        self.assertEqual(child.returncode, 0)
        for line in child.stdout.splitlines():
            name, operations, kills, seconds, problems = json.loads(line)
            print(f"{name}: {kills} kills at {operations} operations, {seconds} s")
            with self.subTest(name):
                self.assertGreater(kills, 0)
                self.assertEqual(problems, [])
