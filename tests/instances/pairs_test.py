"""Sentence pairs on corpora small enough to say the answer."""

import random

import tensorflow as tf

from bert_tf.instances.pairs import document_pairs, truncated


class Coin:
    """A random stream that gives the numbers it is told, as `random()`."""

    def __init__(self, *values):
        self.values = list(values)

    def random(self):
        return self.values.pop(0)


class TruncatedTest(tf.test.TestCase):
    def test_the_longer_one_loses_tokens_front_or_back(self):
        # 4 + 2 to 3: A back, A front, then B of the equal ones, at its back.
        coin = Coin(0.5, 0.49, 0.9)
        self.assertEqual(truncated([1, 2, 3, 4], [5, 6], 3, coin), ([2, 3], [5]))
        self.assertEqual(coin.values, [])

    def test_what_fits_is_not_cut(self):
        self.assertEqual(truncated([1], [2, 3], 3, Coin()), ([1], [2, 3]))


class DocumentPairsTest(tf.test.TestCase):
    def pairs(self, documents, index, seed=0, **changes):
        settings = {"max_seq_length": 13, "short_seq_prob": 0.0, **changes}
        return list(
            document_pairs(documents, index, rng=random.Random(seed), **settings)
        )

    def test_no_sentence_is_lost_or_used_twice(self):
        # Sentences of one token fill the target exactly, so nothing is cut.
        document = [[number] for number in range(1, 100)]
        other = [[1000]] * 50
        for seed in range(20):
            following = 1
            for first, second, is_random_next in self.pairs([document, other], 0, seed):
                self.assertEqual(first, list(range(following, first[-1] + 1)))
                following = first[-1] + 1
                if is_random_next:
                    self.assertEqual(set(second), {1000})  # the rest was put back
                else:
                    self.assertEqual(second, list(range(following, second[-1] + 1)))
                    following = second[-1] + 1
            self.assertEqual(following, 100)

    def test_a_lone_sentence_has_a_random_next_one(self):
        for seed in range(10):
            ((first, second, is_random_next),) = self.pairs([[[1, 2]], [[3]]], 0, seed)
            self.assertEqual((first, second), ([1, 2], [3]))
            self.assertTrue(is_random_next)

    def test_the_only_document_answers_itself(self):
        ((first, second, _),) = self.pairs([[[1, 2]]], 0)
        self.assertEqual((first, second), ([1, 2], [1, 2]))

    def test_pairs_fit_and_have_both_segments(self):
        documents = [[[7] * 40, [8] * 3, [9] * 50], [[1] * 60, [2]]]
        for seed in range(10):
            for first, second, _ in self.pairs(documents, 0, seed, short_seq_prob=0.5):
                self.assertNotEmpty(first)
                self.assertNotEmpty(second)
                self.assertLessEqual(len(first) + len(second), 10)

    def test_half_of_the_pairs_are_random(self):
        documents = [[[number] for number in range(2000)], [[1]] * 50]
        pairs = self.pairs(documents, 0, max_seq_length=9)
        share = sum(pair.is_random_next for pair in pairs) / len(pairs)
        # About 500 pairs: four standard deviations are 0.09.
        self.assertNear(share, 0.5, 0.09)


if __name__ == "__main__":
    tf.test.main()
