import numpy as np
import tensorflow as tf

from bert_tf.modeling.attention import AttentionBias


class AttentionBiasTest(tf.test.TestCase):
    def test_a_token_is_seen_if_both_masks_let_it(self):
        bias = AttentionBias()(
            np.array([[1, 1, 0]]),
            np.array([[[1, 0, 1], [1, 1, 1], [0, 1, 1]]]),
        )
        no = -10000.0
        self.assertAllEqual(bias, [[[[0.0, no, no], [0.0, 0.0, no], [no, 0.0, no]]]])
        self.assertAllEqual(
            AttentionBias()(np.array([[1, 1, 0]])), [[[[0.0, 0.0, no]]]]
        )


if __name__ == "__main__":
    tf.test.main()
