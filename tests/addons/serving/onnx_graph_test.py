"""The graph that is written from the weights, run by ONNX Runtime and by OpenVINO."""

import dataclasses
import os
import tempfile

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

import bert_tf
from bert_tf.addons.methods.electra import ElectraPretrainer
from bert_tf.addons.serving import onnx_files, onnx_graph
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.export import completed
from bert_tf.conversion.source import open_source
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.training import toy

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

CONFIG = dataclasses.replace(
    toy.CONFIG, hidden_size=16, num_hidden_layers=2, num_attention_heads=4
)
S = 9


def changed(**fields):
    return dataclasses.replace(CONFIG, **fields)


class OnnxGraphTest(tf.test.TestCase, parameterized.TestCase):
    def source(self, model, config=CONFIG, heads=None):
        randomize(model)
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        toy.save_checkpoint(folder, model)
        toy.write_config(folder, config)
        return completed(open_source(folder), heads=heads)

    def inputs(self, *shape):
        rng = np.random.default_rng(len(shape))
        ids = rng.integers(0, toy.V, shape)
        mask = np.ones_like(ids)
        mask[-1, ..., 6:] = 0
        return {
            "input_ids": ids,
            "input_mask": mask,
            "segment_ids": rng.integers(0, 2, shape),
        }

    def keras_outputs(self, model, inputs):
        return {
            name: np.asarray(x)
            for name, x in model(
                {name: tf.constant(x, tf.int32) for name, x in inputs.items()},
                training=False,
            ).items()
            if not isinstance(x, list | tuple)
        }

    def run_onnx(self, graph, inputs):
        session = onnxruntime.InferenceSession(
            graph.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        ids = {onnx_graph.INPUTS[name]: x for name, x in inputs.items()}
        outputs = [one.name for one in session.get_outputs()]
        return dict(zip(outputs, session.run(None, ids), strict=True))

    def check(self, model, *, config=CONFIG, shape=(3, S), lengths=(4,), **renamed):
        """The graph's outputs are Keras', of any batch and length."""
        graph = onnx_graph.build(self.source(model, config))
        onnx.checker.check_model(graph, full_check=True)
        for size in (shape, *((1, *shape[1:-1], length) for length in lengths)):
            inputs = self.inputs(*size)
            found = self.run_onnx(graph, inputs)
            if "masked_lm_positions" in model.input:
                every = np.tile(np.arange(size[-1]), (size[0], 1))
                inputs["masked_lm_positions"] = every
            expected = self.keras_outputs(model, inputs)
            names_there = {name: renamed.get(name, name) for name in expected}
            self.assertEqual({*names_there.values()}, {*found})
            for name, theirs in names_there.items():
                scale = np.abs(expected[name]).max()
                self.assertEqual(found[theirs].shape, expected[name].shape)
                compared, mask = ..., inputs["input_mask"]
                if config.attention_window and found[theirs].shape[:2] == mask.shape:
                    compared = mask == 1  # padding may see no token at all
                difference = np.abs(found[theirs] - expected[name])[compared].max()
                self.assertLess(difference, 1e-5 * scale, name)

    def test_every_head(self):
        self.check(BertClassifier(CONFIG, 3))
        self.check(BertMultipleChoice(CONFIG), shape=(2, 3, S))
        self.check(BertTagger(CONFIG, 5))
        self.check(BertSpanPredictor(CONFIG))
        self.check(
            BertPretrainer(CONFIG),
            masked_lm_logits="prediction_logits",
            next_sentence_logits="seq_relationship_logits",
        )
        alone = BertPretrainer(CONFIG, next_sentence=False)
        self.check(alone, masked_lm_logits="logits")
        outputs = dict(onnx_graph.OUTPUTS)
        self.check(BertEncoder(CONFIG), **outputs)
        self.check(BertEncoder(CONFIG, use_pooler=False), **outputs)

    def test_an_output_matrix_of_its_own(self):
        config = changed(tie_word_embeddings=False)
        model = BertPretrainer(config, next_sentence=False)
        self.check(model, config=config, masked_lm_logits="logits")
        # Read from the file, it is laid out as in the checkpoint.
        source = self.source(model, config)
        path = os.path.join(self.get_temp_dir(), "untied.onnx")
        onnx.save(onnx_graph.build(source), path)
        weights = onnx_files.read_weights(path)
        self.assertAllEqual(weights[names.UNTIED], source.weights[names.UNTIED])

    def test_electras_discriminator(self):
        model = ElectraPretrainer(CONFIG, generator_size=0.5)
        graph = onnx_graph.build(self.source(model, heads=[names.REPLACED_TOKENS]))
        inputs = self.inputs(3, S)
        none = np.zeros((3, 2), int)
        predictions = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
        expected = self.keras_outputs(model, inputs | dict.fromkeys(predictions, none))
        found = self.run_onnx(graph, inputs)["logits"]
        self.assertAllClose(found, expected["discriminator_logits"], atol=1e-5)

    def test_every_model(self):
        albert = changed(embedding_size=8, num_hidden_groups=1, inner_group_num=1)
        for config in (
            *(changed(hidden_act=name) for name in ("gelu_erf", "relu", "tanh")),
            changed(hidden_act="linear", embedding_size=8),
            changed(left_to_right=True),
            changed(right_to_left=True),
            albert,
        ):
            self.check(BertClassifier(config, 2), config=config)
        self.check(BertClassifier(albert, 2, adapter_size=3), config=albert)
        for options in ({"adapter_size": 3}, {"layer_mixture": True}, {"lora_rank": 2}):
            self.check(BertTagger(CONFIG, 2, **options))
            self.check(BertClassifier(CONFIG, 2, **options))

    @parameterized.parameters(0, 1, 3, 6)
    def test_local_attention(self, num_global):
        config = changed(
            attention_window=4,
            global_tokens=num_global or None,
            max_position_embeddings=32,
        )
        # Fewer than the global tokens; than a window; one window; no multiple of it.
        lengths = (2, 3, 4, 8, 13, 16, 21)
        self.check(BertTagger(config, 5), config=config, shape=(3, 19), lengths=lengths)
        for model, renamed in (
            (BertMultipleChoice(config), {}),
            (BertClassifier(config, 3, adapter_size=3, layer_mixture=True), {}),
            (BertSpanPredictor(config), {}),
            (BertEncoder(config), onnx_graph.OUTPUTS),
            (
                BertPretrainer(config, next_sentence=False),
                {"masked_lm_logits": "logits"},
            ),
        ):
            choices = (3,) * isinstance(model, BertMultipleChoice)
            self.check(model, config=config, shape=(3, *choices, 18), **renamed)

    def test_a_folder_for_long_texts(self):
        config = changed(attention_window=4, global_tokens=1)
        model = BertClassifier(config, 2)
        randomize(model)
        folder = self.get_temp_dir()
        run = runs.save(f"{folder}/run", model, config=config, labels=["no", "yes"])
        texts = ["the cat " * length for length in (1, 5, 18)]
        found = []
        for kind, runtime in (
            ("huggingface", "keras"),
            ("onnx", "onnxruntime"),
            ("onnx", "keras"),  # by the file's weights
        ):
            there = f"{folder}/{kind}"
            bert_tf.export(run, there, format=kind, max_position_embeddings=40)
            loaded = bert_tf.load(there, runtime=runtime, max_length=40)
            self.assertEqual(loaded.runtime, runtime)
            found.append([[*x.probabilities.values()] for x in loaded.predict(texts)])
        self.assertAllClose(found[1:], [found[0]] * 2, atol=1e-5)
        self.assertNotAllClose(found[0][1], found[0][2], atol=1e-3)

    def test_vectors_of_sentences(self):
        source = self.source(BertEncoder(CONFIG))
        inputs = self.inputs(3, S)
        for pooling in ("mean", "max", "cls"):
            graph = onnx_graph.build(source, pooling=pooling, normalizes=True)
            found = self.run_onnx(graph, inputs)
            tokens = found["last_hidden_state"].astype(np.float64)
            vector = tokens[:, 0]
            if pooling != "cls":
                lengths = inputs["input_mask"].sum(axis=1)
                rows = zip(tokens, lengths, strict=True)
                of_rows = {"mean": np.mean, "max": np.max}[pooling]
                vector = np.stack([of_rows(row[:n], axis=0) for row, n in rows])
            vector /= np.linalg.norm(vector, axis=1, keepdims=True)
            self.assertAllClose(found["sentence_embedding"], vector, atol=1e-6)

    def test_half_precision_is_near(self):
        source = self.source(BertClassifier(CONFIG, 3))
        inputs = self.inputs(3, S)
        single, half = (
            self.run_onnx(onnx_graph.build(source, dtype=dtype), inputs)["logits"]
            for dtype in (np.float32, np.float16)
        )
        self.assertEqual(half.dtype, np.float32)
        self.assertNotAllEqual(half, single)
        self.assertAllClose(half, single, atol=0.02 * np.abs(single).max())

    def test_attention_is_fused_in_every_layer(self):
        pytest.importorskip("sympy")
        from onnxruntime.transformers.optimizer import optimize_model

        for activation, fused in (("gelu", "FastGelu"), ("gelu_erf", "BiasGelu")):
            config = changed(hidden_act=activation)
            path = os.path.join(self.get_temp_dir(), f"{activation}.onnx")
            graph = onnx_graph.build(self.source(BertClassifier(config, 2), config))
            onnx.save(graph, path)
            optimized = optimize_model(
                path, "bert", num_heads=4, hidden_size=16, opt_level=0
            )
            counts = optimized.get_fused_operator_statistics()
            self.assertEqual((counts["Attention"], counts[fused]), (2, 2))

    def test_openvino_reads_the_same_file(self):
        openvino = pytest.importorskip("openvino")
        inputs = self.inputs(3, S)
        ids = {onnx_graph.INPUTS[name]: x for name, x in inputs.items()}
        # Where the processor has bfloat16, that is its default.
        exact = {"INFERENCE_PRECISION_HINT": "f32"}
        for config in (CONFIG, changed(attention_window=4, global_tokens=2)):
            graph = onnx_graph.build(self.source(BertTagger(config, 3), config))
            path = os.path.join(self.get_temp_dir(), "model.onnx")
            onnx.save(graph, path)
            compiled = openvino.Core().compile_model(path, "CPU", exact)
            found = compiled(ids)[compiled.output("logits")]
            expected = self.run_onnx(graph, inputs)["logits"]
            self.assertAllClose(found, expected, atol=1e-5 * np.abs(expected).max())

    def test_what_it_does_not_have_is_one_line(self):
        config = changed(bilstm=True)
        with self.assertRaisesRegex(
            InputError, "with bilstm, which our ONNX graph does not"
        ):
            onnx_graph.build(self.source(BertTagger(config, 2), config))
