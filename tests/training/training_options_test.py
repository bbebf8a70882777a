import tensorflow as tf

from bert_tf.training.training_options import is_better


class IsBetterTest(tf.test.TestCase):
    def test_losses_fall_and_accuracies_rise(self):
        self.assertTrue(is_better(1.0, 2.0, "loss"))
        self.assertFalse(is_better(2.0, 2.0, "masked_lm_loss"))
        self.assertTrue(is_better(0.9, 0.8, "eval_accuracy"))
        self.assertFalse(is_better(0.7, 0.8, "f1"))
        nan = float("nan")
        self.assertFalse(is_better(nan, 0.8, "f1"))
        self.assertTrue(is_better(0.1, nan, "f1"))


if __name__ == "__main__":
    tf.test.main()
