import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.addons.methods.muon import Muon
from bert_tf.optimization.optimizers import AdamWeightDecay

pytestmark = pytest.mark.jax

RATE, DECAY = 0.05, 0.1


def variable(name, values):
    return keras.Variable(np.asarray(values, np.float32), name=name)


def gradients_of(shape, num_steps):
    rng = np.random.default_rng(1)
    return rng.normal(size=(num_steps, *shape)).astype(np.float32)


def trained(optimizer, weight, gradients):
    optimizer.build([weight])
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)])
    return keras.ops.convert_to_numpy(weight)


class MuonTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters([(24, 24)], [(16, 48)], [(48, 16)])
    def test_a_step_is_nearly_orthogonal(self, shape):
        (gradient,) = gradients_of(shape, 1)
        weight = trained(
            Muon(RATE, weight_decay_rate=0.0),
            variable("kernel", np.zeros(shape)),
            [gradient],
        )
        # NumPy's singular vectors of the gradient are those of the step.
        left, _, right = np.linalg.svd(gradient, full_matrices=False)
        step = left.T @ -weight @ right.T / (RATE * 0.2 * np.sqrt(max(shape)))
        self.assertAllInRange(np.diag(step), 0.4, 1.3)
        self.assertAllClose(step, np.diag(np.diag(step)), atol=1e-3)

    @parameterized.parameters([(8, 8)], [(6, 20)])
    def test_matrices_as_keras_own(self, shape):
        start = np.random.default_rng(0).normal(size=shape)
        gradients = gradients_of(shape, 7)
        ours = trained(
            Muon(RATE, weight_decay_rate=DECAY), variable("kernel", start), gradients
        )
        keras_own = keras.optimizers.Muon(RATE, weight_decay=DECAY)
        theirs = trained(keras_own, variable("kernel", start), gradients)
        self.assertAllClose(ours, theirs, atol=1e-5)

    @parameterized.parameters(
        ("word_embeddings", (5, 3)), ("bias", (7,)), ("output_weights", (2, 3))
    )
    def test_all_else_is_adams(self, name, shape):
        start = np.random.default_rng(0).normal(size=shape)
        results = [
            trained(optimizer, variable(name, start), gradients_of(shape, 5))
            for optimizer in (Muon(RATE), AdamWeightDecay(RATE, bias_correction=True))
        ]
        self.assertAllEqual(*results)

    def test_skips_what_is_not_finite(self):
        weight = variable("kernel", [[3.0, 4.0], [1.0, 2.0]])
        optimizer = Muon(RATE, skip_nonfinite=True)
        optimizer.build([weight])
        gradient = np.ones((2, 2), np.float32)
        optimizer.apply([gradient], scale=keras.ops.convert_to_tensor(0.5))
        before = keras.ops.convert_to_numpy(weight)
        moments = keras.ops.convert_to_numpy(optimizer.moments(weight)[0])
        self.assertAllClose(moments, 0.5 * 0.05 * gradient)
        gradient[0, 0] = np.inf
        optimizer.apply([gradient], scale=keras.ops.convert_to_tensor(np.nan))
        self.assertAllEqual(keras.ops.convert_to_numpy(weight), before)
        after = keras.ops.convert_to_numpy(optimizer.moments(weight)[0])
        self.assertAllEqual(after, moments)


if __name__ == "__main__":
    tf.test.main()
