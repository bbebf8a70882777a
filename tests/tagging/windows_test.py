import numpy as np
import tensorflow as tf

from bert_tf.tagging.windows import best_windows, windows


def context(window, place, total):
    """The tokens on that side of one on which a window has fewer."""
    start, end = window
    if not start <= place < end:
        return -1
    left = place - start if start else total
    right = end - 1 - place if end < total else total
    return min(left, right)


class WindowsTest(tf.test.TestCase):
    def test_windows_by_hand(self):
        for arguments, expected in (
            ((3, 10), [(0, 3)]),
            ((10, 10), [(0, 10)]),
            # The last one is moved back, so that it is as long as the others.
            ((12, 10), [(0, 10), (2, 12)]),
            ((20, 10), [(0, 10), (5, 15), (10, 20)]),
            ((21, 10), [(0, 10), (5, 15), (10, 20), (11, 21)]),
            ((20, 10, 10), [(0, 10), (10, 20)]),
            ((20, 10, 99), [(0, 10), (10, 20)]),
            ((3, 1), [(0, 1), (1, 2), (2, 3)]),
        ):
            self.assertEqual(windows(*arguments), expected, arguments)

    def test_a_token_counts_where_it_has_most_context(self):
        places = np.arange(20)
        best = best_windows(places, windows(20, 10))
        # Of 7 there are 2 tokens behind it in the first window, in the second one 2
        # before it: the first of equals. The text's own ends lack nothing.
        self.assertEqual(best.tolist(), [0] * 8 + [1] * 5 + [2] * 7)

    def test_each_token_counts_once_and_where_no_other_window_has_more(self):
        generator = np.random.default_rng(1)
        for _ in range(50):
            total, room = generator.integers(1, 60), generator.integers(1, 20)
            found = windows(int(total), int(room), int(generator.integers(1, 25)))
            best = best_windows(np.arange(total), found)
            for place, number in enumerate(best.tolist()):
                contexts = [context(window, place, total) for window in found]
                self.assertEqual(contexts.index(max(contexts)), number)

    def test_a_document_of_millions_of_tokens_takes_no_table_of_windows(self):
        """Tokens by windows are 30 billion numbers here."""
        places = np.arange(2_000_000)
        best = best_windows(places, windows(len(places), 128))
        self.assertEqual(
            best[[0, 95, 96, 1_000_000, -1]].tolist(), [0, 0, 1, 15624, 31248]
        )


if __name__ == "__main__":
    tf.test.main()
