"""Processes of one command: their exit code, signals, and those that fail."""

import os
import signal
import subprocess
import sys
import tempfile
import time

from absl.testing import absltest

from tests import processes

# A command that starts itself; what a worker does is given in Python.
COMMAND = """
import json, os, signal, sys, time
from bert_tf.base import local_workers
local_workers.SECONDS_TO_END = 1.0
if not local_workers.is_one():
    sys.exit(local_workers.run(int(sys.argv[1])))
config = json.loads(os.environ["TF_CONFIG"])
number = config["task"]["index"]
{}
"""


class LocalWorkersTest(absltest.TestCase):
    def command(self, work):
        folder = self.enter_context(tempfile.TemporaryDirectory())
        path = os.path.join(folder, "command.py")
        with open(path, "w") as file:
            file.write(COMMAND.format(work))
        return path

    def run_workers(self, work, count=2, **environment):
        path, without = self.command(work), ("TF_CONFIG",)
        return processes.run_python(path, str(count), without=without, **environment)

    def test_each_is_told_of_all_and_has_its_share_of_the_gpus(self):
        done = self.run_workers(
            "assert number or not print(len(set(config['cluster']['worker'])))\n"
            "assert os.environ['CUDA_VISIBLE_DEVICES'] == ['4,7', '5', '6'][number]",
            count=3,
            CUDA_VISIBLE_DEVICES="4,5,6,7",
        )
        self.assertEqual((done.returncode, done.stdout), (0, "3\n"), done.stderr)
        self.assertEqual(done.stderr, "")

    def test_one_that_fails_is_named_and_ends_the_others(self):
        for failure, code in (
            ("sys.exit('no disk')", 1),
            ("os.kill(os.getpid(), 9)", 137),
        ):
            began = time.monotonic()
            done = self.run_workers(f"{failure} if number else time.sleep(600)")
            self.assertLess(time.monotonic() - began, 60.0)
            self.assertEqual(done.returncode, code)
            message = f"worker 1 of 2 has ended with exit code {code}."
            lines = "\n  no disk" if code == 1 else ""
            self.assertEqual(done.stderr, f"{message}{lines}\n")

    def test_one_that_is_frozen_does_not_keep_the_command(self):
        done = self.run_workers("os.kill(os.getpid(), signal.SIGSTOP if number else 9)")
        self.assertEqual(done.returncode, 137)

    def test_signals_are_passed_on_and_none_is_left_where_the_command_is_killed(self):
        work = (
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
            "print(os.getpid(), flush=True)\ntime.sleep(600)"
        )
        path = self.command(work)
        for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            process = subprocess.Popen(
                [sys.executable, path, "2"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            worker = int(process.stdout.readline())
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
            self.assertEqual((process.returncode, errors), (code, ""))
            self.assertTrue(processes.has_ended(worker))

    def test_a_cluster_of_ones_own_contradicts_it(self):
        done = processes.run_python(self.command(""), "2", TF_CONFIG="{}")
        self.assertIn("`local_workers=2` and TF_CONFIG contradict", done.stderr)


if __name__ == "__main__":
    absltest.main()
