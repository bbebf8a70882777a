"""Tagging as a task: a label for every word, such as a named entity's.

Devlin et al. 2018, section 5.3: the label is predicted from the output of the word's
first token. Words and windows are made in `bert_tf.tagging`.

A record (`schema`), L being max_seq_length:

    input_ids, input_mask  int64[L]    [CLS] window [SEP], padded with 0
    segment_ids            int64[L]    0
    label_ids              int64[L]    at a word's first token its label, else 0
    label_weights          int64[L]    1 where a word is predicted, else 0: padding, the
                                       other tokens, words that another window shows
                                       better, labels that the model does not have

R records of a block, W words of all.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.modeling.heads import BertTagger
from bert_tf.modeling.objectives import TAGGING
from bert_tf.records.spec import INT64, Feature, RecordSchema
from bert_tf.tagging.features import Features
from bert_tf.training.task import Task
from bert_tf.training.throughput import tagger_flops

# Of a word whose label the model does not have.
NO_LABEL = -1

_SEQUENCES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "label_ids",
    "label_weights",
)
_RECORDS_AT_ONCE = 1024


def task(
    config: BertConfig,
    num_labels: int,
    *,
    name: str = "tagging",
    recompute: bool = False,
    **options: Any,
) -> Task:
    """The task of labelling words."""
    return Task(
        name=name,
        build_model=lambda: BertTagger(
            config, num_labels, recompute=recompute, **options
        ),
        objective=TAGGING,
        training_flops=functools.partial(tagger_flops, config, num_labels=num_labels),
    )


def schema(max_seq_length: int) -> RecordSchema:
    """What a record holds."""
    return RecordSchema(
        [
            Feature(name, INT64, (max_seq_length,), "max_seq_length")
            for name in _SEQUENCES
        ]
    )


def blocks(
    features: Iterable[Features], labels: np.ndarray, max_seq_length: int
) -> Iterator[dict[str, np.ndarray]]:
    """The records of windows, many at once."""
    group: list[Features] = []
    for one in features:
        group.append(one)
        if len(group) == _RECORDS_AT_ONCE:
            yield _block(group, labels, max_seq_length)
            group = []
    if group:
        yield _block(group, labels, max_seq_length)


def _block(
    group: list[Features], labels: np.ndarray, max_seq_length: int
) -> dict[str, np.ndarray]:
    block = {
        name: np.zeros([len(group), max_seq_length], np.int64) for name in _SEQUENCES
    }
    for row, (ids, places, words) in enumerate(group):
        block["input_ids"][row, : len(ids)] = ids
        block["input_mask"][row, : len(ids)] = 1
        is_known = labels[words] != NO_LABEL
        block["label_ids"][row, places[is_known]] = labels[words[is_known]]
        block["label_weights"][row, places[is_known]] = 1
    return block
