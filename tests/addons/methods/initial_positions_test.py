import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.addons.methods.initial_positions import DEVIATION, place, sinusoids
from bert_tf.modeling.heads import BertPretrainer
from tests.training import toy

pytestmark = pytest.mark.jax


class InitialPositionsTest(tf.test.TestCase):
    def test_they_are_kerashubs_sines_but_for_their_size(self):
        table = sinusoids(512, 128)
        wanted = keras_hub.layers.SinePositionEncoding()(np.zeros((1, 512, 128), "f"))
        # Its angles are float32: 511 has an error of 3e-5.
        self.assertAllClose(
            table / (DEVIATION * np.sqrt(2.0)), np.array(wanted)[0], atol=1e-4
        )
        self.assertAllClose(np.sqrt(np.mean(table**2)), DEVIATION)

    def test_a_linear_map_takes_each_position_to_the_next(self):
        table = sinusoids(128, 64)
        found = np.linalg.lstsq(table[:-1], table[1:], rcond=None)[0]
        self.assertAllClose(table[:-1] @ found, table[1:], atol=1e-4)

    def test_a_models_positions_alone_are_set(self):
        model = BertPretrainer(toy.CONFIG)
        names = [weight.path for weight in model.weights]
        before = [np.array(weight) for weight in model.weights]
        place(model)
        changed = [
            name
            for name, old, weight in zip(names, before, model.weights, strict=True)
            if not np.array_equal(old, weight)
        ]
        self.assertEqual(changed, ["bert/embeddings/position_embeddings"])


if __name__ == "__main__":
    tf.test.main()
