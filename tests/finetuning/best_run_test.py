import json
import os

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.finetuning.best_run import BestRun
from bert_tf.modeling.heads import BertClassifier
from bert_tf.training import checkpoints as checkpoints_module
from bert_tf.training.checkpoints import RunCheckpoints
from tests.training import toy


class BestRunTest(tf.test.TestCase):
    def path(self, *names):
        return os.path.join(self.get_temp_dir(), self.id(), *names)

    def write_run(self, name, step, score, bias):
        """A run's folder with a checkpoint whose head has a known bias."""
        folder = self.path("runs", name)
        os.makedirs(folder)
        toy.write_config(folder)
        model = BertClassifier(toy.CONFIG, 2)
        model.get_layer("classifier").output_bias.assign([bias, bias])
        toy.save_checkpoint(folder, model, step)
        checkpoints_module.keep_if_best(folder, step, score, "accuracy")
        return folder

    def bias(self, folder):
        model = BertClassifier(toy.CONFIG, 2)
        checkpoints = RunCheckpoints(folder, model)
        self.assertTrue(checkpoints.restore())
        return float(model.get_layer("classifier").output_bias[0]), checkpoints.step

    def best(self):
        with open(self.path("best", "best.json")) as file:
            return json.load(file)

    def test_keeps_the_best_runs_best_checkpoint(self):
        keeper = BestRun(self.path())
        # As many steps: the files have the same names.
        first = self.write_run("first", 7, 0.5, bias=1.0)
        second = self.write_run("second", 7, 0.6, bias=2.0)
        # A start that was killed left half of it.
        os.makedirs(self.path("best.tmp-17"))
        keeper.keep(first)
        self.assertEqual(self.bias(self.path("best")), (1.0, 7))
        self.assertEqual(
            self.best(), {"metric": "accuracy", "step": 7, "value": 0.5, "run": "first"}
        )
        keeper.keep(second)
        keeper.discard(first)
        self.assertEqual(self.bias(self.path("best")), (2.0, 7))
        self.assertEqual(self.best()["run"], "second")
        self.assertEqual(os.listdir(first), ["bert_config.json"])
        self.assertIn("bert_config.json", os.listdir(self.path("best")))
        self.assertCountEqual(
            os.listdir(self.path()), ["runs", "best"]
        )  # nothing left over
        # Once kept, the run's own files are not asked for again.
        keeper.discard(second)
        keeper.keep(second)
        self.assertEqual(self.bias(self.path("best")), (2.0, 7))

    def test_all_runs_may_stay(self):
        folder = self.write_run("first", 3, 0.5, bias=1.0)
        BestRun(self.path(), keep_all_runs=True).discard(folder)
        self.assertEqual(self.bias(folder), (1.0, 3))

    def test_others_than_the_chief_write_nothing(self):
        folder = self.write_run("first", 3, 0.5, bias=1.0)
        keeper = BestRun(self.path(), is_chief=False)
        keeper.keep(folder)
        keeper.discard(folder)
        self.assertEqual(os.listdir(self.path()), ["runs"])
        self.assertEqual(self.bias(folder), (1.0, 3))

    def test_the_best_runs_files_are_gone(self):
        keeper = BestRun(self.path())
        folder = self.write_run("first", 3, 0.5, bias=1.0)
        keeper.discard(folder)
        with self.assertRaisesRegex(InputError, "remove the run's line from selection"):
            keeper.keep(folder)


if __name__ == "__main__":
    tf.test.main()
