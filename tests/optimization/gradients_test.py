import numpy as np
import tensorflow as tf

from bert_tf.optimization.gradients import (
    clip_by_global_norm,
    dense_gradient,
    global_norm,
)


class ClipByGlobalNormTest(tf.test.TestCase):
    def test_by_hand(self):
        gradients = [tf.constant([3.0]), tf.constant([[4.0]])]
        self.assertAllClose(global_norm(gradients), 5.0)
        first, second = clip_by_global_norm(gradients, 1.0)
        self.assertAllClose(first, [0.6])
        self.assertAllClose(second, [[0.8]])

    def test_small_gradients_stay(self):
        gradients = [tf.constant([0.3, 0.4]), None, tf.zeros([2])]
        first, none, last = clip_by_global_norm(gradients, 1.0)
        self.assertAllEqual(first, [np.float32(0.3), np.float32(0.4)])
        self.assertIsNone(none)
        self.assertAllEqual(last, [0.0, 0.0])
        self.assertAllEqual(clip_by_global_norm([tf.zeros([2])], 1.0)[0], [0.0, 0.0])

    def test_as_tensorflows(self):
        rng = np.random.default_rng(0)
        for scale in (1e-3, 0.2, 1.0, 1e4):
            gradients = [
                tf.constant(rng.normal(0.0, scale, shape), tf.float32)
                for shape in ((7,), (3, 4), (2, 2, 2))
            ]
            expected, _ = tf.clip_by_global_norm(gradients, 1.0)
            actual = clip_by_global_norm(gradients, 1.0)
            for a, b in zip(actual, expected, strict=True):
                self.assertAllClose(a, b, rtol=1e-6, atol=0)

    def test_what_is_not_finite_becomes_nan_everywhere(self):
        for bad in (np.inf, -np.inf, np.nan):
            clipped = clip_by_global_norm(
                [tf.constant([1.0]), tf.constant([bad, 2.0])], 1.0
            )
            self.assertAllEqual(np.isnan(np.concatenate(clipped)), [True] * 3)

    def test_rows_looked_up_twice_are_summed_first(self):
        rows = tf.IndexedSlices(
            values=tf.constant([[1.0, 0.0], [0.0, 4.0], [2.0, 0.0]]),
            indices=tf.constant([1, 0, 1]),
            dense_shape=tf.constant([3, 2]),
        )
        self.assertAllEqual(dense_gradient(rows), [[0, 4], [3, 0], [0, 0]])
        self.assertAllClose(global_norm([rows]), 5.0)
        self.assertAllClose(
            clip_by_global_norm([rows], 1.0)[0], [[0, 0.8], [0.6, 0], [0, 0]]
        )

    def test_keeps_the_dtype(self):
        clipped = clip_by_global_norm([tf.constant([3.0, 4.0], tf.bfloat16)], 1.0)
        self.assertEqual(clipped[0].dtype, tf.bfloat16)


if __name__ == "__main__":
    tf.test.main()
