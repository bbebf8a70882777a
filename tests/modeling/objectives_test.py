import math

import numpy as np
import tensorflow as tf

from bert_tf.modeling import objectives
from bert_tf.modeling.objectives import Mean

LOG = math.log
# Softmax of each row: [1/4, 3/4], [1/2, 1/2], [4/5, 1/5], [1/3, 2/3].
LOGITS = np.array([[0.0, LOG(3)], [7.0, 7.0], [LOG(4), 0.0], [0.0, LOG(2)]], np.float32)


class MaskedLMTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.logits = LOGITS.reshape(2, 2, 2)
        self.ids = np.array([[1, 0], [1, 0]], np.int32)
        self.weights = np.array([[1.0, 0.0], [1.0, 0.5]], np.float32)

    def test_loss(self):
        total, weight = objectives.masked_lm_loss(self.logits, self.ids, self.weights)
        # -log of 3/4, then of 1/5, then half of that of 1/3.
        self.assertAllClose(total, LOG(4 / 3) + LOG(5) + 0.5 * LOG(3), rtol=1e-6)
        self.assertAllClose(weight, 2.5)

    def test_accuracy(self):
        total, weight = objectives.masked_lm_accuracy(
            self.logits, self.ids, self.weights
        )
        # Right, (weight 0), wrong, wrong.
        self.assertAllClose([total, weight], [1.0, 2.5])

    def test_first_of_equal_scores_is_the_likeliest(self):
        logits = np.array([[[1.0, 5.0, 5.0, 2.0]]] * 4, np.float32).reshape(1, 4, 4)
        for number, expected in enumerate((0.0, 1.0, 0.0, 0.0)):
            weights = np.eye(4, dtype=np.float32)[None, number]
            total, _ = objectives.masked_lm_accuracy(logits, [[0, 1, 2, 3]], weights)
            self.assertAllEqual(total, expected)

    def test_gradient(self):
        logits = tf.constant(self.logits)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            total, _ = objectives.masked_lm_loss(logits, self.ids, self.weights)
        # Probabilities less the one of the label, times the weight.
        self.assertAllClose(
            tape.gradient(total, logits),
            [[[0.25, -0.25], [0.0, 0.0]], [[0.8, -0.8], [-1 / 3, 1 / 3]]],
            rtol=1e-6,
            atol=1e-7,
        )

    def test_micro_batches_add_up(self):
        whole = objectives.masked_lm_loss(self.logits, self.ids, self.weights)
        parts = [
            objectives.masked_lm_loss(
                self.logits[i : i + 1], self.ids[i : i + 1], self.weights[i : i + 1]
            )
            for i in range(2)
        ]
        self.assertAllClose(np.sum(parts, axis=0), whole, rtol=1e-6)

    def test_half_precision_logits_are_reduced_in_float32(self):
        logits = tf.cast(np.zeros((1, 1, 30522)), tf.bfloat16)
        total, _ = objectives.masked_lm_loss(logits, [[5]], [[1.0]])
        self.assertEqual(total.dtype, tf.float32)
        self.assertAllClose(total, LOG(30522), rtol=1e-6)

    def test_extreme_logits(self):
        logits = np.array([[[3e4, -3e4, 0.0]]], np.float32)
        total, _ = objectives.masked_lm_loss(logits, [[1]], [[1.0]])
        self.assertAllClose(total, 6e4)


class SequenceLabelTest(tf.test.TestCase):
    def test_next_sentence(self):
        labels = np.array([[1], [1], [0], [0]], np.int32)
        total, weight = objectives.next_sentence_loss(LOGITS, labels)
        self.assertAllClose(total, LOG(4 / 3) + LOG(2) + LOG(5 / 4) + LOG(3), rtol=1e-6)
        self.assertAllClose(weight, 4.0)
        total, weight = objectives.next_sentence_accuracy(LOGITS[[0, 2, 3]], [1, 1, 1])
        self.assertAllClose([total, weight], [2.0, 3.0])

    def test_classification_counts_real_examples(self):
        labels = np.array([[1], [1], [1], [1]], np.int32)
        real = np.array([[1], [0], [1], [0]], np.int32)
        total, weight = objectives.classification_loss(LOGITS, labels, real)
        self.assertAllClose(total, LOG(4 / 3) + LOG(5), rtol=1e-6)
        self.assertAllClose(weight, 2.0)
        total, weight = objectives.classification_accuracy(LOGITS, labels, real)
        self.assertAllClose([total, weight], [1.0, 2.0])

    def test_all_are_real_where_nothing_is_said(self):
        for function in (
            objectives.classification_loss,
            objectives.classification_accuracy,
        ):
            self.assertAllClose(
                function(LOGITS, np.zeros(4, np.int32)),
                function(LOGITS, np.zeros((4, 1), np.int32), np.ones((4, 1))),
            )

    def test_regression(self):
        logits = np.array([[1.0], [2.0], [3.0]], np.float32)
        labels = np.array([[0.5], [2.0], [5.0]], np.float32)
        total, weight = objectives.regression_loss(logits, labels)
        self.assertAllClose([total, weight], [0.25 + 0.0 + 4.0, 3.0])
        total, weight = objectives.regression_loss(logits, labels[:, 0], [1, 1, 0])
        self.assertAllClose([total, weight], [0.25, 2.0])

    def test_regression_of_several_numbers(self):
        logits = np.array([[1.0, 2.0], [3.0, 7.0]], np.float32)
        labels = np.array([[2.0, 0.0], [3.0, 4.0]], np.float32)
        total, weight = objectives.regression_loss(logits, labels)
        self.assertAllClose([total, weight], [(1 + 4) / 2 + (0 + 9) / 2, 2.0])
        total, weight = objectives.regression_loss(logits, labels, [[0], [1]])
        self.assertAllClose([total, weight], [4.5, 1.0])


class MultiLabelTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        # Probabilities: (3/4, 1/2, 1/5) and (1/3, 9/10, 1/2).
        odds = np.array([[3, 1, 1 / 4], [1 / 2, 9, 1]])
        self.logits = np.log(odds).astype(np.float32)
        self.labels = np.array([[1, 0, 0], [1, 1, 1]], np.float32)

    def test_loss_is_the_mean_over_labels_and_examples(self):
        first = (LOG(4 / 3) + LOG(2) + LOG(5 / 4)) / 3
        second = (LOG(3) + LOG(10 / 9) + LOG(2)) / 3
        total, weight = objectives.multi_label_loss(self.logits, self.labels)
        self.assertAllClose([total, weight], [first + second, 2.0], rtol=1e-6)
        total, weight = objectives.multi_label_loss(
            self.logits, self.labels, [[0], [1]]
        )
        self.assertAllClose([total, weight], [second, 1.0], rtol=1e-6)

    def test_all_labels_must_be_right(self):
        labels = np.array([[1, 0, 0], [0, 1, 1]], np.float32)
        logits = self.logits + np.array([[0, -1e-3, 0], [0, 0, -1e-3]])
        total, weight = objectives.exact_match(logits, labels)
        self.assertAllClose([total, weight], [1.0, 2.0])
        total, weight = objectives.exact_match(logits, labels, [0, 1])
        self.assertAllClose([total, weight], [0.0, 1.0])

    def test_one_label(self):
        for labels in ([1.0, 0.0], [[1.0], [0.0]]):
            total, weight = objectives.multi_label_loss(self.logits[:, :1], labels)
            self.assertAllClose([total, weight], [LOG(4 / 3) + LOG(3 / 2), 2.0])

    def test_large_logits(self):
        total, _ = objectives.multi_label_loss([[1000.0, -1000.0]], [[1.0, 1.0]])
        self.assertAllClose(total, 500.0)


class SpanTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        # Probabilities: of starts (1/4, 3/4) and (1/3, 2/3), of ends (1/2, 1/2) and
        # (4/5, 1/5).
        self.logits = (LOGITS[[0, 3]], LOGITS[[1, 2]])
        self.positions = (np.array([[1], [1]]), np.array([[0], [1]]))

    def test_loss_is_the_mean_of_both_ends(self):
        total, weight = objectives.span_loss(*self.logits, *self.positions)
        self.assertAllClose(
            total,
            (LOG(4 / 3) + LOG(2)) / 2 + (LOG(3 / 2) + LOG(5)) / 2,
            rtol=1e-6,
        )
        self.assertAllClose(weight, 2.0)
        total, weight = objectives.span_loss(*self.logits, *self.positions, [[0], [1]])
        self.assertAllClose(total, (LOG(3 / 2) + LOG(5)) / 2, rtol=1e-6)
        self.assertAllClose(weight, 1.0)

    def test_accuracy_asks_for_both_ends(self):
        # The first is right (of equal scores the first counts), the second's end wrong.
        self.assertAllClose(
            objectives.span_accuracy(*self.logits, *self.positions), [1.0, 2.0]
        )
        start_wrong = (np.array([[0], [1]]), np.array([[0], [0]]))
        self.assertAllClose(
            objectives.span_accuracy(*self.logits, *start_wrong), [1.0, 2.0]
        )
        self.assertAllClose(
            objectives.span_accuracy(*self.logits, *self.positions, [[0], [1]]),
            [0.0, 1.0],
        )


class TaggingTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.logits = LOGITS.reshape(2, 2, 2)
        self.ids = np.array([[1, 0], [1, 1]], np.int32)
        self.weights = np.array([[1.0, 0.0], [1.0, 1.0]], np.float32)

    def test_loss(self):
        total, weight = objectives.tagging_loss(self.logits, self.ids, self.weights)
        # -log of 3/4, (weight 0), of 1/5 and of 2/3.
        self.assertAllClose(total, LOG(4 / 3) + LOG(5) + LOG(3 / 2), rtol=1e-6)
        self.assertAllClose(weight, 3.0)

    def test_accuracy(self):
        self.assertAllClose(
            objectives.tagging_accuracy(self.logits, self.ids, self.weights), [2.0, 3.0]
        )

    def test_weights_may_be_integers(self):
        self.assertAllClose(
            objectives.tagging_loss(
                self.logits, self.ids, self.weights.astype(np.int32)
            ),
            objectives.tagging_loss(self.logits, self.ids, self.weights),
        )


RECORDS = {
    "masked_lm_ids": [[1, 0]],
    "masked_lm_weights": [[1.0, 0.0]],
    "next_sentence_labels": [[1]],
    "label_ids": [[0], [1]],
    "is_real_example": [[1], [0]],
}
# softmax of (0, log 3) is (1/4, 3/4).
LOGITS_OBJECTIVES = [0.0, float(np.log(3.0))]


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
            "masked_lm_logits": tf.constant([[LOGITS_OBJECTIVES, LOGITS_OBJECTIVES]]),
            "next_sentence_logits": tf.constant([LOGITS_OBJECTIVES]),
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
        outputs = {"logits": tf.constant([LOGITS_OBJECTIVES, LOGITS_OBJECTIVES])}
        means = objectives.CLASSIFICATION.means(RECORDS, outputs)
        # The second example fills the batch up and counts for nothing.
        self.assertAllClose(tuple(means["cross_entropy"]), (np.log(4.0), 1.0, 0.0))
        self.assertAllClose(tuple(means["accuracy"]), (0.0, 1.0, 0.0))
        outputs = {"logits": tf.constant([[2.0], [9.0]])}
        means = objectives.REGRESSION.means(RECORDS, outputs)
        self.assertAllClose(tuple(means["mean_squared_error"]), (4.0, 1.0, 0.0))

    def test_several_labels(self):
        records = {"label_ids": [[0.0, 1.0], [1.0, 1.0]]}
        outputs = {"logits": tf.constant([LOGITS_OBJECTIVES, LOGITS_OBJECTIVES])}
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
            "start_logits": tf.constant([LOGITS_OBJECTIVES, LOGITS_OBJECTIVES]),
            "end_logits": tf.constant([[0.0, 0.0], LOGITS_OBJECTIVES]),
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
        outputs = {
            "logits": tf.constant(
                [[LOGITS_OBJECTIVES, LOGITS_OBJECTIVES, LOGITS_OBJECTIVES]]
            )
        }
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
