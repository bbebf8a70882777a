import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.modeling.fused import without_fusion, xla_compiles_for_the_cpu
from bert_tf.modeling.heads import BertPretrainer
from tests.modeling.examples import (
    gradients_of,
    random_records,
    randomize,
    small_config,
)


def seeds(model):
    return [v for v in model.non_trainable_variables if "seed" in v.path]


def loss_and_gradients(model, records, jit_compile=False):
    function = functools.partial(gradients_of, model, records)
    return tf.function(function, jit_compile=jit_compile, autograph=False)


class RecomputeTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(("float32", 2), ("mixed_bfloat16", 1))
    def test_same_loss_and_gradients_with_dropout(self, dtype, num_layers):
        config = small_config(
            num_hidden_layers=num_layers,
            hidden_dropout_prob=0.3,
            attention_probs_dropout_prob=0.3,
        )
        kept = BertPretrainer(config, dtype=dtype)
        recomputed = BertPretrainer(config, recompute=True, dtype=dtype)
        randomize(kept)
        recomputed.set_weights(kept.get_weights())
        for seed, other in zip(seeds(kept), seeds(recomputed), strict=True):
            other.assign(seed)
        records = {
            name: tf.constant(values) for name, values in random_records(config).items()
        }
        functions = [loss_and_gradients(m, records) for m in (kept, recomputed)]
        losses = []
        for _ in range(3):
            (loss, gradients), (other_loss, others) = (f() for f in functions)
            self.assertAllClose(other_loss, loss, rtol=1e-6)
            # The parts of a gradient add up in another order: in bfloat16, with its 8
            # bits, each sum rounds by up to 1/256.
            rounding = 1e-6 if dtype == "float32" else 1e-2
            largest = max(np.abs(gradient).max() for gradient in gradients)
            for gradient, other in zip(gradients, others, strict=True):
                self.assertAllClose(other, gradient, rtol=0, atol=rounding * largest)
            losses.append(float(loss))
        # Each step has masks of its own, and both models have drawn as many.
        self.assertLen(set(losses), 3)
        for seed, other in zip(seeds(kept), seeds(recomputed), strict=True):
            self.assertAllEqual(other, seed)

    def test_as_a_whole_under_xla(self):
        if not xla_compiles_for_the_cpu():
            self.skipTest("this TensorFlow has no XLA compiler for CPUs")
        config = small_config(num_hidden_layers=1)
        model = BertPretrainer(config, recompute=True)
        randomize(model)
        records = {
            name: tf.constant(values) for name, values in random_records(config).items()
        }
        start = [np.array(seed) for seed in seeds(model)]
        expected = loss_and_gradients(model, records)()
        for seed, value in zip(seeds(model), start, strict=True):
            seed.assign(value)
        with without_fusion():
            actual = loss_and_gradients(model, records, jit_compile=True)()
        self.assertAllClose(actual[0], expected[0], rtol=1e-5)
        largest = max(np.abs(gradient).max() for gradient in expected[1])
        for a, b in zip(actual[1], expected[1], strict=True):
            self.assertAllClose(a, b, rtol=1e-4, atol=1e-6 * largest)
