import functools

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.addons.methods.lamb import Lamb
from bert_tf.base.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.optimization.layerwise import freeze, keeping_initial, rate_factors
from bert_tf.optimization.optimizers import AdamWeightDecay
from tests.modeling.examples import randomize, small_config

CONFIG = small_config(num_hidden_layers=3, initializer_range=0.05)


_shared_pretrainer = functools.cache(lambda: BertPretrainer(CONFIG))


def pretrainer(frozen_layers):
    """All tests have the same one, each with its own layers frozen."""
    model = _shared_pretrainer()
    for layer in model._flatten_layers():
        layer.trainable = True
    freeze(model.encoder, frozen_layers)
    return model


def parts(variables):
    """The encoder's parts that the variables belong to, and "cls" for the heads."""
    names = set()
    for variable in variables:
        first, second, third = variable.path.split("/")[:3]
        names.add("cls" if first == "cls" else third if second == "encoder" else second)
    return names


class FreezeTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("", "embeddings layer_0 layer_1 layer_2 pooler cls"),
        ("embeddings", "layer_0 layer_1 layer_2 pooler cls"),
        ("embeddings,0-1", "layer_2 pooler cls"),
        (" 1 , pooler", "embeddings layer_0 layer_2 cls"),
        ("layer_2", "embeddings layer_0 layer_1 pooler cls"),
        ("encoder", "embeddings pooler cls"),
        ("embeddings,0-2,pooler", "cls"),
    )
    def test_what_remains(self, frozen_layers, remaining):
        model = pretrainer(frozen_layers)
        self.assertEqual(parts(model.trainable_variables), set(remaining.split()))

    @parameterized.parameters("embedding", "3", "1-3", "2-1", "0,,1", "layer_7")
    def test_what_is_not_there_is_named(self, frozen_layers):
        with self.assertRaisesRegex(
            InputError, "no .*It has embeddings, pooler, encoder, and layers 0-2"
        ):
            pretrainer(frozen_layers)

    def test_alberts_layers_are_frozen_as_one(self):
        config = small_config(embedding_size=8, num_hidden_groups=1)
        for name in ("0", "group_0", "encoder"):
            encoder = BertEncoder(config)
            freeze(encoder, name)
            paths = [variable.path for variable in encoder.trainable_variables]
            self.assertNotEmpty(paths)
            self.assertEmpty([path for path in paths if "/group_0/" in path])
        with self.assertRaisesRegex(InputError, "encoder, and layers 0-0"):
            freeze(encoder, "1")


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

    def test_the_layer_that_alberts_layers_share_is_one(self):
        layer = "bert/encoder/transformer/group_0/inner_group_0"
        paths = [
            "bert/embeddings/word_embeddings",
            "bert/encoder/embedding_hidden_mapping_in/kernel",
            f"{layer}/ffn_1/intermediate/dense/kernel",
            "bert/pooler/dense/kernel",
        ]
        self.assertAllClose(rate_factors(paths, 0.5), [0.25, 0.25, 0.5, 1.0], rtol=0)

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
        model = BertClassifier(small_config(), num_labels=3)
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

    def test_a_mixture_of_layers_is_no_layer(self):
        model = BertClassifier(CONFIG, 2, layer_mixture=True)
        mixture = model.encoder.get_layer("layer_mixture")
        top = model.encoder.get_layer("layer_2").weights[0]
        initial = top.numpy()
        with keeping_initial(model.encoder, 1):
            for weight in (top, mixture.weights[0]):
                weight.assign(weight + 1.0)
        self.assertAllEqual(top, initial)
        self.assertAllEqual(mixture.weights[0], np.ones(4))
        freeze(model.encoder, "encoder")
        self.assertTrue(mixture.trainable)
        self.assertFalse(model.encoder.get_layer("layer_2").trainable)

    def test_too_many_layers(self):
        with self.assertRaisesRegex(
            InputError, "`reinitialize_layers=4`: the model has 3 layers"
        ):
            loaded(4, seed=1)
