import numpy as np
import tensorflow as tf

from bert_tf.modeling import objectives
from bert_tf.modeling.objectives import Mean

RECORDS = {
    "masked_lm_ids": [[1, 0]],
    "masked_lm_weights": [[1.0, 0.0]],
    "next_sentence_labels": [[1]],
    "label_ids": [[0], [1]],
    "is_real_example": [[1], [0]],
}
# softmax of (0, log 3) is (1/4, 3/4).
LOGITS = [0.0, float(np.log(3.0))]


class MeanTest(tf.test.TestCase):
    def test_is_the_originals_division(self):
        self.assertAllClose(Mean(3.0, 1.5, 1e-5).value(), 3.0 / 1.50001, rtol=1e-6)
        self.assertAllClose(Mean(3.0, 2.0).value(), 1.5)

    def test_of_nothing_is_zero(self):
        self.assertAllClose(Mean(0.0, 0.0).value(), 0.0)
        self.assertAllClose(Mean(0.0, 0.0, 1e-5).value(), 0.0)

    def test_a_part_is_divided_by_the_weight_of_the_whole(self):
        self.assertAllClose(Mean(3.0, 1.0).value(weight=6.0), 0.5)


class ObjectiveTest(tf.test.TestCase):
    def test_pre_training(self):
        objective = objectives.MASKED_LM + objectives.NEXT_SENTENCE
        outputs = {
            "masked_lm_logits": tf.constant([[LOGITS, LOGITS]]),
            "next_sentence_logits": tf.constant([LOGITS]),
        }
        means = objective.means(RECORDS, outputs)
        self.assertEqual(
            list(objective.losses), ["masked_lm_loss", "next_sentence_loss"]
        )
        loss = np.log(4 / 3)
        self.assertAllClose(tuple(means["masked_lm_loss"]), (loss, 1.0, 1e-5))
        self.assertAllClose(tuple(means["masked_lm_accuracy"]), (1.0, 1.0, 0.0))
        self.assertAllClose(tuple(means["next_sentence_loss"]), (loss, 1.0, 0.0))
        self.assertAllClose(tuple(means["next_sentence_accuracy"]), (1.0, 1.0, 0.0))

    def test_labels(self):
        outputs = {"logits": tf.constant([LOGITS, LOGITS])}
        means = objectives.CLASSIFICATION.means(RECORDS, outputs)
        # The second example fills the batch up and counts for nothing.
        self.assertAllClose(tuple(means["cross_entropy"]), (np.log(4.0), 1.0, 0.0))
        self.assertAllClose(tuple(means["accuracy"]), (0.0, 1.0, 0.0))
        outputs = {"logits": tf.constant([[2.0], [9.0]])}
        means = objectives.REGRESSION.means(RECORDS, outputs)
        self.assertAllClose(tuple(means["mean_squared_error"]), (4.0, 1.0, 0.0))

    def test_several_labels(self):
        records = {"label_ids": [[0.0, 1.0], [1.0, 1.0]]}
        outputs = {"logits": tf.constant([LOGITS, LOGITS])}
        means = objectives.MULTI_LABEL.means(records, outputs)
        total = (np.log(2.0) + np.log(4 / 3)) / 2 * 2
        self.assertAllClose(tuple(means["cross_entropy"]), (total, 2.0, 0.0))
        self.assertAllClose(tuple(means["exact_match"]), (1.0, 2.0, 0.0))
        # An example weighs 1, however many labels there may be.
        weights = objectives.MULTI_LABEL.weights(records)
        self.assertAllEqual(weights, {"cross_entropy": 2.0})
        records["is_real_example"] = [[1], [0]]
        weights = objectives.MULTI_LABEL.weights(records)
        self.assertAllEqual(weights, {"cross_entropy": 1.0})

    def test_spans(self):
        records = {
            "start_positions": [[1], [0]],
            "end_positions": [[1], [0]],
            "is_real_example": [[1], [0]],
        }
        outputs = {
            "start_logits": tf.constant([LOGITS, LOGITS]),
            "end_logits": tf.constant([[0.0, 0.0], LOGITS]),
        }
        means = objectives.SPAN.means(records, outputs)
        loss = (np.log(4 / 3) + np.log(2.0)) / 2
        self.assertAllClose(tuple(means["cross_entropy"]), (loss, 1.0, 0.0))
        # The first of equal scores counts as the likeliest.
        self.assertAllClose(tuple(means["span_accuracy"]), (0.0, 1.0, 0.0))
        self.assertAllEqual(objectives.SPAN.weights(records), {"cross_entropy": 1.0})
        del records["is_real_example"]
        means = objectives.SPAN.means(records, outputs)
        self.assertAllClose(
            tuple(means["cross_entropy"]), (loss + np.log(4.0), 2.0, 0.0)
        )
        self.assertAllEqual(objectives.SPAN.weights(records), {"cross_entropy": 2.0})

    def test_tags(self):
        records = {"label_ids": [[1, 0, 0]], "label_weights": [[1.0, 0.0, 1.0]]}
        outputs = {"logits": tf.constant([[LOGITS, LOGITS, LOGITS]])}
        means = objectives.TAGGING.means(records, outputs)
        loss = np.log(4 / 3) + np.log(4.0)
        self.assertAllClose(tuple(means["cross_entropy"]), (loss, 2.0, 0.0))
        self.assertAllClose(tuple(means["accuracy"]), (1.0, 2.0, 0.0))
        self.assertAllEqual(objectives.TAGGING.weights(records), {"cross_entropy": 2.0})

    def test_weights_need_no_outputs(self):
        records = RECORDS | {"masked_lm_weights": [[1.0, 0.5]]}
        objective = objectives.MASKED_LM + objectives.NEXT_SENTENCE
        self.assertAllEqual(
            objective.weights(records),
            {"masked_lm_loss": 1.5, "next_sentence_loss": 1.0},
        )
        self.assertAllEqual(
            objectives.CLASSIFICATION.weights(RECORDS), {"cross_entropy": 1.0}
        )
        self.assertAllEqual(
            objectives.REGRESSION.weights({"label_ids": [[0.5], [1.5]]}),
            {"mean_squared_error": 2.0},
        )


if __name__ == "__main__":
    tf.test.main()
