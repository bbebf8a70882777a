import re

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.config import BertConfig
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.optimization.adamw import AdamWeightDecay
from bert_tf.optimization.recipe import create_optimizer
from bert_tf.optimization.schedules import WarmupSchedule


def named_variable(name, values):
    return keras.Variable(np.asarray(values, np.float32), name=name)


def numpy_adamw(weight, gradients, rates, *, decay, bias_correction):
    """Float64, number by number: Kingma and Ba's algorithm 1 with BERT's changes."""
    result = np.array(weight, np.float64)
    for index in np.ndindex(result.shape):
        m = v = 0.0
        for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True)):
            g = float(gradient[index])
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g * g
            m_hat = m / (1 - 0.9 ** (step + 1)) if bias_correction else m
            v_hat = v / (1 - 0.999 ** (step + 1)) if bias_correction else v
            update = m_hat / (v_hat**0.5 + 1e-6)
            result[index] -= rate * (update + decay * result[index])
    return result


class UpdateTest(tf.test.TestCase, parameterized.TestCase):
    def test_two_steps_by_hand(self):
        w = named_variable("kernel", [1.0])
        b = named_variable("bias", [1.0])
        optimizer = AdamWeightDecay(0.1, weight_decay_rate=0.01)
        optimizer.build([w, b])
        gradient = tf.constant([0.5])
        # m = 0.05, v = 0.00025, m / (sqrt(v) + 1e-6) = 3.1620777; the kernel's decay
        # adds 0.01 * 1.
        optimizer.apply([gradient, gradient])
        self.assertAllClose(w, [1.0 - 0.1 * 3.1720777], rtol=1e-6)
        self.assertAllClose(b, [1.0 - 0.1 * 3.1620777], rtol=1e-6)
        # m = 0.095, v = 0.00049975, m / (sqrt(v) + 1e-6) = 4.2494132; 0.01 * 0.6827922.
        optimizer.apply([gradient, gradient])
        self.assertAllClose(w, [0.6827922 - 0.1 * (4.2494132 + 0.0068279)], rtol=1e-5)
        self.assertAllClose(b, [0.6837922 - 0.1 * 4.2494132], rtol=1e-5)
        m, v = optimizer.moments(w)
        self.assertAllClose(m, [0.095], rtol=1e-6)
        self.assertAllClose(v, [0.00049975], rtol=1e-6)

    @parameterized.product(
        bias_correction=(False, True), compiled=(False, True), decay=(0.01, 0.1, 0.0)
    )
    def test_seven_steps_against_a_loop(self, bias_correction, compiled, decay):
        rng = np.random.default_rng(0)
        values = {
            "kernel": rng.normal(size=(3, 4)),
            "gamma_of_LayerNorm": rng.normal(size=5),
            "word_embeddings": rng.normal(size=(6, 2)),
        }
        variables = [named_variable(*item) for item in values.items()]
        gradients = [
            [rng.normal(size=v.shape) * 10.0 ** -(step % 4) for v in values.values()]
            for step in range(7)
        ]
        optimizer = AdamWeightDecay(
            WarmupSchedule(0.5, 10, 3),
            weight_decay_rate=decay,
            bias_correction=bias_correction,
        )
        optimizer.build(variables)
        apply = optimizer.apply
        if compiled:
            apply = tf.function(apply)
        for step in gradients:
            apply([tf.constant(g, tf.float32) for g in step])
        # 0.5 * step / 3, then 0.5 * (1 - step / 10).
        rates = [0.0, 0.5 / 3, 1.0 / 3, 0.35, 0.3, 0.25, 0.2]
        for i, (name, value) in enumerate(values.items()):
            expected = numpy_adamw(
                value,
                [step[i] for step in gradients],
                rates,
                decay=0.0 if "LayerNorm" in name else decay,
                bias_correction=bias_correction,
            )
            self.assertAllClose(variables[i], expected, rtol=1e-5, atol=1e-6)

    def test_finds_a_minimum(self):
        # The original's own test of its optimizer.
        w = named_variable("w", [0.1, -0.2, -0.1])
        optimizer = AdamWeightDecay(0.2, weight_decay_rate=0.0)
        optimizer.build([w])
        for _ in range(100):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square([0.4, 0.2, -0.5] - w.value))
            optimizer.apply([tape.gradient(loss, w.value)])
        self.assertAllClose(w, [0.4, 0.2, -0.5], atol=1e-2)

    def test_rows_that_were_not_looked_up_move_too(self):
        table = named_variable("word_embeddings", np.ones((4, 2)))
        dense_table = named_variable("word_embeddings", np.ones((4, 2)))
        sparse, dense = AdamWeightDecay(0.1), AdamWeightDecay(0.1)
        sparse.build([table])
        dense.build([dense_table])
        for ids in ([1, 1, 3], [3, 3, 3], [0, 2, 1]):
            with tf.GradientTape() as tape:
                rows = keras.ops.take(table, tf.constant(ids), axis=0)
                loss = tf.reduce_sum(rows * [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
            gradient = tape.gradient(loss, table.value)
            self.assertIsInstance(gradient, tf.IndexedSlices)
            sparse.apply([gradient])
            summed = np.zeros((4, 2), np.float32)
            for row, values in zip(ids, [[1, 2], [3, 4], [5, 6]], strict=True):
                summed[row] += values
            dense.apply([tf.constant(summed)])
            self.assertAllClose(table, dense_table, rtol=1e-6)
        self.assertNotAllClose(table[0], [1.0, 1.0])

    def test_builds_nothing_inside_a_traced_step(self):
        # A step under tf.function may not create variables after its first trace.
        w = named_variable("kernel", np.ones(3))
        optimizer = create_optimizer(0.1, 10, 0)
        optimizer.build([w])
        created = len(optimizer.variables)
        step = tf.function(lambda g: optimizer.apply([g]))
        step(tf.ones(3))
        step(tf.ones(3) * 2.0)
        self.assertLen(optimizer.variables, created)
        self.assertEqual(int(optimizer.iterations), 2)


class WeightDecayTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.model = BertPretrainer(
            BertConfig(
                vocab_size=11,
                hidden_size=8,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=16,
                max_position_embeddings=6,
            )
        )

    def decayed(self, **options):
        optimizer = AdamWeightDecay(0.1, **options)
        optimizer.build(self.model.trainable_variables)
        return {v.path for v in optimizer.decayed_variables}

    def test_all_but_layer_norms_and_biases(self):
        paths = {v.path for v in self.model.trainable_variables}
        last = {path: re.search("[^/]*$", path).group() for path in paths}
        expected = {
            path
            for path in paths
            if last[path] not in ("gamma", "beta", "bias", "output_bias")
        }
        decayed = self.decayed()
        self.assertSameElements(decayed, expected)
        # By number: 3 tables; per layer 4 + 2 kernels; pooler; transform; the next
        # sentence's weights.
        self.assertLen(decayed, 3 + 2 * 6 + 3)
        self.assertContainsSubset(
            [
                "bert/embeddings/word_embeddings",
                "bert/embeddings/position_embeddings",
                "bert/embeddings/token_type_embeddings",
                "cls/seq_relationship/output_weights",
            ],
            decayed,
        )

    def test_other_exclusions(self):
        everything = self.decayed(exclude_from_weight_decay=())
        self.assertLen(everything, len(self.model.trainable_variables))
        without = self.decayed(exclude_from_weight_decay=("embeddings$", "layer_0/"))
        self.assertNotIn("bert/embeddings/word_embeddings", without)
        self.assertIn("bert/embeddings/LayerNorm/gamma", without)
        self.assertFalse([path for path in without if "layer_0" in path])

    def test_the_variables_that_decay_do(self):
        optimizer = AdamWeightDecay(0.5, weight_decay_rate=0.2)
        optimizer.build(self.model.trainable_variables)
        before = [v.numpy() for v in self.model.trainable_variables]
        optimizer.apply([tf.zeros(v.shape) for v in self.model.trainable_variables])
        decayed = {v.path for v in optimizer.decayed_variables}
        for variable, values in zip(
            self.model.trainable_variables, before, strict=True
        ):
            factor = 0.9 if variable.path in decayed else 1.0
            self.assertAllClose(variable, factor * values, rtol=1e-6)

    def test_keras_own_decay_is_refused(self):
        with self.assertRaisesRegex(ValueError, "`weight_decay_rate`.*0.1"):
            AdamWeightDecay(0.1, weight_decay=0.1)


if __name__ == "__main__":
    tf.test.main()
