"""Longformer's folders, with the numbers of transformers 5.24."""

import dataclasses
import json

import numpy as np
import safetensors.numpy
from absl.testing import parameterized

from bert_tf.addons.methods.long_texts import lengthened
from bert_tf.base.errors import InputError
from bert_tf.conversion import export, loading
from bert_tf.conversion.source import open_source
from bert_tf.modeling import heads
from bert_tf.modeling.weight_names import weights_by_name
from tests.script_case import FolderCase

# H 8, F 12, V 11, 16 positions behind the padding's.
_LAYER = {
    "attention.output.LayerNorm": (8,),
    "attention.output.dense": (8, 8),
    **{
        f"attention.self.{part}{of}": (8, 8)
        for part in ("key", "query", "value")
        for of in ("", "_global")
    },
    "intermediate.dense": (12, 8),
    "output.LayerNorm": (8,),
    "output.dense": (8, 12),
}
_ENCODER = {
    "embeddings.LayerNorm": (8,),
    "embeddings.position_embeddings": (17, 8),
    "embeddings.token_type_embeddings": (2, 8),
    "embeddings.word_embeddings": (11, 8),
    **{
        f"encoder.layer.{i}.{n}": shape for i in range(2) for n, shape in _LAYER.items()
    },
}
CLASSIFIER, MASKED_LM = "LongformerForSequenceClassification", "LongformerForMaskedLM"
_HEADS = {
    CLASSIFIER: {"classifier.dense": (8, 8), "classifier.out_proj": (3, 8)},
    MASKED_LM: {"lm_head.dense": (8, 8), "lm_head.layer_norm": (8,)},
}
# What `save_pretrained` writes, without tokens' ids.
THEIR_CONFIG = json.loads("""
{"attention_probs_dropout_prob": 0.0, "attention_window": [4, 4], "dtype": "float32",
"hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 8,
"id2label": {"0": "a", "1": "b", "2": "c"}, "initializer_range": 0.02,
"intermediate_size": 12, "label2id": {"a": 0, "b": 1, "c": 2}, "layer_norm_eps": 1e-12,
"max_position_embeddings": 17, "model_type": "longformer", "num_attention_heads": 2,
"num_hidden_layers": 2, "onnx_export": false, "pad_token_id": 0,
"tie_word_embeddings": true, "type_vocab_size": 2, "vocab_size": 11}
""")
IDS = np.array([[2, 7, 10, 4, 9, 5, 8, 6, 7, 9, 3], [2, 5, 6, 3, 9, 9, 3, 0, 0, 0, 0]])
INPUTS = {
    "input_ids": IDS,
    "input_mask": (IDS > 0).astype(int),
    "segment_ids": np.array([[0] * 6 + [1] * 5, [0] * 4 + [1] * 3 + [0] * 4]),
}
# Their logits of these inputs: [CLS] is global for classes, no token for the other.
CLASSES = [[0.222384, 0.369829, 1.596615], [0.261491, 0.419138, 1.592856]]
# Of three tokens of the vocabulary, at five places of both rows.
TOKENS = [
    [
        [0.806459, -0.362845, -1.078378],
        [0.791177, -0.368242, -1.078726],
        [0.809884, -0.357171, -1.035691],
        [0.799651, -0.362657, -1.053887],
        [0.795962, -0.367965, -1.090898],
    ],
    [
        [0.785266, -0.366719, -1.045886],
        [0.7514, -0.369652, -0.941113],
        [0.795789, -0.361503, -1.028041],
        [0.810522, -0.361414, -1.07797],
        [0.80027, -0.366309, -1.081438],
    ],
]


def tensors(name):
    """Random weights, drawn in the order of their names."""
    shapes = {f"longformer.{n}": shape for n, shape in _ENCODER.items()} | _HEADS[name]
    every = {}
    for layer, shape in shapes.items():
        every[f"{layer}.weight"] = shape
        if "_embeddings" not in layer:
            every[f"{layer}.bias"] = shape[:1]
    if name == MASKED_LM:
        every["lm_head.bias"] = (11,)
    rng = np.random.default_rng(5)
    return {
        n: (rng.normal(size=every[n]) * 0.5).astype(np.float32) for n in sorted(every)
    }


class LongformerTest(FolderCase, parameterized.TestCase):
    def theirs(self, name, **fields):
        folder = self.folder(name)
        safetensors.numpy.save_file(tensors(name), f"{folder}/model.safetensors")
        self.write(
            f"{name}/config.json", {**THEIR_CONFIG, "architectures": [name], **fields}
        )
        return folder

    def test_its_numbers_are_theirs(self):
        model = loading.load_classifier(self.theirs(CLASSIFIER))
        self.assertEqual(model.bert_config.attention_window, 2)
        self.assertEqual(model.bert_config.global_tokens, 1)
        self.assertAllClose(model(INPUTS)["logits"], CLASSES, rtol=0, atol=2e-6)
        model = loading.load_pretrainer(self.theirs(MASKED_LM))
        places = np.tile(np.arange(5), (2, 1))
        found = model({**INPUTS, "masked_lm_positions": places})["masked_lm_logits"]
        self.assertAllClose(found[:, :, :3], TOKENS, rtol=0, atol=2e-6)

    @parameterized.parameters(CLASSIFIER, MASKED_LM)
    def test_out_are_the_tensors_and_settings_that_came_in(self, name):
        source = open_source(self.theirs(name))
        export.write_huggingface(self.folder("ours"), source)
        stored = safetensors.numpy.load_file(self.path("ours", "model.safetensors"))
        expected = tensors(name)
        # The padding's row, which no token reads.
        table = "longformer.embeddings.position_embeddings.weight"
        expected[table] = np.concatenate([expected[table][1:2], expected[table][1:]])
        self.assertEqual(stored.keys(), expected.keys())
        for key, values in expected.items():
            self.assertAllEqual(stored[key], values, key)
        settings = {**THEIR_CONFIG, "architectures": [name]}
        for key, value in self.read_json("ours", "config.json").items():
            if key in settings:
                self.assertEqual(value, settings[key], key)

    def test_more_positions_than_the_config_has_are_not_cut(self):
        with self.assertRaisesRegex(InputError, r"position_embeddings.*16, 8.*15, 8"):
            loading.load_encoder(self.theirs(MASKED_LM, max_position_embeddings=16))

    def test_what_transformers_cannot_compute_is_refused(self):
        source = open_source(self.theirs(MASKED_LM, hidden_act="gelu_new"))
        self.assertEqual(source.config.masked_lm_hidden_act, "gelu_erf")
        for fields, message in (
            ({"attention_window": [4, 6]}, "the same even number in all layers"),
            ({"attention_window": 5}, "the same even number"),
            ({"attention_window": [[4], [4]]}, "the same even number"),
            ({"pad_token_id": None}, "must be integers. Received: 17 and None"),
            ({"max_position_embeddings": 99}, r"position_embeddings is \[\d+, 8\]"),
            ({"model_type": "big_bird"}, "Its random blocks are others"),
            (
                {"architectures": ["LongformerForMultipleChoice"]},
                "Longformer's classes",
            ),
        ):
            with self.assertRaisesRegex(InputError, message):
                open_source(self.theirs(MASKED_LM, **fields))

    def test_trained_projections_are_kept_where_no_token_used_them(self):
        """As of `LongformerModel`, whose global tokens are given with the inputs."""
        source = open_source(self.theirs(MASKED_LM))
        self.assertIsNone(source.config.global_tokens)
        name = "bert/encoder/layer_1/attention/self/query_global/kernel"
        trained = tensors(MASKED_LM)[
            "longformer.encoder.layer.1.attention.self.query_global.weight"
        ]
        long = dataclasses.replace(source.config, global_tokens=1)
        self.assertAllEqual(lengthened(source, long).weights[name], trained.T)
        encoder = loading.load_encoder(lengthened(source, long))
        self.assertAllEqual(weights_by_name(encoder)[name], trained.T)
        self.assertNotIn(name, weights_by_name(loading.load_encoder(source)))

    def test_other_global_tokens_than_theirs(self):
        source = open_source(self.theirs(CLASSIFIER, global_tokens=3))
        with self.assertRaisesRegex(InputError, "alone global, and here are 3 tokens"):
            export.write_huggingface(self.folder("ours"), source)
        config = source.require_config()
        self.assertEqual(heads.BertClassifier(config, 3).bert_config, config)
