"""Sentence pairs on corpora small enough to say the answer."""

import numpy as np
import tensorflow as tf

from bert_tf.instances import pairs
from bert_tf.instances.random_stream import random_stream
from tests.instances.scripted_stream import Script, documents_of


class Corpus:
    """Documents of sentences of token ids, cut by one of the kinds of pairs."""

    def __init__(self, *documents):
        self.documents = documents_of(documents)
        self.order = np.arange(len(documents))

    def first_pair(self, cut, script, *, document=0, target=10):
        """((A, B, label), whether the rest of the document is as expected)."""
        stream = script.stream()
        start = self.documents.document_starts[document]
        pair = cut(self.documents, self.order, document, start, target, stream)
        assert script.is_used_up(stream)
        return self.segments(pair), int(pair.next_sentence)

    def all_pairs(self, cut, seed, *, document=0, target=10):
        """(A, B, label) of each pair of a document."""
        stream = random_stream(seed)
        sentence, stop = self.documents.document_starts[document : document + 2]
        result = []
        while sentence < stop:
            pair = cut(self.documents, self.order, document, sentence, target, stream)
            sentence = pair.next_sentence
            result.append(self.segments(pair))
        return result

    def segments(self, pair):
        tokens = self.documents.tokens
        return (
            tokens[pair.first_start : pair.first_stop].tolist(),
            tokens[pair.second_start : pair.second_stop].tolist(),
            int(pair.label),
        )


class TruncatedTest(tf.test.TestCase):
    def truncated(self, first, second, limit, script):
        pair = pairs.Pair(10, 10 + first, 50, 50 + second, 1, 7)
        stream = script.stream()
        result = pairs.truncated(pair, limit, stream)
        self.assertTrue(script.is_used_up(stream))
        self.assertEqual(result[4:], (1, 7))
        return tuple(map(int, result[:4]))

    def test_the_longer_one_loses_tokens_front_or_back(self):
        # 4 + 2 to 3: A back, A front, then B of the equal ones, at its back.
        script = Script().random(0.5).random(0.49).random(0.9)
        self.assertEqual(self.truncated(4, 2, 3, script), (11, 13, 50, 51))


class ExactNextSentencePairTest(tf.test.TestCase):
    cut = staticmethod(pairs.exact_next_sentence_pair)

    def test_a_long_sentence_takes_the_next_one_along(self):
        corpus = Corpus([[1, 2, 3], [4], [5]], [[9]])
        script = Script().between(1, 1, 1).random(0.5)
        segments, following = corpus.first_pair(self.cut, script, target=2)
        self.assertEqual(segments, ([1, 2, 3], [4], 0))
        self.assertEqual(following, 2)

    def test_a_last_lone_sentence_is_split(self):
        corpus = Corpus([[1, 2, 3]], [[9]])
        script = Script().between(2, 1, 2).random(0.5)
        segments, following = corpus.first_pair(self.cut, script)
        self.assertEqual(segments, ([1, 2], [3], 0))
        self.assertEqual(following, 1)

    def test_a_split_sentence_with_a_random_next(self):
        corpus = Corpus([[9]], [[1, 2, 3]], [[8]])
        script = Script().between(1, 1, 2).random(0.1).below(1, 2).below(0, 1)
        # Of the two other documents, the second: the third of all.
        segments, following = corpus.first_pair(self.cut, script, document=1)
        self.assertEqual(segments, ([1], [8], 1))
        self.assertEqual(following, 2)

    def test_a_random_next_puts_the_rest_back(self):
        corpus = Corpus([[1], [2], [3]], [[9]])
        script = Script().between(2, 1, 2).random(0.1).below(0, 1).below(0, 1)
        segments, following = corpus.first_pair(self.cut, script, target=3)
        self.assertEqual(segments, ([1, 2], [9], 1))
        self.assertEqual(following, 2)

    def test_a_lone_token_makes_no_pair(self):
        segments, following = Corpus([[1]], [[9]]).first_pair(self.cut, Script())
        self.assertEqual(segments, ([], [], 0))
        self.assertEqual(following, 1)

    def test_labels_say_what_is_so(self):
        first = [[number, number + 1] for number in range(0, 400, 2)]
        corpus = Corpus(first, [[5000]] * 9, [[6000]] * 9)
        for seed in range(5):
            result = corpus.all_pairs(self.cut, seed, target=7)
            for a, b, label in result:
                if label:
                    self.assertGreaterEqual(min(b), 5000)
                else:
                    self.assertEqual(b[0], a[-1] + 1)
            self.assertNear(np.mean([label for *_, label in result]), 0.5, 0.25)


class SentenceOrderPairTest(tf.test.TestCase):
    cut = staticmethod(pairs.sentence_order_pair)

    def test_in_order_and_swapped(self):
        corpus = Corpus([[1], [2], [3], [4]])
        for value, expected in ((0.5, ([1], [2, 3], 0)), (0.49, ([2, 3], [1], 1))):
            script = Script().between(1, 1, 2).random(value)
            segments, following = corpus.first_pair(self.cut, script, target=3)
            self.assertEqual(segments, expected)
            self.assertEqual(following, 3)

    def test_every_sentence_is_used_once(self):
        corpus = Corpus([[number] for number in range(100)])
        for seed in range(5):
            tokens = []
            for a, b, label in corpus.all_pairs(self.cut, seed):
                tokens += b + a if label else a + b
            self.assertEqual(tokens, list(range(100)))


if __name__ == "__main__":
    tf.test.main()
