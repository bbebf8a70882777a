import io
import json
import os
import tempfile

import numpy as np
import tensorflow as tf
from matplotlib.image import imread

from bert_tf.errors import InputError
from bert_tf.training.curves import curves_picture, read_curves, write_curves
from tests.finetuning.drawn import drawn


class CurvesTest(tf.test.TestCase):
    def folder(self, *entries, ending=""):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        with open(os.path.join(folder, "metrics.jsonl"), "w") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
            file.write(ending)
        return folder

    def test_every_metric_has_its_steps_and_values(self):
        folder = self.folder(
            {"step": 10, "seconds": 1.0, "loss": 7.0, "accuracy": 0.1},
            {"step": 20, "seconds": 2.0, "loss": 6.0, "accuracy": 0.2},
            {"step": 20, "seconds": 3.0, "eval/loss": 6.5},
            ending='{"step": 30, "lo',
        )
        self.assertEqual(
            read_curves(folder),
            {
                "accuracy": ([10, 20], [0.1, 0.2]),
                "eval/loss": ([20], [6.5]),
                "loss": ([10, 20], [7.0, 6.0]),
            },
        )

    def test_losses_and_accuracies_are_panels_of_their_own(self):
        folder = self.folder(
            {"step": 10, "loss": 7.0, "masked_lm_accuracy": 0.1, "gradient_norm": 2.0},
            {"step": 10, "eval/loss": 6.5},
        )
        texts, content = drawn(lambda: curves_picture(folder))
        self.assertContainsSubset(
            ["nats", "share that is right", "loss", "eval/loss", "masked_lm_accuracy"],
            texts,
        )
        self.assertContainsSubset([os.path.basename(folder)], texts)
        self.assertNoCommonElements(["gradient_norm", folder], texts)
        height, width = imread(io.BytesIO(content)).shape[:2]
        self.assertGreater(width, 2 * height)

    def test_written_into_the_folder_with_rate_and_evaluation(self):
        folder = self.folder(
            {"step": 10, "loss": 7.0, "learning_rate": 1e-4},
            {"step": 10, "eval/loss": 6.5, "eval/f1": 0.5, "after_training": True},
            {"step": 10, "eval/total": 300, "eval/best_f1_thresh": -15.7},
            ending='{"step": 20, "lo',
        )
        texts, _ = drawn(lambda: self.written(folder))
        self.assertContainsSubset(
            ["MRPC", "learning rate", "learning_rate", "evaluation", "eval/f1"], texts
        )
        self.assertNoCommonElements(["eval/total", "eval/best_f1_thresh"], texts)

    def test_a_folder_without_a_training_has_no_picture(self):
        for entries in ([], [{"step": 10, "eval/loss": 6.5}]):
            folder = self.folder(*entries)
            write_curves(folder, "MRPC")
            self.assertEqual(os.listdir(folder), ["metrics.jsonl"])

    def written(self, folder):
        write_curves(folder, "MRPC")
        with open(os.path.join(folder, "curves.png"), "rb") as file:
            return file.read()

    def test_a_run_without_accuracies_has_one_panel(self):
        folder = self.folder({"step": 10, "loss": 7.0}, {"step": 20, "loss": 6.0})
        texts, content = drawn(lambda: curves_picture(folder))
        self.assertNotIn("share that is right", texts)
        height, width = imread(io.BytesIO(content)).shape[:2]
        self.assertLess(width, 2 * height)

    def test_the_line_falls_with_the_loss(self):
        folder = self.folder(
            *({"step": step, "loss": 100.0 - step} for step in range(101))
        )
        pixels = imread(io.BytesIO(curves_picture(folder)))[..., :3]
        # matplotlib's first colour; the legend at the top right is passed over.
        rows, columns = np.nonzero(
            np.abs(pixels - np.array([31, 119, 180]) / 255).max(axis=-1) < 0.02
        )
        left = rows[columns < 0.3 * pixels.shape[1]].mean()
        right = np.median(rows[columns > 0.8 * pixels.shape[1]])
        self.assertLess(left, right - 0.3 * pixels.shape[0])

    def test_what_has_nothing_to_draw_is_said(self):
        folder = self.folder()
        with self.assertRaisesRegex(InputError, "has no loss yet"):
            curves_picture(folder)
        with self.assertRaisesRegex(InputError, "No such file of metrics"):
            curves_picture(os.path.join(folder, "nowhere"))


if __name__ == "__main__":
    tf.test.main()
