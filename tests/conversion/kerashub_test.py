"""KerasHub itself is the peer: it writes what we read, and reads what we write."""

import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
from unittest import mock

import h5py
import huggingface_hub
import kagglehub
import keras
import keras_hub
import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf.base.errors import InputError
from bert_tf.conversion import kerashub, names
from bert_tf.conversion.tokenizer_files import TokenizerFiles
from bert_tf.conversion.weights import Weights, check_against_config
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from tests.conversion.one_layer import tensors_of
from tests.modeling.examples import (
    outputs_of,
    random_records,
    randomize,
    relative_error,
    small_config,
)
from tests.script_case import FolderCase

TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "é", "e")
CONFIG = small_config(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)


def their_backbone(dtype="float32"):
    sizes = {"num_layers": 2, "num_heads": 3, "hidden_dim": 24, "intermediate_dim": 40}
    sizes |= {"vocabulary_size": 53, "max_sequence_length": 20, "num_segments": 3}
    return keras_hub.models.BertBackbone(dropout=0.2, dtype=dtype, **sizes)


def tokenizer(lowercase=True):
    return keras_hub.models.BertTokenizer(vocabulary=list(TOKENS), lowercase=lowercase)


def randomize_theirs(model, seed=5):
    rng = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(0.5, 0.3, weight.shape))
    return model


def their_inputs(records, *, positions=False):
    inputs = {
        "token_ids": records["input_ids"],
        "segment_ids": records["segment_ids"],
        "padding_mask": records["input_mask"],
    }
    if positions:
        inputs["mask_positions"] = records["masked_lm_positions"]
    return inputs


def fill(model, weights):
    """Gives a model of ours a checkpoint's weights; returns what is left over."""
    rest = set(weights)
    for name, variable in weights_by_name(model).items():
        if name in rest:
            variable.assign(weights[name])
            rest.remove(name)
    return rest


def read(path):
    """All of a preset: its config, its weights, its tokenizer."""
    folder = kerashub.preset_folder(path)
    config, weights = kerashub.read_model(folder)
    check_against_config(weights, config)
    return config, weights, kerashub.read_tokenizer(folder)


class KerasHubTestCase(FolderCase):
    def saved(self, model):
        path = self.folder()
        model.save_to_preset(path)
        return path

    def assert_same_weights(self, folder, expected):
        weights = read(folder)[1]
        self.assertSameElements(weights, expected)
        for name in expected:
            self.assertAllEqual(weights[name], expected[name], name)

    def assert_one_line(self, pattern, call, *args, **kwargs):
        with self.assertRaisesRegex(InputError, pattern) as caught:
            call(*args, **kwargs)
        self.assertNotIn("\n", str(caught.exception))


class InTest(KerasHubTestCase):
    def test_an_encoder(self):
        theirs = randomize_theirs(their_backbone())
        config, weights, tokenizer = read(self.saved(theirs))
        self.assertEqual(config, CONFIG)
        self.assertEqual(tokenizer, TokenizerFiles(None, None, None))
        ours = BertEncoder(config)
        self.assertEmpty(fill(ours, weights))
        records = random_records(config)
        expected = outputs_of(theirs, their_inputs(records))
        for name, values in outputs_of(ours, records).items():
            self.assertLess(relative_error(values, expected[name]), 1e-5, name)

    def test_a_masked_lm_whose_head_has_another_gelu_and_epsilon(self):
        maker = keras_hub.models.BertMaskedLMPreprocessor(tokenizer())
        theirs = keras_hub.models.BertMaskedLM(their_backbone(), preprocessor=maker)
        randomize_theirs(theirs)
        # Little variance before the head's normalization, for its epsilon to count.
        for weight in theirs.weights:
            if weight.path.startswith("mlm_head/intermediate_dense"):
                weight.assign(weight * 0.2)
        config, weights, files = read(self.saved(theirs))
        others = {"masked_lm_hidden_act": "gelu_erf", "masked_lm_layer_norm_eps": 1e-5}
        self.assertEqual(config, dataclasses.replace(CONFIG, **others))
        self.assertEqual(files.vocabulary, Vocabulary(TOKENS))
        self.assertTrue(os.path.exists(files.path))
        self.assertIs(files.do_lower_case, True)
        self.assertEqual(names.heads_of(weights), [names.MASKED_LM])
        records = random_records(config)
        expected = theirs(their_inputs(records, positions=True)).numpy()
        for changed in ({}, *({field: None} for field in others)):
            ours = BertPretrainer(dataclasses.replace(config, **changed))
            self.assertEmpty(fill(ours, weights))
            logits = outputs_of(ours, records)["masked_lm_logits"]
            is_same = relative_error(logits, expected) < 1e-5
            self.assertEqual(is_same, not changed, changed)

    def test_a_classifier_that_was_trained(self):
        maker = keras_hub.models.BertTextClassifierPreprocessor(
            tokenizer(lowercase=False), sequence_length=8
        )
        theirs = keras_hub.models.BertTextClassifier(
            their_backbone(), num_classes=4, preprocessor=maker
        )
        randomize_theirs(theirs)
        # The head's file holds the optimizer's moments too.
        theirs.compile(keras.optimizers.Adam())
        theirs.optimizer.build(theirs.trainable_variables)
        config, weights, files = read(self.saved(theirs))
        self.assertIs(files.do_lower_case, False)
        self.assertEqual(weights.shapes["output_weights"], (4, 24))
        self.assertEqual(weights.shapes["output_bias"], (4,))
        ours = BertClassifier(config, 4)
        self.assertEmpty(fill(ours, weights))
        records = random_records(config)
        expected = theirs(their_inputs(records)).numpy()
        actual = outputs_of(ours, records)["logits"]
        self.assertLess(relative_error(actual, expected), 1e-5)

    def test_tokenizers_and_preprocessors_that_are_not_berts(self):
        for settings, truncate, message in (
            ({}, "round_robin", None),
            ({"strip_accents": True}, "round_robin", None),
            ({"lowercase": False, "strip_accents": True}, "round_robin", "`lowercase`"),
            ({"sequence_length": 9}, "round_robin", "`sequence_length` is 9"),
            (
                {"special_tokens": ["film"], "special_tokens_in_strings": True},
                *("round_robin", "`special_tokens` are never split"),
            ),
            ({}, "waterfall", "`truncate` 'waterfall'"),
        ):
            its = {"vocabulary": [*TOKENS, "film"], "lowercase": True, **settings}
            maker = keras_hub.models.BertTextClassifierPreprocessor(
                keras_hub.models.BertTokenizer(**its), truncate=truncate
            )
            difference = kerashub.read_tokenizer(self.saved(maker)).difference
            if message is None:
                self.assertIsNone(difference)
            else:
                self.assertIn(message, difference)

    def test_numbers_of_16_bits(self):
        for dtype in ("float16", "bfloat16"):
            theirs = randomize_theirs(their_backbone(dtype))
            weights = read(self.saved(theirs))[1]
            for name, path in (
                ("bert/pooler/dense/bias", "pooled_dense/bias"),
                ("bert/embeddings/LayerNorm/gamma", "embeddings_layer_norm/gamma"),
            ):
                (expected,) = (w for w in theirs.weights if w.path == path)
                self.assertEqual(weights[name].dtype, np.float32)
                self.assertAllEqual(weights[name], tf.cast(expected, tf.float32))


class OutTest(KerasHubTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = BertPretrainer(CONFIG)
        cls.values = randomize(cls.model)
        cls.weights = Weights("somewhere", tensors_of(cls.values))

    def test_keras_hub_computes_the_same(self):
        folder = self.folder()
        kerashub.write(folder, self.weights, CONFIG, Vocabulary(TOKENS), True)
        theirs = keras_hub.models.BertBackbone.from_preset(folder)
        self.assertEqual(theirs.dropout, 0.2)
        records = random_records(CONFIG)
        actual = outputs_of(theirs, their_inputs(records))
        for name, values in outputs_of(self.model.encoder, records).items():
            self.assertLess(relative_error(actual[name], values), 1e-5, name)
        with open(os.path.join(folder, "metadata.json")) as file:
            self.assertEqual(json.load(file)["parameter_count"], theirs.count_params())
        read = keras_hub.models.BertTokenizer.from_preset(folder)
        # the, cat, ##s, and é without its accent, as the original takes it off.
        self.assertAllEqual(read("The CATS é"), [5, 6, 7, 9])

    def test_in_out_in_is_the_same_to_the_bit(self):
        values = {k: v for k, v in self.values.items() if k.startswith("bert/")}
        first, second = self.folder(), self.folder()
        kerashub.write(first, self.weights, CONFIG, Vocabulary(TOKENS), False)
        config, weights, files = read(first)
        self.assertEqual(config, CONFIG)
        self.assertEqual(files.vocabulary, Vocabulary(TOKENS))
        self.assertIs(files.do_lower_case, False)
        kerashub.write(second, weights, config)
        self.assertNotIn("tokenizer.json", os.listdir(second))
        theirs = keras_hub.models.BertBackbone.from_preset(first)
        for folder in (first, second, self.saved(theirs)):
            self.assert_same_weights(folder, values)

    def test_what_a_backbone_cannot_hold_is_refused(self):
        folder = self.folder()
        less = {name: x for name, x in self.values.items() if "pooler" not in name}
        tokens = Vocabulary(["[UNK]", "[CLS]", "[SEP]", "the"])
        for pattern, fields, values, *tokenizer in (
            ("only hidden_act='gelu'. Received: 'g", {"hidden_act": "gelu_erf"}, None),
            ("layer_norm_eps=1e-12.*: 1e-05", {"layer_norm_eps": 1e-5}, None),
            ("somewhere.*left_to_right=.*True", {"left_to_right": True}, None),
            ("attention_window=None. Received: 4", {"attention_window": 4}, None),
            ("has a pooler", {}, less),
            (r"needs \[PAD\]\.", {}, None, tokens, True),
        ):
            weights = Weights("somewhere", tensors_of(values or self.values))
            config = dataclasses.replace(CONFIG, **fields)
            arguments = folder, weights, config, *tokenizer
            self.assert_one_line(pattern, kerashub.write, *arguments)
        self.assertEmpty(os.listdir(folder))


class DamagedTest(KerasHubTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.preset = cls.enterClassContext(tempfile.TemporaryDirectory())
        keras_hub.models.BertMaskedLM(their_backbone()).save_to_preset(cls.preset)

    def copy(self):
        return shutil.copytree(self.preset, self.folder(), dirs_exist_ok=True)

    def test_a_truncated_file(self):
        for name in ("model.weights.h5", "task.weights.h5"):
            folder = self.copy()
            path = os.path.join(folder, name)
            for size in (os.path.getsize(path) - 100, 0):
                os.truncate(path, size)
                self.assert_one_line(f"{name} is damaged", read, folder)
            os.remove(path)
            self.assert_one_line(
                f"(No such file: .*{name}|{name} is missing)", read, folder
            )

    def test_another_config(self):
        for change, message in (
            ({"vocabulary_size": 54}, r"word_embeddings is \[53, 24\], not \[54, 24\]"),
            ({"num_heads": 6}, r"self/query/kernel is \[24, 3, 8\], not \[24, 6, 4\]"),
            ({"num_layers": 1}, "no place in the model: layers/transformer_encoder_1/"),
            ({"num_layers": 3}, "no tensor: bert/encoder/layer_2/"),
            ({"hidden_dim": -24}, "config.json.*hidden_size"),
            ({"dropout": "0.1"}, "config.json.*hidden_dropout_prob"),
        ):
            folder = self.copy()
            path = pathlib.Path(folder, "config.json")
            values = json.loads(path.read_text())
            values["config"].update(change)
            path.write_text(json.dumps(values))
            self.assert_one_line(message, read, folder)

    def test_something_else(self):
        for name, content, message in (
            ("config.json", '{"registered_name": ', "config.json:1: not valid JSON"),
            ("config.json", '{"model_type": "bert"}', "It is a Hugging Face model"),
            (
                "config.json",
                '{"registered_name": "a>GPT", "config": {}}',
                "Received: GPT",
            ),
            ("config.json", '{"registered_name": "BertBackbone", "config": {}}', "lac"),
            ("task.json", '{"registered_name": "a>BertTagger", "config": {}}', "Recei"),
        ):
            folder = self.copy()
            pathlib.Path(os.path.join(folder, name)).write_text(content)
            self.assert_one_line(f"{name}.*{message}|{message}", read, folder)
        self.assert_one_line("config.json", read, self.folder())

    def test_quantized_weights_and_those_of_other_files(self):
        place = "layers/dense/vars/1"
        folder = self.copy()
        outside = [(os.path.join(folder, "task.json"), 0, 96)]

        def quantized(file):
            file[place] = np.ones(24, np.int8)

        def external(file):
            file.create_dataset(place, (24,), "f4", external=outside)

        def linked(file):
            file[place] = h5py.ExternalLink("other.h5", "/a")

        for write, message in (
            (quantized, "vars/1 is quantized, int8"),
            (external, "is outside the file"),
            (linked, "no tensor: bert/pooler/dense/bias"),
        ):
            with h5py.File(os.path.join(folder, "model.weights.h5"), "r+") as file:
                del file[place]
                write(file)
            self.assert_one_line(message, read, folder)


class HandleTest(KerasHubTestCase):
    def test_it_is_downloaded_whole(self):
        folder = self.saved(their_backbone())
        tokenizer().save_to_preset(folder)
        fake = mock.Mock(return_value=folder)
        with mock.patch.object(kagglehub, "model_download", fake):
            self.assertEqual(read("kaggle://a/b/keras/c")[0], CONFIG)
            fake.assert_called_once_with("a/b/keras/c")
            read("bert_tiny_en_uncased")
        handle = "^keras/bert/keras/bert_tiny_en_uncased/"
        self.assertRegex(fake.call_args.args[0], handle)
        with mock.patch.object(huggingface_hub, "snapshot_download", fake):
            self.assertEqual(read("hf://someone/bert")[0], CONFIG)
            vectors = bert_tf.load("hf://someone/bert", runtime="keras").embed(["a"])
            self.assertEqual(vectors.shape, (1, CONFIG.hidden_size))
        self.assertEqual(fake.call_args.args, ("someone/bert",))
        # Neither pickles nor safetensors.
        patterns = ["*.json", "*.weights.h5", "assets/tokenizer/*"]
        self.assertEqual(fake.call_args.kwargs["allow_patterns"], patterns)

    def test_what_a_download_says_is_one_line(self):
        message = "kaggle://a cannot be downloaded: (no network|log in)"
        login = kagglehub.exceptions.CredentialError("log in")
        for error in (OSError("no network\nat all"), login):
            with mock.patch.object(kagglehub, "model_download", side_effect=error):
                self.assert_one_line(message, read, "kaggle://a")
        with mock.patch.dict("sys.modules", {"modelscope": None}):
            self.assert_one_line("pip install modelscope", read, "modelscope://a/b")
