import functools
import json
import os

import tensorflow as tf

from bert_tf import cli, selection_flags
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.finetuning.search import baseline, made_with, search
from bert_tf.modeling.heads import BertClassifier
from bert_tf.tasks.data_set import DataSet
from bert_tf.tasks.examples import Example
from bert_tf.tasks.targets import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Target
from bert_tf.training import checkpoints
from bert_tf.training.reporting import Reporter
from tests.training import toy


@functools.cache
def classifier():
    """What all runs have trained, as far as a search can see."""
    return BertClassifier(toy.CONFIG, 2)


class Records:
    made_from = "abc"


class FakeSession:
    """A session whose runs come to the scores of a table."""

    def __init__(self, target, labels, metrics=("accuracy",), table=()):
        self.target = target
        self.data_set = DataSet(name="toy", metrics=metrics, files={}, splits={})
        self.examples = {
            "dev": [Example("a", None, label, "dev.tsv:1") for label in labels]
        }
        self.strategy = tf.distribute.get_strategy()
        self.table = dict(table)
        self.ran = []

    def records(self, split):
        return Records()

    def fine_tune(self, folder, settings=None, *, until=1.0):
        """Leaves a checkpoint at step 8; on the way, evaluations at 4, if there are."""
        self.ran.append(settings.learning_rate)
        os.makedirs(folder, exist_ok=True)
        toy.write_config(folder)
        *before, self.last = self.table[settings.learning_rate]
        model = classifier()
        if before:
            toy.save_checkpoint(folder, model, 4)
            reporter = Reporter(folder)
            reporter.report_evaluation(4, {"accuracy": before[0]})
            reporter.close()
            checkpoints.keep_if_best(folder, 4, before[0], "accuracy")
        toy.save_checkpoint(folder, model, 8)
        return model, 8

    def scores(self, model, split):
        return {"accuracy": self.last}

    def forget_model(self):
        pass


class StoppingSession(FakeSession):
    """Its runs stop after 0.3 of their steps, at step 4, and end at step 8."""

    def fine_tune(self, folder, settings=None, *, until=1.0):
        os.makedirs(folder, exist_ok=True)
        toy.write_config(folder)
        stopped, ended = self.table[settings.learning_rate]
        self.last, step = (ended, 8) if until == 1.0 else (stopped, 4)
        model = classifier()
        toy.save_checkpoint(folder, model, step)
        return model, step


CLASSES = Target(kind=SINGLE_LABEL, labels=("no", "yes"))


def parse(*arguments):
    def define(flag_values):
        shared_flags.define(
            flag_values,
            "init_checkpoint",
            "max_seq_length",
            "learning_rate",
            "train_batch_size",
            "random_seed",
            "output_dir",
            "gradient_accumulation_steps",
            best_metric=None,
        )
        selection_flags.define_selection(flag_values)

    return cli.parse(define, arguments)


class SearchTest(tf.test.TestCase):
    def path(self, *names):
        return os.path.join(self.get_temp_dir(), self.id(), *names)

    def best(self):
        with open(self.path("best", "best.json")) as file:
            return json.load(file)

    def test_the_best_of_the_runs_best_evaluations(self):
        # The first run was best on its way, the second one at its end.
        session = FakeSession(
            CLASSES, ["no"], table={5e-5: [0.9, 0.6], 2e-5: [0.5, 0.8], 1e-5: [0.7]}
        )
        selection = search(
            session, parse("--learning_rates=5e-5,2e-5,1e-5"), self.path()
        )
        self.assertEqual(
            [one.score("accuracy") for one in selection.records], [0.9, 0.8, 0.7]
        )
        self.assertEqual([one.step for one in selection.records], [4, 8, 8])
        self.assertEqual(self.best()["step"], 4)
        self.assertEqual(self.best()["run"], "lr5e-05_bs32_ep3_seed12345")
        self.assertIn("model.ckpt-4.index", os.listdir(self.path("best")))
        # What is left of the others: no weights.
        self.assertEqual(
            os.listdir(self.path("runs", "lr1e-05_bs32_ep3_seed12345")),
            ["bert_config.json"],
        )
        self.assertTrue(os.path.exists(self.path("selection.md")))

    def test_what_is_kept_is_what_was_scored(self):
        # Better when it was compared than in the end.
        session = StoppingSession(CLASSES, ["no"], table={5e-5: [0.9, 0.6]})
        selection = search(session, parse("--stop_early"), self.path())
        self.assertEqual(selection.best.step, 8)
        self.assertEqual(selection.best.score("accuracy"), 0.6)
        self.assertEqual((self.best()["step"], self.best()["value"]), (8, 0.6))
        self.assertIn("model.ckpt-8.index", os.listdir(self.path("best")))

    def test_a_score_that_is_no_number_is_a_failed_run(self):
        session = FakeSession(
            CLASSES, ["no"], table={5e-5: [float("nan")], 2e-5: [0.5]}
        )
        selection = search(session, parse("--learning_rates=5e-5,2e-5"), self.path())
        self.assertEqual(
            [one.status for one in selection.records], ["failed", "finished"]
        )

    def test_other_flags_are_other_runs(self):
        session = FakeSession(CLASSES, ["no"], table={5e-5: [0.5], 2e-5: [0.6]})
        search(session, parse(), self.path())
        for argument in ("--output_dir=/x", "--num_restarts=1", "--keep_all_runs"):
            search(session, parse(argument), self.path())
        self.assertEqual(session.ran, [5e-5])
        search(session, parse("--learning_rate=2e-5"), self.path())
        self.assertEqual(session.ran, [5e-5, 2e-5])
        with self.assertRaisesRegex(InputError, "max_seq_length is 128 there, 64 here"):
            search(session, parse("--max_seq_length=64"), self.path())
        Records.made_from = "abd"
        self.addCleanup(setattr, Records, "made_from", "abc")
        with self.assertRaisesRegex(InputError, "the train examples is abc there"):
            search(session, parse(), self.path())


class MadeWithTest(tf.test.TestCase):
    def test_a_checkpoint_is_the_same_from_any_folder(self):
        os.makedirs(os.path.join(self.get_temp_dir(), "bert"))
        before = os.getcwd()
        os.chdir(self.get_temp_dir())
        self.addCleanup(os.chdir, before)
        session = FakeSession(CLASSES, ["no"])
        self.assertEqual(
            made_with(session, parse("--init_checkpoint=bert")),
            {
                "init_checkpoint": os.path.join(os.getcwd(), "bert"),
                "max_seq_length": 128,
                "the task": "toy",
                "the train examples": "abc",
                "the dev examples": "abc",
            },
        )
        with open(os.path.join("bert", "best.json"), "w") as file:
            json.dump(
                {
                    "metric": "accuracy",
                    "step": 3,
                    "value": 0.5,
                    "run": "lr5e-05_bs32_ep3_seed1",
                },
                file,
            )
        self.assertEndsWith(
            made_with(session, parse("--init_checkpoint=bert"))["init_checkpoint"],
            "/bert (lr5e-05_bs32_ep3_seed1)",
        )
        handle = made_with(session, parse("--init_checkpoint=bert_base_en"))
        self.assertEqual(handle["init_checkpoint"], "bert_base_en")


class BaselineTest(tf.test.TestCase):
    def test_worked_by_hand(self):
        yes_no = ["yes", "no", "yes", "yes"]
        for target, labels, metric, expected in (
            (CLASSES, yes_no, "accuracy", 0.75),
            # Precision 3/4, recall 1.
            (CLASSES, yes_no, "f1", 6 / 7),
            (CLASSES, yes_no, "matthews_correlation", 0.0),
            (CLASSES, yes_no, "loss", None),
            (Target(kind=REGRESSION), ["1", "2", "4.5"], "pearson", 0.0),
            # The mean is 2.5: squares of 1.5, 0.5 and 2 over 3.
            (Target(kind=REGRESSION), ["1", "2", "4.5"], "mean_squared_error", 6.5 / 3),
            # a is true of most, b is not.
            (
                Target(kind=MULTI_LABEL, labels=("a", "b")),
                ["a", "a,b", "a", ""],
                "exact_match",
                0.5,
            ),
        ):
            found = baseline(FakeSession(target, labels), metric)
            if expected is None:
                self.assertIsNone(found)
            else:
                self.assertAllClose(found, expected)


if __name__ == "__main__":
    tf.test.main()
