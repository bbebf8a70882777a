import math

import numpy as np
import tensorflow as tf

from bert_tf.modeling import objectives
from bert_tf.modeling.objectives import Mean

LOG = math.log
# Softmax of each row: [1/4, 3/4], [1/2, 1/2], [4/5, 1/5], [1/3, 2/3].
LOGITS = np.array([[0.0, LOG(3)], [7.0, 7.0], [LOG(4), 0.0], [0.0, LOG(2)]], np.float32)
REAL = [[0], [1]]


def loss(objective, records, outputs, name=None):
    """(total, weight) of an objective's only loss, or of the metric of this name."""
    functions = {**objective.losses, **objective.metrics}
    mean = functions[name or next(iter(objective.losses))](records, outputs)
    return [mean.total, mean.weight]


class MaskedLMTest(tf.test.TestCase):
    ids = np.array([[1, 0], [1, 0]], np.int32)
    weights = np.array([[1.0, 0.0], [1.0, 0.5]], np.float32)

    def loss(self, logits, ids=ids, weights=weights, name="masked_lm_loss"):
        records = {"masked_lm_ids": ids, "masked_lm_weights": weights}
        return loss(objectives.MASKED_LM, records, {"masked_lm_logits": logits}, name)

    def test_loss_and_accuracy(self):
        logits = LOGITS.reshape(2, 2, 2)
        # -log of 3/4, then of 1/5, then half of that of 1/3.
        total = LOG(4 / 3) + LOG(5) + 0.5 * LOG(3)
        whole = self.loss(logits)
        self.assertAllClose(whole, [total, 2.5], rtol=1e-6)
        # Right, (weight 0), wrong, wrong.
        self.assertAllClose(self.loss(logits, name="masked_lm_accuracy"), [1.0, 2.5])
        parts = [
            self.loss(logits[i : i + 1], self.ids[i : i + 1], self.weights[i : i + 1])
            for i in range(2)
        ]
        self.assertAllClose(np.sum(parts, axis=0), whole, rtol=1e-6)

    def test_first_of_equal_scores_is_the_likeliest(self):
        logits = np.array([[[1.0, 5.0, 5.0, 2.0]]] * 4, np.float32).reshape(1, 4, 4)
        for number, expected in enumerate((0.0, 1.0, 0.0, 0.0)):
            weights = np.eye(4, dtype=np.float32)[None, number]
            total, _ = self.loss(logits, [[0, 1, 2, 3]], weights, "masked_lm_accuracy")
            self.assertAllEqual(total, expected)

    def test_gradient(self):
        logits = tf.constant(LOGITS.reshape(2, 2, 2))
        with tf.GradientTape() as tape:
            tape.watch(logits)
            total, _ = self.loss(logits)
        # Probabilities less the one of the label, times the weight.
        self.assertAllClose(
            tape.gradient(total, logits),
            [[[0.25, -0.25], [0.0, 0.0]], [[0.8, -0.8], [-1 / 3, 1 / 3]]],
            rtol=1e-6,
            atol=1e-7,
        )

    def test_half_precision_logits_are_reduced_in_float32(self):
        logits = tf.cast(np.zeros((1, 1, 30522)), tf.bfloat16)
        total, _ = self.loss(logits, [[5]], [[1.0]])
        self.assertEqual(total.dtype, tf.float32)
        self.assertAllClose(total, LOG(30522), rtol=1e-6)

    def test_extreme_logits(self):
        logits = np.array([[[3e4, -3e4, 0.0]]], np.float32)
        self.assertAllClose(self.loss(logits, [[1]], [[1.0]])[0], 6e4)


class LabelTest(tf.test.TestCase):
    def check(self, objective, labels, total, right, **weights):
        """Both means, for labels of (B, 1); logits are LOGITS."""
        records = {"label_ids": np.array(labels)[:, None], **weights}
        outputs = {"logits": LOGITS[: len(labels)]}
        weight = float(np.sum(next(iter(weights.values()), np.ones(len(labels)))))
        self.assertAllClose(
            loss(objective, records, outputs), [total, weight], rtol=1e-6
        )
        self.assertAllClose(
            loss(objective, records, outputs, "accuracy"), [right, weight]
        )
        # The weights need no outputs.
        self.assertAllClose(objective.weights(records), {"cross_entropy": weight})

    def test_classification(self):
        classes = objectives.CLASSIFICATION
        total = LOG(4 / 3) + LOG(2) + LOG(5 / 4) + LOG(3)
        self.check(classes, [1, 1, 0, 0], total, 2.0)
        # Two examples only fill up the batch.
        real = np.array([[1], [0], [1], [0]], np.int32)
        total = LOG(4 / 3) + LOG(5)
        self.check(classes, [1, 1, 1, 1], total, 1.0, is_real_example=real)

    def test_next_sentence(self):
        records = {"next_sentence_labels": [[1], [1], [0], [0]]}
        outputs = {"next_sentence_logits": LOGITS}
        total = LOG(4 / 3) + LOG(2) + LOG(5 / 4) + LOG(3)
        sentences = objectives.NEXT_SENTENCE
        self.assertAllClose(loss(sentences, records, outputs), [total, 4.0], rtol=1e-6)
        name = "next_sentence_accuracy"
        self.assertAllClose(loss(sentences, records, outputs, name), [2.0, 4.0])
        # Packed: two sequences in a row, the last slot of which is empty.
        records = {
            "next_sentence_labels": [[1, 1], [0, 0]],
            "next_sentence_weights": [[1.0, 1.0], [1.0, 0.0]],
        }
        outputs = {"next_sentence_logits": LOGITS.reshape(2, 2, 2)}
        total -= LOG(3)
        self.assertAllClose(loss(sentences, records, outputs), [total, 3.0], rtol=1e-6)

    def test_tags(self):
        for dtype in (np.float32, np.int32):
            records = {
                "label_ids": np.array([[1, 0], [1, 1]], np.int32),
                "label_weights": np.array([[1, 0], [1, 1]], dtype),
            }
            outputs = {"logits": LOGITS.reshape(2, 2, 2)}
            # -log of 3/4, (weight 0), of 1/5 and of 2/3.
            total = LOG(4 / 3) + LOG(5) + LOG(3 / 2)
            tags = objectives.TAGGING
            self.assertAllClose(loss(tags, records, outputs), [total, 3.0], rtol=1e-6)
            self.assertAllClose(loss(tags, records, outputs, "accuracy"), [2.0, 3.0])
            self.assertAllEqual(tags.weights(records), {"cross_entropy": 3.0})


class NumbersTest(tf.test.TestCase):
    def test_regression(self):
        squares = objectives.REGRESSION
        outputs = {"logits": np.array([[1.0], [2.0], [3.0]], np.float32)}
        records = {"label_ids": np.array([[0.5], [2.0], [5.0]], np.float32)}
        self.assertAllClose(loss(squares, records, outputs), [0.25 + 0.0 + 4.0, 3.0])
        self.assertAllEqual(squares.weights(records), {"mean_squared_error": 3.0})
        records = {"label_ids": [0.5, 2.0, 5.0], "is_real_example": [1, 1, 0]}
        self.assertAllClose(loss(squares, records, outputs), [0.25, 2.0])

    def test_regression_of_several_numbers(self):
        outputs = {"logits": np.array([[1.0, 2.0], [3.0, 7.0]], np.float32)}
        records = {"label_ids": np.array([[2.0, 0.0], [3.0, 4.0]], np.float32)}
        result = loss(objectives.REGRESSION, records, outputs)
        self.assertAllClose(result, [(1 + 4) / 2 + (0 + 9) / 2, 2.0])
        records["is_real_example"] = REAL
        result = loss(objectives.REGRESSION, records, outputs)
        self.assertAllClose(result, [4.5, 1.0])


class MultiLabelTest(tf.test.TestCase):
    # Probabilities: (3/4, 1/2, 1/5) and (1/3, 9/10, 1/2).
    logits = np.log([[3, 1, 1 / 4], [1 / 2, 9, 1]]).astype(np.float32)

    def test_loss_is_the_mean_over_labels_and_examples(self):
        first = (LOG(4 / 3) + LOG(2) + LOG(5 / 4)) / 3
        second = (LOG(3) + LOG(10 / 9) + LOG(2)) / 3
        labels = objectives.MULTI_LABEL
        records = {"label_ids": np.array([[1, 0, 0], [1, 1, 1]], np.float32)}
        outputs = {"logits": self.logits}
        result = loss(labels, records, outputs)
        self.assertAllClose(result, [first + second, 2.0], rtol=1e-6)
        # An example weighs 1, however many labels there may be.
        self.assertAllEqual(labels.weights(records), {"cross_entropy": 2.0})
        records["is_real_example"] = REAL
        result = loss(labels, records, outputs)
        self.assertAllClose(result, [second, 1.0], rtol=1e-6)

    def test_all_labels_must_be_right(self):
        records = {"label_ids": np.array([[1, 0, 0], [0, 1, 1]], np.float32)}
        outputs = {"logits": self.logits + np.array([[0, -1e-3, 0], [0, 0, -1e-3]])}
        for real, expected in (({}, [1.0, 2.0]), ({"is_real_example": REAL}, [0, 1])):
            result = loss(
                objectives.MULTI_LABEL, records | real, outputs, "exact_match"
            )
            self.assertAllClose(result, expected)

    def test_one_label(self):
        for labels in ([1.0, 0.0], [[1.0], [0.0]]):
            result = loss(
                objectives.MULTI_LABEL,
                {"label_ids": labels},
                {"logits": self.logits[:, :1]},
            )
            self.assertAllClose(result, [LOG(4 / 3) + LOG(3 / 2), 2.0])

    def test_large_logits(self):
        total, _ = loss(
            objectives.MULTI_LABEL,
            {"label_ids": [[1.0, 1.0]]},
            {"logits": [[1000.0, -1000.0]]},
        )
        self.assertAllClose(total, 500.0)


class SpanTest(tf.test.TestCase):
    def test_loss_and_accuracy(self):
        # Probabilities: of starts (1/4, 3/4) and (1/3, 2/3), of ends (1/2, 1/2) and
        # (4/5, 1/5).
        outputs = {"start_logits": LOGITS[[0, 3]], "end_logits": LOGITS[[1, 2]]}
        records = {
            "start_positions": np.array([[1], [1]]),
            "end_positions": np.array([[0], [1]]),
        }
        span = objectives.SPAN
        first, second = (LOG(4 / 3) + LOG(2)) / 2, (LOG(3 / 2) + LOG(5)) / 2
        result = loss(span, records, outputs)
        self.assertAllClose(result, [first + second, 2.0], rtol=1e-6)
        # The first is right (of equal scores the first counts), the second's end wrong.
        result = loss(span, records, outputs, "span_accuracy")
        self.assertAllClose(result, [1.0, 2.0])
        self.assertAllEqual(span.weights(records), {"cross_entropy": 2.0})
        records["is_real_example"] = REAL
        result = loss(span, records, outputs)
        self.assertAllClose(result, [second, 1.0], rtol=1e-6)
        result = loss(span, records, outputs, "span_accuracy")
        self.assertAllClose(result, [0.0, 1.0])
        self.assertAllEqual(span.weights(records), {"cross_entropy": 1.0})


class MeanTest(tf.test.TestCase):
    def test_is_the_originals_division(self):
        self.assertAllClose(Mean(3.0, 1.5, 1e-5).value(), 3.0 / 1.50001, rtol=1e-6)
        self.assertAllClose(Mean(3.0, 2.0).value(), 1.5)

    def test_of_nothing_is_zero(self):
        self.assertAllClose(Mean(0.0, 0.0).value(), 0.0)
        self.assertAllClose(Mean(0.0, 0.0, 1e-5).value(), 0.0)

    def test_a_part_is_divided_by_the_weight_of_the_whole(self):
        self.assertAllClose(Mean(3.0, 1.0).value(weight=6.0), 0.5)

    def test_both_objectives_of_pre_training(self):
        objective = objectives.MASKED_LM + objectives.NEXT_SENTENCE
        records = {
            "masked_lm_ids": [[1, 0]],
            "masked_lm_weights": [[1.0, 0.5]],
            "next_sentence_labels": [[1]],
        }
        outputs = {
            "masked_lm_logits": tf.constant(LOGITS[None, :2]),
            "next_sentence_logits": tf.constant(LOGITS[:1]),
        }
        means = objective.means(records, outputs)
        self.assertEqual(
            {name: mean.epsilon for name, mean in means.items()},
            {
                "masked_lm_loss": 1e-5,
                "next_sentence_loss": 0.0,
                "masked_lm_accuracy": 0.0,
                "next_sentence_accuracy": 0.0,
            },
        )
        self.assertAllEqual(
            objective.weights(records),
            {"masked_lm_loss": 1.5, "next_sentence_loss": 1.0},
        )
