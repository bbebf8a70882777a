import dataclasses
import json
import os

import tensorflow as tf

from bert_tf.finetuning.glue_picture import picture
from bert_tf.finetuning.glue_report import report, write_report
from bert_tf.finetuning.glue_results import (
    TaskResult,
    read_result,
    result_of,
    write_result,
)
from bert_tf.finetuning.records import Record
from bert_tf.finetuning.selection import Selection
from bert_tf.finetuning.settings import Settings
from tests.finetuning.drawn import drawn

PAPER = {
    "Base": {
        "MRPC": {"f1": 88.9},
        "MNLI": {"accuracy": 84.6, "accuracy_mismatched": 83.4},
    }
}


def result(task, scores, metric, restarts=(0.5,)):
    return TaskResult(
        task=task,
        scores=scores,
        metric=metric,
        run="lr5e-05_bs32_ep3_seed1",
        restarts=restarts,
        num_runs=4,
        num_failed=1,
        seconds=3661.0,
    )


RESULTS = [
    # The deviation of 0.9 and 0.8: squares of 0.05 twice, over 1.
    result("MRPC", {"f1": 0.9, "accuracy": 0.85}, "f1", (0.9, 0.8)),
    result("MNLI", {"accuracy": 0.8, "accuracy_mismatched": 0.81}, "accuracy"),
    result("WNLI", {"accuracy": 0.56}, "accuracy"),
]


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


class ReportTest(tf.test.TestCase):
    def test_the_tables_rows(self):
        lines = report(RESULTS, PAPER).splitlines()
        self.assertIn("Ours: the development sets", lines[2])
        self.assertIn("Devlin et al. 2018 (Base): the test sets", lines[2])
        rows = [cells(line) for line in lines if line.startswith("|")]
        self.assertEqual(
            rows[0],
            [
                *("task", "metric", "best, dev", "mean ± sd of restarts", "runs"),
                *("failed", "best settings", "duration", "Base, test"),
            ],
        )
        settings = "rate 5e-05, batch 32, epochs 3"
        self.assertEqual(
            rows[2],
            [
                *("MRPC", "F1 / accuracy", "90.0 / 85.0", "85.0 ± 7.1 (2)", "4", "1"),
                *(settings, "01:01:01", "88.9 / –"),
            ],
        )
        self.assertEqual(
            rows[3][:4], ["MNLI", "accuracy / accuracy (mm)", "80.0 / 81.0", "50.0 (1)"]
        )
        self.assertEqual(rows[4][-1], "–")
        # (0.875 + 0.805) / 2, WNLI left out.
        self.assertEqual(rows[5], ["GLUE's average of 2 tasks", "", "84.0", *[""] * 6])
        # (0.9 + 0.8 + 0.81) / 3 beside (88.9 + 84.6 + 83.4) / 3.
        self.assertEqual(rows[6][0], "the paper's average of 3 of its 9 columns")
        self.assertEqual((rows[6][2], rows[6][-1]), ("83.7", "85.6"))
        self.assertIn("missing: CoLA, SST-2, STS-B, QQP, QNLI, RTE.", lines[-1])

    def test_without_a_task_that_counts(self):
        text = report(RESULTS[2:], PAPER)
        self.assertNotIn("average", text)

    def test_written(self):
        write_report(RESULTS, self.get_temp_dir())
        with open(os.path.join(self.get_temp_dir(), "glue.json")) as file:
            values = json.load(file)
        self.assertAllClose(values["average"], 0.84)
        self.assertEqual(values["average_over"], ["MRPC", "MNLI"])
        self.assertEqual(values["tasks"]["MRPC"]["scores"], RESULTS[0].scores)
        with open(os.path.join(self.get_temp_dir(), "glue.md")) as file:
            text = file.read()
        self.assertEqual(text, report(RESULTS))
        # The paper's own numbers, of its table 1.
        self.assertIn("84.6 / 83.4", text)
        with open(os.path.join(self.get_temp_dir(), "glue.png"), "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")


class PictureTest(tf.test.TestCase):
    def test_says_what_the_bars_are(self):
        texts, content = drawn(lambda: picture(RESULTS, PAPER))
        self.assertContainsSubset(
            {
                *("MRPC\nF1", "MNLI\naccuracy", "MNLI\naccuracy (mm)"),
                *("90.0", "80.0", "81.0", "56.0", "88.9", "84.6"),
                *("ours, development set", "Base of Devlin et al. 2018, test set"),
            },
            texts,
        )
        # MRPC was chosen by F1: its accuracy is no bar.
        self.assertNotIn("85.0", texts)
        self.assertEqual(content, picture(RESULTS, PAPER))
        self.assertNotIn("ours, no run learnt", texts)

    def test_a_task_whose_runs_all_failed_looks_failed(self):
        failed = dataclasses.replace(RESULTS[0], num_failed=RESULTS[0].num_runs)
        texts, _ = drawn(lambda: picture([failed, *RESULTS[1:]], PAPER))
        self.assertContainsSubset({"90.0 failed", "80.0", "ours, no run learnt"}, texts)
        self.assertIn("| 90.0 / 85.0 (failed) |", report([failed], PAPER))


class ResultTest(tf.test.TestCase):
    def test_of_a_selection(self):
        records = [
            Record(
                settings=Settings(rate, 32, 3.0, seed),
                scores={1.0: {"f1": score}},
                seconds=10.0,
            )
            for rate, seed, score in (
                (5e-5, 1, 0.9),
                (5e-5, 2, 0.8),
                (2e-5, 1, 0.85),
                (2e-5, 2, 0.5),
            )
        ]
        selection = Selection(
            metric="f1",
            best=records[0],
            best_folder="",
            records=records,
            baseline=0.6,
        )
        found = result_of("MRPC", selection, {"f1": 0.9, "accuracy": 0.8}, ("test",))
        self.assertEqual(
            found,
            TaskResult(
                task="MRPC",
                scores={"f1": 0.9, "accuracy": 0.8},
                metric="f1",
                run="lr5e-05_bs32_ep3_seed1",
                restarts=(0.9, 0.8),
                num_runs=4,
                num_failed=1,
                seconds=40.0,
                predicted=("test",),
            ),
        )
        write_result(found, self.get_temp_dir())
        self.assertEqual(read_result(self.get_temp_dir()), found)

    def test_none_there_or_damaged(self):
        folder = self.get_temp_dir()
        self.assertIsNone(read_result(os.path.join(folder, "nowhere")))
        path = os.path.join(folder, "result.json")
        write_result(result("MRPC", {"f1": 0.8, "accuracy": 0.75}, "f1"), folder)
        with open(path) as file:
            whole = file.read()
        for damaged in (
            '{"task": "MRPC"}',
            "[]",
            whole.replace('"f1": 0.8', '"f1": "high"'),
            whole.replace('"f1": 0.8', '"f1": Infinity'),
            whole.replace('"f1": 0.8', '"f2": 0.8'),
            whole.replace('"seconds": ', '"seconds": 1%s' % ("0" * 400)),
            "[" * 100_000,
        ):
            self.assertNotEqual(damaged, whole)
            with open(path, "w") as file:
                file.write(damaged)
            with self.assertLogs(level="WARNING"):
                self.assertIsNone(read_result(folder))


if __name__ == "__main__":
    tf.test.main()
