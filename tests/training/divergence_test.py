import os

import numpy as np
import tensorflow as tf

from bert_tf.addons.study import inspect_records
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.divergence import save_batch
from tests.script_case import printed

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat"]
BATCH = {
    "input_ids": tf.constant([[2, 5, 4, 7, 3, 8, 3, 0], [2, 6, 3, 5, 4, 3, 0, 0]]),
    "input_mask": tf.constant([[1] * 7 + [0], [1] * 6 + [0] * 2]),
    "segment_ids": tf.constant([[0, 0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1, 0, 0]]),
    "masked_lm_positions": tf.constant([[2, 0], [4, 0]]),
    "masked_lm_ids": tf.constant([[6, 0], [8, 0]]),
    "masked_lm_weights": tf.constant([[1.0, 0.0], [1.0, 0.0]]),
    "next_sentence_labels": tf.constant([[1], [0]]),
}


def features(path):
    for record in tf.data.TFRecordDataset(path):
        example = tf.train.Example.FromString(record.numpy())
        yield {
            name: list(getattr(value, value.WhichOneof("kind")).value)
            for name, value in example.features.feature.items()
        }


class SaveBatchTest(tf.test.TestCase):
    def inspect(self, path):
        vocab_path = os.path.join(self.get_temp_dir(), "vocab.txt")
        Vocabulary(TOKENS).save(vocab_path)
        return printed(inspect_records, path, f"--vocab_file={vocab_path}")

    def test_every_value_as_it_was(self):
        more = {
            "attention_mask": np.ones((2, 3, 3), "int32"),
            "scores": np.array([[np.nan], [np.inf]], "float32"),
        }
        path = save_batch(self.get_temp_dir(), 123, {**BATCH, **more}, "pretraining")
        self.assertEqual(os.path.basename(path), "nonfinite-step-123.tfrecord")
        first, second = features(path)
        self.assertEqual(first["input_ids"], [2, 5, 4, 7, 3, 8, 3, 0])
        self.assertEqual(second["masked_lm_ids"], [8, 0])
        self.assertEqual(second["masked_lm_weights"], [1.0, 0.0])
        self.assertEqual(first["attention_mask"], [1] * 9)
        self.assertTrue(np.isnan(first["scores"][0]))
        self.assertTrue(np.isinf(second["scores"][0]))
        self.assertLen(first, len(BATCH) + 2)

    def test_the_script_shows_a_batch_of_pretraining(self):
        path = save_batch(self.get_temp_dir(), 7, BATCH, "pretraining")
        with self.assertNoLogs("absl", "WARNING"):
            shown = self.inspect(path)
        self.assertIn("A [CLS] the [MASK→cat] ##s [SEP]", shown)
        self.assertIn("B the [MASK→sat] [SEP]", shown)
        self.assertIn("all 2 records keep the rules", shown)

    def test_nothing_is_overwritten_and_nothing_written_twice(self):
        folder = self.get_temp_dir()
        other = {**BATCH, "next_sentence_labels": tf.constant([[0], [0]])}
        names = [
            os.path.basename(save_batch(folder, 5, batch, "pretraining"))
            for batch in (BATCH, other, BATCH, other)
        ]
        first, second = "nonfinite-step-5.tfrecord", "nonfinite-step-5-2.tfrecord"
        self.assertEqual(names, [first, second, first, second])
        self.assertCountEqual(os.listdir(folder), [first, second])
        (record, _) = features(os.path.join(folder, first))
        self.assertEqual(record["next_sentence_labels"], [1])
