import os
import tempfile

from absl import logging

from bert_tf.base.errors import InputError
from bert_tf.tasks.squad import null_threshold
from tests.script_case import FolderCase

# By score difference: right, an invention, half right (F1 2/3), right, an invention.
GOLDS = {"a": ("cat",), "b": (), "c": ("dog",), "d": ("cow", "pig"), "e": ()}
TEXTS = {"a": "cat", "b": "x", "c": "big dog", "d": "pig", "e": "y"}
NULL_ODDS = {"a": -3.0, "b": -2.0, "c": -1.0, "d": 0.5, "e": 2.0}


class NullThresholdTest(FolderCase):
    def find(self, *arguments, **options):
        return null_threshold.find(self.get_temp_dir(), *arguments, **options)

    def test_found_by_hand_written_and_read(self):
        folder = self.get_temp_dir()
        self.assertIsNone(null_threshold.read(folder))
        chosen = self.find(GOLDS, TEXTS, NULL_ODDS, predict_file="dev.json")
        # Of 5: exact 2, then 3, 2, 2, 3, 2; F1 2, then 3, 2, 2 2/3, 3 2/3, 2 2/3.
        self.assertEqual((chosen.best_exact, chosen.best_exact_thresh), (60.0, -3.0))
        self.assertAllClose(chosen.best_f1, 100 * (11 / 3) / 5)
        self.assertEqual(chosen.best_f1_thresh, 0.5)
        self.assertEqual(chosen.null_score_diff_threshold, 0.5)
        self.assertAllClose(chosen.f1_at_threshold, 100 * (11 / 3) / 5)
        self.assertEqual(chosen.exact_at_threshold, 60.0)
        self.assertEqual((chosen.num_questions, chosen.predict_file), (5, "dev.json"))
        self.assertEqual(null_threshold.read(folder), 0.5)
        histogram = "null_score_diff_histogram.png"
        names = ["null_threshold.json", "null_threshold_precision_recall.png"]
        self.assertCountEqual(os.listdir(folder), [*names, histogram])
        content = self.read_json("null_threshold.json")
        self.assertEqual(null_threshold.NullThreshold(**content), chosen)

    def test_where_the_official_search_misleads(self):
        # Between b and the questions after it in the search there is no threshold.
        chosen = self.find(GOLDS, TEXTS, {**NULL_ODDS, "e": 0.5}, plots=False)
        self.assertEqual(os.listdir(self.get_temp_dir()), ["null_threshold.json"])
        self.assertEqual(chosen.null_score_diff_threshold, 0.5)
        self.assertAllClose(chosen.f1_at_threshold, 100 * (8 / 3) / 5)
        # Without an answer there is no curve.
        chosen = self.find({"b": ()}, {"b": "x"}, {"b": -2.0})
        found = chosen.best_f1, chosen.null_score_diff_threshold, chosen.f1_at_threshold
        self.assertEqual(found, (100.0, 0.0, 0.0))
        expected = ["null_threshold.json", "null_score_diff_histogram.png"]
        self.assertCountEqual(os.listdir(self.get_temp_dir()), expected)

    def test_a_file_without_a_threshold(self):
        folder = self.get_temp_dir()
        for content in ("[]", "{}", '{"null_score_diff_threshold": "1"}', "{"):
            self.write("null_threshold.json", content)
            with self.assertRaisesRegex(InputError, "null_threshold.json"):
                null_threshold.read(folder)
        # By hand no more is needed.
        self.write("null_threshold.json", '{"null_score_diff_threshold": -1}')
        self.assertEqual(null_threshold.read(folder), -1.0)

    def test_a_threshold_is_of_one_checkpoint(self):
        folder = self.get_temp_dir()
        mine, later = (os.path.join(folder, f"model.ckpt-{n}") for n in (12, 24))
        other = "/elsewhere/model.ckpt-12"

        def find(checkpoint):
            null_threshold.find(
                folder, GOLDS, TEXTS, NULL_ODDS, checkpoint=checkpoint, plots=False
            )

        def threshold(checkpoint):
            return null_threshold.read(folder, checkpoint)

        find(mine)
        self.assertEqual(threshold(mine), 0.5)
        self.assertEqual(threshold(""), 0.5)
        for checkpoint in (later, other):
            with self.assertLogs(logging.get_absl_logger(), "WARNING") as logs:
                self.assertIsNone(threshold(checkpoint))
            self.assertIn(f"found for {mine}, and the model is", logs.output[0])
        # A folder that is moved takes its own model along; another one stays itself.
        moved = tempfile.mkdtemp(dir=self.get_temp_dir())
        os.rename(null_threshold.path_in(folder), null_threshold.path_in(moved))
        folder = moved
        self.assertEqual(threshold(os.path.join(moved, "model.ckpt-12")), 0.5)
        # The run's best checkpoint, in best/, is the one of the same step.
        run, folder = folder, os.path.join(folder, "best")
        self.assertEqual(threshold(os.path.join(folder, "model.ckpt-12")), 0.5)
        self.assertIsNone(threshold(os.path.join(folder, "model.ckpt-8")))
        folder = run
        find(other)
        self.assertEqual(threshold(other), 0.5)
        self.assertIsNone(threshold(os.path.join(moved, "model.ckpt-12")))
