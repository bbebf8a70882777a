import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.objectives import Mean, Objective
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.records import pipeline
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.training.evaluation import Evaluator, Predictor
from bert_tf.training.step import on_devices
from bert_tf.training.strategy import create_strategy
from tests.training import strategies_test, toy

TASK = pretraining_task(toy.CONFIG)


class EvaluationTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        path = toy.write_records(os.path.join(self.get_temp_dir(), "r"), count=10)
        self.batches = pipeline.evaluation_dataset([path], toy.SPEC, batch_size=4)
        self.model = BertPretrainer(toy.CONFIG)

    def test_means_over_all_records_and_the_loss_over_batches(self):
        # With zero embeddings every token is equally likely, whatever the input.
        for weight in self.model.trainable_variables:
            weight.assign(tf.zeros(weight.shape))
        results = Evaluator(TASK, self.model).run(self.batches)
        self.assertAllClose(results["masked_lm_loss"], np.log(toy.V), rtol=1e-5)
        self.assertAllClose(results["next_sentence_loss"], np.log(2), rtol=1e-5)
        # argmax of equals is the first: label 0, every second record of ten.
        self.assertAllClose(results["next_sentence_accuracy"], 0.5)
        self.assertAllClose(results["loss"], np.log(toy.V) + np.log(2), rtol=1e-4)

    def test_so_many_batches(self):
        endless = self.batches.repeat()
        results = Evaluator(TASK, self.model).run(endless, num_batches=3)
        self.assertEqual(results, Evaluator(TASK, self.model).run(self.batches))

    def test_a_loss_that_is_not_finite_is_one_line(self):
        bias = weights_by_name(self.model)["cls/predictions/output_bias"]
        bias.assign(np.full(bias.shape, np.nan))
        with self.assertRaisesRegex(InputError, "not finite"):
            Evaluator(TASK, self.model).run(self.batches)

    def test_nothing_to_evaluate(self):
        with self.assertRaisesRegex(InputError, "Nothing to evaluate"):
            Evaluator(TASK, self.model).run(self.batches.take(0))

    def test_predict_goes_through_all_batches_in_order(self):
        step = on_devices().prediction_step(self.model, create_strategy())
        pairs = list(Predictor(TASK.name, step).run(self.batches, total_batches=3))
        self.assertEqual([len(batch["input_ids"]) for batch, _ in pairs], [4, 4, 2])
        batch, outputs = pairs[2]
        expected = self.model(batch, training=False)["next_sentence_logits"]
        self.assertAllClose(outputs["next_sentence_logits"], expected, atol=1e-6)

    def test_an_evaluator_compiles_once_and_sees_the_weights_of_the_moment(self):
        traces = []

        def traced(records, outputs):
            traces.append(outputs)
            return Mean(tf.constant(6.0), tf.constant(3.0))

        objective = TASK.objective + Objective({}, {"traced": traced})
        evaluator = Evaluator(
            dataclasses.replace(TASK, objective=objective), self.model
        )
        whole = self.batches.take(2)
        before = evaluator.run(whole)
        self.assertEqual(evaluator.run(whole), before)
        for weight in self.model.trainable_variables:
            weight.assign(tf.zeros(weight.shape))
        results = evaluator.run(whole)
        self.assertAllClose(results["masked_lm_loss"], np.log(toy.V))
        self.assertEqual(results["traced"], 2.0)
        self.assertLen(traces, 1)

    def test_predict_names_a_record_that_does_not_fit(self):
        path = os.path.join(self.get_temp_dir(), "broken")
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(b"no example")
        broken = pipeline.evaluation_dataset([path], toy.SPEC, batch_size=1)
        with self.assertRaisesRegex(InputError, "cannot be read"):
            list(Predictor(TASK.name, dict).run(broken, total_batches=1))


class SeveralDevicesTest(strategies_test.StrategiesTestCase):
    def begin(self, target, **environment):
        path = toy.write_records(self.path("nine"), count=9)
        child = "tests.training.evaluation_child"
        return self.start_module(child, path, self.path(target), **environment)

    def compare(self, several, one):
        for name in ("short", "whole", "compiled", "across_rows"):
            self.assertAllClose(several[name], one[name], rtol=1e-6, atol=1e-6)
        self.assertEqual(several["again"], several["short"])
        self.assertEqual(several["sizes"], [4, 4, 1])
        self.assertAllClose(several["logits"], one["logits"], rtol=1e-6, atol=1e-6)
        self.assertRegex(
            several["refusal"],
            "^`eval_batch_size=3` cannot be divided among 2 devices ",
        )

    @pytest.mark.slow
    def test_two_devices_and_two_workers_have_the_results_of_one(self):
        self.finish(self.begin("both"))
        both = self.read_json("both")
        one = both["one"]
        self.assertEqual(one["refusal"], "")
        self.assertAllClose(one["compiled"], one["whole"], rtol=1e-5)
        self.compare(both["two"], one)
        names = ("first", "second")
        workers = [
            self.begin(name, TF_CONFIG=text)
            for name, text in zip(names, self.clusters(), strict=True)
        ]
        self.finish(*workers)
        for name in names:
            self.compare(self.read_json(name), one)
