"""What a plan measures: learning rates and weights of a size."""

import tensorflow as tf

from bert_tf.addons.planning.plan_measurements import learning_rate, num_weights
from bert_tf.base.config import BertConfig
from bert_tf.modeling.heads import BertPretrainer


class SizesTest(tf.test.TestCase):
    def test_the_rate_is_that_of_a_size(self):
        for name, rate in (
            *(("tiny", 1e-3), ("mini", 1e-3), ("small", 5e-4), ("medium", 3e-4)),
            *(("base", 1e-4), ("large", 1e-4)),
            *(("L-6_H-512", 3e-4), ("L-6_H-768", 1e-4), ("L-2_H-256", 1e-3)),
        ):
            self.assertEqual(learning_rate(BertConfig.from_size(name)), rate)

    def test_weights_are_those_of_the_model(self):
        config = BertConfig.from_size("L-2_H-128", vocab_size=100)
        model = BertPretrainer(config)
        unused = [128 * 128, 128, 2 * 128, 2]  # the pooler, next sentence prediction
        self.assertEqual(num_weights(config), model.count_params() - sum(unused))


if __name__ == "__main__":
    tf.test.main()
