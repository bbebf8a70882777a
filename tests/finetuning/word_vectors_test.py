import os

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.word_vectors import (
    VectorBatches,
    VectorRecords,
    inputs_of_windows,
    words_of_vectors,
    words_of_windows,
)
from bert_tf.records.batching import SplitRecords
from bert_tf.tagging.features import Features
from bert_tf.tasks import tagging

# Two windows of 2 and 1 words; the words' labels, and their vectors [T, 1, 2].
WINDOWS = [
    Features([2, 7, 8, 9, 3], np.array([1, 3]), np.array([0, 1])),
    Features([2, 9, 11, 3], np.array([2]), np.array([2])),
]
LABELS = np.array([4, 0, 5])
VECTORS = np.array([[[1, 2]], [[3, 4]], [[5, 6]]], np.float16)


class WindowsTest(tf.test.TestCase):
    def test_each_word_has_the_vector_of_its_first_piece(self):
        # Word 2 is predicted from the second window, word 1 from the first.
        first, second = inputs_of_windows(WINDOWS)
        self.assertEqual(first.ids, [2, 7, 8, 9, 3])
        self.assertEqual(first.segment_ids, [0] * 5)
        self.assertEqual([start for start, _ in first.spans], [1, 3])
        self.assertEqual(first.num_vectors, 2)
        self.assertEqual([start for start, _ in second.spans], [2])
        self.assertAllEqual(words_of_vectors(WINDOWS), [0, 1, 2])

    def test_nothing(self):
        self.assertEqual(inputs_of_windows([]), [])
        self.assertAllEqual(words_of_vectors([]), np.zeros([0]))


class WordVectorsTest(tf.test.TestCase):
    def records(self):
        return SplitRecords.prepare(
            os.path.join(self.get_temp_dir(), "train.tf_record"),
            tagging.schema(8),
            {},
            tagging.blocks(words_of_windows(WINDOWS), LABELS, 8),
        )

    def check(self, batch):
        """A batch of the second window, the first one, and padding."""
        zero = [[0, 0]]
        self.assertAllEqual(
            batch["features"],
            [[[[5, 6]], zero, zero], [[[1, 2]], [[3, 4]], zero], [zero, zero, zero]],
        )
        self.assertEqual(np.asarray(batch["features"]).dtype, np.float32)
        self.assertAllEqual(batch["label_ids"], [[5, 0, 0], [4, 0, 0], [0, 0, 0]])
        weights = [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
        self.assertAllEqual(batch["label_weights"], weights)
        self.assertAllEqual(batch["input_mask"], weights)

    def test_batches_to_train_on(self):
        records = VectorRecords.of(self.records(), VECTORS)
        dataset = records.table.batches(np.array([[1, 0, -1]]), 3)
        self.assertEqual(dataset.element_spec["features"].shape, [3, 3, 1, 2])
        (batch,) = dataset
        self.check(batch)

    def test_batches_to_predict(self):
        plain = self.records().batches(3, max_lengths=1)
        batches = VectorBatches(plain, VECTORS)
        self.assertLen(batches, 1)
        (batch,) = batches
        self.assertAllEqual(batch["rows"], [1, 0, -1])
        spec = batches.element_spec["features"]
        self.assertTrue(spec.is_compatible_with(batch["features"]))
        batch = {name: np.asarray(value) for name, value in batch.items()}
        padding = np.zeros([3, 1, 1, 2])
        batch["features"] = np.concatenate([batch["features"], padding], axis=1)
        for name in ("label_ids", "label_weights", "input_mask"):
            batch[name] = np.pad(batch[name], [(0, 0), (0, 1)])
        batch["features"] = np.float32(batch["features"])
        self.check(batch)


if __name__ == "__main__":
    tf.test.main()
