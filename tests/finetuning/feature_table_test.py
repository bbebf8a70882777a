import math

import tensorflow as tf

from bert_tf.finetuning.feature_table import feature_picture, feature_table
from tests.finetuning.drawn import drawn


class FeatureTableTest(tf.test.TestCase):
    def test_beside_the_paper(self):
        scores = {"fine_tuned": 0.91234, "concat_last_four": math.nan}
        lines = feature_table(scores, "accuracy").splitlines()
        self.assertIn("ours, accuracy", lines[0])
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        self.assertEqual(cells[2], ["fine_tuned", "91.23", "96.4"])
        self.assertEqual(cells[3], ["concat_last_four", "–", "96.1"])

    def test_drawn(self):
        scores = {"last": 0.5, "embeddings": 0.25}
        texts, _ = drawn(lambda: feature_picture(scores, "f1"))
        expected = {"ours, f1", "last", "embeddings", "50.0", "25.0", "94.9", "91.0"}
        self.assertContainsSubset(expected, texts)


if __name__ == "__main__":
    tf.test.main()
