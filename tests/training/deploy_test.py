"""The files of deploy/, with the environment that Slurm or Kubernetes would give."""

import fnmatch
import json
import os
import pathlib
import shlex
import socket
import stat
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.base import cli
from bert_tf.training import cluster
from tests.training import strategies_test, toy

pytestmark = [pytest.mark.checkout, pytest.mark.jax]
yaml = pytest.importorskip("yaml")
DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"

# srun of two tasks on this machine; its flags come first.
SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
export SLURM_STEP_NODELIST=localhost SLURM_STEP_TASKS_PER_NODE=2 SLURM_NTASKS=2
for task in 0 1; do
  SLURM_PROCID=$task SLURM_LOCALID=$task "$@" &
  tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || code=$?; done
exit ${code:-0}
"""
SCONTROL = """#!/bin/bash
echo "$@" > "$SCONTROL_LOG"
"""
OURS = ("TF_CONFIG", "CLUSTER_SPEC", "SLURM_*", "WORKER_HOSTS", "JOB_COMPLETION_INDEX")


def without_clusters():
    """The environment, with nothing that names processes."""
    return {
        name: value
        for name, value in os.environ.items()
        if not any(fnmatch.fnmatch(name, one) for one in OURS)
    }


def manifest(name):
    """A JobSet, its only job and its container."""
    whole = yaml.safe_load((DEPLOY / name).read_text("utf-8"))
    (job,) = whole["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    return whole, job, container


class ManifestsTest(tf.test.TestCase):
    def test_flags_are_those_of_the_command(self):
        from bert_tf import run_pretraining

        for name in ("jobset.yaml", "gke_tpu_slice.yaml"):
            _, _, container = manifest(name)
            self.assertEqual(container["command"][1:], ["-m", run_pretraining.__name__])
            options = cli.parse(run_pretraining.run, container["args"])
            self.assertTrue(options.do_train)
            self.assertEqual(options.train_batch_size % 32, 0)  # devices

    def test_each_pod_has_its_name(self):
        whole, job, container = manifest("jobset.yaml")
        spec = job["template"]["spec"]
        self.assertEqual(spec["completions"], spec["parallelism"])
        environment = {one["name"]: one["value"] for one in container["env"]}
        environment["JOB_COMPLETION_INDEX"] = str(spec["completions"] - 1)
        with mock.patch.dict(os.environ, environment):
            found = cluster.find(["Kubernetes"])
        # JOBSET-JOB-NUMBER-INDEX.SUBDOMAIN, which is the JobSet's name by default.
        jobset = whole["metadata"]["name"]
        (port,) = (one["containerPort"] for one in container["ports"])
        self.assertEqual(
            list(found.places.values()),
            [
                (f"{jobset}-{job['name']}-0-{index}.{jobset}", port)
                for index in range(spec["completions"])
            ],
        )

    def test_a_slice_has_a_pod_for_each_host(self):
        _, job, container = manifest("gke_tpu_slice.yaml")
        spec = job["template"]["spec"]
        selector = spec["template"]["spec"]["nodeSelector"]
        topology = selector["cloud.google.com/gke-tpu-topology"]
        chips = np.prod([int(size) for size in topology.split("x")])
        of_host = container["resources"]["limits"]["google.com/tpu"]
        self.assertEqual(spec["completions"] * of_host, chips)


@pytest.mark.slow
class SmallRunTest(strategies_test.StrategiesTestCase):
    """Two processes that only their system has told of each other, beside one."""

    def flags(self, name):
        os.makedirs(self.path("model"), exist_ok=True)
        toy.write_config(self.path("model"))
        return [
            f"--input_file={self.records}",
            f"--bert_config_file={self.path('model')}/bert_config.json",
            f"--output_dir={self.path(name)}",
            *("--do_train", "--num_train_steps=5", "--num_warmup_steps=0"),
            *("--train_batch_size=8", "--learning_rate=1e-3"),
        ]

    def checkpoint(self, name):
        reader = tf.train.load_checkpoint(self.path(name))
        return {
            key: np.float64(reader.get_tensor(key))
            for key in reader.get_variable_to_shape_map()
            if key.startswith("weights/")
        }

    def assert_same_weights(self, name):
        command = "bert_tf.run_pretraining"
        self.finish(self.start_module(command, *self.flags("one")))
        one, other = self.checkpoint("one"), self.checkpoint(name)
        size = self.distance(one, dict.fromkeys(one, 0.0))
        self.assertLess(self.distance(one, other) / size, 1e-5)

    def test_slurm(self):
        folder = pathlib.Path(self.path("bin"))
        folder.mkdir()
        python = f'#!/bin/bash\nexec {shlex.quote(sys.executable)} "$@"\n'
        for name, text in {
            "srun": SRUN,
            "scontrol": SCONTROL,
            "python": python,
        }.items():
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRWXU)
        environment = {
            **without_clusters(),
            "PATH": f"{folder}:{os.environ['PATH']}",
            "SCONTROL_LOG": self.path("requeued"),
            "SLURM_JOB_ID": str(self.job()),
        }
        script = str(DEPLOY / "slurm.sbatch")
        self.finish(self.start_bash(environment, script, *self.flags("slurm")))
        self.assert_same_weights("slurm")
        self.assertFalse(os.path.exists(self.path("requeued")))
        # Slurm stops it: it is to be started again.
        (folder / "python").write_text("#!/bin/bash\nexit 143\n")
        self.finish(self.start_bash(environment, script), code=143)
        requeued = pathlib.Path(self.path("requeued")).read_text()
        self.assertEqual(requeued, f"requeue {environment['SLURM_JOB_ID']}\n")

    def start_bash(self, environment, *arguments):
        with mock.patch.dict(os.environ, environment, clear=True):
            return self.start_program("bash", *arguments)

    def job(self):
        """The number of one whose ports are free."""
        for number in range(2**8):
            ports = [2**16 - 2**12 + number * 16 + task for task in (0, 1)]
            ports.append(2**16 - 2**12 + number)  # JAX's
            try:
                for port in ports:
                    with socket.socket() as one:
                        one.bind(("", port))
            except OSError:
                continue
            return number
        raise AssertionError("No port is free.")

    def test_kubernetes(self):
        _, _, container = manifest("jobset.yaml")
        addresses = json.loads(self.clusters()[0])["cluster"]["worker"]
        self.assertEqual([one["name"] for one in container["env"]], ["WORKER_HOSTS"])
        workers = []
        for index in range(2):
            environment = {
                **without_clusters(),
                "JOB_COMPLETION_INDEX": str(index),
                "WORKER_HOSTS": ",".join(addresses),
            }
            with mock.patch.dict(os.environ, environment, clear=True):
                module = container["command"][2]
                given = [one for one in container["args"] if "bert_size" not in one]
                workers.append(self.start_module(module, *given, *self.flags("pods")))
        self.finish(*workers)
        self.assert_same_weights("pods")

    def test_workers_of_one_command(self):
        with mock.patch.dict(os.environ, without_clusters(), clear=True):
            command = self.start_module(
                "bert_tf.run_pretraining",
                *("--distribution=multi_worker", "--local_workers=2"),
                *self.flags("local"),
            )
        self.finish(command)
        self.assert_same_weights("local")
