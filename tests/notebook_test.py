import os
import sys
import tempfile
from unittest import mock

import tensorflow as tf

from bert_tf import notebook
from bert_tf.errors import InputError


class RunTest(tf.test.TestCase):
    def printed(self, call):
        with self.captureWritesToStream(sys.stdout) as printed:
            call()
        return printed.contents()

    def test_what_a_command_prints_is_shown(self):
        code = "import sys; print('wörld', sys.stdout.isatty(), file=sys.stderr)"
        printed = self.printed(lambda: notebook.run(f'python -c "{code}"'))
        self.assertEqual(printed, "wörld True\n")

    def test_a_failed_command_raises(self):
        with self.assertRaisesRegex(notebook.CommandFailedError, "exit code 3"):
            notebook.run("python -c 'import sys; sys.exit(3)'")
        with self.assertRaisesRegex(notebook.CommandFailedError, "exit code -9"):
            notebook.run("python -c 'import os; os.kill(os.getpid(), 9)'")

    def test_a_command_is_killed_when_a_file_is_there(self):
        path = os.path.join(tempfile.mkdtemp(dir=self.get_temp_dir()), "there")
        code = f"import time; open({path!r}, 'w'); time.sleep(600)"
        printed = self.printed(lambda: notebook.run_until(f'python -c "{code}"', path))
        self.assertEqual(printed, "Killed. What is there:\nthere\n")


class StartTest(tf.test.TestCase):
    """What would be installed elsewhere: commands are recorded, not run."""

    def installed(self, device):
        commands = []
        output = os.path.join(self.get_temp_dir(), "output")
        requirements = mock.Mock(**{"locate.return_value": "share/requirements.txt"})
        requirements.name = "requirements-tpu.txt"
        needed = ["tensorflow<2.22,>=2.20", "tensorflow-text<2.22,>=2.20"]
        metadata = {
            "files.return_value": [requirements],
            "requires.return_value": [*needed, 'huggingface_hub>=0.34; extra == "hf"'],
        }
        with (
            mock.patch.object(notebook, "run", commands.append),
            mock.patch.object(notebook.importlib, "metadata", **metadata),
        ):
            flags = notebook.start(output, device, install=True)
        self.assertTrue(os.path.isdir(output))
        return flags, [
            one.removeprefix("python -m pip install --quiet ") for one in commands
        ]

    def test_a_cpu_and_gpus(self):
        self.assertEqual(
            self.installed("cpu"),
            (
                "--distribution=default",
                ["'tensorflow<2.22,>=2.20' 'tensorflow-text<2.22,>=2.20'"],
            ),
        )
        flags, (command,) = self.installed("gpu")
        self.assertEqual(flags, "--distribution=mirrored")
        self.assertEndsWith(command, " 'tensorflow[and-cuda]<2.22,>=2.20'")

    def test_a_tpu_gets_its_own_build_of_tensorflow(self):
        newer = sys.version_info >= (3, 13)
        build, text = ("2.20.0", "2.20.1") if newer else ("2.19.1", "2.19.0")
        self.assertEqual(
            self.installed("tpu"),
            (
                "--distribution=tpu --tpu_name=local --precision=bfloat16",
                [
                    f"-r share/requirements.txt tensorflow-tpu=={build}",
                    f"--no-deps tensorflow-text=={text} keras-hub==0.32.0"
                    " keras-nlp==0.32.0",
                ],
            ),
        )

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


if __name__ == "__main__":
    tf.test.main()
