import os

import tensorflow as tf

from bert_tf.finetuning.records import Record
from bert_tf.finetuning.selection import Selection
from bert_tf.finetuning.selection_report import report, write_report
from bert_tf.finetuning.settings import Settings

RECORDS = [
    Record(
        settings=Settings(5e-5, 16, 3.0, 1),
        scores={0.3: {"f1": 0.7, "loss": 0.7}, 1.0: {"f1": 0.90, "loss": 0.4}},
        step=60,
        seconds=61.0,
    ),
    Record(
        settings=Settings(5e-5, 16, 3.0, 2),
        scores={1.0: {"f1": 0.80, "loss": 0.5}},
        step=60,
        seconds=59.6,
    ),
    Record(
        settings=Settings(2e-5, 16, 3.0, 1),
        scores={1.0: {"f1": 0.60, "loss": 0.6}},
        step=60,
        seconds=60.0,
    ),
    Record(settings=Settings(2e-5, 16, 3.0, 2), failure="not finite", seconds=3.0),
    Record(
        settings=Settings(2e-5, 16, 3.0, 3),
        scores={0.3: {"f1": 0.65, "loss": 0.8}},
        step=18,
        seconds=20.0,
    ),
]

TEXT = """\
# Best of 5 runs: lr5e-05_bs16_ep3_seed1, f1 0.9000

By the f1 on the development set, which the runs were chosen by: on other data expect \
less than the best run's. A failed run is one that is no better than always answering \
the same (0.6200; Mosbach et al. 2021), or whose numbers were not finite.

| learning rate | batch | epochs | runs |   mean | standard deviation | maximum |\
 minimum | failed | stopped early |
| ------------- | ----: | -----: | ---: | -----: | -----------------: | ------: |\
 ------: | -----: | ------------: |
| 5e-05         |    16 |      3 |    2 | 0.8500 |             0.0707 |  0.9000 |\
  0.8000 |      0 |             0 |
| 2e-05         |    16 |      3 |    1 | 0.6000 |                  – |  0.6000 |\
  0.6000 |      2 |             1 |

Standard deviations are those of samples (n - 1). Runs that were stopped early are in \
no figure; their checkpoints wait to be gone on with.

| run                    |           status |     f1 |   loss | at step | duration |
| ---------------------- | ---------------: | -----: | -----: | ------: | -------: |
| lr5e-05_bs16_ep3_seed1 |         finished | 0.9000 | 0.4000 |      60 | 00:01:01 |
| lr5e-05_bs16_ep3_seed2 |         finished | 0.8000 | 0.5000 |      60 | 00:01:00 |
| lr2e-05_bs16_ep3_seed1 | finished, failed | 0.6000 | 0.6000 |      60 | 00:01:00 |
| lr2e-05_bs16_ep3_seed2 |           failed |      – |      – |       0 | 00:00:03 |
| lr2e-05_bs16_ep3_seed3 |   stopped at 0.3 | 0.6500 | 0.8000 |      18 | 00:00:20 |
"""


def selection(baseline):
    return Selection(
        metric="f1",
        best=RECORDS[0],
        best_folder="/out/runs/lr5e-05_bs16_ep3_seed1",
        records=RECORDS,
        baseline=baseline,
    )


class ReportTest(tf.test.TestCase):
    maxDiff = None

    def test_text(self):
        self.assertEqual(report(selection(0.62)), TEXT)

    def test_without_a_baseline_only_what_diverged_has_failed(self):
        text = report(selection(None))
        self.assertIn("A failed run is one whose numbers were not finite.", text)
        self.assertNotIn("finished, failed", text)

    def test_written_and_logged(self):
        with self.assertLogs(level="INFO") as logs:
            write_report(selection(0.62), self.get_temp_dir())
        with open(os.path.join(self.get_temp_dir(), "selection.md")) as file:
            self.assertEqual(file.read(), TEXT)
        self.assertEndsWith(logs.output[-1], TEXT.split("\n")[0].removeprefix("# "))


if __name__ == "__main__":
    tf.test.main()
