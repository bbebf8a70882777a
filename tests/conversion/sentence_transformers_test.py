import os

import numpy as np
from absl.testing import parameterized

import bert_tf
from bert_tf.conversion.source import open_reading
from bert_tf.modeling.encoder import BertEncoder
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import FolderCase
from tests.training import toy

TEXTS = ["the cat", "cat", "the the cat the"]


class SentenceTransformersTest(FolderCase, parameterized.TestCase):
    @parameterized.parameters(("mean", True), ("max", False), ("cls", True))
    def test_export_and_import(self, pooling, normalize):
        """A run's folder, and what is made of it, give the same vectors."""
        model = BertEncoder(toy.CONFIG, use_pooler=False)
        randomize(model)
        run = runs.save(self.path("run"), model, config=toy.CONFIG)
        flags = {"pooling": pooling, "normalize": normalize, "max_seq_length": 9}
        self.write("run/flags.json", flags)
        opened = bert_tf.load(run, runtime="keras")
        vectors = opened.embed(TEXTS)
        bare = opened.embed(TEXTS, pooling=pooling, normalize=False)
        lengths = np.linalg.norm(bare, axis=1, keepdims=True)
        self.assertAllClose(vectors, bare / lengths if normalize else bare, rtol=1e-6)
        exported = self.path("exported")
        bert_tf.export(run, exported, format="sentence_transformers")
        os.remove(os.path.join(exported, "reading.json"))
        reading = open_reading(exported)
        self.assertEqual(
            (reading.max_seq_length, reading.pooling, reading.normalize),
            (9, pooling, normalize),
        )
        again = bert_tf.load(exported, runtime="keras")
        self.assertEqual(again.max_length, 9)
        self.assertAllClose(again.embed(TEXTS), vectors, rtol=1e-6)
        # As sentence-transformers 6.2.0 reads them.
        modules = self.read_json("exported", "modules.json")
        kinds = ["Transformer", "Pooling", *["Normalize"] * normalize]
        self.assertEqual([one["type"].split(".")[-1] for one in modules], kinds)
        modes = self.read_json("exported", "1_Pooling", "config.json")
        self.assertEqual(modes.pop("word_embedding_dimension"), 8)
        theirs = {"mean": "mean_tokens", "max": "max_tokens", "cls": "cls_token"}
        chosen = [name for name, is_on in modes.items() if is_on]
        self.assertEqual(chosen, [f"pooling_mode_{theirs[pooling]}"])
