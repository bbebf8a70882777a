import numpy as np
import tensorflow as tf

from bert_tf.modeling import objectives
from bert_tf.tagging.features import Features
from bert_tf.tasks import tagging
from tests.training import toy

FEATURES = [
    Features([2, 7, 8, 3], np.array([1]), np.array([0])),
    Features([2, 7, 8, 9, 10, 3], np.array([1, 2, 4]), np.array([1, 2, 3])),
]
# The second word's label is one that the model does not have.
LABELS = np.array([4, tagging.NO_LABEL, 0, 5])


class TaskTest(tf.test.TestCase):
    def test_model_and_objective(self):
        task = tagging.task(toy.CONFIG, 6, name="parts", recompute=True)
        self.assertEqual(task.name, "parts")
        self.assertIs(task.objective, objectives.TAGGING)
        model = task.build_model()
        self.assertEqual(model.num_labels, 6)
        self.assertTrue(model.get_config()["recompute"])
        # A label more for each of 2 x 12 tokens: a row of 8, two FLOPs each, three
        # times (forward, and backward twice).
        more = tagging.task(toy.CONFIG, 7).training_flops({"input_ids": (2, 12)})
        less = task.training_flops({"input_ids": (2, 12)})
        self.assertEqual(more - less, 3 * 2 * 12 * 2 * toy.CONFIG.hidden_size)

    def test_records_by_hand(self):
        (block,) = tagging.blocks(FEATURES, LABELS, 7)
        for name, rows in (
            ("input_ids", [[2, 7, 8, 3, 0, 0, 0], [2, 7, 8, 9, 10, 3, 0]]),
            ("input_mask", [[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]]),
            ("segment_ids", [[0] * 7, [0] * 7]),
            ("label_ids", [[0, 4, 0, 0, 0, 0, 0], [0, 0, 0, 0, 5, 0, 0]]),
            ("label_weights", [[0, 1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 1, 0, 0]]),
        ):
            self.assertAllEqual(block[name], rows)
        schema = tagging.schema(7)
        parsed = schema.parse(tf.constant(schema.serialize_block(block)))
        self.assertAllEqual(parsed["label_ids"], block["label_ids"])

    def test_the_loss_is_the_mean_over_words(self):
        (block,) = tagging.blocks(FEATURES, LABELS, 7)
        logits = np.zeros([2, 7, 6], np.float32)
        logits[0, 1, 4] = np.log(5.0)  # p = 5 / 10
        logits[1, 4, 5] = np.log(15.0)  # p = 15 / 20
        logits[:, 5] = 100.0  # of no word
        means = objectives.TAGGING.means(block, {"logits": logits})
        # Of the third word p = 1 / 6.
        expected = -np.log([0.5, 0.75, 1 / 6]).mean()
        self.assertAllClose(means["cross_entropy"].value(), expected)

    def test_many_windows_in_several_blocks(self):
        many = [Features([2, 3], np.array([], int), np.array([], int))] * 2500
        sizes = [len(b["input_ids"]) for b in tagging.blocks(many, LABELS, 3)]
        self.assertEqual(sizes, [1024, 1024, 452])
        self.assertEqual(list(tagging.blocks([], LABELS, 3)), [])


if __name__ == "__main__":
    tf.test.main()
