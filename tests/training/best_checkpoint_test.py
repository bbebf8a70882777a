import json
import os
from unittest import mock

import tensorflow as tf

from bert_tf.conversion.source import folder_of
from bert_tf.conversion.tensorflow_checkpoint import find_checkpoint, read_weights
from bert_tf.training import best_checkpoint
from bert_tf.training.best_checkpoint import is_better, read_best
from tests.training.checkpoints_test import CheckpointsTestCase, make_run


class IsBetterTest(CheckpointsTestCase):
    def test_losses_fall_and_accuracies_rise(self):
        self.assertTrue(is_better(1.0, 2.0, "loss"))
        self.assertFalse(is_better(2.0, 2.0, "masked_lm_loss"))
        self.assertTrue(is_better(0.9, 0.8, "eval_accuracy"))
        self.assertFalse(is_better(0.7, 0.8, "f1"))
        nan = float("nan")
        self.assertFalse(is_better(nan, 0.8, "f1"))
        self.assertTrue(is_better(0.1, nan, "f1"))


class KeepBestTest(CheckpointsTestCase):
    def evaluate(self, values, name="loss", max_to_keep=1, data_id=0):
        """Saves and evaluates at each step; a value a step."""
        _, _, checkpoints = make_run(self.folder, max_to_keep=max_to_keep)
        checkpoints.restore()
        with checkpoints:
            for step, value in values.items():
                checkpoints.save(step, 4 * step)
                checkpoints.keep_best(step, value, name, data_id=data_id)

    def best(self):
        with open(self.path("best/best.json")) as file:
            best = json.load(file)
        self.assertEqual(
            read_weights(self.path("best")).path,
            self.path(f"best/model.ckpt-{best['step']}"),
        )
        return best

    def test_the_best_one_outlives_the_last_few(self):
        self.evaluate({1: 3.0, 2: 1.5, 3: 2.0, 4: 1.5})
        self.assertEqual(self.best(), {"metric": "loss", "step": 2, "value": 1.5})
        self.assertFalse(os.path.exists(self.path("model.ckpt-2.index")))
        self.assertCountEqual(
            os.listdir(self.path("best")),
            [
                "best.json",
                "checkpoint",
                "model.ckpt-2.data-00000-of-00001",
                "model.ckpt-2.index",
            ],
        )

    def test_a_metric_that_rises(self):
        self.evaluate({1: 0.5, 2: 0.7, 3: 0.6}, "accuracy")
        self.assertEqual(self.best()["step"], 2)

    def test_it_goes_on_over_starts(self):
        self.evaluate({1: 3.0, 2: 1.5})
        self.evaluate({3: 2.0})
        self.assertEqual(self.best()["step"], 2)
        self.evaluate({4: 0.1 + 0.2})
        self.assertEqual(self.best(), {"metric": "loss", "step": 4, "value": 0.1 + 0.2})

    def test_an_evaluation_made_again_ends_what_was_begun(self):
        self.evaluate({1: 3.0, 2: 1.5}, max_to_keep=5)
        listing = sorted(os.listdir(self.path("best")))
        os.remove(self.path("best/checkpoint"))
        self.evaluate({2: 1.5})
        self.assertEqual(self.best()["step"], 2)
        self.assertEqual(sorted(os.listdir(self.path("best"))), listing)

    def test_another_metric_begins_anew(self):
        self.evaluate({1: 0.1})
        self.evaluate({2: 0.5}, "accuracy")
        self.assertEqual(self.best()["metric"], "accuracy")

    def test_not_a_number_is_never_the_best(self):
        self.evaluate({1: float("nan")})
        self.assertFalse(os.path.exists(self.path("best/best.json")))

    def test_another_value_of_the_same_step_must_be_better(self):
        """As of a run that went back to an older checkpoint with other settings."""
        self.evaluate({1: 3.0, 2: 1.5}, max_to_keep=5)
        self.evaluate({2: 2.5})
        self.assertEqual(self.best(), {"metric": "loss", "step": 2, "value": 1.5})
        self.evaluate({2: 1.0})
        self.assertEqual(self.best(), {"metric": "loss", "step": 2, "value": 1.0})

    def test_other_data_begin_anew(self):
        """As those of a second phase: its losses are no worse for being higher."""
        self.evaluate({1: 1.0, 2: 1.5}, data_id=128)
        self.assertEqual(self.best()["step"], 1)
        self.evaluate({3: 2.0, 4: 2.5}, data_id=512)
        self.assertEqual(
            self.best(), {"metric": "loss", "step": 3, "value": 2.0, "data": 512}
        )
        # A folder of before this was recorded.
        self.evaluate({5: 3.0})
        self.assertEqual(self.best()["step"], 3)

    def test_a_damaged_file_begins_anew(self):
        self.evaluate({1: 0.1})
        for content in (
            "",
            "{",
            "[1]",
            '{"step": 3}',
            "[" * 100_000,
            '{"metric": "loss", "step": Infinity, "value": 1.5}',
            '{"metric": "loss", "step": 1, "value": -Infinity}',
            '{"metric": "loss", "step": 1, "value": 1%s}' % ("0" * 400),
            '{"metric": "loss", "step": 1%s, "value": 1.5}' % ("0" * 400),
            '{"metric": ["loss"], "step": 1, "value": 1.5}',
        ):
            with open(self.path("best/best.json"), "w") as file:
                file.write(content)
            self.assertIsNone(read_best(self.folder))
        self.evaluate({2: 0.5})
        self.assertEqual(self.best()["step"], 2)

    def test_a_checkpoint_written_over_leaves_it_as_it_was(self):
        self.evaluate({1: 0.1}, max_to_keep=5)
        with open(self.path("best/model.ckpt-1.index"), "rb") as file:
            before = file.read()
        os.remove(self.path("checkpoint"))
        os.truncate(self.path("model.ckpt-1.data-00000-of-00001"), 0)
        _, _, checkpoints = make_run(self.folder)
        checkpoints.save(1, 99)
        checkpoints.wait()
        with open(self.path("best/model.ckpt-1.index"), "rb") as file:
            self.assertEqual(file.read(), before)

    def test_its_folder_is_a_whole_checkpoint_folder(self):
        for name in ("bert_config.json", "vocab.txt", "tokenizer_config.json"):
            with open(self.path(name), "w") as file:
                file.write(name)
        self.evaluate({1: 0.1})
        path = self.path("best")
        self.assertEqual(find_checkpoint(path), self.path("best/model.ckpt-1"))
        for name in ("bert_config.json", "vocab.txt", "tokenizer_config.json"):
            with open(os.path.join(folder_of(path), name)) as file:
                self.assertEqual(file.read(), name)

    def test_a_disk_without_hard_links(self):
        def link(source, target):
            raise OSError("not permitted")

        with mock.patch.object(best_checkpoint.os, "link", link):
            self.evaluate({1: 0.1, 2: 0.05})
        self.assertEqual(self.best()["step"], 2)


if __name__ == "__main__":
    tf.test.main()
