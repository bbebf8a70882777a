import csv
import os

import numpy as np
import tensorflow as tf

from bert_tf.base.config import SINGLE_LABEL
from bert_tf.tasks.swag.choices import ChoiceExample
from bert_tf.tasks.swag.multiple_choice import write_choices
from bert_tf.tasks.tables import Target

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
        expected = [
            "index|label|prediction|correct|p_A|p_B|premise|start|ending_A|ending_B",
            '0|A|B|0|0.250000|0.750000|It, "so".|He|runs\naway.|sings.',
            "1||A||0.800000|0.200000|p||x|y",
        ]
        self.assertEqual(["|".join(row) for row in rows], expected)
