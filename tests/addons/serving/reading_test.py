"""Every way to a prediction reads a long, a short and an empty text alike."""

import csv
import importlib.util
import io
import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

import bert_tf
from bert_tf.addons.serving import predict, runtimes
from bert_tf.conversion.reading import of_flags
from bert_tf.conversion.source import open_reading, open_source
from bert_tf.conversion.tokenizer_files import write_labels
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
from tests.script_case import FolderCase, printed
from tests.training import toy

WORDS = [f"w{number}" for number in range(20)]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
LONG = " ".join(np.random.default_rng(4).choice(WORDS, 40))
TEXTS = [LONG, "", "w3 w4"]
QUESTION = "w1 w2 w3 w4 w5"
ENDINGS = ["w5 w6", "w7"]

COLUMNS = {"text_a_column": "text", "text_b_column": None}
WINDOWS = {"long_text": "window", "window_pooling": "max", "doc_stride": 2}
OF_SPANS = {"doc_stride": 3, "max_query_length": 4, "max_answer_length": 3}
# Name -> the model, its labels, the run's flags.
RUNS = {
    "classifier": (
        lambda: BertClassifier(toy.CONFIG, 2),
        ["no", "yes"],
        {"max_seq_length": 9, **COLUMNS},
    ),
    "classifier in windows": (
        lambda: BertClassifier(toy.CONFIG, 2),
        ["no", "yes"],
        {"max_seq_length": 9, **COLUMNS, **WINDOWS},
    ),
    "tagger": (
        lambda: BertTagger(toy.CONFIG, 2),
        ["A", "B"],
        {"max_seq_length": 9, "doc_stride": 3},
    ),
    "span": (
        lambda: BertSpanPredictor(toy.CONFIG),
        None,
        {"max_seq_length": 12, **OF_SPANS},
    ),
    "choices": (
        lambda: BertMultipleChoice(toy.CONFIG),
        None,
        {"max_seq_length": 9, "premise_column": "text"},
    ),
    "vectors": (
        lambda: BertEncoder(toy.CONFIG, use_pooler=False),
        None,
        {"max_seq_length": 9, "pooling": "max", "normalize": True},
    ),
    "masks": (lambda: BertPretrainer(toy.CONFIG), None, {"max_seq_length": 9}),
}
HAS_ONNX = all(map(importlib.util.find_spec, ("onnx", "onnxruntime")))


def asked(model):
    """What a model says of the texts, whatever its method: a value for each."""
    if model.head == "a classifier":
        return [[*one.probabilities.values()] for one in model.predict(TEXTS)]
    if model.head == "a model of choices":
        found = model.choose(TEXTS, [ENDINGS] * len(TEXTS))
        return [[*one.probabilities.values()] for one in found]
    if model.head == "a model of SQuAD":
        found = model.answers_with_words([QUESTION] * len(TEXTS), TEXTS)
        return [each[0].text if each else "" for each in found]
    if model.head == "a tagger":
        # A text without a word is refused.
        long, short = model.tag([LONG, TEXTS[2]])
        return [list(long.labels), [], list(short.labels)]
    if model.head == "a masked language model":
        guesses = model.fill([f"[MASK] {text}"[:40] for text in TEXTS], top_k=3)
        return [[one.token for one in each[0]] for each in guesses]
    return model.embed(TEXTS).tolist()


def served(name, signature):
    """What a SavedModel's signature says of them."""
    texts = tf.constant(TEXTS)
    if name == "choices":
        of_endings = tf.constant([ENDINGS] * len(TEXTS))
        return signature(text_a=texts, text_b=of_endings)["probabilities"]
    if name == "span":
        questions = tf.constant([QUESTION] * len(TEXTS))
        found = signature(question=questions, context=texts)["answer"]
        return [answer.decode() for answer in found.numpy()]
    if name == "masks":
        found = signature(
            text_a=tf.constant([f"[MASK] {text}"[:40] for text in TEXTS])
        )["tokens"]
        return [[x.decode() for x in row[0][:3]] for row in found.numpy()]
    found = signature(text_a=texts)
    if name == "tagger":
        return [[x.decode() for x in row if x] for row in found["label"].numpy()]
    return found["max_output" if name == "vectors" else "probabilities"]


class ReadingTest(FolderCase, parameterized.TestCase):
    def run_of(self, name):
        """The folder of an earlier version's run, which has flags.json alone."""
        make_model, labels, flags = RUNS[name]
        model = make_model()
        randomize(model, 5)
        folder = runs.save(self.path("run"), model, tokens=TOKENS)
        write_labels(folder, labels, None)
        runs.write_json(flags, folder, "flags.json")
        return folder

    def assert_equal(self, found, expected):
        for one, other in zip(found, expected, strict=True):
            if isinstance(other, str) or (other and isinstance(other[0], str)):
                self.assertEqual(one, other)
            else:
                self.assertAllClose(one, other, atol=1e-5)

    @parameterized.parameters(*RUNS)
    def test_a_run_and_its_exports_read_alike(self, name):
        folder = self.run_of(name)
        model = bert_tf.load(folder, runtime="keras")
        expected = asked(model)
        for format_ in ("huggingface", "tf1"):
            exported = self.path(format_)
            bert_tf.export(folder, exported, format=format_)
            self.assertFalse(os.path.exists(self.path(format_, "flags.json")))
            again = bert_tf.load(exported, runtime="keras")
            self.assertEqual(again.reading, model.reading)
            self.assert_equal(asked(again), expected)
        # As a run of this version has it.
        of_flags(RUNS[name][2]).write(folder)
        os.remove(os.path.join(folder, "flags.json"))
        self.assert_equal(asked(bert_tf.load(folder, runtime="keras")), expected)
        self.assertEqual(open_source(folder).reading, model.reading)

    @parameterized.parameters(*RUNS)
    @pytest.mark.slow
    def test_a_saved_model_reads_alike(self, name):
        folder = self.run_of(name)
        with (
            mock.patch.object(tf.saved_model, "save") as save,
            mock.patch.object(runtimes, "check"),
        ):
            bert_tf.export(folder, self.path("saved"), format="saved_model")
        signatures = save.call_args.kwargs["signatures"]
        # Texts without pairs.
        signature = signatures["one_text" if name == "vectors" else "serving_default"]
        expected = asked(bert_tf.load(folder, runtime="keras"))
        self.assert_equal(served(name, signature), expected)

    @parameterized.parameters(*RUNS)
    @pytest.mark.skipif(not HAS_ONNX, reason="they are in `make test-exports`")
    def test_an_onnx_file_reads_alike(self, name):
        folder, exported = self.run_of(name), self.path("onnx")
        more = {"heads": ("masked_lm",)} if name == "masks" else {}
        bert_tf.export(folder, exported, format="onnx", **more)
        found = asked(bert_tf.load(exported))
        self.assert_equal(found, asked(bert_tf.load(folder, runtime="keras")))

    @parameterized.parameters("classifier", "vectors", "choices")
    def test_a_litert_file_reads_alike(self, name):
        if runtimes.litert() is None:
            self.skipTest("LiteRT is not installed")
        folder, exported = self.run_of(name), self.path("litert")
        bert_tf.export(folder, exported, format="litert")
        # It takes ids, which its reading says how to make.
        reading, tokenizer = open_reading(folder), bert_tf.load_tokenizer(folder)
        model = runtimes.LiteRtModel(os.path.join(exported, runtimes.LITERT_NAME))
        found = []
        for text in TEXTS:
            seconds = ENDINGS if name == "choices" else [None]
            ids = tokenizer(
                [text] * len(seconds),
                seconds,
                max_length=reading.max_seq_length,
                truncation=True,
            )
            inputs = {n: x[None] if name == "choices" else x for n, x in ids.items()}
            outputs = model(inputs)
            if name == "vectors":
                vector = outputs["sequence_output"][0].max(axis=0)
                found.append(vector / np.linalg.norm(vector))
            else:
                found.append(tf.nn.softmax(outputs["logits"][0]))
        self.assert_equal(found, asked(bert_tf.load(folder, runtime="keras")))

    @parameterized.parameters("classifier", "classifier in windows", "tagger", "span")
    def test_the_command_reads_alike(self, name):
        folder = self.run_of(name)
        expected = asked(bert_tf.load(folder))
        header, rows = ["text"], [[text] for text in TEXTS]
        if name == "span":
            header, rows = ["question", "context"], [[QUESTION, x] for x in TEXTS]
        table = io.StringIO()
        csv.writer(table).writerows([header, *rows])
        found = printed(
            predict,
            f"--checkpoint={folder}",
            f"--input_file={self.write('texts.csv', table.getvalue())}",
            "--max_unusable_rows=1",
        )
        read = list(csv.DictReader(io.StringIO(found, newline="")))
        if name.startswith("classifier"):
            said = [[float(row["p_no"]), float(row["p_yes"])] for row in read]
        else:
            said = [row["prediction"] for row in read]
        if name == "tagger":
            said = [labels.split() for labels in said]
        self.assert_equal(said, expected)
