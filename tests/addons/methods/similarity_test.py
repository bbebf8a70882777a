import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from keras import ops

from bert_tf.addons.methods import similarity
from bert_tf.modeling import pooling

# Four examples: anchors, positives, negatives, and the scores of the first two.
TEXTS = np.array(
    [
        [[1, 2, 0], [2, 1, 1], [-1, 1, 0]],
        [[0, 1, -1], [0, 2, -1], [1, 1, 1]],
        [[2, -1, 1], [1, -1, 2], [0, -2, 1]],
        [[-1, 0, 3], [0, 1, 2], [2, 0, -1]],
    ],
    np.float32,
)
SCORES = np.array([[0.9], [0.2], [0.5], [0.5]], np.float32)
# What the losses of sentence-transformers 6.2.0 (torch 2.14.1) give for them: name,
# scale, number of texts, number of examples.
EXPECTED = (
    ("multiple_negatives_ranking", 20.0, 2, 4, 0.4170188903808594),
    ("multiple_negatives_ranking", 20.0, 3, 4, 0.5172739028930664),
    ("multiple_negatives_ranking", 2.0, 3, 4, 1.1976486444473267),
    ("multiple_negatives_ranking", 20.0, 3, 3, 0.6827303767204285),
    ("simcse", 20.0, 2, 4, 0.4170188903808594),
    ("cosine_similarity", 20.0, 2, 4, 0.20547717809677124),
    ("cosine_similarity", 20.0, 2, 3, 0.23347896337509155),
    ("cosent", 20.0, 2, 4, 4.7519731521606445),
    ("cosent", 20.0, 2, 3, 4.582520484924316),
    ("cosent", 2.0, 2, 4, 2.018173933029175),
)


def batch(num_texts, num_real):
    records = {
        "input_ids": np.ones((4, num_texts, 5), np.int32),
        "label_ids": SCORES,
        "is_real_example": (np.arange(4) < num_real)[:, None].astype(np.int32),
    }
    return records, {"embeddings": ops.convert_to_tensor(TEXTS[:, :num_texts])}


def only_loss(name, scale):
    (loss,) = similarity.LOSSES[name](scale).losses.values()
    return loss


class _RowsOfReplica:
    """A replica's rows of a batch that the test has whole."""

    def __init__(self, whole, number):
        self._whole, self._own = whole, slice(2 * number, 2 * number + 2)

    def of_all(self, arrays):
        return self._whole[0] if "input_ids" in arrays else self._whole[1]

    def own(self, values):
        return values[self._own]


@pytest.mark.jax
class SimilarityTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*EXPECTED)
    def test_losses(self, name, scale, num_texts, num_real, expected):
        """Padding is no candidate, and in no order."""
        mean = only_loss(name, scale)(*batch(num_texts, num_real))
        self.assertAllClose(float(mean.weight), num_real)
        self.assertAllClose(float(mean.value()), expected, rtol=1e-6)

    @parameterized.parameters("multiple_negatives_ranking", "cosent")
    def test_two_replicas_have_the_loss_of_the_whole_batch(self, name):
        whole = batch(2, 3)
        parts = [
            only_loss(name, 20.0)(
                *(
                    {key: value[2 * n : 2 * n + 2] for key, value in x.items()}
                    for x in whole
                ),
                rows=_RowsOfReplica(whole, n),
            )
            for n in range(2)
        ]
        total, weight = (sum(float(part[i]) for part in parts) for i in (0, 1))
        expected = float(only_loss(name, 20.0)(*whole).value())
        self.assertAllClose(total / weight, expected, rtol=1e-6)

    def test_a_vector_of_0(self):
        """That of padding has a direction no more than a gradient."""
        self.assertAllEqual(similarity.unit(np.zeros((1, 3), np.float32)), [[0, 0, 0]])

    @parameterized.parameters(
        ("mean", [[2.0, 3.0], [0.0, 0.0]]),
        ("max", [[3.0, 5.0], [-1e9, -1e9]]),
        ("cls", [[1.0, 5.0], [8.0, 8.0]]),
    )
    def test_pooling(self, kind, expected):
        states = np.array([[[1, 5], [3, 1], [9, 9]], [[8, 8]] * 3], np.float32)
        mask = np.array([[1, 1, 0], [0, 0, 0]])
        self.assertAllEqual(pooling.pooled_tokens(states, mask, kind), expected)
        layer = pooling.SentencePooling(kind)
        both = layer(np.tile(states, (2, 1, 1)), np.stack([mask, mask]))
        self.assertAllEqual(both, [expected, expected])


if __name__ == "__main__":
    tf.test.main()
