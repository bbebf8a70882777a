import itertools
from unittest import mock

import tensorflow as tf

from bert_tf.tasks import classification
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.tasks.targets import SINGLE_LABEL, Target
from bert_tf.training import throughput
from tests.training import toy


class PublishedPeakTest(tf.test.TestCase):
    def test_gpus_by_the_names_that_they_give_themselves(self):
        peak = throughput.published_gpu_peak
        self.assertEqual(peak("NVIDIA A100-SXM4-80GB", "bfloat16"), 312e12)
        self.assertEqual(peak("NVIDIA A100-SXM4-80GB", "float16"), 312e12)
        self.assertEqual(peak("NVIDIA A100-SXM4-80GB", "float32"), 156e12)
        self.assertEqual(peak("NVIDIA A100-PCIE-40GB", "float32", False), 19.5e12)
        self.assertAllClose(peak("NVIDIA H100 80GB HBM3", "bfloat16"), 989.5e12)
        self.assertAllClose(peak("NVIDIA H100 PCIe", "bfloat16"), 756.5e12)
        self.assertAllClose(peak("NVIDIA H200", "float32"), 494.5e12)
        self.assertEqual(peak("Tesla V100-SXM2-16GB", "float16"), 125e12)
        self.assertEqual(peak("Tesla T4", "float16"), 65e12)
        self.assertEqual(peak("Tesla T4", "float32"), 8.1e12)

    def test_what_is_not_known_is_none(self):
        # Neither has products of bfloat16; and another card has T4 in its name.
        for name in ("Tesla V100-SXM2-16GB", "Tesla T4"):
            self.assertIsNone(throughput.published_gpu_peak(name, "bfloat16"))
        self.assertIsNone(throughput.published_gpu_peak("NVIDIA T400", "float32"))

    def test_tpus_by_the_type_of_a_slice(self):
        peak = throughput.published_tpu_peak
        self.assertEqual(peak("v3-8"), 4 * 123e12)  # 8 cores, 4 chips
        self.assertEqual(peak("v4-32"), 16 * 275e12)
        self.assertEqual(peak("v5litepod-8"), 8 * 197e12)
        self.assertEqual(peak("v6e-4"), 4 * 918e12)
        for kind in ("", "v9-8", "v3", "v3-small"):
            self.assertIsNone(peak(kind))


class MeasuredPeakTest(tf.test.TestCase):
    def test_the_best_of_many_by_a_clock_of_our_own(self):
        # Each product takes 1 s by this clock, but for the third one: half a second.
        ticks = itertools.chain([0.0, 1.0, 2.0, 2.5], itertools.count(3.5))
        clock = mock.Mock(perf_counter=mock.Mock(side_effect=ticks))
        with mock.patch.object(throughput, "time", clock):
            rate = throughput._best_rate(64, "float32", "/CPU:0", seconds=5.0)
        self.assertEqual(rate, 2 * 64 * 64 * 64 / 0.5)
        self.assertLen(clock.perf_counter.mock_calls, 7)  # 0 to 5.5

    def test_a_rate_that_a_processor_may_have(self):
        for precision in ("float32", "bfloat16", "float16"):
            peak = throughput.measured_peak(precision)
            self.assertBetween(peak, 1e8, 1e14)

    def test_replicas_on_one_cpu_share_its_cores(self):
        replicas = mock.Mock(num_replicas_in_sync=2)
        with mock.patch.object(throughput, "measured_peak", return_value=7.0) as peak:
            self.assertEqual(throughput.peak_flops(replicas, "bfloat16"), 7.0)
        peak.assert_called_once_with("bfloat16", "/CPU:0")

    def test_gpus_add_up(self):
        replicas = mock.Mock(num_replicas_in_sync=4)
        with (
            mock.patch.object(tf.config, "list_physical_devices", return_value=["g"]),
            mock.patch.object(
                tf.config.experimental,
                "get_device_details",
                return_value={"device_name": "NVIDIA A100-SXM4-40GB"},
            ),
        ):
            peak = throughput.peak_flops(replicas, "bfloat16")
        self.assertEqual(peak, 4 * 312e12)


class ShareTest(tf.test.TestCase):
    def test_by_hand(self):
        # 600 GFLOP in 2 s are 300 GFLOP/s: half of 600.
        self.assertEqual(throughput.share_of_peak(600e9, 2.0, 600e9), 0.5)

    def test_of_the_records_as_they_come(self):
        spec = {
            name: tf.TensorSpec([6, length], tf.int32)
            for name, length in (("input_ids", toy.L), ("masked_lm_positions", toy.P))
        }
        task = pretraining_task(toy.CONFIG)
        # One layer, S = 12, H = 8, I = 16, P = 2, V = 30: 8 S H^2 = 6144,
        # 4 S^2 H = 4608, 4 S H I = 6144; pooler and two labels 160; 2 P H (H + V) =
        # 1216.
        by_hand = 3 * 6 * (6144 + 4608 + 6144 + 160 + 1216)
        self.assertEqual(throughput.model_flops_per_step(task, spec), by_hand)

    def test_a_shape_or_a_task_that_is_not_known(self):
        target = Target(kind=SINGLE_LABEL, labels=("a", "b"))
        task = classification.task(toy.CONFIG, target, "t")
        spec = {"input_ids": tf.TensorSpec([None, 8], tf.int32)}
        self.assertIsNone(throughput.model_flops_per_step(task, spec))
        uncounted = mock.Mock(training_flops=None)
        spec = {"input_ids": tf.TensorSpec([4, 8], tf.int32)}
        self.assertIsNone(throughput.model_flops_per_step(uncounted, spec))
        self.assertIsNotNone(throughput.model_flops_per_step(task, spec))


if __name__ == "__main__":
    tf.test.main()
