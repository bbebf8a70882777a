import dataclasses
import json
import os
import pathlib
import unittest.mock
import zipfile

import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.tasks import glue, glue_suite
from bert_tf.tasks.glue_suite import (
    TaskResult,
    picture,
    read_results,
    report,
    result_of,
    write_report,
)
from bert_tf.tasks.run_log import RunRecord
from bert_tf.tasks.run_options import RunSetting
from bert_tf.tasks.selection import Selection
from tests.drawn import drawn

WNLI = ["0", "1"] * 73


class SubmissionTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.get_temp_dir(), "submission")
        self.zip = os.path.join(self.get_temp_dir(), "glue.zip")

    def test_the_files_of_a_whole_submission(self):
        # `wc -l` of a submission that the server took, less the headers.
        expected = {
            "AX.tsv": 1104, "CoLA.tsv": 1063, "MNLI-mm.tsv": 9847, "MNLI-m.tsv": 9796,
            "MRPC.tsv": 1725, "QNLI.tsv": 5463, "QQP.tsv": 390965, "RTE.tsv": 3000,
            "SST-2.tsv": 1821, "STS-B.tsv": 1379, "WNLI.tsv": 146,
        }  # fmt: skip
        glue.write_task_file(self.folder, "WNLI", "test", WNLI)
        with self.assertLogs(level="WARNING") as log:
            glue.write_submission(self.folder, self.zip, fill_missing=True)
        self.assertLen([line for line in log.output if "placeholder" in line], 10)
        with zipfile.ZipFile(self.zip) as archive:
            tables = {
                name: archive.read(name).decode().splitlines()
                for name in archive.namelist()
            }
        lengths = {name: len(rows) - 1 for name, rows in tables.items()}
        self.assertEqual(lengths, expected)
        self.assertEqual({rows[0] for rows in tables.values()}, {"index\tprediction"})
        for name, words in (
            ("WNLI", {"0", "1"}),
            ("CoLA", {"0"}),
            ("RTE", {"entailment"}),
            ("AX", {"contradiction"}),
            # A constant would have no correlation.
            ("STS-B", {"0.000", "5.000"}),
        ):
            rows = tables[f"{name}.tsv"][1:]
            self.assertEqual({row.split("\t")[1] for row in rows}, words)

    def test_which_split_is_which_file(self):
        for task_name, split, expected in (
            ("mnli", "test", "MNLI-m.tsv"),
            ("MNLI", "test_mismatched", "MNLI-mm.tsv"),
            ("sst-2", "test", "SST-2.tsv"),
            ("RTE", "dev", None),
            ("XNLI", "test", None),
        ):
            file = glue.task_file(task_name, split)
            self.assertEqual(file and file.file_name, expected)
        glue.write_task_file(self.folder, "tsv", "test", ["0"])
        self.assertFalse(os.path.exists(self.folder))

    def test_scores_are_within_0_and_5(self):
        scores = ["5.204", "-0.113", "3.14159", "-0.0"]
        glue.write_task_file(self.folder, "STS-B", "test", scores)
        content = pathlib.Path(self.folder, "STS-B.tsv").read_bytes().decode()
        expected = "index\tprediction\n0\t5.000\n1\t0.000\n2\t3.142\n3\t0.000\n"
        self.assertEqual(content, expected)

    def test_missing_tasks_are_said_and_not_filled_and_bytes_are_the_same(self):
        glue.write_task_file(self.folder, "WNLI", "test", WNLI)
        glue.write_task_file(self.folder, "STS-B", "test", ["2.5"] * 1379)
        with self.assertLogs(level="WARNING") as log:
            missing = glue.write_submission(self.folder, self.zip)
        self.assertLen(log.output, 9)
        self.assertLen(missing, 9)
        self.assertIn("CoLA.tsv is missing", log.output[0])
        with zipfile.ZipFile(self.zip) as archive:
            self.assertEqual(archive.namelist(), ["STS-B.tsv", "WNLI.tsv"])
            written = pathlib.Path(self.folder, "WNLI.tsv").read_bytes()
            self.assertEqual(archive.read("WNLI.tsv"), written)
        first = pathlib.Path(self.zip).read_bytes()
        with unittest.mock.patch("time.time", return_value=2e9):
            glue.write_submission(self.folder, self.zip)
        self.assertEqual(pathlib.Path(self.zip).read_bytes(), first)

    def test_part_of_a_test_set_is_said_and_not_packed(self):
        with self.assertLogs(level="WARNING") as log:
            glue.write_task_file(self.folder, "WNLI", "test", WNLI[:100])
        self.assertIn("100 predictions; GLUE's test set has 146", log.output[0])
        with self.assertRaisesRegex(InputError, "WNLI.tsv: 100 predictions; .* 146"):
            glue.write_submission(self.folder, self.zip)
        self.assertFalse(os.path.exists(self.zip))


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


@unittest.mock.patch.object(glue_suite, "PAPER", PAPER)
class ReportTest(tf.test.TestCase):
    def test_the_tables_rows(self):
        lines = report(RESULTS).splitlines()
        self.assertIn("Ours: scores on the development sets", lines[2])
        self.assertIn("Devlin et al. 2018 (Base): scores on the test sets", lines[2])
        rows = [cells(line) for line in lines if line.startswith("|")]
        expected = "task | metric | best, dev | mean ± sd of restarts | runs"
        expected += " | failed | best settings | duration | Base, test"
        self.assertEqual(rows[0], cells(expected))
        expected = "MRPC | F1 / accuracy | 90.0 / 85.0 | 85.0 ± 7.1 (2) | 4 | 1"
        expected += " | rate 5e-05, batch 32, epochs 3 | 01:01:01 | 88.9 / –"
        self.assertEqual(rows[2], cells(expected))
        expected = "MNLI | accuracy / accuracy (mm) | 80.0 / 81.0 | 50.0 (1)"
        self.assertEqual(rows[3][:4], cells(expected))
        self.assertEqual(rows[4][-1], "–")
        # (0.875 + 0.805) / 2, WNLI left out.
        self.assertEqual(rows[5], ["GLUE's average of 2 tasks", "", "84.0", *[""] * 6])
        # (0.9 + 0.8 + 0.81) / 3 beside (88.9 + 84.6 + 83.4) / 3.
        self.assertEqual(rows[6][0], "the paper's average of 3 of its 9 columns")
        self.assertEqual((rows[6][2], rows[6][-1]), ("83.7", "85.6"))
        self.assertIn("missing: CoLA, SST-2, STS-B, QQP, QNLI, RTE.", lines[-1])

        # Without a task that counts.
        self.assertNotIn("average", report(RESULTS[2:]))

    def test_written_and_read(self):
        folder = self.get_temp_dir()
        self.assertEqual(read_results(folder), {})
        # In GLUE's order, whatever the order of the runs.
        write_report({one.task: one for one in reversed(RESULTS)}, folder)
        table = pathlib.Path(folder, "glue.json")
        whole = table.read_text()
        values = json.loads(whole)
        self.assertAllClose(values["average"], 0.84)
        self.assertEqual(values["average_over"], ["MRPC", "MNLI"])
        text = pathlib.Path(folder, "glue.md").read_text("utf-8")
        self.assertEqual(text, report(RESULTS))
        image = pathlib.Path(folder, "glue.png").read_bytes()
        self.assertStartsWith(image, b"\x89PNG")
        self.assertEqual(read_results(folder), {one.task: one for one in RESULTS})
        for damaged in (
            '{"tasks": {"MRPC": {"task": "MRPC"}}}',
            "[]",
            whole.replace('"f1": 0.9', '"f1": "high"'),
            whole.replace('"f1": 0.9', '"f1": Infinity'),
            whole.replace('"f1": 0.9', '"f2": 0.9'),
            "[" * 100_000,
        ):
            self.assertNotEqual(damaged, whole)
            table.write_text(damaged)
            with self.assertLogs(level="WARNING"):
                self.assertEqual(read_results(folder), {})


@unittest.mock.patch.object(glue_suite, "PAPER", PAPER)
class PictureTest(tf.test.TestCase):
    def test_says_what_the_bars_are(self):
        texts, content = drawn(lambda: picture(RESULTS))
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
        self.assertEqual(content, picture(RESULTS))

    def test_a_task_whose_runs_all_failed_looks_failed(self):
        failed = dataclasses.replace(RESULTS[0], num_failed=RESULTS[0].num_runs)
        texts, _ = drawn(lambda: picture([failed, *RESULTS[1:]]))
        self.assertContainsSubset({"MRPC, failed\nF1", "MNLI\naccuracy"}, texts)
        self.assertIn("| 90.0 / 85.0 (failed) |", report([failed]))


class ResultTest(tf.test.TestCase):
    def test_of_a_selection(self):
        records = [
            RunRecord(
                settings=RunSetting(rate, 32, 3.0, seed),
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
            metric="f1", best=records[0], records=records, baseline=0.6
        )
        scores = {"f1": 0.9, "accuracy": 0.8}
        found = result_of("MRPC", selection, scores, ("test",))
        expected = result("MRPC", scores, "f1", (0.9, 0.8))
        expected = dataclasses.replace(expected, seconds=40.0, predicted=("test",))
        self.assertEqual(found, expected)
