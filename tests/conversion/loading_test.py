import dataclasses
import functools
import os

import numpy as np
import safetensors.numpy
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.conversion import export, loading
from bert_tf.conversion.loading import checked_casing, read_model_files
from bert_tf.conversion.source import open_source
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
from tests.conversion import runs
from tests.conversion.runs import TOKENS, ModelFlags
from tests.modeling.examples import randomize
from tests.training import toy


class CheckpointTestCase(tf.test.TestCase):
    def folder(self, name="model", model=None, **files):
        return runs.save(os.path.join(self.get_temp_dir(), name), model, **files)

    def assert_same_weights(self, model, other):
        weights = weights_by_name(model)
        self.assertEqual(set(weights), set(other))
        for name, weight in weights.items():
            self.assertAllEqual(weight.numpy(), np.asarray(other[name]), name)


@functools.cache
def encoder():
    return BertEncoder(toy.CONFIG)


class LoadTest(CheckpointTestCase):
    def test_a_tf1_release_by_folder_prefix_and_file(self):
        model = BertPretrainer(toy.CONFIG)
        randomize(model)
        values = {k: weight.numpy() for k, weight in weights_by_name(model).items()}
        slots = [f"bert/pooler/dense/kernel/adam_{x}" for x in "mv"]
        extra = dict.fromkeys(slots, np.zeros((8, 8), np.float32))
        folder = self.folder()
        prefix = os.path.join(folder, "bert_model.ckpt")
        runs.save_tf1(prefix, values | extra | {"global_step": np.int64(7)})
        for path in (folder, prefix, prefix + ".index"):
            self.assert_same_weights(loading.load_pretrainer(path), values)
        self.assertEqual(set(open_source(folder).weights), set(values))

    def test_what_other_programs_left_in_a_tf1_release_is_named(self):
        model = BertPretrainer(toy.CONFIG)
        randomize(model)
        values = {k: weight.numpy() for k, weight in weights_by_name(model).items()}
        ends = ("lamb_m", "accum", "ExponentialMovingAverage")
        extra = {f"{k}/{end}": x for k, x in values.items() for end in ends}
        crf = {"crf_loss/transitions": np.zeros([3, 3], "f")}
        others = {"local_step": np.int32(3), "signal_early_stopping/STOP": True}
        folder = self.folder()
        arrays = values | extra | crf | others
        runs.save_tf1(os.path.join(folder, "bert_model.ckpt"), arrays)
        with self.assertLogs() as logs:
            self.assertEqual(set(open_source(folder).weights), set(values))
        number = len(arrays) - len(values)
        self.assertIn(f"{number} tensors are not BERT's weights", logs.output[-1])
        del arrays["bert/embeddings/word_embeddings"]
        folder = self.folder("without")
        runs.save_tf1(os.path.join(folder, "bert_model.ckpt"), arrays)
        with self.assertRaisesRegex(InputError, "lacks 1 weights of the encoder"):
            loading.load_encoder(folder)

    def test_a_head_of_another_program_in_a_hugging_face_folder(self):
        source = open_source(self.folder(model=BertTagger(toy.CONFIG, 3)))
        there = os.path.join(self.get_temp_dir(), "there")
        os.makedirs(there)
        export.write_huggingface(there, source)
        path = os.path.join(there, "model.safetensors")
        tensors = safetensors.numpy.load_file(path)
        tensors["crf.transitions"] = np.zeros([3, 3], "f")
        safetensors.numpy.save_file(tensors, path)
        with self.assertRaisesRegex(InputError, "unknown here: crf.transitions"):
            loading.load_tagger(there)
        with self.assertRaisesRegex(InputError, "`heads=none`"):
            export.completed(open_source(there))
        encoder = set(weights_by_name(BertEncoder(toy.CONFIG, use_pooler=False)))
        tagger = BertTagger(toy.CONFIG, 2)
        missing = loading.load_weights(tagger, there, init_head=False)
        self.assertEqual(set(missing), set(weights_by_name(tagger)) - encoder)
        loading.load_encoder(there)
        self.assertEqual(
            set(export.completed(open_source(there), heads=[]).weights), encoder
        )

    def test_a_classifier_from_pre_training_and_back(self):
        pretrainer = BertPretrainer(toy.CONFIG)
        randomize(pretrainer)
        folder = self.folder(model=pretrainer)
        own = weights_by_name(pretrainer)
        encoder = {name: own[name] for name in own if name.startswith("bert/")}
        self.assert_same_weights(loading.load_encoder(folder), encoder)
        with self.assertRaisesRegex(InputError, "classifier head; give `num_labels`"):
            loading.load_classifier(folder)
        model = BertClassifier(toy.CONFIG, 3)
        randomize(model)
        with self.assertLogs(level="INFO") as logs:
            missing = loading.load_weights(model, folder)
        self.assertEqual(missing, ["output_weights", "output_bias"])
        text = "\n".join(logs.output)
        self.assertIn("so new: output_weights, output_bias", text)
        self.assertIn("not used: the masked LM, next sentence prediction head", text)
        again = loading.load_classifier(self.folder("fine_tuned", model))
        self.assertEqual(again.num_labels, 3)
        self.assert_same_weights(again, weights_by_name(model))

    def test_a_contradiction_assigns_nothing(self):
        folder = self.folder(model=BertClassifier(toy.CONFIG, 3))
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

    def test_checkpoints_of_something_else(self):
        model = BertEncoder(toy.CONFIG)
        deeper = dataclasses.replace(toy.CONFIG, num_hidden_layers=2)
        folder = self.folder("deeper", BertEncoder(deeper))
        with self.assertRaisesRegex(InputError, "16 weights .*layer_1/"):
            loading.load_weights(model, folder)
        encoder = {k: v.numpy() for k, v in weights_by_name(model).items()}
        for name, values, message in (
            ("other", {}, "lacks .* weights of the encoder"),
            ("more", encoder, "1 weights .*bert/extra/weight"),
        ):
            folder = self.folder(name)
            values = {**values, "bert/extra/weight": np.zeros(3, "f")}
            runs.save_tf1(os.path.join(folder, "bert_model.ckpt"), values)
            with self.assertRaisesRegex(InputError, message):
                loading.load_encoder(folder)

    def test_a_config_that_computes_something_else_is_refused(self):
        folder = self.folder(model=BertPretrainer(toy.CONFIG))
        for model, field, value in (
            (BertEncoder, "hidden_act", "gelu_erf"),
            (BertEncoder, "num_attention_heads", 4),
            (BertEncoder, "layer_norm_eps", 1e-5),
            (BertPretrainer, "masked_lm_hidden_act", "gelu_erf"),
        ):
            other = dataclasses.replace(toy.CONFIG, **{field: value})
            with self.assertRaisesRegex(InputError, f"{field}=.*config has {value}"):
                loading.load_weights(model(other), folder)
        # Dropout may be another.
        other = dataclasses.replace(toy.CONFIG, hidden_dropout_prob=0.0)
        self.assertEmpty(loading.load_weights(BertEncoder(other), folder))

    def test_every_head_comes_back(self):
        for model, load in (
            (BertSpanPredictor(toy.CONFIG), loading.load_span_predictor),
            (BertMultipleChoice(toy.CONFIG), loading.load_multiple_choice),
            (BertTagger(toy.CONFIG, 5), loading.load_tagger),
            (BertPretrainer(toy.CONFIG, next_sentence=False), loading.load_pretrainer),
            (BertEncoder(toy.CONFIG, use_pooler=False), loading.load_encoder),
        ):
            randomize(model)
            folder = self.folder(model.name + str(len(model.weights)), model)
            self.assert_same_weights(load(folder), weights_by_name(model))

    def test_every_loader_begins_a_head_and_takes_the_encoders_options(self):
        path = self.folder("classifier", BertClassifier(toy.CONFIG, 2))
        for load, options in (
            (loading.load_pretrainer, {}),
            (loading.load_classifier, {"num_labels": 3}),
            (loading.load_span_predictor, {}),
            (loading.load_multiple_choice, {}),
            (loading.load_tagger, {"num_labels": 3}),
        ):
            if load is loading.load_classifier:
                with self.assertRaisesRegex(InputError, "give `init_head=False`"):
                    load(path, **options)
            model = load(path, init_head=False, output_hidden_states=True, **options)
            self.assertIn("hidden_states", model.encoder.output)
        for load in (loading.load_span_predictor, loading.load_multiple_choice):
            with self.assertRaisesRegex(InputError, "new head, give `init_head=False`"):
                load(path)

    def test_a_head_that_is_not_there(self):
        folder = self.folder(model=encoder())
        for load, head in (
            (loading.load_span_predictor, "span"),
            (loading.load_multiple_choice, "multiple choice"),
            (loading.load_tagger, "tagging"),
            (loading.load_pretrainer, "masked LM"),
        ):
            with self.assertRaisesRegex(InputError, f"no checkpoint with a {head}"):
                load(folder)


class FolderTestCase(CheckpointTestCase):
    def folder(self, name, **files):
        return super().folder(name, encoder(), **files)


class ModelFilesTest(FolderTestCase):
    def resolve(self, init_checkpoint=None, output_dir=None, **given):
        options = ModelFlags(init_checkpoint=init_checkpoint, **given)
        output_dir = output_dir or os.path.join(self.get_temp_dir(), "output")
        return read_model_files(options, output_dir)

    def test_all_comes_along_with_the_checkpoint_or_else_from_the_run(self):
        folder = self.folder("model", casing=False)
        for checkpoint, given in ((folder, {}), (None, {"output_dir": folder})):
            found = self.resolve(checkpoint, **given)
            config, vocabulary, casing, segmenter, source = found
            self.assertEqual(config, toy.CONFIG)
            self.assertEqual(list(vocabulary), TOKENS)
            self.assertFalse(casing)
            self.assertEqual(segmenter, "none")
            self.assertEqual(source is None, checkpoint is None)

    def test_what_is_said_nowhere_is_asked_for(self):
        with self.assertRaisesRegex(
            InputError, "Give `init_ch.* or `bert_config_file`"
        ):
            self.resolve()
        config = toy.write_config(self.get_temp_dir())
        with self.assertRaisesRegex(InputError, "a vocab.txt next .* or `vocab_file`"):
            self.resolve(bert_config_file=config)

    def test_contradictions_name_both(self):
        folder = self.folder("model", casing=True)

        def other(name, tokens=TOKENS, **fields):
            config = dataclasses.replace(toy.CONFIG, **fields)
            return runs.save(self.folder(name), tokens=tokens, config=config)

        dog = other("dog", [*TOKENS[:-1], "dog"])
        large = other("large", [*TOKENS, *map(str, range(toy.CONFIG.vocab_size))])
        relu = other("relu", hidden_act="relu")
        for name, value, message in (
            ("vocab_file", f"{dog}/vocab.txt", "vocab_file` has .*model/vocab.txt"),
            ("do_lower_case", False, "do_lower_case=False.*model was"),
            (
                *("bert_config_file", f"{relu}/bert_config.json"),
                "model was trained with hidden_act=gelu; .*relu/bert_c.*json` has relu",
            ),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.resolve(folder, **{name: value})
        with self.assertRaisesRegex(InputError, "large/.*Give the vocabulary and"):
            self.resolve(
                bert_config_file=f"{folder}/bert_config.json",
                vocab_file=f"{large}/vocab.txt",
            )


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
