import numpy as np
import tensorflow as tf

from bert_tf.finetuning.confusion import confusion_matrix, confusion_picture
from bert_tf.tasks.tables import MULTI_LABEL, SINGLE_LABEL, Target
from tests.finetuning.drawn import drawn


class ConfusionTest(tf.test.TestCase):
    def test_rows_are_true_classes(self):
        target = Target(kind=SINGLE_LABEL, labels=("x", "y", "z"))
        counts = confusion_matrix(
            target, np.array([0, 1, 1, 0, 1]), np.array([0, 0, 0, 1, 1])
        )
        # A class that nobody has or predicts has a row and a column too.
        self.assertAllEqual(counts, [[1, 2, 0], [1, 1, 0], [0, 0, 0]])

    def test_several_labels_by_themselves(self):
        target = Target(kind=MULTI_LABEL, labels=("x", "y"))
        predictions = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])
        labels = np.array([[1, 0], [0, 1], [0, 1], [1, 1]])
        # x: found, false alarm, rightly not, missed. y: not, found twice, missed.
        self.assertAllEqual(
            confusion_matrix(target, predictions, labels), [[1, 1, 1, 1], [2, 1, 0, 1]]
        )
        one = Target(kind=MULTI_LABEL, labels=("x",))
        self.assertAllEqual(
            confusion_matrix(one, np.array([[1], [0]]), np.array([[1], [1]])),
            [[1, 1, 0, 0]],
        )

    def test_the_picture_says_counts_shares_and_labels(self):
        target = Target(kind=SINGLE_LABEL, labels=("$x$ or $", "y" * 60))
        predictions = np.array([0, 1, 1, 1, 0, 0, 1, 1])
        labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])

        def draw():
            return confusion_picture(target, predictions, labels, "dev: 8 examples")

        texts, content = drawn(draw)
        for text in ("1\n25.0%", "3\n75.0%", "2\n50.0%", "dev: 8 examples"):
            self.assertIn(text, texts)
        # The scale of the colours.
        self.assertContainsSubset({"share of the row", "0%", "100%"}, texts)
        self.assertContainsSubset({"$x$ or $", "y" * 39 + "…"}, texts)
        self.assertEqual(draw(), content)

    def test_a_large_matrix_has_no_numbers(self):
        target = Target(kind=SINGLE_LABEL, labels=tuple(f"c{i}" for i in range(41)))
        ids = np.arange(41)
        texts, _ = drawn(lambda: confusion_picture(target, ids, ids, "dev"))
        self.assertIn("c40", texts)
        self.assertFalse([text for text in texts if "\n" in text])

    def test_a_very_large_matrix_is_no_very_large_picture(self):
        target = Target(kind=SINGLE_LABEL, labels=tuple(f"c{i}" for i in range(1000)))
        ids = np.arange(1000)
        texts, content = drawn(lambda: confusion_picture(target, ids, ids, "dev"))
        self.assertNotIn("c0", texts)
        # A PNG's width and height stand in its first chunk.
        self.assertAllLess(np.frombuffer(content[16:24], ">u4"), 5000)


if __name__ == "__main__":
    tf.test.main()
