import os

import numpy as np
import tensorflow as tf

from bert_tf import cli, run_classifier
from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.text.vocabulary import Vocabulary
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


class RunClassifierTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.config = toy.write_config(self.get_temp_dir())
        self.vocab = self.path("v.txt")
        Vocabulary(TOKENS).save(self.vocab)
        os.makedirs(self.path("data"), exist_ok=True)

    def path(self, *names):
        return os.path.join(self.get_temp_dir(), *names)

    def write(self, name, lines):
        with open(self.path("data", name), "w") as file:
            file.writelines("\t".join(line) + "\n" for line in lines)

    def write_tsv(self, train=64, label=lambda number: ("pos", "neg")[number]):
        for split, count in (("train", train), ("dev", 21), ("test", 13)):
            labelled = [(text, label(side)) for text, side in rows(count, seed=count)]
            self.write(f"{split}.tsv", [("text_a", "label"), *labelled])

    def run_script(self, *arguments, **options):
        options = {
            "task_name": "tsv",
            "data_dir": self.path("data"),
            "vocab_file": self.vocab,
            "bert_config_file": self.config,
            "output_dir": self.path("run"),
            "max_seq_length": 10,
            "train_batch_size": 16,
            **options,
        }
        run_classifier.run(
            cli.parse(
                run_classifier.define_flags,
                [*arguments, *(f"--{key}={value}" for key, value in options.items())],
            )
        )

    def results(self, name="run"):
        with open(self.path(name, "eval_results.txt")) as file:
            return dict(line.split(" = ") for line in file.read().splitlines())


class TsvTest(RunClassifierTestCase):
    def test_trains_evaluates_and_predicts(self):
        self.write_tsv()
        self.run_script(
            "--do_train",
            "--do_eval",
            "--do_predict",
            num_train_epochs=30,
            learning_rate=0.01,
        )
        results = self.results()
        self.assertEqual(
            list(results), ["eval_accuracy", "eval_loss", "global_step", "loss"]
        )
        # int(64 / 16 * 30) steps; a word that the label hangs on is learnt.
        self.assertEqual(results["global_step"], "120")
        self.assertGreater(float(results["eval_accuracy"]), 0.9)
        with open(self.path("run", "test_results.tsv")) as file:
            lines = [line.split("\t") for line in file.read().splitlines()]
        self.assertLen(lines, 13)
        probabilities = np.array(lines, np.float32)
        self.assertAllClose(probabilities.sum(axis=1), np.ones(13))
        # Columns in the order of the labels: neg, pos; "good" is row 0, 2, 4, ...
        self.assertAllEqual(
            probabilities.argmax(axis=1), [1 - number % 2 for number in range(13)]
        )
        for name in ("train.tf_record", "eval.tf_record", "predict.tf_record"):
            self.assertTrue(os.path.exists(self.path("run", name)))

        # Predicting alone, as the original's README has it: from a trained classifier,
        # whose labels are known without the training file.
        os.remove(self.path("data", "train.tsv"))
        self.run_script(
            "--do_predict",
            output_dir=self.path("predict"),
            init_checkpoint=self.path("run"),
            predict_batch_size=4,
        )
        with open(self.path("predict", "test_results.tsv")) as file:
            again = np.array([line.split("\t") for line in file], np.float32)
        self.assertAllClose(again, probabilities, atol=1e-5)

    def test_regression(self):
        self.write_tsv(label=lambda number: str(4.0 * number))
        self.run_script(
            "--do_train",
            "--do_eval",
            "--do_predict",
            "--regression",
            num_train_epochs=60,
            learning_rate=0.003,
        )
        results = self.results()
        self.assertEqual(
            list(results),
            ["eval_loss", "eval_pearson", "eval_spearman", "global_step", "loss"],
        )
        self.assertGreater(float(results["eval_pearson"]), 0.9)
        with open(self.path("run", "test_results.tsv")) as file:
            self.assertLen([float(line) for line in file], 13)

    def test_starts_from_a_pre_trained_checkpoint(self):
        self.write_tsv(train=16)
        folder = self.path("pretraining")
        os.makedirs(folder)
        toy.save_checkpoint(folder, BertPretrainer(toy.CONFIG), 1, 1)
        with self.assertLogs(level="INFO") as logs:
            self.run_script("--do_train", init_checkpoint=folder, num_train_epochs=1)
        self.assertTrue(
            any("so new: output_weights, output_bias" in line for line in logs.output)
        )


class OriginalTasksTest(RunClassifierTestCase):
    def test_mrpc_by_the_documented_command_line(self):
        pair = ("1", "id", "id", "good w1 w2", "w3 w4 w5 w6 w7 w8 w9")
        self.write("train.tsv", [("h",) * 5, *([pair] * 32)])
        self.write("dev.tsv", [("h",) * 5, *([pair] * 3)])
        command = f"""--task_name=MRPC --do_train=true --do_eval=true
          --data_dir={self.path("data")} --vocab_file={self.vocab}
          --bert_config_file={self.config} --max_seq_length=12 --train_batch_size=32
          --learning_rate=2e-5 --num_train_epochs=3.0 --output_dir={self.path("out")}"""
        run_classifier.run(cli.parse(run_classifier.define_flags, command.split()))
        self.assertEqual(self.results("out")["global_step"], "3")


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
            ({"label_column": "lable"}, "'lable'. Columns: text_a, label"),
            ({"max_seq_length": 64}, r"must not exceed the model's .*\(16\)"),
            ({"vocab_file": self.path("no.txt")}, "no.txt"),
            ({"vocab_file": short}, r"\[MASK\]"),
            ({"vocab_file": large}, "39 tokens, but the model's `vocab_size` .* 30"),
            ({"labels": "pos,other"}, r"train.tsv:3: the label must be one of"),
            ({"train_file": "gone.tsv"}, "No such data file: .*gone.tsv"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script("--do_train", **options)
            self.assertFalse(os.path.exists(self.path("run")), message)

    def test_a_wrong_label_in_the_development_set_is_found_before_training(self):
        self.write_tsv()
        self.write("dev.tsv", [("text_a", "label"), ("w1", "pos"), ("w2", "odd")])
        with self.assertRaisesRegex(InputError, "dev.tsv:3: the label must be one of"):
            self.run_script("--do_train", "--do_eval")
        self.assertFalse(os.path.exists(self.path("run")))

    def test_other_labels_in_the_same_folder(self):
        self.write_tsv(train=16)
        self.run_script("--do_train", num_train_epochs=1)
        for arguments in (["--labels=pos,neg"], ["--regression"]):
            with self.assertRaisesRegex(InputError, "holds a run with the labels neg"):
                self.run_script("--do_predict", *arguments)

    def test_one_label_alone(self):
        self.write_tsv(label=lambda number: "same")
        with self.assertRaisesRegex(InputError, "all rows have the label 'same'"):
            self.run_script("--do_train")

    def test_a_checkpoint_without_this_tasks_head(self):
        self.write_tsv()
        folder = self.path("pretraining")
        os.makedirs(folder)
        toy.save_checkpoint(folder, BertPretrainer(toy.CONFIG), 1, 1)
        with self.assertRaisesRegex(InputError, "not trained for this task"):
            self.run_script("--do_predict", init_checkpoint=folder)

    def test_less_than_one_step(self):
        self.write_tsv(train=4)
        with self.assertRaisesRegex(InputError, "less than one step"):
            self.run_script("--do_train", "--pad=max", num_train_epochs=1)

    def test_nothing_to_evaluate(self):
        self.write_tsv()
        with self.assertRaisesRegex(InputError, "Train first"):
            self.run_script("--do_eval")


if __name__ == "__main__":
    tf.test.main()
