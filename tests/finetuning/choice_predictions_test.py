import csv
import os

import numpy as np
import tensorflow as tf

from bert_tf.config import SINGLE_LABEL
from bert_tf.finetuning.choice_predictions import write_choices, write_probabilities
from bert_tf.tasks.choices import ChoiceExample
from bert_tf.tasks.targets import Target

TARGET = Target(kind=SINGLE_LABEL, labels=("A", "B"))
EXAMPLES = [
    ChoiceExample('It, "so".', "He", ("runs\naway.", "sings."), "A", "f:2"),
    ChoiceExample("p", "", ("x", "y"), None, "f:3"),
]
# exp(ln 3) / (exp(ln 3) + 1) = 3 / 4, and 1 / 5.
LOGITS = np.log(np.array([[1.0, 3.0], [4.0, 1.0]], np.float32))


class ChoicePredictionsTest(tf.test.TestCase):
    def test_a_row_an_example(self):
        path = os.path.join(self.get_temp_dir(), "p.csv")
        write_choices(path, EXAMPLES, TARGET, LOGITS)
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        self.assertEqual(
            [",".join(row) for row in rows],
            [
                "index,label,prediction,correct,p_A,p_B,premise,start,ending_A,ending_B",
                '0,A,B,0,0.250000,0.750000,It, "so".,He,runs\naway.,sings.',
                "1,,A,,0.800000,0.200000,p,,x,y",
            ],
        )
        self.assertEqual({len(row) for row in rows}, {10})
        with self.assertRaisesRegex(ValueError, "expected: .1, 2."):
            write_choices(path, EXAMPLES[:1], TARGET, LOGITS)

    def test_probabilities_as_the_original_writes_them(self):
        path = os.path.join(self.get_temp_dir(), "t.tsv")
        write_probabilities(path, TARGET, LOGITS)
        with open(path) as file:
            cells = [line.split("\t") for line in file.read().splitlines()]
        self.assertAllClose(
            [[float(cell) for cell in row] for row in cells], [[0.25, 0.75], [0.8, 0.2]]
        )


if __name__ == "__main__":
    tf.test.main()
