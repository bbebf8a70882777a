import dataclasses

import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.addons.methods.initial_positions import DEVIATION, place, sinusoids
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

    def test_heads_begin_at_the_tokens_before_and_after(self):
        config = BertConfig.from_size("tiny", vocab_size=60)
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
            for head in range(2):
                by_offset = [
                    np.mean(np.diagonal(layer[:, head], offset, 1, 2))
                    for offset in range(-4, 5)
                ]
                wanted = 1 if head % 2 else -1
                self.assertEqual(np.argmax(by_offset) - 4, wanted)
                self.assertAllGreater(np.max(by_offset), 0.3)

    def test_embeddings_of_another_width_have_sinusoids_alone(self):
        config = dataclasses.replace(toy.CONFIG, embedding_size=6)
        model = BertPretrainer(config)
        kernel = model.encoder.get_layer("layer_0").attention.query.kernel
        before = np.array(kernel)
        with self.assertLogs(level="WARNING") as logs:
            place(model, "neighbours")
        self.assertIn("not 6 and", logs.output[0])
        self.assertAllEqual(before, kernel)


if __name__ == "__main__":
    tf.test.main()
