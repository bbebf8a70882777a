import random

import tensorflow as tf

from bert_tf.quickstart import word_order


class WordOrderTest(tf.test.TestCase):
    def test_half_are_shuffled_and_nothing_else_tells_them_apart(self):
        sentences = [
            f"Number {number} of them is: written 'as' a long sentence, {word}."
            for number, word in enumerate(["alpha", "beta", "gamma", "delta"] * 10)
        ]
        rows = word_order.examples(sentences, random.Random(0))
        written = {
            "number of them is written as a long sentence " + word
            for word in ("alpha", "beta", "gamma", "delta")
        }
        self.assertLen(rows, 40)
        self.assertEqual(sum(label == word_order.SHUFFLED for label, _ in rows), 20)
        for label, text in rows:
            self.assertEqual(text in written, label == word_order.AS_WRITTEN)
            self.assertIn(
                sorted(text.split()), [sorted(sentence.split()) for sentence in written]
            )

    def test_short_long_and_repeated_sentences_are_left_out(self):
        rows = word_order.examples(
            ["Only four words here.", "word " * 30, *["One two three four five."] * 3],
            random.Random(0),
        )
        self.assertLen(rows, 1)

    def test_the_seed_decides(self):
        sentences = [f"a b c d e {'x' * number}" for number in range(1, 20)]
        first = word_order.examples(sentences, random.Random(1))
        self.assertEqual(first, word_order.examples(sentences, random.Random(1)))
        self.assertNotEqual(first, word_order.examples(sentences, random.Random(2)))

    def test_table(self):
        self.assertEqual(
            word_order.table([("0", "b a"), ("1", "a b")]),
            "label\ttext_a\n0\tb a\n1\ta b\n",
        )


if __name__ == "__main__":
    tf.test.main()
