import dataclasses
import os
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.conversion.source import open_source
from bert_tf.errors import InputError
from bert_tf.features.inputs import FeatureInput
from bert_tf.features.layers import LayerSelection
from bert_tf.finetuning.feature_session import FeatureSession
from bert_tf.modeling.encoder import BertEncoder
from tests.modeling import numpy_bert
from tests.modeling.examples import randomize
from tests.training import toy

INPUTS = [
    FeatureInput(ids, [0] * len(ids), [], spans)
    for ids, spans in (
        ([2, 7, 8, 9, 3], [(1, 3), (3, 4)]),
        ([2, 3], []),
        ([2, 11, 12, 3], [(1, 2)]),
    )
]


class FeatureSessionTest(tf.test.TestCase):
    def checkpoint(self, **options):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        toy.write_config(folder)
        model = BertEncoder(toy.CONFIG, **options)
        self.weights = randomize(model)
        toy.save_checkpoint(folder, model, 1, 1)
        return open_source(folder)

    def session(self, source, **options):
        return FeatureSession(
            source,
            LayerSelection.parse("embeddings,-1", 1, combine="concat"),
            tf.distribute.get_strategy(),
            batch_size=2,
            max_seq_length=8,
            **options,
        )

    def test_features_are_computed_once_and_read_back(self):
        session = self.session(self.checkpoint())
        folder = os.path.join(self.get_temp_dir(), "cache")
        found = session.cached(INPUTS, folder)
        self.assertLen(found, 3)
        for number, firsts in ((0, [1, 3]), (1, []), (2, [1])):
            ids = INPUTS[number].ids
            record = {
                "input_ids": ids,
                "input_mask": [1] * len(ids),
                "segment_ids": [0] * len(ids),
            }
            states, _ = numpy_bert.sequence_outputs(self.weights, toy.CONFIG, record)
            expected = np.concatenate(states, axis=1)[firsts]
            self.assertAllClose(found[number][:, 0], expected, atol=1e-5)
        with mock.patch.object(session, "extract", side_effect=AssertionError):
            again = session.cached(INPUTS, folder)
            self.assertAllEqual(again.vectors, found.vectors)
            with self.assertRaises(AssertionError):
                session.cached(INPUTS[:2], folder)
            with self.assertRaises(AssertionError):
                session.cached(INPUTS, folder, vector_type="float16")

    def test_what_the_features_hang_on(self):
        source = self.checkpoint()
        made = self.session(source).settings
        for change, is_same in (
            ({"hidden_act": "relu"}, False),
            ({"layer_norm_eps": 1e-6}, False),
            ({"hidden_dropout_prob": 0.3}, True),
        ):
            config = dataclasses.replace(toy.CONFIG, **change)
            found = self.session(dataclasses.replace(source, config=config)).settings
            self.assertEqual(found == made, is_same, change)

    def test_without_a_pooler(self):
        source = self.checkpoint(use_pooler=False)
        with self.assertRaisesRegex(InputError, "has no pooler: leave `pooled` out"):
            self.session(source, sentence_vectors=["pooled"])


if __name__ == "__main__":
    tf.test.main()
