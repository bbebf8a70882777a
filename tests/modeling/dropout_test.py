import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.modeling import fused
from bert_tf.modeling.dropout import (
    dropout,
    masks_of_replica,
    next_seed,
    random_bits,
)
from bert_tf.modeling.head_layers import PooledDropout, TokenDropout


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

    def test_a_seed_is_a_mask(self):
        x = tf.ones((40, 30))
        masks = [
            dropout(x, tf.constant(seed), 0.5) for seed in ([1, 2], [1, 2], [2, 1])
        ]
        self.assertAllEqual(masks[0], masks[1])
        self.assertNotAllEqual(masks[0], masks[2])

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

    def test_replicas_whose_generators_are_alike_have_other_masks(self):
        masks = []
        for number in (0, 1, tf.constant(1)):
            layer = keras.layers.Dropout(0.5, seed=3)
            with masks_of_replica(number):
                masks.append(dropout(tf.ones((100, 100)), next_seed(layer), 0.5))
        self.assertAllEqual(masks[1], masks[2])
        # The share of equal ones has deviation 1 / 200 around a half.
        self.assertAllClose(np.mean(masks[0] == masks[1]), 0.5, atol=0.025)


class HeadDropoutTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((PooledDropout, (100, 100)), (TokenDropout, (4, 25, 100)))
    def test_replicas_drop_numbers_of_their_own_at_the_rate(self, layer_class, shape):
        masks = []
        for number in (0, 1):
            layer = layer_class(0.25, seed=7)
            with masks_of_replica(number):
                masks.append(np.array(layer(np.ones(shape, "f"), training=True)))
        self.assertAllClose(np.unique(masks), [0.0, 4 / 3])
        kept = np.reshape(masks, (2, 100, 100)) > 0
        # Standard deviations: 0.0043 of a share, 0.005 of both agreeing.
        self.assertAllClose(kept.mean(axis=(1, 2)), [0.75, 0.75], atol=0.02)
        self.assertAllClose((kept[0] == kept[1]).mean(), 0.625, atol=0.03)
        self.assertAllEqual(
            layer(np.ones((2, 3), "f"), training=False), np.ones((2, 3))
        )


if __name__ == "__main__":
    tf.test.main()
