import numpy as np
import tensorflow as tf

from bert_tf.modeling import layers
from bert_tf.modeling.layers import GatherPositions


class ActivationTest(tf.test.TestCase):
    def test_values(self):
        # x P(X <= x) from tables of the normal distribution; the tanh form is up to
        # 0.0005 away (its values worked out to seven digits).
        x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0], np.float32)
        self.assertAllClose(
            layers.gelu_erf(x),
            [-0.0455003, -0.1586553, 0.0, 0.8413447, 1.9544997],
            atol=1e-6,
        )
        self.assertAllClose(
            layers.gelu(x),
            [-0.0454023, -0.1588080, 0.0, 0.8411920, 1.9545977],
            atol=1e-6,
        )


class LayerNormTest(tf.test.TestCase):
    def test_values(self):
        layer = layers.layer_norm(1e-12, None)
        layer.build((None, 4))
        # Mean 5, variance 5: (-3, -1, 1, 3) / sqrt(5).
        self.assertAllClose(
            layer(np.array([[2.0, 4.0, 6.0, 8.0]], np.float32)),
            [[-1.3416408, -0.4472136, 0.4472136, 1.3416408]],
            rtol=1e-6,
        )

    def test_a_large_mean_leaves_the_variance_exact(self):
        layer = layers.layer_norm(1e-12, None)
        layer.build((None, 4))
        # E[x^2] - E[x]^2 would lose every digit: 4096^2 has no room for a 5.
        x = np.array([[2.0, 4.0, 6.0, 8.0]], np.float32) + 4096.0
        self.assertAllClose(
            layer(x), [[-1.3416408, -0.4472136, 0.4472136, 1.3416408]], atol=1e-3
        )


class GatherPositionsTest(tf.test.TestCase):
    def test_rows_of_each_sequence(self):
        x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
        self.assertAllEqual(
            GatherPositions()(x, np.array([[0, 3], [1, 1]])),
            [[[0, 1, 2], [9, 10, 11]], [[15, 16, 17], [15, 16, 17]]],
        )


class WindowAttentionTest(tf.test.TestCase):
    def test_by_hand(self):
        layer = layers.WindowAttention()
        pooled = np.array([[1.0, 0], [0, 1], [5, 7], [2, 4], [9, 9], [9, 9]])
        # Of the first text two windows, of the second one. A window has no [CLS]
        # where it is not there; the third text is a batch's padding.
        mask = np.array([[[1, 1], [1, 0]], [[0, 0], [1, 1]], [[0, 0], [0, 0]]])
        mean = layer(pooled, mask)
        self.assertAllClose(mean, [[0.5, 0.5], [2, 4], [9, 9]])
        # u . p = log 3 and 0: the weights are 3/4 and 1/4.
        layer.query.assign([np.log(3.0), 0.0])
        self.assertAllClose(layer(pooled, mask), [[0.75, 0.25], [2, 4], [9, 9]])
