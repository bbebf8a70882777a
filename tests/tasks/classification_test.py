import random

import numpy as np
import tensorflow as tf

from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.errors import InputError
from bert_tf.modeling import objectives
from bert_tf.tasks import classification
from bert_tf.tasks.examples import Example
from bert_tf.tasks.targets import Target
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer, truncate_pair
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e"]
CLS, SEP, A, B, C, D, E = 2, 3, 5, 6, 7, 8, 9
CLASSES = Target(kind=SINGLE_LABEL, labels=("y", "x"))
LABELS = Target(kind=MULTI_LABEL, labels=("y", "x", "z"))
NUMBER = Target(kind=REGRESSION)


def plain_truncate(a, b, limit):
    """The original's rule, one token at a time: the longer gives way, b on a tie."""
    a, b = list(a), list(b)
    while len(a) + len(b) > limit:
        (a if len(a) > len(b) else b).pop()
    return a, b


def featurizer(length=8, target=CLASSES, **options):
    tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
    return classification.Featurizer(
        tokenizer, max_seq_length=length, target=target, **options
    )


def examples(*texts, label="x"):
    """Examples of texts and of pairs."""
    pairs = [(text, None) if isinstance(text, str) else text for text in texts]
    return [
        Example(a, b, label, f"file.tsv:{line}")
        for line, (a, b) in enumerate(pairs, start=3)
    ]


def records(make, examples):
    """All blocks' arrays as one, as lists."""
    blocks = list(make.blocks(examples))
    return {
        name: np.concatenate([block[name] for block in blocks]).tolist()
        for name in blocks[0]
    }


class TaskTest(tf.test.TestCase):
    def test_model_and_objective_are_the_targets(self):
        for target, objective in (
            (CLASSES, objectives.CLASSIFICATION),
            (LABELS, objectives.MULTI_LABEL),
            (NUMBER, objectives.REGRESSION),
        ):
            task = classification.task(toy.CONFIG, target, "t", dropout=0.2)
            self.assertIs(task.objective, objective)
            model = task.build_model()
            self.assertIs(model.objective, objective)
            self.assertEqual(model.num_labels, target.num_outputs)
            self.assertEqual(model.get_layer("dropout").rate, 0.2)


class FeaturizerTest(tf.test.TestCase):
    def record(self, text, label="x", **options):
        found = records(featurizer(**options), examples(text, label=label))
        self.assertEqual({len(values) for values in found.values()}, {1})
        return {name: values[0] for name, values in found.items()}

    def test_a_sentence(self):
        self.assertEqual(
            self.record("a b"),
            {
                "input_ids": [CLS, A, B, SEP, 0, 0, 0, 0],
                "input_mask": [1, 1, 1, 1, 0, 0, 0, 0],
                "segment_ids": [0] * 8,
                "label_ids": [1],
                "is_real_example": [1],
            },
        )

    def test_a_pair(self):
        record = self.record(("a b", "c"))
        self.assertEqual(record["input_ids"], [CLS, A, B, SEP, C, SEP, 0, 0])
        self.assertEqual(record["segment_ids"], [0, 0, 0, 0, 1, 1, 0, 0])
        self.assertEqual(record["input_mask"], [1, 1, 1, 1, 1, 1, 0, 0])

    def test_cut_to_the_length(self):
        self.assertEqual(
            self.record("a b c d e a b")["input_ids"], [CLS, A, B, C, D, E, A, SEP]
        )
        self.assertEqual(
            self.record(("a b c", "d e d"))["input_ids"],
            [CLS, A, B, C, SEP, D, E, SEP],
        )

    def test_an_empty_second_sentence_is_none(self):
        # Spaces and what tokenizes to nothing count as empty too.
        for empty in ("", " ", "\u200b"):
            self.assertEqual(
                self.record(("a b c d e a b", empty))["input_ids"],
                [CLS, A, B, C, D, E, A, SEP],
            )

    def test_labels(self):
        self.assertEqual(self.record("a", label=None)["label_ids"], [0])
        self.assertEqual(
            self.record("a", label="2.5", target=NUMBER)["label_ids"], [2.5]
        )
        self.assertEqual(
            self.record("a", label="z,y", target=LABELS)["label_ids"], [1.0, 0.0, 1.0]
        )
        with self.assertRaisesRegex(InputError, "file.tsv:3.*one of y, x. Found: 'z'"):
            self.record("a", label="z")
        with self.assertRaisesRegex(InputError, "file.tsv:3.*one of y, x. Found: 'z'"):
            classification.check_labels(examples("a", label="z"), CLASSES)

    def test_records_are_those_of_the_schema(self):
        for target, label in ((CLASSES, "x"), (NUMBER, "1.5"), (LABELS, "x,z")):
            schema = classification.schema(target, 8)
            for block in featurizer(target=target).blocks(examples("a", label=label)):
                parsed = schema.parse(schema.serialize_block(block))
                self.assertAllEqual(parsed["label_ids"], block["label_ids"])

    def test_counts_what_was_cut(self):
        make = featurizer()
        pairs = ("a b c d e a", "a b c d e a b", ("a b c", "d e"), ("a b c", "d e a"))
        records(make, examples(*pairs))
        self.assertEqual(make.num_truncated, 2)
        records(make, examples("a"))
        self.assertEqual(make.num_truncated, 0)

    def test_many_examples(self):
        texts = [" ".join("abcde"[: 1 + number % 5]) for number in range(2500)]
        found = records(featurizer(), examples(*texts))["input_ids"]
        self.assertLen(found, 2500)
        for number in (0, 1023, 1024, 2499):
            ids = [A, B, C, D, E][: 1 + number % 5]
            self.assertEqual(found[number][: len(ids) + 2], [CLS, *ids, SEP])

    def test_windows(self):
        make = featurizer(windows=True)
        found = records(make, examples("a b c d e a b c", "d", ("a b c d e", "d e")))
        self.assertEqual(
            found["input_ids"],
            [
                [CLS, A, B, C, D, E, A, SEP],
                [CLS, D, E, A, B, C, SEP, 0],
                [CLS, D, SEP, 0, 0, 0, 0, 0],
                [CLS, A, B, C, SEP, D, E, SEP],
                [CLS, B, C, D, SEP, D, E, SEP],
                [CLS, C, D, E, SEP, D, E, SEP],
            ],
        )
        self.assertEqual(found["label_ids"], [[1]] * 6)
        self.assertEqual(make.window_counts, [2, 1, 3])
        self.assertEqual(make.num_truncated, 0)
        make = featurizer(windows=True, doc_stride=5)
        found = records(make, examples("a b c d e a b c"))
        self.assertEqual(found["input_ids"][1], [CLS, A, B, C, SEP, 0, 0, 0])

    def test_settings_tell_records_apart(self):
        settings = [
            make.settings
            for make in (
                featurizer(),
                featurizer(length=9),
                featurizer(target=LABELS),
                featurizer(windows=True),
                featurizer(windows=True, doc_stride=2),
            )
        ]
        for number, one in enumerate(settings):
            self.assertEqual(settings.index(one), number)
        self.assertEqual(featurizer(doc_stride=2).settings, settings[0])


class TruncationTest(tf.test.TestCase):
    def test_equals_one_token_at_a_time(self):
        rng = random.Random(0)
        for _ in range(2000):
            a = [rng.random() for _ in range(rng.randint(0, 12))]
            b = [rng.random() for _ in range(rng.randint(0, 12))]
            limit = rng.randint(0, 26)
            self.assertEqual(
                truncate_pair(a, b, limit),
                tuple(plain_truncate(a, b, limit)),
            )


if __name__ == "__main__":
    tf.test.main()
