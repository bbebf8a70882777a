"""Kernels of training beside the same formulas in numpy, and Keras' layers."""

import concurrent.futures
import contextlib
import functools
import threading
import unittest

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from keras import ops

from bert_tf.modeling import fused
from bert_tf.modeling.fused import (
    compiled,
    compiled_with_gradient,
    dropout,
    dropout_pass,
    fused_inference,
    next_seed,
    per_example_dropout,
    random_bits,
    without_fusion,
    xla_compiles_for_the_cpu,
)
from bert_tf.modeling.heads import BertClassifier, BertPretrainer, HeadDropout
from bert_tf.modeling.layers import gelu
from tests.modeling.examples import (
    gradients_of,
    outputs_of,
    random_records,
    randomize,
    small_config,
)


def is_compiled(function, *args):
    """Whether a graph that calls the function holds a kernel that XLA must compile."""

    @tf.function
    def caller(*tensors):
        return function(*tensors)

    graph = caller.get_concrete_function(*args).graph
    return any(
        "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b
        for node in graph.as_graph_def().node
    )


def square_sum(x, y, count):
    return ops.sum(x * x * count, axis=-1) + y[0]


needs_compiler = unittest.skipUnless(
    xla_compiles_for_the_cpu(), "this TensorFlow has no XLA compiler for CPUs"
)


class CompiledTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.args = (tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([7.0, 8.0]))

    def test_each_shape_and_static_argument(self):
        function = compiled(square_sum)
        self.assertAllClose(function(*self.args, 2), [17.0, 57.0])
        self.assertAllClose(function(*self.args, 3), [22.0, 82.0])
        self.assertAllClose(function(tf.ones((1, 5)), self.args[1], 2), [17.0])

    @needs_compiler
    def test_left_alone_it_is_the_function(self):
        for seam in (compiled, compiled_with_gradient):
            function = seam(lambda x, y: square_sum(x, y, 2))
            self.assertTrue(is_compiled(function, *self.args))
            with without_fusion():
                self.assertFalse(is_compiled(function, *self.args))
                self.assertAllClose(function(*self.args), [17.0, 57.0])
            self.assertTrue(is_compiled(function, *self.args))

    @needs_compiler
    def test_each_thread_has_switches_of_its_own(self):
        model = BertClassifier(small_config(num_hidden_layers=1), 3)
        records = random_records(model.bert_config)
        expected = outputs_of(model, records)["logits"]
        all_within = threading.Barrier(4, timeout=60)

        def predict(scope):
            with scope():
                all_within.wait()
                function = compiled(square_sum)
                found = (
                    fused.compiles_inference(),
                    is_compiled(function, *self.args, 2),
                    outputs_of(model, records)["logits"],
                )
                all_within.wait()  # the others' scopes end with, or before, its own
            return found

        nothing = contextlib.nullcontext
        scopes = (fused_inference, nothing, without_fusion, nothing)
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            results = list(threads.map(predict, scopes))
        self.assertEqual([by_pieces for by_pieces, *_ in results], [True, *[False] * 3])
        self.assertEqual([on for _, on, _ in results], [True, True, False, True])
        for *_, logits in results:
            self.assertAllClose(logits, expected, rtol=1e-5, atol=1e-6)
        self.assertFalse(fused.compiles_inference())

    @needs_compiler
    def test_gradient(self):
        function = compiled_with_gradient(square_sum)
        x, y = self.args
        for run in (
            lambda f: f,
            tf.function,
            lambda f: tf.function(f, jit_compile=True),
        ):

            def gradients():
                with tf.GradientTape() as tape:
                    tape.watch([x, y])
                    output = function(x, y, 2)
                return tape.gradient(output, [x, y], tf.constant([1.0, 10.0]))

            by_x, by_y = run(gradients)()
            self.assertAllClose(by_x, [[4.0, 8.0], [120.0, 160.0]])
            self.assertAllClose(by_y, [11.0, 0.0])

    def test_gradient_passes_integers_by(self):
        function = compiled_with_gradient(
            lambda x, count, y: x * ops.cast(count, "float32") + y
        )
        x, y = tf.constant([1.0, 2.0]), tf.constant([5.0, 6.0])
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            output = function(x, tf.constant([3, 4]), y)
        by_x, by_y = tape.gradient(output, [x, y])
        self.assertAllClose(by_x, [3.0, 4.0])
        self.assertAllClose(by_y, [1.0, 1.0])

    @needs_compiler
    def test_nothing_but_the_arguments_is_kept(self):
        # In the forward graph of a gradient the kernel has one output.
        function = compiled_with_gradient(lambda x: ops.sin(ops.exp(x)) * ops.exp(x))

        @tf.function
        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x)

        x = tf.constant([0.5, 1.0])
        kernels = [
            node
            for node in gradient.get_concrete_function(x).graph.get_operations()
            if "PartitionedCall" in node.type
        ]
        self.assertEqual([len(kernel.outputs) for kernel in kernels], [1, 1])
        e = np.exp([0.5, 1.0])
        self.assertAllClose(gradient(x), e * (np.cos(e) * e + np.sin(e)), rtol=1e-5)


def words(*numbers):
    return tuple(tf.constant(number, tf.uint32) for number in numbers)


class RandomBitsTest(tf.test.TestCase, parameterized.TestCase):
    # "threefry2x32 13" in tests/kat_vectors of Random123, by the generator's authors.
    @parameterized.parameters(
        ((0, 0), (0, 0), 0x9D1C5EC6),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), 0xFD36D048),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), 0xBA3E4725),
    )
    def test_known_answers(self, key, counter, expected):
        self.assertEqual(random_bits(words(*key), words(*counter)), expected)


class DropoutTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(0.1, 0.25, 0.9)
    def test_keeps_at_the_rate_and_scales_up(self, rate):
        x = np.full((1000, 1000), 3.0, np.float32)
        y = dropout(tf.constant(x), tf.constant([5, 6]), rate).numpy()
        kept = y != 0
        self.assertAllClose(y[kept], np.full(kept.sum(), 3.0 / (1 - rate)), rtol=1e-6)
        # Of a million, within five deviations; and so in each half of each dimension.
        for part in (kept, kept[:500], kept[500:], kept[:, ::2], kept[:, 1::2]):
            deviation = (rate * (1 - rate) / part.size) ** 0.5
            self.assertLess(abs(part.mean() - (1 - rate)), 5 * deviation)

    def test_words_of_its_masks(self):
        # sklearn.utils.murmurhash3_32(b"", seed=begin + n * 0x9E3779B9), where the
        # row's begin is the first one of RandomBitsTest.
        words = [0x0B2D0548, 0x37E39C16, 0xF2C67EDA, 0x614583D3, 0xA907C80E, 0x42CA5DA3]
        words += [0x17400506, 0x7FD0059B]
        for rate in (0.1, 0.5, 0.9):
            kept = dropout(tf.ones((1, 8)), tf.constant([0, 0]), rate)[0] != 0
            self.assertAllEqual(kept, np.array(words) >= rate * 2**32)

    def test_half_precision_keeps_the_mean(self):
        # Numbers all over a binade, so that their own rounding cancels.
        x = tf.cast(
            tf.random.stateless_uniform((500, 1000), (1, 2), 1.0, 2.0), "bfloat16"
        )
        y = tf.cast(dropout(x, tf.constant([5, 6]), 0.1), "float64").numpy()
        kept = y != 0
        ratio = y[kept].sum() / tf.cast(x, "float64").numpy()[kept].sum()
        self.assertAllClose(ratio, 1 / 0.9, rtol=2e-4)

    def test_neighbours_do_not_hang_together(self):
        x = tf.ones((1000, 1000))
        kept = dropout(x, tf.constant([5, 6]), 0.5).numpy() != 0
        other = dropout(x, tf.constant([5, 7]), 0.5).numpy() != 0
        for a, b in (
            (kept[1:], kept[:-1]),
            (kept[:, 1:], kept[:, :-1]),
            (kept, kept.T),
            (kept, other),
        ):
            # The share of equal ones has deviation 1 / (2 sqrt(n)) around a half.
            self.assertAllClose((a == b).mean(), 0.5, atol=0.0025)

    def test_gradient_has_the_mask_of_the_output(self):
        x = tf.ones((8, 7, 50))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fused.dropped(x, tf.constant([1, 2], tf.int64), 0.3)
        self.assertAllClose(tape.gradient(y, x, 2.0 * tf.ones_like(x)), 2.0 * y)

    def test_each_mask_has_a_seed_of_its_own(self):
        layer = keras.layers.Dropout(0.1, seed=3)
        first, second = next_seed(layer), next_seed(layer)
        self.assertNotAllEqual(first, second)
        self.assertAllEqual(first, next_seed(keras.layers.Dropout(0.1, seed=3)))
        self.assertIsNone(next_seed(keras.layers.Dropout(0.0)))

    def test_another_pass_has_its_own_masks_and_draws_no_seed(self):
        layer = HeadDropout(0.5)
        seed = next_seed(layer)
        after = layer.seed_generator.state.numpy()
        with dropout_pass(1):
            other = next_seed(layer)
            # Those of a later micro-batch are the same, with its rows' numbers.
            with per_example_dropout(tf.range(2), again=True):
                again = next_seed(layer)
        self.assertAllEqual(other, seed + tf.constant([1, 0], seed.dtype))
        self.assertAllEqual(again, [*other.numpy(), 0, 1])
        self.assertAllEqual(layer.seed_generator.state, after)
        with dropout_pass(None):
            self.assertIsNone(next_seed(layer))

    def test_parts_of_a_batch_have_the_masks_of_the_whole(self):
        whole = dropout(
            tf.ones((60, 100)), next_seed(keras.layers.Dropout(0.5, seed=3)), 0.5
        )
        # Of six examples with ten rows each, in three parts: replicas draw seeds of
        # their own, micro-batches take the last ones again.
        layer = keras.layers.Dropout(0.5, seed=3)
        for number, numbers in enumerate(([0, 1], [4, 2], [3, 5])):
            replica = keras.layers.Dropout(0.5, seed=3)
            rows = np.ravel([np.arange(10) + 10 * example for example in numbers])
            for one, again in ((replica, False), (layer, number > 0)):
                with per_example_dropout(tf.constant(numbers), again):
                    part = dropout(tf.ones((20, 100)), next_seed(one), 0.5)
                self.assertAllEqual(part, tf.gather(whole, rows))

    def test_a_layer_that_is_applied_several_times(self):
        """Another mask each time, and in each part of a batch those of its rows."""
        whole, parts = (keras.layers.Dropout(0.5, seed=3) for _ in range(2))
        masks = [dropout(tf.ones((20, 50)), next_seed(whole), 0.5) for _ in range(3)]
        self.assertNotAllEqual(masks[0], masks[1])
        for step in range(2):
            if step:
                masks = [
                    dropout(tf.ones((20, 50)), next_seed(whole), 0.5) for _ in range(3)
                ]
            for part in range(4):
                numbers = tf.constant([part])
                with per_example_dropout(numbers, again=part > 0):
                    drawn = [
                        dropout(tf.ones((5, 50)), next_seed(parts), 0.5)
                        for _ in range(3)
                    ]
                for mask, expected in zip(drawn, masks, strict=True):
                    self.assertAllEqual(mask, expected[5 * part : 5 * part + 5])


class HeadDropoutTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(((100, 100),), ((4, 25, 100),))
    def test_replicas_drop_numbers_of_their_own_at_the_rate(self, shape):
        masks = []
        for number in (0, 1):
            layer = HeadDropout(0.25, seed=7)
            with per_example_dropout(np.arange(shape[0]) + number * shape[0]):
                masks.append(np.array(layer(np.ones(shape, "f"), training=True)))
        self.assertAllClose(np.unique(masks), [0.0, 4 / 3])
        kept = np.reshape(masks, (2, 100, 100)) > 0
        # Standard deviations: 0.0043 of a share, 0.005 of both agreeing.
        self.assertAllClose(kept.mean(axis=(1, 2)), [0.75, 0.75], atol=0.02)
        self.assertAllClose((kept[0] == kept[1]).mean(), 0.625, atol=0.03)
        self.assertAllEqual(
            layer(np.ones((2, 3), "f"), training=False), np.ones((2, 3))
        )


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

    def test_attended(self):
        scores, bias = normal(2, 2, 3, 4), np.zeros((2, 1, 1, 4), np.float32)
        bias[0, :, :, 2] = -10000.0
        values, upstream = normal(2, 2, 4, 5, seed=2), normal(2, 2, 3, 5, seed=1)
        for seed in (None, tf.constant([1, 2], tf.int64)):
            kept = fused.dropped(tf.ones((2, 2, 3, 4)), seed, 0.5).numpy()

            def by_hand(scores, values, kept=kept):
                return (kept * numpy_softmax(scores + bias)) @ values

            self.check(
                lambda scores, values, seed=seed: fused.attended(
                    scores, bias, values, seed, 0.5
                ),
                by_hand,
                [scores, values],
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


class WholeModelTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("compiled", "left alone", "as a whole")
    def test_gradients_equal_those_through_keras_layers(self, how):
        if how == "as a whole" and not xla_compiles_for_the_cpu():
            self.skipTest("this TensorFlow has no XLA compiler for CPUs")
        # Epsilons that show, so that either way must have them right.
        config = small_config(
            num_hidden_layers=1,
            layer_norm_eps=0.3,
            masked_lm_layer_norm_eps=0.1,
            **NO_DROPOUT,
        )
        model = BertPretrainer(config)
        randomize(model)
        records = {
            name: tf.constant(values) for name, values in random_records(config).items()
        }
        gradients = functools.partial(gradients_of, model, records)
        # Inference is Keras' layers alone, differentiated by TensorFlow.
        expected_loss, expected = gradients(False)
        as_graph = tf.function(
            gradients, jit_compile=how == "as a whole", autograph=False
        )
        if how == "compiled":
            loss, actual = as_graph(True)
        else:
            with without_fusion():
                loss, actual = as_graph(True)
        self.assertAllClose(loss, expected_loss, rtol=1e-5)
        # The gradient of the keys' bias is 0 but for rounding.
        largest = max(np.abs(gradient).max() for gradient in expected)
        for a, b in zip(actual, expected, strict=True):
            self.assertAllClose(a, b, rtol=1e-4, atol=1e-6 * largest)


class NormalTest(tf.test.TestCase):
    def test_moments_and_tails(self):
        found = fused.normal(np.array([3, 4]), np.zeros((1000, 50), np.float32)).numpy()
        self.assertEqual(found.dtype, np.float32)
        self.assertAllClose(found.mean(), 0.0, atol=0.02)
        self.assertAllClose(found.std(), 1.0, atol=0.02)
        # Of a normal distribution 4.55 % are beyond two deviations.
        self.assertAllClose((abs(found) > 2.0).mean(), 0.0455, atol=0.004)
        self.assertLess(abs(np.corrcoef(found[:, 0], found[:, 1])[0, 1]), 0.1)

    def test_rows_of_a_batch_have_the_numbers_that_they_have_in_the_whole(self):
        whole = fused.normal(np.array([3, 4]), np.zeros((6, 5), np.float32))
        part = fused.normal(np.array([3, 4, 1, 2]), np.zeros((4, 5), np.float32))
        self.assertAllEqual(part, whole[2:6])
