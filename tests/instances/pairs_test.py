"""Sentence pairs on corpora small enough to say the answer."""

import numpy as np
import tensorflow as tf

from bert_tf.instances import pairs
from bert_tf.instances.random_stream import random_stream
from tests.instances.plain_pretraining import documents_of


class Corpus:
    """Documents of sentences of token ids, cut by one of the kinds of pairs."""

    def __init__(self, *documents):
        self.documents = documents_of(documents)
        self.order = np.arange(len(documents))

    def all_pairs(self, kind, seed, *, document=0, target=10):
        """(A, B, label) of each pair of a document."""
        stream = random_stream(seed)
        sentence, stop = self.documents.document_starts[document : document + 2]
        result = []
        while sentence < stop:
            pair = pairs.neighbour_pair(
                self.documents, self.order, document, sentence, target, kind, stream
            )
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


class ExactNextSentencePairTest(tf.test.TestCase):
    kind = pairs.EXACT_NEXT_SENTENCE

    def test_lone_sentences_and_tokens(self):
        labels = []
        for seed in range(800):
            ((a, b, label),) = Corpus([[1, 2, 3]], [[9]]).all_pairs(self.kind, seed)
            self.assertIn(a, ([1], [1, 2]))
            self.assertEqual(b, [9] if label else [1, 2, 3][len(a) :])
            labels.append(label)
        # The original would call all of them random.
        self.assertNear(np.mean(labels), 0.5, 0.08)
        self.assertEqual(Corpus([[1]], [[9]]).all_pairs(self.kind, 0), [([], [], 0)])

    def test_labels_say_what_is_so(self):
        first = [[number, number + 1] for number in range(0, 400, 2)]
        corpus = Corpus(first, [[5000]] * 9, [[6000]] * 9)
        for seed in range(5):
            result = corpus.all_pairs(self.kind, seed, target=7)
            for a, b, label in result:
                if label:
                    self.assertGreaterEqual(min(b), 5000)
                else:
                    self.assertEqual(b[0], a[-1] + 1)
            self.assertNear(np.mean([label for *_, label in result]), 0.5, 0.25)


class PreviousOrNextPairTest(tf.test.TestCase):
    def test_a_third_each_and_labels_true(self):
        first = [[number] for number in range(400)]
        corpus = Corpus(first, [[5000]] * 9, [[6000]] * 9)
        labels = []
        for seed in range(5):
            pairs_of = corpus.all_pairs(pairs.PREVIOUS_OR_NEXT, seed, target=7)
            for a, b, label in pairs_of:
                labels.append(label)
                if label == 1:
                    self.assertGreaterEqual(min(b), 5000)
                elif label == 2:
                    self.assertEqual(a[0], b[-1] + 1)
                else:
                    self.assertEqual(b[0], a[-1] + 1)
        shares = np.bincount(labels, minlength=3) / len(labels)
        self.assertAllClose(shares, [1 / 3] * 3, atol=0.08)


class SentenceOrderPairTest(tf.test.TestCase):
    kind = pairs.SENTENCE_ORDER

    def test_every_sentence_is_used_once(self):
        corpus = Corpus([[number] for number in range(1000)])
        labels = []
        for seed in range(10):
            tokens = []
            for a, b, label in corpus.all_pairs(self.kind, seed):
                tokens += b + a if label else a + b
                labels.append(label)
            self.assertEqual(tokens, list(range(1000)))
        # About 1,000 pairs: four standard deviations are 0.06.
        self.assertNear(np.mean(labels), 0.5, 0.06)
