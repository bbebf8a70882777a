"""Windows into the labels of their words.

Shapes: W words, R records, B batch, S a batch's length, C labels, N words of a batch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.errors import DivergedError
from bert_tf.records.batching import (
    PADDING,
    ROWS,
    EvaluationBatches,
    ExampleTable,
    LengthPlan,
    prediction_lengths,
)
from bert_tf.tagging.features import Features
from bert_tf.tasks import tagging

Arrays = Mapping[str, np.ndarray]
# (batches, how many) -> (batch, outputs), batch by batch.
Predict = Callable[[EvaluationBatches, int], Iterator[tuple[Arrays, Arrays]]]


class WordPredictions(NamedTuple):
    """What was predicted for W words.

    Attributes:
        label_ids: int [W], the likeliest label.
        losses: float64 [W], -log p of the true one; 0 where the model does not have it.
    """

    label_ids: np.ndarray
    losses: np.ndarray


def predict_words(
    features: Sequence[Features],
    labels: np.ndarray,
    predict: Predict,
    *,
    batch_size: int,
    max_seq_length: int,
    max_lengths: int | None,
) -> WordPredictions:
    """Predicts the words of some windows."""
    table = ExampleTable(
        tagging.blocks(features, labels, max_seq_length),
        tagging.schema(max_seq_length),
    )
    num_batches = -(-len(table) // batch_size)
    buckets: tuple[int, ...] = (max_seq_length,)
    if max_lengths is not None:
        buckets = prediction_lengths(table.lengths, num_batches, max_lengths)
    plan = LengthPlan(table.lengths, batch_size, buckets, seed=None).epoch(0)
    batches = EvaluationBatches(table, plan.rows, np.array(buckets)[plan.buckets])
    found = WordPredictions(np.zeros(len(labels), np.int64), np.zeros(len(labels)))
    for batch, outputs in predict(batches, num_batches):
        rows = [
            (number, features[row])
            for number, row in enumerate(batch[ROWS])
            if row != PADDING
        ]
        counts = [len(one.words) for _, one in rows]
        words = np.concatenate([one.words for _, one in rows])
        places = np.concatenate([one.places for _, one in rows])
        in_batch = np.repeat([number for number, _ in rows], counts)
        logits = outputs["logits"][in_batch, places]  # [N, C]
        if not np.isfinite(logits).all():
            raise DivergedError(
                "The model's scores are not finite: its weights are too large to be of"
                " use. Train again with a lower --learning_rate."
            )
        found.label_ids[words] = logits.argmax(axis=-1)
        found.losses[words] = _losses(logits, labels[words])
    return found


def _losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """-log p(label) [N]; 0 without a label."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    norm = np.log(np.exp(shifted).sum(axis=-1))
    is_known = labels != tagging.NO_LABEL
    of_label = shifted[np.arange(len(labels)), np.where(is_known, labels, 0)]
    return np.where(is_known, norm - of_label, 0.0)
