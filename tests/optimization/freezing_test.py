import tensorflow as tf
from absl.testing import parameterized

from bert_tf.compilation import pieces_left_alone
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.optimization.freezing import freeze
from bert_tf.optimization.recipe import create_optimizer

CONFIG = BertConfig(
    vocab_size=11,
    hidden_size=8,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=6,
)


def pretrainer(frozen_layers):
    model = BertPretrainer(CONFIG)
    freeze(model.encoder, frozen_layers)
    return model


def parts(variables):
    """The encoder's parts that the variables belong to, and "cls" for the heads."""
    names = set()
    for variable in variables:
        first, second, third = variable.path.split("/")[:3]
        names.add("cls" if first == "cls" else third if second == "encoder" else second)
    return names


class FreezeTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("", "embeddings layer_0 layer_1 layer_2 pooler cls"),
        ("embeddings", "layer_0 layer_1 layer_2 pooler cls"),
        ("embeddings,0-1", "layer_2 pooler cls"),
        (" 1 , pooler", "embeddings layer_0 layer_2 cls"),
        ("layer_2", "embeddings layer_0 layer_1 pooler cls"),
        ("encoder", "embeddings pooler cls"),
        ("embeddings,0-2,pooler", "cls"),
    )
    def test_what_remains(self, frozen_layers, remaining):
        model = pretrainer(frozen_layers)
        self.assertEqual(parts(model.trainable_variables), set(remaining.split()))

    @parameterized.parameters("embedding", "3", "1-3", "2-1", "0,,1", "layer_7")
    def test_what_is_not_there_is_named(self, frozen_layers):
        with self.assertRaisesRegex(
            InputError, "no .*It has embeddings, pooler, encoder, and layers 0-2"
        ):
            pretrainer(frozen_layers)

    def test_training_leaves_the_frozen_as_they_are(self):
        # The embeddings' table is the masked LM's output matrix too.
        model = pretrainer("embeddings,0")
        optimizer = create_optimizer(0.1, 10, 0, weight_decay_rate=0.5)
        model.compile(optimizer, run_eagerly=True)
        before = {v.path: v.numpy() for v in model.weights}
        batch = {
            "input_ids": [[2, 5, 6, 3]],
            "input_mask": [[1, 1, 1, 1]],
            "segment_ids": [[0, 0, 1, 1]],
            "masked_lm_positions": [[1, 2]],
            "masked_lm_ids": [[5, 6]],
            "masked_lm_weights": [[1.0, 1.0]],
            "next_sentence_labels": [[1]],
        }
        dataset = tf.data.Dataset.from_tensors(
            {name: tf.constant(values) for name, values in batch.items()}
        )
        with pieces_left_alone():  # compiling takes longer than all else
            model.fit(dataset, verbose=0)
        for variable in model.weights:
            frozen = "embeddings" in variable.path or "layer_0" in variable.path
            # The softmax does not see a key's bias, which is added to all scores alike.
            if "seed" in variable.path or "key/bias" in variable.path:
                continue
            (self.assertAllEqual if frozen else self.assertNotAllClose)(
                variable, before[variable.path]
            )


if __name__ == "__main__":
    tf.test.main()
