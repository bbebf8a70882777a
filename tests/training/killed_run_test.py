import collections
import json
import os
import random
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.training import killed_run_child, toy

# What the clock has a part in, and not the run alone.
CLOCKS = ("seconds", "per_second", "_share", "_utilization")


def start(folder, records, kind="any", number=-1):
    module = killed_run_child.__name__
    return subprocess.Popen(
        [sys.executable, "-m", module, folder, records, kind, str(number)],
        stderr=subprocess.PIPE,
    )


def was_killed(child):
    """Waits for a run; whether it was killed, and not done."""
    _, errors = child.communicate()
    assert child.returncode in (0, -signal.SIGKILL), errors.decode()
    return child.returncode != 0


def read_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


class KilledRunTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.records = toy.write_records(
            os.path.join(self.get_temp_dir(), "records"), killed_run_child.NUM_RECORDS
        )
        self.whole, self.killed = (
            os.path.join(self.get_temp_dir(), name) for name in ("whole", "killed")
        )

    def metrics(self, folder):
        """What the run reported: step, and all that the clock has no part in."""
        lines = read_lines(os.path.join(folder, "metrics.jsonl"))
        return [
            {name: value for name, value in line.items() if not name.endswith(CLOCKS)}
            for line in lines
        ]

    def check_same_run(self):
        """The killed run has ended as the whole one has."""
        theirs = toy.tensors(self.whole)
        mine = toy.tensors(self.killed)
        self.assertEqual(set(mine), set(theirs))
        for key, value in theirs.items():
            self.assertEqual(value.tobytes(), mine[key].tobytes(), key)
        self.assertEqual(self.metrics(self.killed), self.metrics(self.whole))
        self.assertEqual(
            read_lines(os.path.join(self.killed, "best", "best.json")),
            read_lines(os.path.join(self.whole, "best", "best.json")),
        )
        for folder in ("", "best"):
            listings = [
                {
                    name
                    for name in os.listdir(os.path.join(run, folder))
                    if not name.startswith(("events", "moments"))
                }
                for run in (self.killed, self.whole)
            ]
            self.assertEqual(*listings)

    def check_records(self):
        """Each batch is the same at every start; each record is in so many of them."""
        batches = {}
        for folder in (self.whole, self.killed):
            for number, records in read_lines(os.path.join(folder, "input.jsonl")):
                self.assertEqual(batches.setdefault(number, records), records)
        steps = range(killed_run_child.NUM_STEPS)
        counts = collections.Counter(record for n in steps for record in batches[n])
        self.assertLen(counts, killed_run_child.NUM_RECORDS)
        self.assertEqual(set(counts.values()), {2})  # 12 steps of 4: two epochs of 24

    def test_killed_while_it_writes_a_checkpoint(self):
        child = start(self.killed, self.records, "write", 2)
        # The whole run, and the rest of the other one, need no process of their own.
        killed_run_child.run(self.whole, self.records)
        self.assertTrue(was_killed(child))
        killed_run_child.run(self.killed, self.records)
        self.check_same_run()
        self.check_records()

    @pytest.mark.slow
    @pytest.mark.jax
    def test_killed_at_many_moments(self):
        self.assertFalse(was_killed(start(self.whole, self.records)))
        with open(os.path.join(self.whole, "moments")) as file:
            num_moments = int(file.read())
        self.assertGreater(num_moments, 50)
        numbers = random.Random(8)
        kills = 0
        for kind, number in (("write", 2), ("replace", 5)):
            child = start(self.killed, self.records, kind, number)
            self.assertTrue(was_killed(child), kind)
        # From near the beginning of a life to near the end of the whole run.
        for _ in range(12):
            number = numbers.randrange(1, num_moments // 4)
            if not was_killed(start(self.killed, self.records, "any", number)):
                break
            kills += 1
        was_killed(start(self.killed, self.records))
        self.assertGreater(kills, 4)
        self.check_same_run()
        self.check_records()
