import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling import layers
from tests.modeling.examples import small_config


class LayerNormTest(tf.test.TestCase):
    def test_a_large_mean_leaves_the_variance_exact(self):
        layer = layers.layer_norm(1e-12, None)
        layer.build((None, 4))
        # E[x^2] - E[x]^2 would lose every digit: 4096^2 has no room for a 5.
        x = np.array([[2.0, 4.0, 6.0, 8.0]], np.float32) + 4096.0
        self.assertAllClose(
            layer(x), [[-1.3416408, -0.4472136, 0.4472136, 1.3416408]], atol=1e-3
        )


class ResidualOutputTest(tf.test.TestCase):
    def test_drops_out_the_layers_output_not_the_residual(self):
        layer = layers.ResidualOutput(small_config(hidden_dropout_prob=0.5))
        layer.build((None, None, 40))
        layer.dense.kernel.assign(tf.zeros((40, 24)))
        layer.dense.bias.assign(tf.ones(24))
        x = tf.zeros((1, 1, 40))
        residual = np.arange(24, dtype=np.float32).reshape(1, 1, 24)
        # The normalization takes away the one that every number gets.
        normal = (residual - 11.5) / np.sqrt((24**2 - 1) / 12)
        self.assertAllClose(layer(x, residual, training=False), normal, rtol=1e-5)
        # In training a number gets 0 or 2: undo the normalization but for its scale.
        dropped = layer(x, residual, training=True).numpy().ravel()
        self.assertNotAllClose(dropped, normal.ravel())
        self.assertAllClose(np.argsort(dropped[::3]), np.arange(8))


class TransformerLayerTest(tf.test.TestCase):
    def test_symbolic_outputs_are_as_those_of_arrays(self):
        x, bias = np.zeros((2, 3, 24), np.float32), np.zeros((2, 1, 1, 3), np.float32)
        inputs = [keras.KerasTensor((None, None, 24)), keras.KerasTensor((2, 1, 1, 3))]
        for policy in ("float32", "mixed_bfloat16"):
            for options in ({}, {"recompute": True}, {"adapter_size": 2}):
                layer = layers.TransformerLayer(
                    small_config(), **options, dtype=keras.DTypePolicy(policy)
                )
                known = layer(*inputs)
                for training in (False, True):
                    real = layer(x, bias, training=training)
                    for one, array in zip(known, real, strict=True):
                        self.assertEqual(one.dtype, array.dtype)
                        self.assertLen(one.shape, len(array.shape))
                        for size, actual in zip(one.shape, array.shape, strict=True):
                            self.assertIn(size, (None, actual))
