import os

import tensorflow as tf

from bert_tf import cli, run_classifier
from bert_tf.errors import InputError
from bert_tf.tasks.glue import TASKS, data_set_from_flags


class ReleasedTasksTest(tf.test.TestCase):
    """Rows in the shape of the released files: which columns mean what."""

    def read(self, task, split, name, *rows):
        path = os.path.join(self.get_temp_dir(), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines("\t".join(row) + "\n" for row in rows)
        examples = TASKS[task].read(self.get_temp_dir(), split)
        return [(e.text_a, e.text_b, e.label) for e in examples]

    def test_cola(self):
        row = ["gj04", "0", "*", "The sailors rode."]
        for split in ("train", "dev"):
            self.assertEqual(
                self.read("cola", split, f"{split}.tsv", row),
                [("The sailors rode.", None, "0")],
            )
        self.assertEqual(
            self.read(
                "cola", "test", "test.tsv", ["index", "sentence"], ["0", "Bill."]
            ),
            [("Bill.", None, None)],
        )

    def test_mrpc(self):
        header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
        row = ["1", "702876", "702977", "He said.", "She said."]
        for split, label in (("train", "1"), ("dev", "1"), ("test", None)):
            self.assertEqual(
                self.read("mrpc", split, f"{split}.tsv", header, row),
                [("He said.", "She said.", label)],
            )

    def test_mnli(self):
        header = [str(i) for i in range(12)]
        row = ["0", "1", "2", "3", "4", "5", "6", "7", "Premise.", "Hypothesis.",
               "x", "neutral"]  # fmt: skip
        for split, name, label in (
            ("train", "train.tsv", "neutral"),
            ("dev", "dev_matched.tsv", "neutral"),
            ("test", "test_matched.tsv", None),
        ):
            self.assertEqual(
                self.read("mnli", split, name, header, row),
                [("Premise.", "Hypothesis.", label)],
            )
        self.assertEqual(
            TASKS["mnli"].labels, ("contradiction", "entailment", "neutral")
        )

    def test_xnli(self):
        self.assertEqual(
            self.read(
                "xnli",
                "train",
                os.path.join("multinli", "multinli.train.zh.tsv"),
                ["premise", "hypo", "label"],
                ["前提", "假设", "contradictory"],
            ),
            [("前提", "假设", "contradiction")],
        )
        header = [str(i) for i in range(9)]
        rows = [
            ["de", "neutral", "", "", "", "", "P", "H", ""],
            ["zh", "entailment", "", "", "", "", "前提", "假设", ""],
        ]
        self.assertEqual(
            self.read("xnli", "dev", "xnli.dev.tsv", header, *rows),
            [("前提", "假设", "entailment")],
        )
        with self.assertRaisesRegex(InputError, "no test set"):
            TASKS["xnli"].read(self.get_temp_dir(), "test")


class OwnTableTest(tf.test.TestCase):
    def data_set(self, *arguments):
        return data_set_from_flags(
            cli.parse(
                run_classifier.define_flags,
                [
                    "--data_dir=d",
                    "--vocab_file=v",
                    "--bert_config_file=b",
                    "--output_dir=o",
                    "--do_train",
                    *arguments,
                ],
            )
        )

    def write(self, text):
        with open(os.path.join(self.get_temp_dir(), "train.tsv"), "w") as file:
            file.write(text)
        return self.get_temp_dir()

    def test_columns_and_labels_by_flags(self):
        folder = self.write("A\tB\tgood\nC\tD\tbad\n")
        data_set = self.data_set(
            "--task_name=tsv",
            "--text_a_column=0",
            "--text_b_column=1",
            "--label_column=-1",
            "--has_header=False",
        )
        self.assertEqual(data_set.read_labels(folder), ("bad", "good"))
        self.assertEqual(
            [example[:3] for example in data_set.read(folder, "train")],
            [("A", "B", "good"), ("C", "D", "bad")],
        )
        data_set = self.data_set("--task_name=tsv", "--labels=good,bad")
        self.assertEqual(data_set.read_labels(folder), ("good", "bad"))

    def test_regression_has_no_labels(self):
        data_set = self.data_set("--task_name=tsv", "--regression")
        self.assertIsNone(data_set.read_labels("nowhere"))

    def test_names_in_any_case_and_near_misses(self):
        self.assertIs(self.data_set("--task_name=MrPC"), TASKS["mrpc"])
        with self.assertRaisesRegex(InputError, "Did you mean mnli"):
            self.data_set("--task_name=mnlli")

    def test_a_missing_folder(self):
        with self.assertRaisesRegex(InputError, "--data_dir: no such folder: nowhere"):
            TASKS["cola"].read("nowhere", "train")


if __name__ == "__main__":
    tf.test.main()
