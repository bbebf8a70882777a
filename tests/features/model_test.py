import numpy as np
import tensorflow as tf

from bert_tf.features.layers import LayerSelection
from bert_tf.features.model import feature_model, weights_digest
from bert_tf.modeling.encoder import BertEncoder
from tests.modeling import numpy_bert
from tests.modeling.examples import (
    one_of,
    outputs_of,
    random_records,
    randomize,
    relative_error,
    small_config,
)

CONFIG = small_config(num_hidden_layers=3)


class FeatureModelTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.encoder = BertEncoder(CONFIG, output_hidden_states=True)
        weights = randomize(cls.encoder)
        cls.records = random_records(CONFIG)
        # [rows][embeddings and layers][S, H]
        cls.states = [
            numpy_bert.sequence_outputs(weights, CONFIG, one_of(cls.records, row))[0]
            for row in range(4)
        ]
        cls.pooled = [
            numpy_bert.pooled_output(weights, states[-1]) for states in cls.states
        ]

    def model(self, layers="-1", sentence_vectors=(), token_vectors=True, **options):
        selection = LayerSelection.parse(layers, 3, **options)
        return feature_model(
            self.encoder,
            selection,
            token_vectors=token_vectors,
            sentence_vectors=sentence_vectors,
        )

    def check(self, expected, *args, **options):
        """`expected` makes [S, L, W] of a row's states."""
        outputs = outputs_of(self.model(*args, **options), self.records)
        for row, states in enumerate(self.states):
            self.assertLess(
                relative_error(outputs["vectors"][row], expected(states)), 1e-5
            )

    def test_layers(self):
        self.check(
            lambda h: np.stack([h[3], h[2], h[1], h[0]], axis=1), "-1,-2,0,embeddings"
        )
        self.check(lambda h: np.stack([h[1], h[2], h[3]], axis=1), "all")

    def test_combinations(self):
        self.check(lambda h: (h[3] + h[0])[:, None], "-1,embeddings", combine="sum")
        self.check(lambda h: (h[3] + h[2])[:, None] / 2, "-1,-2", combine="mean")
        self.check(
            lambda h: np.concatenate([h[3], h[1]], axis=1)[:, None],
            "-1,0",
            combine="concat",
        )
        self.check(
            lambda h: (0.5 * h[3] - 2 * h[1])[:, None],
            "-1,0",
            combine="weighted",
            weights=[0.5, -2],
        )

    def test_sentence_vectors(self):
        model = self.model("-1,-2", ["mean", "cls", "pooled"], token_vectors=False)
        outputs = outputs_of(model, self.records)
        self.assertEqual(sorted(outputs), ["cls", "mean", "pooled"])
        for row, states in enumerate(self.states):
            length = self.records["input_mask"][row].sum()
            means = [states[layer][:length].mean(axis=0) for layer in (3, 2)]
            self.assertLess(relative_error(outputs["mean"][row], means), 1e-5)
            firsts = [states[3][0], states[2][0]]
            self.assertLess(relative_error(outputs["cls"][row], firsts), 1e-5)
            self.assertLess(
                relative_error(outputs["pooled"][row], self.pooled[row]), 1e-5
            )

    def test_a_row_of_padding_has_a_mean(self):
        records = {name: np.zeros_like(v) for name, v in self.records.items()}
        outputs = outputs_of(self.model("-1", ["mean"]), records)
        self.assertAllEqual(outputs["mean"], np.zeros([4, 1, 24]))

    def test_layers_above_are_not_computed(self):
        names = {weight.path for weight in self.model("0").weights}
        self.assertIn("bert/encoder/layer_0/output/dense/kernel", names)
        self.assertFalse([n for n in names if "layer_1" in n or "pooler" in n])
        names = {weight.path for weight in self.model("embeddings").weights}
        self.assertFalse([name for name in names if "encoder" in name])

    def test_unknown_and_no_vectors_are_refused(self):
        with self.assertRaisesRegex(ValueError, "must be of pooled, cls, mean"):
            self.model("-1", ["max"])
        with self.assertRaisesRegex(ValueError, "at least one"):
            self.model("-1", token_vectors=False)

    def test_the_digest_is_of_the_weights_that_count(self):
        weight = self.encoder.get_layer("layer_2").weights[0]
        before = [weights_digest(self.model(layers)) for layers in ("0", "-1")]
        value = weight.numpy()
        weight.assign(value + 1)
        after = [weights_digest(self.model(layers)) for layers in ("0", "-1")]
        weight.assign(value)
        self.assertEqual(before[0], after[0])
        self.assertNotEqual(before[1], after[1])
        self.assertEqual(weights_digest(self.model("-1")), before[1])


if __name__ == "__main__":
    tf.test.main()
