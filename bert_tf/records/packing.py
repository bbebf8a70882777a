"""Several sequences in a row: which ones share it, and the rows that are written."""

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from tqdm import tqdm

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.instances.random_stream import compiled, random_stream, shuffle
from bert_tf.instances.settings import (
    DYNAMIC_MASKING,
    STATIC_MASKING,
    InstanceSettings,
)
from bert_tf.parallel import Workers, ordered_map
from bert_tf.records import record_sets
from bert_tf.records.manifest import (
    MANIFEST_SUFFIX,
    Manifest,
    Shard,
    SourceFile,
    find_finished,
    find_manifests,
    manifest_path,
    relative_name,
)
from bert_tf.records.pipeline import RecordKeys, count_records
from bert_tf.records.reading import record_blocks
from bert_tf.records.record_sets import (
    ShardResult,
    announce,
    keep_result,
    kept_result,
    shard_seed,
    with_counts,
)
from bert_tf.records.spec import (
    PRETRAINING,
    UNMASKED,
    RecordLayout,
    RecordSchema,
    find_layout,
    packed_schema,
    unmasked_packed_schema,
)
from bert_tf.records.statistics import RecordStatistics, row_figures
from bert_tf.records.tokenized_corpus import (
    hold_work_folder,
    open_work_folder,
    remove_finished,
    work_folder_path,
)
from bert_tf.records.writing import ShardWriter, record_files, remove_leftovers
from bert_tf.text.vocabulary import MASK, Vocabulary

# Which sequences share a row: best fit, the longest first.
#
# Each sequence goes to the row with the least room that still takes it, or to a new
# one
# (Johnson 1974, "best fit decreasing": at most 11/9 of the fewest rows possible, and
# far
# closer with many short sequences). A row has room for tokens, for predictions and
# for a
# number of sequences.


# Lengths are told apart only so far in "the longest first": those of one length are
# often of one document, and would fill rows of their own. From Wikipedia (sequences of
# up to 128 tokens in rows of 512, at most 8 in each) the rows are fuller so, too: 0.2 %
# of padding where 16 classes leave 0.8 %.
_LENGTH_CLASSES = 4

# Rows of one room that are looked at for one with room for the predictions, too.
_MOST_LOOKS = 64


def pack_rows(
    lengths: np.ndarray,
    num_predictions: np.ndarray,
    stream: np.ndarray,
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    max_sequences_per_row: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Deals sequences to rows, each to one."""
    for name, values, limit in (
        ("lengths", lengths, max_seq_length),
        ("num_predictions", num_predictions, max_predictions_per_seq),
    ):
        if len(values) and values.max() > limit:
            raise ValueError(
                f"`{name}` must be at most {limit}. Received: {values.max()}"
            )
    if len(lengths) and lengths.min() < 1:
        raise ValueError("`lengths` must be positive.")
    turns = np.arange(len(lengths))
    shuffle(stream, turns)
    classes = lengths[turns] * _LENGTH_CLASSES // max_seq_length
    longest_first = turns[np.argsort(-classes, kind="stable")]
    rows, num_rows = _best_fit(
        lengths,
        num_predictions,
        longest_first,
        max_seq_length,
        max_predictions_per_seq,
        max_sequences_per_row,
    )
    places = np.arange(num_rows)
    shuffle(stream, places)
    rows = places[rows]
    order = turns[np.argsort(rows[turns], kind="stable")]
    starts = np.zeros(num_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=starts[1:])
    return order, starts


@compiled
def _best_fit(
    lengths,
    num_predictions,
    order,
    max_seq_length,
    max_predictions_per_seq,
    max_sequences_per_row,
):
    """The row of each sequence, taken in that order, and the number of rows."""
    num_sequences = len(lengths)
    rows = np.empty(num_sequences, np.int64)
    predictions_left = np.empty(num_sequences, np.int64)
    sequences_left = np.empty(num_sequences, np.int64)
    # The rows with so much room, as a linked list: the last one added, and for each row
    # the one before it.
    newest = np.full(max_seq_length + 1, -1)
    older = np.empty(num_sequences, np.int64)
    num_rows = 0
    for sequence in order:
        length, needed = lengths[sequence], num_predictions[sequence]
        found = -1
        room = length
        while found < 0 and room < max_seq_length:
            newer, row = -1, newest[room]
            looks = 0
            while row >= 0 and predictions_left[row] < needed and looks < _MOST_LOOKS:
                newer, row = row, older[row]
                looks += 1
            if row >= 0 and predictions_left[row] >= needed:
                found = row
                if newer < 0:
                    newest[room] = older[row]
                else:
                    older[newer] = older[row]
            else:
                room += 1
        if found < 0:
            found, room = num_rows, max_seq_length
            predictions_left[found] = max_predictions_per_seq
            sequences_left[found] = max_sequences_per_row
            num_rows += 1
        rows[sequence] = found
        room -= length
        predictions_left[found] -= needed
        sequences_left[found] -= 1
        if room > 0 and sequences_left[found] > 0:
            older[found] = newest[room]
            newest[room] = found
    return rows, num_rows


# Sequences without their padding, and the rows that are made of them.


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Some sequences, one after another; T tokens and M predictions in all.

    Attributes:
        lengths: int64 [num_sequences], tokens of each.
        input_ids: int32 [T].
        segment_ids: int32 [T].
        num_predictions: int64 [num_sequences]; all 0 where nothing is masked.
        positions: int32 [M], where in its sequence each prediction stands.
        labels: int32 [M], the ids to predict.
        next_sentence_labels: int32 [num_sequences].
    """

    lengths: np.ndarray
    input_ids: np.ndarray
    segment_ids: np.ndarray
    num_predictions: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    next_sentence_labels: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, np.ndarray], source: str
    ) -> "Sequences":
        """The sequences of a block of records that are not packed."""
        is_token = columns["input_mask"] > 0
        lengths = is_token.sum(axis=1)
        places = np.arange(is_token.shape[1])
        _check(
            (lengths > 0) & (is_token == (places < lengths[:, None])).all(axis=1),
            f"{source}: `input_mask` must be ones, then zeros",
        )
        if "masked_lm_positions" in columns:
            positions, weights = (
                columns[f"masked_lm_{name}"] for name in ("positions", "weights")
            )
            is_prediction = weights != 0
            _check(
                ((weights == 1) | ~is_prediction).all(axis=1),
                f"{source}: `masked_lm_weights` must be ones and zeros",
            )
            is_inside = (positions >= 0) & (positions < lengths[:, None])
            _check(
                (is_inside | ~is_prediction).all(axis=1),
                f"{source}: `masked_lm_positions` must be those of tokens",
            )
            num_predictions = is_prediction.sum(axis=1)
            positions = positions[is_prediction]
            labels = columns["masked_lm_ids"][is_prediction]
        else:
            num_predictions = np.zeros_like(lengths)
            positions = labels = np.empty(0, np.int32)
        return cls(
            lengths=lengths.astype(np.int64),
            input_ids=columns["input_ids"][is_token].astype(np.int32),
            segment_ids=columns["segment_ids"][is_token].astype(np.int32),
            num_predictions=num_predictions.astype(np.int64),
            positions=positions.astype(np.int32),
            labels=labels.astype(np.int32),
            next_sentence_labels=columns["next_sentence_labels"][:, 0].astype(np.int32),
        )

    @classmethod
    def joined(cls, parts: Sequence["Sequences"]) -> "Sequences":
        """All sequences of some others, at least one."""
        return cls(
            *(
                np.concatenate([getattr(part, field.name) for part in parts])
                for field in dataclasses.fields(cls)
            )
        )


def _check(is_right: np.ndarray, complaint: str) -> None:
    if not is_right.all():
        number = int(np.count_nonzero(~is_right))
        raise InputError(
            f"{complaint}. It is not in {number} records; python -m"
            " bert_tf.tfrecords.inspect_records shows them."
        )


def row_columns(
    sequences: Sequences,
    order: np.ndarray,
    starts: np.ndarray,
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    max_sequences_per_row: int,
) -> dict[str, np.ndarray]:
    """The rows' features, as `packed_schema` describes them."""
    num_rows = len(starts) - 1
    tokens, predictions, slots = (
        (num_rows, length)
        for length in (max_seq_length, max_predictions_per_seq, max_sequences_per_row)
    )
    columns: dict[str, np.ndarray] = {
        "input_ids": np.zeros(tokens, np.int64),
        "input_mask": np.zeros(tokens, np.int64),
        "segment_ids": np.zeros(tokens, np.int64),
        "sequence_ids": np.zeros(tokens, np.int64),
        "cls_positions": np.zeros(slots, np.int64),
        "next_sentence_labels": np.zeros(slots, np.int64),
        "next_sentence_weights": np.zeros(slots, np.float32),
        "masked_lm_positions": np.zeros(predictions, np.int64),
        "masked_lm_ids": np.zeros(predictions, np.int64),
        "masked_lm_weights": np.zeros(predictions, np.float32),
    }
    _fill(
        order,
        starts,
        _starts(sequences.lengths),
        sequences.input_ids,
        sequences.segment_ids,
        _starts(sequences.num_predictions),
        sequences.positions,
        sequences.labels,
        sequences.next_sentence_labels,
        *columns.values(),
    )
    if not max_predictions_per_seq:
        for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
            del columns[name]
    return columns


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


@compiled
def _fill(
    order,
    starts,
    token_starts,
    input_ids,
    segment_ids,
    prediction_starts,
    positions,
    labels,
    next_sentence_labels,
    row_ids,
    row_mask,
    row_segments,
    row_sequences,
    row_cls,
    row_labels,
    row_weights,
    row_positions,
    row_predicted,
    row_predicted_weights,
):
    for row in range(len(starts) - 1):
        place = slot = 0
        for number in range(starts[row + 1] - starts[row]):
            sequence = order[starts[row] + number]
            row_cls[row, number] = place
            row_labels[row, number] = next_sentence_labels[sequence]
            row_weights[row, number] = 1.0
            first, end = prediction_starts[sequence], prediction_starts[sequence + 1]
            for index in range(first, end):
                row_positions[row, slot] = place + positions[index]
                row_predicted[row, slot] = labels[index]
                row_predicted_weights[row, slot] = 1.0
                slot += 1
            for index in range(token_starts[sequence], token_starts[sequence + 1]):
                row_ids[row, place] = input_ids[index]
                row_mask[row, place] = 1
                row_segments[row, place] = segment_ids[index]
                row_sequences[row, place] = number + 1
                place += 1


def unpacked_columns(
    columns: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The sequences of some rows as records of their own: the way back."""
    ids = columns["sequence_ids"]
    num_slots = columns["cls_positions"].shape[1]
    is_used = columns["next_sentence_weights"] > 0
    is_used |= (ids[:, :, None] == np.arange(1, num_slots + 1)).any(axis=1)
    rows, numbers = np.nonzero(is_used)
    is_own = ids[rows] == numbers[:, None] + 1
    # A stable sort brings a sequence's tokens to the front, in their order.
    places = np.argsort(~is_own, axis=1, kind="stable")
    in_front = np.take_along_axis(is_own, places, axis=1)
    unpacked = {
        name: np.where(
            in_front, np.take_along_axis(columns[name][rows], places, axis=1), 0
        )
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    unpacked["next_sentence_labels"] = columns["next_sentence_labels"][rows, numbers][
        :, None
    ]
    if "masked_lm_positions" in columns:
        positions = columns["masked_lm_positions"][rows]
        inside = positions.clip(0, ids.shape[1] - 1)
        is_own = np.take_along_axis(is_own, inside, axis=1) & (
            columns["masked_lm_weights"][rows] > 0
        )
        begins = columns["cls_positions"][rows, numbers][:, None]
        slots = np.argsort(~is_own, axis=1, kind="stable")
        in_front = np.take_along_axis(is_own, slots, axis=1)
        for name, values in (
            ("masked_lm_positions", positions - begins),
            ("masked_lm_ids", columns["masked_lm_ids"][rows]),
            ("masked_lm_weights", columns["masked_lm_weights"][rows]),
        ):
            values = np.take_along_axis(values, slots, axis=1)
            unpacked[name] = np.where(in_front, values, 0).astype(values.dtype)
    return unpacked, rows, numbers


# What is to be packed, checked, before any work: the plan of a set of packed rows.


# What the sets that are packed together must have in common. What is masked later is
# masked by the rates that the records were made with.
_COMMON = ("vocab_sha256", "do_lower_case", "masking", "pairs")
_COMMON_UNMASKED = ("masked_lm_prob", "do_whole_word_mask", "max_predictions_per_seq")

_KINDS = (PRETRAINING, UNMASKED)

# A row of 512 tokens has slots for so many sequences times 16.
_TOKENS_PER_SLOT = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackingPlan:
    """A set of packed rows that is to be made.

    Attributes:
        paths: the record files to pack.
        layout: of their records, as long as the longest.
        vocabulary: of the tokens.
        output_files: the files of rows.
        manifest: what is known before any row is made.
    """

    paths: Sequence[str]
    layout: RecordLayout
    vocabulary: Vocabulary
    output_files: Sequence[str]
    manifest: Manifest


def plan_packing(
    paths: Sequence[str],
    output_file: str,
    *,
    max_seq_length: int,
    max_predictions_per_seq: int | None,
    max_sequences_per_row: int | None,
    num_shards: int | None,
    random_seed: int,
    vocab_file: str | None,
    do_lower_case: bool | None,
    num_workers: int,
) -> PackingPlan:
    """Checks what is asked for, and reads the input once to know it again.

    The arguments are those of `packed_records.pack_pretraining_records`, as are the
    errors.
    """
    manifests = find_manifests(paths)
    layout = _common_layout(paths, max_seq_length)
    base, vocabulary = _base(paths, manifests, layout, vocab_file, do_lower_case)
    if max_predictions_per_seq is None:
        # As many for each token as the records have.
        slots = base.max_predictions_per_seq * max_seq_length
        max_predictions_per_seq = -(-slots // layout.max_seq_length)
    if max_predictions_per_seq < base.max_predictions_per_seq:
        raise InputError(
            f"--max_predictions_per_seq={max_predictions_per_seq} of a row must not be"
            f" less than that of a sequence, {base.max_predictions_per_seq}."
        )
    if max_sequences_per_row is None:
        max_sequences_per_row = max(1, max_seq_length // _TOKENS_PER_SLOT)
    output_files = _output_files(paths, output_file, num_shards)
    path = manifest_path(output_files)
    is_much = sum(map(files.size, paths)) > 1 << 30
    manifest = dataclasses.replace(
        base,
        path=path,
        packed=True,
        max_seq_length=max_seq_length,
        max_predictions_per_seq=max_predictions_per_seq,
        max_sequences_per_row=max_sequences_per_row,
        max_sequence_length=layout.max_seq_length,
        max_predictions_per_sequence=base.max_predictions_per_seq,
        packing_seed=random_seed,
        record_files=tuple(
            ordered_map(
                SourceFile.describe, paths, num_workers=num_workers if is_much else 1
            )
        ),
        shards=tuple(
            Shard(name=relative_name(name, path), num_records=0, num_bytes=0)
            for name in output_files
        ),
        complete=False,
        report={},
    )
    return PackingPlan(
        paths=paths,
        layout=layout,
        vocabulary=vocabulary,
        output_files=output_files,
        manifest=manifest,
    )


def _output_files(
    paths: Sequence[str], output_file: str, num_shards: int | None
) -> list[str]:
    if not output_file or files.is_folder(output_file):
        raise InputError(f"--output_file={output_file} must name a file, not a folder.")
    if num_shards is None and len(paths) == 1:
        names = [output_file]
    else:
        count = num_shards or len(paths)
        names = [f"{output_file}-{shard:05d}-of-{count:05d}" for shard in range(count)]
    taken = {files.identity(path) for path in paths}
    for name in names:
        if files.identity(name) in taken:
            raise InputError(f"--output_file: {name} is also an input file.")
    return names


def _common_layout(paths: Sequence[str], max_seq_length: int) -> RecordLayout:
    """The kind of all records, and the longest length."""
    found: dict[RecordLayout, str] = {}
    for path in paths:
        for records in record_blocks(path, 1):
            found.setdefault(find_layout(records[0], path), path)
            break
    if not found:
        raise InputError(f"--input_file: there is no record in {', '.join(paths[:3])}.")
    first = next(iter(found))
    for layout, path in found.items():
        if layout.kind not in _KINDS or layout.max_sequences_per_row:
            raise InputError(f"{path}: {layout} cannot be packed.")
        if layout.kind != first.kind:
            raise InputError(
                f"Records that are masked and records without masks cannot be packed"
                f" together: {found[first]} and {path}."
            )
        if layout.max_seq_length > max_seq_length:
            raise InputError(
                f"--max_seq_length={max_seq_length} of a row must not be less than that"
                f" of a sequence, {layout.max_seq_length} in {path}."
            )
    return dataclasses.replace(
        first,
        max_seq_length=max(layout.max_seq_length for layout in found),
        max_predictions_per_seq=max(layout.max_predictions_per_seq for layout in found),
    )


def _base(
    paths: Sequence[str],
    manifests: Sequence[Manifest],
    layout: RecordLayout,
    vocab_file: str | None,
    do_lower_case: bool | None,
) -> tuple[Manifest, Vocabulary]:
    """What the rows have of their records: a manifest, and the vocabulary."""
    if not manifests:
        return _base_of_foreign_records(paths, layout, vocab_file, do_lower_case)
    listed = {
        files.absolute(path)
        for manifest in manifests
        for path in manifest.records_by_path()
    }
    for path in paths:
        if files.absolute(path) not in listed:
            raise InputError(
                f"{path} has no manifest, but other files of --input_file have one:"
                " pack them apart."
            )
    first = manifests[0]
    is_dynamic = first.masking == DYNAMIC_MASKING
    names = (*_COMMON, *_COMMON_UNMASKED) if is_dynamic else _COMMON
    for other in manifests[1:]:
        for name in names:
            here, there = getattr(first, name), getattr(other, name)
            if here != there:
                raise InputError(
                    f"The records of {first.path} were made with {name}={here}, those"
                    f" of {other.path} with {there}: pack them apart."
                )
    if not vocab_file and not files.exists(first.vocab_path):
        raise InputError(f"{first.vocab_path} is missing: give --vocab_file.")
    vocabulary = Vocabulary.from_file(vocab_file or first.vocab_path)
    if vocabulary.sha256 != first.vocab_sha256:
        raise InputError(
            f"{vocab_file or first.vocab_path} is not the vocabulary that {first.path}"
            " names."
        )
    if do_lower_case not in (None, first.do_lower_case):
        raise InputError(
            f"--do_lower_case={do_lower_case}, but the records of {first.path} were"
            f" made with {first.do_lower_case}."
        )
    sources = {
        source.sha256: source
        for manifest in manifests
        for source in manifest.source_files
    }
    base = dataclasses.replace(
        first,
        max_predictions_per_seq=max(
            manifest.max_predictions_per_seq for manifest in manifests
        ),
        source_files=tuple(sources.values()),
    )
    return base, vocabulary


def _base_of_foreign_records(
    paths: Sequence[str],
    layout: RecordLayout,
    vocab_file: str | None,
    do_lower_case: bool | None,
) -> tuple[Manifest, Vocabulary]:
    """What can be said of records without a manifest: the original's defaults."""
    if not vocab_file:
        raise InputError(
            f"{paths[0]} has no manifest: give --vocab_file, and --do_lower_case=False"
            " for a cased one."
        )
    if layout.kind == UNMASKED:
        raise InputError(
            f"{paths[0]} has neither masks nor a manifest that says how to mask it."
        )
    vocabulary = Vocabulary.from_file(vocab_file)
    vocabulary.require_special_tokens(vocab_file)
    settings = InstanceSettings(
        max_seq_length=layout.max_seq_length,
        max_predictions_per_seq=layout.max_predictions_per_seq,
        masking=STATIC_MASKING,
    )
    manifest = Manifest(
        vocab_sha256=vocabulary.sha256,
        vocab_size=len(vocabulary),
        do_lower_case=do_lower_case is not False,
        source_files=(),
        shards=(),
        complete=False,
        **dataclasses.asdict(settings),
    )
    return manifest, vocabulary


# Some records to one file of packed rows: a piece of work for any core.


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


# Packed rows: pre-training records in, a finished set of rows out.
#
# Each output file is made, on any core, of a stretch of the input's records, read
# some
# millions of tokens at a time: their sequences lose their padding and are dealt to
# rows
# (`packing`). The set is published as `bert_tf.records.record_sets` says, so that it
# is
# whole or not there, and the same command again goes on where it was killed.


# To be raised when the same records come to give other rows.
_WAY_OF_MAKING = 1


def pack_pretraining_records(
    patterns: str,
    output_file: str,
    *,
    max_seq_length: int = 512,
    max_predictions_per_seq: int | None = None,
    max_sequences_per_row: int | None = None,
    num_shards: int | None = None,
    random_seed: int = 12345,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    num_workers: int = 1,
    work_dir: str | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Packs the sequences of pre-training records into rows, each sequence once."""
    started = time.monotonic()
    plan = plan_packing(
        record_files(patterns, "input_file"),
        output_file,
        max_seq_length=max_seq_length,
        max_predictions_per_seq=max_predictions_per_seq,
        max_sequences_per_row=max_sequences_per_row,
        num_shards=num_shards,
        random_seed=random_seed,
        vocab_file=vocab_file,
        do_lower_case=do_lower_case,
        num_workers=num_workers,
    )
    name = plan.manifest.path.removesuffix(MANIFEST_SUFFIX)
    folder = work_folder_path(name, work_dir)
    if not overwrite and (finished := find_finished(plan.manifest, plan.output_files)):
        if not files.exists(finished.vocab_path):
            plan.vocabulary.save(finished.vocab_path)
        logging.info(
            "All is done already: %d rows in %d files, %s",
            finished.num_records,
            len(finished.shards),
            finished.path,
        )
        remove_finished(folder, _identity(plan))
        return finished
    with (
        hold_work_folder(folder),
        Workers(min(num_workers, len(plan.output_files))) as workers,
    ):
        open_work_folder(folder, _identity(plan), plan.vocabulary)
        announce(plan.manifest, plan.vocabulary)
        jobs = _jobs(plan, folder)
        results = list(
            tqdm(
                workers.map(pack_shard, jobs),
                total=len(jobs),
                desc="Packing",
                unit=" files",
                disable=None,
            )
        )
        return _complete(plan.manifest, results, started)


def _jobs(plan: PackingPlan, folder: str) -> list[PackJob]:
    num_shards = len(plan.output_files)
    return [
        PackJob(
            stretches=stretches,
            layout=plan.layout,
            path=path,
            result_path=os.path.join(folder, f"shard-{shard:05d}.json"),
            manifest=plan.manifest,
            mask_id=plan.vocabulary.ids[MASK],
            random_seed=shard_seed(plan.manifest.packing_seed, shard, num_shards),
        )
        for shard, (path, stretches) in enumerate(
            zip(plan.output_files, _stretches(plan.paths, num_shards), strict=True)
        )
    ]


def _stretches(
    paths: Sequence[str], num_shards: int
) -> Iterator[list[tuple[str, int, int | None]]]:
    """The input, cut into as many stretches of equally many records."""
    if num_shards == len(paths):
        for path in paths:
            yield [(path, 0, None)]
        return
    counts = [count_records(path) for path in paths]
    starts = np.cumsum([0, *counts]).tolist()
    for shard in range(num_shards):
        begin, end = (starts[-1] * (shard + k) // num_shards for k in (0, 1))
        yield [
            (path, max(0, begin - start), min(end - start, count))
            for path, start, count in zip(paths, starts, counts, strict=False)
            if begin < start + count and start < end
        ]


def _identity(plan: PackingPlan) -> dict[str, Any]:
    """All that the rows depend on, for JSON; of the input its content."""
    nameless = dataclasses.replace(
        plan.manifest,
        record_files=tuple(
            dataclasses.replace(source, path="")
            for source in plan.manifest.record_files
        ),
    )
    return {
        "way": _WAY_OF_MAKING,
        "manifest": nameless.to_json_string(),
        "outputs": [files.absolute(path) for path in plan.output_files],
    }


def _complete(
    wanted: Manifest, results: Sequence[ShardResult], started: float
) -> Manifest:
    """Writes the manifest of the set whose files have their names, and says so."""
    statistics = record_sets.merged_statistics(results)
    manifest = with_counts(wanted, results)
    manifest = dataclasses.replace(
        manifest,
        complete=True,
        report={
            "sequences": statistics.figures(),
            "rows": row_figures(
                statistics,
                manifest.num_records,
                max_seq_length=manifest.max_seq_length,
            ),
        },
    )
    files.write_atomically(manifest.path, manifest.to_json_string())
    for path in (manifest.path, manifest.vocab_path):
        remove_leftovers(path)
    rows = manifest.report["rows"]
    for line in statistics.lines():
        logging.info("%s", line)
    logging.info(
        "Packed %s sequences into %s rows of %d tokens: %.2f a row; %.2f%% of all"
        " places are padding",
        f"{rows['sequences']:,}",
        f"{rows['rows']:,}",
        manifest.max_seq_length,
        rows["sequences_per_row"],
        100 * rows["padding_share"],
    )
    logging.info(
        "Wrote %d rows to %d files, %s (%.1f s)",
        manifest.num_records,
        len(manifest.shards),
        manifest.path,
        time.monotonic() - started,
    )
    return manifest


# Batches of packed rows, taken apart into sequences and put together again.
#
# Shapes: B batch, L tokens of a row, N sequences of a row; M sequences of the batch,
# S
# tokens of a sequence.


def as_packed(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Records of one sequence as packed rows of one, for a model of packed rows."""
    labels = batch["next_sentence_labels"]
    return {
        **batch,
        "sequence_ids": batch["input_mask"],
        "cls_positions": tf.zeros_like(labels),
        "next_sentence_weights": tf.ones_like(labels, tf.float32),
    }


class RowSequences:
    """The sequences of a batch of rows, each as a row of its own.

    Attributes:
        input_ids: [M, S] int32, 0 for padding.
        input_mask: [M, S] int32.
        keys: [M], each sequence's own.
    """

    def __init__(
        self,
        batch: Mapping[str, tf.Tensor],
        keys: RecordKeys,
        max_sequence_length: int,
    ) -> None:
        length = batch["input_ids"].shape[1]
        num_slots = batch["cls_positions"].shape[1]
        slots = tf.where(batch["next_sentence_weights"] > 0)
        rows, numbers = tf.unstack(slots, num=2, axis=1)
        self._begins = tf.gather_nd(batch["cls_positions"], slots)[:, None]
        places = self._begins + tf.range(max_sequence_length)[None]
        is_inside = places < length
        offsets = tf.cast(rows, tf.int32)[:, None] * length
        self._places = tf.minimum(places, length - 1) + offsets
        owners = tf.gather(tf.reshape(batch["sequence_ids"], [-1]), self._places)
        own = tf.cast(numbers, tf.int32)[:, None] + 1
        self._is_token = is_inside & (owners == own)
        ids = tf.gather(tf.reshape(batch["input_ids"], [-1]), self._places)
        self.input_ids = tf.where(self._is_token, ids, 0)
        self.input_mask = tf.cast(self._is_token, tf.int32)
        self.keys = RecordKeys(
            tf.gather(keys.epochs, rows),
            tf.gather(keys.records, rows) * num_slots + numbers,
        )
        self._row_length = length
        self._num_rows = tf.shape(batch["input_ids"])[0]

    def in_rows(self, values: tf.Tensor) -> tf.Tensor:
        """[M, S] int32 to [B, L], 0 for padding."""
        flat = tf.scatter_nd(
            tf.boolean_mask(self._places, self._is_token)[:, None],
            tf.boolean_mask(values, self._is_token),
            tf.reshape(self._num_rows * self._row_length, [1]),
        )
        return tf.reshape(flat, [-1, self._row_length])

    def positions_in_rows(self, positions: tf.Tensor) -> tf.Tensor:
        """[M, S] positions in the sequences to positions in the rows, [B, L]."""
        return self.in_rows(self._begins + positions)
