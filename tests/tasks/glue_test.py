from unittest import mock

import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.tasks.glue import COLUMNS, GLUE_TASKS, PAPER, TASKS, add_task, find, xnli
from bert_tf.tasks.tables import DataSet, TableSplit
from tests.script_case import FolderCase

# The columns of GLUE's own files, and for each labelled split its label in a row.
NLI = "index promptID pairID genre b1 b2 p1 p2 sentence1 sentence2 label1"
HEADERS = {
    "SST-2": ("sentence label", "index sentence"),
    "STS-B": (
        "index genre filename year old_index source1 source2 sentence1 sentence2 score",
        "index genre filename year old_index source1 source2 sentence1 sentence2",
    ),
    "QQP": ("id qid1 qid2 question1 question2 is_duplicate", "id question1 question2"),
    "MNLI": (f"{NLI} gold_label", NLI.removesuffix(" label1")),
    "QNLI": ("index question sentence label", "index question sentence"),
    "RTE": ("index sentence1 sentence2 label", "index sentence1 sentence2"),
    "WNLI": ("index sentence1 sentence2 label", "index sentence1 sentence2"),
}
LABEL = {"SST-2": "1", "STS-B": "3.800", "QQP": "0", "MNLI": "neutral"}
LABEL |= {"QNLI": "not_entailment", "RTE": "entailment", "WNLI": "0"}
FIRST = ("sentence1", "question1", "question")
SECOND = ("sentence2", "question2")


class ReleasedTasksTest(FolderCase):
    """Rows in the shape of the released files: which columns mean what."""

    def read(self, task, split, name, *rows):
        self.write(name, "".join("\t".join(row) + "\n" for row in rows))
        examples = find(task).read(self.get_temp_dir(), split)
        return [(e.text_a, e.text_b, e.label) for e in examples]

    def test_cola(self):
        row = ["gj04", "0", "*", "The sailors rode."]
        for split in ("train", "dev"):
            found = self.read("cola", split, f"{split}.tsv", row)
            self.assertEqual(found, [("The sailors rode.", None, "0")])
        rows = ["index", "sentence"], ["0", "Bill."]
        found = self.read("cola", "test", "test.tsv", *rows)
        self.assertEqual(found, [("Bill.", None, None)])

    def test_mrpc(self):
        header = ["\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
        row = ["1", "702876", "702977", 'He said " .', '" She said .']
        for split, label in (("train", "1"), ("dev", "1"), ("test", None)):
            found = self.read("mrpc", split, f"{split}.tsv", header, row)
            self.assertEqual(found, [('He said " .', '" She said .', label)])

    def test_named_columns(self):
        for task, (labelled, unlabelled) in HEADERS.items():
            data_set = GLUE_TASKS[task]
            for split, file_name in data_set.files.items():
                is_test = split in data_set.test_splits
                header = (unlabelled if is_test else labelled).split()
                if file_name.startswith("dev_"):  # MNLI's five annotators
                    header[-1:] = ["label2", "label3", "label4", "label5", header[-1]]
                is_pair = "sentence" not in header or "question" in header
                row = [f"the {name}" for name in header]
                if not is_test:
                    row[-1] = LABEL[task]
                (found,) = self.read(task, split, file_name, header, row)
                first, second, label = found
                if is_pair:
                    self.assertIn(first, [f"the {name}" for name in FIRST])
                    self.assertIn(
                        second, [f"the {name}" for name in (*SECOND, "sentence")]
                    )
                else:
                    self.assertEqual(found[:2], ("the sentence", None))
                self.assertEqual(label, None if is_test else LABEL[task])

    def test_labels_in_the_order_of_the_outputs(self):
        nli = ("contradiction", "entailment", "neutral")
        for task, labels in (
            *((name, nli) for name in ("MNLI", "XNLI", "AX")),
            *((name, ("0", "1")) for name in ("CoLA", "SST-2", "MRPC", "QQP", "WNLI")),
            *((name, ("entailment", "not_entailment")) for name in ("QNLI", "RTE")),
            ("STS-B", ()),
        ):
            self.assertEqual(find(task).target().labels, labels)

    def test_mnli_of_before_glue_has_unlabelled_rows(self):
        header = f"{NLI} gold_label".split()
        row = ["x"] * 8 + ["Premise.", "Hypothesis.", "x"]
        rows = [[*row, "-"], [*row, "entailment"]]
        with self.assertLogs(level="WARNING") as logs:
            found = self.read("mnli", "train", "train.tsv", header, *rows)
        self.assertEqual(found, [("Premise.", "Hypothesis.", "entailment")])
        self.assertIn("left out 1 unlabelled rows of 2; the first", logs.output[0])

    def test_the_diagnostics(self):
        rows = ["index", "sentence1", "sentence2"], ["0", "A cat.", "No cat."]
        found = self.read("AX", "test", "diagnostic.tsv", *rows)
        self.assertEqual(found, [("A cat.", "No cat.", None)])
        header = ["Lexical Semantics", "Predicate-Argument Structure", "Logic",
                  "Knowledge", "Domain", "Premise", "Hypothesis", "Label"]  # fmt: skip
        row = ["", "", "Negation", "", "Artificial", "A", "B", "contradiction"]
        found = self.read("AX", "dev", "diagnostic-full.tsv", header, row)
        self.assertEqual(found, [("A", "B", "contradiction")])

    def test_xnli(self):
        rows = ["premise", "hypo", "label"], ["前提", "假设", "contradictory"]
        found = self.read("xnli", "train", "multinli/multinli.train.zh.tsv", *rows)
        self.assertEqual(found, [("前提", "假设", "contradiction")])
        header = [str(i) for i in range(9)]
        rows = [
            ["de", "neutral", "", "", "", "", "P", "H", ""],
            ["zh", "entailment", "", "", "", "", "前提", "假设", ""],
        ]
        for split in ("dev", "test"):
            found = self.read("xnli", split, f"xnli.{split}.tsv", header, *rows)
            self.assertEqual(found, [("前提", "假设", "entailment")])
        german = xnli("de")
        self.assertLen(german.read(self.get_temp_dir(), "dev"), 1)
        self.assertEndsWith(german.files["train"], "multinli.train.de.tsv")
        with self.assertRaisesRegex(InputError, "no examples with 'tlh' in column 0"):
            xnli("tlh").read(self.get_temp_dir(), "dev")

    def test_a_label_that_is_none_of_the_tasks(self):
        message = "train.tsv:2: the label must be one of 0, 1. Received: '2'"
        with self.assertRaisesRegex(InputError, message):
            self.read("sst2", "train", "train.tsv", ["sentence", "label"], ["A", "2"])


class PaperTest(tf.test.TestCase):
    def test_a_selection_goes_by_the_papers_metric(self):
        self.assertLen(COLUMNS, 9)
        for task, metric in COLUMNS:
            self.assertEqual(
                metric.removesuffix("_mismatched"), GLUE_TASKS[task].metrics[0]
            )
        self.assertEqual({*GLUE_TASKS} - {*PAPER["BERT-Large"]}, {"WNLI", "AX"})


class TableOfTasksTest(tf.test.TestCase):
    def test_names_in_any_case_and_near_misses(self):
        for name in ("SST-2", "sst-2", "sst2", "Sst_2"):
            self.assertIs(find(name), GLUE_TASKS["SST-2"])
        self.assertIs(find("MrPC"), TASKS["MRPC"])
        for name, found in (("mnlli", "MNLI"), ("sts", "STS-B")):
            with self.assertRaisesRegex(InputError, f"Did you mean {found}"):
                find(name)

    def test_a_missing_folder_or_split(self):
        for task, folder, message in (
            ("CoLA", "nowhere", "`data_dir`: no such folder: nowhere"),
            ("CoLA", None, "CoLA is read from files: give `data_dir`"),
            ("AX", self.get_temp_dir(), "AX has no train set. It has: dev, te"),
        ):
            with self.assertRaisesRegex(InputError, message):
                TASKS[task].read(folder, "train")


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
            ("Received: train; ", {"files": {"train": "train.tsv"}}),
            ("among them. .*val", {"dev_splits": ("val",)}),
            ("each once", {"labels": ("yes", "yes")}),
            ("not for Poly-Emo", {"metrics": ("pearson",)}),
        ):
            with self.assertRaisesRegex(ValueError, message):
                add_task(self.data_set(**values))
        self.assertEqual([*TASKS][-1], "XNLI")
