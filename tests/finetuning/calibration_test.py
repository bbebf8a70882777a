import io

import matplotlib
import numpy as np
import tensorflow as tf
from matplotlib.image import imread
from sklearn.calibration import calibration_curve

from bert_tf.finetuning import calibration
from bert_tf.tasks.tables import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Target
from tests.finetuning.drawn import drawn

PAIR = Target(kind=SINGLE_LABEL, labels=("no", "yes"))
# The predicted class at 0.91, right; 0.97, wrong; 0.6, right; 0.62, wrong.
PROBABILITIES = np.array([[0.09, 0.91], [0.97, 0.03], [0.6, 0.4], [0.38, 0.62]])
LABELS = np.array([1, 1, 0, 0])


class ReliabilityTest(tf.test.TestCase):
    def test_error_by_hand(self):
        # Fifteen bins: (0.5333, 0.6], (0.6, 0.6667], (0.8667, 0.9333], (0.9333, 1].
        (part,) = calibration.reliabilities(PAIR, PROBABILITIES, LABELS)
        counts = np.zeros(15)
        counts[[8, 9, 13, 14]] = 1
        self.assertAllEqual(part.counts, counts)
        self.assertAllClose(part.confidence[[8, 9, 13, 14]], [0.6, 0.62, 0.91, 0.97])
        self.assertAllEqual(part.accuracy[[8, 9, 13, 14]], [1, 0, 1, 0])
        # (0.4 + 0.62 + 0.09 + 0.97) / 4
        self.assertAllClose(part.expected_calibration_error, 0.52)

    def test_a_bin_is_weighed_by_its_predictions(self):
        # Two bins: three at 0.4 of which one came true, one at 0.8 that did.
        part = calibration.reliability([0.4, 0.4, 0.4, 0.8], [1, 0, 0, 1], num_bins=2)
        self.assertAllEqual(part.counts, [3, 1])
        self.assertAllClose(part.accuracy, [1 / 3, 1])
        # 3/4 |1/3 - 0.4| + 1/4 |1 - 0.8|
        self.assertAllClose(part.expected_calibration_error, 0.05 + 0.05)

    def test_the_edges_belong_to_the_lower_bin(self):
        part = calibration.reliability([0, 0.5, 0.50001, 1], [0, 1, 1, 1], num_bins=2)
        self.assertAllEqual(part.counts, [2, 2])

    def test_as_scikit_learn_has_it(self):
        rng = np.random.default_rng(0)
        confidence = rng.random(500)
        came_true = rng.random(500) < confidence**2
        part = calibration.reliability(confidence, came_true)
        accuracy, mean = calibration_curve(came_true, confidence, n_bins=15)
        self.assertAllClose(part.accuracy, accuracy)
        self.assertAllClose(part.confidence, mean)

    def test_several_labels_have_one_each(self):
        target = Target(kind=MULTI_LABEL, labels=("a", "b"))
        parts = calibration.reliabilities(
            target, np.array([[0.1, 0.8], [0.1, 0.8]]), np.array([[0, 1], [1, 1]])
        )
        # a: 0.1 said, half came true; b: 0.8 said, all did.
        errors = [part.expected_calibration_error for part in parts]
        self.assertAllClose(errors, [0.4, 0.2])

    def test_brier_score_by_hand(self):
        # 2 * (0.0081 + 0.9409 + 0.16 + 0.3844) / 4
        self.assertAllClose(
            calibration.brier_score(PAIR, PROBABILITIES, LABELS), 0.7467
        )
        several = Target(kind=MULTI_LABEL, labels=("a", "b"))
        score = calibration.brier_score(
            several, np.array([[0.5, 0.9]]), np.array([[1, 0]])
        )
        self.assertAllClose(score, (0.25 + 0.81) / 2)


class PicturesTest(tf.test.TestCase):
    def test_calibration_of_classes(self):
        def draw():
            return calibration.calibration_picture(
                PAIR, PROBABILITIES, LABELS, "dev: 4 examples"
            )

        texts, content = drawn(draw)
        self.assertIn(
            "dev: 4 examples\nexpected calibration error 0.520, Brier score 0.747",
            texts,
        )
        self.assertEqual(draw(), content)
        # What the user set for pictures of their own makes no difference.
        with matplotlib.rc_context({"font.size": 20, "axes.grid": True}):
            self.assertEqual(draw(), content)

    def test_what_few_predictions_say_is_paler(self):
        # 40 predictions at 0.95, all right, and one at 0.55.
        probabilities = np.array([[0.05, 0.95]] * 40 + [[0.45, 0.55]])
        labels = np.ones(41, np.int64)

        def blue(content):
            """How far from white the lower middle of the two bars is."""
            pixels = imread(io.BytesIO(content))[..., :3]
            row = pixels[int(0.6 * len(pixels))]
            # From the axes' left end, at 0.11 of the width, to their right end.
            left, right = 0.11 * len(row), 0.97 * len(row)
            places = [left + (right - left) * x for x in (8.5 / 15, 14.5 / 15)]
            return [1 - row[int(place)].min() for place in places]

        texts, content = drawn(
            lambda: calibration.calibration_picture(PAIR, probabilities, labels, "dev")
        )
        few, many = blue(content)
        self.assertGreater(few, 0.1)
        self.assertGreater(many, 3 * few)
        self.assertIn("paler above: of fewer than 30 predictions", texts)

    def test_calibration_of_labels(self):
        def draw(num_labels):
            target = Target(
                kind=MULTI_LABEL, labels=tuple(f"c${i}" for i in range(num_labels))
            )
            shape = [3, num_labels]
            labels = np.eye(*shape, dtype=np.int64)
            return calibration.calibration_picture(
                target, np.full(shape, 0.25), labels, "dev"
            )

        texts, _ = drawn(lambda: draw(3))
        # A third came true of what was said to be a quarter. Each row's squares are
        # 9/16, 1/16 and 1/16.
        self.assertIn("dev\nexpected calibration error 0.083, Brier score 0.229", texts)
        self.assertContainsSubset({"c$0", "c$1", "c$2"}, texts)
        texts, _ = drawn(lambda: draw(11))
        self.assertIn("all labels", texts)
        self.assertNotIn("c$0", texts)

    def test_numbers(self):
        def draw():
            return calibration.regression_picture(
                Target(kind=REGRESSION), np.array([1.0, 2, 3]), np.array([0.0, 3, 3]),
                "dev: 3 examples",
            )  # fmt: skip

        texts, content = drawn(draw)
        # Deviations (-1, 0, 1) and (-2, 1, 1): 3 / sqrt(2 * 6).
        self.assertIn("dev: 3 examples\nPearson 0.866", texts)
        self.assertEqual(draw(), content)
        several = Target(kind=REGRESSION, labels=("valence", "arousal"))
        numbers = np.array([[1.0, 5], [2, 4], [3, 3]])
        truth = np.array([[0.0, 1], [3, 2], [3, 3]])
        texts, _ = drawn(
            lambda: calibration.regression_picture(several, numbers, truth, "dev")
        )
        self.assertIn("dev\nPearson valence 0.866, arousal -1.000", texts)


if __name__ == "__main__":
    tf.test.main()
