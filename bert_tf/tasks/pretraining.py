"""Pre-training as a task: the masked LM, with next sentence prediction or alone."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.objectives import MASKED_LM, NEXT_SENTENCE
from bert_tf.training.task import Task
from bert_tf.training.throughput import pretraining_flops


def pretraining_task(
    config: BertConfig,
    next_sentence: bool = True,
    packed: bool = False,
    recompute: bool = False,
) -> Task:
    """The task of pre-training a model of that architecture."""
    build_model = functools.partial(
        BertPretrainer, config, packed=packed, recompute=recompute
    )
    if next_sentence:
        return Task(
            name="pretraining",
            build_model=build_model,
            objective=MASKED_LM + NEXT_SENTENCE,
            training_flops=functools.partial(pretraining_flops, config),
        )
    return Task(
        name="pretraining",
        build_model=lambda: _masked_lm_alone(build_model()),
        objective=MASKED_LM,
        training_flops=functools.partial(
            pretraining_flops, config, next_sentence=False
        ),
        unmeasured=("bert/pooler/", "cls/seq_relationship/"),
    )


# Metric -> labels and their weights in a batch; all weigh 1 where there are none.
_LABELS = {
    "masked_lm_majority": ("masked_lm_ids", "masked_lm_weights"),
    "next_sentence_majority": ("next_sentence_labels", "next_sentence_weights"),
}


class Majority:
    """What always giving the most frequent label would score on the batches seen.

    Next sentence labels may be far from even, so that their accuracy shows nothing
    without it.
    """

    def __init__(self, task: Task) -> None:
        self._counts = {
            name: np.zeros(0)
            for name in _LABELS
            if name.replace("majority", "accuracy") in task.objective.metrics
        }

    def add(self, batch: Mapping[str, Any]) -> None:
        """Counts a batch's labels."""
        for name, counts in self._counts.items():
            labels_key, weights_key = _LABELS[name]
            labels = np.asarray(batch[labels_key]).ravel()
            weights = np.asarray(batch.get(weights_key, np.ones_like(labels))).ravel()
            more = np.bincount(labels, weights, len(counts)).astype(np.float64)
            more[: len(counts)] += counts
            self._counts[name] = more

    def scores(self) -> dict[str, float]:
        """The share of the most frequent label of each kind."""
        return {
            name: float(counts.max() / counts.sum()) if counts.any() else 0.0
            for name, counts in self._counts.items()
        }


def _masked_lm_alone(model: BertPretrainer) -> BertPretrainer:
    """The whole model, of which the optimizer sees what the masked LM depends on.

    A weight without a gradient would still decay.
    """
    model.encoder.get_layer("pooler").trainable = False
    model.get_layer("seq_relationship").trainable = False
    return model
