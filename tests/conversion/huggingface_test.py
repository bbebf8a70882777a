"""Hugging Face folders that the tests write with the format's own package."""

import dataclasses
import json
import os
import pathlib

import numpy as np
import safetensors
import safetensors.numpy

import bert_tf
from bert_tf.base import files
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion import huggingface
from bert_tf.conversion.huggingface import read_tensors, write_tensors
from bert_tf.conversion.loading import (
    load_classifier,
    load_pretrainer,
    load_span_predictor,
    load_tagger,
)
from bert_tf.conversion.source import open_source
from bert_tf.conversion.weights import Weights, refuse_foreign
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from tests.conversion import one_layer
from tests.conversion.one_layer import CONFIG, lines_of, random_weights, their_tensors
from tests.conversion.runs import write_json
from tests.modeling import numpy_bert
from tests.script_case import FolderCase

ARRAYS = {
    "b.weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
    "a.bias": np.array([np.nan, -0.0, np.inf], np.float32),
    "empty": np.zeros((0, 3), np.float32),
}


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


class SafetensorsFilesTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.file = self.path("model.safetensors")

    def problem(self, function, *arguments):
        with self.assertRaises(InputError) as caught:
            function(*arguments)
        message = str(caught.exception)
        self.assertNotIn("\n", message)
        self.assertIn(self.file, message)
        return message

    def assert_same_bits(self, tensors):
        self.assertEqual(set(tensors), set(ARRAYS))
        for name, array in ARRAYS.items():
            self.assertEqual(tensors[name].shape, array.shape)
            read = tensors[name].read()
            self.assertEqual(read.dtype, np.float32)
            self.assertEqual(read.tobytes(), array.tobytes())

    def test_what_was_written_is_read_here_and_by_the_package(self):
        # ram:// stands for every file system that TensorFlow reads.
        for path in (self.file, f"ram:/{self.file}"):
            write_tensors(path, one_layer.tensors_of(ARRAYS))
            self.assert_same_bits(read_tensors(path))
        with safetensors.safe_open(self.file, "np") as opened:
            self.assertEqual(opened.metadata(), {"format": "pt"})
        self.assertEqual(os.listdir(self.get_temp_dir()), ["model.safetensors"])
        safetensors.numpy.save_file(ARRAYS, self.file)
        self.assert_same_bits(read_tensors(self.file))

    def test_damaged_files(self):
        safetensors.numpy.save_file(ARRAYS, self.file)
        tensors = read_tensors(self.file)
        whole = pathlib.Path(self.file).read_bytes()
        for content in (
            *(whole[:length] for length in range(len(whole))),
            whole + b"\0",
            b"no safetensors file at all, but long enough to have a length",
            file_of(b"[" * 200_000),
            file_of({"a": entry(shape=[3])}, bytes(8)),
            file_of({"a": entry(offsets=[4, 12])}, bytes(12)),
        ):
            message = self.problem(read_tensors, self.write(self.file, content))
            self.assertIn("damaged or no safetensors file", message)
        # Damaged after it was opened.
        self.assertIn("damaged", self.problem(tensors["b.weight"].read))


THEIR_CONFIG = {
    "model_type": "bert",
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-12,
    "transformers_version": "5.0.0",
}
WORDS = "bert.embeddings.word_embeddings.weight"


class HuggingFaceTestCase(FolderCase):
    def save(self, name, tensors=None, folder=None, **fields):
        """A folder as transformers writes it, with random weights."""
        folder = folder or self.folder()
        if tensors is None:
            tensors = their_tensors(lines_of(name), random_weights(lines_of(name)))
        safetensors.numpy.save_file(tensors, os.path.join(folder, "model.safetensors"))
        config = THEIR_CONFIG | {"architectures": [name]} | fields
        write_json(config, folder, "config.json")
        return folder

    def read(self, folder):
        folder = huggingface.model_folder(folder)
        config, values = huggingface.read_config(folder)
        return huggingface.read_weights(folder, config, values)

    def write(self, arrays, name=None, config=CONFIG, **options):
        folder = self.folder()
        weights = Weights("somewhere", one_layer.tensors_of(arrays))
        name = name or huggingface.architecture_of(weights, config)
        values = huggingface.to_config(config, name, **options)
        huggingface.write(folder, weights, config, values)
        return folder

    def check_problem(self, folder, pattern):
        with self.assertRaisesRegex(InputError, pattern) as caught:
            self.read(folder)
        message = str(caught.exception)
        self.assertNotIn("\n", message)
        self.assertIn(folder, message)
        return message

    def assert_same(self, weights, arrays):
        self.assertEqual(set(weights), set(arrays))
        for name, array in arrays.items():
            self.assertEqual(weights.shapes[name], array.shape)
            self.assertEqual(weights[name].dtype, np.float32)
            self.assertEqual(weights[name].tobytes(), array.tobytes(), name)


class ReadTest(HuggingFaceTestCase):
    def test_logits_of_the_masked_lm_and_hidden_states(self):
        arrays = random_weights(lines_of("BertForPreTraining"))
        record = {
            "input_ids": np.array([2, 7, 10, 3]),
            "input_mask": np.array([1, 1, 1, 0]),
            "segment_ids": np.array([0, 0, 1, 1]),
        }
        batch = {name: values[None] for name, values in record.items()}
        batch["masked_lm_positions"] = np.array([[1, 2]])
        for theirs, ours in (("gelu", "gelu_erf"), ("gelu_new", "gelu")):
            folder = self.save("BertForPreTraining", hidden_act=theirs)
            config, values = huggingface.read_config(folder)
            self.assertEqual(config.hidden_act, ours)
            weights = huggingface.read_weights(folder, config, values)
            model = BertPretrainer(config)
            for name, variable in weights_by_name(model).items():
                variable.assign(weights[name])
            states = numpy_bert.sequence_outputs(arrays, config, record)[0][-1]
            pooled = numpy_bert.pooled_output(arrays, states)
            scores = numpy_bert.output_logits(arrays, "cls/seq_relationship/", pooled)
            masked = numpy_bert.masked_lm_logits(arrays, config, states, [1, 2])
            actual = model(batch)
            both = {"masked_lm_logits": masked, "next_sentence_logits": scores}
            for name, expected in both.items():
                self.assertAllClose(actual[name][0], expected, rtol=1e-5, atol=1e-5)

    def test_what_other_files_have(self):
        """More than the named class has, older names, buffers, half precision."""
        name = "BertForPreTraining"
        arrays = random_weights(lines_of(name))
        tensors = their_tensors(lines_of(name), arrays)
        older = {}
        for key, tensor in tensors.items():
            key = key.replace("LayerNorm.weight", "LayerNorm.gamma")
            older[key.replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
        buffer = {"bert.embeddings.position_ids": np.arange(6)[None]}
        # bert-base-uncased names BertForMaskedLM and has all of BertForPreTraining.
        for given, classes in (
            (tensors, ["BertForMaskedLM"]),
            (tensors, None),
            (older | buffer, [name]),
        ):
            folder = self.save(name, given, architectures=classes)
            self.assert_same(self.read(folder), arrays)
        halves = {key: np.float16(tensor / 3) for key, tensor in tensors.items()}
        for key, array in arrays.items():
            arrays[key] = np.float32(np.float16(array / 3))
        self.assert_same(self.read(self.save(name, halves)), arrays)

    def test_tied_weights(self):
        arrays = random_weights(lines_of("BertForMaskedLM"))
        arrays["bert/embeddings/word_embeddings"][3, 4] = np.nan  # no damage
        tensors = their_tensors(lines_of("BertForMaskedLM"), arrays)
        copies = {
            "cls.predictions.decoder.weight": tensors[WORDS],
            "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
        }
        alone = tensors | copies
        del alone[WORDS], alone["cls.predictions.bias"]
        for given in (tensors | copies, alone):
            self.assert_same(self.read(self.save("BertForMaskedLM", given)), arrays)
        # The head has the decoder's bias, in transformers 5 too.
        bias = tensors["cls.predictions.bias"] + 1
        given = tensors | {"cls.predictions.decoder.bias": bias}
        arrays["cls/predictions/output_bias"] = bias
        self.assert_same(self.read(self.save("BertForMaskedLM", given)), arrays)
        given = tensors | {"cls.predictions.decoder.weight": bias}
        folder = self.save("BertForMaskedLM", given)
        self.check_problem(folder, r"output_weights is \[11\], by the config \[11, 8\]")

    def test_an_output_matrix_of_its_own(self):
        """In, out, in; its logits are numpy's, and the encoder stays as it is."""
        lines = lines_of("BertForPreTraining")
        arrays = random_weights(lines)
        matrix = np.random.default_rng(3).normal(size=(11, 8)).astype(np.float32)
        tensors = their_tensors(lines, arrays)
        tensors |= {"cls.predictions.decoder.weight": matrix}
        folder = self.save("BertForPreTraining", tensors, tie_word_embeddings=False)
        source = open_source(folder)
        self.assert_same(
            source.weights, arrays | {"cls/predictions/output_weights": matrix}
        )
        self.assertFalse(source.config.tie_word_embeddings)
        record = {name: np.array([2, 7, 10, 3]) for name in ("input_ids",)}
        record |= {"input_mask": np.ones(4, int), "segment_ids": np.zeros(4, int)}
        batch = {name: values[None] for name, values in record.items()}
        batch["masked_lm_positions"] = np.array([[1, 2]])
        states = numpy_bert.sequence_outputs(arrays, source.config, record)[0][-1]
        untied = arrays | {"bert/embeddings/word_embeddings": matrix}
        expected = numpy_bert.masked_lm_logits(untied, source.config, states, [1, 2])
        model = load_pretrainer(folder)
        logits = model(batch)["masked_lm_logits"][0]
        self.assertAllClose(logits, expected, rtol=1e-5, atol=1e-5)
        saved = self.folder()
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
        bert_tf.save(model, saved, bert_tf.WordPieceTokenizer(Vocabulary(tokens)))
        logits = load_pretrainer(saved)(batch)["masked_lm_logits"][0]
        self.assertAllClose(logits, expected, rtol=1e-5, atol=1e-5)
        # An export says that neither the matrix nor its bias is tied.
        exported = os.path.join(self.get_temp_dir(), "exported")
        bert_tf.export(saved, exported, format="huggingface")
        stored = safetensors.numpy.load_file(f"{exported}/model.safetensors")
        self.assertEqual(set(stored), {*tensors, "cls.predictions.decoder.bias"})
        self.assertAllEqual(stored["cls.predictions.decoder.weight"], matrix)
        text = pathlib.Path(exported, "config.json").read_text()
        self.assertIs(json.loads(text)["tie_word_embeddings"], False)
        with self.assertRaisesRegex(InputError, "tie_word_embeddings=False"):
            bert_tf.export(
                saved, os.path.join(self.get_temp_dir(), "tf1"), format="tf1"
            )
        # The encoder, and other heads, are any BERT's.
        encoder = dataclasses.replace(
            source, weights=source.weights.with_heads(["next sentence prediction"])
        )
        self.assertTrue(encoder.config.tie_word_embeddings)
        self.assertNotIn("cls/predictions/output_weights", encoder.weights)
        classifier = load_classifier(folder, 2, init_head=False)
        self.assertAllEqual(
            weights_by_name(classifier)["bert/embeddings/word_embeddings"],
            arrays["bert/embeddings/word_embeddings"],
        )

    def test_parts_with_an_index(self):
        name = "BertForPreTraining"
        arrays = random_weights(lines_of(name))
        tensors = list(their_tensors(lines_of(name), arrays).items())
        folder, places = self.save(name), {}
        os.remove(os.path.join(folder, "model.safetensors"))
        for number, part in enumerate((tensors[:9], tensors[9:])):
            file = f"model-{number + 1:05d}-of-00002.safetensors"
            safetensors.numpy.save_file(dict(part), os.path.join(folder, file))
            places |= dict.fromkeys(dict(part), file)
        index = os.path.join(folder, "model.safetensors.index.json")
        self.assertFalse(huggingface.is_folder_of_hugging_face(folder))
        for content, message in (
            ({"weight_map": places | {"bert.x": file}}, "files lack: bert.x"),
            ({"weight_map": places | {"bert.x": "y"}}, "No such file: .*y"),
            ({"weight_map": {"bert.x": 1}}, "weight_map"),
            ({"weight_map": {"bert.x": f"../{file}"}}, "index.json: .* is outside the"),
            ({"weight_map": {"bert.x": f"a/../../{file}"}}, "is outside the folder"),
            ({"weight_map": {"bert.x": f"/tmp/{file}"}}, "is outside the folder"),
            ({"weight_map": {"bert.x": f"gs://b/{file}"}}, "is outside the folder"),
            ([], "weight_map"),
        ):
            write_json(content, index)
            self.check_problem(folder, message)
        self.assertTrue(huggingface.is_folder_of_hugging_face(folder))
        write_json({"weight_map": places}, index)
        self.assert_same(self.read(folder), arrays)
        # A cache's folders have links to files elsewhere.
        blobs = self.folder()
        os.rename(os.path.join(folder, file), os.path.join(blobs, "0a1b"))
        os.symlink(os.path.join(blobs, "0a1b"), os.path.join(folder, file))
        self.assert_same(self.read(folder), arrays)

    def test_folders_of_sentence_transformers(self):
        for first in ("", "0_Transformer"):
            folder = self.folder()
            os.makedirs(os.path.join(folder, first), exist_ok=True)
            self.save("BertModel", folder=os.path.join(folder, first))
            modules = [{"idx": 0, "path": first}, {"path": "1_Pooling"}]
            write_json(modules, folder, "modules.json")
            self.assertTrue(huggingface.is_folder_of_hugging_face(folder))
            weights = self.read(folder)
            self.assert_same(weights, random_weights(lines_of("BertModel")))
        for modules, message in (
            ([{}], "must list modules"),
            ([{"path": ".."}], "is outside the folder"),
            ([{"path": "0_Transformer/../.."}], "is outside the folder"),
            ([{"path": "/etc"}], "is outside the folder"),
        ):
            write_json(modules, folder, "modules.json")
            self.check_problem(folder, message)


class RefusedTest(HuggingFaceTestCase):
    def test_tensors_that_do_not_fit(self):
        lines = lines_of("BertModel")
        tensors = their_tensors(lines, random_weights(lines))
        name, bias = "encoder.layer.0.output.dense.weight", tensors["pooler.dense.bias"]
        more = "encoder.layer.1.output.dense.bias"
        for change, message in (
            (
                {name: np.ascontiguousarray(tensors[name].T)},
                r"layer_0/output/dense/kernel is \[8, 12\], by the config \[12, 8\]",
            ),
            ({more: np.zeros(8, np.float32)}, f"no place in BERT: {more}"),
            ({name: None}, "no tensor: bert/encoder/layer_0/output/dense/kernel"),
            ({"bert.pooler.dense.bias": bias}, "BERT: .*pooler.dense.bias"),
            ({"pooler.dense.bias": bias.astype(np.float64)}, "dense.bias is of type F"),
        ):
            given = {k: v for k, v in (tensors | change).items() if v is not None}
            self.check_problem(self.save("BertModel", given), message)

    def test_tensorflows_names_are_named(self):
        """As transformers 4 writes a TensorFlow model to safetensors."""
        kernel = "bert/encoder/layer_._0/output/dense/kernel:0"
        folder = self.save("BertModel", {kernel: np.zeros((12, 8), np.float32)})
        self.check_problem(
            folder, f"model.safetensors: {kernel} is a name of TensorFlow.*tf_model.h5"
        )

    def test_a_classifier_that_the_config_does_not_name(self):
        for fields in ({"architectures": None}, {"architectures": ["MyBert"]}):
            folder = self.save("BertForSequenceClassification", **fields)
            weights = self.read(folder)
            with self.assertRaisesRegex(InputError, "classifier.weight.*`architectur"):
                refuse_foreign(weights, "")
            # So it is named where it is wanted.
            for load in (load_classifier, load_tagger, load_span_predictor):
                with self.assertRaisesRegex(InputError, "unknown here: classifier.bia"):
                    load(folder)
            self.assertEqual(load_classifier(folder, 2, init_head=False).num_labels, 2)
            tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
            Vocabulary(tokens).save(os.path.join(folder, "vocab.txt"))
            with self.assertLogs(level="WARNING") as logs:
                bert_tf.load(folder, runtime="keras")
            self.assertIn(
                "is read as an encoder, without unknown head/clas", logs.output[0]
            )

    def test_configs_that_do_not_fit(self):
        folder = self.save("BertForSequenceClassification", problem_type="ranking")
        self.check_problem(folder, "`problem_type` must be .*'ranking'")
        for name, value, message in (
            ("model_type", "roberta", "model_type"),
            ("position_embedding_type", "relative_key", "position_embedding"),
            ("add_cross_attention", True, "add_cross_attention"),
            ("hidden_act", "silu", "hidden_act"),
            ("hidden_act", ["gelu"], "hidden_act"),
            ("hidden_size", 9, "multiple"),
            ("layer_norm_eps", "small", "layer_norm_eps"),
        ):
            self.check_problem(self.save("BertModel", **{name: value}), message)


class DecoderTest(HuggingFaceTestCase):
    """Models with `is_decoder`, whose [CLS] sees only itself."""

    def test_heads_of_cls_are_refused(self):
        """Transformers reads them from [CLS], bert_tf from the last token."""
        ltr = dataclasses.replace(CONFIG, left_to_right=True)
        message = "the classifier head of transformers reads .CLS., and here"
        name = "BertForSequenceClassification"
        self.check_problem(self.save(name, is_decoder=True), message)
        arrays = random_weights(lines_of(name))
        with self.assertRaisesRegex(InputError, message):
            self.write(arrays, config=ltr, num_labels=3)
        # What an earlier version exported is read as it was meant.
        folder = self.save(name, is_decoder=True)
        write_json({}, folder, "export.json")
        self.assert_same(self.read(folder), arrays)

    def test_encoders_lose_their_pooler(self):
        arrays = random_weights(lines_of("BertModel"))
        bare = {k: x for k, x in arrays.items() if "pooler" not in k}
        self.assert_same(self.read(self.save("BertModel", is_decoder=True)), bare)
        ltr = dataclasses.replace(CONFIG, left_to_right=True)
        self.assert_same(self.read(self.write(arrays, "BertModel", config=ltr)), bare)

    def test_classes_that_do_not_look_at_it(self):
        for model_type, is_read in (
            *(("bert", True), ("electra", True)),
            *(("albert", False), ("distilbert", False)),
        ):
            folder = self.folder()
            values = {"model_type": model_type, "is_decoder": True}
            write_json(values, folder, "config.json")
            config, _ = huggingface.read_config(folder)
            self.assertEqual(config.left_to_right, is_read)


class ConfigTest(HuggingFaceTestCase):
    def test_names_of_labels(self):
        known = {"architectures": ["BertForSequenceClassification"]}
        for names, expected in (
            ({"0": "no", "1": "yes"}, ("no", "yes")),
            ({"1": "yes", "0": "no"}, ("no", "yes")),
            ({"0": 1, "1": 2, "2": 5}, ("1", "2", "5")),
            ({"0": 0.5, "1": "1"}, ("0.5", "1")),
            ({"0": False, "1": True}, ("False", "True")),
            ({"0": "LABEL_0", "1": "LABEL_1"}, None),
        ):
            found = huggingface.labels_in({**known, "id2label": names})
            self.assertEqual(found, expected)
        for names in (
            {"1": "no", "2": "yes"},
            {"0": "no", "1": None},
            {"0": "no", "1": ["yes"]},
        ):
            with self.assertRaisesRegex(InputError, "`id2label` must name the outputs"):
                huggingface.labels_in({**known, "id2label": names})

    def test_what_is_not_said_is_as_transformers_has_it(self):
        folder = self.folder()
        write_json({}, folder, "config.json")
        config, _ = huggingface.read_config(folder)
        expected = dataclasses.replace(
            BertConfig.from_size("base"), hidden_act="gelu_erf"
        )
        self.assertEqual(config, expected)

    def test_there_and_back(self):
        fields = {"hidden_dropout_prob": 0.0, "layer_norm_eps": 1e-5}
        fields |= {"left_to_right": True, "hidden_act": "gelu_erf"}
        config = dataclasses.replace(CONFIG, **fields)
        folder = self.write(random_weights(lines_of("BertForMaskedLM")), config=config)
        read, values = huggingface.read_config(folder)
        self.assertEqual(read, config)
        self.assertEqual(values["architectures"], ["BertLMHeadModel"])
        self.assertEqual(values["hidden_act"], "gelu")


class WriteTest(HuggingFaceTestCase):
    def test_every_class(self):
        for name in one_layer.CLASSES:
            arrays = random_weights(lines_of(name))
            config = dataclasses.replace(
                CONFIG, left_to_right=name == "BertLMHeadModel"
            )
            folder = self.write(arrays, config=config, num_labels=3)
            text = pathlib.Path(folder, "config.json").read_text()
            self.assertEqual(json.loads(text)["architectures"], [name])
            stored = safetensors.numpy.load_file(f"{folder}/model.safetensors")
            expected = their_tensors(lines_of(name), arrays)
            self.assertEqual(set(stored), set(expected))
            for key, tensor in expected.items():
                self.assertEqual(stored[key].tobytes(), tensor.tobytes())
                self.assertEqual(stored[key].shape, tensor.shape)
            # In, out, in: the same bits.
            self.assert_same(self.read(folder), arrays)
            again = self.write(dict(self.read(folder)), config=config, num_labels=3)
            for file in ("config.json", "model.safetensors"):
                first, second = (os.path.join(x, file) for x in (folder, again))
                self.assertEqual(files.read_bytes(first), files.read_bytes(second))

    def test_what_a_class_lacks_is_refused_before_anything_is_written(self):
        name = "BertForNextSentencePrediction"
        arrays = random_weights(lines_of(name))
        without_pooler = {k: v for k, v in arrays.items() if "pooler" not in k}
        message = f"{name} needs .* bert/pooler/dense/kernel"
        with self.assertRaisesRegex(InputError, message):
            self.write(without_pooler, name)
        (folder,) = os.listdir(self.get_temp_dir())
        self.assertEqual(os.listdir(os.path.join(self.get_temp_dir(), folder)), [])

    def test_a_masked_lm_with_a_computation_of_its_own(self):
        arrays = random_weights(lines_of("BertForPreTraining"))
        activation, epsilon = "masked_lm_hidden_act", "masked_lm_layer_norm_eps"
        for field, value in ((activation, "gelu_erf"), (epsilon, 1e-5)):
            config = dataclasses.replace(CONFIG, **{field: value})
            with self.assertRaisesRegex(InputError, field):
                self.write(arrays, config=config)
            self.write(arrays, "BertForNextSentencePrediction", config=config)
        same = dataclasses.replace(CONFIG, **{activation: "gelu", epsilon: 1e-12})
        self.write(arrays, config=same)
