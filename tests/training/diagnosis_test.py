import contextlib
import io
import json
import os

import numpy as np
import tensorflow as tf

from bert_tf import cli
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.diagnosis import save_batch
from tfrecords import inspect_records

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
    def inspect(self, path, *more):
        vocab_path = os.path.join(self.get_temp_dir(), "vocab.txt")
        Vocabulary(TOKENS).save(vocab_path)
        flag_values = cli.parse(
            inspect_records.define_flags, (path, f"--vocab_file={vocab_path}", *more)
        )
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            inspect_records.run(flag_values)
        return output.getvalue()

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
        shown = self.inspect(path)
        self.assertIn("A [CLS] the [MASK→cat] ##s [SEP]", shown)
        self.assertIn("B the [MASK→sat] [SEP]", shown)
        self.assertIn("all 2 records keep the rules", shown)
        *_, statistics = map(
            json.loads, self.inspect(path, "--format=json").splitlines()
        )
        self.assertEqual(statistics["problems"], [])

    def test_the_script_shows_a_batch_of_a_classifier(self):
        names = ("input_ids", "input_mask", "segment_ids")
        batch = {name: BATCH[name] for name in names} | {
            "label_ids": tf.constant([[1], [0]]),
            "is_real_example": tf.constant([[1], [1]]),
        }
        path = save_batch(self.get_temp_dir(), 7, batch, "mrpc")
        self.assertIn("all 2 records keep the rules", self.inspect(path))

    def test_the_script_shows_a_batch_of_packed_rows(self):
        batch = {
            "input_ids": tf.constant([[2, 5, 4, 3, 2, 6, 3, 4, 3, 0]]),
            "input_mask": tf.constant([[1] * 9 + [0]]),
            "segment_ids": tf.constant([[0, 0, 0, 0, 0, 0, 0, 1, 1, 0]]),
            "sequence_ids": tf.constant([[1] * 4 + [2] * 5 + [0]]),
            "masked_lm_positions": tf.constant([[2, 7, 0]]),
            "masked_lm_ids": tf.constant([[6, 8, 0]]),
            "masked_lm_weights": tf.constant([[1.0, 1.0, 0.0]]),
            "cls_positions": tf.constant([[0, 4, 0]]),
            "next_sentence_labels": tf.constant([[0, 1, 0]]),
            "next_sentence_weights": tf.constant([[1.0, 1.0, 0.0]]),
            # Not in the records: computed as they are read.
            "position_ids": tf.constant([[0, 1, 2, 3, 0, 1, 2, 3, 4, 0]]),
        }
        path = save_batch(self.get_temp_dir(), 7, batch, "pretraining")
        shown = self.inspect(path)
        self.assertIn("[MASK→cat]", shown)
        self.assertIn("keep the rules", shown)

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


if __name__ == "__main__":
    tf.test.main()
