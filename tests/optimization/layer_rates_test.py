import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling.heads import BertClassifier
from bert_tf.optimization.adamw import AdamWeightDecay
from bert_tf.optimization.lamb import Lamb
from bert_tf.optimization.layer_rates import rate_factors


class RateFactorsTest(tf.test.TestCase):
    def test_by_hand(self):
        paths = [
            "bert/embeddings/word_embeddings",
            "bert/embeddings/LayerNorm/gamma",
            "bert/encoder/layer_0/output/dense/kernel",
            "bert/encoder/layer_1/attention/self/query/bias",
            "bert/pooler/dense/kernel",
            "classifier/output_weights",
        ]
        self.assertAllClose(
            rate_factors(paths, 0.5), [0.125, 0.125, 0.25, 0.5, 1.0, 1.0], rtol=0
        )
        self.assertEqual(rate_factors(paths, 1.0), [1.0] * 6)

    def test_layers_are_numbers_not_digits(self):
        paths = [f"bert/encoder/layer_{i}/output/dense/bias" for i in (0, 1, 9, 10, 11)]
        self.assertAllClose(
            rate_factors(paths, 0.5), [2**-12, 2**-11, 2**-3, 2**-2, 2**-1], rtol=0
        )

    def test_out_of_range(self):
        for decay in (0.0, -0.5, 1.5):
            with self.assertRaisesRegex(ValueError, f"at most 1. .*{decay}"):
                rate_factors(["w"], decay)


class StepLengthTest(tf.test.TestCase):
    def test_a_step_is_shorter_the_lower_the_layer(self):
        model = BertClassifier(
            BertConfig(
                vocab_size=11,
                hidden_size=8,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=16,
                max_position_embeddings=6,
            ),
            num_labels=3,
        )
        variables = model.trainable_variables
        for make in (AdamWeightDecay, Lamb):
            moved = {}
            for decay in (1.0, 0.5):
                # Ones, so that LAMB's ratio is the same for both.
                for variable in variables:
                    variable.assign(keras.ops.ones_like(variable))
                optimizer = make(0.1, layerwise_decay=decay)
                optimizer.build(variables)
                optimizer.apply([tf.ones(v.shape) for v in variables])
                moved[decay] = {v.path: 1.0 - np.mean(v) for v in variables}
            for path, full in moved[1.0].items():
                factor = 1.0
                for part, expected in (
                    ("/embeddings/", 0.125),
                    ("/layer_0/", 0.25),
                    ("/layer_1/", 0.5),
                ):
                    factor = expected if part in path else factor
                self.assertAllClose(moved[0.5][path], factor * full, rtol=1e-4)
                self.assertGreater(full, 0.01)


if __name__ == "__main__":
    tf.test.main()
