import csv
import dataclasses
import importlib
import json
import os
import pathlib
import shlex
import shutil

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import run_classifier
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.export import completed, write_huggingface, write_tf1
from bert_tf.conversion.loading import load_classifier, load_weights
from bert_tf.conversion.source import open_source
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.modeling.weight_names import STANDARDIZATION, weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.checkpoints import prefix_of, remove_checkpoint, tensor_key
from tests.conversion import runs
from tests.script_case import ScriptCase, read_tsv
from tests.training import toy

# good and bad decide the label; the rest is noise.
WORDS = ["good", "bad", *(f"w{number}" for number in range(20))]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def rows(count, seed):
    rng = np.random.default_rng(seed)
    for number in range(count):
        words = [WORDS[number % 2], *rng.choice(WORDS[2:], 4)]
        rng.shuffle(words)
        yield " ".join(words), number % 2


class RunClassifierTestCase(ScriptCase):
    script = run_classifier
    tokens = TOKENS

    def setUp(self):
        super().setUp()
        os.makedirs(self.path("data"), exist_ok=True)

    def defaults(self):
        return {
            "task_name": "tsv",
            "data_dir": self.path("data"),
            "max_seq_length": 10,
            "train_batch_size": 16,
            "plots": False,
        }

    def write(self, name, lines):
        super().write(f"data/{name}", "".join("\t".join(x) + "\n" for x in lines))

    def write_tsv(self, train=64, label=lambda number: ("pos", "neg")[number]):
        for split, count in (("train", train), ("dev", 21), ("test", 13)):
            labelled = [(text, label(side)) for text, side in rows(count, seed=count)]
            self.write(f"{split}.tsv", [("text_a", "label"), *labelled])

    def table(self, *names):
        """The rows of a file of numbers with tabs between."""
        return np.loadtxt(self.path(*names), np.float32, delimiter="\t", ndmin=2)

    def pretrained(self):
        """A pre-training checkpoint's folder."""
        folder = self.path("pretraining")
        toy.save_checkpoint(folder, BertPretrainer(toy.CONFIG), 1, 1)
        return folder

    def assert_trains_nothing_and_writes_the_same(self, *arguments, **options):
        """Of a command that has been run: the same once more."""
        before = self.written()
        with self.training_nothing():
            self.run_script(*arguments, **options)
        self.assertEqual(self.written(), before)

    def written(self):
        """What is written for people, without metrics.jsonl: path -> content."""
        return {
            str(path): path.read_bytes()
            for path in pathlib.Path(self.path("run")).rglob("*.*")
            if path.suffix in (".tsv", ".txt", ".png", ".jsonl", ".json")
            and path.name not in ("metrics.jsonl", "flags.json")
        }


class TsvTest(RunClassifierTestCase):
    def test_trains_evaluates_and_predicts(self):
        self.write_tsv()
        options = {"num_train_epochs": 30, "learning_rate": 0.01}
        returned = self.run_script("--do_train", "--do_eval", "--do_predict", **options)
        results = self.results()
        self.assertEqual(returned.output_dir, self.path("run"))
        self.assertAllClose(returned.scores["accuracy"], results["eval_accuracy"])
        self.assertAllClose(returned.scores["majority"], results["eval_majority"])
        self.assertEqual(
            list(results),
            ["eval_accuracy", "eval_loss", "eval_majority", "global_step", "loss"],
        )
        self.assertAlmostEqual(results["eval_majority"], 11 / 21, places=6)
        # int(64 / 16 * 30) steps; a word that decides the label is learnt.
        self.assertEqual(results["global_step"], 120)
        self.assertGreater(results["eval_accuracy"], 0.9)
        probabilities = self.table("run", "test_results.tsv")
        self.assertLen(probabilities, 13)
        self.assertAllClose(probabilities.sum(axis=1), np.ones(13))
        # Columns in the order of the labels: neg, pos; "good" is row 0, 2, 4, ...
        self.assertAllEqual(
            probabilities.argmax(axis=1), [1 - number % 2 for number in range(13)]
        )

        # Predicting alone, as the original's README has it: from a trained classifier,
        # whose labels are known without the training file.
        os.remove(self.path("data", "train.tsv"))
        self.run_script(
            "--do_predict",
            output_dir=self.path("predict"),
            init_checkpoint=self.path("run"),
            predict_batch_size=4,
        )
        again = self.table("predict", "test_results.tsv")
        self.assertAllClose(again, probabilities, atol=1e-5)


class TrainingLossTest(RunClassifierTestCase):
    def logged(self, name):
        """The last line of training's metrics."""
        lines = self.read_json_lines(name, "metrics.jsonl")
        return [line for line in lines if "learning_rate" in line][-1]

    def test_a_table_alone_is_enough(self):
        lines = [
            json.dumps({"review": {"text": text}, "stars": 4 + side})
            for text, side in rows(60, seed=1)
        ]
        lines[3] = json.dumps({"review": {"text": ""}, "stars": 4})
        ScriptCase.write(self, "my reviews.jsonl", "\n".join(lines))
        with self.assertLogs() as logs:
            self.run_script(
                "--do_train",
                "--do_eval",
                **dict.fromkeys(("task_name", "data_dir")),
                train_file=self.path("my reviews.jsonl"),
                text_a_column="review.text",
                label_column="stars",
                max_unusable_rows=0.1,
                num_train_epochs=1,
            )
        said = [record.getMessage() for record in logs.records]
        begin = said.index("***** Summary *****")
        where = self.path("my reviews.jsonl")
        self.assertEqual(
            said[begin + 1], f"  Rows of {where}: 53 of train, 6 of dev, 1 left out"
        )
        self.assertEqual(said[begin + 2], "  2 labels: 4 (27), 5 (26)")
        self.assertEqual(
            said[begin + 3],
            "  Tokens: 7 on average, 7 at most; 0 texts cut (`max_seq_length=10`)",
        )
        accuracy = self.results()["eval_accuracy"]
        self.assertEqual(
            said[begin + 4],
            f"  accuracy {accuracy:.4f} on 6 rows; always the same answer: 0.5000",
        )
        # The next commands work as they are printed.
        commands = [line for line in said[begin:] if line.startswith("    python ")]
        self.assertLen(commands, 3)
        # A model of two steps may have learned nothing, and is then said to.
        is_told = any("no better than always the same" in line for line in said)
        self.assertEqual(is_told, accuracy <= 0.5)
        for line in commands:
            module, *arguments = shlex.split(line)[2:]
            command = importlib.import_module(module)
            command.run(cli.parse(command.run, arguments))
        with open(self.path("run", "scored.csv"), encoding="utf-8", newline="") as file:
            self.assertLen(list(csv.DictReader(file)), 60)
        self.assertTrue(os.path.exists(self.path("run", "export", "saved_model.pb")))

    def test_a_student_of_a_classifier(self):
        self.write_tsv()
        teacher = runs.save(
            self.path("teacher"),
            BertClassifier(toy.CONFIG, 2),
            tokens=None,
            labels=["neg", "pos"],
        )
        student = dataclasses.replace(toy.CONFIG, hidden_size=4)
        options = {
            "num_train_epochs": 3,
            "learning_rate": 0.01,
            "bert_config_file": ScriptCase.write(
                self, "student.json", student.to_json_string()
            ),
            "teacher_checkpoint": teacher,
            "class_weights": "balanced",
            "label_smoothing": 0.1,
            "distill_hidden": 1.0,
            "best_metric": "f1_macro",
            "eval_steps": 4,
            "patience": 9,
        }
        self.run_script("--do_train", "--do_eval", **options)
        self.assertContainsSubset(
            {"cross_entropy", "teacher_cross_entropy", "teacher_hidden"},
            self.logged("run"),
        )
        # The evaluation's loss is the labels' own alone.
        self.assertIn("eval_f1_macro", self.results())
        self.assertLess(self.results()["loss"], 1.0)
        lines = self.read_json_lines("run", "metrics.jsonl")
        evaluated = {
            line["step"]: line["eval/f1_macro"]
            for line in lines
            if "eval/f1_macro" in line
        }
        self.assertEqual(list(evaluated), [4, 8, 12])
        best = self.read_json("run", "best", "best.json")
        self.assertEqual(best["metric"], "f1_macro")
        self.assertEqual(best["value"], max(evaluated.values()))
        self.assertEqual(best["value"], evaluated[best["step"]])
        start = self.read_json("run", "starts.jsonl")
        self.assertEqual(start["settings"]["label_smoothing"], 0.1)
        self.assertNotIn("mixout", start["settings"])
        # The teacher and the projection are in no checkpoint of the student's.
        weights = weights_by_name(load_classifier(self.path("run")))
        self.assertEqual(weights["bert/pooler/dense/kernel"].shape, (4, 4))

    def test_what_has_no_such_loss(self):
        self.write_tsv(label=str)
        no_head = "no classifier head .* masked LM"
        for options, message in (
            ({"regression": True, "label_smoothing": 0.1}, "ing` needs labels; tsv"),
            ({"several_labels": True, "class_weights": "0:2"}, "tsv does not choose"),
            ({"class_weights": "7:2"}, "`class_weights=7:2` must be balanced"),
            ({"teacher_checkpoint": self.pretrained()}, no_head),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script("--do_train", **options)


class TargetsTest(RunClassifierTestCase):
    def test_several_labels(self):
        self.write_tsv(label=lambda number: ("", "a,b")[number])
        self.run_script(
            *("--do_train", "--do_eval", "--several_labels"),
            metrics="f1_micro,exact_match",
            num_train_epochs=30,
            learning_rate=0.01,
            plots=True,
        )
        results = self.results()
        self.assertIn("eval_f1_micro", results)
        self.assertGreater(results["eval_exact_match"], 0.9)
        predictions = read_tsv(self.path("run", "dev_predictions.tsv"))
        texts = [(text, ("", "a,b")[side]) for text, side in rows(21, seed=21)]
        self.assertEqual([(row["text_a"], row["label"]) for row in predictions], texts)
        correct = np.mean([int(row["correct"]) for row in predictions])
        self.assertAlmostEqual(correct, results["eval_exact_match"], places=5)
        for row in predictions:
            likely = [label for label in "ab" if float(row[f"p_{label}"]) > 0.5]
            self.assertEqual(row["prediction"], ",".join(likely))
        for name in ("dev_confusion.png", "dev_calibration.png"):
            self.assertTrue(os.path.exists(self.path("run", name)), name)

    def test_two_numbers_of_texts_in_windows(self):
        self.write_tsv(label=lambda number: ("4;0", "1;2")[number])
        with self.assertLogs(level="INFO") as logs:
            self.run_script(
                *("--do_train", "--do_eval", "--do_predict", "--regression"),
                labels="left,right",
                label_separator=";",
                long_text="window",
                plots=True,
                # Three of the five words of each text fit.
                max_seq_length=5,
                num_train_epochs=2,
                learning_rate=0.005,
            )
        for said in ("64 train examples", "21 dev examples", "13 test examples"):
            said += f" are read in {3 * int(said.split()[0])} windows, at most 3"
            self.assertTrue(any(said in line for line in logs.output), said)
        self.assertContainsSubset(
            ["eval_pearson", "eval_spearman"], list(self.results())
        )
        self.assertEqual(self.table("run", "test_results.tsv").shape, (13, 2))
        predictions = read_tsv(self.path("run", "test_predictions.tsv"))
        self.assertLen(predictions, 13)
        self.assertAllClose(
            np.array([row["prediction"].split(";") for row in predictions], np.float32),
            self.table("run", "test_results.tsv"),
            atol=1e-3,
        )


class WindowAttentionTest(RunClassifierTestCase):
    def test_it_is_trained_and_read_wherever_checkpoints_are(self):
        self.write_tsv()
        options = {"long_text": "window", "max_seq_length": 5}
        options |= {"window_pooling": "attention", "num_train_epochs": 2}
        self.run_script("--do_train", "--do_predict", **options, learning_rate=0.01)
        run = open_source(self.path("run"))
        query = run.weights.tensors["cls/window_attention/query"].read()
        self.assertGreater(np.abs(query).max(), 1e-3)
        texts = [text for text, _ in rows(13, seed=13)]
        found = bert_tf.load(run.path).predict(texts)
        self.assertAllClose(
            [[one.probabilities[label] for label in run.labels] for one in found],
            self.table("run", "test_results.tsv"),
            atol=2e-6,
        )
        os.makedirs(self.path("exported"))
        with self.assertRaisesRegex(InputError, "window attention. Choose one by"):
            write_huggingface(self.path("exported"), completed(run))
        write_huggingface(
            self.path("exported"), completed(run, heads=[names.CLASSIFIER])
        )
        # What others read, and what is trained without it, reads one window.
        with self.assertLogs(level="INFO") as logs:
            self.run_script(
                "--do_predict",
                init_checkpoint=run.path,
                output_dir=self.path("mean"),
                **{**options, "window_pooling": "mean"},
            )
        said = "In the checkpoint, and not used: the window attention head."
        self.assertTrue(any(said in line for line in logs.output))
        short = texts[0].split()[0]
        (expected,) = bert_tf.load(run.path).predict(short)
        (one,) = bert_tf.load(self.path("exported")).predict(short)
        self.assertAllClose(one.probabilities, expected.probabilities, atol=1e-6)
        with self.assertRaisesRegex(InputError, "window_pooling=attention"):
            self.run_script(
                "--do_train",
                teacher_checkpoint=run.path,
                distill_logits=1.0,
                output_dir=self.path("student"),
                num_train_epochs=1,
            )


class SelectionTest(RunClassifierTestCase):
    def test_the_best_run_is_kept_and_evaluated(self):
        self.write_tsv()
        command = ("--do_train", "--do_eval", "--do_predict")
        options = {"learning_rates": "1e-6,0.01", "num_train_epochs": 20}
        with self.assertLogs(level="INFO") as logs:
            self.run_script(*command, **options)
        self.assertNotIn("No curves.png", "\n".join(logs.output))
        _, *records = self.read_json_lines("run", "selection.jsonl")
        scores = [record["scores"]["1.0"]["accuracy"] for record in records]
        self.assertLen(scores, 2)
        self.assertGreater(scores[1], max(0.9, scores[0]))
        best = self.read_json("run", "best", "best.json")
        self.assertEqual(best["run"], records[1]["name"])
        self.assertEqual(best["value"], scores[1])
        results = self.results()
        self.assertAlmostEqual(results["eval_accuracy"], scores[1], places=6)
        self.assertEqual(results["global_step"], 80)
        right = [1 - number % 2 for number in range(13)]
        self.assertAllEqual(self.table("run", "test_results.tsv").argmax(axis=1), right)
        self.assert_trains_nothing_and_writes_the_same(*command, **options)
        # The folder's model is the best run's for who trains nothing, too.
        os.remove(self.path("run", "test_results.tsv"))
        self.run_script("--do_predict")
        self.assertAllEqual(self.table("run", "test_results.tsv").argmax(axis=1), right)


class ParameterEfficientTest(RunClassifierTestCase):
    def test_an_adapter_is_written_and_taken(self):
        self.write_tsv()
        base = self.pretrained()
        self.run_script(
            "--do_train",
            "--do_predict",
            init_checkpoint=base,
            lora_rank=2,
            num_train_epochs=10,
            learning_rate=0.05,
        )
        first = self.table("run", "test_results.tsv")
        self.assertGreater(first[:, 0].max() - first[:, 0].min(), 1e-3)
        os.remove(self.path("run", "test_results.tsv"))
        with self.assertLogs(level="INFO") as logs:
            self.run_script("--do_predict")
        self.assertIn("As in the training of", "\n".join(logs.output))
        self.assertAllEqual(self.table("run", "test_results.tsv"), first)
        # The labels are those of the adapter.
        os.remove(self.path("data", "train.tsv"))
        self.run_script(
            "--do_predict",
            init_checkpoint=base,
            init_adapter=self.path("run", "adapter"),
            output_dir=self.path("predict"),
        )
        self.assertAllClose(
            self.table("predict", "test_results.tsv"), first, rtol=1e-5, atol=1e-6
        )


class OriginalTasksTest(RunClassifierTestCase):
    def test_mrpc_by_the_documented_command_line_and_no_other_task_after_it(self):
        pair = ("1", "id", "id", "good w1 w2", "w3 w4 w5 w6 w7 w8 w9")
        self.write("train.tsv", [("h",) * 5, *([pair] * 32)])
        self.write("dev.tsv", [("h",) * 5, *([pair] * 3)])
        command = f"""--task_name=MRPC --do_train=true --do_eval=true
          --data_dir={self.path("data")} --vocab_file={self.vocab}
          --bert_config_file={self.config} --max_seq_length=12 --train_batch_size=32
          --learning_rate=2e-5 --num_train_epochs=3.0 --output_dir={self.path("run")}"""
        run_classifier.run(cli.parse(run_classifier.run, command.split()))
        self.assertEqual(self.results()["global_step"], 3)
        before = self.written()
        self.write("train.tsv", [("h",) * 5, *([pair] * 34)])
        message = "on MRPC, 32 examples of .*; this one is on MRPC, 34 examples of"
        with self.assertRaisesRegex(InputError, message):
            self.run_script("--do_train", task_name="MRPC")
        for split in ("train", "dev"):
            lines = [("x", str(side), "", text) for text, side in rows(16, seed=1)]
            self.write(f"{split}.tsv", lines)
        message = "holds a run on MRPC; this one is on CoLA. Give another"
        for arguments in (["--do_train", "--do_eval"], ["--do_eval"]):
            with self.assertRaisesRegex(InputError, message):
                self.run_script(*arguments, task_name="CoLA")
        self.assertEqual(self.written(), before)

    def trained(self, *labels):
        """A classifier's folder."""
        model = BertClassifier(toy.CONFIG, len(labels))
        return runs.save(self.path("trained"), model, tokens=None, labels=labels)

    def test_both_sets_of_mnli(self):
        for name, count in (
            *(("dev_matched", 5), ("dev_mismatched", 7)),
            *(("test_matched", 4), ("test_mismatched", 6)),
        ):
            lines = [
                [str(number)] * 8 + [text, "w1 w2"] + ["neutral"] * ("dev" in name)
                for number, (text, _) in enumerate(rows(count, seed=count))
            ]
            self.write(f"{name}.tsv", [("h",) * len(lines[0]), *lines])
        words = ("contradiction", "entailment", "neutral")
        checkpoint = self.trained(*words)
        do = "--do_eval", "--do_predict"
        self.run_script(*do, task_name="MNLI", init_checkpoint=checkpoint)
        results = self.results()
        self.assertEqual(
            list(results),
            ["eval_accuracy", "eval_loss", "eval_majority", "eval_mismatched_accuracy",
             "eval_mismatched_majority", "global_step", "loss", "mismatched_eval_loss",
             "mismatched_loss"],
        )  # fmt: skip
        # Shares of five and of seven examples.
        self.assertIn(round(5 * results["eval_accuracy"], 4), range(6))
        self.assertIn(round(7 * results["eval_mismatched_accuracy"], 4), range(8))
        for split, name, count in (("", "MNLI-m", 4), ("_mismatched", "MNLI-mm", 6)):
            probabilities = self.table("run", f"test_results{split}.tsv")
            self.assertEqual(probabilities.shape, (count, 3))
            predicted = [words[index] for index in probabilities.argmax(axis=1)]
            lines = self.read("run", "submission", f"{name}.tsv").splitlines()
            expected = [f"{number}\t{word}" for number, word in enumerate(predicted)]
            self.assertEqual(lines, ["index\tprediction", *expected])

    def test_rte_of_tensorflow_datasets(self):
        import tensorflow_datasets as tfds

        with tfds.testing.mock_data(
            num_examples=9, policy=tfds.testing.MockPolicy.USE_CODE
        ):
            options = {
                "task_name": None,
                "data_dir": None,
                "tfds_name": "glue/rte",
                "init_checkpoint": self.trained("entailment", "not_entailment"),
            }
            self.run_script("--do_eval", "--do_predict", **options)
            options["output_dir"] = self.path("other")
            trained = self.assertRaisesRegex(AssertionError, "trained")
            with self.training_nothing(), trained:
                self.run_script("--do_train", **options)
        self.assertIn("eval_accuracy", self.results())
        self.assertEqual(self.table("run", "test_results.tsv").shape, (9, 2))
        lines = self.read("run", "submission", "RTE.tsv").splitlines()
        self.assertLen(lines, 10)
        self.assertIn(lines[1].split("\t")[1], ("entailment", "not_entailment"))
        self.assertFalse(os.path.exists(self.path("run", "dev_confusion.png")))


class RefusalTest(RunClassifierTestCase):
    def test_what_is_wrong_is_said_before_anything_is_written(self):
        self.write_tsv()
        short = self.path("short.txt")
        Vocabulary([token for token in TOKENS if token != "[MASK]"]).save(short)
        large = self.path("large.txt")
        Vocabulary([*TOKENS, *"abcdefghijkl"]).save(large)
        for options, message in (
            ({"task_name": "sst"}, "no such task"),
            ({"data_dir": self.path("nowhere")}, "no such folder"),
            (
                {"label_column": "lable"},
                "no column 'lable' .* columns are 'text_a', 'label'",
            ),
            ({"max_seq_length": 64}, r"must not exceed the model's .*\(16\)"),
            ({"vocab_file": self.path("no.txt")}, "no.txt"),
            ({"vocab_file": short}, r"\[MASK\]"),
            ({"vocab_file": large}, r"39 tokens, but .* `vocab_size` is 30\. Give"),
            ({"labels": "pos,other"}, r"train.tsv:3: the label must be one of"),
            ({"train_file": "gone.tsv"}, "No such data file: .*gone.tsv"),
            ({"best_metric": "f2"}, "best_metric=f2` .* loss, eval_loss, accuracy"),
            ({"stop_early": True}, "stop_early` is for several runs"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script("--do_train", **options)
            self.assertFalse(os.path.exists(self.path("run")), message)
        with self.assertRaisesRegex(InputError, "AX has no development set"):
            self.run_script("--do_eval", task_name="AX")
        with self.assertRaisesRegex(InputError, "AX has no train set"):
            self.run_script("--do_train", task_name="AX")
        with self.assertRaisesRegex(InputError, "not trained for this task"):
            self.run_script("--do_predict", init_checkpoint=self.pretrained())

    def test_one_folder_is_for_a_run_or_for_several(self):
        self.write_tsv(train=16)
        for name, options, message in (
            ("checkpoint", {"num_restarts": 2}, "holds a single run"),
            ("selection.jsonl", {}, "holds several runs"),
        ):
            folder = self.path(f"of {name}")
            ScriptCase.write(self, f"{folder}/{name}", "")
            with self.assertRaisesRegex(InputError, message):
                self.run_script("--do_train", output_dir=folder, **options)


class NewDataTest(RunClassifierTestCase):
    def test_training_on_reads_as_before_and_a_new_head_as_it_is_told(self):
        self.write_tsv()
        windows = {"max_seq_length": 8, "long_text": "window", "doc_stride": 3}
        self.run_script("--do_train", num_train_epochs=1, **windows)
        # Of several runs, the best one's folder is found by that of all.
        several = self.path("several")
        os.makedirs(several)
        shutil.copytree(self.path("run"), os.path.join(several, "best"))
        names = [*windows]
        for name, arguments, expected in (
            ("on", {}, [8, "window", 3]),
            ("given", {"max_seq_length": 16}, [16, "window", 3]),
            (
                "new head",
                {"init_head": False, "max_seq_length": 10},
                [10, "truncate", None],
            ),
        ):
            with self.assertLogs(level="INFO") as logs:
                self.run_script(
                    "--do_train",
                    num_train_epochs=1,
                    init_checkpoint=several,
                    output_dir=self.path(name),
                    **{"max_seq_length": None} | arguments,
                )
            flags = self.read_json(name, "flags.json")
            self.assertEqual([flags[each] for each in names], expected)
            log = "\n".join(logs.output)
            self.assertEqual("As in the training of" in log, name != "new head", name)
            self.assertIn("several runs: the best one", log)

    def test_new_data_that_lack_a_class_keep_the_head(self):
        labelled = [
            (text, ("neg", "mid", "pos")[i % 3])
            for i, (text, _) in enumerate(rows(30, seed=1))
        ]
        self.write("train.tsv", [("text_a", "label"), *labelled])
        self.run_script("--do_train", num_train_epochs=1)
        self.write_tsv()
        base = {"num_train_epochs": 1, "init_checkpoint": self.path("run")}
        with self.assertLogs(level="INFO") as logs:
            self.run_script("--do_train", output_dir=self.path("on"), **base)
        self.assertIn("no example has mid", "\n".join(logs.output))
        labels = pathlib.Path(self.path("on", "labels.txt")).read_text().split()
        self.assertEqual(labels, ["mid", "neg", "pos"])
        self.write_tsv(label=lambda number: ("good", "bad")[number])
        with self.assertRaisesRegex(
            InputError, "same, spell them so in the files; `init_hea"
        ):
            self.run_script("--do_train", output_dir=self.path("other"), **base)
        self.write_tsv(label=lambda number: ("neg", "bad")[number])
        message = "some are new, train with `labels=mid,neg,pos,bad`; `init_head"
        with self.assertRaisesRegex(InputError, message):
            self.run_script("--do_train", output_dir=self.path("other"), **base)
        self.write("train.tsv", [("text_a", "label"), *labelled])
        base["labels"] = "pos,mid,neg"
        with self.assertRaisesRegex(InputError, "same, give `labels=mid,neg,pos`; `in"):
            self.run_script("--do_train", output_dir=self.path("other"), **base)

    def test_new_labels_leave_those_before_their_outputs(self):
        self.write_tsv(label=lambda number: ("neg", "pos")[number])
        self.run_script("--do_train", num_train_epochs=1)
        originals = [row.original for row in names.HEADS[names.CLASSIFIER].weights]
        labelled = [
            (text, ("neg", "mid", "pos")[i % 3])
            for i, (text, _) in enumerate(rows(30, seed=1))
        ]
        self.write("train.tsv", [("text_a", "label"), *labelled])
        # Nothing is learned, so that the head is as it began.
        base = {"num_train_epochs": 1, "learning_rate": 0}
        base |= {"init_checkpoint": self.path("run"), "output_dir": self.path("on")}
        with self.assertLogs(level="INFO") as logs:
            self.run_script("--do_train", **base)
        message = f"The outputs of neg, pos are those of {self.path('run')}; new: mid."
        self.assertIn(message, "\n".join(logs.output))
        before, after = map(open_source, (self.path("run"), self.path("on")))
        self.assertEqual(after.labels, ("mid", "neg", "pos"))
        for name in originals:
            expected = before.weights[name]
            self.assertAllEqual(after.weights[name][1:], expected)
            self.assertAllEqual(after.weights[name][0], 0 * expected[0])
        # Without training, a label has no output.
        base |= {"labels": "mid,neg,pos", "output_dir": self.path("new")}
        with self.assertRaisesRegex(InputError, "has a head that predicts one of neg"):
            self.run_script("--do_eval", **base)


class EncoderTest(RunClassifierTestCase):
    def test_a_bilstm(self):
        self.write_tsv()
        given = {"init_checkpoint": self.pretrained()}
        self.run_script("--do_train", "--do_eval", "--bilstm", **given)
        scores = self.results()
        self.assertTrue(load_classifier(self.path("run")).bert_config.bilstm)
        # The folder says what the model is.
        self.run_script("--do_eval", bert_config_file=None)
        self.assertEqual(self.results(), scores)

    @pytest.mark.slow
    def test_a_standardized_pooled_output(self):
        self.write_tsv()
        options = {
            "init_checkpoint": self.pretrained(),
            "learning_rate": 0.01,
            "num_train_epochs": 1,  # 4 steps
            "save_checkpoints_steps": 2,
        }
        flags = ("--do_train", "--do_predict", "--cls_normalization")
        self.run_script(*flags, **options)
        # Of all 64 examples, by the weights to start from.
        encoder = BertEncoder(toy.CONFIG)
        load_weights(encoder, options["init_checkpoint"])
        lines = self.read("data", "train.tsv").splitlines()[1:]
        texts = [line.split("\t")[0].split() for line in lines]
        ids = np.array([[2, *map(TOKENS.index, text), 3] for text in texts], np.int32)
        inputs = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}
        pooled = np.float64(encoder(inputs)["pooled_output"])
        values = pooled.mean(axis=0), np.sqrt(pooled.var(axis=0) + 1e-3)
        last = prefix_of(self.path("run"), 4)
        for name, value in zip(STANDARDIZATION, values, strict=True):
            there = tf.train.load_variable(last, tensor_key("weights", name))
            self.assertAllClose(there, value, atol=1e-6)
        # So does the last checkpoint but one.
        said = self.table("run", "test_results.tsv")
        whole = dict(open_source(self.path("run")).weights)
        remove_checkpoint(last)
        self.run_script(*flags, **options)
        for name, weight in open_source(self.path("run")).weights.items():
            self.assertAllEqual(weight, whole[name], name)
        self.assertAllEqual(self.table("run", "test_results.tsv"), said)
        # Elsewhere it is a model like any other, with another classifier.
        exported = self.path("exported")
        os.makedirs(exported)
        write_tf1(exported, completed(open_source(self.path("run"))))
        self.run_script(
            "--do_predict",
            output_dir=self.path("predict"),
            init_checkpoint=exported,
            bert_config_file=None,
            labels="neg,pos",
        )
        found = self.table("predict", "test_results.tsv")
        self.assertAllClose(found, said, atol=1e-5)
        with self.assertRaisesRegex(InputError, "begins with a new classifier head"):
            self.run_script(
                "--do_train",
                "--cls_normalization",
                output_dir=self.path("other"),
                init_checkpoint=self.path("run"),
            )
        with self.assertRaisesRegex(Exception, "--cls_normalization and --lora_rank"):
            self.run_script("--do_train", "--cls_normalization", lora_rank=2)
