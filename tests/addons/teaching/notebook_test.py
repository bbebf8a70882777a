import os
import sys
import tempfile
from unittest import mock

import tensorflow as tf

import bert_tf
from bert_tf.addons.teaching import notebook
from bert_tf.base.errors import InputError


class RunTest(tf.test.TestCase):
    def printed(self, call):
        with self.captureWritesToStream(sys.stdout) as printed:
            call()
        return printed.contents()

    def test_what_a_command_prints_is_shown(self):
        code = "import sys; print('wörld', sys.stdout.isatty(), file=sys.stderr)"
        printed = self.printed(lambda: notebook.run(f'python -c "{code}"'))
        self.assertEqual(printed, "wörld True\n")

    def test_bars_have_a_width_and_no_escape_codes(self):
        """Neither of colours, which Jupyter asks for, nor of the cursor."""
        code = (
            "from bert_tf.base.progress import with_bar\n"
            "for _ in with_bar(range(2), 2, unit='a', label='outer'):\n"
            "    for _ in with_bar(range(3), 3, unit='b', label='inner'): pass\n"
            "import os; print(os.environ['NO_COLOR'])"
        )
        printed = self.printed(lambda: notebook.run(f'python -c "{code}"'))
        self.assertNotIn("\x1b", printed)
        self.assertIn("inner: 100%|█", printed)
        self.assertIn("outer: 100%|█", printed)
        self.assertEndsWith(printed, "\n1\n")

    def test_a_failed_command_raises(self):
        for command, code in (("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", -9)):
            with self.assertRaisesRegex(notebook.CommandFailedError, f"code {code}"):
                notebook.run(f"python -c 'import os, sys; {command}'")

    def test_a_command_is_killed_when_a_file_is_there(self):
        path = os.path.join(tempfile.mkdtemp(dir=self.get_temp_dir()), "there")
        code = f"import time; open({path!r}, 'w'); time.sleep(600)"
        printed = self.printed(lambda: notebook.run_until(f'python -c "{code}"', path))
        self.assertEqual(printed, "Killed. What is there:\nthere\n")


TRAIN = f"'bert-tf[train]=={bert_tf.__version__}'"


class StartTest(tf.test.TestCase):
    """What would be installed elsewhere: commands are recorded, not run."""

    def installed(self, device):
        commands = []
        output = os.path.join(self.get_temp_dir(), "output")
        with (
            mock.patch.object(notebook, "run", commands.append),
            mock.patch.object(notebook.importlib.util, "find_spec", lambda name: None),
        ):
            flags = notebook.start(output, device, install=True)
        self.assertTrue(os.path.isdir(output))
        return flags, [
            one.removeprefix("python -m pip install --quiet ") for one in commands
        ]

    def test_each_device(self):
        for device, flags, packages in (
            ("cpu", "--distribution=default", TRAIN),
            (
                "gpu",
                "--distribution=mirrored",
                f"{TRAIN} 'tensorflow[and-cuda]'",
            ),
            (
                "tpu",
                "--backend=jax --distribution=tpu --precision=bfloat16",
                f"{TRAIN} 'jax[tpu]'",
            ),
        ):
            self.assertEqual(self.installed(device), (flags, [packages]))

    def test_what_is_installed_is_left_alone(self):
        with (
            self.captureWritesToStream(sys.stdout) as printed,
            mock.patch.object(notebook, "run", side_effect=AssertionError),
        ):
            notebook.start(self.get_temp_dir(), "cpu")
        self.assertIn("nothing to install", printed.contents())
        with self.assertRaisesRegex(InputError, "DEVICE must be one of auto, tpu"):
            notebook.start(self.get_temp_dir(), "tpus")

    def test_the_device_is_found_by_its_driver(self):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        tpu = {"TPU_ACCELERATOR_TYPE": "v5e-1", "PATH": folder}
        with mock.patch.dict(os.environ, tpu):
            self.assertEqual(notebook.find_device(), "tpu")
            # Some drivers leave what looks like a TPU.
            path = os.path.join(folder, "nvidia-smi")
            for code, device in ((0, "gpu"), (9, "tpu")):
                with open(path, "w") as file:
                    file.write(f"#!/bin/sh\nexit {code}\n")
                os.chmod(path, 0o755)
                self.assertEqual(notebook.find_device(), device)
            del os.environ["TPU_ACCELERATOR_TYPE"]
            with mock.patch.object(notebook.glob, "glob", return_value=[]):
                self.assertEqual(notebook.find_device(), "cpu")
