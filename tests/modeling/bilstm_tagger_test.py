import os

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling.bilstm_tagger import BiLstmTagger
from bert_tf.modeling.objectives import TAGGING

B, S, L, F, H, C = 2, 4, 3, 5, 6, 3


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def lstm(x, kernel, recurrent, bias):
    """Hochreiter and Schmidhuber 1997 with forget gates; gates i, f, candidate, o."""
    units = recurrent.shape[0]
    hidden, cell, outputs = np.zeros(units), np.zeros(units), []
    for step in x:
        i, f, g, o = np.split(step @ kernel + hidden @ recurrent + bias, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs)


def logits_of(weights, vectors):
    """The scores of one sentence [S, L, F], in numpy."""
    scores = np.exp(weights["layer_mixture/scores"])
    mixed = np.tensordot(scores / scores.sum(), vectors, axes=(0, 1))
    x = weights["layer_mixture/gamma"] * mixed
    for number in range(2):
        parts = []
        for name, order in (("forward", 1), ("backward", -1)):
            prefix = f"bilstm_{number}/{name}_lstm/lstm_cell/"
            names = ("kernel", "recurrent_kernel", "bias")
            part = lstm(x[::order], *(weights[prefix + name] for name in names))
            parts.append(part[::order])
        x = np.concatenate(parts, axis=1)
    return x @ weights["tagging/output_weights"].T + weights["tagging/output_bias"]


class BiLstmTaggerTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(1)
        self.model = BiLstmTagger(L, F, C, hidden_size=H)
        rng = np.random.default_rng(2)
        self.weights = {}
        for weight in self.model.trainable_weights:
            value = rng.normal(size=weight.shape)
            weight.assign(value)
            path = weight.path.removeprefix("cls/")
            self.weights[path] = np.float64(weight.numpy())
        self.features = np.float32(rng.normal(size=[B, S, L, F]))
        self.mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])

    def batch(self, **others):
        return {"features": self.features, "input_mask": self.mask, **others}

    def test_as_its_equations_have_it_whatever_the_padding(self):
        logits = self.model(self.batch())["logits"]
        for row, length in enumerate((4, 2)):
            expected = logits_of(self.weights, np.float64(self.features[row, :length]))
            self.assertAllClose(logits[row, :length], expected, 1e-5, 1e-5)

    def test_one_vector_a_word_is_not_mixed(self):
        model = BiLstmTagger(1, F, C, hidden_size=H)
        self.assertFalse([w for w in model.weights if "mixture" in w.path])
        features = self.features[:, :, :1]
        output = model({"features": features, "input_mask": self.mask})
        self.assertEqual(output["logits"].shape, (B, S, C))

    def test_learns_what_stands_around_a_word(self):
        # The label is the sign of the next word's first number, nothing at the end.
        model = BiLstmTagger(L, F, C, hidden_size=16, dropout=0.0)
        rng = np.random.default_rng(3)
        features = np.float32(rng.normal(size=[64, 5, L, F]))
        next_one = np.pad(features[:, 1:, 0, 0], [(0, 0), (0, 1)])
        records = {
            "features": features,
            "input_mask": np.ones([64, 5]),
            "label_ids": 1 + np.int32(np.sign(next_one)),
            "label_weights": np.ones([64, 5]),
        }
        optimizer = keras.optimizers.Adam(0.02)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = TAGGING.means(records, model(records, training=True))
                loss = loss["cross_entropy"].value()
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        optimizer.build(model.trainable_variables)
        first = float(step())
        for _ in range(80):
            last = float(step())
        self.assertGreater(first, 0.9)
        self.assertLess(last, 0.2)

    def test_saved(self):
        path = os.path.join(self.get_temp_dir(), "model.keras")
        self.model.save(path)
        again = keras.models.load_model(path)
        self.assertAllEqual(
            self.model(self.batch())["logits"], again(self.batch())["logits"]
        )

    def test_bad_arguments(self):
        for options, message in (
            ({"hidden_size": 5}, "must be even"),
            ({"num_layers": 0}, "must be"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                BiLstmTagger(L, F, C, **options)


if __name__ == "__main__":
    tf.test.main()
