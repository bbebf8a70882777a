"""Integrated gradients against numpy's BERT: differences in place of gradients."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.addons.serving.explanations import integrated_gradients
from bert_tf.modeling.heads import BertSpanPredictor
from bert_tf.modeling.weight_names import weights_by_name
from tests.modeling import numpy_bert
from tests.modeling.examples import randomize
from tests.training import toy

pytestmark = pytest.mark.jax
WORDS = "bert/embeddings/word_embeddings"


def record_of(ids):
    ids = np.array([ids], np.int32)
    segments = np.array([[0] * 3 + [1] * (ids.shape[1] - 3)], np.int32)
    return {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": segments}


def numpy_attributions(weights, config, record, baseline, place, points=60):
    """The midpoint rule, and central differences of each token's gate."""
    ids, others = record["input_ids"][0], baseline[0]
    length, table = len(ids), np.float64(weights[WORDS])

    def score(gates):
        rows = table[others] + gates[:, None] * (table[ids] - table[others])
        those = {**weights, WORDS: np.concatenate([table, rows])}
        one = {name: value[0] for name, value in record.items()}
        one["input_ids"] = len(table) + np.arange(length)
        states, _ = numpy_bert.sequence_outputs(those, config, one)
        kernel, bias = (
            weights[f"cls/squad/output_{name}"] for name in ("weights", "bias")
        )
        logits = states[-1] @ np.float64(kernel).T + bias
        return logits[place, 0] + logits[place + 1, 1]

    found = np.zeros(length)
    step = 1e-4 * np.eye(length)
    for number in range(points):
        gates = np.full(length, (number + 0.5) / points)
        found += [
            (score(gates + one) - score(gates - one)) / 2e-4 / points for one in step
        ]
    return found, score(np.ones(length)), score(np.zeros(length))


class IntegratedGradientsTest(tf.test.TestCase):
    def check(self, config):
        model = BertSpanPredictor(config)
        randomize(model)
        record = record_of([2, 9, 3, 17, 21, 11, 3])
        baseline = record["input_ids"].copy()
        baseline[0, [1, 3, 4, 5]] = 4
        found = integrated_gradients(
            model,
            record,
            baseline,
            lambda out: out["start_logits"][:, 3] + out["end_logits"][:, 4],
            batch_size=5,
        )
        weights = {name: np.array(v) for name, v in weights_by_name(model).items()}
        values, score, baseline_score = numpy_attributions(
            weights, config, record, baseline, 3
        )
        self.assertAllClose(found.values, values, atol=2e-4, rtol=2e-3)
        self.assertAllClose(found.score, score, atol=1e-5)
        self.assertAllClose(found.baseline_score, baseline_score, atol=1e-5)
        self.assertAllEqual(found.values[[0, 2, 6]], [0.0, 0.0, 0.0])
        self.assertLessEqual(found.gap, 0.01)

    def test_of_bert(self):
        self.check(dataclasses.replace(toy.CONFIG, num_hidden_layers=2))

    def test_embeddings_of_another_width(self):
        self.check(
            dataclasses.replace(toy.CONFIG, embedding_size=5, num_hidden_groups=1)
        )

    def test_points_are_added_until_they_are_enough(self):
        model = BertSpanPredictor(toy.CONFIG)
        randomize(model)
        for weight in model.weights:
            weight.assign(1.5 * weight)  # far from linear
        record = record_of([2, 9, 3, 17, 21, 11, 3])
        baseline = np.where(record["input_ids"] > 4, 4, record["input_ids"])

        def attributions(**options):
            return integrated_gradients(
                model,
                record,
                baseline,
                lambda out: out["start_logits"][:, 3],
                **options,
            )

        few = attributions(steps=1, max_steps=1)
        self.assertGreater(few.gap, 0.01)
        enough = attributions(steps=1)
        self.assertGreater(enough.steps, 1)
        self.assertLessEqual(enough.gap, 0.01)
        total = enough.values.sum()
        self.assertAllClose(total, enough.score - enough.baseline_score, rtol=0.01)
