import os
from unittest import mock

import tensorflow as tf

from bert_tf.addons.serving import runtimes
from bert_tf.base.errors import InputError
from bert_tf.modeling.heads import BertClassifier
from tests.modeling.examples import randomize
from tests.training import toy


class RuntimesTest(tf.test.TestCase):
    def test_numbers_that_differ_are_an_error(self):
        model = BertClassifier(toy.CONFIG, 2)
        randomize(model)
        inputs = {
            name: tf.TensorSpec([None, None], tf.int32, name) for name in model.input
        }
        tensors = tf.function(model.call, input_signature=[inputs])
        module = tf.Module()
        module.model = model
        folder = os.path.join(self.get_temp_dir(), "saved")
        tf.saved_model.save(module, folder, signatures={"tensors": tensors})
        with self.assertLogs() as logs:
            runtimes.check(folder, "saved_model", model)
        self.assertIn("Run by tensorflow: its outputs differ", logs.output[-1])
        weight = model.weights[-1]
        weight.assign_add([0.01, 0.0])
        with self.assertRaisesRegex(InputError, "saved: its logits differs from the"):
            runtimes.check(folder, "saved_model", model)

    def test_what_is_not_run_is_said(self):
        model = BertClassifier(toy.CONFIG, 2)
        absent = mock.patch.object(runtimes.importlib.util, "find_spec", lambda _: None)
        with absent, mock.patch.object(tf, "lite", None), self.assertLogs() as logs:
            runtimes.check("x.tflite", "litert", model)
        self.assertIn("pip install ai-edge-litert", logs.output[-1])
