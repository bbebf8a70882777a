import tensorflow as tf

from bert_tf.tasks.glue import GLUE_TASKS
from bert_tf.tasks.glue_paper import BERT_BASE, BERT_LARGE, COLUMNS, paper_average


class PaperTest(tf.test.TestCase):
    def test_the_papers_averages_come_out(self):
        self.assertNear(paper_average(BERT_BASE), 79.6, 0.05)
        self.assertNear(paper_average(BERT_LARGE), 82.1, 0.05)

    def test_the_average_is_of_the_papers_columns_only(self):
        ones = {task: {metric: 1.0} for task, metric in COLUMNS if task != "MNLI"}
        self.assertIsNone(paper_average(ones))
        ones["MNLI"] = {"accuracy": 1.0, "accuracy_mismatched": 10.0}
        ones["MRPC"]["accuracy"] = 0.0
        ones["WNLI"] = {"accuracy": 0.0}
        self.assertAlmostEqual(paper_average(ones), 2.0)

    def test_a_selection_goes_by_the_papers_metric(self):
        self.assertLen(COLUMNS, 9)
        for task, metric in COLUMNS:
            self.assertEqual(
                metric.removesuffix("_mismatched"), GLUE_TASKS[task].metrics[0]
            )
        self.assertEqual({*GLUE_TASKS} - {*BERT_LARGE}, {"WNLI", "AX"})


if __name__ == "__main__":
    tf.test.main()
