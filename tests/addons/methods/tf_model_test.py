"""Files of transformers' TensorFlow classes; DistilBERTs. All names written out."""

import dataclasses
import os

import h5py
import numpy as np
import safetensors.numpy

from bert_tf.base.errors import InputError
from bert_tf.conversion import export, huggingface
from bert_tf.conversion.loading import load_classifier, load_encoder
from bert_tf.conversion.source import Format, find_format, open_source
from bert_tf.conversion.weights import Weights
from tests.conversion.huggingface_test import THEIR_CONFIG
from tests.conversion.one_layer import lines_of, random_weights
from tests.conversion.runs import write_json
from tests.script_case import FolderCase

# The datasets of a TFBertForPreTraining of one layer (transformers 4.46), in the order
# of one_layer's lines; those of its layer `bert` begin with BERT.
BERT = "bert/tf_bert_for_pre_training/bert/"
LAYER = BERT + "encoder/layer_._0/"
MASKED_LM = "mlm___cls/tf_bert_for_pre_training/mlm___cls/predictions/"
NEXT_SENTENCE = "nsp___cls/tf_bert_for_pre_training/nsp___cls/seq_relationship/"
PRE_TRAINING = [
    BERT + "embeddings/word_embeddings/weight:0",
    BERT + "embeddings/token_type_embeddings/embeddings:0",
    BERT + "embeddings/position_embeddings/embeddings:0",
    BERT + "embeddings/LayerNorm/gamma:0",
    BERT + "embeddings/LayerNorm/beta:0",
    LAYER + "attention/self/query/kernel:0",
    LAYER + "attention/self/query/bias:0",
    LAYER + "attention/self/key/kernel:0",
    LAYER + "attention/self/key/bias:0",
    LAYER + "attention/self/value/kernel:0",
    LAYER + "attention/self/value/bias:0",
    LAYER + "attention/output/dense/kernel:0",
    LAYER + "attention/output/dense/bias:0",
    LAYER + "attention/output/LayerNorm/gamma:0",
    LAYER + "attention/output/LayerNorm/beta:0",
    LAYER + "intermediate/dense/kernel:0",
    LAYER + "intermediate/dense/bias:0",
    LAYER + "output/dense/kernel:0",
    LAYER + "output/dense/bias:0",
    LAYER + "output/LayerNorm/gamma:0",
    LAYER + "output/LayerNorm/beta:0",
    BERT + "pooler/dense/kernel:0",
    BERT + "pooler/dense/bias:0",
    MASKED_LM + "transform/dense/kernel:0",
    MASKED_LM + "transform/dense/bias:0",
    MASKED_LM + "transform/LayerNorm/gamma:0",
    MASKED_LM + "transform/LayerNorm/beta:0",
    MASKED_LM + "bias:0",
    NEXT_SENTENCE + "kernel:0",
    NEXT_SENTENCE + "bias:0",
]
# The head's layer holds the encoder's table of words, too.
SHARED = "mlm___cls/tf_bert_for_pre_training/bert/embeddings/word_embeddings/weight:0"
CONFIG = THEIR_CONFIG | {
    "architectures": ["BertForPreTraining"],
    "hidden_act": "gelu",
}

# A DistilBertForMaskedLM's tensors, by the original's names of them.
DISTIL_LAYER = "distilbert.transformer.layer.0."
OUR_LAYER = "bert/encoder/layer_0/"
DISTIL = {
    "bert/embeddings/word_embeddings": "distilbert.embeddings.word_embeddings.weight",
    "bert/embeddings/position_embeddings": (
        "distilbert.embeddings.position_embeddings.weight"
    ),
    "bert/embeddings/LayerNorm/gamma": "distilbert.embeddings.LayerNorm.weight",
    "bert/embeddings/LayerNorm/beta": "distilbert.embeddings.LayerNorm.bias",
    OUR_LAYER + "attention/self/query/kernel": DISTIL_LAYER + "attention.q_lin.weight",
    OUR_LAYER + "attention/self/query/bias": DISTIL_LAYER + "attention.q_lin.bias",
    OUR_LAYER + "attention/self/key/kernel": DISTIL_LAYER + "attention.k_lin.weight",
    OUR_LAYER + "attention/self/key/bias": DISTIL_LAYER + "attention.k_lin.bias",
    OUR_LAYER + "attention/self/value/kernel": DISTIL_LAYER + "attention.v_lin.weight",
    OUR_LAYER + "attention/self/value/bias": DISTIL_LAYER + "attention.v_lin.bias",
    OUR_LAYER + "attention/output/dense/kernel": (
        DISTIL_LAYER + "attention.out_lin.weight"
    ),
    OUR_LAYER + "attention/output/dense/bias": DISTIL_LAYER + "attention.out_lin.bias",
    OUR_LAYER + "attention/output/LayerNorm/gamma": (
        DISTIL_LAYER + "sa_layer_norm.weight"
    ),
    OUR_LAYER + "attention/output/LayerNorm/beta": DISTIL_LAYER + "sa_layer_norm.bias",
    OUR_LAYER + "intermediate/dense/kernel": DISTIL_LAYER + "ffn.lin1.weight",
    OUR_LAYER + "intermediate/dense/bias": DISTIL_LAYER + "ffn.lin1.bias",
    OUR_LAYER + "output/dense/kernel": DISTIL_LAYER + "ffn.lin2.weight",
    OUR_LAYER + "output/dense/bias": DISTIL_LAYER + "ffn.lin2.bias",
    OUR_LAYER + "output/LayerNorm/gamma": DISTIL_LAYER + "output_layer_norm.weight",
    OUR_LAYER + "output/LayerNorm/beta": DISTIL_LAYER + "output_layer_norm.bias",
    "cls/predictions/transform/dense/kernel": "vocab_transform.weight",
    "cls/predictions/transform/dense/bias": "vocab_transform.bias",
    "cls/predictions/transform/LayerNorm/gamma": "vocab_layer_norm.weight",
    "cls/predictions/transform/LayerNorm/beta": "vocab_layer_norm.bias",
    "cls/predictions/output_bias": "vocab_projector.bias",
}
DISTIL_CONFIG = {
    "model_type": "distilbert",
    "architectures": ["DistilBertForMaskedLM"],
    "vocab_size": 11,
    "dim": 8,
    "n_layers": 1,
    "n_heads": 2,
    "hidden_dim": 12,
    "max_position_embeddings": 6,
    "activation": "gelu",
}


class TfClassesTest(FolderCase):
    def folder_of(self, content, config=CONFIG):
        folder = self.folder()
        with h5py.File(os.path.join(folder, "tf_model.h5"), "w") as file:
            for name, values in content.items():
                file[name] = values
        write_json(config, folder, "config.json")
        self.write(
            os.path.join(folder, "vocab.txt"), "".join(f"t{i}\n" for i in range(11))
        )
        return folder

    def content(self):
        """What a tf_model.h5 has, and the weights by the original's names."""
        lines = lines_of("BertForPreTraining")
        arrays = random_weights(lines)
        places = dict(zip(PRE_TRAINING, lines, strict=True))
        content = {place: arrays[line.original] for place, line in places.items()}
        # The original has this one in the other layout.
        content[NEXT_SENTENCE + "kernel:0"] = content[NEXT_SENTENCE + "kernel:0"].T
        content[SHARED] = content[PRE_TRAINING[0]]
        return content, arrays

    def assert_same(self, weights, arrays):
        self.assertEqual(set(weights), set(arrays))
        for name, array in arrays.items():
            self.assertEqual(weights[name].tobytes(), array.tobytes(), name)

    def test_the_weights_bit_by_bit(self):
        content, arrays = self.content()
        folder = self.folder_of(content)
        for path in (folder, os.path.join(folder, "tf_model.h5")):
            self.assertEqual(find_format(path), Format.HUGGING_FACE)
            source = open_source(path)
            self.assertEqual(source.config.hidden_act, "gelu_erf")
            self.assertLen(source.tokenizer.vocabulary, 11)
            self.assert_same(source.weights, arrays)

    def test_what_is_no_such_file(self):
        content, _ = self.content()
        other = {**content, SHARED: content[SHARED] + 1.0}
        folder = self.folder_of(other)
        with self.assertRaisesRegex(
            InputError, "two different weights are bert.embedd"
        ):
            open_source(folder)
        folder = self.folder_of({**content, "bert/other:0": np.zeros(3)})
        with self.assertRaisesRegex(InputError, "bert/other:0 is not a weight of a"):
            open_source(folder)
        more = f"{LAYER}crossattention/self/query/kernel:0"
        folder = self.folder_of({**content, more: np.zeros((8, 8))})
        with self.assertRaisesRegex(
            InputError, "no place in BERT: bert.encoder.layer.0"
        ):
            open_source(folder)
        with h5py.File(os.path.join(folder, "tf_model.h5"), "w"):
            pass
        with self.assertRaisesRegex(InputError, "tf_model.h5 and its config do not be"):
            open_source(folder)
        self.write(os.path.join(folder, "tf_model.h5"), b"no HDF5")
        with self.assertRaisesRegex(InputError, "tf_model.h5 is damaged or no HDF5"):
            open_source(folder)

    def test_safetensors_come_first(self):
        content, arrays = self.content()
        folder = self.folder_of({**content, "bert/other:0": np.zeros(3)})
        tensors = {
            line.hugging_face: np.ascontiguousarray(
                arrays[line.original].T
                if line.original.endswith("/kernel")
                else arrays[line.original]
            )
            for line in lines_of("BertForPreTraining")
        }
        path = os.path.join(folder, huggingface.WEIGHTS_NAME)
        safetensors.numpy.save_file(tensors, path)
        self.assert_same(open_source(folder).weights, arrays)


class DistilBertTest(FolderCase):
    def folder_of(self, tensors, **config):
        folder = self.folder()
        path = os.path.join(folder, huggingface.WEIGHTS_NAME)
        safetensors.numpy.save_file(tensors, path)
        write_json(DISTIL_CONFIG | config, folder, "config.json")
        return folder

    def test_a_bert_without_segments_and_pooler(self):
        arrays = random_weights(lines_of("BertForMaskedLM"))
        tensors = {
            theirs: np.ascontiguousarray(
                arrays[ours].T if ours.endswith("/kernel") else arrays[ours]
            )
            for ours, theirs in DISTIL.items()
        }
        # The output's table is the embeddings'.
        tensors["vocab_projector.weight"] = arrays["bert/embeddings/word_embeddings"]
        source = open_source(self.folder_of(tensors))
        self.assertEqual(source.config.hidden_size, 8)
        self.assertEqual(source.config.intermediate_size, 12)
        self.assertEqual(source.config.hidden_act, "gelu_erf")
        segments = "bert/embeddings/token_type_embeddings"
        self.assertAllEqual(source.weights[segments], np.zeros((2, 8)))
        self.assertEqual(set(source.weights), {*arrays})
        for name in DISTIL:
            self.assertEqual(
                source.weights[name].tobytes(), arrays[name].tobytes(), name
            )
        # As the class without a head has them.
        bare = {
            name.removeprefix("distilbert."): tensor
            for name, tensor in tensors.items()
            if name.startswith("distilbert.")
        }
        folder = self.folder_of(bare, architectures=["DistilBertModel"])
        self.assertLen(open_source(folder).weights, 21)

    def test_a_classifiers_layer_with_relu(self):
        """The head is numpy's: classifier(relu(pre_classifier(h[CLS])))."""
        arrays = random_weights(lines_of("BertForMaskedLM"))
        tensors = {
            theirs: np.ascontiguousarray(
                arrays[ours].T if ours.endswith("/kernel") else arrays[ours]
            )
            for ours, theirs in DISTIL.items()
            if ours.startswith("bert/")
        }
        draw = np.random.default_rng(5)
        shapes = {"pre_classifier": (8, 8), "classifier": (3, 8)}
        for name, shape in shapes.items():
            tensors[f"{name}.weight"] = draw.normal(size=shape).astype(np.float32)
            tensors[f"{name}.bias"] = draw.normal(size=shape[0]).astype(np.float32)
        config = {"architectures": ["DistilBertForSequenceClassification"]}
        folder = self.folder_of(tensors, **config)
        ids = np.array([[2, 7, 10, 3]])
        record = {"input_ids": ids, "input_mask": ids > 0, "segment_ids": 0 * ids}
        encoder = load_encoder(folder, use_pooler=False)
        x = np.asarray(encoder(record)["sequence_output"])[0, 0]
        x = tensors["pre_classifier.weight"] @ x + tensors["pre_classifier.bias"]
        x = tensors["classifier.weight"] @ np.maximum(x, 0) + tensors["classifier.bias"]
        logits = load_classifier(folder)(record)["logits"][0]
        self.assertAllClose(logits, x, rtol=1e-5, atol=1e-5)
        source = open_source(folder)
        with self.assertRaisesRegex(InputError, "no class with these heads"):
            export.write_huggingface(self.folder(), source)
        # Without it, a model's pooler is BERT's.
        bare = dataclasses.replace(source, weights=Weights("", {}))
        self.assertEqual(bare.config.pooler_hidden_act, "tanh")
