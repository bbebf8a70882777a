"""Sentence and sentence-pair classification and regression as a task.

Devlin et al. 2018, section 4.1: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]; the pooled
output goes through dropout into one linear layer. Several labels at once, each with a
sigmoid of its own, and several numbers go the same way.

Shapes: N examples, R records, L tokens of a record.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.modeling.heads import BertClassifier
from bert_tf.modeling.objectives import CLASSIFIERS
from bert_tf.records.spec import RecordSchema, classifier_schema
from bert_tf.tasks.examples import Example
from bert_tf.tasks.targets import Target
from bert_tf.tasks.windows import windows_of_pair
from bert_tf.text.wordpiece import (
    Tokens,
    WordPieceTokenizer,
    pair_features,
    truncate_pair,
)
from bert_tf.training.task import Task
from bert_tf.training.throughput import classifier_flops

_EXAMPLES_AT_ONCE = 1024


def task(
    config: BertConfig,
    target: Target,
    name: str,
    *,
    recompute: bool = False,
    **options: Any,
) -> Task:
    """The task of predicting a target."""
    return Task(
        name=name,
        build_model=lambda: BertClassifier(
            config,
            target.num_outputs,
            problem_type=target.kind,
            recompute=recompute,
            **options,
        ),
        objective=CLASSIFIERS[target.kind],
        training_flops=functools.partial(
            classifier_flops, config, num_labels=target.num_outputs
        ),
    )


def schema(target: Target, max_seq_length: int) -> RecordSchema:
    """What a record of a target holds."""
    return classifier_schema(max_seq_length, target.label_dtype, target.label_length)


def check_labels(examples: Iterable[Example], target: Target) -> None:
    """Raises InputError, naming the line, if a label is none that the target takes."""
    for example in examples:
        target.encode(example.label, example.source)


class Featurizer:
    """Makes examples into records: tokenized, cut or in windows, padded.

    Attributes:
        num_truncated: how many of the examples seen last have lost tokens.
        window_counts: how many records each of them became; empty without windows.
    """

    def __init__(
        self,
        tokenizer: WordPieceTokenizer,
        *,
        max_seq_length: int,
        target: Target,
        windows: bool = False,
        doc_stride: int | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._target = target
        self._windows = windows
        self._doc_stride = doc_stride
        self.num_truncated = 0
        self.window_counts: list[int] = []

    @property
    def settings(self) -> dict[str, Any]:
        """All that the records depend on beside the examples, as JSON has it."""
        return {
            "vocabulary": self._tokenizer.vocabulary.sha256,
            "do_lower_case": self._tokenizer.do_lower_case,
            "max_seq_length": self._max_seq_length,
            "target": [self._target.kind, self._target.labels, self._target.separator],
            "windows": self._windows,
            "doc_stride": self._doc_stride if self._windows else None,
        }

    def blocks(self, examples: Iterable[Example]) -> Iterator[dict[str, np.ndarray]]:
        """The records of examples, many at once, as `schema` has them."""
        self.num_truncated = 0
        self.window_counts = []
        remaining = iter(examples)
        while block := list(itertools.islice(remaining, _EXAMPLES_AT_ONCE)):
            yield self._block(block)

    def _block(self, examples: Sequence[Example]) -> dict[str, np.ndarray]:
        pairs, labels = [], []
        for example in examples:
            label = self._target.encode(example.label, example.source)
            for pair in self._texts(example):
                pairs.append(pair)
                labels.append(label)
        return {
            **pair_features(pairs, self._tokenizer.vocabulary, self._max_seq_length),
            "label_ids": np.array(labels, self._target.label_dtype),
            "is_real_example": np.ones((len(labels), 1), np.int64),
        }

    def _texts(self, example: Example) -> Sequence[tuple[Tokens, Tokens]]:
        """The tokens of an example's records: of the first text and of the second."""
        tokens_a = self._tokenizer.encode(example.text_a)
        tokens_b = self._tokenizer.encode(example.text_b) if example.text_b else []
        room = self._max_seq_length - (3 if tokens_b else 2)
        if self._windows:
            pairs, is_cut = windows_of_pair(tokens_a, tokens_b, room, self._doc_stride)
            self.window_counts.append(len(pairs))
        else:
            pairs = [truncate_pair(tokens_a, tokens_b, room)]
            is_cut = len(tokens_a) + len(tokens_b) > room
        self.num_truncated += is_cut
        return pairs
