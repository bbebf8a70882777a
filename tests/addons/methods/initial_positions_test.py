import dataclasses

import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.addons.methods.initial_positions import (
    DEVIATION,
    SHARPNESS,
    neighbour_kernels,
    place,
    sinusoids,
)
from bert_tf.base.config import BertConfig
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertPretrainer
from tests.training import toy

pytestmark = pytest.mark.jax


class InitialPositionsTest(tf.test.TestCase):
    def test_they_are_kerashubs_sines_but_for_their_size(self):
        table = sinusoids(512, 128)
        wanted = keras_hub.layers.SinePositionEncoding()(np.zeros((1, 512, 128), "f"))
        # Its angles are float32: 511 has an error of 3e-5.
        self.assertAllClose(
            table / (DEVIATION * np.sqrt(2.0)), np.array(wanted)[0], atol=1e-4
        )
        self.assertAllClose(np.sqrt(np.mean(table**2)), DEVIATION)

    def test_a_linear_map_takes_each_position_to_the_next(self):
        table = sinusoids(128, 64)
        found = np.linalg.lstsq(table[:-1], table[1:], rcond=None)[0]
        self.assertAllClose(table[:-1] @ found, table[1:], atol=1e-4)

    def test_a_models_positions_alone_are_set(self):
        model = BertPretrainer(toy.CONFIG)
        names = [weight.path for weight in model.weights]
        before = [np.array(weight) for weight in model.weights]
        place(model, "sinusoids")
        changed = [
            name
            for name, old, weight in zip(names, before, model.weights, strict=True)
            if not np.array_equal(old, weight)
        ]
        self.assertEqual(changed, ["bert/embeddings/position_embeddings"])

    def test_queries_score_the_neighbours_keys_by_cosines(self):
        # Two heads of 5 (a column of each is left over), pairs 0, 2 and 1, 3.
        table = sinusoids(9, 10).astype(np.float64)
        query, key = (table @ kernel for kernel in neighbour_kernels(10, 2))
        angles = 10000.0 ** -np.arange(0.0, 1.0, 0.2)  # of the pairs
        for head, (pairs, shift) in enumerate((([0, 2], -1), ([1, 3], 1))):
            own = slice(5 * head, 5 * head + 5)
            scores = query[:, own] @ key[:, own].T / 5**0.5
            for p, r in ((0, 0), (4, 3), (4, 5), (8, 1)):
                cosines = sum(np.cos(angles[i] * (p + shift - r)) for i in pairs)
                square = 2.0 * DEVIATION**2  # of a pair's norm
                wanted = SHARPNESS * square / 8.0 * 64.0 / 5.0 * cosines
                self.assertAllClose(scores[p, r], wanted)

    def test_heads_begin_at_the_tokens_before_and_after(self):
        tiny = BertConfig.from_size("tiny", vocab_size=60)
        for changes, offsets in (
            ({}, (-1, 1)),
            ({"left_to_right": True}, (-1, -1)),
            ({"right_to_left": True}, (1, 1)),
        ):
            config = dataclasses.replace(tiny, **changes)
            model = BertPretrainer(config)
            place(model, "neighbours")
            encoder = BertEncoder(config, output_attentions=True)
            encoder.set_weights(model.encoder.get_weights())
            ids = np.random.default_rng(0).integers(1, 60, (2, 32))
            inputs = {
                "input_ids": ids,
                "input_mask": np.ones_like(ids),
                "segment_ids": np.zeros_like(ids),
            }
            for layer in encoder(inputs)["attention_probs"]:
                for head, wanted in enumerate(offsets):
                    by_offset = [
                        np.mean(np.diagonal(layer[:, head], offset, 1, 2))
                        for offset in range(-4, 5)
                    ]
                    self.assertEqual(np.argmax(by_offset) - 4, wanted, changes)
                    self.assertBetween(np.max(by_offset), 0.3, 0.65)

    def test_their_kernels_are_added_once_to_random_ones(self):
        albert = {"embedding_size": toy.CONFIG.hidden_size, "num_hidden_groups": 1}
        for changes in ({}, albert):
            config = dataclasses.replace(toy.CONFIG, **changes)
            model = BertPretrainer(config)
            before = {weight.path: np.array(weight) for weight in model.weights}
            place(model, "neighbours")
            kernels = neighbour_kernels(config.hidden_size, config.num_attention_heads)
            added = dict(zip(("query/kernel", "key/kernel"), kernels, strict=True))
            found = 0
            for weight in model.weights:
                if not weight.path.endswith("position_embeddings"):
                    more = added.get("/".join(weight.path.split("/")[-2:]), 0.0)
                    found += np.ndim(more) == 2
                    self.assertAllClose(weight, before[weight.path] + more)
            layers = 1 if changes else config.num_hidden_layers
            self.assertEqual(found, 2 * layers)

    def test_embeddings_of_another_width_have_sinusoids_alone(self):
        config = dataclasses.replace(toy.CONFIG, embedding_size=6)
        model = BertPretrainer(config)
        before = {weight.path: np.array(weight) for weight in model.weights}
        with self.assertLogs(level="WARNING") as logs:
            place(model, "neighbours")
        self.assertIn("Received: 6 and", logs.output[0])
        for weight in model.weights:
            wanted = before[weight.path]
            if weight.path.endswith("position_embeddings"):
                wanted = sinusoids(*weight.shape)
            self.assertAllEqual(weight, wanted)


if __name__ == "__main__":
    tf.test.main()
