"""The table of names against names and shapes that are written out by hand."""

import tensorflow as tf

from bert_tf.conversion import names
from tests.conversion import one_layer
from tests.conversion.one_layer import CONFIG


class NamesTest(tf.test.TestCase):
    def check(self, rows, lines, prefix=""):
        for row, line in zip(rows, lines, strict=True):
            self.assertEqual(row.original, line.original)
            self.assertEqual(row.dimensions(CONFIG, num_labels=3), line.shape)
            self.assertEqual(prefix + row.hugging_face, line.hugging_face)
            shape = line.shape[::-1] if row.hugging_face_transposes else line.shape
            self.assertEqual(shape, line.their_shape)
            self.assertEqual(row.keras_hub or "-", line.keras_hub)

    def test_the_encoder_and_the_pooler(self):
        lines = one_layer.lines(one_layer.ENCODER)
        self.check(names.encoder_names(CONFIG), lines, "bert.")
        self.check(names.POOLER, one_layer.lines(one_layer.POOLER), "bert.")

    def test_the_layers_are_numbered(self):
        rows = [row.at(11) for row in names.LAYER]
        self.assertEqual(
            rows[0].original, "bert/encoder/layer_11/attention/self/query/kernel"
        )
        self.assertEqual(
            rows[0].hugging_face, "encoder.layer.11.attention.self.query.weight"
        )
        self.assertEqual(
            rows[0].keras_hub,
            "layers/transformer_encoder_11/_self_attention_layer/query_dense/vars/0",
        )

    def test_the_heads_that_are_there(self):
        self.assertEqual(names.heads_of(["bert/embeddings/word_embeddings"]), [])
        self.assertEqual(
            names.heads_of(["output_bias", "cls/predictions/output_bias"]),
            [names.MASKED_LM, names.CLASSIFIER],
        )


if __name__ == "__main__":
    tf.test.main()
