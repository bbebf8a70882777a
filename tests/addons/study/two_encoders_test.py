import dataclasses
import os

import numpy as np
import tensorflow as tf

from bert_tf import run_classifier
from bert_tf.addons.study import two_encoders
from bert_tf.base.errors import InputError
from bert_tf.conversion.source import open_source
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertClassifier, BertPretrainer, BertSpanPredictor
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from tests.modeling.examples import outputs_of, random_records, randomize, small_config
from tests.run_classifier_test import TOKENS, RunClassifierTestCase
from tests.training import toy

LEFT = {"left_to_right": True}
RIGHT = {"right_to_left": True, "num_hidden_layers": 3, "hidden_size": 12}


class SideBySideTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.configs = small_config(**LEFT), small_config(**RIGHT)
        self.records = random_records(self.configs[0])

    def both(self, model):
        """The model of both, its weights, and each encoder's outputs alone."""
        first, second = self.configs
        model = two_encoders.side_by_side(model, second)
        weights = randomize(model)
        found = []
        for config, scope in ((first, "bert/"), (second, "cls/second/bert/")):
            encoder = BertEncoder(
                config, use_pooler="bert/pooler/dense/bias" in weights
            )
            for name, variable in weights_by_name(encoder).items():
                variable.assign(weights[name.replace("bert/", scope)])
            found.append(outputs_of(encoder, self.records))
        return model, weights, found

    def head(self, weights, name, inputs):
        """The linear layer on a concatenation, in numpy."""
        parts = [weights[f"{scope}{name}output_weights"] for scope in self.scopes]
        biases = [weights[f"{scope}{name}output_bias"] for scope in self.scopes]
        kernel = np.concatenate(parts, axis=1)
        return np.concatenate(inputs, axis=-1) @ kernel.T + sum(biases)

    def test_a_classifier_reads_the_concatenation(self):
        model, weights, found = self.both(BertClassifier(self.configs[0], 3))
        self.scopes = "", "cls/second/classifier/"
        expected = self.head(weights, "", [one["pooled_output"] for one in found])
        found = outputs_of(model, self.records)["logits"]
        self.assertAllClose(found, expected, atol=1e-5)

    def test_a_span_predictor_reads_the_concatenation(self):
        model, weights, found = self.both(BertSpanPredictor(self.configs[0]))
        self.scopes = "cls/", "cls/second/cls/"
        inputs = [one["sequence_output"] for one in found]
        expected = self.head(weights, "squad/", inputs)
        found = outputs_of(model, self.records)
        self.assertAllClose(found["start_logits"], expected[..., 0], atol=1e-5)
        self.assertAllClose(found["end_logits"], expected[..., 1], atol=1e-5)

    def test_one_bias_is_trained(self):
        model = two_encoders.side_by_side(
            BertClassifier(self.configs[0], 3), self.configs[1]
        )
        frozen = [name for name, v in weights_by_name(model).items() if not v.trainable]
        self.assertEqual(frozen, ["cls/second/classifier/output_bias"])
        self.assertAllEqual(weights_by_name(model)[frozen[0]], np.zeros(3))


class FineTuneTest(RunClassifierTestCase):
    def setUp(self):
        super().setUp()
        self.write_tsv(train=32)
        self.first, self.second = self.pretrained(), self.path("backwards")
        config = dataclasses.replace(toy.CONFIG, right_to_left=True, hidden_size=12)
        toy.save_checkpoint(self.second, BertPretrainer(config), 1, 1)
        with open(os.path.join(self.second, "bert_config.json"), "w") as file:
            file.write(config.to_json_string())

    def fine_tune(self, **values):
        given = {
            "vocab_file": self.vocab,
            "bert_config_file": self.config,
            "init_checkpoint": self.first,
            "output_dir": self.path("run"),
            **self.defaults(),
            **values,
        }
        return two_encoders.fine_tune(
            run_classifier, second_checkpoint=self.second, do_eval=True, **given
        )

    def test_both_begin_with_their_checkpoints(self):
        self.fine_tune(do_train=True, learning_rate=1e-9)
        names = "embeddings/word_embeddings", "encoder/layer_0/output/dense/kernel"
        weights = open_source(self.path("run")).weights
        for folder, scope in ((self.first, ""), (self.second, "cls/second/")):
            there = open_source(folder).weights
            for name in names:
                found, expected = weights[f"{scope}bert/{name}"], there[f"bert/{name}"]
                self.assertAllClose(found, expected, atol=1e-6)

    def test_a_run_is_restored(self):
        scores = self.fine_tune(do_train=True, learning_rate=0.01).scores
        with self.training_nothing():
            self.assertEqual(self.fine_tune(init_checkpoint=None).scores, scores)

    def test_another_vocabulary_is_refused(self):
        Vocabulary([*TOKENS[:-1], "other"]).save(os.path.join(self.second, "vocab.txt"))
        with self.assertRaisesRegex(InputError, "has another vocabulary than the"):
            self.fine_tune(do_train=True)
