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

    def test_another_programs_checkpoint_is_none(self):
        other = tf.Module()
        put(other, ["layer_with_weights-0", "kernel"], self.array(2, 2))
        folder = self.write_checkpoint(model=other)
        self.assertEqual(open_source(folder).format, Format.TF1)


if __name__ == "__main__":
    tf.test.main()
