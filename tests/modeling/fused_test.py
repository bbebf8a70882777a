"""Kernels of training beside the same formulas in numpy, and Keras' layers."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.compilation import pieces_left_alone, xla_compiles_for_the_cpu
from bert_tf.modeling import fused
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.layers import gelu
from tests.modeling.examples import random_records, randomize, small_config

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def with_gradients(function, arguments, upstream):
    arguments = [tf.constant(argument) for argument in arguments]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        output = function(*arguments)
    return output, tape.gradient(output, arguments, upstream)


def difference_quotients(function, arguments, upstream, step=1e-3):
    """The gradient by central differences, of a numpy function in float64."""
    gradients = []
    for number, argument in enumerate(arguments):
        gradient = np.zeros(argument.shape)
        for index in np.ndindex(argument.shape):
            values = []
            for sign in (1, -1):
                moved = [a.astype(np.float64) for a in arguments]
                moved[number][index] += sign * step
                values.append((function(*moved) * upstream).sum())
            gradient[index] = (values[0] - values[1]) / (2 * step)
        gradients.append(gradient)
    return gradients


def numpy_layer_norm(x, gamma, beta, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * gamma + beta


def numpy_gelu(x, bias):
    x = x + bias
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def numpy_softmax(scores):
    powers = np.exp(scores)
    return powers / powers.sum(-1, keepdims=True)


class KernelsTest(tf.test.TestCase):
    def check(self, ours, by_hand, arguments, upstream, factor=1.0):
        output, gradients = with_gradients(ours, arguments, upstream)
        expected = by_hand(*arguments)
        self.assertAllClose(output, expected * factor, rtol=1e-5, atol=1e-5)
        for actual, quotient in zip(
            gradients,
            difference_quotients(by_hand, arguments, upstream * factor),
            strict=True,
        ):
            self.assertAllClose(actual, quotient, rtol=1e-3, atol=1e-3)

    def test_layer_norm(self):
        arguments = [normal(2, 3, 5), normal(5, seed=1), normal(5, seed=2)]
        for epsilon in (1e-12, 0.5):
            self.check(
                functools.partial(fused.layer_norm, epsilon=epsilon),
                functools.partial(numpy_layer_norm, epsilon=epsilon),
                arguments,
                normal(2, 3, 5),
            )

    def test_bias_activation(self):
        self.check(
            lambda x, bias: fused.bias_activation(x, bias, gelu),
            numpy_gelu,
            [normal(2, 3, 5), normal(5, seed=1)],
            normal(2, 3, 5, seed=2),
        )

    def test_dropped_residual(self):
        arguments = [normal(2, 3, 5), normal(5, seed=1), normal(2, 3, 5, seed=2)]
        upstream = normal(2, 3, 5, seed=3)
        self.check(
            lambda x, bias, residual: fused.dropped_residual(
                x, bias, residual, None, 0.5
            ),
            lambda x, bias, residual: x + bias + residual,
            arguments,
            upstream,
        )
        seed = tf.constant([1, 2], tf.int64)
        kept = fused.dropped(tf.ones((2, 3, 5)), seed, 0.5).numpy()  # 0 or 2
        self.check(
            lambda x, bias, residual: fused.dropped_residual(
                x, bias, residual, seed, 0.5
            ),
            lambda x, bias, residual: kept * (x + bias) + residual,
            arguments,
            upstream,
        )

    def test_dropped_softmax(self):
        scores, bias = normal(2, 2, 3, 3), np.zeros((2, 1, 1, 3), np.float32)
        bias[0, :, :, 2] = -10000.0
        upstream = normal(2, 2, 3, 3, seed=1)
        for seed in (None, tf.constant([1, 2], tf.int64)):
            kept = fused.dropped(tf.ones((2, 2, 3, 3)), seed, 0.5).numpy()

            def by_hand(scores, kept=kept):
                return kept * numpy_softmax(scores + bias)

            self.check(
                lambda scores, seed=seed: fused.dropped_softmax(
                    scores, bias, seed, 0.5
                ),
                by_hand,
                [scores],
                upstream,
            )

    def test_split_heads(self):
        # Numbers that say where they come from: sequence, token, and place in 3 H.
        x = np.arange(2 * 3 * 12, dtype=np.float32).reshape(2, 3, 12)
        bias = np.full(12, 0.5, np.float32)
        parts, gradients = with_gradients(
            lambda x, bias: tf.stack(fused.split_heads(x, bias, 2)),
            [x, bias],
            np.arange(3 * 2 * 2 * 3 * 2, dtype=np.float32).reshape(3, 2, 2, 3, 2),
        )
        for part in range(3):
            for head in range(2):
                first = part * 4 + head * 2
                self.assertAllEqual(
                    parts[part, :, head], x[:, :, first : first + 2] + 0.5
                )
        # The gradient of query, sequence 1, head 0, token 2, second of D: 0 1 0 2 1.
        self.assertEqual(gradients[0][1, 2, 1], 1 * 12 + 0 * 6 + 2 * 2 + 1)
        # That of value (2 * 24), sequence 0, head 1, token 1, first of D.
        self.assertEqual(gradients[0][0, 1, 10], 2 * 24 + 1 * 6 + 1 * 2)
        self.assertAllClose(gradients[1], tf.reduce_sum(gradients[0], (0, 1)))

    def test_widening_product(self):
        self.check(
            fused.widening_product,
            lambda x, kernel: x @ kernel,
            [normal(2, 3, 4), normal(4, 7, seed=1)],
            normal(2, 3, 7, seed=2),
        )

    def test_scores_of_rows_and_bias(self):
        self.check(
            lambda x, table, bias: fused.add_bias(fused.scores_of_rows(x, table), bias),
            lambda x, table, bias: x @ table.T + bias,
            [normal(3, 4), normal(6, 4, seed=1), normal(6, seed=2)],
            normal(3, 6, seed=3),
        )


class WholeModelTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("compiled", "left alone", "as a whole")
    def test_gradients_equal_those_through_keras_layers(self, how):
        if how == "as a whole" and not xla_compiles_for_the_cpu():
            self.skipTest("this TensorFlow has no XLA compiler for CPUs")
        # Epsilons that show, so that either way must have them right.
        config = small_config(
            layer_norm_eps=0.3, masked_lm_layer_norm_eps=0.1, **NO_DROPOUT
        )
        model = BertPretrainer(config)
        randomize(model)
        records = {
            name: tf.constant(values) for name, values in random_records(config).items()
        }
        variables = [variable.value for variable in model.trainable_variables]

        def gradients(training):
            with tf.GradientTape() as tape:
                outputs = model(records, training=training)
                loss = tf.reduce_sum(tf.square(outputs["masked_lm_logits"]))
                loss += tf.reduce_sum(tf.square(outputs["next_sentence_logits"]))
            return loss, [
                tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)
            ]

        # Inference is Keras' layers alone, differentiated by TensorFlow.
        expected_loss, expected = tf.function(gradients)(False)
        if how == "compiled":
            loss, actual = tf.function(gradients)(True)
        else:
            with pieces_left_alone():
                loss, actual = tf.function(gradients, jit_compile=how == "as a whole")(
                    True
                )
        self.assertAllClose(loss, expected_loss, rtol=1e-5)
        # The gradient of the keys' bias is 0 but for rounding.
        largest = max(np.abs(gradient).max() for gradient in expected)
        for a, b in zip(actual, expected, strict=True):
            self.assertAllClose(a, b, rtol=1e-4, atol=1e-6 * largest)


if __name__ == "__main__":
    tf.test.main()
