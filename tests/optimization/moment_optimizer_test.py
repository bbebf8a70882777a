"""What holds for every optimizer of two moments, shown with AdamWeightDecay."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.optimization.adamw import AdamWeightDecay
from bert_tf.optimization.gradients import clip_scale


def named_variable(name, values):
    return keras.Variable(np.asarray(values, np.float32), name=name)


def built(optimizer, *variables):
    optimizer.build(list(variables))
    return optimizer


class ScaleTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_the_gradients_are_multiplied(self, traced):
        w, b = named_variable("kernel", [1.0, 2.0]), named_variable("bias", [3.0])
        optimizer = built(AdamWeightDecay(0.1), w, b)
        apply = optimizer.apply
        if traced:
            apply = tf.function(apply)
        gradients = [tf.constant([3.0, 4.0]), tf.constant([12.0])]
        scale, norm = clip_scale(gradients, 1.0)
        self.assertAllClose(norm, 13.0)
        self.assertAllClose(scale, 1 / 13)
        apply(gradients, scale=scale)
        self.assertAllClose(optimizer.moments(w)[0], [0.3 / 13, 0.4 / 13])
        self.assertAllClose(optimizer.moments(b)[0], [1.2 / 13])
        # v = 0.001 * 9 / 169, whatever the scale: m / sqrt(v) = 0.1 / sqrt(0.001).
        self.assertAllClose(w, [1 - 0.31723, 2 - 0.31822], atol=1e-4)

    def test_none_is_one(self):
        results = []
        for options in ({}, {"scale": tf.constant(1.0)}):
            w = named_variable("kernel", np.linspace(-1, 1, 7))
            optimizer = built(AdamWeightDecay(0.1), w)
            apply = tf.function(optimizer.apply)
            for power in range(3):
                apply(
                    [tf.constant(np.linspace(0, 3, 7) ** power, tf.float32)], **options
                )
            results.append(np.array(w))
        self.assertAllEqual(*results)

    def test_clipping_twice_is_refused(self):
        w = named_variable("kernel", [1.0])
        optimizer = built(AdamWeightDecay(0.1, global_clipnorm=1.0), w)
        with self.assertRaisesRegex(ValueError, "global_clipnorm=None"):
            optimizer.apply([tf.constant([1.0])], scale=tf.constant(0.5))

    def test_the_scale_is_forgotten(self):
        w = named_variable("kernel", [1.0])
        optimizer = built(AdamWeightDecay(0.1), w)
        optimizer.apply([tf.constant([1.0])], scale=tf.constant(0.5))
        optimizer.apply([tf.constant([1.0])])
        self.assertAllClose(optimizer.moments(w)[0], [0.9 * 0.05 + 0.1])


class SkipNonfiniteTest(tf.test.TestCase, parameterized.TestCase):
    def test_a_step_of_nan_scale_changes_nothing(self):
        w, b = named_variable("kernel", [1.0, 2.0]), named_variable("bias", [3.0])
        optimizer = built(AdamWeightDecay(0.1, skip_nonfinite=True), w, b)
        one = tf.constant(1.0)
        optimizer.apply([tf.constant([1.0, 2.0]), tf.constant([3.0])], scale=one)
        before = [np.array(v) for v in (w, b, *optimizer.variables[2:])]
        self.assertLen(before, 6)
        gradients = [tf.constant([np.inf, 4.0]), tf.constant([12.0])]
        optimizer.apply(gradients, scale=clip_scale(gradients, 1.0)[0])
        for variable, value in zip(
            (w, b, *optimizer.variables[2:]), before, strict=True
        ):
            self.assertAllEqual(variable, value)
        optimizer.apply([tf.constant([1.0, 2.0]), tf.constant([3.0])], scale=one)
        self.assertNotAllClose(w, before[0])
        self.assertTrue(np.isfinite(np.array(w)).all())

    def test_by_default_it_shows(self):
        w = named_variable("kernel", [1.0, 2.0])
        optimizer = built(AdamWeightDecay(0.1), w)
        optimizer.apply([tf.constant([3.0, 4.0])], scale=tf.constant(np.nan))
        self.assertTrue(np.isnan(np.array(w)).all())

    def test_a_finite_step_is_the_same(self):
        results = []
        for skip in (False, True):
            w = named_variable("kernel", np.linspace(-1, 1, 7))
            optimizer = built(AdamWeightDecay(0.1, skip_nonfinite=skip), w)
            for power in range(3):
                optimizer.apply(
                    [tf.constant(np.linspace(0, 3, 7) ** power, tf.float32)],
                    scale=tf.constant(0.5),
                )
            results.append(np.array(w))
        self.assertAllEqual(*results)

    def test_it_needs_a_scale(self):
        w = named_variable("kernel", [1.0])
        optimizer = built(AdamWeightDecay(0.1, skip_nonfinite=True), w)
        with self.assertRaisesRegex(ValueError, "`scale` must be given"):
            optimizer.apply([tf.constant([1.0])])


if __name__ == "__main__":
    tf.test.main()
