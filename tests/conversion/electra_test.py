import dataclasses
import functools
import math
import os

import numpy as np
import safetensors.numpy
import tensorflow as tf

from bert_tf.addons.methods.electra import ElectraPretrainer
from bert_tf.base.errors import InputError
from bert_tf.conversion import export, huggingface, names
from bert_tf.conversion.loading import load_classifier, load_encoder, load_weights
from bert_tf.conversion.source import open_source
from bert_tf.modeling.weight_names import weights_by_name
from tests.conversion import electra_weights, one_layer, runs
from tests.conversion.electra_weights import ARRAYS, CONFIG, GENERATOR, LINES, THEIRS
from tests.conversion.runs import TOKENS, save, save_tf1
from tests.modeling.examples import randomize, relative_error


@functools.cache
def half_generator():
    return ElectraPretrainer(CONFIG, generator_size=0.5)


class ElectraTestCase(runs.PeerCase):
    peer = electra_weights

    def released(self, arrays):
        """A folder as Google released ELECTRA's: vocab.txt, and no config."""
        vocab = "".join(f"{token}\n" for token in TOKENS)
        self.write("electra_small/vocab.txt", vocab)
        save_tf1(self.path("electra_small/electra_small"), arrays)
        return self.path("electra_small")

    def check_logits(self, source):
        model = half_generator()
        missing = load_weights(model, source)
        self.assertTrue(all(map(names.is_of_a_generator, missing)))
        logits = model(electra_weights.RECORD)["discriminator_logits"][0]
        self.assertLess(relative_error(logits, electra_weights.LOGITS), 1e-5)


class HuggingFaceTest(ElectraTestCase):
    def test_their_logits(self):
        self.check_logits(self.hugging_face())

    def test_out_are_the_tensors_and_the_settings_that_came_in(self):
        self.check_out_and_in()

    def test_classes_without_a_pooler(self):
        encoder = [name for name in ARRAYS if name.startswith("bert/")]
        for head, name in (
            (names.SPAN, "ElectraForQuestionAnswering"),
            (names.TAGGING, "ElectraForTokenClassification"),
            (None, "ElectraModel"),
        ):
            rows = names.HEADS[head].weights if head else ()
            there = encoder + [row.original for row in rows]
            self.assertEqual(huggingface.architecture_of(there, CONFIG), name)
        rows = names.HEADS[names.CLASSIFIER].weights
        there = encoder + [row.original for row in rows]
        with self.assertRaisesRegex(InputError, "no class with these heads: classif"):
            huggingface.architecture_of(there, CONFIG)

    def test_the_classifiers_dense_layer_and_gelu(self):
        """In, out, in; the head is numpy's: out_proj(gelu(dense(h[CLS])))."""
        draw = np.random.default_rng(5)
        head = {
            f"classifier.{layer}.{kind}": draw.normal(size=shape).astype(np.float32)
            for layer, kind, shape in (
                *(("dense", "weight", (8, 8)), ("dense", "bias", 8)),
                *(("out_proj", "weight", (3, 8)), ("out_proj", "bias", 3)),
            )
        }
        tensors = {
            name: x
            for name, x in electra_weights.TENSORS.items()
            if not name.startswith("discriminator")
        }
        folder = self.hugging_face(
            architectures=["ElectraForSequenceClassification"],
            id2label={"0": "a", "1": "b", "2": "c"},
        )
        path = os.path.join(folder, "model.safetensors")
        safetensors.numpy.save_file(tensors | head, path)
        record = {
            name: electra_weights.RECORD[name]
            for name in ("input_ids", "input_mask", "segment_ids")
        }
        encoder = load_encoder(folder, use_pooler=False)
        states = np.asarray(encoder(record)["sequence_output"])[0, 0]
        x = head["classifier.dense.weight"] @ states + head["classifier.dense.bias"]
        x = np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x])
        expected = head["classifier.out_proj.weight"] @ x
        expected += head["classifier.out_proj.bias"]
        for format_ in ("huggingface", "tf1"):
            logits = load_classifier(folder)(record)["logits"][0]
            self.assertAllClose(logits, expected, rtol=1e-5, atol=1e-5)
            self.assertEqual(open_source(folder).labels, ("a", "b", "c"))
            source = open_source(folder)
            if format_ == "tf1":
                with self.assertRaisesRegex(InputError, "pooler_hidden_act=gelu_erf"):
                    export.write_tf1(self.folder("tf1"), source)
                continue
            folder = self.folder("ours")
            export.write_huggingface(folder, source)
        stored = safetensors.numpy.load_file(self.path("ours", "model.safetensors"))
        self.assertEqual(set(stored), set(tensors | head))
        for name, tensor in (tensors | head).items():
            self.assertAllEqual(stored[name], tensor)
        # The same with embeddings as wide as the model, by which no ELECTRA is told.
        wide = dataclasses.replace(
            source.config, embedding_size=None, hidden_act="gelu_erf"
        )
        self.assertEqual(
            huggingface.architecture_of(["output_weights"], wide),
            "ElectraForSequenceClassification",
        )

    def test_embeddings_as_wide_as_the_model(self):
        arrays = {k: x for k, x in ARRAYS.items() if "_mapping_in" not in k}
        for name in arrays:
            if name.startswith("bert/embeddings/"):
                arrays[name] = np.concatenate([arrays[name]] * 2, axis=-1)
        lines = [line for line in LINES if line.original in arrays]
        folder = self.hugging_face(embedding_size=8)
        safetensors.numpy.save_file(
            one_layer.their_tensors(lines, arrays),
            os.path.join(folder, "model.safetensors"),
        )
        source = open_source(folder)
        config = dataclasses.replace(CONFIG, embedding_size=None)
        self.assertEqual(source.config, config)
        self.assertEqual(set(source.weights), set(arrays))
        values = huggingface.to_config(config, "ElectraForPreTraining")
        self.assertEqual(values["embedding_size"], 8)


class ReleaseTest(ElectraTestCase):
    def test_names_and_config(self):
        arrays = {THEIRS[name]: array for name, array in ARRAYS.items()}
        arrays |= {name: np.zeros(3, np.float32) for name in GENERATOR.values()}
        arrays["global_step"] = np.int64(3)
        arrays["electra/embeddings_project/bias/adam_m"] = np.zeros(8, np.float32)
        source = open_source(self.released(arrays))
        # Heads of 64: so small a model has one.
        one_head = dataclasses.replace(CONFIG, num_attention_heads=1)
        self.assertEqual(source.config, one_head)
        self.assertEqual(set(source.weights), {*ARRAYS, *GENERATOR})
        for name, array in ARRAYS.items():
            self.assertAllEqual(source.weights[name], array)
        self.assertEqual(list(source.tokenizer.vocabulary), TOKENS)
        # Out are the tensors that came in.
        folder = self.folder("ours")
        export.write_tf1(folder, export.completed(source))
        reader = tf.train.load_checkpoint(os.path.join(folder, "bert_model.ckpt"))
        self.assertEqual(
            set(reader.get_variable_to_shape_map()),
            {name for name in arrays if "adam_m" not in name and name != "global_step"},
        )
        for name in THEIRS.values():
            self.assertAllEqual(reader.get_tensor(name), arrays[name])

    def test_their_logits(self):
        folder = self.released({THEIRS[name]: x for name, x in ARRAYS.items()})
        self.check_logits(dataclasses.replace(open_source(folder), config=CONFIG))

    def test_a_checkpoint_without_its_tables_has_no_config(self):
        folder = self.released({"electra/embeddings_project/bias": np.zeros(8, "f")})
        self.assertIsNone(open_source(folder).config)

    def test_its_gelu_is_exact(self):
        config = dataclasses.replace(CONFIG, hidden_act="gelu")
        source = dataclasses.replace(open_source(self.hugging_face()), config=config)
        message = r"cannot compute .*\(hidden_act=gelu\)"
        with self.assertRaisesRegex(InputError, message):
            export.write_tf1(self.get_temp_dir(), source)


class RunTest(ElectraTestCase):
    def test_the_discriminator_goes_out(self):
        model = ElectraPretrainer(CONFIG)
        randomize(model)
        folder = save(self.folder("run"), model, config=CONFIG)
        source = open_source(folder)
        encoder = load_encoder(source)
        self.assertFalse(encoder.options["use_pooler"])
        for name, variable in weights_by_name(encoder).items():
            self.assertAllEqual(variable, weights_by_name(model)[name])
        # Fine-tuning takes a new pooler.
        classifier = weights_by_name(load_classifier(source, 2))
        self.assertIn("bert/pooler/dense/kernel", classifier)
        out = self.folder("out")
        export.write_huggingface(out, export.completed(source))
        back = open_source(out)
        self.assertEqual(set(back.weights), set(ARRAYS))
        # The same generator goes on; only where it is another one it must not.
        again = ElectraPretrainer(CONFIG)
        self.assertEmpty(load_weights(again, source))
        with self.assertRaisesRegex(InputError, "does not fit the model.*generator"):
            load_weights(half_generator(), source)
        # Twice as many layers, of both.
        deeper = weights_by_name(
            ElectraPretrainer(dataclasses.replace(CONFIG, num_hidden_layers=2))
        )
        stacked = source.weights.stacked(2)
        self.assertEqual(set(stacked), set(deeper))
        scope = "cls/generator/encoder/layer_{}/output/dense/kernel"
        self.assertAllEqual(stacked[scope.format(1)], source.weights[scope.format(0)])
        new = load_weights(again, source, init_head=False)
        self.assertIn("cls/generator_predictions/output_bias", new)
