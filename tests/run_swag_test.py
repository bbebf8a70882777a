import csv
import dataclasses
import gzip
import json
import os

import numpy as np

from bert_tf import run_swag
from bert_tf.base.errors import InputError
from bert_tf.conversion.loading import load_weights
from bert_tf.conversion.source import open_source
from bert_tf.modeling.heads import BertMultipleChoice
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import ScriptCase
from tests.training import toy

# The right ending is the one with this word.
RIGHT = "good"
WORDS = [RIGHT, *(f"w{number}" for number in range(20))]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def rows(count, seed, num_endings=3):
    """Rows of SWAG, with endings of one to five words."""
    rng = np.random.default_rng(seed)

    def text(least):
        return " ".join(rng.choice(WORDS[1:], rng.integers(least, 5)))

    for _ in range(count):
        endings = [text(1) for _ in range(num_endings)]
        label = int(rng.integers(num_endings))
        endings[label] = f"{text(0)} {RIGHT}".strip()
        cells = {f"ending{number}": ending for number, ending in enumerate(endings)}
        yield {"sent1": text(1), "sent2": text(0), **cells, "label": label}


class RunSwagTest(ScriptCase):
    script = run_swag
    tokens = TOKENS

    def defaults(self):
        return {"max_seq_length": 14, "length_buckets": 1, "learning_rate": 3e-2}

    def write_csv(self, name, examples, opener=open):
        examples = list(examples)
        with opener(self.path(name), "wt", newline="") as file:
            writer = csv.DictWriter(file, [*examples[0]])
            writer.writeheader()
            writer.writerows(examples)
        return self.path(name)

    def write_json(self, name, examples):
        return self.write(name, "".join(json.dumps(x) + "\n" for x in examples))

    def test_learns_to_choose(self):
        options = {
            "train_file": self.write_csv("train.csv", rows(128, 1)),
            # Another number of endings than that of training.
            "dev_file": self.write_json("dev.jsonl", rows(30, 2, num_endings=4)),
            "num_train_epochs": 6,
        }
        test = [{**row, "label": ""} for row in rows(5, 3)]
        returned = self.run_script(
            *("--do_train", "--do_eval", "--do_predict"),
            test_file=self.write_csv("test.csv.gz", test, gzip.open),
            **options,
        )
        results = self.results()
        self.assertAllClose(returned.scores["accuracy"], results["eval_accuracy"])
        self.assertGreater(results["eval_accuracy"], 0.8)
        self.assertEqual(results["global_step"], 48)
        self.check_predictions(test)
        self.check_evaluation(results, options["dev_file"])
        other = self.write_csv("other.csv", rows(128, 4))
        with self.assertRaisesRegex(InputError, "holds a run on .*train.csv; .*other"):
            self.run_script("--do_train", **(options | {"train_file": other}))

    def test_the_vector_takes_in_what_a_standardization_does(self):
        config = dataclasses.replace(toy.CONFIG, cls_normalization=True)
        trained, plain = map(BertMultipleChoice, (config, toy.CONFIG))
        randomize(trained)
        folder = runs.save(self.path("run"), trained, config=config, tokens=None)
        source = open_source(folder)
        weights = source.weights.without_standardization()
        config = dataclasses.replace(source.config, cls_normalization=False)
        load_weights(plain, dataclasses.replace(source, weights=weights, config=config))
        ids = np.arange(24).reshape(2, 3, 4)
        ones = np.ones_like(ids)
        inputs = {"input_ids": ids, "input_mask": ones, "segment_ids": 0 * ones}
        expected = trained(inputs)["logits"]
        self.assertAllClose(plain(inputs)["logits"], expected, 1e-4, 1e-4)
        self.assertGreater(np.ptp(expected), 0.1)

    def check_predictions(self, test):
        with open(self.path("run", "swag_predictions.csv"), newline="") as file:
            predictions = list(csv.DictReader(file))
        lines = self.read("run", "test_results.tsv").splitlines()
        probabilities = [[float(cell) for cell in line.split("\t")] for line in lines]
        self.assertLen(predictions, 5)
        self.assertAllClose(np.sum(probabilities, axis=1), [1.0] * 5)
        for row, predicted, p in zip(test, predictions, probabilities, strict=True):
            self.assertEqual(predicted["prediction"], str(np.argmax(p)))
            self.assertAllClose(float(predicted["p_1"]), p[1], atol=1e-6)
            self.assertEqual(predicted["ending_2"], row["ending2"])
            self.assertEqual(predicted["label"], "")

    def check_evaluation(self, results, dev_file):
        """Neither batches nor padding change what comes out."""
        self.run_script("--do_eval", "--pad=max", eval_batch_size=7, dev_file=dev_file)
        again = self.results()
        self.assertEqual(again["eval_accuracy"], results["eval_accuracy"])
        self.assertAllClose(again["eval_loss"], results["eval_loss"], rtol=1e-4)
        with open(self.path("run", "dev_predictions.csv"), newline="") as file:
            rows = list(csv.DictReader(file))
        right = [int(row["correct"]) for row in rows]
        self.assertAllClose(np.mean(right), results["eval_accuracy"])
        likelihoods = [float(row[f"p_{row['label']}"]) for row in rows]
        self.assertAllClose(
            -np.mean(np.log(likelihoods)), again["eval_loss"], atol=1e-3
        )

    def test_what_a_user_got_wrong_is_said_before_training(self):
        train = self.write_csv("train.csv", rows(8, 1))
        unlabelled = self.write_csv(
            "t.csv", [{**row, "label": ""} for row in rows(8, 1)]
        )
        for options, message in (
            ({"dev_file": unlabelled}, r"t.csv:2: the label must be"),
            ({"dev_file": "/none.csv"}, "No such data file"),
            ({"best_metric": "f1"}, "accuracy"),
            ({"premise_column": "p"}, "no column 'p' .`premise_column`"),
            ({"max_seq_length": 512}, "max_position_embeddings .16."),
        ):
            files = {"train_file": train, "dev_file": train}
            with self.assertRaisesRegex(InputError, message):
                self.run_script("--do_train", "--do_eval", **(files | options))
        self.assertFalse(os.path.exists(self.path("run")))
