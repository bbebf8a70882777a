import os
import unittest.mock
import zipfile

import pytest
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.tasks import glue, glue_suite
from bert_tf.training import run_folder
from tests.run_classifier_test import TOKENS
from tests.run_classifier_test import rows as texts
from tests.script_case import ScriptCase

# Test sets as small as these are none of GLUE's.
SIZES = {"SST-2": 5, "RTE": 3, "MNLI": 4, "AX": 3}


class RunGlueTestCase(ScriptCase):
    script = glue_suite
    tokens = TOKENS

    def setUp(self):
        super().setUp()
        small = [
            file._replace(num_examples=SIZES.get(file.task_name, file.num_examples))
            for file in glue.TASK_FILES
        ]
        self.enter_context(unittest.mock.patch.object(glue, "TASK_FILES", small))

    def defaults(self):
        return {
            "glue_dir": self.path("glue"),
            "output_dir": self.path("out"),
            "max_seq_length": 12,
            "train_batch_size": 16,
            "learning_rates": "0.01",
            "num_train_epochs": 4,
            "pad": "max",
        }

    def write(self, name, header, rows):
        lines = ("\t".join(row) + "\n" for row in [header, *rows])
        super().write(f"glue/{name}", "".join(lines))

    def write_sst2(self):
        for split, count in (("train", 32), ("dev", 9)):
            rows = [(text, str(1 - side)) for text, side in texts(count, count)]
            self.write(f"SST-2/{split}.tsv", ("sentence", "label"), rows)
        rows = [(str(n), text) for n, (text, _) in enumerate(texts(5, 5))]
        self.write("SST-2/test.tsv", ("index", "sentence"), rows)

    def write_mnli(self):
        words = ("entailment", "contradiction")
        for split, count in (
            *(("train", 32), ("dev_matched", 6), ("dev_mismatched", 8)),
            *(("test_matched", 4), ("test_mismatched", 4)),
        ):
            rows = [
                (*[str(n)] * 8, text, "w1 w2", words[side])
                for n, (text, side) in enumerate(texts(count, count))
            ]
            header = (*"abcdefgh", "sentence1", "sentence2", "gold_label")
            if split.startswith("test"):
                header, rows = header[:-1], [row[:-1] for row in rows]
            self.write(f"MNLI/{split}.tsv", header, rows)
        rows = [(str(n), text, "w3") for n, (text, _) in enumerate(texts(3, 3))]
        header = ("index", "sentence1", "sentence2")
        self.write("diagnostic/diagnostic.tsv", header, rows)

    def write_rte(self):
        header = ("index", "sentence1", "sentence2", "label")
        names = ("entailment", "not_entailment")
        for split, count in (("train", 24), ("dev", 7), ("test", 3)):
            rows = [
                (str(n), text, "w1 w2", names[side])
                for n, (text, side) in enumerate(texts(count, count))
            ]
            cells = 3 if split == "test" else 4
            rows = [row[:cells] for row in rows]
            self.write(f"RTE/{split}.tsv", header[:cells], rows)

    def read(self, *names):
        return super().read("out", *names)


class RunGlueTest(RunGlueTestCase):
    @pytest.mark.slow
    def test_the_whole_table(self):
        self.write_sst2()
        self.write_mnli()
        with self.assertLogs(level="INFO") as logs:
            returned = self.run_script("--noplots", "--class_weights=balanced")
        log = "\n".join(logs.output)
        self.assertIn("CoLA is left out: no folder", log)
        self.assertIn("GLUE: MNLI, SST-2, AX", log)
        self.assertRegex(log, r"run 1 of 1: lr0.01_bs16_ep4_seed12345 -> accuracy")
        table = self.read_json("glue.json")
        self.assertEqual(list(table["tasks"]), ["SST-2", "MNLI"])
        self.assertEqual(table["average_over"], ["SST-2", "MNLI"])
        scores = table["tasks"]["MNLI"]["scores"]
        for metric in ("accuracy", "accuracy_mismatched"):
            self.assertEqual(returned.scores[f"MNLI/{metric}"], scores[metric])
        for task, split, metric in (
            ("SST-2", "dev", "accuracy"),
            ("MNLI", "dev", "accuracy"),
            ("MNLI", "dev_mismatched", "accuracy_mismatched"),
        ):
            result = table["tasks"][task]
            best = self.read_json(task, "best", "best.json")
            self.assertEqual(best["run"], result["run"])
            self.assertAllClose(best["value"], result["scores"]["accuracy"])
            rows = self.read(task, f"{split}_predictions.tsv").splitlines()[1:]
            right = [row.split("\t")[3] for row in rows]
            self.assertAllClose(right.count("1") / len(right), result["scores"][metric])
        self.assertEqual(
            table["tasks"]["MNLI"]["predicted"], ["test", "test_mismatched"]
        )
        self.assertIn("| SST-2", self.read("glue.md"))
        with zipfile.ZipFile(self.path("out", "glue_submission.zip")) as archive:
            self.assertEqual(
                archive.namelist(), ["SST-2.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"]
            )
            lines = archive.read("AX.tsv").decode().splitlines()
        self.assertEqual((lines[0], len(lines)), ("index\tprediction", 4))

        # Again: nothing is trained or scored. SST-2 has other test examples, which are
        # predicted; MNLI's are not again.
        before = self.read("glue.md")
        path = self.path("out", "MNLI", "test_predictions.tsv")
        written = os.stat(path).st_mtime_ns
        rows = [(str(n), text) for n, (text, _) in enumerate(texts(5, 6))]
        self.write("SST-2/test.tsv", ("index", "sentence"), rows)
        with self.assertLogs(level="INFO") as logs:
            self.run_script("--noplots", "--class_weights=balanced")
        self.assertIn("1 of 1 runs are made already", "\n".join(logs.output))
        self.assertEqual(self.read("glue.md"), before)
        predictions = self.read("SST-2", "test_predictions.tsv")
        for _, text in rows:
            self.assertIn(text, predictions)
        self.assertEqual(os.stat(path).st_mtime_ns, written)

    @pytest.mark.slow
    def test_two_stages(self):
        self.write_mnli()
        self.write_rte()
        options = {"num_train_epochs": 2, "eval_steps": 1}
        with self.assertLogs(level="INFO") as logs:
            self.run_script(
                "--two_stage", "--nodo_predict", tasks="RTE,MNLI", **options
            )
        log = "\n".join(logs.output)
        best = self.path("out", "MNLI", "best")
        self.assertRegex(log, f"Initialized .* from {best}")
        self.assertIn("so new: output_weights, output_bias", log.split(best)[-1])
        # The best of the evaluations on the way.
        run = "lr0.01_bs16_ep2_seed12345"
        lines = self.read_json_lines("MNLI", "runs", run, "metrics.jsonl")
        on_the_way = [
            line["eval/accuracy"] for line in lines if "eval/accuracy" in line
        ]
        self.assertLen(on_the_way, 4)
        table = self.read_json("glue.json")["tasks"]["MNLI"]
        self.assertAllClose(table["scores"]["accuracy"], max(on_the_way))
        # RTE's runs are others without the first stage.
        with self.assertRaisesRegex(
            InputError, "init_checkpoint is .*MNLI/best .* there"
        ):
            self.run_script("--nodo_predict", tasks="RTE", **options)


class RefusalTest(RunGlueTestCase):
    def test_before_anything_is_trained(self):
        self.write_sst2()
        self.write_rte()
        for options, message in (
            ({"tasks": "RTF"}, "RTF: no such task.* Did you mean RTE"),
            ({"tasks": "XNLI"}, "XNLI is none of GLUE's"),
            ({"tasks": "sst2,MRPC"}, "MRPC: no file .*glue/MRPC/train.tsv"),
            ({"tasks": "RTE", "two_stage": True}, "add MNLI to `tasks`"),
            ({"class_weights": "entailment:2"}, "one of the labels 0, 1 and"),
            ({"glue_dir": self.path("nowhere")}, "no such folder: .*nowhere"),
            ({"glue_dir": self.path("glue", "RTE")}, "has none of GLUE's folders"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script(**options)
        os.remove(self.path("glue", "RTE", "test.tsv"))
        with self.assertRaisesRegex(InputError, "RTE: no file .*RTE/test.tsv"):
            self.run_script()
        # A wrong label in the last task is found before the first one is trained.
        header = ("index", "sentence1", "sentence2", "label")
        self.write("RTE/dev.tsv", header, [("0", "w1", "w2", "perhaps")])
        with self.assertRaisesRegex(InputError, "RTE/dev.tsv"):
            self.run_script("--nodo_predict")
        # So is a test set that GLUE's server would refuse.
        self.write_rte()
        self.write("RTE/test.tsv", header[:3], [("0", "w1", "w2")])
        message = "RTE/test.tsv: 1 examples; the test set of RTE has 3,"
        with self.assertRaisesRegex(InputError, message):
            self.run_script()
        # So is what a task's loss cannot have.
        for split in ("train", "dev", "test"):
            self.write(f"STS-B/{split}.tsv", header, [])
        options = {"tasks": "STS-B", "class_weights": "balanced"}
        with self.assertRaisesRegex(InputError, "STS-B does not choose one class"):
            self.run_script(**options)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_a_task_that_another_command_trains(self):
        self.write_rte()
        strategy = tf.distribute.get_strategy()
        with (
            run_folder.held_for_training(self.path("out", "RTE"), strategy),
            self.assertRaisesRegex(InputError, "RTE: another run is training in this"),
        ):
            self.run_script(tasks="RTE")
        self.assertFalse(os.path.exists(self.path("out", "RTE", "selection.jsonl")))
