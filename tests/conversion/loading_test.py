import dataclasses
import json
import os

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.conversion import loading
from bert_tf.conversion.loading import checked_casing, model_files
from bert_tf.conversion.source import open_source
from bert_tf.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.modeling.weight_names import weights_by_name
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
            loaded = loading.load_pretrainer(path)
            for name, weight in weights_by_name(loaded).items():
                self.assertAllEqual(weight.numpy(), values[name], name)
        self.assertEqual(set(open_source(folder).weights), set(values))

    def test_our_own_checkpoint(self):
        model = BertPretrainer(toy.CONFIG)
        randomize(model)
        folder = self.folder()
        toy.save_checkpoint(folder, model, 5, 20)
        encoder = loading.load_encoder(folder)
        for name, weight in weights_by_name(encoder).items():
            self.assertAllEqual(weight.numpy(), weights_by_name(model)[name].numpy())

    def test_a_classifier_from_pre_training_and_back(self):
        folder = self.folder()
        toy.save_checkpoint(folder, BertPretrainer(toy.CONFIG), 5, 20)
        with self.assertRaisesRegex(InputError, "classifier head; give `num_labels`"):
            loading.load_classifier(folder)
        model = BertClassifier(toy.CONFIG, 3)
        randomize(model)
        missing = loading.load_weights(model, folder)
        self.assertCountEqual(missing, ["output_weights", "output_bias"])
        fine_tuned = self.folder("fine_tuned")
        toy.save_checkpoint(fine_tuned, model, 9, 20)
        again = loading.load_classifier(fine_tuned)
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
            InputError,
            r"classifier head of another size: output_weights is \[3, 8\] there,"
            r" \[2, 8\] here.*`init_head=False`",
        ):
            loading.load_weights(model, folder)
        for old, new in zip(before, model.trainable_variables, strict=True):
            self.assertAllEqual(old, new.numpy())

    def test_a_deeper_checkpoint_is_refused(self):
        deeper = dataclasses.replace(toy.CONFIG, num_hidden_layers=2)
        folder = self.folder()
        toy.save_checkpoint(folder, BertEncoder(deeper), 1, 1)
        with self.assertRaisesRegex(InputError, "16 weights .*layer_1/"):
            loading.load_weights(BertEncoder(toy.CONFIG), folder)

    def test_a_checkpoint_of_something_else(self):
        folder = self.folder()
        self.save_tf1(folder, {"some/weight": np.zeros(3, np.float32)})
        with self.assertRaisesRegex(InputError, "lacks .* weights of the encoder"):
            loading.load_weights(BertEncoder(toy.CONFIG), folder)
        with self.assertRaisesRegex(InputError, "no checkpoint with a masked LM head"):
            loading.load_pretrainer(folder)

    def test_a_damaged_file_is_named(self):
        folder = self.folder()
        prefix = toy.save_checkpoint(folder, BertEncoder(toy.CONFIG), 1, 1)
        with open(prefix + ".index", "wb") as file:
            file.write(b"no")
        with self.assertRaisesRegex(InputError, "model.ckpt-1: not a readable"):
            loading.load_weights(BertEncoder(toy.CONFIG), folder)


class FunctionTest(CheckpointTestCase):
    def test_a_config_that_computes_something_else_is_refused(self):
        folder = self.folder()
        toy.save_checkpoint(folder, BertPretrainer(toy.CONFIG), 1, 1)
        for field, value in (
            ("hidden_act", "gelu_erf"),
            ("num_attention_heads", 4),
            ("layer_norm_eps", 1e-5),
            ("masked_lm_hidden_act", "gelu_erf"),
        ):
            other = dataclasses.replace(toy.CONFIG, **{field: value})
            with self.assertRaisesRegex(InputError, f"{field}=.*config has {value}"):
                loading.load_weights(BertPretrainer(other), folder)

    def test_dropout_may_be_another(self):
        folder = self.folder()
        toy.save_checkpoint(folder, BertPretrainer(toy.CONFIG), 1, 1)
        other = dataclasses.replace(toy.CONFIG, hidden_dropout_prob=0.0)
        self.assertEmpty(loading.load_weights(BertPretrainer(other), folder))


class HeadsTest(CheckpointTestCase):
    def test_every_head_comes_back(self):
        for model, load in (
            (BertSpanPredictor(toy.CONFIG), loading.load_span_predictor),
            (BertMultipleChoice(toy.CONFIG), loading.load_multiple_choice),
            (BertTagger(toy.CONFIG, 5), loading.load_tagger),
            (BertClassifier(toy.CONFIG, 3), loading.load_classifier),
            (BertPretrainer(toy.CONFIG), loading.load_pretrainer),
            (
                BertPretrainer(toy.CONFIG, next_sentence=False),
                loading.load_pretrainer,
            ),
            (BertEncoder(toy.CONFIG, use_pooler=False), loading.load_encoder),
        ):
            randomize(model)
            folder = self.folder(model.name + str(len(model.weights)))
            toy.save_checkpoint(folder, model, 1, 1)
            again = weights_by_name(load(folder))
            self.assertEqual(set(again), set(weights_by_name(model)))
            for name, weight in weights_by_name(model).items():
                self.assertAllEqual(again[name].numpy(), weight.numpy(), name)

    def test_a_head_that_is_not_there(self):
        folder = self.folder()
        toy.save_checkpoint(folder, BertEncoder(toy.CONFIG), 1, 1)
        for load, head in (
            (loading.load_span_predictor, "span"),
            (loading.load_multiple_choice, "multiple choice"),
            (loading.load_tagger, "tagging"),
            (loading.load_pretrainer, "masked LM"),
        ):
            with self.assertRaisesRegex(InputError, f"no checkpoint with a {head}"):
                load(folder)

    def test_new_and_unused_heads_are_named(self):
        folder = self.folder()
        toy.save_checkpoint(folder, BertPretrainer(toy.CONFIG), 1, 1)
        with self.assertLogs(level="INFO") as logs:
            loading.load_weights(BertClassifier(toy.CONFIG, 2), folder)
        text = "\n".join(logs.output)
        self.assertIn(
            "so new: output_bias, output_weights",
            text.replace("output_weights, output_bias", "output_bias, output_weights"),
        )
        self.assertIn("not used: the masked LM, next sentence prediction head", text)

    def test_a_tensor_without_a_place(self):
        folder = self.folder()
        values = {
            name: weight.numpy()
            for name, weight in weights_by_name(BertEncoder(toy.CONFIG)).items()
        }
        values["bert_extra/weight"] = np.zeros(3, np.float32)
        self.save_tf1(folder, values)
        with self.assertRaisesRegex(InputError, "1 tensors .*bert_extra/weight"):
            loading.load_encoder(folder)


class TokenizerTest(CheckpointTestCase):
    def test_the_folders_vocabulary_and_casing(self):
        folder = self.folder()
        Vocabulary(TOKENS).save(os.path.join(folder, "vocab.txt"))
        self.assertEqual(
            loading.load_tokenizer(folder).tokenize("The cat"), ["the", "cat"]
        )
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
            json.dump({"do_lower_case": False}, file)
        self.assertEqual(
            loading.load_tokenizer(folder).tokenize("The cat"), ["[UNK]", "cat"]
        )

    def test_the_weights_are_left_alone(self):
        folder = self.folder()
        Vocabulary(TOKENS).save(os.path.join(folder, "vocab.txt"))
        with open(os.path.join(folder, "checkpoint"), "w") as file:
            file.write("damaged")
        self.assertEqual(loading.load_tokenizer(folder).tokenize("cat"), ["cat"])

    def test_another_tokenizer_than_ours_is_refused(self):
        folder = self.folder()
        Vocabulary(TOKENS).save(os.path.join(folder, "vocab.txt"))
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
            json.dump({"do_lower_case": True, "strip_accents": False}, file)
        with self.assertRaisesRegex(InputError, "strip_accents.*give `vocab_file`"):
            loading.load_tokenizer(folder)


class FolderTestCase(tf.test.TestCase):
    def folder(self, name, *, casing=None, config=toy.CONFIG, tokens=TOKENS):
        path = os.path.join(self.get_temp_dir(), name)
        os.makedirs(path)
        toy.write_config(path, config)
        Vocabulary(tokens).save(os.path.join(path, "vocab.txt"))
        if casing is not None:
            with open(os.path.join(path, "tokenizer_config.json"), "w") as file:
                json.dump({"do_lower_case": casing}, file)
        toy.save_checkpoint(path, BertEncoder(config), 1, 1)
        return path


class ModelFilesTest(FolderTestCase):
    def resolve(self, init_checkpoint=None, **given):
        return model_files(
            init_checkpoint,
            **{
                "bert_config_file": None,
                "vocab_file": None,
                "do_lower_case": None,
                "output_dir": os.path.join(self.get_temp_dir(), "output"),
                **given,
            },
        )

    def test_all_comes_along_with_the_checkpoint(self):
        config, vocabulary, casing, source = self.resolve(
            self.folder("model", casing=False)
        )
        self.assertEqual(config, toy.CONFIG)
        self.assertEqual(list(vocabulary), TOKENS)
        self.assertFalse(casing)
        self.assertIsNotNone(source)

    def test_a_runs_own_files_are_the_last_to_be_asked(self):
        folder = self.folder("run", casing=False)
        config, vocabulary, casing, source = self.resolve(output_dir=folder)
        self.assertEqual(config, toy.CONFIG)
        self.assertEqual(list(vocabulary), TOKENS)
        self.assertFalse(casing)
        self.assertIsNone(source)

    def test_what_is_said_nowhere_is_asked_for(self):
        with self.assertRaisesRegex(InputError, "Give --bert_config_file"):
            self.resolve()
        config = toy.write_config(self.get_temp_dir())
        with self.assertRaisesRegex(InputError, "Give --vocab_file"):
            self.resolve(bert_config_file=config)

    def test_contradictions_name_both(self):
        folder = self.folder("model", casing=True)
        other = os.path.join(self.get_temp_dir(), "other.txt")
        Vocabulary([*TOKENS, "dog"]).save(other)
        with self.assertRaisesRegex(InputError, "--vocab_file has .*model/vocab.txt"):
            self.resolve(folder, vocab_file=other)
        Vocabulary([*TOKENS, *map(str, range(toy.CONFIG.vocab_size))]).save(other)
        with self.assertRaisesRegex(InputError, "other.txt.*Leave --vocab_file out"):
            self.resolve(folder, vocab_file=other)
        with self.assertRaisesRegex(InputError, "do_lower_case=False.*model was"):
            self.resolve(folder, do_lower_case=False)
        config = os.path.join(self.get_temp_dir(), "other.json")
        with open(config, "w") as file:
            values = {**toy.CONFIG.to_dict(), "hidden_act": "relu"}
            file.write(BertConfig(**values).to_json_string())
        with self.assertRaisesRegex(
            InputError, "model was trained with hidden_act=gelu; .*other.json has relu"
        ):
            self.resolve(folder, bert_config_file=config)

    def test_a_vocabulary_beyond_the_embeddings(self):
        folder = self.folder("model", tokens=[*TOKENS, *map(str, range(30))])
        with self.assertRaisesRegex(InputError, "has 37 tokens"):
            self.resolve(folder)


class CasingTest(FolderTestCase):
    def test_of_the_releases_names(self):
        vocabulary = Vocabulary(TOKENS)
        self.assertTrue(checked_casing(None, vocabulary, None, "--vocab_file"))
        self.assertFalse(checked_casing(None, vocabulary, False, "--vocab_file"))
        for name, lower in (
            ("uncased_L-12_H-768_A-12", True),
            ("cased_L-24_H-1024_A-16", False),
            ("multi_cased_L-12_H-768_A-12", False),
            ("wwm_uncased_L-24_H-1024_A-16", True),
            ("chinese_L-12_H-768_A-12", True),
            ("multilingual_L-12_H-768_A-12", True),
        ):
            source = open_source(self.folder(name))
            self.assertEqual(checked_casing(source, vocabulary, None, ""), lower)
            self.assertEqual(checked_casing(source, vocabulary, lower, ""), lower)
            with self.assertRaisesRegex(InputError, f"do_lower_case={not lower}"):
                checked_casing(source, vocabulary, not lower, "")

    def test_of_a_vocabulary_where_nothing_else_tells(self):
        for name, tokens, lower in (
            ("mine_cased", [*TOKENS, "The", "##ABC"], False),
            ("mine_uncased", TOKENS, True),
        ):
            source = open_source(self.folder(name, tokens=tokens))
            vocabulary = Vocabulary(tokens)
            self.assertEqual(checked_casing(source, vocabulary, None, ""), lower)
            # The user's word goes before what is only guessed.
            for word in (True, False):
                self.assertEqual(checked_casing(source, vocabulary, word, ""), word)
        # What says it goes before what is guessed, too.
        source = open_source(
            self.folder("said", tokens=[*TOKENS, "The", "Cat"], casing=True)
        )
        self.assertTrue(checked_casing(source, source.tokenizer.vocabulary, None, ""))


if __name__ == "__main__":
    tf.test.main()
