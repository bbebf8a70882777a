import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling import flops
from bert_tf.modeling.fused import pieces_left_alone
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)

# All different, so that no factor passes for another.
CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=10,
    max_position_embeddings=16,
    type_vocab_size=2,
)
S, P = 7, 4


def graph_operations(function, *arguments):
    """TensorFlow's own count over a function's matrix products."""
    graph = function.get_concrete_function(*arguments).graph
    profile = tf.compat.v1.profiler.profile(
        graph,
        options=tf.compat.v1.profiler.ProfileOptionBuilder(
            tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
        )
        .with_empty_output()
        .build(),
        cmd="op",
    )
    counted = 0
    while profile.children:  # a chain: one kind of operation below the other
        (profile,) = profile.children
        counted += profile.float_ops if "MatMul" in profile.name else 0
    return counted


class ByHandTest(tf.test.TestCase):
    def test_one_layer_counted_product_by_product(self):
        config = BertConfig(
            vocab_size=5,
            hidden_size=2,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=3,
        )
        # S = 4: four products of [4, 2] and [2, 2], 4 * 2 * 16 = 128; [4, 2] with
        # [2, 4], and [4, 4] with [4, 2], 2 * 64 = 128; [4, 2] with [2, 3] and back,
        # 2 * 48 = 96.
        self.assertEqual(flops.encoder_flops(config, 4), 352)
        # [1, 2] with [2, 2], 8, and with [2, 3], 12.
        self.assertEqual(flops.pooled_flops(config, 3), 20)
        # P = 3: [3, 2] with [2, 2], 24, and with [2, 5], 60.
        self.assertEqual(flops.masked_lm_flops(config, 3), 84)

        shapes = {"input_ids": (10, 4), "masked_lm_positions": (10, 3)}
        # The pooler and two labels: 8 + 8.
        self.assertEqual(
            flops.pretraining_flops(config, shapes), 3 * 10 * (352 + 16 + 84)
        )
        self.assertEqual(
            flops.pretraining_flops(config, shapes, next_sentence=False),
            3 * 10 * (352 + 84),
        )
        packed = {**shapes, "cls_positions": (10, 5)}
        self.assertEqual(
            flops.pretraining_flops(config, packed), 3 * 10 * (352 + 5 * 16 + 84)
        )
        self.assertEqual(
            flops.classifier_flops(config, {"input_ids": (1, 4)}, num_labels=3),
            3 * (352 + 20),
        )
        # Two sequences of six choices, with a pooler, 8, and a score, 4, each.
        self.assertEqual(
            flops.multiple_choice_flops(config, {"input_ids": (2, 6, 4)}),
            3 * 12 * (352 + 12),
        )
        # [4, 2] with [2, 2], 32, and with [2, 5], 80.
        self.assertEqual(flops.span_flops(config, {"input_ids": (1, 4)}), 3 * 384)
        self.assertEqual(
            flops.tagger_flops(config, {"input_ids": (2, 4)}, num_labels=5), 6 * 432
        )

    def test_base_takes_as_much_as_its_weights_say(self):
        # Kaplan et al.: 6 FLOPs a token and weight, and attention's 12 N S H a token.
        # The encoder of BERT base has 12 * 7,077,888 weights in its kernels.
        config = BertConfig.from_size("base")
        expected = 128 * (6 * 84_934_656 + 12 * 12 * 128 * 768)
        self.assertEqual(3 * flops.encoder_flops(config, 128), expected)


class GraphTest(tf.test.TestCase):
    """Beside what TensorFlow counts in the graph of the model itself."""

    def batch(self, batch_size):
        return {
            name: np.ones((batch_size, length), "int32")
            for name, length in (
                ("input_ids", S),
                ("input_mask", S),
                ("segment_ids", S),
                ("label_ids", 1),
                ("masked_lm_positions", P),
                ("masked_lm_ids", P),
                ("next_sentence_labels", 1),
            )
        } | {"masked_lm_weights": np.ones((batch_size, P), "float32")}

    def counted(self, model, batch):
        """The forward pass, without the lookup of embeddings.

        That has a product with one-hot segments, of which no FLOPs are counted.
        """

        def forward():
            means = model.objective.means(batch, model(batch, training=False))
            return [mean.total for mean in means.values()]

        def lookup():
            ids = (batch["input_ids"], batch["segment_ids"])
            return model.encoder.embeddings(*(x.reshape(-1, S) for x in ids))

        with pieces_left_alone():
            return graph_operations(tf.function(forward)) - graph_operations(
                tf.function(lookup)
            )

    def test_pretraining(self):
        batch = self.batch(5)
        shapes = {name: value.shape for name, value in batch.items()}
        step = flops.pretraining_flops(CONFIG, shapes)
        self.assertEqual(step, 3 * self.counted(BertPretrainer(CONFIG), batch))

    def test_a_classifier(self):
        batch = self.batch(2)
        shapes = {name: value.shape for name, value in batch.items()}
        step = flops.classifier_flops(CONFIG, shapes, num_labels=3)
        self.assertEqual(step, 3 * self.counted(BertClassifier(CONFIG, 3), batch))

    def test_a_choice(self):
        batch = {
            name: np.ones((2, 3, S), "int32")
            for name in ("input_ids", "input_mask", "segment_ids")
        } | {"label_ids": np.ones((2, 1), "int32")}
        step = flops.multiple_choice_flops(CONFIG, {"input_ids": (2, 3, S)})
        self.assertEqual(step, 3 * self.counted(BertMultipleChoice(CONFIG), batch))

    def test_scores_of_every_token(self):
        ones = np.ones((2, 1), "int32")
        batch = self.batch(2) | {"start_positions": ones, "end_positions": ones}
        shapes = {name: value.shape for name, value in batch.items()}
        step = flops.span_flops(CONFIG, shapes)
        self.assertEqual(step, 3 * self.counted(BertSpanPredictor(CONFIG), batch))
        batch["label_ids"] = batch["label_weights"] = batch["input_mask"]
        step = flops.tagger_flops(CONFIG, shapes, num_labels=3)
        self.assertEqual(step, 3 * self.counted(BertTagger(CONFIG, 3), batch))


if __name__ == "__main__":
    tf.test.main()
