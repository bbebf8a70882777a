import functools
import os
import pathlib
import shutil
import tempfile

import numpy as np
import tensorflow as tf

from bert_tf.base.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.conversion.tokenizer_files import write_labels
from bert_tf.tasks import reports
from bert_tf.tasks.reports import mistakes
from bert_tf.tasks.tables import Example, Target
from tests.drawn import drawn
from tests.script_case import FolderCase, read_tsv

NLI = Target(kind=SINGLE_LABEL, labels=("no", "yes"))
SCORE = Target(kind=REGRESSION)
SCORES = Target(kind=REGRESSION, labels=("valence", "arousal"))
TOPICS = Target(kind=MULTI_LABEL, labels=("a", "b", "c"))
# log 3 against 0 is 3 : 1, log 9 is 9 : 1.
LOG_3, LOG_9 = np.log(3.0), np.log(9.0)


def examples_of(*labels, texts=("A.", "B.")):
    return [
        Example(texts[0], texts[1], label, f"dev.tsv:{number}")
        for number, label in enumerate(labels, start=2)
    ]


class TableTest(FolderCase):
    def written(self, examples, target, logits, **kwargs):
        path = self.path("predictions.tsv")
        reports.write_predictions(path, examples, target, np.array(logits), **kwargs)
        return pathlib.Path(path).read_bytes().decode()

    def test_each_kind_of_prediction(self):
        several = [[LOG_3, -LOG_3, LOG_9], [LOG_3, LOG_3, -LOG_3]]
        several += [[-LOG_9, -LOG_9, -LOG_9], [-LOG_9, -LOG_9, LOG_9]]
        for examples, target, logits, columns, *expected in (
            (
                examples_of("yes", "yes", None),
                NLI,
                [[0, LOG_3], [LOG_9, 0], [0, LOG_9]],
                "correct\tp_no\tp_yes",
                "0\tyes\tyes\t1\t0.250000\t0.750000\tA.\tB.",
                "1\tyes\tno\t0\t0.900000\t0.100000\tA.\tB.",
                "2\t\tyes\t\t0.100000\t0.900000\tA.\tB.",
            ),
            (
                examples_of("a,c", "a", "", None),
                TOPICS,
                several,
                "correct\tp_a\tp_b\tp_c",
                "0\ta,c\ta,c\t1\t0.750000\t0.250000\t0.900000\tA.\tB.",
                "1\ta\ta,b\t0\t0.750000\t0.750000\t0.250000\tA.\tB.",
                "2\t\t\t1\t0.100000\t0.100000\t0.100000\tA.\tB.",
                "3\t\tc\t\t0.100000\t0.100000\t0.900000\tA.\tB.",
            ),
            (
                *(examples_of("4.5", None, texts=("A.", None)), SCORE, [[4.25], [1]]),
                *("error", "0\t4.5\t4.250\t-0.250\tA.\t", "1\t\t1.000\t\tA.\t"),
            ),
            (
                *(examples_of("1,2"), SCORES, [[1.5, 0]], "error"),
                "0\t1,2\t1.500,0.000\t0.500,-2.000\tA.\tB.",
            ),
        ):
            header = f"index\tlabel\tprediction\t{columns}\ttext_a\ttext_b"
            text = "\n".join([header, *expected, ""])
            self.assertEqual(self.written(examples, target, logits), text)

    def test_any_text_is_a_line(self):
        texts = ('a "quoted\ttab', "back\\slash, \\t\nline\r\n\u2028end\x0b\x85\\")
        text = self.written(examples_of("no", texts=texts), NLI, [[1, 0]])
        self.assertEqual(text.count("\n"), 2)
        (row,) = read_tsv(self.path("predictions.tsv"))
        escaped = "back\\\\slash, \\\\t\\nline\\r\\n\u2028end\x0b\x85\\\\"
        self.assertEqual((row["text_a"], row["text_b"]), ('a "quoted\\ttab', escaped))


class OrderTest(FolderCase):
    def test_a_run_and_a_trained_head_keep_the_order_that_they_have(self):
        ours, letters = ("2", "10"), ("10", "2")
        run = self.path("run [1]")
        kept = functools.partial(reports.kept_order, ours, run)
        self.assertEqual(kept(None), ours)
        self.assertEqual(kept(letters), letters)
        self.assertEqual(kept(("10", "3")), ours)
        for name in ("", "best", "runs/a"):
            folder = os.path.join(run, name)
            os.makedirs(folder)
            write_labels(folder, letters, SINGLE_LABEL)
            self.assertEqual(kept(None), letters)
            shutil.rmtree(run)

    def test_the_order_is_said(self):
        with self.assertLogs("absl", "INFO") as logs:
            reports.write_probabilities(self.path("x"), NLI, np.zeros([1, 2]))
        self.assertIn("columns are, as in labels.txt: no, yes.", logs.output[0])


class MistakesTest(tf.test.TestCase):
    def test_the_surest_first(self):
        # P(predicted): wrong 0.75, right, wrong 0.9, unknown, wrong 0.75.
        logits = [[LOG_3, 0], [0, 5], [0, LOG_9], [9, 0], [0, LOG_3]]
        classes = (examples_of("yes", "yes", "no", None, "no"), NLI, np.array(logits))
        self.assertEqual(mistakes(*classes, 9), [2, 0, 4])
        self.assertEqual(mistakes(*classes, 2), [2, 0])
        # Of several labels the surest wrong decision counts: all right; b with 0.75,
        # wrongly; a missed, at 0.1.
        logits = np.array([[9, -9, -9], [9, LOG_3, -9], [-LOG_9, -9, -9]])
        self.assertEqual(
            mistakes(examples_of("a", "a", "a"), TOPICS, logits, 9), [2, 1]
        )
        # Numbers by how far off they are.
        numbers = examples_of("1", "2", None, "3", "4")
        logits = np.array([[1.5], [0], [9], [3], [5]])
        self.assertEqual(mistakes(numbers, SCORE, logits, 9), [1, 4, 0])
        for target in (NLI, TOPICS):
            logits = np.zeros([1, target.num_outputs])
            self.assertEqual(mistakes(examples_of(None), target, logits, 9), [])


class ReportsTest(tf.test.TestCase):
    def written(self, target, labels, logits, **kwargs):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        examples = [
            Example(f"Text {number}.", None, label, f"dev.tsv:{number}")
            for number, label in enumerate(labels)
        ]
        logits = np.array(logits)
        paths = reports.write_reports(folder, "dev", examples, target, logits, **kwargs)
        names = [os.path.basename(path) for path in paths]
        self.assertEqual(sorted(names), sorted(os.listdir(folder)))
        return folder, names

    def test_which_files_there_are(self):
        tables = ["dev_predictions.tsv", "dev_mistakes.tsv"]
        pictures = ["dev_confusion.png", "dev_calibration.png"]
        two = Target(kind=MULTI_LABEL, labels=("a", "b"))
        wrong = [[0, 1], [1, 0]]
        for arguments, options, expected in (
            ((NLI, ["no", "no"], wrong), {}, tables + pictures),
            ((two, ["a,b", ""], [[1, 1], [1, -1]]), {}, tables + pictures),
            ((SCORE, ["1", None], [[1.5], [2]]), {}, tables),
            ((NLI, [None, None], wrong), {}, tables[:1]),
            ((NLI, ["no"] * 2, wrong), {"plots": False, "num_mistakes": 0}, tables[:1]),
        ):
            self.assertEqual(self.written(*arguments, **options)[1], expected)
        wrong = [[0, 1], [1, 0], [0, 2]]
        folder, _ = self.written(NLI, ["no"] * 3, wrong, num_mistakes=1, plots=False)
        (worst,) = read_tsv(os.path.join(folder, "dev_mistakes.tsv"))
        self.assertEqual((worst["index"], worst["text_a"]), ("2", "Text 2."))

    def test_pictures_name_the_task_and_its_classes(self):
        target = Target(kind=SINGLE_LABEL, labels=("0", "1"))
        folders = []
        options = {"task_name": "CoLA"}
        options["class_names"] = {"0": "unacceptable", "1": "acceptable"}

        def draw():
            logits = [[0, 1], [1, 0]]
            folders.append(self.written(target, ["0", "1"], logits, **options)[0])
            return pathlib.Path(folders[0], "dev_confusion.png").read_bytes()

        texts, _ = drawn(draw)
        self.assertContainsSubset(
            ["CoLA, dev: 2 examples", "unacceptable (0)", "acceptable (1)"], texts
        )
        # The table keeps the labels of the data.
        rows = read_tsv(os.path.join(folders[0], "dev_predictions.tsv"))
        self.assertEqual([row["prediction"] for row in rows], ["1", "0"])
