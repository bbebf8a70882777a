"""The files for LiteRT, run by its interpreter, which has none of TensorFlow's kernels.

An operation that is not LiteRT's own would be an error there.
"""

import dataclasses
import os
import tempfile

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.addons.serving import runtimes
from bert_tf.addons.serving import saved_model as serving
from bert_tf.base.errors import InputError
from bert_tf.conversion.export import completed
from bert_tf.conversion.source import open_source
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from tests.modeling.examples import randomize
from tests.training import toy

pytest.importorskip("ai_edge_litert")

S = 9


def changed(**fields):
    return dataclasses.replace(toy.CONFIG, **fields)


class LiteRtTest(tf.test.TestCase):
    def written(self, model, config=toy.CONFIG, quantize=None):
        """The file of a random model."""
        randomize(model)
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        toy.save_checkpoint(folder, model)
        toy.write_config(folder, config)
        source = completed(open_source(folder))
        head = serving.head_to_serve(source)
        serving.write_litert(folder, source, head, quantize)
        return os.path.join(folder, runtimes.LITERT_NAME)

    def differences(self, path, model, shape):
        """Of each output, the largest as a share of the output's largest."""
        rng = np.random.default_rng(len(shape))
        inputs = {
            name: rng.integers(0, 2, shape).astype(np.int32) for name in model.input
        }
        inputs["input_ids"] = rng.integers(0, toy.V, shape).astype(np.int32)
        inputs["input_mask"][..., :3] = 1
        found = runtimes.LiteRtModel(path)(inputs)
        expected = model(inputs, training=False)
        self.assertEqual({*found}, {*expected})
        differences = []
        for name, value in expected.items():
            wanted = np.asarray(value)
            self.assertEqual(found[name].shape, wanted.shape)
            difference = np.abs(found[name] - wanted).max()
            differences.append(difference / np.abs(wanted).max())
        return differences

    def check(self, model, config=toy.CONFIG, shape=(3, S)):
        """The file's outputs are Keras', of any batch and length."""
        path = self.written(model, config)
        for size in (shape, (1, *shape[1:-1], 4), (5, *shape[1:-1], 16)):
            self.assertLess(max(self.differences(path, model, size)), 1e-5)

    def test_heads_of_texts(self):
        self.check(BertClassifier(toy.CONFIG, 3))
        self.check(BertMultipleChoice(toy.CONFIG), shape=(2, 3, S))

    def test_heads_of_tokens(self):
        self.check(BertTagger(toy.CONFIG, 5))
        self.check(BertSpanPredictor(toy.CONFIG))

    def test_pretraining_and_features(self):
        self.check(BertPretrainer(toy.CONFIG))
        self.check(BertEncoder(toy.CONFIG))

    def test_models_that_read_in_one_direction(self):
        for config in (changed(left_to_right=True), changed(right_to_left=True)):
            self.check(BertClassifier(config, 2), config)

    def test_other_models(self):
        albert = changed(embedding_size=4, num_hidden_groups=1, inner_group_num=1)
        self.check(BertClassifier(albert, 2), albert)
        config = changed(hidden_act="gelu_erf")
        self.check(BertTagger(config, 2), config)

    def test_local_attention(self):
        for more in ({}, {"global_tokens": 1}):
            config = changed(attention_window=2, **more)
            self.check(BertClassifier(config, 2), config)

    def test_a_bilstm_reads_a_row_at_a_time(self):
        config = changed(bilstm=True)
        self.check(BertClassifier(config, 2), config)
        with self.assertRaisesRegex(InputError, "express this model: 'tf.TensorList"):
            self.written(BertMultipleChoice(config), config)

    def test_quantized_weights_are_near(self):
        for more in ({}, {"attention_window": 2, "global_tokens": 1}):
            self.check_quantized(**more)

    def check_quantized(self, **more):
        # Tensors of few numbers stay as they are.
        config = changed(hidden_size=64, intermediate_size=128, **more)
        model = BertClassifier(config, 3)
        sizes, differences = [], []
        for quantize in (None, "float16", "int8"):
            path = self.written(model, config, quantize)
            sizes.append(os.path.getsize(path))
            differences.append(*self.differences(path, model, (3, S)))
        single, half, quarter = differences
        self.assertLess(single, 1e-5)
        self.assertBetween(half, 1e-5, 0.005)
        self.assertBetween(quarter, 0.001, 0.1)
        weights = 4 * model.count_params()
        self.assertLess(sizes[1], sizes[0] - 0.4 * weights)
        self.assertLess(sizes[2], sizes[0] - 0.6 * weights)
