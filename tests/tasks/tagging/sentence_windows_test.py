import importlib.util
import unittest

import numpy as np
import tensorflow as tf

from bert_tf.tasks.tagging.sentence_windows import (
    NO_LABEL,
    SentenceFeatures,
    SentenceFeaturizer,
    blocks,
    schema,
    trained_words,
)
from bert_tf.tasks.tagging.sentences import Sentence
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS = [*SPECIAL, "a", "b", "c", "##d", "東", "京"]
UNK, CLS, SEP, A, B, C, D, TO, KYO = 1, 2, 3, 5, 6, 7, 8, 9, 10


def sentence(text, document=0):
    return Sentence.of_words(text.split(" "), None, document=document, source="f:1")


def features(sentences, **options):
    tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
    options = {"max_seq_length": 8, **options}
    return [
        (one.ids, one.places.tolist(), one.words.tolist())
        for one in SentenceFeaturizer(tokenizer, **options)(sentences)
    ]


class FeaturesTest(tf.test.TestCase):
    def test_the_first_piece_of_each_word(self):
        # Accents go, an ideograph is a token, and a soft hyphen alone is [UNK].
        found = features([sentence("add Ád 東京 \xad b"), sentence("c")])
        # The first sentence has 9 tokens, of which 6 fit: the second window ends with
        # it, and has more context of its last three words.
        expected = [
            ([CLS, A, D, D, A, D, TO, SEP], [1, 4], [0, 1]),
            ([CLS, A, D, TO, KYO, UNK, B, SEP], [3, 5, 6], [2, 3, 4]),
            ([CLS, C, SEP], [1], [5]),
        ]
        self.assertEqual(found, expected)

    @unittest.skipUnless(importlib.util.find_spec("icu4py"), "the extra `segmenter`")
    def test_a_word_that_is_given_is_one_word(self):
        tokenizer = WordPieceTokenizer(
            Vocabulary([*TOKENS, "ภาษา", "ไทย"]), segmenter="icu", do_lower_case=False
        )
        (one,) = SentenceFeaturizer(tokenizer, max_seq_length=8)(
            [sentence("ภาษาไทย a")]
        )
        self.assertEqual(one.ids, [CLS, KYO + 1, KYO + 2, A, SEP])
        self.assertEqual(one.places.tolist(), [1, 3])

    def test_a_document_is_one_text(self):
        sentences = [sentence("a b"), sentence("c"), sentence("b", document=1)]
        self.assertEqual(
            features(sentences, document_context=True),
            [([CLS, A, B, C, SEP], [1, 2, 3], [0, 1, 2]), ([CLS, B, SEP], [1], [3])],
        )
        self.assertLen(features(sentences), 3)

    def test_every_word_is_in_one_window(self):
        generator = np.random.default_rng(3)
        sentences = [
            sentence(" ".join(generator.choice(["a", "bddd", "c" + 20 * "d"], number)))
            for number in generator.integers(1, 30, 40)
        ]
        for options in ({}, {"doc_stride": 1}, {"document_context": True}):
            found = features(sentences, **options)
            words = [word for _, _, some in found for word in some]
            self.assertEqual(words, list(range(sum(len(s.words) for s in sentences))))
            for ids, places, _ in found:
                self.assertLessEqual(len(ids), 8)
                # Where a word begins, no piece goes on.
                self.assertNotIn(D, [ids[place] for place in places])

    def test_words_that_are_longer_than_those_in_training_are_counted(self):
        sentences = [sentence("a addddddddd b"), sentence("bddddddddd")]
        options = {"max_seq_length": 20, "longest_word": 3}
        with self.assertLogs("absl", "WARNING") as logs:
            features(sentences, **options)
        self.assertLen(logs.output, 1)
        self.assertRegex(logs.output[0], r"2 of 4 words .* 8 pieces \(up to 10; the l")
        with self.assertNoLogs("absl", "WARNING"):
            features(sentences, max_seq_length=20)
            features(sentences, max_seq_length=20, longest_word=5)
        with self.assertLogs("absl", "WARNING") as logs:
            features(sentences)
        self.assertRegex(logs.output[0], r"2 of 4 words .* 6 pieces \(up to 10\)")

    def test_what_the_words_of_a_training_set_are_like(self):
        tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
        for texts, expected in (
            (["a add"], (3, True)),
            (["東 京 a", "東 東京"], (2, True)),
            (["東京 東 a", "東京東 京東"], (3, False)),
        ):
            found = trained_words(map(sentence, texts), tokenizer)
            self.assertEqual((found.longest, found.splits_cjk), expected)


FEATURES = [
    SentenceFeatures([2, 7, 8, 3], np.array([1]), np.array([0])),
    SentenceFeatures([2, 7, 8, 9, 10, 3], np.array([1, 2, 4]), np.array([1, 2, 3])),
]
# The second word's label is one that the model does not have.
LABELS = np.array([4, NO_LABEL, 0, 5])


class TaskTest(tf.test.TestCase):
    def test_records_by_hand(self):
        (block,) = blocks(FEATURES, LABELS, 7)
        for name, rows in (
            ("input_ids", [[2, 7, 8, 3, 0, 0, 0], [2, 7, 8, 9, 10, 3, 0]]),
            ("input_mask", [[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]]),
            ("segment_ids", [[0] * 7, [0] * 7]),
            ("label_ids", [[0, 4, 0, 0, 0, 0, 0], [0, 0, 0, 0, 5, 0, 0]]),
            ("label_weights", [[0, 1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 1, 0, 0]]),
        ):
            self.assertAllEqual(block[name], rows)
        spec = schema(7, for_training=True)
        parsed = spec.parse(tf.constant(spec.serialize_block(block)))
        self.assertAllEqual(parsed["label_ids"], block["label_ids"])
