import math

import numpy as np
import tensorflow as tf

from bert_tf.addons.methods import loss_terms
from bert_tf.modeling import objectives

LOG = math.log
# Softmax of each row: [1/4, 3/4], [1/2, 1/2], [4/5, 1/5], [1/3, 2/3].
LOGITS = np.array([[0.0, LOG(3)], [7.0, 7.0], [LOG(4), 0.0], [0.0, LOG(2)]], np.float32)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


class TrainingLossTest(tf.test.TestCase):
    """What training may minimise instead, by hand."""

    def setUp(self):
        super().setUp()
        self.records = {"label_ids": np.array([[1], [1], [0], [0]])}
        self.outputs = {"logits": LOGITS, "other/logits": LOGITS[[2, 1, 0, 3]]}

    def own(self, objective=objectives.CLASSIFICATION):
        (found,) = objective.losses.values()
        return found

    def values(self, found, *given):
        return found.values(*(given or (self.records, self.outputs)))

    def test_smoothed_labels(self):
        # The labels are 0.95 and 0.05.
        self.assertAllClose(
            self.values(loss_terms.smoothed(self.own(), 0.1)),
            [
                0.95 * LOG(4 / 3) + 0.05 * LOG(4),
                LOG(2),
                0.95 * LOG(5 / 4) + 0.05 * LOG(5),
                0.95 * LOG(3) + 0.05 * LOG(3 / 2),
            ],
            rtol=1e-6,
        )
        # Of several, each with its own sigmoid: 3/4 and 1/2.
        several = loss_terms.smoothed(self.own(objectives.MULTI_LABEL), 0.2)
        found = self.values(
            several, {"label_ids": [[1.0, 0.0]]}, {"logits": [[LOG(3), 0.0]]}
        )
        expected = 0.9 * LOG(4 / 3) + 0.1 * LOG(4) + LOG(2)
        self.assertAllClose(found, [expected / 2], rtol=1e-6)

    def test_weights_of_classes(self):
        records = self.records | {"is_real_example": [[1], [1], [1], [0]]}
        weighted = loss_terms.with_class_weights(self.own(), [2.0, 0.5])
        mean = weighted(records, self.outputs)
        total = 0.5 * LOG(4 / 3) + 0.5 * LOG(2) + 2.0 * LOG(5 / 4)
        self.assertAllClose([mean.total, mean.weight], [total, 3.0], rtol=1e-6)
        self.assertAllClose(mean.value(), total / 3.0, rtol=1e-6)
        self.assertAllClose(weighted.weight(records), 3.0)

    def test_divergence(self):
        compared = self.own().of_scores(loss_terms.divergence, "", "other/")
        # Of [1/4, 3/4] and [4/5, 1/5]: 0.55 (log 3.75 - log 0.3125), both ways.
        self.assertAllClose(
            self.values(compared), [0.55 * LOG(12), 0.0, 0.55 * LOG(12), 0.0], atol=1e-6
        )
        several = self.own(objectives.MULTI_LABEL)
        several = several.of_scores(loss_terms.divergence, "", "other/")
        outputs = {"logits": [[LOG(3), 2.0]], "other/logits": [[0.0, 2.0]]}
        self.assertAllClose(self.values(several, {}, outputs), [LOG(3) / 8], rtol=1e-6)
        numbers = self.own(objectives.REGRESSION)
        numbers = numbers.of_scores(loss_terms.divergence, "", "other/")
        outputs = {"logits": [[1.0, 5.0]], "other/logits": [[4.0, 4.0]]}
        self.assertAllClose(self.values(numbers, {}, outputs), [5.0])

    def test_of_a_span_it_is_the_mean(self):
        compared = self.own(objectives.SPAN)
        compared = compared.of_scores(loss_terms.divergence, "", "other/")
        outputs = {"start_logits": LOGITS[:1], "other/start_logits": LOGITS[2:3]}
        outputs |= {"end_logits": LOGITS[:1], "other/end_logits": LOGITS[:1]}
        found = self.values(compared, {}, outputs)
        self.assertAllClose(found, [0.55 * LOG(12) / 2], rtol=1e-6)

    def test_soft_targets(self):
        for temperature in (1.0, 2.0):
            taught = loss_terms.soft_targets(temperature)
            taught = self.own().of_scores(taught, "", "other/")
            outputs = {name: temperature * x for name, x in self.outputs.items()}
            one = 0.8 * LOG(0.8 / 0.25) + 0.2 * LOG(0.2 / 0.75)
            other = 0.25 * LOG(0.25 / 0.8) + 0.75 * LOG(0.75 / 0.2)
            expected = temperature**2 * np.array([one, 0.0, other, 0.0])
            found = self.values(taught, self.records, outputs)
            self.assertAllClose(found, expected, rtol=1e-5, atol=1e-6)
        several = self.own(objectives.MULTI_LABEL)
        several = several.of_scores(loss_terms.soft_targets(1.0), "", "other/")
        outputs = {"logits": [[0.0, -1.0]], "other/logits": [[LOG(3), -2.0]]}
        p, q = sigmoid(-2.0), sigmoid(-1.0)
        first = 0.75 * LOG(1.5) + 0.25 * LOG(0.5)
        second = p * LOG(p / q) + (1 - p) * LOG((1 - p) / (1 - q))
        found = self.values(several, {}, outputs)
        self.assertAllClose(found, [(first + second) / 2], rtol=1e-5)
        # Half the square, whatever the temperature.
        numbers = self.own(objectives.REGRESSION)
        numbers = numbers.of_scores(loss_terms.soft_targets(3.0), "", "other/")
        outputs = {"logits": [[1.0]], "other/logits": [[4.0]]}
        self.assertAllClose(self.values(numbers, {}, outputs), [4.5])

    def test_tokens_but_not_padding(self):
        found = loss_terms.of_tokens("distance")(
            {"input_mask": [[1, 1, 0], [1, 0, 0]], "is_real_example": [[1], [0]]},
            {"distance": np.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], np.float32)},
        )
        self.assertAllClose([found.total, found.weight], [3.0, 2.0])
