import json
import os

import tensorflow as tf

from bert_tf.training.reporting import Reporter


class ReporterTest(tf.test.TestCase):
    def lines(self):
        with open(os.path.join(self.get_temp_dir(), "metrics.jsonl")) as file:
            return [json.loads(line) for line in file]

    def report(self, step, *steps, prefix=""):
        reporter = Reporter(self.get_temp_dir(), step, prefix=prefix)
        for number in steps:
            reporter.report(number, {"loss": float(number)})
        reporter.close()

    def test_a_line_a_step_and_a_tensorboard_file(self):
        self.report(0, 10, 20)
        self.assertEqual(
            [(line["step"], line["loss"]) for line in self.lines()],
            [(10, 10.0), (20, 20.0)],
        )
        (name,) = [n for n in os.listdir(self.get_temp_dir()) if "tfevents" in n]
        path = os.path.join(self.get_temp_dir(), name)
        values = {
            (event.step, value.tag): float(tf.make_ndarray(value.tensor))
            for event in tf.compat.v1.train.summary_iterator(path)
            for value in event.summary.value
        }
        self.assertEqual(values, {(10, "loss"): 10.0, (20, "loss"): 20.0})

    def test_a_run_that_goes_on_drops_what_it_will_write_again(self):
        self.report(0, 10, 20, 30)
        self.report(20, 25)
        self.assertEqual([line["step"] for line in self.lines()], [10, 20, 25])

    def test_an_evaluation_replaces_that_of_the_same_step_alone(self):
        self.report(0, 10, 20)
        self.report(20, 20, prefix="eval/")
        self.report(20, 20, prefix="eval/")
        names = [sorted(line) for line in self.lines()]
        self.assertEqual(
            names,
            [["loss", "seconds", "step"]] * 2 + [["eval/loss", "seconds", "step"]],
        )

    def test_an_evaluation_of_an_early_checkpoint_drops_nothing_else(self):
        self.report(0, 10, 20, 30)
        self.report(30, 30, prefix="eval/")
        self.report(10, 10, prefix="eval/")
        self.report(10, 10, prefix="eval/")
        self.assertEqual([line["step"] for line in self.lines()], [10, 20, 30, 30, 10])

    def test_a_line_that_a_kill_cut_short_is_dropped(self):
        self.report(0, 10, 20)
        path = os.path.join(self.get_temp_dir(), "metrics.jsonl")
        with open(path, "a") as file:
            file.write('{"step": 30, "lo')
        self.report(40)
        self.assertEqual([line["step"] for line in self.lines()], [10, 20])


if __name__ == "__main__":
    tf.test.main()
