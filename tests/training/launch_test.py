"""Processes that a command starts: exit codes, signals, and those that fail."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent import futures

from absl.testing import absltest

from bert_tf.training.launch import run_child
from tests import processes

# A command that starts itself; what a worker does is given in Python.
COMMAND = """
import json, os, signal, sys, time
from bert_tf.training import launch
launch.SECONDS_TO_END = 1.0
if not launch.is_one():
    sys.exit(launch.run(int(sys.argv[1])))
config = json.loads(os.environ["TF_CONFIG"])
number = config["task"]["index"]
{}
"""


# Where the tests run in the background, some signals are ignored.
PARENT = """
import signal, sys
from bert_tf.training.launch import run_child
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
run_child([sys.executable, "-u", "-c", sys.argv[1]], shown=True)
print("not stopped")
"""
PEAKS = """
import sys
from bert_tf.training.launch import run_child
for count in (20, 220):
    code = f"a = b'1' * ({count} << 20); del a"
    print(run_child([sys.executable, "-c", code], shown=False).peak_bytes)
"""
CHILD = """
import os, signal, sys, time
def hear(number, _):
    print("saved", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, hear)
signal.signal(signal.SIGINT, hear)
print(os.getpid(), flush=True)
time.sleep(600)
"""


def python(code):
    return run_child([sys.executable, "-c", code], shown=False)


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
            "open(f'{__file__}.{number}', 'w').close()\n"
            "while not os.path.exists(f'{__file__}.1'): time.sleep(0.01)\n"
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


class ChildTest(absltest.TestCase):
    def test_what_it_has_printed_and_how_it_ended(self):
        ended = python("import sys; print('a'); sys.exit('b \\u00e9')")
        self.assertEqual((ended.code, ended.output), (1, "a\nb \u00e9\n"))
        self.assertEqual(python("import os; os.kill(os.getpid(), 9)").code, -9)
        ended = python("import time; time.sleep(0.3)")
        self.assertBetween(ended.seconds, 0.3, 60.0)

    def test_the_most_memory_that_it_had(self):
        done = processes.run_python("-c", PEAKS)
        small, large = map(int, done.stdout.split())
        self.assertBetween(large - small, 180 << 20, 220 << 20)

    def parent(self):
        return subprocess.Popen(
            [sys.executable, "-c", PARENT, CHILD],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def test_it_ends_before_a_parent_that_is_told_to_stop(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            parent = self.parent()
            child = int(parent.stdout.readline())
            parent.send_signal(number)
            printed, said = parent.communicate(timeout=60)
            self.assertEqual((parent.returncode, printed), (128 + number, "saved\n"))
            self.assertIn(f"Stopped by {number.name}. Start the same", said)
            self.assertFalse(os.path.exists(f"/proc/{child}"))

    def test_it_ends_where_the_parent_is_killed(self):
        parent = self.parent()
        child = int(parent.stdout.readline())
        parent.kill()
        # The pipe is the child's too.
        self.assertEqual(parent.communicate(timeout=60)[0], "saved\n")
        self.assertTrue(processes.has_ended(child))

    def test_in_a_thread(self):
        with futures.ThreadPoolExecutor() as pool:
            self.assertEqual(pool.submit(python, "print(1)").result().output, "1\n")

    def test_signals_are_heard_as_before_afterwards(self):
        before = signal.getsignal(signal.SIGTERM)
        python("")
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)


if __name__ == "__main__":
    absltest.main()
