from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.records.batching import Batching
from bert_tf.tasks.squad import window_logits
from bert_tf.tasks.squad.reading import Question
from bert_tf.tasks.squad.windows import QuestionFeaturizer
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", *"abcdefghij"]
LENGTH = 8
# Tokens of each question's paragraph; with "who" and three special ones, 4 fit.
SIZES = [0, 3, 9, 0, 4, 1, 7, 2, 10, 0]
# Worked by hand for a stride of 2: where a window begins, and how many tokens it has.
WINDOWS = {
    0: [],
    1: [(0, 1)],
    2: [(0, 2)],
    3: [(0, 3)],
    4: [(0, 4)],
    7: [(0, 4), (2, 4), (4, 3)],
    9: [(0, 4), (2, 4), (4, 4), (6, 3)],
    10: [(0, 4), (2, 4), (4, 4), (6, 4)],
}


def features(sizes):
    tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
    lengths = {"max_seq_length": LENGTH, "doc_stride": 2, "max_query_length": 4}
    featurizer = QuestionFeaturizer(tokenizer, for_training=False, **lengths)
    for number, size in enumerate(sizes):
        context = " ".join("abcdefghij"[:size])
        one = Question(question_id=str(number), text="who", context=context)
        yield from featurizer([one])


def echo(batches, total):
    """A model whose scores are its inputs."""
    for batch in batches:
        batch = {name: np.asarray(value) for name, value in batch.items()}
        outputs = {
            "start_logits": batch["input_ids"].astype(np.float32),
            "end_logits": -batch["input_ids"].astype(np.float32),
        }
        yield batch, outputs


class QuestionLogitsTest(tf.test.TestCase):
    def check(self, sizes, num_lengths, at_once=4096, batch_size=3, predict=echo):
        options = Batching(
            batch_size=batch_size, max_seq_length=LENGTH, num_lengths=num_lengths
        )
        arguments = features(sizes), predict, options
        count = len(sizes)
        with mock.patch.object(window_logits, "WINDOWS_AT_ONCE", at_once):
            results = [*window_logits.question_logits(*arguments, num_questions=count)]
        names = [question.question.question_id for question, _, _ in results]
        self.assertEqual(names, [str(number) for number in range(count)])
        for (_, start, end), size in zip(results, sizes, strict=True):
            # [CLS] who [SEP] window [SEP], by their numbers in TOKENS.
            expected = [
                [2, 5, 3, *range(6 + start, 6 + start + length), 3]
                for start, length in WINDOWS[size]
            ]
            if num_lengths is None:
                expected = [row + [0] * (LENGTH - len(row)) for row in expected]
            self.assertEqual([row.tolist() for row in start], expected)
            self.assertEqual([(-row).tolist() for row in end], expected)

    def test_questions_come_back_in_order_with_their_windows(self):
        for at_once in (1, 2, 5, 4096):
            for num_lengths in (None, 1, 3):
                for batch_size in (1, 3):
                    self.check(SIZES, num_lengths, at_once, batch_size)

    def test_without_any_window(self):
        self.check([0, 0], 3, predict=None)
        self.check([], 3, predict=None)

    def test_lengths_are_those_of_the_first_group(self):
        shapes = []

        def predict(batches, total):
            for batch, outputs in echo(batches, total):
                shapes.append(batch["input_ids"].shape)
                yield batch, outputs

        self.check([3] * 12 + [1] * 8 + [9] * 2, 2, at_once=12, predict=predict)
        # 3 tokens and 4 others; what is shorter or longer needs no third length but the
        # longest that there may be.
        self.assertEqual(set(shapes), {(3, 7), (3, 8)})

    def test_memory_does_not_grow_with_the_questions(self):
        alive = []

        def predict(batches, total):
            for batch, outputs in echo(batches, total):
                alive.append(len(batches.groups[0][0]))
                yield batch, outputs

        self.check([4] * 40, 3, at_once=5, predict=predict)
        self.assertEqual(max(alive), 5)
