import numpy as np
import tensorflow as tf

from bert_tf.metrics.correlation import pearson_and_spearman


class CorrelationTest(tf.test.TestCase):
    def test_by_hand(self):
        # Deviations (-1, 0, 1) and (-2, 1, 1): 3 / sqrt(2 * 6); ranks 1 2 3 and
        # 1 2.5 2.5: 1.5 / sqrt(2 * 1.5).
        pearson, spearman = pearson_and_spearman([1, 2, 3], [0, 3, 3])
        self.assertAllClose([pearson, spearman], [0.8660254, 0.8660254])
        pearson, spearman = pearson_and_spearman([1, 2, 10], [1, 2, 3])
        self.assertAllClose(spearman, 1.0)
        self.assertAllClose(pearson, 9 / (2 * 146 / 3) ** 0.5)

    def test_nearly_constant_predictions(self):
        rng = np.random.default_rng(5)
        predictions = (2.5 + 1e-5 * rng.normal(size=50)).astype(np.float32)
        labels = rng.uniform(0, 5, 50).astype(np.float32)
        pearson, _ = pearson_and_spearman(predictions, labels)
        # What scipy 1.x says of these numbers in float64; in float32 0.07846695.
        self.assertAllClose(pearson, 0.07848076147856116, rtol=1e-10)

    def test_a_constant_side_is_zero(self):
        self.assertEqual(pearson_and_spearman([1, 1, 1], [1, 2, 3]), (0.0, 0.0))
        self.assertEqual(pearson_and_spearman([1], [1]), (0.0, 0.0))


if __name__ == "__main__":
    tf.test.main()
