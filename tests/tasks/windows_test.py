import random

import numpy as np
import tensorflow as tf

from bert_tf.tasks.windows import average_windows, windows_of_pair


class WindowsTest(tf.test.TestCase):
    def test_what_fits_is_one_window(self):
        self.assertEqual(windows_of_pair([1, 2], [3], 3), ([([1, 2], [3])], False))
        self.assertEqual(windows_of_pair([], [], 3), ([([], [])], False))

    def test_a_text(self):
        pairs, is_cut = windows_of_pair([1, 2, 3, 4, 5, 6, 7], [], 4)
        self.assertEqual(
            pairs, [([1, 2, 3, 4], []), ([3, 4, 5, 6], []), ([5, 6, 7], [])]
        )
        self.assertFalse(is_cut)
        pairs, _ = windows_of_pair([1, 2, 3, 4, 5, 6, 7], [], 4, stride=3)
        self.assertEqual(pairs, [([1, 2, 3, 4], []), ([4, 5, 6, 7], [])])

    def test_a_stride_leaves_nothing_out(self):
        pairs, _ = windows_of_pair([1, 2, 3, 4, 5], [], 2, stride=100)
        self.assertEqual(pairs, [([1, 2], []), ([3, 4], []), ([5], [])])
        pairs, _ = windows_of_pair([1, 2, 3], [], 1)
        self.assertEqual(pairs, [([1], []), ([2], []), ([3], [])])

    def test_the_longer_of_a_pair(self):
        pairs, is_cut = windows_of_pair([1, 2, 3, 4], [8, 9], 4)
        self.assertEqual(pairs, [([1, 2], [8, 9]), ([2, 3], [8, 9]), ([3, 4], [8, 9])])
        self.assertFalse(is_cut)
        pairs, _ = windows_of_pair([8, 9], [1, 2, 3], 4)
        self.assertEqual(pairs, [([8, 9], [1, 2]), ([8, 9], [2, 3])])
        # At equal lengths the second one.
        pairs, _ = windows_of_pair([1, 2], [3, 4], 3)
        self.assertEqual(pairs, [([1], [3, 4])])

    def test_what_stands_whole_has_half_of_the_room(self):
        pairs, is_cut = windows_of_pair([1, 2, 3, 4, 5], [6, 7, 8], 4)
        self.assertEqual(
            pairs,
            [([1, 2], [6, 7]), ([2, 3], [6, 7]), ([3, 4], [6, 7]), ([4, 5], [6, 7])],
        )
        self.assertTrue(is_cut)

    def test_each_token_is_in_a_window_and_all_fit(self):
        rng = random.Random(0)
        for _ in range(500):
            tokens = list(range(rng.randint(0, 40)))
            room, stride = rng.randint(1, 12), rng.choice([None, *range(1, 14)])
            pairs, _ = windows_of_pair(tokens, [], room, stride)
            windows = [window for window, _ in pairs]
            self.assertEqual(sorted({x for window in windows for x in window}), tokens)
            self.assertLessEqual(max(map(len, windows)), room)
            # Only the last one reaches the end.
            for window in windows[:-1]:
                self.assertNotEqual(window[-1], tokens[-1])


class AverageTest(tf.test.TestCase):
    def test_mean_of_each_examples_windows(self):
        logits = np.array([[1, 2], [3, 8], [7, 7], [0, 3], [0, 3], [3, 6]], np.float32)
        averages = average_windows(logits, [2, 1, 3])
        self.assertAllClose(averages, [[2, 5], [7, 7], [1, 4]])
        self.assertEqual(averages.dtype, np.float32)

    def test_counts_that_are_of_other_records(self):
        for counts in ([2, 2], [6, 0], [6, 1], [7, -1]):
            with self.assertRaisesRegex(ValueError, "add up to 6"):
                average_windows(np.zeros([6, 2]), counts)


if __name__ == "__main__":
    tf.test.main()
