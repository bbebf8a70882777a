"""Examples of a fine-tuning task, for the toy BERT: eleven of different lengths."""

from unittest import mock

import numpy as np

from bert_tf.modeling.heads import BertClassifier
from bert_tf.modeling.objectives import CLASSIFIERS
from bert_tf.records import batching
from bert_tf.records.batching import ExampleTable
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks.run_options import FineTuningOptions
from bert_tf.tasks.tables import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Target
from bert_tf.training.task import Task
from tests.training import toy

L = 12
# Each example's label is its number, so that a batch tells which ones it holds.
TARGET = Target(kind=REGRESSION)
# In batches of 4 the last one of an epoch lacks one.
LENGTHS = (3, 12, 5, 4, 9, 3, 7, 11, 4, 6, 8)


def blocks(target=TARGET, lengths=LENGTHS):
    """The records, five at once."""
    rng = np.random.default_rng(0)
    is_token = np.arange(L) < np.array(lengths)[:, None]
    labels = np.arange(len(lengths))[:, None]
    if target.kind == MULTI_LABEL:
        labels = np.stack([labels[:, 0] >> bit & 1 for bit in range(3)], axis=1)
    elif target.kind == SINGLE_LABEL:
        labels %= len(target.labels)
    whole = {
        "input_ids": np.where(is_token, rng.integers(5, toy.V, is_token.shape), 0),
        "input_mask": is_token.astype(np.int64),
        "segment_ids": (is_token & (np.arange(L) > 3)).astype(np.int64),
        "label_ids": labels.astype(target.label_dtype),
        "is_real_example": np.ones([len(lengths), 1], np.int64),
    }
    for start in range(0, len(lengths), 5):
        yield {name: value[start : start + 5] for name, value in whole.items()}


def prepare(target=TARGET):
    """The records."""
    spec = RecordSpec.classification(L, target.label_dtype, target.label_length)
    return ExampleTable(blocks(target), spec, target.kind)


def several_lengths():
    """Lets so few batches have several lengths, as many do."""
    return mock.patch.multiple(
        batching, _BATCHES_PER_LENGTH=1, _BATCHES_PER_LENGTH_FORWARD=1
    )


def options(**values):
    """The options that `finetune` reads."""
    return FineTuningOptions(**{"output_dir": "o"} | values)


def engine_task(config, target, name, **options):
    """The task of predicting a target, for the engine alone."""
    return Task(
        name=name,
        build_model=lambda: BertClassifier(
            config, target.num_outputs, problem_type=target.kind, **options
        ),
        objective=CLASSIFIERS[target.kind],
    )
