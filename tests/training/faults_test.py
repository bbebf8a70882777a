"""What becomes of several processes when one of them is not as it should be.

With both back ends (`make test-slow`, and test-jax's environment). Where one fails, all
end, in the time that docs/scaling.md states, with a line that says what to do; and the
same command on all of them resumes.
"""

import os
import signal
import time

import pytest

from bert_tf.base import keras_backend
from tests.training import strategies_test, toy

pytestmark = [pytest.mark.jax, pytest.mark.slow]

STEPS = 10**6


class FaultsTest(strategies_test.StrategiesTestCase):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("model"))
        toy.write_config(self.path("model"))

    def begin(self, cluster, **others):
        """A worker; `others` are flags that it alone has, or has in another way."""
        values = {
            "input_file": self.records,
            "bert_config_file": self.path("model") + "/bert_config.json",
            "output_dir": self.path("run"),
            "distribution": "multi_worker",
            "num_train_steps": STEPS,
            "num_warmup_steps": 0,
            "train_batch_size": 8,
            "log_steps": 5,
            "save_checkpoints_steps": 5,
            **others,
        }
        return self.start_module(
            "bert_tf.run_pretraining",
            "--do_train",
            *(f"--{name}={value}" for name, value in values.items()),
            TF_CONFIG=cluster,
        )

    def both(self, **others):
        first, second = self.clusters()
        return self.begin(first), self.begin(second, **others)

    def wait_for_step(self, processes, step=5):
        while not any(line["step"] >= step for line in self.metrics()):
            for process in processes:
                self.assertIsNone(process.poll())
            time.sleep(0.1)

    def metrics(self):
        path = os.path.join(self.path("run"), "metrics.jsonl")
        return toy.metrics(self.path("run")) if os.path.exists(path) else []

    def ends(self, process, within, *messages, code=2):
        """Its last line has the messages; it is not killed for being late."""
        _, errors = process.communicate(timeout=within)
        self.assertEqual(process.returncode, code, errors[-3000:])
        lines = [line for line in errors.splitlines() if "run_pretraining: " in line]
        self.assertLen(lines, 1, errors[-3000:])
        for message in messages:
            self.assertIn(message, lines[0])

    def resumes(self):
        """The same command on both."""
        last = self.metrics()[-1]["step"]
        processes = self.both()
        self.wait_for_step(processes, last + 5)
        processes[1].send_signal(signal.SIGTERM)
        self.finish(*processes, code=143)

    def check_lost(self, number, loss, within, jax_aborts=True):
        processes = self.both()
        self.wait_for_step(processes)
        processes[number].send_signal(loss)
        other = processes[1 - number]
        if keras_backend.is_jax() and jax_aborts:
            _, errors = other.communicate(timeout=within)
            self.assertEqual(other.returncode, -signal.SIGABRT)
            self.assertIn("JAX distributed service detected fatal errors", errors)
        else:
            lost = "another worker" if keras_backend.is_jax() else f"worker {number}"
            self.ends(other, within, f"No answer from {lost}", "the same command")
        processes[number].kill()
        processes[number].wait()
        self.resumes()

    def test_killed(self):
        self.check_lost(1, signal.SIGKILL, within=60, jax_aborts=False)

    def test_the_first_one_killed(self):
        self.check_lost(0, signal.SIGKILL, within=60)

    def test_frozen(self):
        self.check_lost(1, signal.SIGSTOP, within=120)

    def test_late(self):
        first, second = self.clusters()
        early = self.begin(first)
        time.sleep(20.0)
        self.assertIsNone(early.poll())
        processes = early, self.begin(second)
        self.wait_for_step(processes)
        processes[0].send_signal(signal.SIGTERM)
        self.finish(*processes, code=143)

    def test_started_twice(self):
        first, second = self.clusters()
        processes = self.begin(first), self.begin(second)
        self.wait_for_step(processes)
        again = self.begin(second)
        self.ends(again, 120, "worker 1 cannot listen at port", "TF_CONFIG")
        for process in processes:
            self.assertIsNone(process.poll())
        processes[1].send_signal(signal.SIGTERM)
        self.finish(*processes, code=143)

    def test_other_flags(self):
        for process in self.both(learning_rate=1e-3):
            self.ends(process, 180, "worker 1 ", "--learning_rate", "the same command")

    def test_other_records(self):
        others = toy.write_records(self.path("others"), seed=1)
        for process in self.both(input_file=others):
            self.ends(process, 180, "worker 1 ", "other records", "the same command")
