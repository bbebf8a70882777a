import json
import warnings

import keras_hub
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.base.config import HIDDEN_ACTIVATIONS, BertConfig
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertTagger
from bert_tf.modeling.weight_names import weights_by_name
from tests.modeling import numpy_bert
from tests.modeling.examples import (
    one_of,
    outputs_of,
    random_records,
    randomize,
    relative_error,
    small_config,
)

CONFIGS = [
    *({"hidden_act": name, "num_hidden_layers": 1} for name in HIDDEN_ACTIVATIONS),
    {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512},
    {"num_hidden_layers": 1, "num_attention_heads": 1, "type_vocab_size": 16},
    {"num_hidden_layers": 3},
    {"layer_norm_eps": 0.5},
    {"embedding_size": 8},
    {"embedding_size": 8, "num_hidden_groups": 1, "num_hidden_layers": 4},
    {"embedding_size": 24, "num_hidden_groups": 1, "inner_group_num": 1},
]


class AgainstNumpyTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*({"overrides": overrides} for overrides in CONFIGS))
    def test_all_outputs(self, overrides):
        config = small_config(**overrides)
        model = BertEncoder(config, output_hidden_states=True, output_attentions=True)
        weights = randomize(model)
        records = random_records(config)
        outputs = outputs_of(model, records)
        for row in range(4):
            states, probabilities = numpy_bert.sequence_outputs(
                weights, config, one_of(records, row)
            )
            self.assertLen(outputs["hidden_states"], config.num_hidden_layers + 1)
            for actual, expected in zip(outputs["hidden_states"], states, strict=True):
                self.assertLess(relative_error(actual[row], expected), 1e-5)
            for actual, expected in zip(
                outputs["attention_probs"], probabilities, strict=True
            ):
                self.assertLess(relative_error(actual[row], expected), 1e-5)
            self.assertAllEqual(
                outputs["sequence_output"][row], outputs["hidden_states"][-1][row]
            )
            self.assertLess(
                relative_error(
                    outputs["pooled_output"][row],
                    numpy_bert.pooled_output(weights, states[-1]),
                ),
                1e-5,
            )

    def test_position_ids_and_attention_mask(self):
        config = small_config()
        model = BertEncoder(config, use_position_ids=True, use_attention_mask=True)
        weights = randomize(model)
        records = random_records(config)
        rng = np.random.default_rng(5)
        records["position_ids"] = rng.integers(0, 20, (4, 14))
        left_to_right = np.tril(np.ones((14, 14), np.int32))
        records["attention_mask"] = np.broadcast_to(left_to_right, (4, 14, 14))
        outputs = outputs_of(model, records)
        for row in range(4):
            states, _ = numpy_bert.sequence_outputs(
                weights, config, one_of(records, row)
            )
            self.assertLess(
                relative_error(outputs["sequence_output"][row], states[-1]), 1e-5
            )


class BiLstmTest(tf.test.TestCase):
    def test_config_is_kept(self):
        config = small_config(bilstm=True)
        again = BertConfig.from_dict(json.loads(config.to_json_string()))
        self.assertEqual(config, again)
        model = BertEncoder.from_config(BertEncoder(config).get_config())
        self.assertEqual(config, model.bert_config)

    def test_equals_numpy(self):
        config = small_config(bilstm=True)
        model = BertEncoder(config)
        randomize(model)
        with warnings.catch_warnings(action="error"):  # such as Keras' on masks
            tagger = BertTagger(config, 2)
        self.assertTrue(tagger.get_layer("tagging").supports_masking)
        plain = BertEncoder(small_config())
        weights = {name: x.numpy() for name, x in weights_by_name(model).items()}
        for name, variable in weights_by_name(plain).items():
            if not name.startswith("bert/pooler/"):
                variable.assign(weights[name])
        records = random_records(config)
        states = outputs_of(plain, records)["sequence_output"]
        found = outputs_of(model, records)
        for row in range(4):
            length = int(records["input_mask"][row].sum())
            x = states[row, :length]
            scope = "bert/bilstm/"
            ahead = numpy_bert.lstm(weights, f"{scope}forward_lstm", x)
            back = numpy_bert.lstm(weights, f"{scope}backward_lstm", x[::-1])[::-1]
            expected = np.concatenate([ahead, back], axis=-1)
            self.assertAllClose(found["sequence_output"][row, :length], expected)
            ends = np.concatenate([ahead[-1], back[0]])
            self.assertAllClose(found["pooled_output"][row], ends)


class DropoutTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("hidden_dropout_prob", "attention_probs_dropout_prob")
    def test_each_rate_acts_in_training_alone(self, rate):
        none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        config = small_config(**none)
        records = random_records(config)
        without = BertEncoder(config)
        randomize(without)
        expected = without(records, training=True)["sequence_output"]

        dropping = BertEncoder(small_config(**{**none, rate: 0.5}))
        dropping.set_weights(without.get_weights())
        # Training runs other kernels than inference, so not to the bit.
        self.assertAllClose(
            dropping(records, training=False)["sequence_output"], expected, atol=1e-5
        )
        first = dropping(records, training=True)["sequence_output"]
        second = dropping(records, training=True)["sequence_output"]
        self.assertNotAllClose(first, expected)
        self.assertNotAllClose(first, second)

    def test_embeddings_are_dropped_at_the_rate_and_scaled_up(self):
        config = small_config(hidden_dropout_prob=0.25, max_position_embeddings=512)
        model = BertEncoder(config, output_hidden_states=True)
        randomize(model)
        records = random_records(config, batch=16, length=256)
        whole = model(records, training=False)["hidden_states"][0].numpy()
        dropped = model(records, training=True)["hidden_states"][0].numpy()
        kept = dropped != 0
        self.assertAllClose(kept.mean(), 0.75, atol=0.01)
        self.assertAllClose(dropped[kept], whole[kept] / 0.75, rtol=1e-5, atol=1e-6)


class ConstructionTest(tf.test.TestCase):
    def test_is_a_keras_hub_backbone_of_functional_form(self):
        model = BertEncoder(small_config())
        self.assertIsInstance(model, keras_hub.models.Backbone)
        self.assertEqual(model.get_layer("layer_1").name, "layer_1")
        self.assertSameElements(model.input, ["input_ids", "input_mask", "segment_ids"])

    def test_config_may_be_a_dict_or_the_name_of_a_size(self):
        fields = small_config().to_dict()
        self.assertEqual(BertEncoder(fields).bert_config, small_config())
        model = BertEncoder("tiny")
        self.assertEqual(model.bert_config, BertConfig.from_size("tiny"))
        # Turc et al. 2019, table 1: BERT-Tiny has 4.4 million parameters.
        self.assertEqual(round(model.count_params() / 1e5), 44)

    def test_longer_than_the_positions(self):
        config = small_config()
        model = BertEncoder(config)
        with self.assertRaisesRegex(ValueError, "the model's 20 positions.*21"):
            model(random_records(config, length=21))

    def test_initial_weights(self):
        config = small_config(
            hidden_size=128,
            num_attention_heads=2,
            vocab_size=3000,
            initializer_range=0.05,
        )
        model = BertEncoder(config)
        seen = []
        for weight in model.weights:
            values = weight.numpy()
            if weight.path.endswith("gamma"):
                self.assertAllEqual(values, np.ones_like(values))
            elif weight.path.endswith(("beta", "bias")):
                self.assertAllEqual(values, np.zeros_like(values))
            else:
                self.assertLessEqual(np.abs(values).max(), 0.1)
                if values.size > 3000:
                    # A normal distribution cut at two deviations keeps 0.8796 of its
                    # own deviation (Johnson, Kotz: doubly truncated normal).
                    self.assertAllClose(values.std(), 0.05 * 0.8796, rtol=0.03)
                    self.assertAllClose(values.mean(), 0.0, atol=0.005)
                seen.append(values.ravel()[:64])
        # No two weights start with the same numbers.
        self.assertLen({tuple(values) for values in seen}, len(seen))
