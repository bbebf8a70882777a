import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertClassifier
from bert_tf.modeling.names import weights_by_name
from bert_tf.optimization.reinitialization import keeping_initial
from tests.modeling.examples import randomize, small_config

CONFIG = small_config(num_hidden_layers=3, initializer_range=0.05)


def loaded(num_layers, seed):
    """A model that was "loaded" within the scope, by name, and what was loaded."""
    keras.utils.set_random_seed(seed)
    model = BertClassifier(CONFIG, 2)
    with keeping_initial(model.encoder, num_layers):
        values = randomize(model)
    variables = weights_by_name(model)
    return {name: variable.numpy() for name, variable in variables.items()}, values


class ReinitializationTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (0, ()),
        (1, ("pooler/", "layer_2/")),
        (2, ("pooler/", "layer_2/", "layer_1/")),
        (3, ("pooler/", "layer_2/", "layer_1/", "layer_0/")),
    )
    def test_the_top_is_new_and_the_rest_is_loaded(self, num_layers, new):
        weights, values = loaded(num_layers, seed=1)
        for name, weight in weights.items():
            if not any(part in name for part in new):
                self.assertAllEqual(weight, values[name], name)
            elif name.endswith("/kernel"):
                self.assertLess(np.abs(weight).max(), 0.1001, name)  # two deviations
                # Of a normal distribution cut off there.
                self.assertAllClose(weight.std(), 0.05 * 0.8796, rtol=0.15)
            else:
                value = 1.0 if name.endswith("/gamma") else 0.0
                self.assertAllEqual(weight, np.full_like(weight, value), name)

    def test_the_seed_decides(self):
        weights, _ = loaded(1, seed=1)
        again, _ = loaded(1, seed=1)
        other, _ = loaded(1, seed=2)
        name = "bert/encoder/layer_2/output/dense/kernel"
        for each, weight in weights.items():
            self.assertAllEqual(weight, again[each], each)
        self.assertNotAllClose(weights[name], other[name])

    def test_too_many_layers(self):
        with self.assertRaisesRegex(
            InputError, "`reinitialize_layers=4`: the model has 3 layers"
        ):
            loaded(4, seed=1)


if __name__ == "__main__":
    tf.test.main()
