"""Batches of words' vectors: records say where they are, and an array holds them.

The records are those of tagging (`bert_tf.tasks.tagging`) of "windows" whose tokens are
words: input_ids are the words' places in the array. So all that knows how to write,
plan, shuffle and predict records of tagging does so here, and a batch gets its vectors
when it is handed out:

    features  [B, S, L, F] float32, zeros behind the words

Shapes: B batch, S words, L vectors a word, F their width, T words of all windows.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.features import FeatureInput
from bert_tf.records.batching import EvaluationBatches, ExampleTable, SplitRecords
from bert_tf.records.pipeline import ALL_ROWS, PREFETCHED_BATCHES, Batch, InputShard
from bert_tf.tagging.features import Features, Featurizer
from bert_tf.tagging.sentences import Sentence

FEATURES = "features"


def inputs_of_windows(windows: Sequence[Features]) -> list[FeatureInput]:
    """Windows of tokens as inputs: each word that is predicted has a vector."""
    return [
        FeatureInput(
            window.ids,
            [0] * len(window.ids),
            # Of the first piece alone: where a word ends makes no difference.
            spans=[(place, place + 1) for place in window.places.tolist()],
        )
        for window in windows
    ]


def words_of_vectors(windows: Sequence[Features]) -> np.ndarray:
    """Which word each vector is of: [T], counted over all sentences."""
    if not windows:
        return np.zeros([0], np.int64)
    return np.concatenate([window.words for window in windows])


def words_of_windows(windows: Iterable[Features]) -> Iterator[Features]:
    """Windows of words instead of tokens, whose ids are their vectors' places."""
    first = 0
    for window in windows:
        count = len(window.words)
        yield Features(
            list(range(first, first + count)), np.arange(count), window.words
        )
        first += count


class WordFeaturizer(Featurizer):
    """Makes sentences into windows of words."""

    def __init__(self, featurizer: Featurizer, settings: Mapping[str, Any]) -> None:
        self.max_seq_length = featurizer.max_seq_length
        self._featurizer = featurizer
        self._settings = dict(settings)

    @property
    def settings(self) -> dict[str, Any]:
        """All that records depend on beside the sentences, as JSON has it."""
        return {**self._featurizer.settings, **self._settings}

    def __call__(self, sentences: Iterable[Sentence]) -> Iterator[Features]:
        """Yields the windows of words."""
        return words_of_windows(self._featurizer(sentences))


def with_vectors(batch: Mapping[str, Any], vectors: np.ndarray) -> dict[str, Any]:
    """A batch with its features."""
    found = _gathered(
        np.asarray(batch["input_ids"]), np.asarray(batch["input_mask"]), vectors
    )
    return {**batch, FEATURES: tf.constant(found)}


class VectorBatches(EvaluationBatches):
    """Batches for evaluation with their features."""

    def __init__(self, batches: EvaluationBatches, vectors: np.ndarray) -> None:
        self._batches = batches
        self._vectors = vectors
        rows = batches.element_spec["input_ids"].shape[0]
        features = tf.TensorSpec([rows, None, *vectors.shape[1:]], tf.float32)
        self.element_spec = {**batches.element_spec, FEATURES: features}

    def __len__(self) -> int:
        """Their number."""
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        """The batches."""
        for batch in self._batches:
            yield with_vectors(batch, self._vectors)


class VectorTable(ExampleTable):
    """Records in memory whose batches for training have features.

    Attributes:
        vectors: [T, L, F]; set by whoever makes the table.
    """

    vectors: np.ndarray

    def batches(
        self, rows: np.ndarray, length: int, *, shard: InputShard = ALL_ROWS
    ) -> tf.data.Dataset:
        """As `ExampleTable.batches`, with `features`."""

        def gather(batch: Batch) -> Batch:
            ids = batch["input_ids"]
            # Read from the disk as they are asked for: they need not fit in memory.
            features = tf.numpy_function(
                lambda ids, mask: _gathered(ids, mask, self.vectors),
                [ids, batch["input_mask"]],
                tf.float32,
            )
            features.set_shape([*ids.shape, *self.vectors.shape[1:]])
            return {**batch, FEATURES: features}

        return (
            super()
            .batches(rows, length, shard=shard)
            .map(gather, num_parallel_calls=2, deterministic=True)
            .prefetch(PREFETCHED_BATCHES)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorRecords(SplitRecords):
    """Records to train on, with their words' vectors.

    Attributes:
        vectors: [T, L, F].
    """

    vectors: np.ndarray

    @classmethod
    def of(cls, records: SplitRecords, vectors: np.ndarray) -> "VectorRecords":
        """Records of places, and what is there."""
        values = {
            field.name: getattr(records, field.name)
            for field in dataclasses.fields(records)
        }
        return cls(**values, vectors=vectors)

    @functools.cached_property
    def table(self) -> VectorTable:
        """The records in memory."""
        table = VectorTable.read(self.path, self.schema)
        assert isinstance(table, VectorTable)
        table.vectors = self.vectors
        return table


def _gathered(ids: np.ndarray, mask: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The vectors of the places `ids` where `mask` is 1, else zeros; [B, S, L, F]."""
    found = np.zeros([*ids.shape, *vectors.shape[1:]], np.float32)
    is_word = mask.astype(bool)
    found[is_word] = vectors[ids[is_word]]
    return found
