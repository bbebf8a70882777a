"""Sentence and sentence-pair classification and regression as a task.

Devlin et al. 2018, section 4.1: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]; the pooled
output goes through dropout into one linear layer.
"""

import functools
from collections.abc import Iterable, Sequence

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.modeling.flops import classifier_flops
from bert_tf.modeling.heads import BertClassifier
from bert_tf.modeling.objectives import CLASSIFICATION, REGRESSION
from bert_tf.task import Task
from bert_tf.tasks.examples import Example
from bert_tf.text.wordpiece import WordPieceTokenizer

Features = dict[str, list[int] | list[float]]


def task(
    config: BertConfig,
    labels: Sequence[str] | None,
    name: str,
    *,
    recompute: bool = False,
) -> Task:
    """The task of telling classes apart, or of predicting a number.

    Args:
        config: the model's architecture.
        labels: the classes; None for regression, whose loss is the mean squared error.
        name: the task's name, for messages.
        recompute: whether the backward pass computes each layer's activations once
            more, rather than that they are kept.
    """
    num_labels = 1 if labels is None else len(labels)
    return Task(
        name=name,
        build_model=lambda: BertClassifier(config, num_labels, recompute=recompute),
        objective=REGRESSION if labels is None else CLASSIFICATION,
        training_flops=functools.partial(
            classifier_flops, config, num_labels=num_labels
        ),
    )


def features(
    examples: Iterable[Example],
    tokenizer: WordPieceTokenizer,
    *,
    max_seq_length: int,
    labels: Sequence[str] | None,
) -> Iterable[Features]:
    """The records of examples, as `bert_tf.records.schema.classifier_schema` has them.

    Args:
        examples: the sentences.
        tokenizer: the model's.
        max_seq_length: the length that sequences are cut or padded to.
        labels: the classes by id; None for regression.

    Raises:
        InputError: a label is not among the classes, or not a number (names the line).
    """
    ids = _ids(labels)
    vocabulary = tokenizer.vocabulary
    for example in examples:
        tokens_a = tokenizer.encode(example.text_a)
        tokens_b = tokenizer.encode(example.text_b) if example.text_b else []
        tokens_a, tokens_b = truncate_pair(
            tokens_a, tokens_b, max_seq_length - (3 if tokens_b else 2)
        )
        input_ids = [vocabulary.cls_id, *tokens_a, vocabulary.sep_id]
        segment_ids = [0] * len(input_ids)
        if tokens_b:
            input_ids += [*tokens_b, vocabulary.sep_id]
            segment_ids += [1] * (len(tokens_b) + 1)
        padding = [0] * (max_seq_length - len(input_ids))
        yield {
            "input_ids": input_ids + padding,
            "input_mask": [1] * len(input_ids) + padding,
            "segment_ids": segment_ids + padding,
            "label_ids": [_label(example, ids)],
            "is_real_example": [1],
        }


def check_labels(examples: Iterable[Example], labels: Sequence[str] | None) -> None:
    """Raises InputError, naming the line, if a label is none that `features` takes."""
    ids = _ids(labels)
    for example in examples:
        _label(example, ids)


def padding_features(max_seq_length: int) -> Features:
    """The record that fills the last batch up and counts for nothing."""
    zeros = [0] * max_seq_length
    return {
        "input_ids": zeros,
        "input_mask": zeros,
        "segment_ids": zeros,
        "label_ids": [0],
        "is_real_example": [0],
    }


def truncate_pair(
    tokens_a: list[int], tokens_b: list[int], max_length: int
) -> tuple[list[int], list[int]]:
    """Cuts two sequences to `max_length` together, always the longer one by its end.

    At equal lengths the second one gives way, as in the original.
    """
    length_a, length_b = len(tokens_a), len(tokens_b)
    excess = length_a + length_b - max_length
    if excess > 0:
        # First the longer one comes down to the other's length, then both in turn,
        # the second one first.
        cut_b = min(excess, max(0, length_b - length_a))
        cut_a = min(excess, max(0, length_a - length_b))
        rest = excess - cut_a - cut_b
        length_a -= cut_a + rest // 2
        length_b -= cut_b + (rest + 1) // 2
    return tokens_a[:length_a], tokens_b[:length_b]


def _ids(labels: Sequence[str] | None) -> dict[str, int] | None:
    return None if labels is None else {label: i for i, label in enumerate(labels)}


def _label(example: Example, ids: dict[str, int] | None) -> int | float:
    if example.label is None:
        return 0
    if ids is None:
        try:
            return float(example.label)
        except ValueError as error:
            raise InputError(
                f"{example.source}: the label must be a number. Found:"
                f" {example.label!r}."
            ) from error
    if example.label not in ids:
        raise InputError(
            f"{example.source}: the label must be one of {', '.join(ids)}. Found:"
            f" {example.label!r}."
        )
    return ids[example.label]
