import random

import tensorflow as tf

from bert_tf.quickstart import word_order


class WordOrderTest(tf.test.TestCase):
    def test_each_is_there_as_written_and_shuffled(self):
        sentences = [
            f"Number {word}, of them: is written 'as' a long sentence."
            for word in ("alpha", "beta", "gamma", "delta")
        ]
        rows = word_order.examples(word_order.usable_words(sentences), random.Random(0))
        written = {
            f"number {word} of them is written as a long sentence"
            for word in ("alpha", "beta", "gamma", "delta")
        }
        self.assertLen(rows, 8)
        self.assertEqual(
            {text for label, text in rows if label == word_order.AS_WRITTEN}, written
        )
        shuffled = [text for label, text in rows if label == word_order.SHUFFLED]
        self.assertNoCommonElements(shuffled, written)
        self.assertCountEqual(
            [sorted(text.split()) for text in shuffled],
            [sorted(text.split()) for text in written],
        )

    def test_short_long_and_repeated_sentences_are_left_out(self):
        self.assertEqual(
            word_order.usable_words(
                ["Only four words here.", "word " * 30, "Go go go go go go.",
                 *["One, two three four five."] * 3, "one two three four five"]
            ),
            [["one", "two", "three", "four", "five"]],
        )  # fmt: skip

    def test_the_seed_decides(self):
        words = [[*"abcde", "x" * number] for number in range(1, 20)]
        first = word_order.examples(words, random.Random(1))
        self.assertEqual(first, word_order.examples(words, random.Random(1)))
        self.assertNotEqual(first, word_order.examples(words, random.Random(2)))

    def test_table(self):
        self.assertEqual(
            word_order.table([("0", "b a"), ("1", "a b")]),
            "label\ttext_a\n0\tb a\n1\ta b\n",
        )


if __name__ == "__main__":
    tf.test.main()
