"""The engine on JAX: TensorFlow's numbers, on any devices, resumed on either."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.base import keras_backend
from bert_tf.base.errors import InputError
from bert_tf.base.shared_options import DeviceOptions
from bert_tf.modeling import fused
from bert_tf.modeling.heads import BertClassifier
from bert_tf.training import strategy
from bert_tf.training.step import on_devices
from bert_tf.training.strategy import create_strategy
from tests import processes
from tests.modeling import examples
from tests.training import strategies_test, strategy_child, toy

if not keras_backend.is_jax():
    pytest.skip("for `make test-jax`", allow_module_level=True)
pytestmark = pytest.mark.jax
jax = pytest.importorskip("jax")


def devices(count):
    """That the host's processor is so many devices to JAX."""
    return {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}


class JaxTestCase(strategies_test.StrategiesTestCase):
    def options(self, name, steps=20, **options):
        config = {
            "log_steps": 1,
            "save_checkpoints_steps": 1,
            "keep_checkpoint_max": 0,
            "learning_rate": 1e-3,
            **options.pop("config", {}),
        }
        return super().options(
            name, steps=steps, config=config, **{"dropout": 0.1, **options}
        )

    def on_tensorflow(self, *runs):
        self.finish(self.start(list(runs), KERAS_BACKEND="tensorflow", XLA_FLAGS=""))

    def run_here(self, name, **options):
        strategy_child.run(self.options(name, **options), strategy_child.strategy())

    def losses(self, name):
        """Each step's loss, by its number."""
        lines = toy.metrics(self.path(name))
        return {line["step"]: line["loss"] for line in lines}

    def tensors(self, name, step):
        """All that is in a checkpoint."""
        return toy.tensors(os.path.join(self.path(name), f"model.ckpt-{step}"))

    def assert_same_run(self, name, other, first, last, within=1e-3):
        """Equal losses; weights, of the way that they went, and moments within that."""
        theirs = self.losses(other)
        for step, loss in self.losses(name).items():
            self.assertAllClose(loss, theirs[step], rtol=1e-5, atol=0.0)
        start, one, two = (
            {
                key: np.float64(value)
                for key, value in self.tensors(run, step).items()
                if key.startswith("weights/")
            }
            for run, step in ((other, first), (other, last), (name, last))
        )
        moved = self.distance(start, one)
        self.assertGreater(moved, 0.01)
        self.assertLess(self.distance(one, two) / moved, within)
        for moment in ("adam_m", "adam_v"):
            one, two = (
                {
                    key: np.float64(value)
                    for key, value in self.tensors(run, last).items()
                    if moment in key
                }
                for run in (other, name)
            )
            size = self.distance(one, dict.fromkeys(one, 0.0))
            self.assertLess(self.distance(one, two) / size, within, moment)


class BackendsTest(JaxTestCase):
    def test_a_run_is_the_same_on_both_and_changes_from_one_to_the_other(self):
        run = {"steps": 30}
        self.on_tensorflow(self.options("theirs", **run))
        toy.begin_as(self.path("theirs"), 1, self.path("ours"))
        self.run_here("ours", **run)
        self.assert_same_run("ours", "theirs", 1, 30)
        reported = [toy.metrics(self.path(name))[-1] for name in ("ours", "theirs")]
        self.assertEqual(*map(list, reported))  # in the same order, too
        # Both have the same tensors, of the same types; step and place are exact.
        ours, theirs = self.tensors("ours", 30), self.tensors("theirs", 30)
        self.assertEqual(
            {key: (value.dtype, value.shape) for key, value in ours.items()},
            {key: (value.dtype, value.shape) for key, value in theirs.items()},
        )
        for key, value in theirs.items():
            if value.dtype != np.float32:
                self.assertAllEqual(ours[key], value, key)
        # The other way round: as if the run had never changed.
        toy.begin_as(self.path("ours"), 20, self.path("back"))
        self.on_tensorflow(self.options("back", **run))
        self.assertEqual(min(self.losses("back")), 21)
        self.assert_same_run("back", "ours", 1, 30)

    def test_local_attention_and_its_micro_batches_make_the_same_steps(self):
        # Four blocks of three tokens, of which two are global.
        local = {"attention_window": 3, "global_tokens": 2}
        run = {"steps": 50, "model": local}
        parts = {**run, "config": {"gradient_accumulation_steps": 4}}
        self.on_tensorflow(
            self.options("theirs", **run), self.options("their_parts", **parts)
        )
        for name in ("ours", "our_parts"):
            toy.begin_as(self.path("theirs"), 1, self.path(name))
        self.run_here("ours", **run)
        self.run_here("our_parts", **parts)
        for name in ("ours", "their_parts", "our_parts"):
            self.assert_same_run(name, "theirs", 1, 50)


class DevicesTest(JaxTestCase):
    def test_devices_processes_and_micro_batches_make_the_same_steps(self):
        # Several at once: where one of them is wrong, so is the result.
        lamb = {"optimizer": "lamb"}
        parts = {"config": {**lamb, "gradient_accumulation_steps": 2}}
        mirrored = {"distribution": "mirrored"}
        together = self.start(
            [
                self.options("mirrored", **mirrored, **parts),
                self.options("mirrored_rows", **mirrored, across_rows=True),
            ],
            **devices(4),
        )
        in_workers = {"distribution": "multi_worker"}
        workers = self.start_workers(
            self.options("workers", **in_workers, **parts),
            self.options("workers_rows", **in_workers, across_rows=True),
        )
        self.run_here("one", config=lamb)
        self.run_here("one_rows", across_rows=True)
        self.finish(together, *workers)
        for name in ("mirrored", "workers"):
            self.assert_same_run(name, "one", 1, 20, within=1e-5)
        # A loss that compares the rows of a batch sees those of all devices.
        for name in ("mirrored_rows", "workers_rows"):
            self.assert_same_run(name, "one_rows", 1, 20, within=1e-5)

    @pytest.mark.slow
    def test_eight_devices_share_the_moments_and_four_one_and_two_resume(self):
        lamb, muon = {"optimizer": "lamb"}, {"optimizer": "muon"}
        parts = {"gradient_accumulation_steps": 2}
        mirrored = {"distribution": "mirrored", "steps": 10}
        on_eight = self.start(
            [
                self.options("adamw8", **mirrored),
                self.options("lamb8", **mirrored, config=lamb),
                self.options("muon8", **mirrored, config=muon),
            ],
            **devices(8),
        )
        on_four = self.start(
            [self.options("adamw4", **mirrored, config=parts)], **devices(4)
        )
        self.run_here("adamw", steps=10)
        self.run_here("lamb", steps=10, config=lamb)
        self.run_here("muon", steps=10, config=muon)
        self.finish(on_eight, on_four)
        for name, one in (
            *(("adamw8", "adamw"), ("adamw4", "adamw")),
            *(("lamb8", "lamb"), ("muon8", "muon")),
        ):
            self.assert_same_run(name, one, 1, 10, within=1e-5)
        # Files are of the same form, and what four saved resumes on one and on two.
        shapes = {
            name: {key: (x.shape, x.dtype) for key, x in self.tensors(name, 10).items()}
            for name in ("adamw", "adamw4")
        }
        self.assertEqual(shapes["adamw4"], shapes["adamw"])
        for name in ("on_one", "on_two"):
            toy.begin_as(self.path("adamw4"), 5, self.path(name))
        on_two = self.start([self.options("on_two", **mirrored)], **devices(2))
        self.run_here("on_one", steps=10)
        self.finish(on_two)
        for name in ("on_one", "on_two"):
            self.assertEqual(min(self.losses(name)), 6)
            self.assert_same_run(name, "adamw", 1, 10, within=1e-5)

    def test_each_device_has_its_share_of_the_moments(self):
        done = processes.run_python("-c", SHARES, **devices(4))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        # 4 devices: rows, or else columns, or else everywhere; the bits stay the same.
        self.assertEqual(
            lines, ["(8, 6) (2, 6)", "(30, 8) (30, 2)", "(6,) (6,)", "() ()", "True"]
        )


SHARES = """
import keras, numpy as np
from bert_tf.training.checkpoints import take_snapshot
from bert_tf.training.jax_step import JaxStrategy

shapes = [(8, 6), (30, 8), (6,), ()]
values = [np.random.default_rng(0).normal(size=x).astype("float32") for x in shapes]
variables = [keras.Variable(x) for x in values]
for value in JaxStrategy().divide(variables):
    print(value.shape, value.addressable_data(3).shape)
saved = take_snapshot({"optimizer": {str(i): x for i, x in enumerate(variables)}})
same = zip(saved["optimizer"].values(), values)
print(all(one.numpy().tobytes() == two.tobytes() for one, two in same))
"""


class JobTest(JaxTestCase):
    def test_two_processes_that_slurm_started_make_the_steps_of_one(self):
        run = {"steps": 5}
        first = self.options("first", distribution="multi_worker", **run)
        port = self.port()
        workers = [
            self.start([options], **of_slurm(number, port))
            for number, options in enumerate((first, {**first, "weights": None}))
        ]
        self.run_here("one", **run)
        self.finish(*workers)
        self.assert_same_run("first", "one", 1, 5, within=1e-5)

    def port(self):
        """A free one among those that JAX makes of a job's number."""
        for port in range(SLURM_PORTS, 2**16):
            with socket.socket() as one, contextlib.suppress(OSError):
                one.bind(("localhost", port))
                return port
        raise AssertionError("No port is free.")

    def test_a_process_of_no_job_is_one_line(self):
        names = sum(strategy._LAUNCHERS.values(), ("TF_CONFIG",))
        environment = {
            name: value for name, value in os.environ.items() if name not in names
        }
        message = "`distribution=multi_worker`: this process could not join a job of"
        message += " Open MPI or .*: none .* Start the processes"
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            self.assertRaisesRegex(InputError, message),
        ):
            create_strategy(DeviceOptions(distribution="multi_worker"))

    def test_a_slice_of_several_hosts_is_joined_as_a_whole(self):
        for variables, launcher in (
            ({"TPU_WORKER_HOSTNAMES": "localhost"}, None),
            ({"TPU_WORKER_HOSTNAMES": "host0,host1"}, "TPU slice"),
            ({"TPU_PROCESS_ADDRESSES": "host0:1,host1:1"}, "TPU slice"),
            ({"MEGASCALE_NUM_SLICES": "2"}, "Google Cloud's metadata"),
        ):
            with (
                self.subTest(variables),
                mock.patch.dict(os.environ, variables),
                mock.patch.object(jax.distributed, "initialize") as initialize,
                mock.patch.object(strategy.logging, "info") as info,
                self.assertRaisesRegex(InputError, "JAX finds no TPU"),
            ):
                create_strategy(DeviceOptions(distribution="tpu"))
            self.assertEqual(initialize.called, launcher is not None)
            if launcher:
                line = info.call_args.args[0] % info.call_args.args[1:]
                self.assertStartsWith(line, f"{launcher}: this is process 0 of 1, on ")


# JAX's port for a Slurm job is the first one and the job's number modulo 4096.
SLURM_PORTS = 2**16 - 2**12


def of_slurm(number, port):
    """The variables that srun gives one of two processes on this machine."""
    return {
        "SLURM_JOB_ID": str(port - SLURM_PORTS),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": str(number),
    }


class ResumeTest(JaxTestCase):
    def test_a_run_that_was_killed_ends_with_the_same_bits(self):
        # With the state of float16's loss; ELECTRA's test does it in float32.
        run = {"steps": 6, "config": {"precision": "float16"}}
        self.run_here("whole", **run)
        toy.begin_as(self.path("whole"), 3, self.path("killed"))
        self.run_here("killed", **run)
        expected = self.tensors("whole", 6)
        for key, value in self.tensors("killed", 6).items():
            self.assertEqual(value.tobytes(), expected[key].tobytes(), key)
        losses = self.losses("killed")
        self.assertEqual(min(losses), 4)
        self.assertContainsSubset(losses.items(), self.losses("whole").items())


class PredictionTest(tf.test.TestCase):
    def test_is_with_the_weights_of_the_moment(self):
        model = BertClassifier(examples.small_config(num_hidden_layers=1), 3)
        records = examples.random_records(model.bert_config)
        predict = on_devices().prediction_step(model, create_strategy())
        for seed in (1, 2):
            examples.randomize(model, seed)
            expected = examples.outputs_of(model, records)["logits"]
            self.assertAllClose(predict(records)["logits"], expected, atol=1e-6)


class ProductsByHeadTest(tf.test.TestCase):
    def check(self, **fields):
        dropout = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
        config = examples.small_config(**dropout, **fields)
        model = BertClassifier(config, 3)
        examples.randomize(model)
        length = config.max_position_embeddings
        records = examples.random_records(config, length=length)
        inputs = {name: records[name] for name in model.input}
        before = [x.value for x in model.non_trainable_variables]

        def loss(weights):
            outputs, _ = model.stateless_call(weights, before, inputs, training=True)
            return ((outputs["logits"] - 0.1) ** 2).sum()

        def gradients(is_on):
            with fused.products_by_head(is_on):
                return jax.grad(loss)([x.value for x in model.trainable_variables])

        self.assertAllClose(gradients(True), gradients(False), rtol=1e-4, atol=1e-4)

    def test_gradients_are_those_of_products_of_rows(self):
        self.check()

    def test_gradients_do_not_depend_on_further_columns_of_local_attention(self):
        for length in (40, 200):
            self.check(
                max_position_embeddings=length, attention_window=16, global_tokens=3
            )


@pytest.mark.slow
@pytest.mark.checkout
class BenchmarkTest(tf.test.TestCase):
    def test_gpu_steps_runs_without_a_gpu(self):
        done = subprocess.run(
            [sys.executable, "benchmarks/gpu_steps.py"],
            env={**os.environ, "GPU_STEPS_SECONDS": "0.1"},
            cwd=pathlib.Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertStartsWith(done.stdout, "No GPU here")
        self.assertRegex(
            done.stdout, "bert_tf, JAX +[0-9.]+ ms a step +[0-9,]+ tokens/s"
        )
        self.assertIn("two runs have the same bits", done.stdout)
