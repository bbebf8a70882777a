from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.addons.methods.lamb import Lamb
from bert_tf.optimization import optimizers


def named_variable(name, values):
    return keras.Variable(np.asarray(values, np.float32), name=name)


def numpy_lamb(weight, gradients, rate, *, decay, adapts):
    """Float64: algorithm 2 of You et al. 2020, line by line."""
    x = np.array(weight, np.float64)
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t, gradient in enumerate(gradients, start=1):
        g = np.array(gradient, np.float64)
        m = 0.9 * m + (1 - 0.9) * g
        v = 0.999 * v + (1 - 0.999) * g * g
        r = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6)
        if not adapts:
            x = x - rate * r
            continue
        direction = r + decay * x
        x = (
            x
            - rate
            * np.linalg.norm(x.ravel())
            / np.linalg.norm(direction.ravel())
            * direction
        )
    return x


class LambTest(tf.test.TestCase, parameterized.TestCase):
    # Of the three sizes, 3 x 5 x 7 is odd and the last is halved before it is summed.
    @parameterized.parameters(
        ((3, 4), False, 1 << 16),
        ((3, 5, 7), True, 0),
        ((64, 70), True, 0),
        ((64, 70), False, 0),
    )
    def test_steps_against_numpy(self, shape, traced, smallest_compiled):
        rng = np.random.default_rng(0)
        values = {
            "kernel": rng.normal(size=shape),
            "LayerNorm_gamma": rng.normal(size=5),
        }
        variables = [named_variable(*item) for item in values.items()]
        gradients = [
            [rng.normal(size=v.shape) * 10.0**-step for v in values.values()]
            for step in range(4)
        ]
        optimizer = Lamb(0.05, weight_decay_rate=0.1)
        with mock.patch.object(optimizers, "SMALLEST_COMPILED_SIZE", smallest_compiled):
            optimizer.build(variables)
        apply = tf.function(optimizer.apply) if traced else optimizer.apply
        for step in gradients:
            apply([tf.constant(g, tf.float32) for g in step])
        for i, (name, value) in enumerate(values.items()):
            expected = numpy_lamb(
                value,
                [step[i] for step in gradients],
                0.05,
                decay=0.1,
                adapts=name == "kernel",
            )
            self.assertAllClose(variables[i], expected, rtol=1e-5, atol=1e-6)

    def test_as_optax(self):
        # optax 0.2.8: optax.lamb(0.1, weight_decay=0.01), three steps in float32. For
        # what decays it is the same algorithm.
        w = named_variable("kernel", [[1.0, -2.0, 0.5], [0.25, 0.0, -1.5]])
        optimizer = Lamb(0.1, weight_decay_rate=0.01)
        optimizer.build([w])
        gradient = np.array([[0.1, -0.2, 0.3], [0.0, 0.5, -1.0]], np.float32)
        for factor in (1.0, -0.5, 2.0):
            optimizer.apply([tf.constant(factor * gradient + 0.01, tf.float32)])
        self.assertAllClose(
            w,
            [
                [0.7112444639205933, -1.7507867813110352, 0.23209066689014435],
                [-0.20739459991455078, -0.2617110013961792, -1.2404980659484863],
            ],
            rtol=1e-5,
        )

    def test_the_ratio_is_1_where_a_norm_is_0(self):
        zero = named_variable("kernel", np.zeros(3))
        still = named_variable("kernel_of_no_gradient", [1.0, 2.0])
        optimizer = Lamb(0.1, weight_decay_rate=0.0)
        optimizer.build([zero, still])
        optimizer.apply([tf.constant([1.0, -2.0, 3.0]), tf.zeros([2])])
        self.assertAllClose(zero, [-0.1, 0.1, -0.1], rtol=1e-5)
        self.assertAllEqual(still, [1.0, 2.0])

    def test_skips_what_is_not_finite(self):
        w = named_variable("kernel", [3.0, 4.0])
        optimizer = Lamb(0.1, skip_nonfinite=True)
        optimizer.build([w])
        optimizer.apply([tf.constant([np.inf, 1.0])], scale=tf.constant(np.nan))
        self.assertAllEqual(w, [3.0, 4.0])
        self.assertAllEqual(optimizer.moments(w)[1], [0.0, 0.0])


if __name__ == "__main__":
    tf.test.main()
