"""The same result on any devices: processes with logical CPUs, or several processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.fused import xla_compiles_for_the_cpu
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.training.training_options import TrainingConfig
from tests.script_case import FolderCase
from tests.training import strategy_child, toy
from tests.training.strategy_child import classifier


class StrategiesTestCase(FolderCase):
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
        child = "tests.training.strategy_child"
        return self.start_module(child, json.dumps(options), **environment)

    def start_module(self, module, *arguments, **environment):
        command = (sys.executable, "-m", module, *arguments)
        return self.start_program(*command, **environment)

    def start_program(self, *command, **environment):
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def start_workers(self, *runs):
        first, second = self.clusters()
        without = [{**options, "weights": None} for options in runs]
        return [
            self.start(list(runs), TF_CONFIG=first),
            self.start(without, TF_CONFIG=second),
        ]

    def clusters(self, count=2):
        """What TF_CONFIG is for each worker of a cluster on this machine."""
        sockets = [socket.socket() for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        cluster = {"worker": [f"localhost:{one.getsockname()[1]}" for one in sockets]}
        for one in sockets:
            one.close()
        return [
            json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
            for index in range(count)
        ]

    def finish(self, *processes, code=0):
        for process in processes:
            _, errors = process.communicate(timeout=900)
            self.assertEqual(process.returncode, code, errors[-3000:])
        return errors

    def weights(self, name):
        with np.load(self.path(name + ".npz")) as weights:
            return {name: np.float64(weights[name]) for name in weights.files}

    def distance(self, here, there):
        return np.sqrt(sum(((here[name] - there[name]) ** 2).sum() for name in here))


def initial_weights(task):
    """What a run's weights are before its first step."""
    keras.utils.set_random_seed(TrainingConfig.random_seed)
    weights = weights_by_name(task.build_model())
    return {name: np.float64(weight) for name, weight in weights.items()}


class SameResultTest(StrategiesTestCase):
    @pytest.mark.slow
    def test_devices_workers_and_micro_batches_make_the_same_steps(self):
        # Several at once: where one of them is wrong, so is the result.
        config = {"gradient_accumulation_steps": 2, "iterations_per_loop": 3}
        mirrored = {"distribution": "mirrored", "num_cpus": 2}
        in_workers = {"distribution": "multi_worker"}
        together = self.start(
            [
                self.options("mirrored", **mirrored, config=config),
                self.options("mirrored_rows", **mirrored, across_rows=True),
            ]
        )
        workers = self.start_workers(
            self.options("workers", **in_workers),
            self.options("workers_rows", **in_workers, across_rows=True),
        )
        # One device needs no process of its own.
        compiled = {"jit_compile": xla_compiles_for_the_cpu()}
        for options in (
            self.options("one"),
            self.options("one_rows", across_rows=True),
            self.options(
                "one_device",
                distribution="one_device",
                config={"gradient_accumulation_steps": 4, **compiled},
            ),
        ):
            distribution = options.get("distribution", "default")
            strategy_child.run(options, strategy_child.strategy(distribution))
        self.finish(together, *workers)
        one = self.weights("one")
        moved = self.distance(one, initial_weights(toy.task(0.0)))
        self.assertGreater(moved, 0.01)
        for name in ("one_device", "mirrored", "workers"):
            difference = self.distance(one, self.weights(name)) / moved
            self.assertLess(difference, 1e-3, name)
        # A loss that compares the rows of a batch sees those of all replicas.
        one = self.weights("one_rows")
        for name in ("mirrored_rows", "workers_rows"):
            for key, value in self.weights(name).items():
                self.assertAllClose(value, one[key], rtol=0.0, atol=1e-5, msg=name)
        for name in ("one", "mirrored", "workers"):
            steps = [line["step"] for line in toy.metrics(self.path(name))]
            self.assertEqual(steps, [5, 10, 15, 20])

    @pytest.mark.slow
    def test_lamb_and_batches_by_length_make_the_same_steps(self):
        # Every other one is not full: to the second replica comes nothing but padding.
        whole = {"jit_compile": xla_compiles_for_the_cpu()}
        lamb = {"optimizer": "lamb"}
        alone = self.start(
            [
                self.options("lengths", by_length=True),
                self.options("compiled", by_length=True, config=whole),
                self.options("lamb", config=lamb),
            ]
        )
        mirrored = {"distribution": "mirrored", "num_cpus": 2}
        parts = {"gradient_accumulation_steps": 2}
        together = self.start(
            [
                self.options("both", **mirrored, by_length=True, config=parts),
                self.options("lamb2", **mirrored, compiled_updates=True, config=lamb),
                self.options("one", **mirrored),
                self.options("broken", **mirrored, broken=True),
            ]
        )
        self.finish(alone, together)
        for first, others, task in (
            ("lengths", ("compiled", "both"), classifier()),
            ("lamb", ("lamb2",), toy.task(0.0)),
            ("one", (), toy.task(0.0)),
        ):
            one = self.weights(first)
            moved = self.distance(one, initial_weights(task))
            self.assertGreater(moved, 0.005)
            for name in others:
                difference = self.distance(one, self.weights(name)) / moved
                self.assertLess(difference, 1e-3, name)
        # The tests see what they are for.
        self.assertGreater(self.distance(one, self.weights("broken")) / moved, 1e-3)


# So that there is time to stop a run.
SLOW = {"slow": 0.1, "steps": 120, "dropout": 0.1}


class StopTest(StrategiesTestCase):
    @pytest.mark.slow
    def test_sigterm_saves_and_exits_where_one_worker_of_two_hears_it(self):
        self.check_stopped_and_started_again(
            workers=lambda **more: self.start_workers(
                self.options("workers", distribution="multi_worker", **more)
            )
        )

    @pytest.mark.slow
    def test_a_worker_that_is_killed_is_named_by_the_others(self):
        os.makedirs(self.path("model"))
        toy.write_config(self.path("model"))
        arguments = {
            "input_file": self.records,
            "bert_config_file": os.path.join(self.path("model"), "bert_config.json"),
            "output_dir": self.path("workers"),
            "distribution": "multi_worker",
            "do_train": True,
            "num_train_steps": 10**6,
            "num_warmup_steps": 0,
            "train_batch_size": 8,
            "log_steps": 5,
        }
        first, second = (
            self.start_module(
                "bert_tf.run_pretraining",
                *(f"--{name}={value}" for name, value in arguments.items()),
                TF_CONFIG=text,
            )
            for text in self.clusters()
        )
        while not os.path.exists(os.path.join(self.path("workers"), "metrics.jsonl")):
            self.assertIsNone(first.poll())
            time.sleep(0.1)
        second.kill()
        errors = self.finish(first, code=2)
        self.assertIn(
            "run_pretraining: No answer from worker 1: it was stopped", errors
        )

    @pytest.mark.slow
    def test_sigterm_saves_and_exits_in_a_single_process(self):
        self.check_stopped_and_started_again(
            one=lambda **more: [self.start(self.options("one", **more))],
            mirrored=lambda **more: [
                self.start(
                    self.options(
                        "mirrored", distribution="mirrored", num_cpus=2, **more
                    )
                )
            ],
        )
        # A run is what it would have been.
        self.finish(self.start(self.options("whole", **{**SLOW, "slow": 0})))
        whole, stopped = self.weights("whole"), self.weights("one")
        for name in whole:
            self.assertAllEqual(whole[name], stopped[name], name)

    def check_stopped_and_started_again(self, **starts):
        """Stops runs after their first steps, and starts them again up to their end.

        Args:
            **starts: name -> starts a run's processes, with these options.
        """
        running = {name: start(**SLOW) for name, start in starts.items()}
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
            self.assertBetween(self.step_of(name), 5, 119, name)
            running[name] = start(**{**SLOW, "slow": 0})
        for processes in running.values():
            self.finish(*processes)
        for name in starts:
            self.assertEqual(self.step_of(name), 120, name)

    def step_of(self, name):
        """The step of a run's last checkpoint."""
        reader = tf.train.load_checkpoint(self.path(name))
        return int(reader.get_tensor("progress/step/.ATTRIBUTES/VARIABLE_VALUE"))
