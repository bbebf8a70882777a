"""docs/serving.md, whose blocks need ONNX Runtime and FastAPI: `make test-exports`."""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.modeling.encoder import BertEncoder
from tests.addons.serving.text_models_test import SERVERS_PACKAGES
from tests.readme import markdown
from tests.readme.commands import commands
from tests.script_case import FolderCase

pytestmark = pytest.mark.checkout
testclient = pytest.importorskip("fastapi.testclient")
pytest.importorskip("onnxruntime")

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "serving.md"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS += ["a", "fine", "film", "waste", "of", "time", "."]
TEXTS = ["A fine film.", "A waste of time."]
# A folder with @huggingface/transformers: `npm install --ignore-scripts` makes it.
NODE_MODULES = os.environ.get("NODE_MODULES", "")


class ServingPageTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.enterContext(contextlib.chdir(self.get_temp_dir()))
        tokenizer = bert_tf.WordPieceTokenizer(bert_tf.Vocabulary(TOKENS))
        config = bert_tf.BertConfig(
            vocab_size=len(TOKENS),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
        )
        model = bert_tf.BertClassifier(config, num_labels=2)
        encoder = BertEncoder(config)
        rng = np.random.default_rng(0)
        for weight in (*model.weights, *encoder.weights):
            weight.assign(rng.normal(0.0, 0.5, weight.shape))
        bert_tf.save(model, "films", tokenizer, labels=["bad", "good"], max_length=32)
        bert_tf.save(encoder, "vectors", tokenizer, max_length=32)
        reading = {"max_seq_length": 32, "pooling": "mean", "normalize": True}
        self.write("vectors/reading.json", reading)
        text = PAGE.read_text("utf-8")
        blocks = markdown.blocks(text)
        self.python = [b.text for b in blocks if b.language == "python" and not b.title]
        self.files = {b.title: b.text for b in blocks if b.title}
        self.commands = [words for one in commands(text) for words in one.parts()]
        self.expected = bert_tf.load("films", runtime="keras").predict(TEXTS)
        self.labels = [one.label for one in self.expected]

    def export(self, folder):
        """What the page's command for a folder writes."""
        (flags,) = (
            dict(flag.removeprefix("--").split("=") for flag in words[3:])
            for words in self.commands
            if f"--output_dir={folder}" in words
        )
        bert_tf.export(flags.pop("checkpoint"), **flags)

    def printed(self, block):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(block, {})
        return printed.getvalue()

    def test_the_same_labels_everywhere(self):
        loading, runtime, _ = self.python
        printed = self.printed(loading)
        for label in self.labels:
            self.assertIn(f"label='{label}'", printed)
        # Without TensorFlow.
        self.export("films_onnx")
        self.assertEqual(self.printed(runtime).strip(), str(self.labels))
        # The server; many ask at once.
        self.write("server.py", self.files["server.py"])
        self.enterContext(_imports_from("."))
        app = importlib.import_module("server").app
        asked = [TEXTS[number % 2] for number in range(40)]
        with testclient.TestClient(app) as client, ThreadPoolExecutor(8) as threads:
            answers = list(
                threads.map(lambda x: client.post("/predict", json={"text": x}), asked)
            )
        for number, answer in enumerate(answers):
            one = self.expected[number % 2]
            self.assertEqual(answer.json()["label"], one.label)
            for label, share in answer.json()["probabilities"].items():
                self.assertAllClose(share, one.probabilities[label], atol=1e-5)

    def test_what_a_server_installs(self):
        self.assertIn(["pip", "install", "bert-tf[serve]"], self.commands)
        installed = [
            re.match(r"[\w-]+", line)[0]
            for line in importlib.metadata.requires("bert-tf")
            if "extra" not in line or 'extra == "serve"' in line
        ]
        self.assertContainsSubset(installed, SERVERS_PACKAGES)
        self.assertNotIn("tensorflow", SERVERS_PACKAGES)

    @pytest.mark.skipif(
        importlib.util.find_spec("fastembed") is None,
        reason="fastembed is in the environment of `make test-exports`",
    )
    def test_fastembed(self):
        self.export("vectors_onnx")
        names = {}
        exec(self.python[-1], names)
        expected = bert_tf.load("vectors", runtime="keras").embed(TEXTS)
        self.assertAllClose(names["vectors"], expected, atol=1e-5)

    @pytest.mark.skipif(
        not (NODE_MODULES and shutil.which("node")),
        reason="needs node, and NODE_MODULES, a folder with @huggingface/transformers",
    )
    def test_javascript(self):
        self.export("films_onnx")
        self.assertIn(["node", "classify.mjs"], self.commands)
        # Node looks for packages next to the file.
        folder = os.path.dirname(os.path.abspath(NODE_MODULES))
        with tempfile.NamedTemporaryFile("w", suffix=".mjs", dir=folder) as file:
            file.write(self.files["classify.mjs"])
            file.flush()
            done = subprocess.run(
                ["node", file.name], capture_output=True, text=True, check=False
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        found = re.findall(r"label: '(\w+)', score: ([\d.]+)", done.stdout)
        self.assertEqual([label for label, _ in found], self.labels)
        for (label, score), one in zip(found, self.expected, strict=True):
            self.assertAllClose(float(score), one.probabilities[label], atol=1e-5)

    def test_the_request_is_the_signatures(self):
        """TensorFlow Serving itself is not installed."""
        self.export("films_served/1")
        (request,) = (words for words in self.commands if words[0] == "curl")
        (server,) = (shlex.join(x) for x in self.commands if x[0] == "docker")
        _, address, option, body = request
        port, name = re.fullmatch(
            r"http://localhost:(\d+)/v1/models/(\w+):predict", address
        ).groups()
        for part in (f"{port}:{port}", f"MODEL_NAME={name}", f":/models/{name}"):
            self.assertIn(part, server)
        self.assertEqual(option, "-d")
        asked = json.loads(body)
        signatures = tf.saved_model.load("films_served/1").signatures
        signature = signatures[asked["signature_name"]]
        self.assertEqual({*asked["inputs"]}, {*signature.structured_input_signature[1]})
        outputs = signature(**{n: tf.constant(x) for n, x in asked["inputs"].items()})
        self.assertEqual({*outputs}, {"label", "probabilities", "logits"})
        self.assertEqual([x.decode() for x in outputs["label"].numpy()], self.labels)


@contextlib.contextmanager
def _imports_from(folder):
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        sys.modules.pop("server", None)


if __name__ == "__main__":
    tf.test.main()
