"""Records in memory, each as long as it is: for batches of any examples, any length.

A sequence feature of a record (input_ids, input_mask, segment_ids) is padded with zeros
to max_seq_length. The table keeps what stands before the padding, all records one after
another, and hands batches out padded to the length that is asked for. The records of a
fine-tuning task fit in memory many times over: MNLI's, 400,000 pairs of about 40
tokens, take 200 MB.

Shapes: N records, T tokens of all of them, M batches, B batch, S the batch's length.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.records.length_plan import PADDING
from bert_tf.records.pipeline import ALL_ROWS, PREFETCHED_BATCHES, Batch, InputShard
from bert_tf.records.schema import RecordSchema

# The feature of a batch for evaluation that says which records it holds.
ROWS = "rows"

_PARSED_AT_ONCE = 1024


class ExampleTable:
    """The records of a TFRecord file.

    Attributes:
        lengths: [N] int64, the tokens of each record.
    """

    def __init__(self, path: str, schema: RecordSchema) -> None:
        """Reads a file.

        Args:
            path: the TFRecord file, not compressed.
            schema: what a record holds; with `input_mask`.
        """
        self._sequences = [
            f.name for f in schema.features if f.flag == "max_seq_length"
        ]
        columns: dict[str, list[np.ndarray]] = {f.name: [] for f in schema.features}
        lengths = []
        dataset = tf.data.TFRecordDataset(path).batch(_PARSED_AT_ONCE)
        for batch in dataset.map(schema.parse, num_parallel_calls=2):
            mask = batch["input_mask"].numpy()
            lengths.append(mask.sum(axis=1, dtype=np.int64))
            is_token = np.arange(mask.shape[1]) < lengths[-1][:, None]
            assert (mask == is_token).all(), f"{path}: padding within a sequence"
            for name, value in batch.items():
                value = value.numpy()
                if name in self._sequences:
                    assert not value[~is_token].any(), f"{path}: padding that is not 0"
                    value = value[is_token]
                columns[name].append(value)
        self.lengths = np.concatenate(lengths)
        starts = np.cumsum(self.lengths) - self.lengths
        self._columns = {
            name: tf.constant(np.concatenate(values))
            for name, values in columns.items()
        }
        self._starts = tf.constant(starts)
        self._lengths = tf.constant(self.lengths)

    def __len__(self) -> int:
        """The number of records."""
        return len(self.lengths)

    def column(self, name: str) -> np.ndarray:
        """A feature of all records, [N, ...], that is not one of sequences."""
        return self._columns[name].numpy()

    def batches(
        self,
        rows: np.ndarray,
        length: int,
        *,
        shard: InputShard = ALL_ROWS,
        with_rows: bool = False,
    ) -> tf.data.Dataset:
        """Batches of static shape.

        Args:
            rows: [M, B], the numbers of the records; `PADDING` for a row of zeros.
            length: S, at least the longest of them.
            shard: the rows of each batch that are wanted, and in how many pieces.
            with_rows: whether a batch has the feature `rows` [B] int32, too.

        Returns:
            A data set of dicts of tensors [B / replicas, ...], of sequence features
            [B / replicas, S].
        """
        batch_size = rows.shape[1]
        rows = rows[:, shard.rows(batch_size)]
        rows = rows.reshape(len(rows) * shard.num_replicas, -1)

        def gather(rows_of_batch: tf.Tensor) -> Batch:
            rows_of_batch = tf.ensure_shape(rows_of_batch, [rows.shape[1]])
            is_real = rows_of_batch != PADDING
            numbers = tf.maximum(rows_of_batch, 0)
            offset = tf.range(length, dtype=tf.int64)
            lengths = tf.where(is_real, tf.gather(self._lengths, numbers), 0)
            is_token = offset < lengths[:, None]
            place = tf.where(
                is_token, tf.gather(self._starts, numbers)[:, None] + offset, 0
            )
            batch = {}
            for name, column in self._columns.items():
                if name in self._sequences:
                    values, is_there = tf.gather(column, place), is_token
                else:
                    values = tf.gather(column, numbers)
                    shape = [-1] + [1] * (len(values.shape) - 1)
                    is_there = tf.reshape(is_real, shape)
                batch[name] = tf.where(is_there, values, tf.zeros_like(values))
            if with_rows:
                batch[ROWS] = tf.cast(rows_of_batch, tf.int32)
            return batch

        options = tf.data.Options()
        options.autotune.enabled = False
        return (
            tf.data.Dataset.from_tensor_slices(rows.astype(np.int64))
            .map(gather, num_parallel_calls=2, deterministic=True)
            .prefetch(PREFETCHED_BATCHES)
            .with_options(options)
        )


def chained(datasets: Sequence[tf.data.Dataset]) -> tf.data.Dataset:
    """Data sets of batches one after another, each of its own length."""
    whole = datasets[0]
    for dataset in datasets[1:]:
        whole = whole.concatenate(dataset)
    return whole
