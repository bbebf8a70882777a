import unittest

import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.compilation import (
    compiled,
    compiled_with_gradient,
    pieces_left_alone,
    xla_compiles_for_the_cpu,
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
            with pieces_left_alone():
                self.assertFalse(is_compiled(function, *self.args))
                self.assertAllClose(function(*self.args), [17.0, 57.0])
            self.assertTrue(is_compiled(function, *self.args))

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

    def test_any_batch_size_in_one_graph(self):
        function = compiled_with_gradient(lambda x: ops.sum(x * x, axis=0))

        @tf.function(input_signature=[tf.TensorSpec((None, 2))])
        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x)

        for size in (1, 3):
            self.assertAllClose(gradient(tf.ones((size, 2))), 2 * np.ones((size, 2)))

    def test_replicas(self):
        function = compiled_with_gradient(square_sum)
        strategy = tf.distribute.MirroredStrategy(["CPU:0"])

        @tf.function
        def run():
            return strategy.run(lambda: function(*self.args, 2))

        self.assertAllClose(strategy.experimental_local_results(run())[0], [17.0, 57.0])


if __name__ == "__main__":
    tf.test.main()
