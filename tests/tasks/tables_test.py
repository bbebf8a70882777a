import tempfile
from typing import ClassVar

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from bert_tf.base.errors import InputError
from bert_tf.tasks.glue import GLUE_TASKS
from bert_tf.tasks.tables import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    DataSet,
    Example,
    TableSplit,
    Target,
    TfdsSet,
    TfdsSplit,
    held_out,
)
from tests.script_case import FolderCase
from tests.tasks.tfds_sets import MadeHere, mocked


class HeldOutTest(tf.test.TestCase):
    def test_the_same_share_of_each_label_and_none_of_a_single_example(self):
        labels = ["a"] * 50 + ["b"] * 20 + ["c"] * 3 + ["d"]
        examples = [
            Example(f"text {number}", None, label, f"line {number}")
            for number, label in enumerate(labels)
        ]
        train, dev = held_out(examples, 0.1, 5, by_label=True)
        self.assertEqual([one.label for one in dev], ["a"] * 5 + ["b"] * 2 + ["c"])
        self.assertEqual([one.label for one in train].count("d"), 1)
        self.assertEqual(sorted([*train, *dev]), sorted(examples))
        self.assertEqual(held_out(examples, 0.1, 5, by_label=True), (train, dev))
        _, dev = held_out(examples, 0.1, 5, by_label=False)
        self.assertLen(dev, 7)


class TableSplitTest(FolderCase):
    def write(self, content, name="data.tsv"):
        return super().write(name, content)

    def test_rows_by_hand(self):
        labelled = "id\ttext\tx\tlabel\n7\tA b\tq\tyes\n8\tC\tq\tno\n"
        both = [("A b", None, "yes", 2), ("C", None, "no", 3)]
        for content, columns, expected in (
            # Columns by name, by number, and from the end.
            (labelled, {"text_a": "text", "label": "label"}, both),
            (labelled, {"text_a": 1, "label": 3}, both),
            (labelled, {"text_a": 1, "label": -1}, both),
            (
                "A\tB\nC\tD",
                {"text_a": 0, "text_b": 1, "has_header": False},
                [("A", "B", None, 1), ("C", "D", None, 2)],
            ),
            # Quotes are ordinary; other line ends of Unicode do not cut a row.
            ('t\n"a, and "" b\n', {"text_a": "t"}, [('"a, and "" b', None, None, 2)]),
            (
                "t\nA\u2028B\x85C\x0cD\n",
                {"text_a": "t"},
                [("A\u2028B\x85C\x0cD", None, None, 2)],
            ),
            (
                b"\xef\xbb\xbftext\tlabel\r\nA\rB\x00C\t1\r\n",
                {"text_a": "text", "label": "label"},
                [("A\rB\0C", None, "1", 2)],
            ),
            (
                "lang\ttext\tlabel\nde\tA\tx\nzh\tB\ty\n",
                {"text_a": 1, "label": 2, "only": {0: "zh"}, "rename": {"y": "z"}},
                [("B", None, "z", 3)],
            ),
            # Blank lines at the end shift no prediction.
            ("t\none\n\n", {"text_a": "t"}, [("one", None, None, 2)]),
        ):
            path = self.write(content)
            found = TableSplit(**columns).read(path)
            expected = [(*one[:3], f"{path}:{one[3]}") for one in expected]
            self.assertEqual(found, expected)

    def test_csv(self):
        text = "word " * 40_000
        path = self.write(f't,l\n"one, ""two""\nthree",x\n"{text}",y\n', "data.csv")
        expected = [
            Example('one, "two"\nthree', None, "x", f"{path}:3"),
            Example(text, None, "y", f"{path}:4"),
        ]
        self.assertEqual(TableSplit(text_a="t", label="l").read(path), expected)

    def test_files_that_cannot_be_used(self):
        rows = "".join(f"{i}\tA\n" for i in range(500))
        text = {"text_a": "text"}
        for content, columns, message in (
            (
                "a\tb\nA\t1\nC\n",
                {"text_a": 0, "label": 1},
                r"data.tsv:3: column 1 is missing: the row has 1 columns\."
                r" \(1 of 2 rows cannot be used; at most 0 may be: `max",
            ),
            (
                "a\tb\nA\t1\n",
                text,
                r"no column 'text' .* The columns are 'a', 'b': give one",
            ),
            (
                "a\tb\ttext\ttext\nA\t1\tB\tC\n",
                text,
                r"2 columns 'text' \(`text_a_column`",
            ),
            (
                "text,label\nA,1\n",
                text,
                "only column is 'text,label'. .* Files named .csv",
            ),
            ("text;label\nA;1\n", text, "If it is several, give `delimiter`"),
            # Without labels, each line is a prediction's.
            (f"id\ttext\n{rows}500\n", text, ":502: column 'text'"),
            ("header only\n", {"text_a": 0}, "no examples"),
            ("\ufeff", {"text_a": 0}, "the file is empty"),
            (b"t\n\xff\xfe\n", {"text_a": 0}, "data.tsv:2: not UTF-8"),
        ):
            with self.assertRaisesRegex(InputError, message):
                TableSplit(**columns).read(self.write(content))
        with self.assertRaisesRegex(InputError, "No such data file: nowhere.tsv"):
            TableSplit(text_a=0).read("nowhere.tsv")
        path = self.write('text,l\n"A,x\nB,y\n', "data.csv")
        with self.assertRaisesRegex(InputError, "data.csv:3: unexpected end of data"):
            TableSplit(text_a="text").read(path)

    def test_few_unusable_rows_are_left_out_with_their_lines(self):
        # What the line end within a question does to a row of QQP, and an empty label.
        rows = [f"{i}\tA\tB\t1" for i in range(2, 500)]
        rows[95:97] = ["97\tA", '"\tWas he?\t0', "99\tA\tB\t"]
        path = self.write("id\tq1\tq2\tlabel\n" + "\n".join(rows))
        split = TableSplit(text_a="q1", text_b="q2", label="label")

        def check(label, source):
            if label not in ("0", "1"):
                raise InputError(f"{source}: no such label: {label!r}.")

        with self.assertLogs(level="WARNING") as logs:
            examples = split.read(path, check)
        self.assertLen(examples, 496)
        self.assertEqual(examples.num_left_out, 3)
        self.assertEqual(examples[95].source, f"{path}:100")
        (warning,) = logs.output
        self.assertIn(
            f"{path}: left out 3 unusable rows of 499; the first one is line 97: column"
            " 'q2' is missing: the row has 2 columns.",
            warning,
        )
        # One per cent of 499 is 4.
        path = self.write("id\tq1\tq2\tlabel\n" + "\n".join([*rows, *"xyz"]))
        message = r"data.tsv:97: column 'q2' .* \(6 of 502 rows cannot be .* most 5"
        with self.assertRaisesRegex(InputError, message):
            split.read(path, check)

    def test_a_page_of_html(self):
        path = self.write("<html>\n<body>A\t1\n")
        with self.assertRaisesRegex(InputError, "data.tsv: an HTML page, .* as CSV"):
            TableSplit(text_a="t", label="l").read(path)

    def test_another_limit(self):
        path = self.write("t\tl\n" + 93 * "A\t1\n" + 7 * " \t1\n")
        split = TableSplit(text_a="t", label="l")
        for limit in (7.0, 0.07, 50.0):
            with self.assertLogs(level="WARNING") as logs:
                examples = split.read(path, max_unusable_rows=limit)
            self.assertLen(examples, 93)
            self.assertIn("7 unusable rows of 100; the first one is", logs.output[0])
        for limit, most in ((6.0, 6), (0.069, 6), (0.0, 0)):
            message = f":95: the text is empty.*7 of 100 rows .* most {most} may be: `m"
            with self.assertRaisesRegex(InputError, message):
                split.read(path, max_unusable_rows=limit)

    def test_without_labels_each_row_is_an_example(self):
        path = self.write("id\ttext\n1\tone\n\n \t \n2\t\n3\tb\n\n")
        with self.assertLogs(level="WARNING") as logs:
            examples = TableSplit(text_a="text").read(path)
        self.assertEqual([e.text_a.strip() for e in examples], ["one", *3 * [""], "b"])
        self.assertEqual(examples[1].source, f"{path}:3")
        self.assertIn("3 of 5 rows have no text, and are predicted", logs.output[0])
        self.assertIn("line 3.", logs.output[0])
        self.assertIn("left out 1 blank rows of 5; the first", logs.output[1])

    def test_blank_and_unlabelled_rows_are_left_out_and_counted(self):
        path = self.write("t\tl\n" + 7 * "A\t-\n" + "\n\nB\t1\n")
        with self.assertLogs(level="WARNING") as logs:
            examples = TableSplit(text_a="t", label="l", no_label="-").read(path)
        self.assertLen(examples, 1)
        self.assertEqual(examples.num_left_out, 2 + 7)
        self.assertIn("left out 2 blank rows of 8; the first", logs.output[0])
        self.assertIn("left out 7 unlabelled rows of 8; the first", logs.output[1])


# What a model's outputs of 0, 1, ... are, against the library's numbers of a class.
LABELS = {
    **dict.fromkeys(("CoLA", "SST-2", "MRPC", "QQP", "WNLI"), ("0", "1")),
    **dict.fromkeys(("QNLI", "RTE"), ("entailment", "not_entailment")),
    # The library's order is not ours, which is the original's.
    "MNLI": ("entailment", "neutral", "contradiction"),
}


class Row(dict):
    """A row whose texts are made of its number."""

    def __missing__(self, name):
        return f"{name} {self['idx']}"


def rows(labels):
    """Rows in a shuffled order: sentence 2 of the file first."""
    return mocked([Row(label=labels[index], idx=index) for index in (2, 0, 1)])


class GlueTest(tf.test.TestCase):
    """As the library has GLUE's sets, with rows of our own."""

    def test_classes_and_the_order_of_the_file(self):
        for task, labels in LABELS.items():
            classes = [2, 0, 1] if task == "MNLI" else [1, 0, 1]
            with rows(classes):
                examples = GLUE_TASKS[task].from_tfds().read(None, "train")
            self.assertEqual(
                [example.label for example in examples], [labels[i] for i in classes]
            )
            self.assertEqual([e.text_a[-1] for e in examples], ["0", "1", "2"])
            self.assertContainsSubset(labels, GLUE_TASKS[task].labels)
        with rows([3.8, 0.0, 5.0]):
            examples = GLUE_TASKS["STS-B"].from_tfds().read(None, "dev")
        self.assertEqual([e.label for e in examples], ["3.8", "0.0", "5.0"])
        self.assertEqual(examples[0].source, "tfds:glue/stsb/2.0.0:validation:0")

    def test_columns_and_splits(self):
        for task, split, text_a, text_b, theirs in (
            ("CoLA", "test", "sentence", None, "test"),
            ("MRPC", "test", "sentence1", "sentence2", "test"),
            ("QQP", "test", "question1", "question2", "test"),
            ("QNLI", "test", "question", "sentence", "test"),
            ("AX", "test", "premise", "hypothesis", "test"),
            ("MNLI", "test", "premise", "hypothesis", "test_matched"),
            ("MNLI", "test_mismatched", "premise", "hypothesis", "test_mismatched"),
            ("MNLI", "dev", "premise", "hypothesis", "validation_matched"),
            ("MNLI", "dev_mismatched", "premise", "hypothesis", "validation_mismatch"),
        ):
            with rows([-1, -1, -1] if "test" in split else [0, 1, 2]):
                example = GLUE_TASKS[task].from_tfds().read(None, split)[1]
            self.assertEqual(example.text_a, f"{text_a} 1")
            self.assertEqual(example.text_b, text_b and f"{text_b} 1")
            self.assertEqual(example.label is None, "test" in split)
            self.assertIn(f":{theirs}", example.source)

    def test_rows_without_a_label_are_left_out_and_counted(self):
        rte = GLUE_TASKS["RTE"].from_tfds()
        with rows([1, -1, 0]), self.assertLogs(level="WARNING") as logs:
            examples = rte.read(None, "train")
        self.assertEqual([e.text_a[-1] for e in examples], ["0", "2"])
        self.assertEqual(examples.num_left_out, 1)
        self.assertIn(
            "glue/rte/2.0.0:train: left out 1 unlabelled rows of 3", logs.output[-1]
        )
        with rows([-1, -1, -1]), self.assertRaisesRegex(
            InputError, "glue/rte/2.0.0:train: no labelled examples in this split"
        ):  # fmt: skip
            rte.read(None, "train")


class Reviews(MadeHere):
    """Reviews with labels of every kind; the first one has no mood."""

    SIZES: ClassVar = {"train": 200}
    FEATURES: ClassVar = {
        "text": tfds.features.Text(),
        "mood": tfds.features.ClassLabel(names=["sad", "glad"]),
        "stars": tf.int64,
        "word": tfds.features.Text(),
        "topics": tfds.features.Sequence(
            tfds.features.ClassLabel(names=["plot", "cast", "music"])
        ),
        "numbers": tfds.features.Sequence(tf.float32, length=2),
        "is_odd": tf.bool,
        "is_large": tf.int64,
        "weight": tf.float32,
    }

    @staticmethod
    def row(number):
        return {
            "text": f"Review {number}. é",
            "mood": number % 2 if number else -1,
            "stars": number % 5,
            "word": "yes" if number % 2 else "no",
            "topics": list(range(number % 4)),
            "numbers": [0.5, number],
            "is_odd": number % 2 == 1,
            "is_large": number > 99 if number else 7,
            "weight": number / 2,
        }


class AnySetTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tfds.disable_progress_bar()
        # One for all tests: the set is prepared once.
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())

    def data_set(self, label, metric="accuracy", columns=None, **kwargs):
        splits = {"train": "train", "dev": "train[90%:]", "test": "nowhere"}
        columns = {"text_a": "text", "label": label, "index": None, **(columns or {})}
        return DataSet(
            name="reviews",
            metrics=(metric,),
            files={"train": "train.tsv"},
            splits={},
            tfds=TfdsSet(name="reviews", splits=splits, **columns),
            **kwargs,
        ).from_tfds(folder=self.folder)

    def by_number(self, data_set, split="train"):
        examples = data_set.read(None, split)
        return {int(e.text_a.split()[1][:-1]): e.label for e in examples}

    def test_classes_have_the_sets_own_order(self):
        data_set = self.data_set("mood")
        self.assertEqual(data_set.read_target(None).labels, ("sad", "glad"))
        with self.assertLogs(level="WARNING") as logs:
            labels = self.by_number(data_set)
        self.assertLen(labels, 199)
        self.assertEqual((labels[1], labels[2]), ("glad", "sad"))
        self.assertIn("left out 1 unlabelled rows", logs.output[-1])
        self.assertLen(data_set.read(None, "dev"), 20)

    def test_numbers_and_words_as_classes(self):
        data_set = self.data_set("stars")
        self.assertEqual(data_set.read_target(None).labels, ("0", "1", "2", "3", "4"))
        self.assertEqual(self.by_number(data_set)[7], "2")
        data_set = self.data_set("word")
        self.assertEqual(data_set.read_target(None).labels, ("no", "yes"))

    def test_several_labels_and_numbers(self):
        data_set = self.data_set("topics", "f1_micro", kind=MULTI_LABEL)
        self.assertEqual(data_set.read_target(None).labels, ("plot", "cast", "music"))
        labels = self.by_number(data_set)
        found = [labels[i] for i in (0, 1, 3)]
        self.assertEqual(found, ["", "plot", "plot,cast,music"])
        options = {"labels": ("half", "number"), "separator": ";"}
        data_set = self.data_set("numbers", "pearson", kind=REGRESSION, **options)
        self.assertEqual(self.by_number(data_set)[12], "0.5;12.0")

    def test_a_feature_for_each_label_or_number(self):
        own = {"odd": "is_odd", "large": "is_large"}
        options = {"columns": {"label_columns": own}, "labels": tuple(own)}
        data_set = self.data_set("label", "f1_micro", kind=MULTI_LABEL, **options)
        with self.assertLogs(level="WARNING") as logs:
            labels = self.by_number(data_set)
        found = [labels[i] for i in (1, 2, 100, 101)]
        self.assertEqual(found, ["odd", "", "large", "odd,large"])
        self.assertIn("'large' must be 0 or 1. Received: '7'", logs.output[-1])
        own = {"stars": "stars", "weight": "weight"}
        options["columns"] = {"label_columns": own, "numbers": True}
        options["labels"] = tuple(own)
        data_set = self.data_set("label", "pearson", kind=REGRESSION, **options)
        self.assertEqual(self.by_number(data_set)[13], "3,6.5")
        options["columns"] = {"label_columns": {"a": "is_odd", "b": "no"}}
        data_set = self.data_set("label", "f1_micro", kind=MULTI_LABEL, **options)
        with self.assertRaisesRegex(InputError, "no feature 'no'; `label_column`"):
            data_set.read(None, "train")

    def test_errors_are_one_line(self):
        for reason, arguments in (
            ("'body'; `text_a_column` names .* own: text, word", {"text_a": "body"}),
            ("no text feature 'stars'; `text_b_column`", {"text_b": "stars"}),
            ("no feature 'tag'; `label_column`", {"label": "tag"}),
        ):
            values = {"name": "reviews", "text_a": "text", **arguments}
            of = TfdsSet(folder=self.folder, index=None, **values)
            split = TfdsSplit(of, "train", has_labels="label" in values)
            with self.assertRaisesRegex(InputError, reason) as raised:
                split.read()
            self.assertNotIn("\n", str(raised.exception))


ONE = Target(kind=SINGLE_LABEL, labels=("no", "yes", "maybe"))
SEVERAL = Target(kind=MULTI_LABEL, labels=("a", "b", "c"))
NUMBER = Target(kind=REGRESSION)
NUMBERS = Target(kind=REGRESSION, labels=("width", "height"))


class TargetTest(tf.test.TestCase):
    def test_labels_in_a_record(self):
        separated = Target(kind=MULTI_LABEL, labels=("a", "b, c"), separator="; ")
        for target, label, expected in (
            (ONE, "maybe", [2]),
            (ONE, None, [0]),
            (SEVERAL, "c,a", [1.0, 0.0, 1.0]),
            (SEVERAL, " b , b", [0.0, 1.0, 0.0]),
            (SEVERAL, "", [0.0, 0.0, 0.0]),
            (SEVERAL, None, [0.0, 0.0, 0.0]),
            (separated, "b, c; a", [1.0, 1.0]),
            (NUMBER, "2.5", [2.5]),
            (NUMBER, None, [0.0]),
            (NUMBERS, "1, -2e1", [1.0, -20.0]),
            (NUMBERS, None, [0.0, 0.0]),
        ):
            self.assertEqual(target.encode(label, "f:1"), expected)
            self.assertEqual(len(expected), target.label_length)
            self.assertIsInstance(expected[0], int if target is ONE else float)
            self.assertEqual(
                target.label_dtype, "int64" if target is ONE else "float32"
            )
        self.assertEqual(separated.words(np.ones([1, 2])), ["a; b, c"])
        self.assertEqual([t.num_outputs for t in (ONE, NUMBER, NUMBERS)], [3, 1, 2])

    def test_labels_that_are_none(self):
        for target, wrong, message in (
            (ONE, ("Yes",), "one of no, yes, maybe. Received: 'Yes'"),
            (SEVERAL, ("a,d",), "',' between.*Received: 'd'"),
            (NUMBER, ("x", "", "1,2", "nan", "inf"), "a number.*. Received"),
            (NUMBERS, ("1", "1,2,3", "1,"), "2 numbers"),
        ):
            for label in wrong:
                with self.assertRaisesRegex(InputError, f"f:7: .* {message}"):
                    target.encode(label, "f:7")

    def test_probabilities_of_extreme_outputs(self):
        logits = np.array([[1000.0, 0.0, -1000.0]])
        with np.errstate(all="raise", under="ignore"):
            self.assertAllClose(ONE.probabilities(logits), [[1.0, 0.0, 0.0]])
            self.assertAllClose(SEVERAL.probabilities(logits), [[1.0, 0.5, 0.0]])
