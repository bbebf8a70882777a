import collections

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf import run_classifier
from bert_tf.addons.study import folds
from bert_tf.base import rows
from bert_tf.base.errors import InputError
from tests.script_case import ScriptCase


class ScoresTest(tf.test.TestCase):
    def test_intervals_are_those_of_the_binomial(self):
        labels = np.zeros(400, np.int64)
        answers = (np.arange(400) % 4 == 0).astype(np.int64)  # three quarters are right
        found = folds.scores_of(["accuracy"], answers, labels)
        deviation = (0.75 * 0.25 / 400) ** 0.5
        self.assertEqual(found["accuracy"], 0.75)
        ends = found["accuracy_low"], found["accuracy_high"]
        self.assertAllClose(
            ends, [0.75 - 1.96 * deviation, 0.75 + 1.96 * deviation], atol=0.006
        )

    def test_rows_of_a_group_are_one_observation(self):
        labels, groups = np.zeros(400, np.int64), np.arange(400) // 16
        answers = (groups % 4 == 0).astype(np.int64)
        found = folds.scores_of(["accuracy"], answers, labels, groups)
        share = 18 / 25
        deviation = (share * (1 - share) / 25) ** 0.5
        self.assertAllClose(
            [found["accuracy_low"], found["accuracy_high"]],
            [share - 1.96 * deviation, share + 1.96 * deviation],
            atol=0.04,
        )


class FoldsTest(ScriptCase, parameterized.TestCase):
    script = run_classifier
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "good")

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(0)
        lines = ["text,author,label"]
        for row in range(60):
            text = " ".join(
                [*rng.choice(self.tokens[5:15], 6), *["good"] * (row % 3 == 0)]
            )
            lines.append(f"{text},{row // 5},{'yes' if row % 3 == 0 else 'no'}")
        self.given = {
            "train_file": self.write("train.csv", "\n".join(lines)),
            "text_a_column": "text",
            "max_seq_length": 12,
            "learning_rate": 1e-2,
            "num_train_epochs": 1,
        }
        self.author = {line.split(",")[0]: line.split(",")[1] for line in lines[1:]}

    def predictions(self, *names):
        _, found = rows.read(self.path("run", *names, "dev_predictions.tsv"))
        return [row.cells for row in found]

    def test_every_row_is_scored_once_by_a_model_without_its_author(self):
        scores = self.run_script(
            "--do_train", folds=3, group_column="author", **self.given
        ).scores
        every = self.predictions()
        self.assertEqual([one["text_a"] for one in every], [*self.author])
        right = [one["label"] == one["prediction"] for one in every]
        self.assertAllClose(scores["accuracy"], np.mean(right))
        self.assertLessEqual(scores["accuracy_low"], scores["accuracy"])
        self.assertGreaterEqual(scores["accuracy_high"], scores["accuracy"])
        authors = []
        for number in ("fold_1", "fold_2", "fold_3"):
            part = self.predictions(number)
            authors += {self.author[one["text_a"]] for one in part}
            counts = collections.Counter(one["label"] for one in part)
            self.assertLessEqual(abs(counts["no"] - 2 * counts["yes"]), 4)
        self.assertLen(authors, 12)
        self.assertLen({*authors}, 12)
        # Again: the finished runs are scored.
        again = self.run_script(
            "--do_train", folds=3, group_column="author", **self.given
        )
        self.assertEqual(again.scores, scores)

    @parameterized.parameters(
        ({"folds": 13, "group_column": "author"}, "folds=13"),
        ({"folds": 2, "group_column": "book"}, "no column .book. .`group_column`"),
        ({"folds": 2, "learning_rates": "1e-2,1e-3"}, "scores one setting"),
    )
    def test_bad_input(self, given, message):
        given = {**self.given, **given}
        if "learning_rates" in given:
            del given["learning_rate"]
        with self.assertRaisesRegex(InputError, message):
            self.run_script("--do_train", **given)


if __name__ == "__main__":
    tf.test.main()
