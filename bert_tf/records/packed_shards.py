"""Some records to one file of packed rows: a piece of work for any core."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.errors import InputError
from bert_tf.instances.random_stream import random_stream
from bert_tf.records.generation import ShardResult, keep_result, kept_result
from bert_tf.records.layouts import RecordLayout, find_layout
from bert_tf.records.manifest import Manifest
from bert_tf.records.packed_rows import Sequences, row_columns
from bert_tf.records.packing import pack_rows
from bert_tf.records.reading import record_blocks
from bert_tf.records.schema import RecordSchema, packed_schema, unmasked_packed_schema
from bert_tf.records.shards import ShardWriter
from bert_tf.records.statistics import RecordStatistics

# Tokens that are dealt to rows at a time: many enough that the last rows, which nothing
# is left to fill, are few; few enough for each core's memory.
_WINDOW_TOKENS = 1 << 23

# Rows serialized at a time: a few MB.
_BLOCK_TOKENS = 1 << 19


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackJob:
    """A piece of work: some records to one file of rows.

    Attributes:
        stretches: files, and of each the numbers of the first record and of the one
            after the last (None for all).
        layout: of the longest records.
        path: the file of rows.
        result_path: where what is known of it is kept until all are finished.
        manifest: of the set.
        mask_id: of [MASK].
        random_seed: of the file's own random stream.
    """

    stretches: Sequence[tuple[str, int, int | None]]
    layout: RecordLayout
    path: str
    result_path: str
    manifest: Manifest
    mask_id: int
    random_seed: int


def pack_shard(job: PackJob) -> ShardResult:
    """Makes one file of rows, unless it is finished."""
    if finished := kept_result(job.path, job.result_path):
        return finished
    manifest, is_masked = job.manifest, job.layout.max_predictions_per_seq > 0
    room = {
        "max_seq_length": manifest.max_seq_length,
        "max_predictions_per_seq": manifest.max_predictions_per_seq,
        "max_sequences_per_row": manifest.max_sequences_per_row,
    }
    widths = room if is_masked else room | {"max_predictions_per_seq": 0}
    schema = schema_of_rows(manifest, is_masked)
    statistics = RecordStatistics(
        max_seq_length=job.layout.max_seq_length, mask_id=job.mask_id
    )
    stream = random_stream(job.random_seed)
    num_rows = max(1, _BLOCK_TOKENS // manifest.max_seq_length)
    with ShardWriter([job.path]) as writer:
        for sequences in _windows(_parts(job, statistics)):
            num_predictions = (
                sequences.num_predictions
                if is_masked
                else _expected_predictions(sequences.lengths, manifest)
            )
            order, starts = pack_rows(
                sequences.lengths, num_predictions, stream, **room
            )
            for first in range(0, len(starts) - 1, num_rows):
                block = starts[first : first + num_rows + 1]
                columns = row_columns(sequences, order, block, **widths)
                writer.write(schema.serialize_block(columns))
        result = ShardResult(
            num_bytes=writer.close(),
            num_records=list(writer.num_records),
            statistics=statistics.to_values(),
        )
        keep_result(result, job.path, job.result_path)
    return result


def schema_of_rows(manifest: Manifest, is_masked: bool) -> RecordSchema:
    """What a row of a packed set holds."""
    if is_masked:
        return packed_schema(
            manifest.max_seq_length,
            manifest.max_predictions_per_seq,
            manifest.max_sequences_per_row,
        )
    return unmasked_packed_schema(
        manifest.max_seq_length, manifest.max_sequences_per_row
    )


def _expected_predictions(lengths: np.ndarray, manifest: Manifest) -> np.ndarray:
    """How many tokens of each sequence are going to be masked.

    As `bert_tf.records.dynamic_masking` counts them.
    """
    shares = np.rint(lengths * manifest.masked_lm_prob).astype(np.int64)
    return shares.clip(1, manifest.max_predictions_per_sequence)


def _parts(job: PackJob, statistics: RecordStatistics) -> Iterator[Sequences]:
    """The job's sequences, block by block, counted."""
    length = job.layout.max_seq_length
    slots = job.layout.max_predictions_per_seq
    for path, first, stop in job.stretches:
        layout = None
        number = 0
        for records in record_blocks(path):
            begin, number = number, number + len(records)
            if number <= first:
                continue
            if stop is not None and begin >= stop:
                break
            if layout is None:
                layout = find_layout(records[0], path)
            wanted = records[
                max(0, first - begin) : None if stop is None else stop - begin
            ]
            columns, rows = layout.parse(wanted)
            if len(rows) < len(wanted):
                raise InputError(
                    f"{path}: {len(wanted) - len(rows)} records are no {layout};"
                    " python -m bert_tf.tfrecords.inspect_records shows them."
                )
            statistics.add(_widened(columns, length, slots))
            yield Sequences.from_columns(columns, path)


def _widened(
    columns: dict[str, np.ndarray], length: int, slots: int
) -> dict[str, np.ndarray]:
    """The records with more padding, where files of several lengths are packed."""

    def widened(name: str, values: np.ndarray) -> np.ndarray:
        width = slots if name.startswith("masked_lm_") else length
        if name == "next_sentence_labels" or values.shape[1] == width:
            return values
        return np.pad(values, [(0, 0), (0, width - values.shape[1])])

    return {name: widened(name, values) for name, values in columns.items()}


def _windows(parts: Iterator[Sequences]) -> Iterator[Sequences]:
    window: list[Sequences] = []
    num_tokens = 0
    for part in parts:
        window.append(part)
        num_tokens += len(part.input_ids)
        if num_tokens >= _WINDOW_TOKENS:
            yield Sequences.joined(window)
            window, num_tokens = [], 0
    if window:
        yield Sequences.joined(window)
