import itertools
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling.fused import pieces_left_alone
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.tasks import classification
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.tasks.tables import SINGLE_LABEL, Target
from bert_tf.training import throughput
from tests.training import toy

# All different, so that no factor passes for another.
CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=10,
    max_position_embeddings=16,
    type_vocab_size=2,
)
S, P = 7, 4


def graph_operations(function, *arguments):
    """TensorFlow's own count over a function's matrix products."""
    graph = function.get_concrete_function(*arguments).graph
    profile = tf.compat.v1.profiler.profile(
        graph,
        options=tf.compat.v1.profiler.ProfileOptionBuilder(
            tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
        )
        .with_empty_output()
        .build(),
        cmd="op",
    )
    counted = 0
    while profile.children:  # a chain: one kind of operation below the other
        (profile,) = profile.children
        counted += profile.float_ops if "MatMul" in profile.name else 0
    return counted


class ByHandTest(tf.test.TestCase):
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
        self.assertEqual(throughput.encoder_flops(config, 4), 352)
        # [1, 2] with [2, 2], 8, and with [2, 3], 12.
        self.assertEqual(throughput.pooled_flops(config, 3), 20)
        # P = 3: [3, 2] with [2, 2], 24, and with [2, 5], 60.
        self.assertEqual(throughput.masked_lm_flops(config, 3), 84)

        shapes = {"input_ids": (10, 4), "masked_lm_positions": (10, 3)}
        # The pooler and two labels: 8 + 8.
        self.assertEqual(
            throughput.pretraining_flops(config, shapes), 3 * 10 * (352 + 16 + 84)
        )
        self.assertEqual(
            throughput.pretraining_flops(config, shapes, next_sentence=False),
            3 * 10 * (352 + 84),
        )
        packed = {**shapes, "cls_positions": (10, 5)}
        self.assertEqual(
            throughput.pretraining_flops(config, packed), 3 * 10 * (352 + 5 * 16 + 84)
        )
        self.assertEqual(
            throughput.classifier_flops(config, {"input_ids": (1, 4)}, num_labels=3),
            3 * (352 + 20),
        )
        # Two sequences of six choices, with a pooler, 8, and a score, 4, each.
        self.assertEqual(
            throughput.multiple_choice_flops(config, {"input_ids": (2, 6, 4)}),
            3 * 12 * (352 + 12),
        )
        # [4, 2] with [2, 2], 32, and with [2, 5], 80.
        self.assertEqual(throughput.span_flops(config, {"input_ids": (1, 4)}), 3 * 384)
        self.assertEqual(
            throughput.tagger_flops(config, {"input_ids": (2, 4)}, num_labels=5),
            6 * 432,
        )

    def test_base_takes_as_much_as_its_weights_say(self):
        # Kaplan et al.: 6 FLOPs a token and weight, and attention's 12 N S H a token.
        # The encoder of BERT base has 12 * 7,077,888 weights in its kernels.
        config = BertConfig.from_size("base")
        expected = 128 * (6 * 84_934_656 + 12 * 12 * 128 * 768)
        self.assertEqual(3 * throughput.encoder_flops(config, 128), expected)


class GraphTest(tf.test.TestCase):
    """Beside what TensorFlow counts in the graph of the model itself."""

    def batch(self, batch_size):
        return {
            name: np.ones((batch_size, length), "int32")
            for name, length in (
                ("input_ids", S),
                ("input_mask", S),
                ("segment_ids", S),
                ("label_ids", 1),
                ("masked_lm_positions", P),
                ("masked_lm_ids", P),
                ("next_sentence_labels", 1),
            )
        } | {"masked_lm_weights": np.ones((batch_size, P), "float32")}

    def counted(self, model, batch):
        """The forward pass, without the lookup of embeddings.

        That has a product with one-hot segments, of which no FLOPs are counted.
        """

        def forward():
            means = model.objective.means(batch, model(batch, training=False))
            return [mean.total for mean in means.values()]

        def lookup():
            ids = (batch["input_ids"], batch["segment_ids"])
            return model.encoder.embeddings(*(x.reshape(-1, S) for x in ids))

        with pieces_left_alone():
            return graph_operations(tf.function(forward)) - graph_operations(
                tf.function(lookup)
            )

    def test_pretraining(self):
        batch = self.batch(5)
        shapes = {name: value.shape for name, value in batch.items()}
        step = throughput.pretraining_flops(CONFIG, shapes)
        self.assertEqual(step, 3 * self.counted(BertPretrainer(CONFIG), batch))

    def test_a_classifier(self):
        batch = self.batch(2)
        shapes = {name: value.shape for name, value in batch.items()}
        step = throughput.classifier_flops(CONFIG, shapes, num_labels=3)
        self.assertEqual(step, 3 * self.counted(BertClassifier(CONFIG, 3), batch))

    def test_a_choice(self):
        batch = {
            name: np.ones((2, 3, S), "int32")
            for name in ("input_ids", "input_mask", "segment_ids")
        } | {"label_ids": np.ones((2, 1), "int32")}
        step = throughput.multiple_choice_flops(CONFIG, {"input_ids": (2, 3, S)})
        self.assertEqual(step, 3 * self.counted(BertMultipleChoice(CONFIG), batch))

    def test_scores_of_every_token(self):
        ones = np.ones((2, 1), "int32")
        batch = self.batch(2) | {"start_positions": ones, "end_positions": ones}
        shapes = {name: value.shape for name, value in batch.items()}
        step = throughput.span_flops(CONFIG, shapes)
        self.assertEqual(step, 3 * self.counted(BertSpanPredictor(CONFIG), batch))
        batch["label_ids"] = batch["label_weights"] = batch["input_mask"]
        step = throughput.tagger_flops(CONFIG, shapes, num_labels=3)
        self.assertEqual(step, 3 * self.counted(BertTagger(CONFIG, 3), batch))


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
