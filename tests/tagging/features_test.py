import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.tagging.features import Featurizer
from bert_tf.tagging.sentences import Sentence, digest
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer

TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "b",
    "c",
    "##d",
    "東",
    "京",
]
UNK, CLS, SEP, A, B, C, D, TO, KYO = 1, 2, 3, 5, 6, 7, 8, 9, 10


def sentence(text, document=0):
    return Sentence.of_words(text.split(" "), None, document=document, source="f:1")


def features(sentences, **options):
    tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
    options = {"max_seq_length": 8, **options}
    return [
        (one.ids, one.places.tolist(), one.words.tolist())
        for one in Featurizer(tokenizer, **options)(sentences)
    ]


class FeaturesTest(tf.test.TestCase):
    def test_the_first_piece_of_each_word(self):
        # Accents go, an ideograph is a token, and a soft hyphen alone is [UNK].
        found = features([sentence("add Ád 東京 \xad b"), sentence("c")])
        # The first sentence has 9 tokens, of which 6 fit: the second window ends with
        # it, and has more context of its last three words.
        self.assertEqual(
            found,
            [
                ([CLS, A, D, D, A, D, TO, SEP], [1, 4], [0, 1]),
                ([CLS, A, D, TO, KYO, UNK, B, SEP], [3, 5, 6], [2, 3, 4]),
                ([CLS, C, SEP], [1], [5]),
            ],
        )

    def test_a_document_is_one_text(self):
        sentences = [sentence("a b"), sentence("c"), sentence("b", document=1)]
        self.assertEqual(
            features(sentences, document_context=True),
            [
                ([CLS, A, B, C, SEP], [1, 2, 3], [0, 1, 2]),
                ([CLS, B, SEP], [1], [3]),
            ],
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

    def test_no_room(self):
        with self.assertRaisesRegex(InputError, "at least 3"):
            features([], max_seq_length=2)

    def test_the_digest_tells_sentences_apart(self):
        rows = [
            [sentence("a b")],
            [sentence("a"), sentence("b")],
            [sentence("a b", document=1)],
            [Sentence.of_words(["a", "b"], ["x", "y"], document=0, source="")],
        ]
        self.assertLen({digest(one) for one in rows}, 4)
        self.assertEqual(digest(rows[0]), digest([sentence("a b")]))


if __name__ == "__main__":
    tf.test.main()
