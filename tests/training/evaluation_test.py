import os

import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.names import weights_by_name
from bert_tf.records import pipeline
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.training.evaluation import evaluate, predict
from tests.training import toy

TASK = pretraining_task(toy.CONFIG)


class EvaluationTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        path = toy.write_records(os.path.join(self.get_temp_dir(), "r"), count=10)
        self.batches = pipeline.evaluation_dataset([path], toy.SCHEMA, batch_size=4)
        self.model = BertPretrainer(toy.CONFIG)

    def test_means_over_all_records_and_the_loss_over_batches(self):
        # With zero embeddings every token is equally likely, whatever the input.
        for weight in self.model.trainable_variables:
            weight.assign(tf.zeros(weight.shape))
        results = evaluate(TASK, self.model, self.batches)
        self.assertAllClose(results["masked_lm_loss"], np.log(toy.V), rtol=1e-5)
        self.assertAllClose(results["next_sentence_loss"], np.log(2), rtol=1e-5)
        # argmax of equals is the first: label 0, every second record of ten.
        self.assertAllClose(results["next_sentence_accuracy"], 0.5)
        self.assertAllClose(results["loss"], np.log(toy.V) + np.log(2), rtol=1e-4)

    def test_so_many_batches(self):
        endless = self.batches.repeat()
        results = evaluate(TASK, self.model, endless, num_batches=3)
        self.assertEqual(results, evaluate(TASK, self.model, self.batches))

    def test_a_loss_that_is_not_finite_is_one_line(self):
        bias = weights_by_name(self.model)["cls/predictions/output_bias"]
        bias.assign(np.full(bias.shape, np.nan))
        with self.assertRaisesRegex(InputError, "not finite"):
            evaluate(TASK, self.model, self.batches)

    def test_nothing_to_evaluate(self):
        with self.assertRaisesRegex(InputError, "Nothing to evaluate"):
            evaluate(TASK, self.model, self.batches.take(0))

    def test_predict_goes_through_all_batches_in_order(self):
        pairs = list(predict(TASK, self.model, self.batches, total_batches=3))
        self.assertEqual([len(batch["input_ids"]) for batch, _ in pairs], [4, 4, 2])
        batch, outputs = pairs[2]
        expected = self.model(batch, training=False)["next_sentence_logits"]
        self.assertAllClose(outputs["next_sentence_logits"], expected, atol=1e-6)


if __name__ == "__main__":
    tf.test.main()
