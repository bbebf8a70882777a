"""A command in a process of its own: what it tells, and signals."""

import os
import signal
import subprocess
import sys
from concurrent import futures

from absl.testing import absltest

from bert_tf.base.child import run_child
from tests import processes

# Where the tests run in the background, some signals are ignored.
PARENT = """
import signal, sys
from bert_tf.base.child import run_child
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
run_child([sys.executable, "-u", "-c", sys.argv[1]], shown=True)
print("not stopped")
"""
PEAKS = """
import sys
from bert_tf.base.child import run_child
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
