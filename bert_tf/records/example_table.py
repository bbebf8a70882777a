"""Records in memory, each as long as it is: for batches of any examples, any length.

A sequence feature of a record (input_ids, input_mask, segment_ids) is padded with zeros
to max_seq_length. The table keeps what stands before the padding, all records one after
another, and hands batches out padded to the length that is asked for. The records of a
fine-tuning task fit in memory many times over: MNLI's, 400,000 pairs of about 40
tokens, take 200 MB.

A record may have several sequences, each choice of an example its own: what is [N] or
[B, S] below is then [N, C] or [B, C, S]. The longest one is the record's length.

Shapes: N records, T tokens of all of them, M batches, B batch, S the batch's length,
C sequences of a record.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from bert_tf.records.length_plan import PADDING, LengthPlan, prediction_lengths
from bert_tf.records.pipeline import ALL_ROWS, PREFETCHED_BATCHES, Batch, InputShard
from bert_tf.records.schema import RecordSchema

# The feature of a batch for evaluation that says which records it holds.
ROWS = "rows"
# The feature that is 1 for an example and 0 for a row of padding, [B, 1].
IS_REAL = "is_real_example"

_PARSED_AT_ONCE = 1024


class ExampleTable:
    """Records, such as those of a TFRecord file.

    Attributes:
        lengths: [N] int64, the tokens of each record, of its longest sequence.
        mean_length: the tokens of a sequence, on average.
    """

    def __init__(
        self, blocks: Iterable[Mapping[str, np.ndarray]], schema: RecordSchema
    ) -> None:
        """Takes the padding off records."""
        self._sequences = [
            f.name for f in schema.features if f.flag == "max_seq_length"
        ]
        columns: dict[str, list[np.ndarray]] = {f.name: [] for f in schema.features}
        lengths = []
        for block in blocks:
            mask = block["input_mask"]
            lengths.append(mask.sum(axis=-1, dtype=np.int64))
            is_token = np.arange(mask.shape[-1]) < lengths[-1][..., None]
            assert (mask == is_token).all(), "padding within a sequence"
            for name, value in block.items():
                if name in self._sequences:
                    assert not value[~is_token].any(), f"{name}: padding that is not 0"
                    value = value[is_token]
                # As `RecordSchema.parse` has them.
                is_int = np.issubdtype(value.dtype, np.integer)
                columns[name].append(
                    value.astype(np.int32 if is_int else np.float32, copy=False)
                )
        # Of each sequence: [N], or [N, C].
        self._lengths = np.concatenate(lengths)
        stops = np.cumsum(self._lengths).reshape(self._lengths.shape)
        self._starts = stops - self._lengths
        self.lengths = self._lengths.reshape(len(self._lengths), -1).max(axis=1)
        self.mean_length = float(self._lengths.mean())
        self._columns = {name: np.concatenate(v) for name, v in columns.items()}

    @classmethod
    def read(cls, path: str, schema: RecordSchema) -> "ExampleTable":
        """The records of a TFRecord file that is not compressed."""
        dataset = tf.data.TFRecordDataset(path).batch(_PARSED_AT_ONCE)
        blocks = dataset.map(schema.parse, num_parallel_calls=2).as_numpy_iterator()
        return cls(blocks, schema)

    def __len__(self) -> int:
        """The number of records."""
        return len(self.lengths)

    def column(self, name: str) -> np.ndarray:
        """A feature of all records, [N, ...], that is not one of sequences."""
        return self._columns[name]

    def batches(
        self,
        rows: np.ndarray,
        length: int,
        *,
        shard: InputShard = ALL_ROWS,
    ) -> tf.data.Dataset:
        """Batches of static shape, for training."""
        batch_size = rows.shape[1]
        rows = rows[:, shard.rows(batch_size)]
        rows = rows.reshape(len(rows) * shard.num_replicas, -1)

        starts, lengths, columns = self._tensors

        def gather(rows_of_batch: tf.Tensor) -> Batch:
            rows_of_batch = tf.ensure_shape(rows_of_batch, [rows.shape[1]])
            is_real = rows_of_batch != PADDING
            numbers = tf.maximum(rows_of_batch, 0)
            offset = tf.range(length, dtype=tf.int64)
            there = tf.gather(lengths, numbers)
            real_sequences = tf.reshape(is_real, [-1, *[1] * (there.ndim - 1)])
            is_token = offset < tf.where(real_sequences, there, 0)[..., None]
            place = tf.gather(starts, numbers)[..., None] + offset
            place = tf.where(is_token, place, 0)
            batch = {}
            for name, column in columns.items():
                if name in self._sequences:
                    values, is_there = tf.gather(column, place), is_token
                else:
                    values = tf.gather(column, numbers)
                    is_there = is_real[:, None]
                batch[name] = tf.where(is_there, values, tf.zeros_like(values))
            # Padding counts for nothing, whether or not records can say so.
            batch.setdefault(IS_REAL, tf.cast(is_real, tf.int32)[:, None])
            return batch

        options = tf.data.Options()
        options.autotune.enabled = False
        return (
            tf.data.Dataset.from_tensor_slices(rows.astype(np.int64))
            .map(gather, num_parallel_calls=2, deterministic=True)
            .prefetch(PREFETCHED_BATCHES)
            .with_options(options)
        )

    def by_length(self, batch_size: int, max_lengths: int) -> "EvaluationBatches":
        """All records once, in batches of like length."""
        num_batches = -(-len(self) // batch_size)
        buckets = prediction_lengths(self.lengths, num_batches, max_lengths)
        plan = LengthPlan(self.lengths, batch_size, buckets, seed=None).epoch(0)
        return EvaluationBatches(self, plan.rows, np.array(buckets)[plan.buckets])

    @functools.cached_property
    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor, Batch]:
        """The starts, lengths and columns, for a graph."""
        columns = {name: tf.constant(value) for name, value in self._columns.items()}
        return tf.constant(self._starts), tf.constant(self._lengths), columns

    def padded(self, rows: np.ndarray, length: int) -> Batch:
        """One batch, with the feature `rows` [B] int32, which says what it holds."""
        is_real = rows != PADDING
        numbers = np.maximum(rows, 0)
        offset = np.arange(length)
        there = self._lengths[numbers]
        real_sequences = is_real.reshape(-1, *[1] * (there.ndim - 1))
        is_token = offset < np.where(real_sequences, there, 0)[..., None]
        place = np.where(is_token, self._starts[numbers][..., None] + offset, 0)
        batch = {}
        for name, column in self._columns.items():
            if name in self._sequences:
                values, is_there = column[place], is_token
            else:
                values, is_there = column[numbers], is_real[:, None]
            batch[name] = tf.constant(
                np.where(is_there, values, 0).astype(column.dtype)
            )
        # Not int64: some devices copy no such integers.
        batch[ROWS] = tf.constant(rows.astype(np.int32))
        return batch


class EvaluationBatches:
    """Batches in the order of a plan, for evaluation: made as they are asked for.

    Attributes:
        element_spec: of all batches: the length is not known.
    """

    def __init__(
        self, table: ExampleTable, rows: np.ndarray, lengths: np.ndarray
    ) -> None:
        """Plans them."""
        self._table = table
        self._rows = rows
        self._lengths = lengths
        self.element_spec = {
            name: tf.TensorSpec(
                [value.shape[0], *[None] * (len(value.shape) - 1)], value.dtype
            )
            for name, value in table.padded(rows[0], int(lengths[0])).items()
        }

    def __len__(self) -> int:
        """M, their number."""
        return len(self._rows)

    def __iter__(self) -> Iterator[Batch]:
        """The batches: see `ExampleTable.padded`."""
        for rows, length in zip(self._rows, self._lengths, strict=True):
            yield self._table.padded(rows, int(length))
