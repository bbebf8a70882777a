"""`bert_tf.load` against the commands' own predictions of the same folder."""

import copy
import dataclasses
import importlib.util
import io
import json
import os
import pickle
import shutil
import signal
import sys
from concurrent import futures
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import run_classifier, run_ner
from bert_tf.addons.serving import export_model
from bert_tf.base import cli, keras_backend
from bert_tf.base.config import MULTI_LABEL, REGRESSION
from bert_tf.base.errors import InputError
from bert_tf.conversion import export
from bert_tf.conversion.loading import load_classifier
from bert_tf.conversion.source import open_source
from bert_tf.conversion.tokenizer_files import (
    TrainedWords,
    write_labels,
    write_words,
)
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.records.batching import ExampleTable
from bert_tf.tasks.feature_extraction import extract_features
from bert_tf.tasks.feature_extraction.feature_records import SENTENCE_VECTORS
from tests.addons.serving import answer_test
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.processes import run_python
from tests.script_case import FolderCase, printed, read_tsv
from tests.training import toy

needs_onnxruntime = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None,
    reason="onnxruntime is in the environment of `make test-exports`",
)

WORDS = [f"w{number}" for number in range(20)]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def texts(count, seed, most=9):
    """Made-up texts, some longer than the toy BERT's 16 positions allow of pairs."""
    rng = np.random.default_rng(seed)
    return [
        " ".join(rng.choice(WORDS, rng.integers(1, most + 1))) for _ in range(count)
    ]


# docs/serving.md installs these for a server, and pip what they require.
SERVERS_PACKAGES = {
    *("absl-py", "bert-tf", "google-crc32c", "numpy", "onnx", "onnxruntime"),
    *("safetensors", "tqdm"),
    *("flatbuffers", "ml-dtypes", "packaging", "protobuf", "typing-extensions"),
}


class TextModelsTest(FolderCase):
    def test_a_pair_needs_two_segments(self):
        config = dataclasses.replace(toy.CONFIG, type_vocab_size=1)
        classifier, choices, span = (
            runs.save(self.path(name), model, config=config)
            for name, model in {
                "classifier": BertClassifier(config, 2),
                "choices": BertMultipleChoice(config),
                "span": BertSpanPredictor(config),
            }.items()
        )
        model, choices = bert_tf.load(classifier), bert_tf.load(choices)
        self.assertLen(model.predict(["a film"]), 1)
        self.assertEqual(model.embed(["a film"]).shape, (1, 8))
        for call in (
            lambda: model.predict(["a film"], ["a city"]),
            lambda: model.explain("a film", "a city"),
            lambda: model.embed(["a film"], ["a city"]),
            lambda: choices.choose("a film", ["a city", "a lake"]),
            lambda: bert_tf.load(span),
        ):
            with self.assertRaisesRegex(InputError, "1 segment .*of texts need 2"):
                call()

    @pytest.mark.slow
    def test_a_folder_of_sentence_transformers(self):
        run = self.random_checkpoint(BertEncoder(toy.CONFIG))
        folder = self.path("sentences", "0_Transformer")
        os.makedirs(folder)
        source = export.completed(open_source(run), do_lower_case=True)
        export.write_huggingface(folder, source)
        modules = [
            {"path": path, "type": f"sentence_transformers.models.{path[2:]}"}
            for path in ("0_Transformer", "1_Pooling", "2_Normalize")
        ]
        self.write("sentences/modules.json", modules)
        self.write(
            "sentences/0_Transformer/sentence_bert_config.json", {"max_seq_length": 9}
        )
        pooling = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
        self.write(
            "sentences/1_Pooling/config.json",
            {**pooling, "word_embedding_dimension": 8},
        )
        sentences = self.path("sentences")
        said = "max_seq_length=9, pooling='cls', normalize=True"
        with self.assertLogs() as logs:
            model = bert_tf.load(sentences)
        self.assertIn(said, "".join(logs.output))
        lines = texts(3, seed=1, most=14)
        found = model.embed(lines)
        plain = bert_tf.load(run, max_length=9)
        expected = plain.embed(lines, pooling="cls")
        expected /= np.sqrt((expected**2).sum(1, keepdims=True))
        self.assertAllClose(found, expected, rtol=1e-5, atol=1e-6)
        shorter = bert_tf.load(sentences, max_length=8)
        self.assertEqual(shorter.max_length, 8)
        # The commands' vectors are those that `embed` gives.
        self.write_lines("lines.txt", lines)
        output = self.path("vectors.npz")
        for given, of_model in (({"max_seq_length": 8}, shorter), ({}, model)):
            with self.assertLogs() as logs:
                cli.run_script(
                    extract_features,
                    init_checkpoint=sentences,
                    input_file=self.path("lines.txt"),
                    output_file=output,
                    format="npz",
                    layers="-1",
                    token_vectors=False,
                    sentence_vectors=SENTENCE_VECTORS,
                    **given,
                )
            self.assertIn(said, "".join(logs.output))
            expected = {p: of_model.embed(lines, pooling=p) for p in SENTENCE_VECTORS}
            for name, vectors in expected.items():
                found = np.load(output)[name].reshape(vectors.shape)
                self.assertAllClose(found, vectors, rtol=1e-5, atol=1e-6)
        folder = self.path("exported")
        with self.assertLogs() as logs:
            cli.run_script(
                export_model,
                checkpoint=sentences,
                output_dir=folder,
                format="saved_model",
            )
        self.assertIn(said, "".join(logs.output))
        served = tf.saved_model.load(folder).signatures["one_text"]
        outputs = served(text_a=tf.constant(lines))
        del expected["max"]  # only of a model whose pooling it is
        for name, vectors in expected.items():
            found = outputs[f"{name}_output"]
            self.assertAllClose(found, vectors, rtol=1e-5, atol=1e-6)

    def checkpoint(self, model, tokens=TOKENS, labels=None, kind=None, **flags):
        """A run's folder."""
        folder = runs.save(self.path("run"), model, tokens=tokens)
        write_labels(folder, labels, kind)
        if flags:
            self.write(f"{folder}/flags.json", flags)
        return folder

    def random_checkpoint(self, model, seed=7, **options):
        """Of weights far from trivial."""
        randomize(model, seed)
        return self.checkpoint(model, **options)

    def write_lines(self, name, lines):
        return self.write(name, "".join(f"{line}\n" for line in lines))

    def run_classifier(self, folder, firsts, seconds, **options):
        rows = zip(firsts, seconds, strict=True)
        self.write_lines("test.tsv", ["a\tb", *(f"{a}\t{b}" for a, b in rows)])
        cli.run_script(
            run_classifier,
            do_predict=True,
            task_name="tsv",
            data_dir=self.get_temp_dir(),
            text_a_column="a",
            text_b_column="b",
            init_checkpoint=folder,
            output_dir=f"{folder}_predicted",
            **{"max_seq_length": 12, **options},
        )
        return read_tsv(f"{folder}_predicted/test_predictions.tsv")

    def test_predict_is_run_classifiers(self):
        labels = ("neg", "other", "pos")
        folder = self.random_checkpoint(
            BertClassifier(toy.CONFIG, 3), seed=1, labels=labels, max_seq_length=12
        )
        firsts, seconds = texts(11, 1), texts(11, 2)
        rows = self.run_classifier(folder, firsts, seconds)
        model = bert_tf.load(folder, batch_size=4)
        self.assertEqual(type(model).__name__, "TextClassifier")
        with self.assertLogs(level="WARNING") as logged:
            found = model.predict(firsts, seconds)
        self.assertRegex(logged.output[0], "of 11 texts have more than 12 tokens")
        self.assertEqual(
            [one.label for one in found], [row["prediction"] for row in rows]
        )
        self.assertGreater(len({one.label for one in found}), 1)
        for one, row in zip(found, rows, strict=True):
            for label in labels:
                self.assertNear(
                    one.probabilities[label], float(row[f"p_{label}"]), 2e-6
                )
        # One by one, and without second texts.
        (alone,) = model.predict(firsts[3], seconds[3])
        self.assertAllClose(alone.probabilities, found[3].probabilities, atol=1e-5)
        self.assertLen(model.predict(firsts), 11)

    def test_predict_in_windows_as_the_run(self):
        folder = self.random_checkpoint(
            BertClassifier(toy.CONFIG, 3),
            labels=("a", "b", "c"),
            max_seq_length=8,
            long_text="window",
            doc_stride=2,
        )
        firsts = texts(5, 1, most=40)
        # The command, too, takes what is not given from the run.
        rows = self.run_classifier(folder, firsts, [""] * 5, max_seq_length=None)
        for one, row in zip(bert_tf.load(folder).predict(firsts), rows, strict=True):
            self.assertEqual(one.label, row["prediction"])
            self.assertNear(one.probabilities["b"], float(row["p_b"]), 2e-6)

    def test_several_labels_and_a_number(self):
        firsts = texts(6, 1, most=5)
        folder = self.random_checkpoint(
            BertClassifier(toy.CONFIG, 3, problem_type=MULTI_LABEL),
            labels=("a", "b", "c"),
            kind=MULTI_LABEL,
        )
        given = {"several_labels": True, "labels": "a,b,c"}
        rows = self.run_classifier(folder, firsts, [""] * 6, **given)
        found = bert_tf.load(folder).predict(firsts)
        self.assertEqual(
            [",".join(one.label) for one in found], [row["prediction"] for row in rows]
        )
        self.assertNear(found[2].probabilities["c"], float(rows[2]["p_c"]), 2e-6)

        shutil.rmtree(folder)
        shutil.rmtree(f"{folder}_predicted")
        number = BertClassifier(toy.CONFIG, 1)
        folder = self.random_checkpoint(number, labels=())
        rows = self.run_classifier(folder, firsts, [""] * 6, regression=True)
        found = bert_tf.load(folder).predict(firsts)
        for one, row in zip(found, rows, strict=True):
            self.assertEqual(f"{one.label:.3f}", row["prediction"])
            self.assertEqual(one.probabilities, {})

    def test_labels_without_names_are_numbered(self):
        folder = self.random_checkpoint(BertClassifier(toy.CONFIG, 2))
        (found,) = bert_tf.load(folder).predict("w1")
        self.assertEqual(list(found.probabilities), ["0", "1"])

    def traced(self, model):
        """The traces of a loaded model's network from here on."""
        traces = []
        call = model.model.call
        model.model.call = lambda *args, **options: (
            traces.append(1) or call(*args, **options)
        )
        return traces

    def test_one_graph_for_all_numbers_and_lengths_of_texts(self):
        folder = self.random_checkpoint(BertClassifier(toy.CONFIG, 3))
        model = bert_tf.load(folder, runtime="keras")
        self.assertEqual(model.predict([]), [])
        self.assertEqual(model.embed([]).shape, (0, toy.CONFIG.hidden_size))
        traces = self.traced(model)  # after `load` has made its graph
        for number in (1, 2, 5):
            for length in (1, 3, 6):
                found = model.predict([" ".join(["w1"] * length)] * number)
                self.assertLen(found, number)
        self.assertEmpty(traces)

    def test_one_graph_for_all_blanks_questions_and_words(self):
        folder = self.random_checkpoint(BertPretrainer(toy.CONFIG))
        filler = bert_tf.load(folder, runtime="keras")
        traces = self.traced(filler)
        for text in ("w1 [MASK]", "[MASK] w2 w3 [MASK]", "w1 w2 w3 w4 w5 [MASK]"):
            filler.fill(text)
        self.assertEmpty(traces)
        folder = self.random_checkpoint(
            BertSpanPredictor(toy.CONFIG), max_query_length=4, doc_stride=4
        )
        model = bert_tf.load(folder, runtime="keras")
        traces = self.traced(model)
        for number in (3, 5, 9):
            model.answer("w1 w2", " ".join(["w3"] * number))
        self.assertEmpty(traces)
        folder = self.random_checkpoint(BertTagger(toy.CONFIG, 3))
        model = bert_tf.load(folder, runtime="keras")
        traces = self.traced(model)
        for number in (3, 5, 9):
            model.tag(" ".join(["w3"] * number))
        self.assertEmpty(traces)

    def test_one_text_is_one_row(self):
        lengths = {"max_query_length": 4, "doc_stride": 4}
        for head, options, call in (
            (BertClassifier(toy.CONFIG, 3), {}, lambda model: model.predict("w1 w2")),
            (BertTagger(toy.CONFIG, 3), {}, lambda model: model.tag("w1 w2")),
            (
                BertSpanPredictor(toy.CONFIG),
                lengths,
                lambda model: model.answer("w1", "w2 w3"),
            ),
        ):
            model = bert_tf.load(self.random_checkpoint(head, **options))
            padded = ExampleTable.padded
            with mock.patch.object(ExampleTable, "padded", autospec=True) as made:
                made.side_effect = padded
                call(model)
            self.assertEqual([len(one.args[1]) for one in made.call_args_list], [1])

    def both_runtimes(self, model, **options):
        """The models that two runtimes make of a checkpoint."""
        folder = self.random_checkpoint(model, **options)
        on_onnx = bert_tf.load(folder, runtime="onnxruntime")
        with_keras = bert_tf.load(folder, runtime="keras")
        self.assertEqual(bert_tf.load(folder).runtime, "onnxruntime")
        self.assertEqual(with_keras.runtime, "keras")
        lines, pairs = texts(7, seed=1), texts(7, seed=2, most=3)
        for pooling in SENTENCE_VECTORS:
            if pooling == "pooled" and not on_onnx._has_pooler:
                continue
            found, expected = (
                one.embed(lines, pairs, pooling=pooling)
                for one in (on_onnx, with_keras)
            )
            self.assertAllClose(found, expected, rtol=1e-5, atol=1e-5)
        return on_onnx, with_keras

    @needs_onnxruntime
    def test_onnxruntime_is_as_keras(self):
        lines, pairs = texts(7, seed=1), texts(7, seed=2, most=3)
        for kind in (None, MULTI_LABEL, REGRESSION):
            model = BertClassifier(toy.CONFIG, 3, problem_type=kind)
            found, expected = (
                one.predict(lines, pairs)
                for one in self.both_runtimes(model, labels="abc", kind=kind)
            )
            for one, other in zip(found, expected, strict=True):
                if kind == REGRESSION:
                    self.assertAllClose(one.label, other.label, rtol=1e-5)
                else:
                    self.assertEqual(one.label, other.label)
                    self.assertAllClose(
                        [*one.probabilities.values()],
                        [*other.probabilities.values()],
                        rtol=1e-5,
                    )
        found, expected = (
            one.tag(lines)
            for one in self.both_runtimes(BertTagger(toy.CONFIG, 5), labels="abcde")
        )
        self.assertEqual(found, expected)
        for options in ({}, {"next_sentence": False}):
            model = BertPretrainer(toy.CONFIG, **options)
            found, expected = (
                one.fill(["w1 [MASK] w2", "[MASK] w3 w4 [MASK]"])
                for one in self.both_runtimes(model)
            )
            for (blank, *_), (other, *_) in zip(found, expected, strict=True):
                self.assertEqual([g.token for g in blank], [g.token for g in other])
                self.assertAllClose(
                    [g.probability for g in blank], [g.probability for g in other]
                )
        model = BertSpanPredictor(toy.CONFIG)
        found, expected = (
            one.answer("w1 w2", " ".join(WORDS), top_k=5)
            for one in self.both_runtimes(model, max_query_length=4, doc_stride=4)
        )
        self.assertEqual(
            [one.span for one in found[0]], [one.span for one in expected[0]]
        )
        self.assertAllClose(
            [one.probability for one in found[0]],
            [one.probability for one in expected[0]],
        )

    @needs_onnxruntime
    def test_exports_need_neither_tensorflow_nor_keras(self):
        calls, expected = [], []
        for model, method, *arguments in (
            (BertClassifier(toy.CONFIG, 3), "predict", "w1 w2", "w3"),
            (BertTagger(toy.CONFIG, 5), "tag", "w1 w2 w3"),
            (BertPretrainer(toy.CONFIG), "fill", "w1 [MASK] w2"),
            (BertSpanPredictor(toy.CONFIG), "answer", "w1", "w2 w3 w4"),
            (BertMultipleChoice(toy.CONFIG), "choose", "w1", ["w2", "w3 w4"]),
            (BertEncoder(toy.CONFIG), "embed", "w1 w2"),
        ):
            exported = self.path(f"of_{method}")
            heads = {"heads": ("masked_lm",)} if method == "fill" else {}
            lengths = {"max_query_length": 4, "doc_stride": 4}
            folder = self.random_checkpoint(model, **lengths)
            bert_tf.export(folder, exported, format="onnx", **heads)
            calls.append([exported, method, *arguments])
            found = getattr(bert_tf.load(exported), method)(*arguments)
            expected.append(f"{found!r}")
        # Of transformers' format the graph is made when it is loaded.
        exported = self.path("huggingface")
        folder = self.random_checkpoint(BertClassifier(toy.CONFIG, 3))
        bert_tf.export(folder, exported, format="huggingface")
        calls.append([exported, "predict", "w1 w2", "w3"])
        found = bert_tf.load(exported, runtime="onnxruntime").predict("w1 w2", "w3")
        expected.append(f"{found!r}")
        code = f"""
import importlib.metadata, json, sys
for name, found in importlib.metadata.packages_distributions().items():
    if not {SERVERS_PACKAGES!r} & {{one.lower().replace("_", "-") for one in found}}:
        sys.modules[name] = None  # cannot be imported
import bert_tf
for path, method, *arguments in json.loads({json.dumps(calls)!r}):
    print(repr(getattr(bert_tf.load(path), method)(*arguments)))
try:
    bert_tf.load({calls[0][0]!r}).explain("w1")
except ValueError as error:
    print(error)
from bert_tf import predict
predict.main()
"""
        expected.append(
            f"{calls[0][0]} is an ONNX file, which has no gradients: explain the"
            " checkpoint that it was exported from."
        )
        given = self.write_lines("texts.txt", ["w1 w2", "w3"])
        written = self.path("labels.tsv")
        ended = run_python(
            *("-c", code, f"--checkpoint={calls[0][0]}"),
            *(f"--input_file={given}", f"--output_file={written}"),
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(ended.stdout, "\n".join([*expected, ""]))
        found = bert_tf.load(calls[0][0]).predict(["w1 w2", "w3"])
        labels = [row["prediction"] for row in read_tsv(written)]
        self.assertEqual(labels, [one.label for one in found])

    @needs_onnxruntime
    def test_an_onnx_export_is_opened(self):
        lines = texts(9, seed=1, most=12)
        folder = self.random_checkpoint(
            BertClassifier(toy.CONFIG, 3), labels="abc", max_seq_length=9
        )
        expected = bert_tf.load(folder, runtime="keras")
        for number, (quantize, tolerance) in enumerate(
            ((None, 1e-5), ("float16", 0.01), ("int8", 0.2))
        ):
            exported = self.path(f"onnx{number}")
            bert_tf.export(folder, exported, format="onnx", quantize=quantize)
            model = bert_tf.load(exported)
            self.assertEqual((model.runtime, model.max_length), ("onnxruntime", 9))
            for one, other in zip(
                model.predict(lines), expected.predict(lines), strict=True
            ):
                self.assertEqual([*one.probabilities], [*other.probabilities])
                self.assertAllClose(
                    [*one.probabilities.values()],
                    [*other.probabilities.values()],
                    atol=tolerance,
                )
        with self.assertRaisesRegex(InputError, "weights of u?int8: it can only"):
            load_classifier(exported)
        # A file of float32 has the checkpoint's weights.
        theirs, ours = (
            open_source(path).weights for path in (self.path("onnx0"), folder)
        )
        self.assertEqual({*theirs}, {*ours})
        for name, weight in ours.items():
            self.assertAllEqual(theirs[name], weight, name)
        again = bert_tf.load(self.path("onnx0"), runtime="keras")
        self.assertEqual(again.predict("w1"), expected.predict("w1"))

    @needs_onnxruntime
    def test_onnx_exports_of_other_heads_are_opened(self):
        lines = texts(5, seed=1)
        folder = self.random_checkpoint(BertEncoder(toy.CONFIG))
        expected = bert_tf.load(folder, runtime="keras")
        for number, quantize in enumerate((None, "int8")):
            exported = self.path(f"features{number}")
            bert_tf.export(folder, exported, format="onnx", quantize=quantize)
            for pooling in SENTENCE_VECTORS:
                found = bert_tf.load(exported).embed(lines, pooling=pooling)
                wanted = expected.embed(lines, pooling=pooling)
                scale = np.abs(wanted).max()
                self.assertAllClose(
                    found / scale, wanted / scale, atol=0.1 if quantize else 1e-5
                )
        folder = self.random_checkpoint(BertPretrainer(toy.CONFIG))
        exported = self.path("masked_lm")
        bert_tf.export(folder, exported, format="onnx")
        text = "w1 [MASK] w2 [MASK]"
        found, expected = (
            bert_tf.load(path, runtime=runtime).fill(text)[0]
            for path, runtime in ((exported, "auto"), (folder, "keras"))
        )
        for some, others in zip(found, expected, strict=True):
            self.assertEqual([one.token for one in some], [one.token for one in others])

    @needs_onnxruntime
    def test_four_threads_get_what_one_gets(self):
        folder = self.random_checkpoint(BertClassifier(toy.CONFIG, 3))
        lines = texts(40, seed=3)
        for runtime in ("onnxruntime", "keras"):
            model = bert_tf.load(folder, runtime=runtime)
            expected = [model.predict(line) for line in lines]
            with futures.ThreadPoolExecutor(4) as pool:
                for _ in range(3):
                    found = list(pool.map(model.predict, lines))
                    self.assertEqual(found, expected)

    @needs_onnxruntime
    def test_what_onnx_cannot_express(self):
        config = dataclasses.replace(toy.CONFIG, bilstm=True)
        folder = self.random_checkpoint(BertTagger(config, 3))
        toy.write_config(folder, config)
        self.assertEqual(bert_tf.load(folder).runtime, "keras")
        with self.assertRaisesRegex(
            InputError, "bilstm, which our ONNX graph does not"
        ):
            bert_tf.load(folder, runtime="onnxruntime")
        folder = self.random_checkpoint(
            BertClassifier(toy.CONFIG, 3, window_pooling="attention")
        )
        self.assertEqual(bert_tf.load(folder).runtime, "keras")
        with self.assertRaisesRegex(InputError, "several windows .*runtime=keras"):
            bert_tf.load(folder, runtime="onnxruntime")

    def test_a_runtime_that_is_not_there(self):
        folder = self.random_checkpoint(BertClassifier(toy.CONFIG, 3))
        with self.assertRaisesRegex(InputError, "`runtime=torch` must be one of auto"):
            bert_tf.load(folder, runtime="torch")
        with mock.patch.object(importlib.util, "find_spec", return_value=None):
            self.assertEqual(bert_tf.load(folder).runtime, "keras")
            with self.assertRaisesRegex(InputError, r"pip install 'bert-tf\[serve\]'"):
                bert_tf.load(folder, runtime="onnxruntime")

    def test_a_fork_after_a_prediction_is_refused(self):
        model = bert_tf.load(self.random_checkpoint(BertClassifier(toy.CONFIG, 3)))
        model.predict("w1")
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # it would wait for ever
            try:
                model.predict("w1")
            except InputError as error:
                os._exit(7 if "forked" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)

    def test_keras_own_calls_in_a_fork_are_refused(self):
        model = BertClassifier(toy.CONFIG, 3)
        with mock.patch.object(keras_backend, "_computed_in", os.getpid() + 1):
            for call in (model.predict, model.fit, model.evaluate):
                with self.assertRaisesRegex(InputError, "was forked from"):
                    call({"input_ids": np.array([[2, 3]])})

    def test_a_copy_opens_the_path_again(self):
        folder = self.random_checkpoint(BertClassifier(toy.CONFIG, 3))
        model = bert_tf.load(folder, max_length=7, batch_size=3)
        expected = model.predict("w1 w2")
        for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            self.assertIs(type(other), type(model))
            self.assertEqual(other.max_length, 7)
            self.assertEqual(other._batch_size, 3)
            self.assertEqual(other.predict("w1 w2"), expected)

    def test_fill_of_texts_of_other_lengths_alone_and_together(self):
        model = BertPretrainer(toy.CONFIG)
        folder = self.random_checkpoint(model)
        given = ["w1 [MASK] w3 w4 w5", "[MASK] w2", "w1 w2 [MASK] w4 [MASK]"]
        loaded = bert_tf.load(folder)
        together = loaded.fill(given)
        for text, expected in zip(given, together, strict=True):
            (alone,) = loaded.fill(text)
            self.assertLen(alone, text.count("[MASK]"))
            for one, other in zip(alone, expected, strict=True):
                self.assertEqual([g.token for g in one], [g.token for g in other])
                self.assertAllClose(
                    [g.probability for g in one], [g.probability for g in other]
                )
        with self.assertRaisesRegex(InputError, r"No \[MASK\]"):
            loaded.fill(["w1 [MASK]", "w2"])

    def test_answer_is_the_commands(self):
        folder = self.random_checkpoint(
            BertSpanPredictor(toy.CONFIG),
            tokens=answer_test.TOKENS,
            max_seq_length=14,
            doc_stride=4,
            max_query_length=4,
            version_2_with_negative=True,
        )
        question, context = answer_test.QUESTION, answer_test.CONTEXT
        given = f"--checkpoint={folder}", "--top_k=3", question
        file = f"--context_file={self.write('c.txt', context)}"
        lines = printed(answer_test.answer, file, *given).splitlines()
        stdin = io.TextIOWrapper(io.BytesIO(context.encode()))
        with mock.patch.object(sys, "stdin", stdin):
            again = printed(answer_test.answer, "--context_file=-", *given)
        self.assertEqual(again.splitlines(), lines)
        ((*found,),) = bert_tf.load(folder).answer(question, context, top_k=3)
        shown = [line for line in lines[1:] if "%" in line]
        self.assertEqual(
            [f"  {one.probability:7.2%}  {one.text or 'no answer'}" for one in found],
            shown,
        )
        sentences = 0
        for one in found:
            if one.span:
                self.assertEqual(context[slice(*one.span)], one.text)
                sentences += any(f"**{one.text}**" in line for line in lines)
        self.assertGreater(sentences, 0)
        twice = bert_tf.load(folder).answer([question] * 2, [context, "Denver beat."])
        one, again = found[0], twice[0][0]  # of batches of other sizes
        self.assertEqual((again.text, again.span), (one.text, one.span))
        self.assertAlmostEqual(again.probability, one.probability, places=6)
        self.assertLen(twice, 2)

    def test_tag_is_run_ners(self):
        labels = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
        folder = self.random_checkpoint(
            BertTagger(toy.CONFIG, 5), labels=labels, max_seq_length=10
        )
        given = texts(7, 5, most=30)
        rows = [json.dumps({"tokens": text.split()}) for text in given]
        cli.run_script(
            run_ner,
            do_predict=True,
            test_file=self.write_lines("test.jsonl", rows),
            init_checkpoint=folder,
            output_dir=self.path("predicted"),
            max_seq_length=10,
        )
        blocks = self.read("predicted", "test_predictions.txt").strip().split("\n\n")
        expected = [[line.split() for line in block.split("\n")] for block in blocks]
        found = bert_tf.load(folder, batch_size=3).tag(given)
        self.assertEqual(
            [[list(pair) for pair in zip(*one[:2], strict=True)] for one in found],
            expected,
        )
        entities = [entity for one in found for entity in one.entities]
        self.assertNotEmpty(entities)
        for one in found:
            for entity in one.entities:
                first, last = entity.span[0], entity.span[1] - 1
                self.assertEndsWith(one.labels[first], entity.type)
                self.assertEqual(entity.text, " ".join(one.words[first : last + 1]))
        self.assertEqual(bert_tf.load(folder).tag([given[0].split()])[0], found[0])

    def test_tag_of_text_without_spaces(self):
        text, characters = "人人生而自由。 世界宣言", [*"人人生而自由。世界宣言"]
        tokens = [*TOKENS[:5], "。", *sorted({*characters} - {"。"})]
        folder = self.random_checkpoint(
            BertTagger(toy.CONFIG, 3),
            tokens=tokens,
            labels=("O", "B-PER", "I-PER"),
            max_seq_length=16,
        )
        (by_words,) = bert_tf.load(folder).tag([characters])
        for words in (None, TrainedWords(longest=1, splits_cjk=True)):
            if words is not None:
                write_words(folder, words)
            with self.assertNoLogs("absl", "WARNING"):
                (found,) = bert_tf.load(folder).tag(text)
            self.assertEqual(found[:2], by_words[:2])
            self.assertNotEmpty(found.entities)
            glued = "".join(text.split())
            for entity in found.entities:
                said = glued[slice(*entity.span)]
                self.assertEqual("".join(entity.text.split()), said)
                self.assertIn(entity.text, text)
        # Trained on words of several characters.
        write_words(folder, TrainedWords(longest=2, splits_cjk=False))
        with self.assertNoLogs("absl", "WARNING"):
            (found,) = bert_tf.load(folder).tag(text)
        self.assertEqual(found.words, tuple(text.split()))
        export.write_huggingface(self.folder("theirs"), open_source(folder))
        self.assertEqual(bert_tf.load(self.path("theirs")).tag(text), [found])
        with self.assertLogs("absl", "WARNING") as logs:
            bert_tf.load(folder).tag([[text], [text, "人"]])
        self.assertLen(logs.output, 1)
        self.assertRegex(
            logs.output[0], r"2 of 3 words have .* than 8 .*up to 11; .* training has 2"
        )

    def test_embed_is_extract_features(self):
        folder = self.random_checkpoint(BertEncoder(toy.CONFIG))
        firsts, seconds = texts(9, 1, most=5), texts(9, 2, most=5)
        rows = zip(firsts, seconds, strict=True)
        cli.run_script(
            extract_features,
            token_vectors=False,
            input_file=self.write_lines("in.txt", [f"{a} ||| {b}" for a, b in rows]),
            output_file=self.path("out.npz"),
            init_checkpoint=folder,
            max_seq_length=16,
            layers="-1",
            format="npz",
            sentence_vectors="pooled,cls,mean,max",
        )
        # A run of pre-training has a flag whose default is not its records' length.
        self.write(f"{folder}/flags.json", {"max_seq_length": 128})
        model = bert_tf.load(folder, batch_size=4)
        self.assertEqual(model.max_length, 16)
        self.assertEqual(type(model).__name__, "TextModel")
        with np.load(self.path("out.npz")) as expected:
            for pooling in ("pooled", "cls", "mean", "max"):
                found = model.embed(firsts, seconds, pooling=pooling)
                self.assertEqual(found.dtype, np.float32)
                self.assertAllClose(found, expected[pooling].reshape(9, -1), atol=1e-5)
        for text in ("w1", "w1 " * 50):
            self.assertEqual(model.embed(text).shape, (1, toy.CONFIG.hidden_size))

    def test_what_is_no_text_is_refused_by_every_method(self):
        lengths = {"max_query_length": 4, "doc_stride": 4}
        for head, options, calls in (
            (BertClassifier(toy.CONFIG, 3), {}, [lambda one, x: one.predict(x)]),
            (BertPretrainer(toy.CONFIG), {}, [lambda one, x: one.fill(x)]),
            (BertTagger(toy.CONFIG, 3), {}, [lambda one, x: one.tag(x)]),
            (
                BertMultipleChoice(toy.CONFIG),
                {},
                [
                    lambda one, x: one.choose(x, ["w1", "w2"]),
                    lambda one, x: one.choose("w1", x),
                    lambda one, x: one.choose(["w1"], [x]),
                ],
            ),
            (
                BertSpanPredictor(toy.CONFIG),
                lengths,
                [
                    lambda one, x: one.answer(x, "w1"),
                    lambda one, x: one.answer("w1", [x]),
                ],
            ),
        ):
            folder = self.random_checkpoint(head, **options)
            model = bert_tf.load(folder)
            shutil.rmtree(folder)
            for call in (
                *calls,
                lambda one, x: one.embed(x),
                lambda one, x: one.embed(["w1"], [x] if x else 3),
            ):
                # A JSON body, no value, a column's missing value, bytes, a set.
                for given in ({"text": "w1"}, None, float("nan"), 3, b"w1", {"w1"}):
                    with self.assertRaises(InputError, msg=given):
                        call(model, given)

    def test_a_method_that_the_head_cannot_serve(self):
        choices = self.random_checkpoint(BertMultipleChoice(toy.CONFIG))
        with self.assertRaisesRegex(
            InputError, "of choices: it has `choose` and `embed`, not"
        ):
            bert_tf.load(choices).predict("w1")
        shutil.rmtree(choices)
        folder = self.random_checkpoint(BertTagger(toy.CONFIG, 2), labels=("O", "N"))
        model = bert_tf.load(folder)
        for name in ("predict", "fill", "answer"):
            with self.assertRaisesRegex(
                InputError,
                f"run is a tagger: it has `tag`, `explain` and `embed`, not `{name}",
            ):
                getattr(model, name)("w1", *["w2"] * (name == "answer"))
        # Its labels spell no entities, and it has no pooler.
        self.assertEqual(model.tag([]), [])
        (found,) = model.tag("w1 w2")
        self.assertEqual((found.words, found.entities), (("w1", "w2"), ()))
        with self.assertRaisesRegex(InputError, "no pooler: `pooling`"):
            model.embed("w1", pooling="pooled")
        with self.assertRaisesRegex(ValueError, "`pooling=.*` must be one of"):
            model.embed("w1", pooling="sum")
        with self.assertRaisesRegex(InputError, r"Text 1 \(from 0\) must have a word"):
            model.tag(["w1", " "])
        for max_length in (4, 17):
            with self.assertRaisesRegex(InputError, "5 and the model's 16 positions"):
                bert_tf.load(folder, max_length=max_length)
        self.assertRegex(repr(model), r"^WordTagger\('.*run', labels=\[")
