"""Inputs into features, as a stream: memory does not grow with their number.

Inputs are taken in groups, whose features fit in memory together. A group's inputs are
put into batches of like length, and their features are handed on in the inputs' order
when the last of them has come back. The static lengths are chosen from the first group,
so that the others need no new compilation. Which inputs make a group hangs on nothing
but the inputs and the number of values a token, so that a run that was stopped can pass
over whole groups that it has written.

Shapes: N inputs of a group, S a batch's length, L vectors a token, W their width.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.features.choices import FIRST_PIECE
from bert_tf.features.inputs import FeatureInput
from bert_tf.features.model import VECTORS
from bert_tf.records.batching import (
    PADDING,
    ROWS,
    EvaluationBatches,
    ExampleTable,
    LengthPlan,
    prediction_lengths,
)
from bert_tf.records.spec import INT64, Feature, RecordSchema

Arrays = Mapping[str, np.ndarray]
# (batches, about how many) -> (batch, outputs), batch by batch.
Predict = Callable[["GroupBatches", int], Iterator[tuple[Arrays, Arrays]]]

INPUTS_AT_ONCE = 4096
# 128 MB of float32.
VALUES_AT_ONCE = 1 << 25


class Features(NamedTuple):
    """What the model says of an input.

    Attributes:
        input: the input.
        vectors: float32 [n, L, W] of its n tokens or words; None where none are wanted.
        sentence: its sentence vectors, float32, by name: `pooled` [H], `cls` and `mean`
            [L, W].
    """

    input: FeatureInput
    vectors: np.ndarray | None
    sentence: dict[str, np.ndarray]


class Group:
    """Inputs whose features are made together.

    Attributes:
        number: from 0.
        first: the number of its first input.
        inputs: the inputs.
        batches: what the model is given.
    """

    def __init__(
        self,
        number: int,
        first: int,
        inputs: list[FeatureInput],
        batches: EvaluationBatches,
        word_vectors: str,
    ) -> None:
        self.number = number
        self.first = first
        self.inputs = inputs
        self.batches = batches
        self._word_vectors = word_vectors
        self._features: list[Features | None] = [None] * len(inputs)
        self._missing = len(inputs)

    @property
    def is_complete(self) -> bool:
        """Whether all features are there."""
        return not self._missing

    def take(self, batch: Arrays, outputs: Arrays) -> None:
        """Keeps the features of a batch's inputs."""
        for place, row in enumerate(batch[ROWS]):
            if row == PADDING:
                continue
            inputs = self.inputs[row]
            vectors = None
            if VECTORS in outputs:
                vectors = _of_names(outputs[VECTORS][place], inputs, self._word_vectors)
            # Copies: a view would keep the batch.
            sentence = {
                name: values[place].copy()
                for name, values in sorted(outputs.items())
                if name != VECTORS
            }
            self._features[row] = Features(inputs, vectors, sentence)
            self._missing -= 1

    def results(self) -> list[Features]:
        """The features, in the inputs' order; to be asked for once.

        They are handed over, so that they do not stay in memory with the group.
        """
        assert self.is_complete and len(self._features) == len(self.inputs)
        features, self._features = self._features, []
        return [each for each in features if each is not None]


def _of_names(
    states: np.ndarray, inputs: FeatureInput, word_vectors: str
) -> np.ndarray:
    """The vectors of an input's tokens or words, from those of all positions."""
    if inputs.spans is None:
        return states[: len(inputs.ids)].copy()
    spans = np.array(inputs.spans, np.int64).reshape(-1, 2)
    starts, ends = spans.T
    if word_vectors == FIRST_PIECE:
        return states[starts]
    if not len(spans):
        return states[:0].copy()
    # Words stand one behind the other but for [SEP], so each is summed by itself.
    bounds = spans.reshape(-1)
    if bounds[-1] == len(states):
        bounds = bounds[:-1]
    sums = np.add.reduceat(states, bounds, axis=0)[::2]
    return sums / (ends - starts).astype(np.float32)[:, None, None]


class GroupBatches:
    """The batches of all inputs, group after group: what a `Predictor` runs over.

    Attributes:
        element_spec: of all batches.
        group: the one that the last batch was of.
    """

    def __init__(self, first: Group, groups: Iterator[Group]) -> None:
        self.element_spec = first.batches.element_spec
        self.group = first
        self._groups = groups

    def __iter__(self) -> Iterator[Arrays]:
        """The batches; to be gone through once."""
        for group in itertools.chain([self.group], self._groups):
            self.group = group
            yield from group.batches


def extract(
    inputs: Iterable[FeatureInput],
    predict: Predict,
    *,
    values_per_token: int,
    batch_size: int,
    max_seq_length: int,
    max_lengths: int | None = 12,
    num_inputs: int | None = None,
    word_vectors: str = FIRST_PIECE,
    is_done: Callable[[int], bool] = lambda number: False,
) -> Iterator[Group]:
    """Yields groups of features, complete, in the inputs' order.

    Args:
        inputs: the inputs.
        predict: runs a `feature_model`.
        values_per_token: the numbers that the model gives of a token: L W.
        batch_size: inputs a batch.
        max_seq_length: the longest input's tokens.
        max_lengths: how many lengths batches may have; None for max_seq_length alone.
        num_inputs: how many there are, for the progress bar.
        word_vectors: FIRST_PIECE or MEAN_OF_PIECES, for inputs with `spans`.
        is_done: the groups that are passed over, by number.
    """
    groups = _groups(
        iter(inputs), values_per_token, batch_size, max_seq_length, max_lengths,
        num_inputs, word_vectors, is_done,
    )  # fmt: skip
    first = next(groups, None)
    if first is None:
        return
    batches = GroupBatches(first, groups)
    per_group = len(first.batches)
    left = -(-(num_inputs or 0) // len(first.inputs)) - first.number
    for batch, outputs in predict(batches, per_group * max(left, 1)):
        group = batches.group
        group.take(batch, outputs)
        if group.is_complete:
            yield group


def _groups(
    inputs: Iterator[FeatureInput],
    values_per_token: int,
    batch_size: int,
    max_seq_length: int,
    max_lengths: int | None,
    num_inputs: int | None,
    word_vectors: str,
    is_done: Callable[[int], bool],
) -> Iterator[Group]:
    """The groups that are not done; the first one decides on the static lengths."""
    tokens_at_once = max(max_seq_length, VALUES_AT_ONCE // max(values_per_token, 1))
    buckets: tuple[int, ...] | None = None if max_lengths else (max_seq_length,)
    group: list[FeatureInput] = []
    index = 0
    for number in itertools.count():
        index += len(group)
        group = _next_group(inputs, tokens_at_once)
        if not group:
            return
        if buckets is None:
            assert max_lengths is not None
            lengths = [len(sequence.ids) for sequence in group]
            num_batches = -(-max(num_inputs or 0, len(group)) // batch_size)
            buckets = prediction_lengths(lengths, num_batches, max_lengths)
            # A later input may be longer than all of these.
            buckets = (*(n for n in buckets if n < max_seq_length), max_seq_length)
        if is_done(number):
            continue
        table = _table(group, max_seq_length)
        plan = LengthPlan(table.lengths, batch_size, buckets, seed=None).epoch(0)
        batches = EvaluationBatches(table, plan.rows, np.array(buckets)[plan.buckets])
        yield Group(number, index, group, batches, word_vectors)


def _next_group(
    inputs: Iterator[FeatureInput], tokens_at_once: int
) -> list[FeatureInput]:
    """Inputs of so many tokens together, or a few more; the rest."""
    group: list[FeatureInput] = []
    tokens = 0
    while tokens < tokens_at_once and len(group) < INPUTS_AT_ONCE:
        sequence = next(inputs, None)
        if sequence is None:
            break
        group.append(sequence)
        tokens += len(sequence.ids)
    return group


def _table(group: Sequence[FeatureInput], max_seq_length: int) -> ExampleTable:
    """The model's inputs of a group, in memory."""
    names = ("input_ids", "input_mask", "segment_ids")
    lengths = np.array([len(sequence.ids) for sequence in group])
    longest = int(lengths.max())
    assert longest <= max_seq_length
    block = {name: np.zeros([len(group), longest], np.int32) for name in names}
    for row, sequence in enumerate(group):
        length = lengths[row]
        block["input_ids"][row, :length] = sequence.ids
        block["input_mask"][row, :length] = 1
        block["segment_ids"][row, :length] = sequence.segment_ids
    schema = RecordSchema(
        [Feature(name, INT64, (longest,), "max_seq_length") for name in names]
    )
    return ExampleTable([block], schema)
