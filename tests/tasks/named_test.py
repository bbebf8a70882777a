from unittest import mock

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.metrics.glue import METRICS_OF
from bert_tf.tasks.data_set import DataSet
from bert_tf.tasks.examples import TableSplit
from bert_tf.tasks.glue import GLUE_TASKS
from bert_tf.tasks.named import TASKS, add_task, find


class TableOfTasksTest(tf.test.TestCase):
    def test_every_task_is_whole(self):
        self.assertEqual(
            ",".join(GLUE_TASKS), "CoLA,SST-2,MRPC,STS-B,QQP,MNLI,QNLI,RTE,WNLI,AX"
        )
        for name, task in TASKS.items():
            self.assertEqual(task.name, name)
            self.assertContainsSubset(task.metrics, METRICS_OF[task.kind])
            self.assertEqual({*task.files}, {*task.splits})
            for split in (*task.dev_splits, *task.test_splits):
                self.assertIn(split, task.splits)
            if task.tfds:
                self.assertContainsSubset(task.tfds.splits, task.splits)

    def test_names_in_any_case_and_near_misses(self):
        for name in ("SST-2", "sst-2", "sst2", "Sst_2"):
            self.assertIs(find(name), GLUE_TASKS["SST-2"])
        self.assertIs(find("MrPC"), TASKS["MRPC"])
        with self.assertRaisesRegex(InputError, "Did you mean MNLI"):
            find("mnlli")
        with self.assertRaisesRegex(InputError, "Did you mean STS-B"):
            find("sts")

    def test_a_missing_folder_or_split(self):
        with self.assertRaisesRegex(InputError, "`data_dir`: no such folder: nowhere"):
            TASKS["CoLA"].read("nowhere", "train")
        with self.assertRaisesRegex(
            InputError, "CoLA is read from files: give `data_dir`"
        ):
            TASKS["CoLA"].read(None, "train")
        with self.assertRaisesRegex(InputError, "AX has no train set. It has: dev, te"):
            TASKS["AX"].read(self.get_temp_dir(), "train")


class AddTaskTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.dict(TASKS))

    def data_set(self, **values):
        table = TableSplit(text_a="text", label="label")
        names = ("train", "dev", "test")
        whole = {
            "name": "Poly-Emo",
            "labels": ("no", "yes"),
            "metrics": ("accuracy",),
            "files": {name: f"{name}.txt" for name in names},
            "splits": dict.fromkeys(names, table),
        }
        return DataSet(**{**whole, **values})

    def test_it_is_found_and_gives_way_to_a_later_one(self):
        add_task(self.data_set())
        later = self.data_set(name="polyemo", metrics=("f1",))
        add_task(later)
        self.assertIs(find("Poly_Emo"), later)
        self.assertEqual([*TASKS][-2:], ["XNLI", "polyemo"])
        with self.assertRaisesRegex(InputError, "Did you mean polyemo"):
            find("poliemo")

    def test_what_does_not_fit_together(self):
        for message, values in (
            ("a task sst2", {"name": "sst2"}),
            ("a task TSV", {"name": "TSV"}),
            ("Received: train and train, dev", {"files": {"train": "train.tsv"}}),
            ("among train, dev, test. Received: val", {"dev_splits": ("val",)}),
            ("a label is there twice", {"labels": ("yes", "yes")}),
            ("not for Poly-Emo", {"metrics": ("pearson",)}),
        ):
            with self.assertRaisesRegex(ValueError, message):
                add_task(self.data_set(**values))
        self.assertEqual([*TASKS][-1], "XNLI")


if __name__ == "__main__":
    tf.test.main()
