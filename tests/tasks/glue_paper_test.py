import tensorflow as tf

from bert_tf.tasks.glue import GLUE_TASKS
from bert_tf.tasks.glue_paper import BERT_BASE, BERT_LARGE, COLUMNS


class PaperTest(tf.test.TestCase):
    def test_the_papers_averages_come_out(self):
        for scores, average in ((BERT_BASE, 79.6), (BERT_LARGE, 82.1)):
            columns = [scores[task][metric] for task, metric in COLUMNS]
            self.assertNear(sum(columns) / 9, average, 0.05)

    def test_a_selection_goes_by_the_papers_metric(self):
        self.assertLen(COLUMNS, 9)
        for task, metric in COLUMNS:
            self.assertEqual(
                metric.removesuffix("_mismatched"), GLUE_TASKS[task].metrics[0]
            )
        self.assertEqual({*GLUE_TASKS} - {*BERT_LARGE}, {"WNLI", "AX"})


if __name__ == "__main__":
    tf.test.main()
