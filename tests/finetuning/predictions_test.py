import csv
import os

import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.finetuning.predictions import (
    labelled,
    mistakes,
    read_predictions,
    write_predictions,
)
from bert_tf.tasks.examples import Example
from bert_tf.tasks.targets import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Target

NLI = Target(kind=SINGLE_LABEL, labels=("no", "yes"))
SCORE = Target(kind=REGRESSION)
TOPICS = Target(kind=MULTI_LABEL, labels=("a", "b", "c"))
# log 3 against 0 is 3 : 1, log 9 is 9 : 1.
LOG_3, LOG_9 = np.log(3.0), np.log(9.0)


def examples_of(*labels, texts=("A.", "B.")):
    return [
        Example(texts[0], texts[1], label, f"dev.tsv:{number}")
        for number, label in enumerate(labels, start=2)
    ]


class TableTest(tf.test.TestCase):
    def path(self):
        return os.path.join(self.get_temp_dir(), "dev_predictions.tsv")

    def written(self, examples, target, logits, **kwargs):
        write_predictions(self.path(), examples, target, np.array(logits), **kwargs)
        with open(self.path(), encoding="utf-8", newline="") as file:
            return file.read()

    def test_one_label(self):
        text = self.written(
            examples_of("yes", "yes", None),
            NLI,
            [[0, LOG_3], [LOG_9, 0], [0, LOG_9]],
        )
        self.assertEqual(
            text,
            "index\tlabel\tprediction\tcorrect\tp_no\tp_yes\ttext_a\ttext_b\n"
            "0\tyes\tyes\t1\t0.250000\t0.750000\tA.\tB.\n"
            "1\tyes\tno\t0\t0.900000\t0.100000\tA.\tB.\n"
            "2\t\tyes\t\t0.100000\t0.900000\tA.\tB.\n",
        )

    def test_several_labels_are_right_together(self):
        text = self.written(
            examples_of("a,c", "a", "", None),
            TOPICS,
            [
                [LOG_3, -LOG_3, LOG_9],
                [LOG_3, LOG_3, -LOG_3],
                [-LOG_9, -LOG_9, -LOG_9],
                [-LOG_9, -LOG_9, LOG_9],
            ],
        )
        self.assertEqual(
            text,
            "index\tlabel\tprediction\tcorrect\tp_a\tp_b\tp_c\ttext_a\ttext_b\n"
            "0\ta,c\ta,c\t1\t0.750000\t0.250000\t0.900000\tA.\tB.\n"
            "1\ta\ta,b\t0\t0.750000\t0.750000\t0.250000\tA.\tB.\n"
            "2\t\t\t1\t0.100000\t0.100000\t0.100000\tA.\tB.\n"
            "3\t\tc\t\t0.100000\t0.100000\t0.900000\tA.\tB.\n",
        )

    def test_a_number(self):
        text = self.written(
            examples_of("4.5", None, texts=("A.", None)), SCORE, [[4.25], [1]]
        )
        self.assertEqual(
            text,
            "index\tlabel\tprediction\terror\ttext_a\ttext_b\n"
            "0\t4.5\t4.250\t-0.250\tA.\t\n"
            "1\t\t1.000\t\tA.\t\n",
        )

    def test_several_numbers(self):
        target = Target(kind=REGRESSION, labels=("valence", "arousal"))
        text = self.written(examples_of("1,2"), target, [[1.5, 0]])
        self.assertEqual(
            text.splitlines()[1], "0\t1,2\t1.500,0.000\t0.500,-2.000\tA.\tB."
        )

    def test_chosen_rows_keep_their_numbers(self):
        text = self.written(
            examples_of("no", "yes", "no"), NLI, [[1, 0], [0, 1], [1, 0]], rows=[2, 0]
        )
        self.assertEqual([line[0] for line in text.splitlines()[1:]], ["2", "0"])

    def test_any_text_is_a_line_and_comes_back(self):
        texts = ('a "quoted\ttab', "back\\slash, \\t\\n\nline\r\n\u2028end\x0b\x85\\")
        examples = examples_of("no", "yes", texts=texts)
        text = self.written(examples, NLI, [[1, 0], [1, 0]])
        self.assertEqual(text.count("\n"), 3)
        rows = read_predictions(self.path())
        self.assertLen(rows, 2)
        for row, label in zip(rows, ("no", "yes"), strict=True):
            self.assertEqual((row["text_a"], row["text_b"]), texts)
            self.assertEqual((row["label"], row["prediction"]), (label, "no"))
        # As the docstring says, another reader needs nothing but "no quotes".
        with open(self.path(), encoding="utf-8", newline="") as file:
            table = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        self.assertEqual({len(row) for row in table}, {8})
        self.assertEqual(table[1][6], 'a "quoted\\ttab')

    def test_a_row_of_another_length_is_named(self):
        with open(self.path(), "w", encoding="utf-8") as file:
            file.write("index\tlabel\n0\tyes\n1\n")
        with self.assertRaisesRegex(InputError, r"dev_predictions.tsv:3: 1 cells"):
            read_predictions(self.path())

    def test_other_logits_are_refused(self):
        with self.assertRaisesRegex(ValueError, r"\(1, 2\); expected: \(2, 2\)"):
            self.written(examples_of("no", "no"), NLI, [[1, 0]])


class LabelledTest(tf.test.TestCase):
    def test_only_what_has_a_label(self):
        rows, labels = labelled(examples_of("yes", None, "no"), NLI)
        self.assertAllEqual(rows, [0, 2])
        self.assertAllEqual(labels, [1, 0])
        rows, labels = labelled(examples_of(None, "c,a"), TOPICS)
        self.assertAllEqual(rows, [1])
        self.assertAllEqual(labels, [[1, 0, 1]])
        rows, labels = labelled(examples_of("1.5", None), SCORE)
        self.assertAllEqual(rows, [0])
        self.assertAllEqual(labels, [1.5])
        self.assertEqual(labelled(examples_of(None), TOPICS)[1].shape, (0, 3))


class MistakesTest(tf.test.TestCase):
    def test_the_surest_first(self):
        # P(predicted): wrong 0.75, right, wrong 0.9, unknown, wrong 0.75.
        logits = [[LOG_3, 0], [0, 5], [0, LOG_9], [9, 0], [0, LOG_3]]
        examples = examples_of("yes", "yes", "no", None, "no")
        self.assertEqual(mistakes(examples, NLI, np.array(logits), 9), [2, 0, 4])
        self.assertEqual(mistakes(examples, NLI, np.array(logits), 2), [2, 0])

    def test_of_several_labels_the_surest_wrong_decision_counts(self):
        logits = [
            [9, -9, -9],  # right, and sure of it
            [9, LOG_3, -9],  # b with 0.75, wrongly
            [-LOG_9, -9, -9],  # a missed, at 0.1
        ]
        examples = examples_of("a", "a", "a")
        self.assertEqual(mistakes(examples, TOPICS, np.array(logits), 9), [2, 1])

    def test_numbers_by_how_far_off(self):
        examples = examples_of("1", "2", None, "3", "4")
        logits = np.array([[1.5], [0], [9], [3], [5]])
        self.assertEqual(mistakes(examples, SCORE, logits, 9), [1, 4, 0])

    def test_nothing_is_known(self):
        self.assertEqual(mistakes(examples_of(None), NLI, np.zeros([1, 2]), 9), [])
        self.assertEqual(mistakes(examples_of(None), TOPICS, np.zeros([1, 3]), 9), [])


if __name__ == "__main__":
    tf.test.main()
