import dataclasses
import json
import os

import numpy as np
import tensorflow as tf

from bert_tf.conversion import checkpoint
from bert_tf.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.modeling.names import weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]


def randomize(model, seed=0):
    rng = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        weight.assign(rng.normal(size=weight.shape))


class CheckpointTestCase(tf.test.TestCase):
    def folder(self, name="model"):
        path = os.path.join(self.get_temp_dir(), name)
        os.makedirs(path, exist_ok=True)
        toy.write_config(path)
        return path

    def save_tf1(self, folder, values):
        """A checkpoint of the original's layout, by TensorFlow 1's own saver."""
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variables = [
                tf.compat.v1.get_variable(name, initializer=value)
                for name, value in values.items()
            ]
            session.run(tf.compat.v1.global_variables_initializer())
            saver = tf.compat.v1.train.Saver(variables)
            return saver.save(session, os.path.join(folder, "bert_model.ckpt"))


class LoadTest(CheckpointTestCase):
    def test_a_tf1_release_by_folder_prefix_and_file(self):
        model = BertPretrainer(toy.CONFIG)
        randomize(model)
        values = {
            name: weight.numpy() for name, weight in weights_by_name(model).items()
        }
        extra = {
            "bert/pooler/dense/kernel/adam_m": np.zeros((8, 8), np.float32),
            "bert/pooler/dense/kernel/adam_v": np.zeros((8, 8), np.float32),
            "global_step": np.int64(7),
        }
        folder = self.folder()
        prefix = self.save_tf1(folder, values | extra)
        for path in (folder, prefix, prefix + ".index"):
            loaded = checkpoint.load_pretrainer(path)
            for name, weight in weights_by_name(loaded).items():
                self.assertAllEqual(weight.numpy(), values[name], name)
        self.assertEqual(set(checkpoint.CheckpointWeights(folder)), set(values))

    def test_an_empty_state_file_is_one_line(self):
        with open(os.path.join(self.get_temp_dir(), "checkpoint"), "w"):
            pass
        with self.assertRaisesRegex(InputError, "checkpoint is damaged"):
            checkpoint.find_checkpoint(self.get_temp_dir())

    def test_our_own_checkpoint(self):
        model = BertPretrainer(toy.CONFIG)
        randomize(model)
        folder = self.folder()
        toy.save_checkpoint(folder, model, 5, 20)
        encoder = checkpoint.load_encoder(folder)
        for name, weight in weights_by_name(encoder).items():
            self.assertAllEqual(weight.numpy(), weights_by_name(model)[name].numpy())

    def test_a_classifier_from_pre_training_and_back(self):
        folder = self.folder()
        toy.save_checkpoint(folder, BertPretrainer(toy.CONFIG), 5, 20)
        with self.assertRaisesRegex(InputError, "give `num_labels`"):
            checkpoint.load_classifier(folder)
        model = BertClassifier(toy.CONFIG, 3)
        randomize(model)
        missing = checkpoint.load_weights(model, folder)
        self.assertCountEqual(missing, ["output_weights", "output_bias"])
        fine_tuned = self.folder("fine_tuned")
        toy.save_checkpoint(fine_tuned, model, 9, 20)
        again = checkpoint.load_classifier(fine_tuned)
        self.assertEqual(again.num_labels, 3)
        self.assertAllEqual(
            weights_by_name(again)["output_weights"].numpy(),
            weights_by_name(model)["output_weights"].numpy(),
        )

    def test_a_contradiction_assigns_nothing(self):
        folder = self.folder()
        toy.save_checkpoint(folder, BertClassifier(toy.CONFIG, 3), 1, 1)
        model = BertClassifier(toy.CONFIG, 2)
        before = [weight.numpy() for weight in model.trainable_variables]
        with self.assertRaisesRegex(
            InputError, r"output_weights is \[3, 8\] there, \[2, 8\] here"
        ):
            checkpoint.load_weights(model, folder)
        for old, new in zip(before, model.trainable_variables, strict=True):
            self.assertAllEqual(old, new.numpy())

    def test_a_deeper_checkpoint_is_refused(self):
        deeper = dataclasses.replace(toy.CONFIG, num_hidden_layers=2)
        folder = self.folder()
        toy.save_checkpoint(folder, BertEncoder(deeper), 1, 1)
        with self.assertRaisesRegex(InputError, "16 weights .*layer_1/"):
            checkpoint.load_weights(BertEncoder(toy.CONFIG), folder)

    def test_a_checkpoint_of_something_else(self):
        folder = self.folder()
        self.save_tf1(folder, {"some/weight": np.zeros(3, np.float32)})
        with self.assertRaisesRegex(InputError, "lacks .* weights of the encoder"):
            checkpoint.load_weights(BertEncoder(toy.CONFIG), folder)
        with self.assertRaisesRegex(InputError, "lacks"):
            checkpoint.load_pretrainer(folder)

    def test_nothing_there(self):
        with self.assertRaisesRegex(InputError, "no checkpoint in this folder"):
            checkpoint.find_checkpoint(self.folder())
        with self.assertRaisesRegex(InputError, "nowhere.index is missing"):
            checkpoint.find_checkpoint("nowhere")

    def test_a_damaged_file_is_named(self):
        folder = self.folder()
        prefix = toy.save_checkpoint(folder, BertEncoder(toy.CONFIG), 1, 1)
        with open(prefix + ".index", "wb") as file:
            file.write(b"no")
        with self.assertRaisesRegex(InputError, "model.ckpt-1: not a readable"):
            checkpoint.load_weights(BertEncoder(toy.CONFIG), folder)


class TokenizerTest(CheckpointTestCase):
    def test_the_folders_vocabulary_and_casing(self):
        folder = self.folder()
        Vocabulary(TOKENS).save(os.path.join(folder, "vocab.txt"))
        self.assertEqual(
            checkpoint.load_tokenizer(folder).tokenize("The cat"), ["the", "cat"]
        )
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
            json.dump({"do_lower_case": False}, file)
        self.assertEqual(
            checkpoint.load_tokenizer(folder).tokenize("The cat"), ["[UNK]", "cat"]
        )

    def test_casing_is_checked_against_the_checkpoint(self):
        vocabulary = Vocabulary(TOKENS)
        check = checkpoint.checked_casing
        self.assertTrue(check(None, vocabulary, None))
        self.assertFalse(check(None, vocabulary, False))
        for name, lower in (
            ("uncased_L-12_H-768_A-12", True),
            ("cased_L-24_H-1024_A-16", False),
            ("multi_cased_L-12_H-768_A-12", False),
            ("wwm_uncased_L-24_H-1024_A-16", True),
            ("chinese_L-12_H-768_A-12", True),
            ("multilingual_L-12_H-768_A-12", True),
        ):
            path = os.path.join(self.folder(name), "bert_model.ckpt")
            self.assertEqual(check(path, vocabulary, None), lower)
            self.assertEqual(check(path, vocabulary, lower), lower)
            with self.assertRaisesRegex(InputError, f"do_lower_case={not lower}"):
                check(path, vocabulary, not lower)

    def test_another_vocabulary_than_the_checkpoints_is_refused(self):
        folder = self.folder()
        Vocabulary(TOKENS).save(os.path.join(folder, "vocab.txt"))
        checkpoint.checked_casing(folder, Vocabulary(TOKENS), None)
        with self.assertRaisesRegex(InputError, "other tokens"):
            checkpoint.checked_casing(folder, Vocabulary([*TOKENS, "dog"]), None)


if __name__ == "__main__":
    tf.test.main()
