import os

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.tasks.glue import GLUE_TASKS, xnli
from bert_tf.tasks.named import find

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
LABEL = {
    "SST-2": "1",
    "STS-B": "3.800",
    "QQP": "0",
    "MNLI": "neutral",
    "QNLI": "not_entailment",
    "RTE": "entailment",
    "WNLI": "0",
}
FIRST = ("sentence1", "question1", "question")
SECOND = ("sentence2", "question2")


class ReleasedTasksTest(tf.test.TestCase):
    """Rows in the shape of the released files: which columns mean what."""

    def read(self, task, split, name, *rows):
        path = os.path.join(self.get_temp_dir(), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines("\t".join(row) + "\n" for row in rows)
        examples = find(task).read(self.get_temp_dir(), split)
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
        header = ["\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
        row = ["1", "702876", "702977", 'He said " .', '" She said .']
        for split, label in (("train", "1"), ("dev", "1"), ("test", None)):
            self.assertEqual(
                self.read("mrpc", split, f"{split}.tsv", header, row),
                [('He said " .', '" She said .', label)],
            )

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
        self.assertIn("1 unlabelled row: line 2.", logs.output[0])

    def test_the_diagnostics(self):
        self.assertEqual(
            self.read(
                "AX",
                "test",
                "diagnostic.tsv",
                ["index", "sentence1", "sentence2"],
                ["0", "The cat sat.", "The cat did not sit."],
            ),
            [("The cat sat.", "The cat did not sit.", None)],
        )
        header = ["Lexical Semantics", "Predicate-Argument Structure", "Logic",
                  "Knowledge", "Domain", "Premise", "Hypothesis", "Label"]  # fmt: skip
        row = ["", "", "Negation", "", "Artificial", "A", "B", "contradiction"]
        self.assertEqual(
            self.read("AX", "dev", "diagnostic-full.tsv", header, row),
            [("A", "B", "contradiction")],
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
        for split in ("dev", "test"):
            self.assertEqual(
                self.read("xnli", split, f"xnli.{split}.tsv", header, *rows),
                [("前提", "假设", "entailment")],
            )
        german = xnli("de")
        self.assertLen(german.read(self.get_temp_dir(), "dev"), 1)
        self.assertEndsWith(german.files["train"], "multinli.train.de.tsv")
        with self.assertRaisesRegex(InputError, "no examples with 'tlh' in column 0"):
            xnli("tlh").read(self.get_temp_dir(), "dev")

    def test_a_label_that_is_none_of_the_tasks(self):
        with self.assertRaisesRegex(
            InputError, "train.tsv:2: the label must be one of 0, 1. Found: '2'"
        ):
            self.read("sst2", "train", "train.tsv", ["sentence", "label"], ["A", "2"])


if __name__ == "__main__":
    tf.test.main()
