import numpy as np
import tensorflow as tf

from bert_tf.errors import DivergedError
from bert_tf.finetuning.tagging_prediction import predict_words
from bert_tf.tagging.features import Features
from bert_tf.tasks import tagging

NUM_LABELS = 5


def echo(batches, total):
    """A model that says of token n the label n % 5, with p = 6 / 10."""
    for batch in batches:
        batch = {name: np.asarray(value) for name, value in batch.items()}
        is_said = batch["input_ids"][:, :, None] % NUM_LABELS == np.arange(NUM_LABELS)
        yield batch, {"logits": np.where(is_said, np.log(6.0), 0.0).astype(np.float32)}


def windows(number, seed=0):
    """Windows of random lengths; and the token that each word begins with."""
    generator = np.random.default_rng(seed)
    found, tokens = [], []
    for _ in range(number):
        ids = generator.integers(5, 99, generator.integers(3, 12))
        places = np.flatnonzero(generator.random(len(ids)) < 0.5)
        found.append(
            Features(ids.tolist(), places, len(tokens) + np.arange(len(places)))
        )
        tokens += ids[places].tolist()
    return found, np.array(tokens)


class PredictWordsTest(tf.test.TestCase):
    def test_each_word_has_the_label_of_its_first_token(self):
        features, tokens = windows(37)
        labels = tokens % NUM_LABELS
        labels[1::3] = (labels[1::3] + 1) % NUM_LABELS
        labels[2::3] = tagging.NO_LABEL
        losses = np.zeros(len(tokens))
        losses[0::3], losses[1::3] = -np.log(0.6), -np.log(0.1)
        for batch_size, max_lengths in ((4, 3), (4, None), (64, 12), (1, 1)):
            found = predict_words(
                features,
                labels,
                echo,
                batch_size=batch_size,
                max_seq_length=12,
                max_lengths=max_lengths,
            )
            self.assertAllEqual(found.label_ids, tokens % NUM_LABELS)
            self.assertAllClose(found.losses, losses)

    def test_scores_that_are_not_finite(self):
        def diverged(batches, total):
            for batch, outputs in echo(batches, total):
                yield batch, {"logits": outputs["logits"] * np.nan}

        features, tokens = windows(3)
        with self.assertRaisesRegex(DivergedError, "lower --learning_rate"):
            predict_words(
                features,
                tokens % NUM_LABELS,
                diverged,
                batch_size=4,
                max_seq_length=12,
                max_lengths=None,
            )


if __name__ == "__main__":
    tf.test.main()
