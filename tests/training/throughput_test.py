import contextlib
import dataclasses
import glob
import os
import types
from unittest import mock

import tensorflow as tf

from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.training import throughput


def flops(config, **shapes):
    return throughput.training_flops(config, shapes)


class TrainingFlopsTest(tf.test.TestCase):
    def test_one_layer_counted_product_by_product(self):
        config = BertConfig(
            vocab_size=5,
            hidden_size=2,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=3,
        )
        # S = 4: four products of [4, 2] and [2, 2], 4 * 2 * 16 = 128; [4, 2] with
        # [2, 4], and [4, 4] with [4, 2], 2 * 64 = 128; [4, 2] with [2, 3] and back,
        # 2 * 48 = 96.
        self.assertEqual(flops(config, input_ids=(10, 4)), 3 * 10 * 352)
        # P = 3: [3, 2] with [2, 2], 24, and with [2, 5], 60.
        self.assertEqual(
            flops(config, input_ids=(10, 4), masked_lm_positions=(10, 3)),
            3 * 10 * (352 + 84),
        )
        # E = 1: [4, 1] with [1, 2], 16; P = 3: [3, 2] with [2, 1], 12, and with [1, 5].
        narrow = dataclasses.replace(config, embedding_size=1)
        self.assertEqual(
            flops(narrow, input_ids=(10, 4), masked_lm_positions=(10, 3)),
            3 * 10 * (352 + 16 + 12 + 30),
        )
        # One token to each side: [4, 2] with [2, 3], and [4, 3] with [3, 2], 96.
        local = dataclasses.replace(config, attention_window=1)
        self.assertEqual(flops(local, input_ids=(10, 4)), 3 * 10 * (352 - 128 + 96))
        wide = dataclasses.replace(config, attention_window=4)
        self.assertEqual(flops(wide, input_ids=(10, 4)), 3 * 10 * 352)
        # [CLS] is global: seen by all, [4, 2] with [2, 4], 128, and sees all, [1, 2]
        # with [2, 4], 32; its kernels are of [2, 2], 16.
        local = dataclasses.replace(local, global_tokens=1)
        self.assertEqual(flops(local, input_ids=(10, 4)), 3 * 10 * (352 - 128 + 176))
        # All four, [4, 2] with [2, 4], 128; keys and values once more, 64: less than
        # with the tokens for each of two heads.
        local = dataclasses.replace(local, global_tokens=4, num_attention_heads=2)
        self.assertEqual(flops(local, input_ids=(10, 4)), 3 * 10 * (352 + 192))
        # Two sequences of six choices.
        self.assertEqual(flops(config, input_ids=(2, 6, 4)), 3 * 12 * 352)

    def test_base_takes_as_much_as_its_weights_say(self):
        # Kaplan et al.: 6 FLOPs a token and weight, and attention's 12 N S H a token.
        # The encoder of BERT base has 12 * 7,077,888 weights in its kernels.
        expected = 128 * (6 * 84_934_656 + 12 * 12 * 128 * 768)
        base = BertConfig.from_size("base")
        self.assertEqual(flops(base, input_ids=(1, 128)), expected)

    def test_unknown_shapes_and_models(self):
        tiny = BertConfig.from_size("tiny", vocab_size=30)
        self.assertIsNone(flops(tiny, input_ids=(None, 8)))
        self.assertIsNone(flops(None, input_ids=(4, 8)))


class PeakTest(tf.test.TestCase):
    def peak(self, name, replicas=1):
        strategy = mock.Mock(num_replicas_in_sync=replicas)
        with mock.patch.object(throughput, "device_name", return_value=name):
            return throughput.peak_flops(strategy)

    def test_of_devices_by_the_names_that_they_give(self):
        # The makers' data sheets, of dense products.
        for name, peak in (
            ("NVIDIA A100-SXM4-80GB", 312e12),
            ("NVIDIA A10G", 70e12),
            ("NVIDIA H100 80GB HBM3", 989e12),
            ("NVIDIA H100 PCIe", 756e12),
            ("NVIDIA L4", 121e12),
            ("NVIDIA L40S", 362e12),
            ("Tesla T4", 65e12),
            ("TPU v4", 275e12),
            ("TPU v5", 459e12),
            ("TPU v5 lite", 197e12),
            ("TPU v6 lite", 918e12),
        ):
            self.assertEqual(self.peak(name), peak, name)
        self.assertEqual(self.peak("TPU v3", replicas=8), 4 * 123e12)

    def test_others_have_none(self):
        for name in ("CPU", "cpu", "AMD Instinct", ""):
            self.assertIsNone(self.peak(name))
        self.assertIsNone(throughput.peak_flops(tf.distribute.get_strategy()))


class StepProfilerTest(tf.test.TestCase):
    def traces(self):
        pattern = os.path.join(self.get_temp_dir(), "plugins/profile/*/*.xplane.pb")
        return glob.glob(pattern)

    def profiler(self, spec, is_chief=True):
        profiler = throughput.StepProfiler(spec)
        profiler.run = types.SimpleNamespace(
            folder=self.get_temp_dir(), strategy=None, closing=contextlib.ExitStack()
        )
        with mock.patch.object(throughput, "is_chief", lambda strategy: is_chief):
            profiler.started([])
        return profiler

    def test_a_trace_of_the_steps_that_were_asked_for(self):
        profiler = self.profiler("3,5")
        product = tf.function(lambda x: tf.matmul(x, x, name="the_product"))
        before = tf.function(lambda x: tf.add(x, x, name="the_sum"))
        step, calls = 0, []
        while step < 9:
            until = min(step + (profiler.before_call(step) or 9), step + 4, 9)
            (product if 3 <= step < 5 else before)(tf.ones([8, 8]))
            profiler.after_call(None)
            calls.append((step, until))
            self.assertLen(self.traces(), int(step >= 5))
            step = until
        self.assertEqual(calls, [(0, 3), (3, 5), (5, 9)])
        profiler.run.closing.close()
        (path,) = self.traces()
        with open(path, "rb") as file:
            trace = file.read()
        self.assertIn(b"the_product", trace)
        self.assertNotIn(b"the_sum", trace)
        self.assertIn(b"step_num", trace)

    def test_a_run_that_stops_in_between_has_its_trace(self):
        profiler = self.profiler("0,100")
        profiler.before_call(50)
        self.assertEmpty(self.traces())
        profiler.run.closing.close()
        self.assertLen(self.traces(), 1)

    def test_other_workers_stop_at_the_same_steps_and_trace_nothing(self):
        profiler = self.profiler("3,5", is_chief=False)
        self.assertEqual([profiler.before_call(step) for step in (0, 3)], [3, 2])
        profiler.run.closing.close()
        self.assertEmpty(self.traces())

    def test_no_steps(self):
        for spec in ("100", "5,5", "7,3", "a,b", "1,2,3", "-1,4", "1.5,3"):
            with self.assertRaisesRegex(InputError, f"`profile_steps={spec}`: "):
                throughput.StepProfiler(spec)
