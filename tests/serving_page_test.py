"""docs/serving.md, whose blocks need ONNX Runtime and FastAPI: `make test-exports`."""

import contextlib
import importlib
import io
import pathlib
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from tests.readme import markdown
from tests.script_case import FolderCase

pytestmark = pytest.mark.checkout
testclient = pytest.importorskip("fastapi.testclient")
pytest.importorskip("onnxruntime")

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "serving.md"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS += ["a", "fine", "film", "waste", "of", "time", "."]


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
        rng = np.random.default_rng(0)
        for weight in model.weights:
            weight.assign(rng.normal(0.0, 0.5, weight.shape))
        bert_tf.save(model, "films", tokenizer, labels=["bad", "good"], max_length=32)
        blocks = markdown.blocks(PAGE.read_text("utf-8"))
        self.python = [b.text for b in blocks if b.language == "python" and not b.title]
        (self.server,) = (b.text for b in blocks if b.title == "server.py")
        commands = "\n".join(b.text for b in blocks if b.language == "sh")
        self.commands = commands.replace("\\\n", " ")

    def test_the_same_labels_everywhere(self):
        loading, runtime = self.python
        texts = ["A fine film.", "A waste of time."]
        expected = bert_tf.load("films", runtime="keras").predict(texts)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(loading, {})
        for one in expected:
            self.assertIn(f"label='{one.label}'", printed.getvalue())
        # Without TensorFlow.
        (line,) = re.findall(r"bert_tf\.export_model (.*)", self.commands)
        options = dict(one.split("=") for one in line.replace("--", "").split())
        bert_tf.export(options.pop("checkpoint"), **options)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(runtime, {})
        labels = [one.label for one in expected]
        self.assertEqual(printed.getvalue().strip(), str(labels))
        # The server; many ask at once.
        pathlib.Path("server.py").write_text(self.server, "utf-8")
        self.enterContext(_imports_from("."))
        app = importlib.import_module("server").app
        asked = [texts[number % 2] for number in range(40)]
        with testclient.TestClient(app) as client, ThreadPoolExecutor(8) as threads:
            answers = list(
                threads.map(lambda x: client.get("/predict", params={"text": x}), asked)
            )
        for number, answer in enumerate(answers):
            one = expected[number % 2]
            self.assertEqual(answer.json()["label"], one.label)
            for label, share in answer.json()["probabilities"].items():
                self.assertAllClose(share, one.probabilities[label], atol=1e-5)


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
