"""Tables of one's own and other choices by flags."""

import tensorflow as tf
from absl import flags
from absl.testing import parameterized

from bert_tf import run_classifier
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.tasks.data_set_options import data_set_of
from bert_tf.tasks.glue import TASKS
from bert_tf.tasks.tables import MULTI_LABEL, REGRESSION, Target
from tests.script_case import FolderCase


def data_set(*arguments):
    given = ["--output_dir=o", "--do_predict", *arguments]
    return data_set_of(cli.parse(run_classifier.run, given))


class TaskNameTest(tf.test.TestCase):
    def data_set(self, *arguments):
        return data_set("--data_dir=d", *arguments)

    def test_flags_that_would_have_no_effect(self):
        for reason, arguments in (
            ("`train_file` has no.* for `task_name=tsv`, not", "MRPC --train_file=my"),
            ("`regression` has no effect", "STS-B --regression"),
            ("`labels` has no effect", "XNLI --labels=a,b"),
            ("`xnli_language`.* for `task_name=XNLI`", "MNLI --xnli_language=de"),
            ("=glue/rte` is not CoLA's", "cola --tfds_name=glue/rte"),
            ("XNLI is not read from", "xnli --tfds_name=glue/rte"),
            ("`regression` predicts numbers", "tsv --regression --several_labels"),
            ("`label_separator` must not be empty", "tsv --label_separator="),
            (
                "`has_header`.*has no files",
                "tsv --tfds_name=x --has_header=false",
            ),
            ("--tfds_name and --dev_file mean the", "tsv --tfds_name=x --dev_file=a"),
            ("--tfds_splits has no effect without", "tsv --tfds_splits=a,b,c"),
            ("=train must name 3 splits", "tsv --tfds_name=x --tfds_splits=train"),
        ):
            given = "" if "tfds_name" in arguments else " --data_dir=d"
            with self.assertRaisesRegex((InputError, flags.Error), reason):
                data_set(*f"--task_name={arguments}{given}".split())
        # What says what holds anyway does no harm.
        self.data_set("--task_name=MRPC", "--has_header=true", "--train_file=train.tsv")

    def test_other_metrics(self):
        found = self.data_set("--task_name=MRPC", "--metrics=accuracy,f1_macro")
        self.assertEqual(found.metrics, ("accuracy", "f1_macro"))
        self.assertEqual(found.splits, TASKS["MRPC"].splits)
        with self.assertRaisesRegex(InputError, "`metrics`: the first metric chooses"):
            self.data_set("--task_name=STS-B", "--metrics=mean_squared_error")
        for metric in ("f1", "bleu"):
            found = self.data_set("--task_name=MNLI", f"--metrics=accuracy,{metric}")
            with self.assertRaisesRegex(InputError, f"`metrics={metric}`: not for MNL"):
                found.target()


class OwnTableTest(FolderCase, parameterized.TestCase):
    def data_set(self, *arguments):
        return data_set("--data_dir=d", "--task_name=tsv", *arguments)

    def write(self, text, name="train.tsv"):
        super().write(name, text)
        return self.path()

    def test_columns_and_labels_by_flags(self):
        folder = self.write("A\tB\tgood\nC\tD\tbad\n")
        columns = "--text_a_column=0 --text_b_column=1 --label_column=-1"
        found = self.data_set(*columns.split(), "--has_header=False")
        self.assertEqual(found.read_target(folder).labels, ("bad", "good"))
        self.assertEqual(
            [example[:3] for example in found.read(folder, "train")],
            [("A", "B", "good"), ("C", "D", "bad")],
        )
        found = self.data_set("--labels=good,bad")
        self.assertEqual(found.read_target("nowhere").labels, ("good", "bad"))
        self.assertEqual(found.metrics, ("accuracy",))

    def test_a_feature_of_a_tensorflow_dataset_for_each_label(self):
        given = "--tfds_name=x --several_labels --labels=big,odd"
        columns = "--label_column=is_big, is_odd"
        found = data_set("--task_name=tsv", *given.split(), columns)
        own = {"big": "is_big", "odd": "is_odd"}
        self.assertEqual(found.tfds.label_columns, own)

    def test_what_labels_were_found_is_said(self):
        labels = ("1", " 1", "2", "n/a", "3", "3", "2", "N/a ")
        rows = "".join(f"A\t{label}\n" for label in labels)
        folder = self.write(f"text_a\tlabel\n{rows}")
        with self.assertLogs("absl", "INFO") as logs:
            found = self.data_set().read_target(folder)
        self.assertEqual(found.labels, ("1", "2", "3", "N/a", "n/a"))
        counts, once, alike, numbers = (line.split(":", 2)[2] for line in logs.output)
        self.assertEqual(counts, "5 labels: 1 (2), 2 (2), 3 (2), N/a (1), n/a (1)")
        self.assertEqual(once, "2 labels occur once: 'N/a', 'n/a'.")
        self.assertIn("'N/a' and 'n/a' differ only in blanks or case", alike)
        self.assertIn("3 labels are numbers, and are classes here; `r", numbers)
        with self.assertLogs("absl", "WARNING") as logs:
            self.data_set("--several_labels").read_target(folder)
        self.assertEndsWith(logs.output[-1], "are classes here.")

    def test_labels_that_are_numbers_are_in_their_order(self):
        rows = "".join(f"A\t{label}\n" for label in (10, "n/a", 2, "-1.5", 9))
        found = self.data_set().read_target(self.write(f"text_a\tlabel\n{rows}"))
        self.assertEqual(found.labels, ("-1.5", "2", "9", "10", "n/a"))

    def test_numbers(self):
        found = self.data_set("--regression")
        self.assertEqual(found.read_target("nowhere"), Target(kind=REGRESSION))
        found = self.data_set(
            "--regression", "--labels=valence,arousal", "--label_separator=;"
        )
        target = found.read_target("nowhere")
        self.assertEqual(target.labels, ("valence", "arousal"))
        self.assertEqual(target.encode("1.5;2", "f:1"), [1.5, 2.0])
        self.assertEqual(found.metrics, ("pearson", "spearman"))
        folder = self.write("text_a\tlabel\nA\t1\n")
        with self.assertRaisesRegex(InputError, "train.tsv:2: the label must be 2 num"):
            found.read(folder, "train")

    @parameterized.parameters(
        # What Excel writes in Germany, and columns that may be of either kind.
        (["3,5", "1,234", "-0,25", "7"], [3.5, 1.234, -0.25, 7.0]),
        (["3.5", "1234", ".5", "1e-3"], [3.5, 1234.0, 0.5, 0.001]),
        (["1,234", "2,500"], "1,234"),
        (["3,5", "1.234"], "3,5"),
        (["3,5", "1.234,5"], "3,5"),
        (["1_0"], "1_0"),
        (["\u0661"], "\u0661"),
        (["nan"], "nan"),
        (["infinity"], "infinity"),
    )
    def test_numbers_of_excel(self, cells, expected):
        table = "text_a;label\n" + "".join(f"A;{cell}\n" for cell in cells)
        other = "text_a;x\n" + "".join(f'A;"{cell}"\n' for cell in cells)
        for content, *given in (
            (table,),
            (table.replace(";", "\t"), "--delimiter=tab"),
            (other, "--label_column=1"),
            (other, "--label_column=x,x", "--labels=v,w"),
        ):
            folder = self.write(content, "train.csv")
            found = self.data_set("--regression", "--train_file=train.csv", *given)
            if isinstance(expected, str):
                with self.assertRaisesRegex(InputError, f"number.*{expected}"):
                    found.read(folder, "train")
                continue
            encode = found.read_target(folder).encode
            read = [encode(e.label, e.source) for e in found.read(folder, "train")]
            times = 2 if "--labels=v,w" in given else 1
            self.assertEqual(read, [[number] * times for number in expected])

    def test_a_comma_that_splits_a_number(self):
        found = self.data_set("--regression", "--train_file=train.csv")
        folder = self.write("text_a,label\nA,3,5\nB,4,25\n", "train.csv")
        with self.assertRaisesRegex(InputError, "csv:2: the row has 3 columns, the h"):
            found.read(folder, "train")
        folder = self.write("text_a,label\nA,3,\nB,4,\n", "train.csv")
        labels = [one.label for one in found.read(folder, "train")]
        self.assertEqual(labels, ["3", "4"])

    def test_several_numbers_in_a_cell_have_no_decimal_commas(self):
        found = self.data_set("--regression", "--labels=v,w")
        self.assertFalse(found.tfds.numbers)
        folder = self.write("text_a\tlabel\nA\t3,5\nB\t4,25\n")
        labels = [one.label for one in found.read(folder, "train")]
        self.assertEqual(labels, ["3,5", "4,25"])

    @parameterized.parameters("nan", "NaN", "null", "None", "N/A", "NA")
    def test_what_programs_write_for_a_missing_label_is_no_class(self, word):
        rows = "".join(f"A\t{label}\n" for label in ["x", "y"] * 100)
        folder = self.write(f"text_a\tlabel\n{rows}A\t{word}\nA\t\n")
        with self.assertLogs("absl", "WARNING") as logs:
            found = self.data_set().read_target(folder)
        self.assertEqual(found.labels, ("x", "y"))
        self.assertRegex(logs.output[0], f"left out 2 .*line 202: the label '{word}'")
        several = self.data_set("--several_labels").read_target(folder)
        self.assertEqual(several.labels, ("x", "y"))
        named = self.data_set(f"--labels=x,y,{word}")
        self.assertEqual(named.read(folder, "train")[-1].label, word)
        folder = self.write(f"text_a\tlabel\nA\tx\nB\ty\nC\t{word}\n")
        with self.assertRaisesRegex(InputError, f"tsv:4: the label '{word}'.*`labels`"):
            self.data_set().read_target(folder)

    def test_json_has_null_and_nan_for_a_missing_label(self):
        labels = ['"x"', '"y"'] * 100 + ["NaN", "null"]
        rows = "".join(f'{{"text_a": "A", "label": {label}}}\n' for label in labels)
        folder = self.write(rows, "train.jsonl")
        found = self.data_set("--train_file=train.jsonl")
        self.assertEqual(found.read_target(folder).labels, ("x", "y"))
        self.assertEqual(found.read(folder, "train").num_left_out, 2)
        # Among several labels they are none of them.
        found = self.data_set("--train_file=train.jsonl", "--several_labels")
        labels = [one.label for one in found.read(folder, "train")[-3:]]
        self.assertEqual(labels, ["y", "", ""])

    @parameterized.parameters(
        ("x;y,x,y", "|", "'x;y' .*`label_separator=;`"),
        ("a b,a,b", "|", "'a b' .*`label_separator= `"),
        ("a,b|c", ",", "'b|c' .*`label_separator=|`"),
        ("very good,good,r/x", "|", None),
        ("C++,C,R&B", "|", None),
    )
    def test_a_separator_that_was_forgotten(self, labels, separator, warning):
        rows = "".join(f"A\t{one}\nA\t{one}\n" for one in labels.split(","))
        folder = self.write(f"text_a\tlabel\n{rows}")
        found = self.data_set("--several_labels", f"--label_separator={separator}")
        with self.assertLogs("absl", "INFO") as logs:
            found.read_target(folder)
        said = [line for line in logs.output if "label_separator" in line]
        self.assertLen(said, int(warning is not None))
        if warning is not None:
            self.assertRegex(said[0], warning.replace("|", "[|]"))

    def test_several_labels(self):
        folder = self.write("text_a\tlabel\nA\tred|big\nB\t\nC\tbig\n")
        found = self.data_set("--several_labels", "--label_separator=|")
        target = found.read_target(folder)
        self.assertEqual((target.kind, target.labels), (MULTI_LABEL, ("big", "red")))
        self.assertEqual(
            [target.encode(e.label, e.source) for e in found.read(folder, "train")],
            [[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]],
        )
        self.assertEqual(found.metrics, ("f1_micro", "f1_macro", "exact_match"))

    def test_a_column_for_each_label(self):
        folder = self.write("text_a\ttoxic\tinsult\nA\t0\t1\nB\t1\t1\nC\t0\t0\n")
        columns = "--label_column=toxic,insult"
        found = self.data_set("--several_labels", columns)
        target = found.read_target("nowhere")
        self.assertEqual(
            (target.kind, target.labels), (MULTI_LABEL, ("toxic", "insult"))
        )
        read = found.read(folder, "train")
        self.assertEqual([one.label for one in read], ["insult", "toxic,insult", ""])
        floats = "text_a;toxic;insult\nA;0,0;1,0\nB;1,0;1,0\n"
        excel = self.data_set("--several_labels", columns, "--train_file=x.csv")
        read = excel.read(self.write(floats, "x.csv"), "train")
        self.assertEqual([one.label for one in read], ["insult", "toxic,insult"])
        found = self.data_set("--several_labels", columns, "--labels=x,y")
        self.assertEqual(found.read(folder, "train")[1].label, "x,y")
        found = self.data_set("--regression", columns, "--label_separator=;")
        read = found.read(folder, "train")
        self.assertEqual(found.read_target("").labels, ("toxic", "insult"))
        self.assertEqual([one.label for one in read], ["0;1", "1;1", "0;0"])
        with self.assertRaisesRegex(InputError, "labels` must name the 2 columns"):
            self.data_set("--several_labels", columns, "--labels=x")
        folder = self.write("text_a\ttoxic\tinsult\nA\t0\t2\n")
        with self.assertRaisesRegex(InputError, ":2: column .insult. must be 0"):
            self.data_set("--several_labels", columns).read(folder, "train")

    def test_labels_that_cannot_be(self):
        for labels, reason, *arguments in (
            (["x", "x"], "train.tsv: all rows have .* 'x'"),
            (["x", ""], "train.tsv:3: the label is empty"),
            (["", ""], "all rows have the label ''", "--several_labels"),
        ):
            folder = self.write("text_a\tlabel\nA\t{}\nB\t{}\n".format(*labels))
            with self.assertRaisesRegex(InputError, reason):
                self.data_set(*arguments).read_target(folder)
        for reason, *arguments in (
            ("each once. It has: 'a', 'b', 'a'", "--labels=a,b,a"),
            ("of tsv must be two or more, each once. It has: 'a'", "--labels=a"),
        ):
            with self.assertRaisesRegex(InputError, reason):
                self.data_set(*arguments).target()


class TfdsTest(tf.test.TestCase):
    """What is read from TensorFlow Datasets, by flags; how: see tfds_test.py."""

    def test_glues_sets_have_their_tasks(self):
        for name in ("glue/sst2", "glue/sst2:2.0.0", "glue/sst2/2.0.0"):
            found = data_set(f"--tfds_name={name}", "--tfds_data_dir=there")
            self.assertEqual(found.name, "SST-2")
            self.assertTrue(found.is_from_tfds)
            dev = found.splits["dev"]
            self.assertEqual(
                (dev.of.name, dev.split, dev.of.folder, dev.has_labels),
                (name, "validation", "there", True),
            )
            self.assertFalse(found.splits["test"].has_labels)

    def test_any_other_set(self):
        found = data_set(
            "--tfds_name=imdb_reviews",
            "--tfds_splits=train[:90%],train[90%:],test",
            "--text_a_column=text",
        )
        self.assertEqual(found.name, "imdb_reviews")
        self.assertEqual(
            [found.splits[split].split for split in ("train", "dev", "test")],
            ["train[:90%]", "train[90%:]", "test"],
        )
        self.assertEqual(found.splits["dev"].of.text_a, "text")
