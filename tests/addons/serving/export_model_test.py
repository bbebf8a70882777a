import dataclasses
import importlib.util
import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.addons.methods.electra import ElectraPretrainer
from bert_tf.addons.serving import export_model, runtimes
from bert_tf.addons.serving import saved_model as serving
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.reading import Reading
from bert_tf.conversion.source import open_source
from bert_tf.conversion.tokenizer_files import read_labels, write_labels
from bert_tf.modeling.heads import (
    BertClassifier,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.text.vocabulary import Vocabulary
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.run_classifier_test import TOKENS, WORDS, RunClassifierTestCase
from tests.script_case import printed
from tests.training import toy

needs_onnxruntime = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None,
    reason="onnxruntime is in the environment of `make test-exports`",
)


class ExportModelTest(RunClassifierTestCase):
    def checkpoint(self, model=None, name="model"):
        """The folder of a run with a random model."""
        model = model or BertPretrainer(toy.CONFIG)
        randomize(model)
        return runs.save(self.path(name), model, tokens=TOKENS)

    def export(self, checkpoint, kind, output_dir, *arguments):
        given = f"--checkpoint={checkpoint}", f"--format={kind}"
        printed(export_model, *given, f"--output_dir={output_dir}", *arguments)
        return output_dir

    @pytest.mark.slow
    def test_a_run_begins_and_ends_in_another_format(self):
        self.write_tsv(train=16)
        begin = self.export(self.checkpoint(), "huggingface", self.path("begin"))
        # Config and vocabulary come along.
        alone = {"vocab_file": "", "bert_config_file": ""}
        self.run_script(
            *("--do_train", "--do_predict"),
            init_checkpoint=begin,
            num_train_epochs=1,
            **alone,
        )
        end = self.export(self.path("run"), "huggingface", self.path("end"))
        self.assertEqual(open_source(end).labels, ("neg", "pos"))
        os.remove(self.path("data", "train.tsv"))
        self.run_script(
            "--do_predict", init_checkpoint=end, output_dir=self.path("again"), **alone
        )
        results = self.table("run", "test_results.tsv")
        self.assertAllEqual(self.table("again", "test_results.tsv"), results)
        saved = self.export(self.path("run"), "saved_model", self.path("saved"))
        lines = self.read("data", "test.tsv").splitlines()[1:]
        texts = [line.split("\t")[0] for line in lines]
        served = tf.saved_model.load(saved).signatures["one_text"]
        outputs = served(text_a=tf.constant(texts))
        self.assertAllClose(outputs["probabilities"], results, rtol=1e-4)

    def test_the_same_again_is_done_already(self):
        folder = self.checkpoint()
        end = self.export(folder, "tf1", self.path("end"))
        before = {
            name: os.stat(os.path.join(end, name)).st_mtime_ns
            for name in os.listdir(end)
        }
        with self.assertLogs() as logs:
            self.export(folder, "tf1", end)
        self.assertIn(f"All is done already: {end}.", logs.output[-1])
        for name, time in before.items():
            self.assertEqual(os.stat(os.path.join(end, name)).st_mtime_ns, time)
        for kind, *flags in (
            ["huggingface"],
            ["tf1", "--heads=none"],
            ["tf1", "--do_lower_case=false"],
        ):
            with self.assertRaisesRegex(InputError, "is not empty"):
                self.export(folder, kind, end, *flags)
        another = self.checkpoint(name="another")
        toy.save_checkpoint(another, BertPretrainer(toy.CONFIG), 4, 1)
        with self.assertRaisesRegex(InputError, "is not empty"):
            self.export(another, "tf1", end)

    def test_what_is_wrong_is_one_line(self):
        folder = self.checkpoint()
        with self.assertRaisesRegex(InputError, "is not empty"):
            self.export(folder, "tf1", folder)
        other = self.path("other.txt")
        Vocabulary([*TOKENS[:-1], "dog"]).save(other)
        for arguments, message in (
            (["tf1", self.path("x"), f"--vocab_file={other}"], "other tokens than"),
            (["saved_model", self.path("x"), "--max_seq_length=99"], "length=99"),
            (["tf1", self.path("x"), "--heads=span"], "has no span head"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.export(folder, *arguments)
        with open(os.path.join(folder, "model.ckpt-3.index"), "r+b") as file:
            file.truncate(20)
        with self.assertRaisesRegex(
            InputError, "model.ckpt-3 is damaged: model.ckpt-3.index cannot be"
        ):
            self.export(folder, "tf1", self.path("x"))
        self.assertFalse(os.path.exists(self.path("x")))
        self.assertFalse([n for n in os.listdir(self.path()) if n.startswith("x.")])

    def test_a_folder_that_a_saved_model_cannot_be_loaded_from(self):
        with self.assertRaisesRegex(InputError, r"a folder with \[ or . in its path"):
            self.export(self.checkpoint(), "saved_model", self.path("lr [1]"))
        self.assertFalse(os.path.exists(self.path("lr [1]")))

    def test_a_span_predictors_windows_have_room(self):
        folder = self.checkpoint(BertSpanPredictor(toy.CONFIG))
        with self.assertRaisesRegex(InputError, "max_query_length=13` .* at most 12"):
            self.export(folder, "saved_model", self.path("x"), "--max_query_length=13")
        # Without the flag questions are cut to half of that.
        with mock.patch.object(serving, "write_saved_model", return_value={}) as write:
            self.export(folder, "saved_model", self.path("saved"))
        *_, reading = write.call_args.args
        self.assertEqual(reading, Reading(max_query_length=6, max_seq_length=16))

    def run_and_served(self, model, signature, labels, **flags):
        """A run's own predictions, and its SavedModel's signature."""
        name = f"run{len(os.listdir(self.path()))}"
        folder = self.checkpoint(model, name)
        write_labels(folder, labels, None)
        runs.write_json(flags, folder, "flags.json")
        with (
            mock.patch.object(tf.saved_model, "save") as save,
            mock.patch.object(runtimes, "check"),
        ):
            self.export(folder, "saved_model", self.path(f"{name}.saved"))
        written, _ = read_labels(self.path(f"{name}.saved"))
        self.assertEqual(written, tuple(labels))
        return bert_tf.load(folder), save.call_args.kwargs["signatures"][signature]

    def test_a_saved_model_predicts_as_its_run(self):
        rng = np.random.default_rng(3)
        texts, pairs = (
            [" ".join(rng.choice(WORDS, number)) for number in numbers]
            for numbers in ((1, 4, 9, 30, 2, 14, 20), (20, 4, 1, 30, 3, 0, 0))
        )
        of_windows = {"long_text": "window", "window_pooling": "mean"}
        for flags in (
            {"max_seq_length": 9, **of_windows, "window_pooling": "max"},
            {"max_seq_length": 12, **of_windows, "doc_stride": 2},
        ):
            run, served = self.run_and_served(
                BertClassifier(toy.CONFIG, 2), "serving_default", ["no", "yes"], **flags
            )
            found = served(text_a=tf.constant(texts), text_b=tf.constant(pairs))
            expected = [
                [*one.probabilities.values()] for one in run.predict(texts, pairs)
            ]
            self.assertAllClose(found["probabilities"], expected, rtol=1e-4)
        run, served = self.run_and_served(
            BertClassifier(toy.CONFIG, 2),
            *("serving_default", ["no", "yes"]),
            max_seq_length=9,
            text_a_column="text",
            text_b_column=None,
        )
        found = served(text_a=tf.constant(texts))["label"].numpy().tolist()
        expected = [one.label for one in run.predict(texts)]
        self.assertEqual([label.decode() for label in found], expected)
        run, served = self.run_and_served(
            BertTagger(toy.CONFIG, 2),
            *("serving_default", ["A", "B"]),
            max_seq_length=12,
            doc_stride=3,
        )
        texts[0] += " \u00ad \u00a0" + texts[3]
        found = served(text_a=tf.constant(texts))["label"].numpy().tolist()
        expected = [list(one.labels) for one in run.tag(texts)]
        self.assertEqual([[x.decode() for x in row if x] for row in found], expected)

    def test_what_a_saved_model_cannot_do_is_refused(self):
        model = BertClassifier(toy.CONFIG, 2, window_pooling="attention")
        folder = self.checkpoint(model)
        flags = {"max_seq_length": 9, "long_text": "window"}
        runs.write_json(flags | {"window_pooling": "attention"}, folder, "flags.json")
        with self.assertRaisesRegex(InputError, "with attention to their windows"):
            self.export(folder, "saved_model", self.path("x"))
        with self.assertRaisesRegex(InputError, "`max_query_length` has no effect"):
            given = "--max_query_length=4", "--heads=classifier"
            self.export(folder, "saved_model", self.path("x"), *given)

    def test_electras_head_can_be_chosen(self):
        model = ElectraPretrainer(toy.CONFIG, generator_size=0.5)
        folder = self.checkpoint(model)
        end = self.export(
            folder, "huggingface", self.path("end"), "--heads=replaced_tokens"
        )
        self.assertEqual(names.heads_of(open_source(end).weights), ["replaced tokens"])

    def test_a_span_predictor_reads_as_its_run(self):
        folder = self.checkpoint(BertSpanPredictor(toy.CONFIG))
        flags = {"max_seq_length": 12, "doc_stride": 3, "max_query_length": 4}
        runs.write_json(flags | {"max_answer_length": 5}, folder, "flags.json")
        with mock.patch.object(serving, "write_saved_model", return_value={}) as write:
            self.export(folder, "saved_model", self.path("x"), "--max_answer_length=7")
        *_, reading = write.call_args.args
        self.assertEqual(reading, Reading(**flags, max_answer_length=7))

    def test_left_to_right_fills_no_masks(self):
        config = dataclasses.replace(toy.CONFIG, left_to_right=True)
        folder = self.checkpoint(BertPretrainer(config))
        toy.write_config(folder, config)
        with self.assertRaisesRegex(InputError, "in one direction"):
            self.export(folder, "saved_model", self.path("x"))

    def test_usage_errors(self):
        serving_alone = "are only for --format=saved_model"
        for kind, flag, message in (
            ("tf1", "--heads=mask", "must be one of masked_lm"),
            ("kerashub", "--heads=masked_lm", "only the encoder"),
            ("litert", "--max_seq_length=128", serving_alone),
            ("litert", "--doc_stride=128", serving_alone),
            ("tf1", "--quantize=int8", "is only for --format=onnx and --format=litert"),
            ("onnx", "--text_a_column=t", "has no effect without --calibration_file"),
        ):
            with self.assertRaisesRegex(cli.flags.Error, message):
                self.export("a", kind, "b", flag)
        self.write("some.tsv", [["t"]])
        calibration = f"--calibration_file={self.path('data', 'some.tsv')}"
        for flags in ((calibration,), (calibration, "--quantize=float16")):
            with self.assertRaisesRegex(
                cli.flags.Error, "has no effect without --quantize=int8"
            ):
                self.export("a", "onnx", "b", *flags)

    def test_litert_runs_in_its_interpreter(self):
        folder = self.checkpoint(BertClassifier(toy.CONFIG, 2))
        with self.assertLogs() as logs:
            path = self.export(folder, "litert", self.path("litert"))
        self.assertIn("its outputs differ from the model's by", "".join(logs.output))
        with open(os.path.join(path, "model.tflite"), "rb") as file:
            # The file identifier of LiteRT's flatbuffers.
            self.assertEqual(file.read(8)[4:], b"TFL3")

    def test_onnx_with_the_exact_gelu_runs(self):
        for package in ("onnx", "onnxruntime"):
            pytest.importorskip(package)
        config = dataclasses.replace(toy.CONFIG, hidden_act="gelu_erf")
        folder = self.checkpoint(BertClassifier(config, 2))
        toy.write_config(folder, config)
        sizes = []
        for given in ((), ("--quantize=float16",), ("--quantize=int8",)):
            path = self.path("onnx" + "".join(given))
            with self.assertLogs() as logs:
                self.export(folder, "onnx", path, *given)
            self.assertIn(
                "its outputs differ from the model's by", "".join(logs.output)
            )
            self.assertTrue(os.path.exists(os.path.join(path, "config.json")))
            sizes.append(os.path.getsize(os.path.join(path, "model.onnx")))
        self.assertLess(sizes[1], sizes[0])

    @needs_onnxruntime
    def test_onnx_with_the_ranges_of_a_table(self):
        import onnx

        folder = self.checkpoint(BertClassifier(toy.CONFIG, 2))
        rows = [("w1 w2", "good"), ("w3", "bad"), ("w4 w5 w6", "w7")]
        self.write("some.tsv", [("t", "u"), *rows])
        table = self.path("data", "some.tsv")
        flags = "--quantize=int8", f"--calibration_file={table}", "--text_a_column=t"
        path = self.export(folder, "onnx", self.path("onnx"), *flags)
        graph = onnx.load(os.path.join(path, "model.onnx")).graph
        kinds = {node.op_type for node in graph.node}
        self.assertIn("QuantizeLinear", kinds)
        self.assertNotIn("DynamicQuantizeLinear", kinds)
        weights = {one.name: one for one in graph.initializer}
        kernel = "bert/encoder/layer_0/attention/self/query/kernel"
        self.assertEqual([*weights[f"{kernel}_scale"].dims], [8])
        expected, found = (bert_tf.load(x).logits(*rows[0]) for x in (folder, path))
        self.assertAllClose(found, expected, atol=0.1 * np.abs(expected).max())
        # Other texts make another file.
        with self.assertLogs() as logs:
            self.export(folder, "onnx", path, *flags)
        self.assertIn("All is done already", logs.output[-1])
        with self.assertRaisesRegex(InputError, "is not empty"):
            self.export(folder, "onnx", path, *flags, "--text_b_column=u")
        self.write("empty.tsv", [("t", "u")])
        empty = self.path("data", "empty.tsv")
        for arguments, message in (
            (flags[:2], "some.tsv needs `text_a_column`: .*model has none"),
            ((*flags[:2], "--text_a_column=x"), "some.tsv: .*'x'"),
            ((flags[0], f"--calibration_file={empty}", flags[2]), "empty.tsv: no exam"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.export(folder, "onnx", self.path("no"), *arguments)

    def test_an_export_that_does_not_run_is_none(self):
        folder = self.checkpoint(BertClassifier(toy.CONFIG, 2))
        converter = mock.Mock(convert=lambda: b"no flatbuffer")
        with (
            mock.patch.object(
                tf.lite.TFLiteConverter, "from_concrete_functions", lambda *_: converter
            ),
            self.assertRaisesRegex(InputError, "litert` cannot express this model"),
        ):
            self.export(folder, "litert", self.path("x"))
        self.assertFalse(os.path.exists(self.path("x")))
