import os
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import SINGLE_LABEL
from bert_tf.errors import InputError
from bert_tf.records.batching import SplitRecords
from bert_tf.tasks import multiple_choice
from bert_tf.tasks.choices import ChoiceExample
from bert_tf.tasks.targets import Target
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from bert_tf.training import step
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e"]
CLS, SEP, A, B, C, D, E = 2, 3, 5, 6, 7, 8, 9
TARGET = Target(kind=SINGLE_LABEL, labels=("x", "y", "z"))
L = 8


def example(premise, start, *endings, label="x"):
    return ChoiceExample(premise, start, endings, label, "file.csv:3")


def featurizer():
    tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
    return multiple_choice.Featurizer(tokenizer, max_seq_length=L, target=TARGET)


class FeaturizerTest(tf.test.TestCase):
    def test_a_sequence_for_each_choice(self):
        make = featurizer()
        (block,) = make.blocks(
            [
                example("a b", "c", "d", "e e", "", label="z"),
                example("", "", "a", "b", "c"),
            ]
        )
        ids, mask, segments = (
            block[name].tolist() for name in ("input_ids", "input_mask", "segment_ids")
        )
        self.assertEqual(
            ids[0],
            [
                [CLS, A, B, SEP, C, D, SEP, 0],
                [CLS, A, B, SEP, C, E, E, SEP],
                [CLS, A, B, SEP, C, SEP, 0, 0],
            ],
        )
        self.assertEqual(mask[0], [[1] * 7 + [0], [1] * 8, [1] * 6 + [0] * 2])
        self.assertEqual(
            segments[0],
            [[0] * 4 + [1] * 3 + [0], [0] * 4 + [1] * 4, [0] * 4 + [1, 1, 0, 0]],
        )
        self.assertEqual(ids[1][0], [CLS, SEP, A, SEP, 0, 0, 0, 0])
        self.assertEqual(block["label_ids"].tolist(), [[2], [0]])
        self.assertEqual(block["is_real_example"].tolist(), [[1], [1]])
        self.assertEqual(make.num_truncated, 0)
        self.assertEqual(
            {value.dtype for value in block.values()}, {np.dtype(np.int64)}
        )

    def test_the_longer_one_is_cut_by_its_end(self):
        make = featurizer()
        (block,) = make.blocks(
            [
                example("a a a a", "", "b b", "b b b b", "b"),
                example("a", "b", "b", "c", "d"),
            ]
        )
        self.assertEqual(
            block["input_ids"][0].tolist(),
            [
                [CLS, A, A, A, SEP, B, B, SEP],
                [CLS, A, A, A, SEP, B, B, SEP],
                [CLS, A, A, A, A, SEP, B, SEP],
            ],
        )
        # Once an example, however many of its choices are cut.
        self.assertEqual(make.num_truncated, 1)

    def test_many_examples_in_several_blocks(self):
        one = [example("a", "", "b", "c", "d")]
        with mock.patch.object(multiple_choice, "_EXAMPLES_AT_ONCE", 2):
            blocks = list(featurizer().blocks(one * 5))
        self.assertEqual([len(block["input_ids"]) for block in blocks], [2, 2, 1])

    def test_a_label_that_is_none(self):
        with self.assertRaisesRegex(InputError, "file.csv:3: .*Found: 'w'"):
            list(featurizer().blocks([example("a", "", "b", "c", "d", label="w")]))


class RecordsTest(tf.test.TestCase):
    def records(self):
        """Examples whose longest choice has 6, 8 and 5 tokens."""
        return SplitRecords.prepare(
            os.path.join(self.get_temp_dir(), "records"),
            multiple_choice.schema(TARGET, L),
            "a",
            featurizer().blocks(
                [
                    example("a", "", "b b", "c", "c", label="x"),
                    example("a a", "b", "b b", "b", "c", label="z"),
                    example("", "", "b", "b b", "", label="y"),
                ]
            ),
        )

    def test_batches_are_of_like_length(self):
        records = self.records()
        self.assertEqual((records.num_records, records.max_seq_length), (3, L))
        self.assertAllEqual(records.table.lengths, [6, 8, 5])
        # Of the nine choices.
        self.assertAllClose(
            records.table.mean_length, (6 + 5 + 5 + 8 + 7 + 7 + 4 + 5 + 2) / 9
        )
        (batch,) = records.table.batches(np.array([[2, -1]]), 5)
        self.assertEqual(batch["input_ids"].shape, (2, 3, 5))
        self.assertAllEqual(
            batch["input_ids"][0],
            [[CLS, SEP, B, SEP, 0], [CLS, SEP, B, B, SEP], [CLS, SEP, 0, 0, 0]],
        )
        self.assertAllEqual(batch["input_mask"][0].numpy().sum(axis=1), [4, 5, 2])
        self.assertAllEqual(batch["input_ids"][1], np.zeros([3, 5]))
        self.assertAllEqual(batch["label_ids"], [[1], [0]])
        self.assertAllEqual(batch["is_real_example"], [[1], [0]])
        for batch in records.batches(2):
            self.assertEqual(batch["input_ids"].shape, (2, 3, L))
        self.assertAllEqual(batch["rows"], [2, -1])

    def test_padding_examples_change_neither_loss_nor_gradient(self):
        records = self.records()
        task = multiple_choice.task(toy.CONFIG, dropout=0.0)
        keras.utils.set_random_seed(3)
        model = task.build_model()

        def without_dropout(call):
            return lambda *args, **options: call(
                *args, **{**options, "training": False}
            )

        def gradients(rows):
            (batch,) = records.table.batches(np.array(rows), L)
            weights = task.objective.weights(batch)
            found, sums = step.replica_gradients(task, model)(
                batch, weights, tf.constant(1.0)
            )
            return [g.numpy() for g in found], {n: v.numpy() for n, v in sums.items()}

        with mock.patch.object(model, "call", without_dropout(model.call)):
            full, short = gradients([[1, 2, -1]]), gradients([[1, 2]])
            other = gradients([[1, 2, 0]])
        self.assertAllClose(full, short, rtol=1e-5, atol=1e-7)
        self.assertNotAllClose(full[0], other[0])


class TaskTest(tf.test.TestCase):
    def test_operations_are_counted_for_every_choice(self):
        flops = multiple_choice.task(toy.CONFIG).training_flops
        one = flops({"input_ids": (1, 1, 8)})
        self.assertEqual(flops({"input_ids": (2, 3, 8)}), 6 * one)


if __name__ == "__main__":
    tf.test.main()
