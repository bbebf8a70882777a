import json
import os
import socket
from unittest import mock

import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.base.shared_options import DeviceOptions
from bert_tf.training.strategy import (
    check_batch_size,
    create_strategy,
    is_chief,
    num_workers,
    sum_over_workers,
)


class StrategyTest(tf.test.TestCase):
    def test_two_kinds_of_devices_contradict_each_other(self):
        message = "`use_tpu` and `distribution=mirrored` contradict"
        with self.assertRaisesRegex(InputError, message):
            DeviceOptions(use_tpu=True, distribution="mirrored")
        DeviceOptions(use_tpu=True, distribution="tpu")

    def test_the_default_is_the_machines(self):
        self.assertIs(create_strategy(), tf.distribute.get_strategy())

    def test_one_device_is_one_replica_and_the_chief(self):
        one = create_strategy(DeviceOptions(distribution="one_device"))
        self.assertEqual(one.num_replicas_in_sync, 1)
        self.assertTrue(is_chief(one))
        self.assertEqual(num_workers(one), 1)

    def test_an_address_without_a_tpu_is_one_line(self):
        with socket.socket() as unused:
            unused.bind(("localhost", 0))  # and it does not listen
            port = unused.getsockname()[1]
            names = f"grpc://localhost:{port}", "grpc://", "grpc://localhost:0x1"
            for name in names:
                with self.assertRaisesRegex(InputError, f"no TPU answers .*={name}`: "):
                    create_strategy(DeviceOptions(distribution="tpu", tpu_name=name))

    def test_each_address_of_a_pod_is_tried(self):
        refused = ConnectionRefusedError("no")
        with (
            mock.patch.object(
                socket, "create_connection", side_effect=[mock.Mock(), refused]
            ) as connect,
            self.assertRaisesRegex(InputError, "no TPU answers"),
        ):
            create_strategy(
                DeviceOptions(
                    distribution="tpu", tpu_name="grpc://host0:1,grpc://host1"
                )
            )
        tried = [call.args[0] for call in connect.call_args_list]
        self.assertEqual(tried, [("host0", 1), ("host1", 8470)])

    def test_a_cluster_that_does_not_name_this_process_is_one_line(self):
        cluster = {
            "worker": ["localhost:1", "localhost:2"],
            "evaluator": ["localhost:3"],
        }
        tasks = (("worker", 3), ("ps", 0), ("evaluator", 0))
        for content in (
            "{",
            "[1]",
            *(
                json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
                for job, index in tasks
            ),
        ):
            message = "does not name this process: .*[^.]\\. Give"
            with self.assertRaisesRegex(InputError, message):
                self.create_as_worker(content)
        with self.assertRaisesRegex(InputError, "process: there is no 'task'. Give"):
            self.create_as_worker('{"cluster": {}}')

        with self.assertRaisesRegex(InputError, "nothing in the environment names"):
            self.create_as_worker("")

    def create_as_worker(self, content):
        with mock.patch.dict(os.environ, {"TF_CONFIG": content}):
            return create_strategy(DeviceOptions(distribution="multi_worker"))

    def test_a_worker_that_is_not_up_is_named(self):
        with socket.socket() as unused, socket.socket() as own:
            for one in (unused, own):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(("", 0))
            absent, port = (one.getsockname()[1] for one in (unused, own))
            own.close()
            cluster = {"worker": [f"localhost:{port}", f"localhost:{absent}"]}
            task = {"type": "worker", "index": 0}
            text = json.dumps({"cluster": cluster, "task": task})
            with (
                mock.patch("bert_tf.training.cluster.SECONDS_TO_ANSWER", 0.1),
                self.assertLogs(level="INFO") as logs,
                self.assertRaisesRegex(
                    InputError, f"from worker 1 .*:{absent}. in 0.1"
                ),
            ):
                self.create_as_worker(text)
            self.assertIn("worker 0 waits for worker 1", logs.output[1])
            # The absent one's port is taken by another process.
            task["index"] = 1
            text = json.dumps({"cluster": cluster, "task": task})
            unused.listen()
            message = f"worker 1 cannot listen .*{absent}"
            with self.assertRaisesRegex(InputError, message):
                self.create_as_worker(text)

    def test_a_batch_that_cannot_be_dealt_out_is_refused(self):
        default = create_strategy()
        check_batch_size(default, 12, 4)
        with self.assertRaisesRegex(InputError, "=10` .* give a multiple of 4"):
            check_batch_size(default, 10, 4)
        with self.assertRaisesRegex(InputError, "^`eval_batch_size=3` "):
            check_batch_size(default, 3, 2, flag="eval_batch_size")

    def test_one_worker_agrees_with_itself(self):
        self.assertAllEqual(sum_over_workers(create_strategy(), [1, 0.5]), [1.0, 0.5])
