import os
import tempfile

import numpy as np
import tensorflow as tf

from bert_tf.base.config import BertConfig
from bert_tf.conversion.loading import load_encoder
from bert_tf.conversion.source import Format, open_source
from tests.script_case import FolderCase

# Sizes as small as the differences between shapes allow.
VOCAB, POSITIONS, HIDDEN, HEADS, INNER = 11, 7, 6, 2, 9
CONFIG = BertConfig(
    vocab_size=VOCAB,
    hidden_size=HIDDEN,
    num_hidden_layers=2,
    num_attention_heads=HEADS,
    intermediate_size=INNER,
    max_position_embeddings=POSITIONS,
    type_vocab_size=2,
)
# Keys that tf-models-official 2.17 writes for a model of two layers: for BertEncoder,
# then BertEncoderV2; the original's name, and Model Garden's shape.
TABLES = [
    (
        "layer_with_weights-0/embeddings",
        "_embedding_layer/embeddings",
        "bert/embeddings/word_embeddings",
        (VOCAB, HIDDEN),
    ),
    (
        "layer_with_weights-1/embeddings",
        "_position_embedding_layer/embeddings",
        "bert/embeddings/position_embeddings",
        (POSITIONS, HIDDEN),
    ),
    (
        "layer_with_weights-2/embeddings",
        "_type_embedding_layer/embeddings",
        "bert/embeddings/token_type_embeddings",
        (2, HIDDEN),
    ),
    *(
        (
            f"layer_with_weights-3/{name}",
            f"_embedding_norm_layer/{name}",
            f"bert/embeddings/LayerNorm/{name}",
            (HIDDEN,),
        )
        for name in ("gamma", "beta")
    ),
    (
        "layer_with_weights-6/kernel",
        "_pooler_layer/kernel",
        "bert/pooler/dense/kernel",
        (HIDDEN, HIDDEN),
    ),
    (
        "layer_with_weights-6/bias",
        "_pooler_layer/bias",
        "bert/pooler/dense/bias",
        (HIDDEN,),
    ),
]
SPLIT = (HEADS, HIDDEN // HEADS)
LAYER = [
    *(
        (f"_attention_layer/_{part}_dense", f"attention/self/{part}", *shapes)
        for part in ("query", "key", "value")
        for shapes in [((HIDDEN, *SPLIT), SPLIT)]
    ),
    (
        "_attention_layer/_output_dense",
        "attention/output/dense",
        (*SPLIT, HIDDEN),
        (HIDDEN,),
    ),
    ("_intermediate_dense", "intermediate/dense", (HIDDEN, INNER), (INNER,)),
    ("_output_dense", "output/dense", (INNER, HIDDEN), (HIDDEN,)),
]
NORMS = [
    ("_attention_layer_norm", "attention/output/LayerNorm"),
    ("_output_layer_norm", "output/LayerNorm"),
]
HEAD = [
    ("masked_lm/dense/kernel", "cls/predictions/transform/dense/kernel"),
    ("masked_lm/dense/bias", "cls/predictions/transform/dense/bias"),
    ("masked_lm/layer_norm/gamma", "cls/predictions/transform/LayerNorm/gamma"),
    ("masked_lm/layer_norm/beta", "cls/predictions/transform/LayerNorm/beta"),
]


def rows(is_v2):
    """(key below the encoder, original's name, Model Garden's shape)."""
    for v1, v2, name, shape in TABLES:
        yield (v2 if is_v2 else v1), name, shape
    for number in range(2):
        prefix = "_transformer_layers/" if is_v2 else "layer_with_weights-"
        layer = f"{prefix}{number if is_v2 else number + 4}"
        ours = f"bert/encoder/layer_{number}"
        for part, name, kernel, bias in LAYER:
            yield f"{layer}/{part}/kernel", f"{ours}/{name}/kernel", kernel
            yield f"{layer}/{part}/bias", f"{ours}/{name}/bias", bias
        for part, name in NORMS:
            for variable in ("gamma", "beta"):
                key = f"{layer}/{part}/{variable}"
                yield key, f"{ours}/{name}/{variable}", (HIDDEN,)


def put(root, path, value):
    """A variable at the end of a path of attributes."""
    *above, last = path
    for name in above:
        if not hasattr(root, name):
            setattr(root, name, tf.Module())
        root = getattr(root, name)
    setattr(root, last, tf.Variable(value))


class ModelGardenTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.random = np.random.RandomState(3)

    def array(self, *shape):
        return self.random.normal(size=shape).astype("float32")

    def encoder(self, is_v2, root):
        """Fills an encoder; returns its arrays by the original's names."""
        wanted = {}
        for key, name, shape in rows(is_v2):
            value = self.array(*shape)
            put(root, key.split("/"), value)
            if len(shape) == 3:
                shape = (HIDDEN, HIDDEN)
            elif shape == SPLIT:
                shape = (HIDDEN,)
            wanted[name] = value.reshape(shape)
        return wanted

    def write_checkpoint(self, **items):
        folder = tempfile.mkdtemp(dir=self.path("."))
        tf.train.Checkpoint(**items).write(os.path.join(folder, "bert_model.ckpt"))
        with open(os.path.join(folder, "bert_config.json"), "w") as file:
            file.write(CONFIG.to_json_string())
        return folder

    def check(self, folder, wanted):
        source = open_source(folder)
        self.assertEqual(source.format, Format.MODEL_GARDEN)
        self.assertCountEqual([*source.weights], [*wanted])
        for name, value in wanted.items():
            self.assertAllEqual(source.weights[name], value)
            self.assertEqual(source.weights.shapes[name], value.shape)
        return source

    def test_encoders(self):
        for is_v2, item in ((False, "model"), (True, "encoder")):
            with self.subTest(item):
                root = tf.Module()
                wanted = self.encoder(is_v2, root)
                folder = self.write_checkpoint(**{item: root})
                self.check(folder, wanted)
                model = load_encoder(folder)
                self.assertAllEqual(
                    model.get_layer("embeddings").word_embeddings,
                    wanted["bert/embeddings/word_embeddings"],
                )

    def test_a_pretrainer(self):
        # As orbit saves it: tied embeddings below the head, a second pooler, an
        # optimizer.
        model, masked_lm, pooler = tf.Module(), tf.Module(), tf.Module()
        encoder = tf.Module()
        wanted = self.encoder(True, encoder)
        masked_lm.embedding_table = encoder._embedding_layer.embeddings
        del encoder._embedding_layer
        for key, name in HEAD:
            shape = (HIDDEN, HIDDEN) if key.endswith("kernel") else (HIDDEN,)
            wanted[name] = self.array(*shape)
            put(masked_lm, key.split("/")[1:], wanted[name])
        wanted["cls/predictions/output_bias"] = self.array(VOCAB)
        put(masked_lm, ["output_bias/bias"], wanted["cls/predictions/output_bias"])
        pooler.kernel = tf.Variable(self.array(HIDDEN, HIDDEN))
        pooler.bias = tf.Variable(self.array(HIDDEN))
        wanted["bert/pooler/dense/kernel"] = pooler.kernel.numpy()
        wanted["bert/pooler/dense/bias"] = pooler.bias.numpy()
        kernel, bias = self.array(HIDDEN, 2), self.array(2)
        place = ["classification_heads", "0", "out_proj"]
        put(model, [*place, "kernel"], kernel)
        put(model, [*place, "bias"], bias)
        wanted["cls/seq_relationship/output_weights"] = kernel.T
        wanted["cls/seq_relationship/output_bias"] = bias
        optimizer = tf.Module()
        optimizer.kernel = tf.Variable(self.array(3))
        folder = self.write_checkpoint(
            model=model,
            encoder=encoder,
            masked_lm=masked_lm,
            optimizer=optimizer,
            **{"next_sentence.pooler_dense": pooler},
        )
        with self.assertLogs(level="INFO") as logs:
            self.check(folder, wanted)
        # The encoder's own pooler, and the optimizer's.
        self.assertIn("3 tensors are no weights of BERT's", "\n".join(logs.output))

    def test_heads_beside_the_encoder(self):
        # The keys are those of tf-models-official 2.17's BertClassifier,
        # BertTokenClassifier and BertSpanLabeler, whose encoder is their first layer.
        cases = {
            "classifier": (
                {"out_proj": (HIDDEN, 3), "dense": (HIDDEN, HIDDEN)},
                {"out_proj": "output", "dense": "bert/pooler/dense"},
            ),
            "tagger": ({"": (HIDDEN, 3)}, {"": "cls/tagging/output"}),
            "spans": (
                {"layer_with_weights-0": (HIDDEN, 2)},
                {"layer_with_weights-0": "cls/squad/output"},
            ),
            "the first release's classifier, as NVIDIA's": (
                {"layer_with_weights-0": (HIDDEN, 3)},
                {"layer_with_weights-0": "output"},
            ),
        }
        for case, (layers, names) in cases.items():
            for is_v2 in (False, True):
                with self.subTest(case, is_v2=is_v2):
                    encoder, model = tf.Module(), tf.Module()
                    wanted = self.encoder(is_v2, encoder)
                    setattr(model, "layer_with_weights-0", encoder)
                    for layer, shape in layers.items():
                        kernel, bias = self.array(*shape), self.array(shape[1])
                        place = ["layer_with_weights-1", *filter(None, [layer])]
                        put(model, [*place, "kernel"], kernel)
                        put(model, [*place, "bias"], bias)
                        name = names[layer]
                        if name.endswith("output"):
                            wanted[f"{name}_weights"] = kernel.T
                            wanted[f"{name}_bias"] = bias
                        else:
                            wanted[f"{name}/kernel"] = kernel
                            wanted[f"{name}/bias"] = bias
                    self.check(self.write_checkpoint(model=model), wanted)

    def test_nvidias_pretrainer(self):
        # The keys of DeepLearningExamples' TensorFlow 2 BERT: the model is a layer of
        # the one with the loss; its masked LM has no activation.
        encoder, pretrainer, model = tf.Module(), tf.Module(), tf.Module()
        wanted = self.encoder(False, encoder)
        for number in (4, 5):
            layer = getattr(encoder, f"layer_with_weights-{number}")
            layer._attention_output_dense = layer._attention_layer._output_dense
            del layer._attention_layer._output_dense
        setattr(pretrainer, "layer_with_weights-0", encoder)
        setattr(model, "layer_with_weights-0", pretrainer)
        head = {
            "0/kernel": ("cls/predictions/transform/dense/kernel", (HIDDEN, HIDDEN)),
            "0/bias": ("cls/predictions/transform/dense/bias", (HIDDEN,)),
            "1/gamma": ("cls/predictions/transform/LayerNorm/gamma", (HIDDEN,)),
            "1/beta": ("cls/predictions/transform/LayerNorm/beta", (HIDDEN,)),
            "2/bias": ("cls/predictions/output_bias", (VOCAB,)),
        }
        for key, (name, shape) in head.items():
            number, variable = key.split("/")
            wanted[name] = self.array(*shape)
            place = ["layer_with_weights-1", f"layer_with_weights-{number}", variable]
            put(pretrainer, place, wanted[name])
        place = ["layer_with_weights-2", "layer_with_weights-0"]
        kernel, bias = self.array(HIDDEN, 2), self.array(2)
        put(pretrainer, [*place, "kernel"], kernel)
        put(pretrainer, [*place, "bias"], bias)
        wanted["cls/seq_relationship/output_weights"] = kernel.T
        wanted["cls/seq_relationship/output_bias"] = bias
        source = self.check(self.write_checkpoint(model=model), wanted)
        self.assertEqual(source.require_config().masked_lm_hidden_act, "linear")

    def test_another_programs_checkpoint_is_none(self):
        other = tf.Module()
        put(other, ["layer_with_weights-0", "kernel"], self.array(2, 2))
        folder = self.write_checkpoint(model=other)
        self.assertEqual(open_source(folder).format, Format.TF1)


if __name__ == "__main__":
    tf.test.main()
