import numpy as np
import tensorflow as tf

from bert_tf.modeling import layers


class LayerNormTest(tf.test.TestCase):
    def test_a_large_mean_leaves_the_variance_exact(self):
        layer = layers.layer_norm(1e-12, None)
        layer.build((None, 4))
        # E[x^2] - E[x]^2 would lose every digit: 4096^2 has no room for a 5.
        x = np.array([[2.0, 4.0, 6.0, 8.0]], np.float32) + 4096.0
        self.assertAllClose(
            layer(x), [[-1.3416408, -0.4472136, 0.4472136, 1.3416408]], atol=1e-3
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
