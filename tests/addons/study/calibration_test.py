import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import bert_tf
from bert_tf import run_classifier
from bert_tf.addons.study import calibration
from bert_tf.base.config import MULTI_LABEL, SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.tasks.tables import Target
from tests.script_case import ScriptCase

LABELS = ("a", "b", "c")


def overconfident(kind, seed=0, size=4000):
    """Scores that are three times those by which the labels are drawn."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(size, len(LABELS)))
    if kind == SINGLE_LABEL:
        labels = (scores + rng.gumbel(size=scores.shape)).argmax(axis=-1)
    else:
        labels = (scores > rng.logistic(size=scores.shape)).astype(np.int64)
    return np.float32(3.0 * scores), labels


class TemperatureTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(SINGLE_LABEL, MULTI_LABEL)
    def test_finds_by_how_much_scores_are_too_large(self, kind):
        target = Target(kind=kind, labels=LABELS)
        logits, labels = overconfident(kind)
        found = calibration.temperature(target, logits, labels)
        self.assertAllClose(found, 3.0, rtol=0.05)
        errors = [
            calibration.expected_calibration_error(target, scores, labels)
            for scores in (logits, logits / found)
        ]
        self.assertGreater(errors[0], 0.15)
        self.assertLess(errors[1], 0.03)

    def test_as_scikit_learns(self):
        logits, labels = overconfident(SINGLE_LABEL, size=800)
        # A model whose decision function is its input.
        given = LogisticRegression().fit(logits, labels)
        given.coef_, given.intercept_ = np.eye(3), np.zeros(3)
        theirs = CalibratedClassifierCV(FrozenEstimator(given), method="temperature")
        theirs.fit(logits, labels)
        target = Target(kind=SINGLE_LABEL, labels=LABELS)
        found = calibration.temperature(target, logits, labels)
        self.assertAllClose(
            target.probabilities(logits / found),
            theirs.predict_proba(logits),
            atol=1e-3,
        )

    def test_coverage_and_accuracy_by_hand(self):
        target = Target(kind=SINGLE_LABEL, labels=("a", "b"))
        chances = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.7, 0.3]])
        coverage, accuracy = calibration.coverage_and_accuracy(
            target,
            np.log(chances),
            np.array([0, 0, 1, 1]),
            np.array([0.5, 0.65, 0.75, 0.95]),
        )
        self.assertAllClose(coverage, [1.0, 0.75, 0.5, 0.0])
        self.assertAllClose(accuracy, [0.5, 2 / 3, 1.0, np.nan])


class CalibrateTest(ScriptCase):
    script = run_classifier
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ann", "lee", "and")

    def table(self, name, size, seed):
        rng = np.random.default_rng(seed)
        words = [" ".join(rng.choice(self.tokens[5:], 5)) for _ in range(size)]
        rows = [f"{text},{'yes' if 'ann' in text else 'no'}" for text in words]
        # Some labels are wrong, so that a sure model is too sure.
        rows = [
            row.replace(",yes", ",no") if i % 5 == 0 else row
            for i, row in enumerate(rows)
        ]
        return self.write(name, "\n".join(["text,label", *rows]))

    def test_everything_that_reads_it_has_its_probabilities(self):
        given = {
            "train_file": self.table("train.csv", 200, 1),
            "dev_file": self.table("dev.csv", 100, 2),
            "num_train_epochs": 3,
            "learning_rate": 1e-2,
            "max_seq_length": 8,
            "text_a_column": "text",
        }
        with self.assertLogs("absl", "INFO") as logs:
            self.run_script("--do_train", "--do_eval", "--calibrate", **given)
        (line,) = [one for one in logs.output if "Temperature" in one]
        found = float(line.partition("Temperature ")[2].partition(":")[0])
        folder = self.path("run", "calibrated")
        self.assertTrue(os.path.exists(os.path.join(folder, "coverage.png")))
        texts = ["ann lee", "and and lee"]
        before, after = (
            bert_tf.load(path).predict(texts) for path in (self.path("run"), folder)
        )
        for one, other in zip(before, after, strict=True):
            self.assertEqual(one.label, other.label)
            odds, calibrated = (
                np.log(p["yes"] / p["no"])
                for p in (one.probabilities, other.probabilities)
            )
            self.assertAllClose(odds / found, calibrated, rtol=1e-3, atol=1e-3)
        self.run_script("--do_eval", "--calibrate", **given)  # again

    def test_numbers_are_refused(self):
        path = self.write("dev.csv", "text,label\nann,1.5\n")
        with self.assertRaisesRegex(InputError, "`calibrate` is for classes"):
            self.run_script(
                *("--do_eval", "--calibrate", "--regression"),
                dev_file=path,
                text_a_column="text",
                max_seq_length=8,
            )


if __name__ == "__main__":
    tf.test.main()
