import os
import unittest.mock
import zipfile

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.finetuning import submission

# The two that are small enough to write by hand.
WNLI = ["0", "1"] * 73
SCORES = ["2.5"] * 1379


class SubmissionTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.get_temp_dir(), "submission")
        self.zip = os.path.join(self.get_temp_dir(), "glue.zip")

    def content(self, name):
        with open(
            os.path.join(self.folder, name), encoding="utf-8", newline=""
        ) as file:
            return file.read()

    def test_the_files_of_a_whole_submission(self):
        # `wc -l` of a submission that the server took, less the headers.
        expected = {
            "AX.tsv": 1104, "CoLA.tsv": 1063, "MNLI-mm.tsv": 9847, "MNLI-m.tsv": 9796,
            "MRPC.tsv": 1725, "QNLI.tsv": 5463, "QQP.tsv": 390965, "RTE.tsv": 3000,
            "SST-2.tsv": 1821, "STS-B.tsv": 1379, "WNLI.tsv": 146,
        }  # fmt: skip
        submission.write_task_file(self.folder, "WNLI", "test", WNLI)
        submission.write_submission(self.folder, self.zip, fill_missing=True)
        with zipfile.ZipFile(self.zip) as archive:
            tables = {
                name: archive.read(name).decode().splitlines()
                for name in archive.namelist()
            }
        self.assertEqual(
            {name: len(rows) - 1 for name, rows in tables.items()}, expected
        )
        self.assertEqual({rows[0] for rows in tables.values()}, {"index\tprediction"})
        words = {
            name: {row.split("\t")[1] for row in rows[1:]}
            for name, rows in tables.items()
        }
        self.assertEqual(words["WNLI.tsv"], {"0", "1"})
        self.assertEqual(words["CoLA.tsv"], {"0"})
        self.assertEqual(words["RTE.tsv"], {"entailment"})
        self.assertEqual(words["AX.tsv"], {"contradiction"})
        # A constant would have no correlation.
        self.assertEqual(words["STS-B.tsv"], {"0.000", "5.000"})

    def test_which_split_is_which_file(self):
        def name(task_name, split):
            file = submission.task_file(task_name, split)
            return file and file.file_name

        self.assertEqual(name("mnli", "test"), "MNLI-m.tsv")
        self.assertEqual(name("MNLI", "test_mismatched"), "MNLI-mm.tsv")
        self.assertEqual(name("sst-2", "test"), "SST-2.tsv")
        self.assertIsNone(name("RTE", "dev"))
        self.assertIsNone(name("XNLI", "test"))
        self.assertIsNone(submission.write_task_file(self.folder, "tsv", "test", ["0"]))
        self.assertFalse(os.path.exists(self.folder))

    def test_words(self):
        path = submission.write_task_file(
            self.folder, "RTE", "test", ["not_entailment", "entailment"]
        )
        self.assertEqual(path, os.path.join(self.folder, "RTE.tsv"))
        self.assertEqual(
            self.content("RTE.tsv"),
            "index\tprediction\n0\tnot_entailment\n1\tentailment\n",
        )
        with self.assertRaisesRegex(ValueError, "RTE predicts .*not_ent.*: 'neutral'"):
            submission.write_task_file(self.folder, "RTE", "test", ["neutral"])

    def test_scores_are_within_0_and_5(self):
        submission.write_task_file(
            self.folder, "STS-B", "test", ["5.204", "-0.113", "3.14159", "-0.0"]
        )
        self.assertEqual(
            self.content("STS-B.tsv"),
            "index\tprediction\n0\t5.000\n1\t0.000\n2\t3.142\n3\t0.000\n",
        )
        with self.assertRaisesRegex(ValueError, "STS-B predicts numbers.*'nan'"):
            submission.write_task_file(self.folder, "STS-B", "test", ["nan"])

    def test_missing_tasks_are_said_and_not_filled(self):
        submission.write_task_file(self.folder, "WNLI", "test", WNLI)
        submission.write_task_file(self.folder, "STS-B", "test", SCORES)
        with self.assertLogs(level="WARNING") as log:
            missing = submission.write_submission(self.folder, self.zip)
        self.assertLen(log.output, 9)
        self.assertLen(missing, 9)
        self.assertIn("CoLA, CoLA.tsv is missing", log.output[0])
        with zipfile.ZipFile(self.zip) as archive:
            self.assertEqual(archive.namelist(), ["STS-B.tsv", "WNLI.tsv"])
            self.assertEqual(
                archive.read("WNLI.tsv").decode(), self.content("WNLI.tsv")
            )

    def test_what_stands_in_for_a_task_is_said(self):
        submission.write_task_file(self.folder, "WNLI", "test", WNLI)
        with self.assertLogs(level="WARNING") as log:
            missing = submission.write_submission(
                self.folder, self.zip, fill_missing=True
            )
        self.assertLen(missing, 10)
        self.assertLen([line for line in log.output if "placeholder" in line], 10)

    def test_the_same_predictions_give_the_same_bytes(self):
        submission.write_task_file(self.folder, "WNLI", "test", WNLI)
        submission.write_submission(self.folder, self.zip)
        with open(self.zip, "rb") as file:
            first = file.read()
        with unittest.mock.patch("time.time", return_value=2e9):
            submission.write_submission(self.folder, self.zip)
        with open(self.zip, "rb") as file:
            self.assertEqual(file.read(), first)

    def test_part_of_a_test_set_is_said_and_not_packed(self):
        with self.assertLogs(level="WARNING") as log:
            submission.write_task_file(self.folder, "WNLI", "test", WNLI[:100])
        self.assertIn("100 predictions; GLUE's test set has 146", log.output[0])
        with self.assertRaisesRegex(InputError, "WNLI.tsv: 100 predictions; .* 146"):
            submission.write_submission(self.folder, self.zip)
        self.assertFalse(os.path.exists(self.zip))

    def test_a_row_that_the_server_would_refuse_is_named(self):
        submission.write_task_file(self.folder, "WNLI", "test", WNLI)
        submission.write_task_file(self.folder, "STS-B", "test", SCORES)
        for name, good, bad, message in (
            ("WNLI.tsv", "index\tprediction\n", "id\tlabel\n", "WNLI.tsv:1: .*header"),
            ("WNLI.tsv", "\n7\t1\n", "\n8\t1\n", r"WNLI.tsv:9: .*Found: '8\\t1'"),
            ("WNLI.tsv", "\n7\t1\n", "\n7\t2\n", r"WNLI.tsv:9: must be 7<tab>0\|1"),
            ("STS-B.tsv", "\n7\t2.500\n", "\n7\t5.5\n", "STS-B.tsv:9: .*from 0 to 5"),
            ("STS-B.tsv", "\n7\t2.500\n", "\n7\tnan\n", "STS-B.tsv:9: .*from 0 to 5"),
            ("STS-B.tsv", "\n7\t2.500\n", "\n7\n", "STS-B.tsv:9: .*from 0 to 5"),
        ):
            content = self.content(name)
            self.assertIn(good, content)
            path = os.path.join(self.folder, name)
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(content.replace(good, bad))
            with self.assertRaisesRegex(InputError, message):
                submission.write_submission(self.folder, self.zip)
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(content)

    def test_nothing_was_predicted(self):
        with self.assertRaisesRegex(InputError, "no predictions of GLUE's test sets"):
            submission.write_submission(self.folder, self.zip, fill_missing=True)


if __name__ == "__main__":
    tf.test.main()
