import math

import tensorflow as tf

from bert_tf.finetuning.records import Record
from bert_tf.finetuning.settings import Settings
from bert_tf.finetuning.statistics import grouped


def record(rate, seed, score=None, share=1.0, failure=""):
    return Record(
        settings=Settings(rate, 32, 3.0, seed),
        scores={} if score is None else {share: {"f1": score}},
        failure=failure,
    )


class GroupedTest(tf.test.TestCase):
    def test_figures_worked_by_hand(self):
        records = [
            record(5e-5, 1, 0.80),
            record(2e-5, 1, 0.70),
            record(5e-5, 2, 0.90),
            record(5e-5, 3, 0.85),
            record(5e-5, 4, 0.99, share=0.3),  # stopped: in no figure
            record(2e-5, 2, failure="diverged"),
            record(2e-5, 3, 0.60),  # the baseline: a failed run, in the figures
            record(3e-5, 1, failure="diverged"),
        ]
        first, second, third = grouped(records, "f1", 0.60)
        self.assertEqual(first.settings, Settings(5e-5, 32, 3.0, 1))
        self.assertEqual((first.num_runs, first.num_stopped), (3, 1))
        self.assertEqual(first.num_failed, 0)
        self.assertAllClose(
            [first.mean, first.maximum, first.minimum], [0.85, 0.90, 0.80]
        )
        # Deviations -0.05, 0.05, 0: squares sum to 0.005; over 2, the root of 0.0025.
        self.assertAllClose(first.standard_deviation, 0.05)
        self.assertEqual((second.num_runs, second.num_failed), (2, 2))
        self.assertAllClose(second.mean, 0.65)
        # -0.05, 0.05: 0.005 over 1.
        self.assertAllClose(second.standard_deviation, math.sqrt(0.005))
        self.assertEqual((third.num_runs, third.num_failed), (0, 1))
        self.assertTrue(math.isnan(third.mean) and math.isnan(third.maximum))

    def test_one_run_has_no_deviation(self):
        (group,) = grouped([record(5e-5, 1, 0.8)], "f1")
        self.assertTrue(math.isnan(group.standard_deviation))
        self.assertEqual(group.num_failed, 0)

    def test_without_a_score(self):
        (group,) = grouped([record(5e-5, 1, math.nan), record(5e-5, 2, 0.5)], "f1")
        self.assertEqual((group.num_runs, group.num_failed), (1, 1))

    def test_a_loss_fails_above_the_baseline(self):
        records = [
            Record(settings=Settings(1e-5, 8, 1.0, n), scores={1.0: {"loss": loss}})
            for n, loss in enumerate([0.5, 0.7])
        ]
        (group,) = grouped(records, "loss", 0.6)
        self.assertEqual(group.num_failed, 1)


if __name__ == "__main__":
    tf.test.main()
