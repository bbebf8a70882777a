import json
import os
from unittest import mock

import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.training import cluster

TF_CONFIG = {
    "cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]},
    "task": {"type": "worker", "index": 1},
}
# As Vertex AI sets it.
CLUSTER_SPEC = {
    "cluster": {
        "workerpool0": ["cmle-0:2222"],
        "workerpool1": ["cmle-1:2222", "cmle-2:2222"],
        "workerpool3": ["cmle-3:2222"],
    },
    "environment": "cloud",
    "task": {"type": "workerpool1", "index": 1},
}
# As srun sets it on the second node of three tasks; 300 modulo 256 is 44.
SLURM = {
    "SLURM_JOB_ID": "300",
    "SLURM_STEP_NODELIST": "n[9-10]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
}
KUBERNETES = {"JOB_COMPLETION_INDEX": "3", "WORKER_HOSTS": "bert-[0-2].svc,extra:9"}
FIRST_PORT = 61440 + 44 * 16


def found(environment, sources=cluster.EVERY_SOURCE):
    with mock.patch.dict(os.environ, environment, clear=True):
        return cluster.find(sources)


class FindTest(tf.test.TestCase):
    def check(self, environment, own, places):
        with self.assertLogs(level="INFO") as logs:
            here = found(environment)
        self.assertEqual((here.own, list(here.places.items())), (own, places))
        self.assertLen(logs.output, 1)
        host, port = here.places[own]
        line = f"{here.found}: this is {own} of {len(places)}, at {host}:{port}."
        self.assertIn(line, logs.output[0])

    def test_tf_config(self):
        places = [("chief 0", ("a", 1)), ("worker 0", ("b", 2)), ("worker 1", ("c", 3))]
        self.check({"TF_CONFIG": json.dumps(TF_CONFIG)}, "worker 1", places)

    def test_vertex_ai(self):
        names = ("chief 0", "worker 0", "worker 1")
        places = [(name, (f"cmle-{n}", 2222)) for n, name in enumerate(names)]
        self.check({"CLUSTER_SPEC": json.dumps(CLUSTER_SPEC)}, "worker 1", places)

    def test_slurm(self):
        hosts = [("n9", FIRST_PORT), ("n9", FIRST_PORT + 1), ("n10", FIRST_PORT)]
        places = [(f"worker {n}", host) for n, host in enumerate(hosts)]
        self.check(SLURM, "worker 2", places)
        self.assertIsNone(found(SLURM, cluster.NOT_OF_JAX))

    def test_kubernetes(self):
        places = [(f"worker {n}", (f"bert-{n}.svc", 2222)) for n in range(3)]
        self.check(KUBERNETES, "worker 3", [*places, ("worker 3", ("extra", 9))])

    def test_the_first_way_counts(self):
        every = {**SLURM, **KUBERNETES, "TF_CONFIG": json.dumps(TF_CONFIG)}
        self.assertEqual(found(every).found, "TF_CONFIG")
        self.assertIsNone(found({}))

    def test_what_does_not_name_this_process_is_one_line(self):
        evaluator = {**CLUSTER_SPEC, "task": {"type": "workerpool3", "index": 0}}
        of_tensorflow = {**TF_CONFIG, "task": {"type": "worker", "index": 2}}
        for environment, message in (
            ({"CLUSTER_SPEC": json.dumps(evaluator)}, "workerpool3 0 is not one of"),
            ({"TF_CONFIG": json.dumps(of_tensorflow)}, "worker 2 is not one of chief"),
            ({**SLURM, "SLURM_LOCALID": "1"}, "not numbered node by node"),
            ({**SLURM, "SLURM_PROCID": "3"}, "SLURM_STEP_NODELIST=.* out of range"),
            ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2"}, "does not name this process"),
            ({"WORKER_HOSTS": "a,b"}, "there is no 'JOB_COMPLETION_INDEX'. Give"),
            ({**KUBERNETES, "WORKER_HOSTS": "a,b"}, "worker 3 is not one of worker 0"),
        ):
            with self.assertRaisesRegex(InputError, message):
                found(environment)
