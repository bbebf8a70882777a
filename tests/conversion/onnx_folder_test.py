"""The folder of an ONNX export, opened by fastembed: `make test-exports`."""

import numpy as np
import pytest
from absl.testing import parameterized

import bert_tf
from bert_tf.conversion.source import Format, open_reading, open_source
from bert_tf.modeling.encoder import BertEncoder
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import FolderCase
from tests.training import toy

fastembed = pytest.importorskip("fastembed")
pytest.importorskip("onnxruntime")
from fastembed.common import model_description  # noqa: E402

# The last one is longer than the 9 tokens of the run.
TEXTS = ["the cat", "cat", "the the cat the", "cat the " * 6]


class OnnxFolderTest(FolderCase, parameterized.TestCase):
    @parameterized.parameters(("mean", True), ("max", False), ("cls", True))
    def test_vectors_of_a_run(self, pooling, normalize):
        model = BertEncoder(toy.CONFIG, use_pooler=False)
        randomize(model)
        run = runs.save(self.path("run"), model, config=toy.CONFIG)
        flags = {"pooling": pooling, "normalize": normalize, "max_seq_length": 9}
        self.write("run/flags.json", flags)
        expected = bert_tf.load(run, runtime="keras").embed(TEXTS)
        exported = self.path("exported")
        bert_tf.export(run, exported, format="onnx")
        # One of the file's outputs; and the tokens' vectors, pooled by fastembed.
        ways = {"": ("DISABLED", False, "sentence_embedding")}
        if pooling != "max":  # which it lacks
            ways["pooled"] = (pooling.upper(), normalize, None)
        for name, (kind, normalizes, output) in ways.items():
            name = f"{name} {exported}"
            fastembed.TextEmbedding.add_custom_model(
                name,
                pooling=model_description.PoolingType(kind),
                normalization=normalizes,
                sources=model_description.ModelSource(hf=name),
                dim=toy.CONFIG.hidden_size,
                model_file="model.onnx",
                output_name=output,
            )
            theirs = fastembed.TextEmbedding(name, specific_model_path=exported)
            self.assertAllClose(
                np.stack([*theirs.embed(TEXTS)]), expected, atol=1e-5, rtol=1e-5
            )
        # What sentence-transformers reads, and this package too.
        self.assertEqual(open_source(exported).format, Format.ONNX)
        reading = open_reading(exported)
        self.assertEqual(
            (reading.max_seq_length, reading.pooling, reading.normalize),
            (9, pooling, normalize),
        )
        again = bert_tf.load(exported)
        self.assertEqual((again.runtime, again.max_length), ("onnxruntime", 9))
        self.assertAllClose(again.embed(TEXTS), expected, atol=1e-5, rtol=1e-5)
