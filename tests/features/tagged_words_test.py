import numpy as np
import tensorflow as tf

from bert_tf.features.tagged_words import inputs_of_windows, words_of_vectors
from bert_tf.tasks.tagging.words import Features


class TaggedWordsTest(tf.test.TestCase):
    def test_each_word_has_the_vector_of_its_first_piece(self):
        windows = [
            Features([2, 7, 8, 9, 3], np.array([1, 3]), np.array([0, 1])),
            # Word 2 is predicted from here, word 1 from the window before.
            Features([2, 9, 11, 3], np.array([2]), np.array([2])),
        ]
        first, second = inputs_of_windows(windows)
        self.assertEqual(first.ids, [2, 7, 8, 9, 3])
        self.assertEqual(first.segment_ids, [0] * 5)
        self.assertEqual([start for start, _ in first.spans], [1, 3])
        self.assertEqual(first.num_vectors, 2)
        self.assertEqual([start for start, _ in second.spans], [2])
        self.assertAllEqual(words_of_vectors(windows), [0, 1, 2])

    def test_nothing(self):
        self.assertEqual(inputs_of_windows([]), [])
        self.assertAllEqual(words_of_vectors([]), np.zeros([0]))


if __name__ == "__main__":
    tf.test.main()
