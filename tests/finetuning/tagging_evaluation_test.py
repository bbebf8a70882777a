import numpy as np
import tensorflow as tf

from bert_tf.finetuning import tagging_evaluation

GOLD = [["B-A", "I-A", "O"], ["O", "B-B"]]
SAID = [["B-A", "I-A", "O"], ["I-B", "I-B"]]


class ScoresTest(tf.test.TestCase):
    def test_entities_by_hand(self):
        losses = np.array([1.0, 2.0, 6.0])
        accuracy = tagging_evaluation.accuracy(GOLD, SAID)
        scores = tagging_evaluation.scores(
            GOLD,
            SAID,
            "iob2",
            losses=losses,
            accuracy=accuracy,
            majority=tagging_evaluation.majority(GOLD),
        )
        # By the default reading I-B I-B is an entity, and a wrong one.
        self.assertEqual(
            scores,
            {
                "loss": 3.0,
                "accuracy": 3 / 5,
                "majority": 2 / 5,
                "strict_precision": 1.0,
                "strict_recall": 0.5,
                "strict_f1": 2 / 3,
                "precision": 0.5,
                "recall": 0.5,
                "f1": 0.5,
            },
        )
        del scores["majority"]  # the same for every run
        self.assertEqual(list(scores), tagging_evaluation.metric_names("iob2"))
        self.assertNotIn("strict_f1", tagging_evaluation.metric_names("iob1"))
        self.assertIn(
            "processed 5 tokens with 2 phrases; found: 2 phrases; correct: 1.",
            tagging_evaluation.report(GOLD, SAID),
        )

    def test_other_labels_have_an_accuracy(self):
        scores = tagging_evaluation.scores(
            GOLD, SAID, "none", losses=np.array([]), accuracy=0.25, majority=0.5
        )
        self.assertEqual(scores, {"loss": 0.0, "accuracy": 0.25, "majority": 0.5})


if __name__ == "__main__":
    tf.test.main()
