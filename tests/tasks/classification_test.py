import random

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.tasks import classification
from bert_tf.tasks.examples import Example
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e"]
CLS, SEP, A, B, C, D, E = 2, 3, 5, 6, 7, 8, 9


def plain_truncate(a, b, limit):
    """The original's rule, one token at a time: the longer gives way, b on a tie."""
    a, b = list(a), list(b)
    while len(a) + len(b) > limit:
        (a if len(a) > len(b) else b).pop()
    return a, b


class FeaturesTest(tf.test.TestCase):
    def features(self, text_a, text_b=None, label="x", length=8, labels=("y", "x")):
        tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
        (features,) = classification.features(
            [Example(text_a, text_b, label, "file.tsv:3")],
            tokenizer,
            max_seq_length=length,
            labels=labels,
        )
        return features

    def test_a_sentence(self):
        self.assertEqual(
            self.features("a b"),
            {
                "input_ids": [CLS, A, B, SEP, 0, 0, 0, 0],
                "input_mask": [1, 1, 1, 1, 0, 0, 0, 0],
                "segment_ids": [0] * 8,
                "label_ids": [1],
                "is_real_example": [1],
            },
        )

    def test_a_pair(self):
        features = self.features("a b", "c")
        self.assertEqual(features["input_ids"], [CLS, A, B, SEP, C, SEP, 0, 0])
        self.assertEqual(features["segment_ids"], [0, 0, 0, 0, 1, 1, 0, 0])
        self.assertEqual(features["input_mask"], [1, 1, 1, 1, 1, 1, 0, 0])

    def test_cut_to_the_length(self):
        self.assertEqual(
            self.features("a b c d e a b")["input_ids"], [CLS, A, B, C, D, E, A, SEP]
        )
        self.assertEqual(
            self.features("a b c", "d e d")["input_ids"],
            [CLS, A, B, C, SEP, D, E, SEP],
        )

    def test_an_empty_second_sentence_is_none(self):
        # Spaces and what tokenizes to nothing count as empty too.
        for empty in ("", " ", "\u200b"):
            self.assertEqual(
                self.features("a b c d e a b", empty)["input_ids"],
                [CLS, A, B, C, D, E, A, SEP],
            )

    def test_labels(self):
        self.assertEqual(self.features("a", label=None)["label_ids"], [0])
        self.assertEqual(
            self.features("a", label="2.5", labels=None)["label_ids"], [2.5]
        )
        with self.assertRaisesRegex(InputError, "file.tsv:3.*one of y, x. Found: 'z'"):
            self.features("a", label="z")
        with self.assertRaisesRegex(InputError, "file.tsv:3.*a number. Found: 'z'"):
            self.features("a", label="z", labels=None)

    def test_truncation_equals_one_token_at_a_time(self):
        rng = random.Random(0)
        for _ in range(2000):
            a = [rng.random() for _ in range(rng.randint(0, 12))]
            b = [rng.random() for _ in range(rng.randint(0, 12))]
            limit = rng.randint(0, 26)
            self.assertEqual(
                classification.truncate_pair(a, b, limit),
                tuple(plain_truncate(a, b, limit)),
            )

    def test_padding_counts_for_nothing(self):
        features = classification.padding_features(3)
        self.assertEqual(features["is_real_example"], [0])
        self.assertEqual(features["input_mask"], [0, 0, 0])


if __name__ == "__main__":
    tf.test.main()
