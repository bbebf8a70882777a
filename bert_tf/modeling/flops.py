"""How many floating-point operations BERT's mathematics takes.

A multiplication and an addition are 2 FLOPs, so a product of [m, k] and [k, n] takes
2 m k n. Only matrix products count: lookups, softmax and normalization are little
beside them. Training takes three times the forward pass: the backward pass has two
products for each of the forward pass's (Kaplan et al. 2020, arXiv:2001.08361, section
2.1). What is computed again to save memory does not count: divided by the time and by
the machine's peak this gives the model FLOPs utilization, MFU, of Chowdhery et al. 2022
(PaLM, arXiv:2204.02311, appendix B).

S sequence, P predictions, H hidden, I intermediate, N layers, V vocabulary, C labels
(a span has two: start and end).
One sequence, forward:

    queries, keys, values, attention output   N * 8 S H^2
    scores and context, each [S, S] a head    N * 4 S^2 H
    feed-forward network                      N * 4 S H I
    pooler, and labels from it                2 H^2 + 2 H C
    labels of every token                     2 S H C
    masked LM: transform, scores              2 P H^2 + 2 P H V

Rows of packed sequences take the attention of their whole length, which is what runs,
and as many poolers as they have slots for pairs. Each of several choices is a sequence
with one score.
"""

from collections.abc import Mapping

from bert_tf.config import BertConfig

Shapes = Mapping[str, tuple[int, ...]]

# The forward pass, and two products backwards for each of its products.
_TRAINING_OVER_FORWARD = 3
_NEXT_SENTENCE_LABELS = 2
_SPAN_LABELS = 2


def encoder_flops(config: BertConfig, seq_length: int) -> int:
    """FLOPs of the Transformer's layers on one sequence, forward.

    Args:
        config: the architecture.
        seq_length: S, padding included: it is computed as well.
    """
    hidden = config.hidden_size
    projections = 8 * seq_length * hidden**2
    attention = 4 * seq_length**2 * hidden
    feed_forward = 4 * seq_length * hidden * config.intermediate_size
    return config.num_hidden_layers * (projections + attention + feed_forward)


def pooled_flops(config: BertConfig, num_labels: int) -> int:
    """FLOPs of one pooler and the scores of labels from it, forward."""
    return 2 * config.hidden_size * (config.hidden_size + num_labels)


def masked_lm_flops(config: BertConfig, num_predictions: int) -> int:
    """FLOPs of the masked LM's head on one sequence, forward.

    Args:
        config: the architecture.
        num_predictions: P, unused slots included: they are computed as well.
    """
    hidden = config.hidden_size
    return 2 * num_predictions * hidden * (hidden + config.vocab_size)


def pretraining_flops(
    config: BertConfig, shapes: Shapes, *, next_sentence: bool = True
) -> float:
    """FLOPs of one step of pre-training.

    Args:
        config: the architecture.
        shapes: of a batch of records: input_ids [B, S], masked_lm_positions [B, P] and,
            of packed rows, cls_positions [B, pairs].
        next_sentence: whether the next sentence is predicted.
    """
    batch_size, seq_length = shapes["input_ids"]
    forward = encoder_flops(config, seq_length)
    forward += masked_lm_flops(config, shapes["masked_lm_positions"][1])
    if next_sentence:
        num_pairs = shapes["cls_positions"][1] if "cls_positions" in shapes else 1
        forward += num_pairs * pooled_flops(config, _NEXT_SENTENCE_LABELS)
    return float(_TRAINING_OVER_FORWARD * batch_size * forward)


def classifier_flops(config: BertConfig, shapes: Shapes, *, num_labels: int) -> float:
    """FLOPs of one step of training a classifier, or with one label a regression.

    Args:
        config: the architecture.
        shapes: of a batch of records: input_ids [B, S].
        num_labels: the classes; 1 for regression.
    """
    batch_size, seq_length = shapes["input_ids"]
    forward = encoder_flops(config, seq_length) + pooled_flops(config, num_labels)
    return float(_TRAINING_OVER_FORWARD * batch_size * forward)


def multiple_choice_flops(config: BertConfig, shapes: Shapes) -> float:
    """FLOPs of one step of training a choice among several sequences.

    Args:
        config: the architecture.
        shapes: of a batch of records: input_ids [B, choices, S].
    """
    batch_size, num_choices, seq_length = shapes["input_ids"]
    sequences = {"input_ids": (batch_size * num_choices, seq_length)}
    return classifier_flops(config, sequences, num_labels=1)


def span_flops(config: BertConfig, shapes: Shapes) -> float:
    """FLOPs of one step of training a span's start and end; see `tagger_flops`."""
    return tagger_flops(config, shapes, num_labels=_SPAN_LABELS)


def tagger_flops(config: BertConfig, shapes: Shapes, *, num_labels: int) -> float:
    """FLOPs of one step of training a label for every token.

    Args:
        config: the architecture.
        shapes: of a batch of records: input_ids [B, S].
        num_labels: the labels.
    """
    batch_size, seq_length = shapes["input_ids"]
    forward = encoder_flops(config, seq_length)
    forward += 2 * seq_length * config.hidden_size * num_labels
    return float(_TRAINING_OVER_FORWARD * batch_size * forward)
