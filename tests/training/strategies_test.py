"""The same result on any devices: processes with logical CPUs, or several processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf

from bert_tf.compilation import xla_compiles_for_the_cpu
from tests.training import toy


class StrategiesTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        # Rows with one and with two masks, unevenly dealt to the halves of a batch.
        self.records = toy.write_records(self.path("records"))
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.kill()
            process.wait()
        super().tearDown()

    def path(self, name):
        return os.path.join(self.get_temp_dir(), self.id().split(".")[-1] + name)

    def options(self, name, **options):
        return {
            "folder": self.path(name),
            "weights": self.path(name + ".npz"),
            "records": self.records,
            "steps": 20,
            **options,
        }

    def start(self, options, **environment):
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.training.strategy_child",
                json.dumps(options),
            ],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def start_workers(self, options, count=2):
        sockets = [socket.socket() for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        workers = [f"localhost:{one.getsockname()[1]}" for one in sockets]
        for one in sockets:
            one.close()
        return [
            self.start(
                {**options, "weights": options["weights"] if index == 0 else None},
                TF_CONFIG=json.dumps(
                    {
                        "cluster": {"worker": workers},
                        "task": {"type": "worker", "index": index},
                    }
                ),
            )
            for index in range(count)
        ]

    def finish(self, *processes, code=0):
        for process in processes:
            _, errors = process.communicate(timeout=400)
            self.assertEqual(process.returncode, code, errors[-3000:])
        return errors

    def weights(self, name):
        with np.load(self.path(name + ".npz")) as weights:
            return {name: np.float64(weights[name]) for name in weights.files}

    def distance(self, here, there):
        return np.sqrt(sum(((here[name] - there[name]) ** 2).sum() for name in here))


class SameResultTest(StrategiesTestCase):
    def test_devices_workers_and_micro_batches_make_the_same_steps(self):
        mirrored = {"distribution": "mirrored", "num_cpus": 2}
        accumulated = {"config": {"gradient_accumulation_steps": 4}}
        alone = self.start(
            [
                self.options("start", steps=1, config={"learning_rate": 0.0}),
                self.options("one"),
                self.options("one_device", distribution="one_device"),
                self.options("accumulated", **accumulated),
                self.options(
                    "compiled", config={"jit_compile": xla_compiles_for_the_cpu()}
                ),
            ]
        )
        together = self.start(
            [
                self.options("mirrored", **mirrored),
                self.options(
                    "both",
                    **mirrored,
                    config={"gradient_accumulation_steps": 2, "iterations_per_loop": 3},
                ),
                self.options("broken", **mirrored, broken=True),
            ]
        )
        workers = self.start_workers(
            self.options("workers", distribution="multi_worker")
        )
        self.finish(alone, together, *workers)
        one = self.weights("one")
        moved = self.distance(one, self.weights("start"))
        self.assertGreater(moved, 0.01)
        for name in (
            "one_device",
            "accumulated",
            "compiled",
            "mirrored",
            "both",
            "workers",
        ):
            difference = self.distance(one, self.weights(name)) / moved
            self.assertLess(difference, 1e-3, name)
        # The test sees what it is for.
        self.assertGreater(self.distance(one, self.weights("broken")) / moved, 1e-3)
        for name in ("one", "mirrored", "workers"):
            with open(os.path.join(self.path(name), "metrics.jsonl")) as file:
                lines = [json.loads(line) for line in file]
            self.assertEqual([line["step"] for line in lines], [5, 10, 15, 20])


class StopTest(StrategiesTestCase):
    def test_sigterm_saves_and_exits_under_every_strategy(self):
        slow = {"slow": 0.1, "steps": 120, "dropout": 0.1}
        starts = {
            "one": lambda **more: [self.start(self.options("one", **slow, **more))],
            "mirrored": lambda **more: [
                self.start(
                    self.options(
                        "mirrored", distribution="mirrored", num_cpus=2, **slow, **more
                    )
                )
            ],
            "workers": lambda **more: self.start_workers(
                self.options("workers", distribution="multi_worker", **slow, **more)
            ),
        }
        running = {name: start() for name, start in starts.items()}
        # All at once: the first ones must not come to their end meanwhile.
        waiting = dict(running)
        while waiting:
            for name, processes in list(waiting.items()):
                self.assertIsNone(processes[0].poll(), name)
                metrics = os.path.join(self.path(name), "metrics.jsonl")
                # Five steps are done where it has a line.
                if os.path.exists(metrics) and os.path.getsize(metrics):
                    processes[-1].send_signal(signal.SIGTERM)  # one worker alone
                    del waiting[name]
            time.sleep(0.05)
        for name, processes in running.items():
            errors = self.finish(*processes, code=143)
            self.assertIn("Start the same command again", errors, name)
        for name, start in starts.items():
            reader = tf.train.load_checkpoint(self.path(name))
            step = reader.get_tensor("progress/step/.ATTRIBUTES/VARIABLE_VALUE")
            self.assertBetween(int(step), 5, 119, name)
            running[name] = start()
        for processes in running.values():
            self.finish(*processes)
        for name in starts:
            reader = tf.train.load_checkpoint(self.path(name))
            step = reader.get_tensor("progress/step/.ATTRIBUTES/VARIABLE_VALUE")
            self.assertEqual(int(step), 120, name)
        # A run is what it would have been.
        self.finish(self.start(self.options("whole", **{**slow, "slow": 0})))
        whole, stopped = self.weights("whole"), self.weights("one")
        for name in whole:
            self.assertAllEqual(whole[name], stopped[name], name)


if __name__ == "__main__":
    tf.test.main()
