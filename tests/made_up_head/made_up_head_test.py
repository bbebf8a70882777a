"""The head of this folder does what the package's own heads do."""

import importlib
import importlib.util
import json
import sys
import unittest
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.addons.serving import export_model, predict
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.loading import load_model
from bert_tf.conversion.source import open_source
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.training import reporting
from tests.modeling import numpy_bert
from tests.processes import run_python
from tests.script_case import ScriptCase, printed

WORDS = ("high", "low", "a", "b")
# A text with one of these has a number with this mean and this deviation.
NUMBERS = {"high": (1.0, 0.05), "low": (-1.0, 0.5)}
TEXTS = ["a high", "low b a", "high"]
SERVE = """
import json, sys
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
found = model.signatures["one_text"](text_a=tf.constant(json.loads(sys.argv[2])))
assert "bert_tf" not in sys.modules and "tests.made_up_head" not in sys.modules
print(json.dumps({name: x.numpy().tolist() for name, x in found.items()}))
"""


class MadeUpHeadTest(ScriptCase):
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)

    def setUp(self):
        super().setUp()
        # As a user's program imports it; afterwards the table is as before.
        self.enter_context(mock.patch.dict(names.HEADS))
        sys.modules.pop("tests.made_up_head", None)
        importlib.import_module("tests.made_up_head")
        self.script = importlib.import_module("tests.made_up_head.task")
        rng = np.random.default_rng(1)
        for name, count in (("train", 128), ("dev", 40)):
            lines = ["text,number"]
            for _ in range(count):
                word = WORDS[rng.integers(2)]
                text = rng.permutation([word, *rng.choice(["a", "b"], 2)])
                lines.append(f"{' '.join(text)},{rng.normal(*NUMBERS[word])}")
            self.write(f"{name}.csv", "\n".join(lines))

    def defaults(self):
        return {
            **{f"{name}_file": self.path(f"{name}.csv") for name in ("train", "dev")},
            "max_seq_length": 8,
            "train_batch_size": 16,
            "length_buckets": 1,
            "learning_rate": 0.01,
        }

    def test_it_learns_the_numbers_and_their_noise(self):
        scores = self.run_script("--do_train", "--do_eval", num_train_epochs=30).scores
        sure, unsure, _ = bert_tf.load(self.path("run")).predict(TEXTS)
        self.assertAllClose([sure.mean, unsure.mean], [1.0, -1.0], atol=0.25)
        self.assertLess(sure.deviation, 0.2)
        self.assertBetween(unsure.deviation, 0.3, 0.75)
        # The mean error of a normal distribution is its deviation times sqrt(2 / pi).
        self.assertBetween(scores["error"], 0.15, 0.35)

    def test_a_run_that_was_stopped_ends_bit_identical(self):
        options = {"num_train_epochs": 1, "save_checkpoints_steps": 2, "log_steps": 2}
        self.run_script("--do_train", output_dir=self.path("whole"), **options)
        report = reporting.Reporter.report

        def report_and_die(self, step, metrics):
            report(self, step, metrics)
            if step == 4:
                raise SystemExit("killed")

        with (
            mock.patch.object(reporting.Reporter, "report", report_and_die),
            self.assertRaises(SystemExit),
        ):
            self.run_script("--do_train", **options)
        self.run_script("--do_train", **options)
        whole, resumed = (open_source(self.path(n)).weights for n in ("whole", "run"))
        self.assertEqual({*whole}, {*resumed})
        for name in whole:
            self.assertAllEqual(whole[name], resumed[name], name)

    def trained(self):
        """A run's folder."""
        self.run_script("--do_train", num_train_epochs=20)
        return self.path("run")

    def expected(self, folder):
        """The mean and the deviation of TEXTS, in numpy."""
        model = load_model(open_source(folder), "normal distribution")
        weights = {n: v.numpy() for n, v in weights_by_name(model).items()}
        tokenizer = bert_tf.load_tokenizer(folder)
        found = []
        for text in TEXTS:
            record = {name: x[0] for name, x in tokenizer([text]).items()}
            states, _ = numpy_bert.sequence_outputs(weights, model.bert_config, record)
            pooled = numpy_bert.pooled_output(weights, states[-1])
            mean, log = numpy_bert.output_logits(weights, "cls/normal/", pooled)
            found.append([mean, np.exp(log) ** 0.5])
        return np.array(found)

    def test_it_is_loaded_and_predicts(self):
        folder = self.trained()
        expected = self.expected(folder)
        model = bert_tf.load(folder)
        self.assertAllClose(model.predict(TEXTS), expected, atol=1e-4, rtol=1e-4)
        with self.assertRaisesRegex(InputError, "it has `predict` and `embed`, not"):
            model.tag(TEXTS)
        with self.assertRaisesRegex(InputError, "no class with these heads: normal"):
            export_model.export(folder, self.path("hub"), format="huggingface")

        lines = ["text,id", *(f"{text},1" for text in TEXTS)]
        paths = {
            "checkpoint": folder,
            "input_file": self.write("texts.csv", "\n".join(lines)),
            "output_file": self.path("found.jsonl"),
        }
        printed(predict, *(f"--{name}={path}" for name, path in paths.items()))
        rows = self.read_json_lines("found.jsonl")
        found = [[row["prediction"], row["deviation"]] for row in rows]
        self.assertAllClose(found, expected, atol=1e-4, rtol=1e-4)
        self.assertEqual([row["text"] for row in rows], TEXTS)

    @pytest.mark.slow
    def test_it_is_served_by_tensorflow_alone(self):
        folder, served = self.trained(), self.path("served")
        export_model.export(folder, served, format="saved_model")
        ran = run_python("-c", SERVE, served, json.dumps(TEXTS))
        self.assertEqual(ran.returncode, 0, ran.stderr[-2000:])
        found = json.loads(ran.stdout)
        both = np.stack([found["mean"], found["deviation"]], axis=1)
        self.assertAllClose(both, self.expected(folder), atol=1e-4, rtol=1e-4)

    @unittest.skipUnless(importlib.util.find_spec("onnxruntime"), "the extra `serve`")
    def test_onnx(self):
        folder = self.trained()
        expected = self.expected(folder)
        exported = self.path("onnx")
        export_model.export(folder, exported, format="onnx")
        for path in (folder, exported):
            model = bert_tf.load(path, runtime="onnxruntime")
            found = model.predict(TEXTS)
            self.assertAllClose(found, expected, atol=1e-4, rtol=1e-4)


if __name__ == "__main__":
    tf.test.main()
