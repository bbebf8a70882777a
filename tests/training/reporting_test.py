import contextlib
import io
import json
import math
import os
import pathlib
import tempfile

import tensorflow as tf
from matplotlib.image import imread

from bert_tf.base.errors import InputError
from bert_tf.training.reporting import (
    Reporter,
    curves_picture,
    read_curves,
    training_line,
    write_curves,
)
from tests.drawn import drawn
from tests.script_case import FolderCase


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
        behind = {"eval/loss": ([0.0, 5.0], [3.0, 2.0]), "eval/other": ([0.0], [1.0])}
        texts, content = drawn(lambda: curves_picture(folder, behind=behind))
        self.assertIn("reference eval/loss", texts)
        self.assertNotIn("reference eval/other", texts)
        behind = {"eval/loss": ([0.0], [3.0]), "loss": ([], [])}  # no line to be seen
        texts, _ = drawn(lambda: curves_picture(folder, behind=behind))
        self.assertEmpty([text for text in texts if "reference" in text])
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

        def written():
            write_curves(folder, "MRPC")
            return pathlib.Path(folder, "curves.png").read_bytes()

        texts, _ = drawn(written)
        self.assertContainsSubset(
            ["MRPC", "learning rate", "learning_rate", "evaluation", "eval/f1"], texts
        )
        self.assertNoCommonElements(["eval/total", "eval/best_f1_thresh"], texts)

    def test_a_folder_without_a_training_has_no_picture(self):
        for entries in ([], [{"step": 10, "eval/loss": 6.5}]):
            folder = self.folder(*entries)
            write_curves(folder, "MRPC")
            self.assertEqual(os.listdir(folder), ["metrics.jsonl"])

    def test_what_has_nothing_to_draw_is_said(self):
        folder = self.folder()
        with self.assertRaisesRegex(InputError, "has no loss yet"):
            curves_picture(folder)
        with self.assertRaisesRegex(InputError, "No such file of metrics"):
            curves_picture(os.path.join(folder, "nowhere"))


class ReporterTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.folder = self.path()

    def lines(self):
        return self.read_json_lines("metrics.jsonl")

    def shown(self):
        """The lines, but for the seconds."""
        return [
            (line["step"], line.get("loss"), line.get("eval/loss"))
            for line in self.lines()
        ]

    def report(self, step, *steps):
        with contextlib.closing(Reporter(self.folder, step)) as reporter:
            for number in steps:
                reporter.report(number, {"loss": float(number)})

    def tags(self):
        """What TensorBoard shows of all files: (step, tag, value) of each point."""
        return [
            (event.step, value.tag, float(tf.make_ndarray(value.tensor)))
            for name in sorted(os.listdir(self.folder))
            if "tfevents" in name
            for event in tf.compat.v1.train.summary_iterator(self.path(name))
            for value in event.summary.value
        ]

    def test_a_line_a_step_and_a_tensorboard_file(self):
        self.report(0, 10, 20)
        self.assertEqual(self.shown(), [(10, 10.0, None), (20, 20.0, None)])
        self.assertEqual(
            self.tags(), [(10, "train/loss", 10.0), (20, "train/loss", 20.0)]
        )

    def test_the_log_has_what_a_person_watches_in_100_columns(self):
        metrics = {
            "loss": 5.29712,
            "masked_lm_loss": 4.7,
            "next_sentence_loss": 0.6,
            "masked_lm_accuracy": 0.24861,
            "next_sentence_accuracy": 0.5938,
            "gradient_norm": 1.1,
            "sequences_per_second": 1384.2,
            "tokens_per_second": 43830.0,
            "learning_rate": 7.505e-4,
        }
        line = training_line(1_000_000, metrics)
        self.assertEqual(
            line,
            "step 1000000: loss 5.297, accuracy masked_lm 0.2486, next_sentence 0.5938,"
            " 1,384 seq/s, lr 0.00075",
        )
        self.assertLessEqual(len(line), 100)
        metrics |= {"discriminator_accuracy": 0.8}
        self.assertEqual(training_line(1_000_000, metrics), line)
        self.assertEqual(
            training_line(7, {"loss": 0.5, "cross_entropy": 0.5, "accuracy": 0.875}),
            "step 7: loss 0.5, accuracy 0.875",
        )

    def test_the_time_of_all_starts_is_that_of_the_checkpoint_and_the_lines(self):
        for step, seconds in enumerate((100.0, 50.0)):
            reporter = Reporter(self.folder, step, seconds=seconds)
            reporter.report(step + 1, {"loss": 1.0})
            reporter.close()
        for line in self.lines():
            self.assertBetween(line["seconds"], 100.0, 110.0)

    def test_an_evaluation_after_training_leaves_that_within_the_run(self):
        """It may be of other data: a run that goes on must not choose by it."""
        for loss, after_training in ((2.0, False), (3.0, True), (4.0, True)):
            reporter = Reporter(self.folder, 10, after_training=after_training)
            reporter.report_evaluation(10, {"loss": loss})
            reporter.close()
        self.assertEqual(self.shown(), [(10, None, 2.0), (10, None, 4.0)])
        self.assertEqual(Reporter(self.folder, 10).evaluation(10), {"loss": 2.0})
        other = Reporter(self.folder, 10, after_training=True)
        self.assertEqual(other.evaluation(10), {"loss": 4.0})
        self.assertIsNone(other.evaluation(20))

    def test_a_damaged_line_is_dropped_and_told_and_the_others_stay(self):
        self.report(0, 10, 20)
        first, second = self.read("metrics.jsonl").encode().splitlines(keepends=True)
        for damaged in (
            b"{}",
            b'{"step": 1.5}',
            b'{"step": 1' + b"0" * 400 + b"}",
            b'{"step": 10, "loss": [1]}',
            b'{"step": 10, "seconds": Infinity}',
            b"[" * 100_000,
            b'{"step": 10, "\xff": 1}',
        ):
            self.write("metrics.jsonl", first + damaged + b"\n\n" + second)
            with self.assertLogs(level="WARNING") as logs:
                self.report(20)
            self.assertEqual(
                self.read("metrics.jsonl").encode().splitlines(keepends=True),
                [first, second],
            )
            self.assertLen(logs.output, 1)
            self.assertIn("metrics.jsonl:2: not a line of metrics; 2 ", logs.output[0])

    def test_numbers_that_are_not_finite_are_metrics(self):
        reporter = Reporter(self.folder)
        reporter.report_evaluation(10, {"loss": math.inf, "rate": math.nan})
        reporter.close()
        with self.assertNoLogs(level="WARNING"):
            found = Reporter(self.folder, 10).evaluation(10)
        self.assertEqual(found["loss"], math.inf)
        self.assertTrue(math.isnan(found["rate"]))

    def test_evaluations_in_between_are_there_once(self):
        reporter = Reporter(self.folder)
        reporter.report(10, {"loss": 1.0})
        self.assertIsNone(reporter.evaluation(10))
        reporter.report_evaluation(10, {"loss": 2.0})
        self.assertIsNotNone(reporter.evaluation(10))
        reporter.report(20, {"loss": 1.5})
        reporter.report_evaluation(20, {"loss": 2.5})
        reporter.close()
        self.assertLen([n for n in os.listdir(self.folder) if "tfevents" in n], 1)
        points = [(10, "train/loss", 1.0), (10, "eval/loss", 2.0)]
        points += [(20, "train/loss", 1.5), (20, "eval/loss", 2.5)]
        self.assertEqual(self.tags(), points)
        # Killed; it goes on from 10, whose evaluation is there, and reaches 20 again.
        reporter = Reporter(self.folder, 10)
        self.assertIsNotNone(reporter.evaluation(10))
        self.assertIsNone(reporter.evaluation(20))
        reporter.report(20, {"loss": 1.5})
        reporter.report_evaluation(20, {"loss": 2.5})
        # And once more at the end of all.
        reporter.report_evaluation(20, {"loss": 3.5})
        reporter.close()
        self.assertEqual(
            self.shown(),
            [(10, 1, None), (10, None, 2), (20, 1.5, None), (20, None, 3.5)],
        )

    def test_seconds_go_on(self):
        lines = [{"step": n, "seconds": 10.0 * n, "loss": 1.0} for n in (10, 20)]
        self.write("metrics.jsonl", "".join(json.dumps(x) + "\n" for x in lines))
        self.report(10, 20)
        self.assertBetween(self.lines()[-1]["seconds"], 100, 160)

    def test_only_the_chief_writes(self):
        self.report(0, 10)
        line = '{"step": 10, "seconds": 1, "eval/loss": 2.0}\n'
        self.write("metrics.jsonl", self.read("metrics.jsonl") + line)

        def moments():
            return {f.name: f.stat().st_mtime_ns for f in os.scandir(self.folder)}

        before = moments()
        worker = Reporter(self.folder, 10, is_chief=False)
        self.assertIsNotNone(worker.evaluation(10))
        worker.report(20, {"loss": 1.0})
        worker.report_evaluation(20, {"loss": 1.0})
        worker.close()
        self.assertEqual(before, moments())
        # It knows what the chief has written.
        self.assertIsNotNone(worker.evaluation(20))

    def test_a_folder_that_is_not_on_a_disk(self):
        folder = "ram://reporting_test"
        for step in (0, 10):
            reporter = Reporter(folder, step)
            reporter.report(step + 10, {"loss": 1.0})
            reporter.report_evaluation(step + 10, {"loss": 2.0})
            # As a script does at the end, with a reporter of its own.
            other = Reporter(folder, step + 10, after_training=True)
            other.report_evaluation(step + 10, {"loss": 3.0})
            other.close()
            reporter.report(step + 15, {"loss": 4.0})
            reporter.close()
        lines = tf.io.gfile.GFile(folder + "/metrics.jsonl").read().splitlines()
        shown = [
            (line["step"], line.get("loss"), line.get("eval/loss"))
            for line in map(json.loads, lines)
        ]
        both = (1, None), (None, 2), (None, 3)
        self.assertEqual(
            shown,
            [(step, *pair) for step in (10, 20) for pair in both] + [(25, 4, None)],
        )
