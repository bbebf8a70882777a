"""What a folder of sentence-transformers says is obeyed, or its vectors are refused.

Which settings change vectors is as in the code of sentence-transformers 6.2.0.
"""

import json
import os

from absl.testing import parameterized

import bert_tf
from bert_tf.addons.methods.embeddings import with_settings
from bert_tf.addons.methods.embeddings_options import EmbeddingOptions
from bert_tf.base.errors import InputError
from bert_tf.conversion.source import open_reading
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.tasks.feature_extraction import extract_features
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import FolderCase
from tests.training import toy

MODULES, LENGTHS = "modules.json", "sentence_bert_config.json"
WHOLE, POOLING = "config_sentence_transformers.json", "1_Pooling/config.json"
TEXTS = ["the cat", "the the cat the"]
FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}


def modules(*kinds):
    return [
        {"idx": n, "path": f"{n}_{kind}" if n else "", "type": kind}
        for n, kind in enumerate(kinds)
    ]


def of_package(*names):
    return modules(*(f"sentence_transformers.models.{name}" for name in names))


class FolderTest(FolderCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        model = BertEncoder(toy.CONFIG, use_pooler=False)
        randomize(model)
        run = runs.save(self.path("run"), model, config=toy.CONFIG)
        self.folder = self.path("model")
        bert_tf.export(run, self.folder, format="sentence_transformers")
        self.whole = bert_tf.load(self.folder, runtime="keras").embed(TEXTS)

    def change(self, name, content):
        path = os.path.join(self.folder, name)
        if isinstance(content, dict) and os.path.exists(path):
            with open(path) as file:
                content = json.load(file) | content
        self.write(path, content)

    @parameterized.parameters(
        (MODULES, of_package("Transformer", "Pooling", "Dense"), "Pooling, Dense"),
        (MODULES, of_package("Transformer", "Pooling", "LayerNorm"), "LayerNorm"),
        (MODULES, of_package("Transformer", "Dense", "Pooling"), "Dense, Pooling"),
        (MODULES, of_package("Transformer", "Normalize", "Pooling"), "Normalize, Po"),
        (MODULES, of_package("Transformer", "WeightedLayerPooling", "Pooling"), "Weig"),
        (MODULES, of_package("WordEmbeddings", "Pooling"), "WordEmbeddings"),
        (MODULES, of_package("Pooling"), "has Pooling"),
        (MODULES, modules("mine.Transformer", "mine.Pooling"), "mine.Transformer"),
        (POOLING, {"pooling_mode": "weightedmean"}, 'pooling_mode="weightedmean"'),
        (POOLING, {"pooling_mode": ["cls", "mean"]}, "pooling_mode=.*cls"),
        (POOLING, {"pooling_mode_max_tokens": True}, "pooling_mode=.mean_.*max_tokens"),
        (LENGTHS, {"transformer_task": "fill-mask"}, 'transformer_task="fill-mask"'),
        (LENGTHS, {"modality_config": {"text": {}}}, "modality_config"),
        (LENGTHS, {"tokenizer_args": {"padding_side": "left"}}, "tokenizer_args"),
        (
            WHOLE,
            {"prompts": {"q": "the "}, "default_prompt_name": "q"},
            "default_prompt_name='q'",
        ),
        (WHOLE, {"truncate_dim": 4}, "truncate_dim=4"),
    )
    def test_there_are_no_vectors(self, name, content, message):
        self.change(name, content)
        model = bert_tf.load(self.folder, runtime="keras")
        with self.assertRaisesRegex(InputError, f"{message}.*Without modules.json"):
            model.embed(TEXTS)
        # Nor from a command. The encoder can be used.
        with self.assertRaisesRegex(InputError, message):
            with_settings(
                EmbeddingOptions(
                    init_checkpoint=self.folder,
                    output_dir="run",
                    dev_file="pairs.tsv",
                    do_eval=True,
                )
            )
        for kind in ("sentence_transformers", "saved_model"):
            with self.assertRaisesRegex(InputError, message):
                bert_tf.export(self.folder, self.path("other"), format=kind)
        self.assertEqual(bert_tf.load_encoder(self.folder).bert_config.hidden_size, 8)

    @parameterized.parameters(
        (MODULES, of_package("Transformer", "Dropout", "Pooling")),
        (MODULES, of_package("BERT", "Pooling")),
        (POOLING, {"pooling_mode": ["mean"], "include_prompt": False}),
        (LENGTHS, {"do_lower_case": True, "query_length": 3, "unpad_inputs": True}),
        (LENGTHS, {"transformer_task": "feature-extraction", "processing_kwargs": {}}),
        (LENGTHS, {"modality_config": {"text": FORWARD}, "tokenizer_args": {}}),
        (WHOLE, {"prompts": {"query": "the "}, "default_prompt_name": None}),
        (WHOLE, {"prompts": {"q": ""}, "default_prompt_name": "q"}),
        (WHOLE, {"truncate_dim": 8, "similarity_fn_name": "dot"}),
    )
    def test_what_cannot_change_them(self, name, content):
        self.change("tokenizer_config.json", {"do_lower_case": True})
        self.change(name, content)
        vectors = bert_tf.load(self.folder, runtime="keras").embed(TEXTS)
        self.assertAllEqual(vectors, self.whole)

    def test_the_newest_version_has_the_length_in_the_tokenizers_file(self):
        self.change(LENGTHS, {"max_seq_length": None})
        for length, expected in ((7, 7), (10**30, toy.CONFIG.max_position_embeddings)):
            self.change("tokenizer_config.json", {"model_max_length": length})
            self.assertEqual(open_reading(self.folder).max_seq_length, expected)

    def test_vectors_of_tokens_alone_are_the_encoders(self):
        self.change(MODULES, of_package("Transformer", "Pooling", "Dense"))
        self.write("texts", "the cat\n")
        options = {
            "input_file": self.path("texts"),
            "output_file": self.path("features"),
            "init_checkpoint": self.folder,
            "layers": ("-1",),
            "max_seq_length": 8,
        }
        kind = extract_features.ExtractionOptions
        with self.assertRaisesRegex(InputError, "Dense"):
            extract_features.run(kind(**options, sentence_vectors=("mean",)))
        extract_features.run(kind(**options))
        self.assertTrue(os.path.exists(self.path("features")))
