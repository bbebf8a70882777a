import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.records.next_tokens import next_token_targets
from bert_tf.tasks.pretraining import pretraining_task

IDS = [[2, 7, 8, 3, 9, 3], [2, 9, 7, 3, 0, 0]]
BATCH = {
    "input_ids": tf.constant(IDS),
    "input_mask": tf.constant([[1] * 6, [1] * 4 + [0, 0]]),
    "segment_ids": tf.constant([[0, 0, 0, 0, 1, 1], [0] * 6]),
    "next_sentence_labels": tf.constant([[0], [1]]),
}
PACKED = {
    "sequence_ids": tf.constant([[1, 1, 1, 1, 2, 2], [1, 1, 2, 2, 0, 0]]),
    "cls_positions": tf.constant([[0, 4], [0, 2]]),
    "next_sentence_labels": tf.constant([[0, 1], [1, 0]]),
    "next_sentence_weights": tf.ones([2, 2]),
}


class NextTokensTest(tf.test.TestCase):
    def test_by_hand(self):
        batch = next_token_targets(BATCH)
        self.assertAllEqual(batch["input_ids"], IDS)
        self.assertAllEqual(
            batch["masked_lm_positions"], [[0, 1, 2, 3, 4], [0, 1, 2, 0, 0]]
        )
        self.assertAllEqual(batch["masked_lm_ids"], [[7, 8, 3, 9, 3], [9, 7, 3, 0, 0]])
        self.assertAllEqual(batch["masked_lm_weights"], [[1] * 5, [1, 1, 1, 0, 0]])

    def test_no_token_follows_from_another_sequence(self):
        batch = next_token_targets(BATCH | PACKED)
        self.assertAllEqual(
            batch["masked_lm_weights"], [[1, 1, 1, 0, 1], [1, 0, 1, 0, 0]]
        )
        self.assertAllEqual(batch["masked_lm_ids"], [[7, 8, 3, 0, 3], [9, 0, 3, 0, 0]])

    def test_the_loss_of_the_model(self):
        config = BertConfig(
            vocab_size=11,
            hidden_size=8,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=8,
            left_to_right=True,
            initializer_range=0.5,
        )
        task = pretraining_task(config, next_sentence=False)
        model = task.build_model()
        batch = next_token_targets(BATCH)
        means = task.objective.means(batch, model(batch, training=False))
        # Each token from the tokens before it alone, in a sequence cut off there.
        likelihoods = []
        for row, length in enumerate((6, 4)):
            for end in range(1, length):
                known = {
                    name: BATCH[name][row : row + 1, :end]
                    for name in ("input_ids", "input_mask", "segment_ids")
                }
                known["masked_lm_positions"] = tf.constant([[end - 1]])
                logits = model(known)["masked_lm_logits"].numpy()[0, 0]
                logits = logits.astype(np.float64)
                likelihoods.append(logits[IDS[row][end]] - np.log(np.exp(logits).sum()))
        self.assertAllClose(
            means["masked_lm_loss"].total, -np.sum(likelihoods), rtol=1e-5
        )
        self.assertEqual(float(means["masked_lm_loss"].weight), 8.0)

    def test_the_model_of_packed_rows(self):
        config = BertConfig(
            vocab_size=11,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=8,
            left_to_right=True,
        )
        batch = next_token_targets(BATCH | PACKED)
        outputs = BertPretrainer(config, packed=True)(batch)
        self.assertEqual(outputs["masked_lm_logits"].shape, (2, 5, 11))
        self.assertEqual(outputs["next_sentence_logits"].shape, (2, 2, 2))


if __name__ == "__main__":
    tf.test.main()
