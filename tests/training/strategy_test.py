import json
import os
from unittest import mock

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.training.strategy import (
    Agreement,
    check_batch_size,
    create_strategy,
    is_chief,
    num_workers,
)


class StrategyTest(tf.test.TestCase):
    def test_the_default_is_the_machines(self):
        self.assertIs(create_strategy(), tf.distribute.get_strategy())

    def test_one_device_is_one_replica_and_the_chief(self):
        strategy = create_strategy("one_device")
        self.assertEqual(strategy.num_replicas_in_sync, 1)
        self.assertTrue(is_chief(strategy))
        self.assertEqual(num_workers(strategy), 1)

    def test_no_tpu_is_one_line(self):
        with self.assertRaisesRegex(InputError, "no TPU answers .*--tpu_name=local"):
            create_strategy("tpu", tpu_name="local")

    def test_workers_without_a_cluster_are_told_what_to_set(self):
        for text in ("", "{", '{"cluster": {}}', "[1]"):
            with (
                mock.patch.dict(os.environ, {"TF_CONFIG": text}),
                self.assertRaisesRegex(InputError, "environment variable TF_CONFIG"),
            ):
                create_strategy("multi_worker")

    def test_a_worker_that_the_cluster_does_not_have_is_one_line(self):
        for task in ({"type": "worker", "index": 3}, {"type": "ps", "index": 0}):
            cluster = {"worker": ["localhost:1", "localhost:2"]}
            text = json.dumps({"cluster": cluster, "task": task})
            with (
                mock.patch.dict(os.environ, {"TF_CONFIG": text}),
                self.assertRaisesRegex(InputError, "names no such process: "),
            ):
                create_strategy("multi_worker")

    def test_a_batch_that_cannot_be_dealt_out_is_refused(self):
        strategy = create_strategy()
        check_batch_size(strategy, 12, 4)
        with self.assertRaisesRegex(InputError, "=10 .* give a multiple of 4"):
            check_batch_size(strategy, 10, 4)
        with self.assertRaisesRegex(InputError, "^--eval_batch_size=3 "):
            check_batch_size(strategy, 3, 2, flag="eval_batch_size")

    def test_one_worker_agrees_with_itself(self):
        self.assertAllEqual(Agreement(create_strategy(), 2).sum([1, 0.5]), [1.0, 0.5])


if __name__ == "__main__":
    tf.test.main()
