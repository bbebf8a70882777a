import os
import tempfile

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.predictions import read_predictions
from bert_tf.finetuning.reports import write_reports
from bert_tf.tasks.examples import Example
from bert_tf.tasks.targets import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Target
from tests.finetuning.drawn import drawn


class ReportsTest(tf.test.TestCase):
    def written(self, target, labels, logits, **kwargs):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        examples = [
            Example(f"Text {number}.", None, label, f"dev.tsv:{number}")
            for number, label in enumerate(labels)
        ]
        paths = write_reports(
            folder, "dev", examples, target, np.array(logits), **kwargs
        )
        names = [os.path.basename(path) for path in paths]
        self.assertEqual(sorted(names), sorted(os.listdir(folder)))
        return folder, names

    def test_a_labelled_split(self):
        target = Target(kind=SINGLE_LABEL, labels=("no", "yes"))
        folder, names = self.written(
            target, ["no", "no", "no"], [[0, 1], [1, 0], [0, 2]], num_mistakes=1
        )
        self.assertEqual(
            names,
            [
                "dev_predictions.tsv",
                "dev_mistakes.tsv",
                "dev_confusion.png",
                "dev_calibration.png",
            ],
        )
        rows = read_predictions(os.path.join(folder, "dev_predictions.tsv"))
        self.assertEqual([row["prediction"] for row in rows], ["yes", "no", "yes"])
        (worst,) = read_predictions(os.path.join(folder, "dev_mistakes.tsv"))
        self.assertEqual((worst["index"], worst["text_a"]), ("2", "Text 2."))

    def test_pictures_name_the_task_and_its_classes(self):
        target = Target(kind=SINGLE_LABEL, labels=("0", "1"))
        said = []

        def draw():
            folder, _ = self.written(
                target,
                ["0", "1"],
                [[0, 1], [1, 0]],
                task_name="CoLA",
                class_names={"0": "unacceptable", "1": "acceptable"},
            )
            said.append(folder)
            with open(os.path.join(folder, "dev_confusion.png"), "rb") as file:
                return file.read()

        texts, _ = drawn(draw)
        self.assertContainsSubset(
            ["CoLA, dev: 2 examples", "unacceptable (0)", "acceptable (1)"], texts
        )
        # The table keeps the labels of the data.
        rows = read_predictions(os.path.join(said[0], "dev_predictions.tsv"))
        self.assertEqual([row["prediction"] for row in rows], ["1", "0"])

    def test_several_labels(self):
        target = Target(kind=MULTI_LABEL, labels=("a", "b"))
        _, names = self.written(target, ["a,b", ""], [[1, 1], [1, -1]])
        self.assertIn("dev_confusion.png", names)
        self.assertIn("dev_calibration.png", names)

    def test_numbers(self):
        _, names = self.written(Target(kind=REGRESSION), ["1", None], [[1.5], [2]])
        self.assertEqual(
            names, ["dev_predictions.tsv", "dev_mistakes.tsv", "dev_regression.png"]
        )

    def test_without_labels_or_unwanted_there_are_only_predictions(self):
        target = Target(kind=SINGLE_LABEL, labels=("no", "yes"))
        _, names = self.written(target, [None, None], [[0, 1], [1, 0]])
        self.assertEqual(names, ["dev_predictions.tsv"])
        _, names = self.written(
            target, ["no", "no"], [[0, 1], [1, 0]], plots=False, num_mistakes=0
        )
        self.assertEqual(names, ["dev_predictions.tsv"])


if __name__ == "__main__":
    tf.test.main()
