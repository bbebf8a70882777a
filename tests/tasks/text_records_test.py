import random

import numpy as np
import tensorflow as tf

from bert_tf.base.config import SINGLE_LABEL
from bert_tf.tasks.tables import Example, Target
from bert_tf.tasks.text_records import TextFeaturizer
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer, truncate_pair

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e"]
CLS, SEP, A, B, C, D, E = 2, 3, 5, 6, 7, 8, 9
CLASSES = Target(kind=SINGLE_LABEL, labels=("y", "x"))


def plain_truncate(a, b, limit):
    """The original's rule, one token at a time: the longer gives way, b on a tie."""
    a, b = list(a), list(b)
    while len(a) + len(b) > limit:
        (a if len(a) > len(b) else b).pop()
    return a, b


def featurizer(**options):
    tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
    return TextFeaturizer(tokenizer, max_seq_length=8, target=CLASSES, **options)


def examples(*texts):
    """Examples of texts and of pairs."""
    pairs = [(text, None) if isinstance(text, str) else text for text in texts]
    return [Example(a, b, "x", "file.tsv:3") for a, b in pairs]


def records(make, examples):
    """All blocks' arrays as one, as lists."""
    blocks = list(make.blocks(examples))
    return {
        name: np.concatenate([block[name] for block in blocks]).tolist()
        for name in blocks[0]
    }


class FeaturizerTest(tf.test.TestCase):
    def test_records_by_hand(self):
        found = records(featurizer(), examples("a b"))
        expected = {
            "input_ids": [[CLS, A, B, SEP, 0, 0, 0, 0]],
            "input_mask": [[1, 1, 1, 1, 0, 0, 0, 0]],
            "segment_ids": [[0] * 8],
            "label_ids": [[1]],
            "is_real_example": [[1]],
        }
        self.assertEqual(found, expected)
        for text, ids, segment_ids in (
            (("a b", "c"), [CLS, A, B, SEP, C, SEP, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0]),
            # Cut to the length.
            ("a b c d e a b", [CLS, A, B, C, D, E, A, SEP], [0] * 8),
            (("a b c", "d e d"), [CLS, A, B, C, SEP, D, E, SEP], [0] * 5 + [1] * 3),
            # An empty second sentence is none; so is one that tokenizes to nothing.
            (("a b c d e a b", ""), [CLS, A, B, C, D, E, A, SEP], [0] * 8),
            (("a b c d e a b", " "), [CLS, A, B, C, D, E, A, SEP], [0] * 8),
            (("a b c d e a b", "\u200b"), [CLS, A, B, C, D, E, A, SEP], [0] * 8),
        ):
            found = records(featurizer(), examples(text))
            self.assertEqual(found["input_ids"], [ids])
            self.assertEqual(found["segment_ids"], [segment_ids])
            self.assertEqual(found["input_mask"], [[int(i > 0) for i in ids]])

    def test_counts_what_was_cut(self):
        make = featurizer()
        pairs = ("a b c d e a", "a b c d e a b", ("a b c", "d e"), ("a b c", "d e a"))
        records(make, examples(*pairs))
        self.assertEqual(make.num_truncated, 2)
        records(make, examples("a"))
        self.assertEqual(make.num_truncated, 0)

    def test_windows(self):
        make = featurizer(windows=True)
        found = records(make, examples("a b c d e a b c", "d", ("a b c d e", "d e")))
        expected = [
            [CLS, A, B, C, D, E, A, SEP],
            [CLS, D, E, A, B, C, SEP, 0],
            [CLS, D, SEP, 0, 0, 0, 0, 0],
            [CLS, A, B, C, SEP, D, E, SEP],
            [CLS, B, C, D, SEP, D, E, SEP],
            [CLS, C, D, E, SEP, D, E, SEP],
        ]
        self.assertEqual(found["input_ids"], expected)
        self.assertEqual(found["label_ids"], [[1]] * 6)
        self.assertEqual(make.window_counts, [2, 1, 3])
        self.assertEqual(make.num_truncated, 0)
        make = featurizer(windows=True, doc_stride=5)
        found = records(make, examples("a b c d e a b c"))
        self.assertEqual(found["input_ids"][1], [CLS, A, B, C, SEP, 0, 0, 0])


class TruncationTest(tf.test.TestCase):
    def test_equals_one_token_at_a_time(self):
        rng = random.Random(0)
        for _ in range(500):
            a = [rng.random() for _ in range(rng.randint(0, 12))]
            b = [rng.random() for _ in range(rng.randint(0, 12))]
            limit = rng.randint(0, 26)
            self.assertEqual(
                truncate_pair(a, b, limit), tuple(plain_truncate(a, b, limit))
            )
