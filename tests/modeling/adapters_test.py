import os

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.fused import dropout, without_fusion
from bert_tf.modeling.heads import BertClassifier, BertTagger
from bert_tf.modeling.layers import ResidualOutput
from bert_tf.modeling.weight_names import is_added, weights_by_name
from bert_tf.optimization.optimizers import create_optimizer
from tests.modeling import numpy_bert
from tests.modeling.examples import (
    gradients_of,
    one_of,
    outputs_of,
    random_records,
    randomize,
    relative_error,
    small_config,
)

OPTIONS = (
    {"lora_rank": 3},
    {"adapter_size": 5},
    {"layer_mixture": True},
    {"adapter_size": 5, "layer_mixture": True},
)
HEAD = {"output_weights", "output_bias"}


def scope(layer):
    return f"bert/encoder/layer_{layer}/"


def lora_names(layer):
    return {
        f"{scope(layer)}attention/self/{part}/lora_kernel_{matrix}"
        for part in ("query", "value")
        for matrix in "ab"
    }


def adapter_names(layer):
    return {
        f"{scope(layer)}{half}output/adapter/{part}/{weight}"
        for half in ("attention/", "")
        for part in ("down", "up")
        for weight in ("kernel", "bias")
    }


def layer_norms(layer):
    return {
        f"{scope(layer)}{half}output/LayerNorm/{weight}"
        for half in ("attention/", "")
        for weight in ("gamma", "beta")
    }


POOLER = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
EMBEDDINGS_NORM = {"bert/embeddings/LayerNorm/gamma", "bert/embeddings/LayerNorm/beta"}
LORA = lora_names(0) | lora_names(1) | HEAD
ADAPTERS = (
    adapter_names(0)
    | adapter_names(1)
    | layer_norms(0)
    | layer_norms(1)
    | EMBEDDINGS_NORM
    | HEAD
)
MIXTURE = {"bert/layer_mixture/scores", "bert/layer_mixture/gamma"}
# What is trained with which options.
TRAINED = (
    ({"lora_rank": 2}, LORA),
    ({"lora_rank": 2, "train_pooler": True}, LORA | POOLER),
    ({"lora_rank": 2, "recompute": True}, LORA),
    ({"adapter_size": 4}, ADAPTERS),
    ({"adapter_size": 4, "layer_mixture": True}, ADAPTERS | MIXTURE),
)


def without_dropout(**options):
    return small_config(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **options
    )


class AgainstNumpyTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*({"options": options} for options in OPTIONS))
    def test_in_inference_and_in_training(self, options):
        config = without_dropout()
        model = BertClassifier(config, 3, dropout=0.0, **options)
        weights = randomize(model)
        records = random_records(config)
        actual = outputs_of(model, records)["logits"]
        with without_fusion():
            in_training = model(records, training=True)["logits"]
        for row in range(4):
            states, _ = numpy_bert.sequence_outputs(
                weights, config, one_of(records, row)
            )
            mixed = (
                numpy_bert.mixed_layers(weights, states)
                if "layer_mixture" in options
                else states[-1]
            )
            expected = numpy_bert.output_logits(
                weights, "", numpy_bert.pooled_output(weights, mixed)
            )
            self.assertLess(relative_error(actual[row], expected), 1e-5)
            self.assertLess(relative_error(in_training[row], expected), 1e-5)

    def test_a_mixture_begins_as_the_mean(self):
        config = small_config()
        model = BertEncoder(config, layer_mixture=True, output_hidden_states=True)
        outputs = outputs_of(model, random_records(config))
        mean = np.mean([states[:, 0] for states in outputs["hidden_states"]], axis=0)
        weights = weights_by_name(model)
        kernel, bias = (weights[name].numpy() for name in sorted(POOLER, reverse=True))
        self.assertAllClose(
            outputs["pooled_output"], np.tanh(mean @ kernel + bias), atol=1e-6
        )


class StartTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = small_config()
        cls.records = random_records(cls.config)
        base = BertClassifier(cls.config, 3)
        cls.weights = randomize(base)
        cls.logits = outputs_of(base, cls.records)["logits"]

    def begun(self, **options):
        model = BertClassifier(self.config, 3, **options)
        for name, variable in weights_by_name(model).items():
            if not is_added(name):
                variable.assign(self.weights[name])
        return outputs_of(model, self.records)["logits"]

    def test_lora_begins_as_the_base(self):
        self.assertAllEqual(self.begun(lora_rank=4), self.logits)

    def test_adapters_begin_near_the_base(self):
        difference = np.abs(self.begun(adapter_size=4) - self.logits).max()
        self.assertBetween(difference, 1e-9, 1e-3)

    def test_an_adapter_comes_after_the_dropout(self):
        config = small_config(
            hidden_size=4, num_attention_heads=1, hidden_dropout_prob=0.5
        )
        layer = ResidualOutput(config, 3)
        layer.build((None, None, 4))
        layer.dense.kernel.assign(np.eye(4))
        layer.adapter.up.kernel.assign(np.zeros((3, 4)))
        layer.adapter.up.bias.assign([9.0, 0.0, 0.0, 0.0])
        x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")
        seed = tf.constant([3, 4])
        with without_fusion():
            actual = layer(x, 2.0 * x, training=True, seed=seed)
        rows = dropout(tf.reshape(x, (-1, 4)), seed, 0.5).numpy().reshape(x.shape)
        self.assertBetween((rows == 0.0).mean(), 0.2, 0.8)
        # What the adapter adds is never dropped.
        total = 2.0 * x + rows + [9.0, 0.0, 0.0, 0.0]
        total -= total.mean(-1, keepdims=True)
        self.assertAllClose(actual, total / total.std(-1, keepdims=True), atol=1e-5)

    def test_numbers_that_make_no_sense(self):
        for options in ({"lora_rank": 1, "adapter_size": 1}, {"lora_rank": -1}):
            with self.assertRaisesRegex(ValueError, "One of `lora_rank`"):
                BertEncoder(self.config, **options)
        with self.assertRaisesRegex(ValueError, "`train_pooler` must be False"):
            BertEncoder(self.config, train_pooler=True, use_pooler=False)

    def test_token_heads_take_them_too(self):
        for options, added in (
            ({"lora_rank": 2}, "lora"),
            ({"adapter_size": 3}, "adapter"),
            ({"layer_mixture": True}, "layer_mixture"),
        ):
            model = BertTagger(small_config(num_hidden_layers=1), 3, **options)
            names = [weight.path for weight in model.trainable_weights]
            self.assertTrue(any(added in name for name in names), names)
            again = BertTagger.from_config(model.get_config())
            self.assertLen(again.trainable_weights, len(names))


class TrainedTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*TRAINED)
    def test_only_what_is_said_is_trained(self, options, names):
        config = without_dropout()
        model = BertClassifier(config, 3, dropout=0.0, **options)
        before = randomize(model)
        variables = weights_by_name(model)
        self.assertEqual({k for k, v in variables.items() if v.trainable}, names)
        optimizer = create_optimizer(0.1, 10, 0)
        optimizer.build(model.trainable_variables)
        with without_fusion():
            _, gradients = gradients_of(model, random_records(config))
            optimizer.apply(gradients, model.trainable_variables)
        for name, variable in variables.items():
            if name in names:
                self.assertNotAllEqual(variable, before[name], name)
            else:
                self.assertAllEqual(variable, before[name], name)
        # A Keras file keeps both, what is trained and what was learned.
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = weights_by_name(keras.models.load_model(path))
        self.assertEqual({k for k, v in loaded.items() if v.trainable}, names)
        for name, variable in variables.items():
            self.assertAllEqual(loaded[name], variable, name)

    def test_a_mixture_does_not_decay(self):
        model = BertClassifier(small_config(), 3, adapter_size=4, layer_mixture=True)
        optimizer = create_optimizer(0.1, 10, 0)
        optimizer.build(model.trainable_variables)
        decayed = {variable.path for variable in optimizer.decayed_variables}
        self.assertFalse({path for path in decayed if "layer_mixture" in path})
        self.assertTrue({path for path in decayed if "adapter/up/kernel" in path})


class KerasFileTest(tf.test.TestCase):
    def test_lora_that_comes_later(self):
        config = small_config()
        model = BertClassifier(config, 3)
        model.encoder.enable_lora(2)
        weights = randomize(model)
        self.assertEqual(
            {k for k, v in weights_by_name(model).items() if v.trainable}, LORA
        )
        path = os.path.join(self.get_temp_dir(), "later.keras")
        model.save(path)
        loaded = weights_by_name(keras.models.load_model(path))
        for name, value in weights.items():
            self.assertAllEqual(loaded[name], value, name)

    def test_frozen_as_a_whole(self):
        model = BertClassifier(small_config(), 3, lora_rank=2)
        model.trainable = False
        self.assertEmpty(
            BertClassifier.from_config(model.get_config()).trainable_variables
        )
