"""Record files to batches: reading, shuffling by position, sharding over workers."""

import concurrent.futures
import functools
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from tqdm import tqdm

from bert_tf.base import files
from bert_tf.base.errors import InputError, cause_of
from bert_tf.base.finished import FinishedResults
from bert_tf.base.parallel import available_cores
from bert_tf.base.unpacking import unpacked
from bert_tf.records.spec import RecordSpec
from bert_tf.records.writing import masked_checksum

# A file's records by their framing (`bert_tf.records.writing`), through gzip or zlib if
# need be. TensorFlow's reader allocates as many bytes as a record's header gives,
# however few the file has, and may crash the process; and it loses the batch in which a
# file is cut off.

_HEADER = struct.Struct("<8s4s")  # the length, its checksum
_LENGTH = struct.Struct("<Q")
FRAME_BYTES = 16
_CHECKSUM_BYTES = 4
_CHUNK_BYTES = 1 << 20
# The first bytes of gzip's deflate streams, and of zlib's at its levels.
_MAGIC = {
    "GZIP": (b"\x1f\x8b\x08",),
    "ZLIB": (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"),
}
_WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}  # zlib's, which also select the container
_MOST_PER_PACKED_BYTE = 1032  # deflate's limit


def compression_of(path: str) -> str:
    """Returns a TFRecord file's compression, by its first bytes, whatever its name."""
    with files.open_binary(path) as file:
        header = file.read(_HEADER.size)
    if len(header) == _HEADER.size:
        length, checksum = _HEADER.unpack(header)
        # A record's length may begin with the same bytes as zlib.
        if masked_checksum(length) == checksum:
            return ""
    found = (name for name, magic in _MAGIC.items() if header.startswith(magic))
    return next(found, "")


def read_records(path: str, *, check_data: bool = True) -> Iterator[bytes]:
    """Yields the records of a file, compressed or not, as far as they are readable."""
    rest = b""  # bytes read and not yet used
    position = 0  # of the next record, from the beginning of `rest`
    number = 0
    complaint = ""
    compression = compression_of(path)
    # No record is longer, whatever its header says.
    limit = files.size(path) * (_MOST_PER_PACKED_BYTE if compression else 1)
    try:
        for chunk in _chunks(path, compression):
            if position >= len(rest):
                position -= len(rest)
                rest = chunk
            else:
                rest = rest[position:] + chunk
                position = 0
            while position + _HEADER.size <= len(rest):
                packed, checksum = _HEADER.unpack_from(rest, position)
                if masked_checksum(packed) != checksum:
                    complaint = f"the length of record {number + 1} is damaged"
                    break
                length = _LENGTH.unpack(packed)[0]
                end = position + FRAME_BYTES + length
                record = b""
                if length > limit:
                    complaint = f"it breaks off in record {number + 1}"
                    break
                if check_data:
                    if end > len(rest):
                        break
                    record = rest[position + _HEADER.size : end - _CHECKSUM_BYTES]
                    if masked_checksum(record) != rest[end - _CHECKSUM_BYTES : end]:
                        complaint = f"record {number + 1} does not match its checksum"
                        break
                position = end
                number += 1
                yield record
            if complaint:
                break
    except (zlib.error, EOFError) as error:
        complaint = f"{error} after record {number}"
    if not complaint and position != len(rest):
        # A record with a header but no data was counted already.
        broken = number if position > len(rest) else number + 1
        complaint = f"it breaks off in record {broken}"
    if complaint:
        of_text = (
            "" if number else " If it is text, create_pretraining_data makes them."
        )
        remedy = "Make records of its text with create_pretraining_data."
        if not number and (message := files.no_text(rest, path, remedy)):
            raise InputError(message)
        raise InputError(
            f"{path}: not a whole TFRecord file ({complaint}); write the records again."
            + of_text
        )


def _chunks(path: str, compression: str) -> Iterator[bytes]:
    """Yields a file's bytes, uncompressed."""
    with files.open_binary(path) as file:
        if compression:
            bits = _WINDOW_BITS[compression]
            yield from unpacked(file, functools.partial(zlib.decompressobj, bits))
        else:
            yield from iter(functools.partial(file.read, _CHUNK_BYTES), b"")


def count_records(path: str) -> int:
    """Returns the number of records in a TFRecord file, compressed or not."""
    return sum(1 for _ in read_records(path, check_data=False))


def first_record(paths: Sequence[str]) -> tuple[str, bytes] | None:
    """Returns the first record of all files with its file's path, if there is one."""
    for path in paths:
        try:
            for record in read_records(path):
                return path, record
        except IsADirectoryError as error:
            raise InputError(f"{path}: not a TFRecord file, but a folder.") from error
    return None


def record_counts(paths: Sequence[str], cache_path: str | None = None) -> list[int]:
    """Returns the number of records in each file, remembered between runs."""
    known: FinishedResults[int] = FinishedResults(cache_path, int)
    states = {path: _state(path) for path in paths}

    def find(path: str) -> int | None:
        return known.find(files.absolute(path), states[path])

    def count(path: str) -> int:
        known.keep(files.absolute(path), states[path], count_records(path))
        return states[path]["size"]

    unknown = [path for path in states if find(path) is None]
    if unknown:
        logging.info("Counting records: %d file(s).", len(unknown))
        # Threads suffice: unpacking and reading release Python's lock.
        executor = concurrent.futures.ThreadPoolExecutor(available_cores())
        num_bytes = sum(states[path]["size"] for path in unknown)
        with tqdm(
            total=num_bytes, desc="Counting records", unit="B", unit_scale=True,
            disable=None, delay=1.0,
        ) as bar:  # fmt: skip
            try:
                for size in executor.map(count, unknown):
                    bar.update(size)
            finally:
                executor.shutdown(cancel_futures=True)
    return [find(path) or 0 for path in paths]


def _state(path: str) -> dict[str, Any]:
    """Returns a file's size and time of change."""
    return {"size": files.size(path), "mtime_ns": files.time_of_change(path)}


# **Training** reads the files repeatedly. The order of the records is a function of
# (seed, position) alone, so that a killed run resumes with exactly the record it
# would have read next:
#
# - an epoch's files are shuffled by (seed, epoch) and dealt into units of four;
# - a unit's files are read in turns, record by record, and shuffled in a buffer by
#   (seed, epoch, unit);
# - units and epochs follow each other without a gap; batches are cut from that stream.
#
# To start at position n, whole epochs and whole units are skipped by their counts, and
# only the rest of one unit is read again.
#
# **Evaluation** reads the files once, or repeated, in the order given.
#
# Several workers read the same stream, and each takes its rows of every batch
# (`InputShard`), so that the batches do not depend on the number of workers. The
# function applied to parsed batches (`transform`) gets each record's number and epoch,
# so that it does not depend on the order or the batch.

FILES_PER_UNIT = 4
# Serialized records held for shuffling. Larger than the original's 100, which hardly
# separates neighbours.
SHUFFLE_BUFFER = 10_000
PREFETCHED_BATCHES = 4

# A file has fewer records than this.
_RECORDS_PER_FILE = 1 << 40


class RecordKeys(NamedTuple):
    """The keys of a batch's records."""

    # [B] int64: 0 in evaluation, in training the epoch, counted from 1.
    epochs: tf.Tensor
    # [B] int64: the records' numbers, counted over all files.
    records: tf.Tensor


class InputShard(NamedTuple):
    """A worker's share of the rows of every batch."""

    worker: int = 0  # its number, from 0
    num_workers: int = 1  # how many there are
    num_replicas: int = 1  # per worker; each one's rows become a batch

    def rows(self, batch_size: int) -> slice:
        """Returns the worker's rows of a batch."""
        assert batch_size % (self.num_workers * self.num_replicas) == 0
        size = batch_size // self.num_workers
        return slice(self.worker * size, (self.worker + 1) * size)


ALL_ROWS = InputShard()

Batch = dict[str, tf.Tensor]
Transform = Callable[[Batch, RecordKeys], Batch]


def training_dataset(
    paths: Sequence[str],
    counts: Sequence[int],
    spec: RecordSpec,
    *,
    batch_size: int,
    seed: int,
    start: int = 0,
    shard: InputShard = ALL_ROWS,
    compressions: Sequence[str] | None = None,
    shuffle_buffer: int = SHUFFLE_BUFFER,
    vocab_size: int | None = None,
    transform: Transform | None = None,
) -> tf.data.Dataset:
    """Returns endless batches for training, from position `start` of the stream on."""
    epoch, rest = divmod(start, sum(counts))
    skipped_units = 0
    order = _order(len(paths), seed, tf.constant(epoch, tf.int64)).numpy().tolist()
    while rest:
        unit = order[skipped_units * FILES_PER_UNIT :][:FILES_PER_UNIT]
        in_unit = sum(counts[index] for index in unit)
        if rest < in_unit:
            break
        rest -= in_unit
        skipped_units += 1
    units_per_epoch = -(-len(paths) // FILES_PER_UNIT)
    first = epoch * units_per_epoch + skipped_units
    path_tensor = tf.constant(list(paths))
    compression_tensor = tf.constant(list(compressions or [""] * len(paths)))

    def unit_dataset(number: tf.Tensor) -> tf.data.Dataset:
        epoch_of_unit = number // units_per_epoch
        unit_of_epoch = number % units_per_epoch
        order_of_epoch = _order(len(paths), seed, epoch_of_unit)
        begin = unit_of_epoch * FILES_PER_UNIT
        unit_files = order_of_epoch[begin : begin + FILES_PER_UNIT]
        dataset = tf.data.Dataset.from_tensor_slices(
            (
                tf.gather(path_tensor, unit_files),
                tf.gather(compression_tensor, unit_files),
                unit_files,
            )
        )
        dataset = dataset.interleave(
            _numbered_records,
            cycle_length=FILES_PER_UNIT,
            block_length=1,
            num_parallel_calls=FILES_PER_UNIT,
            deterministic=True,
        )
        dataset = _shuffle(dataset, shuffle_buffer, _seed_pair(seed, number))
        return _in_epoch(dataset, 1 + epoch_of_unit)

    # Two units at most are open at the seam; flat_map keeps the order exact.
    numbers = tf.data.Dataset.range(first, np.iinfo(np.int64).max)
    dataset = numbers.flat_map(unit_dataset)
    if rest:
        dataset = dataset.skip(rest)
    dataset = dataset.batch(batch_size, drop_remainder=True)
    if shard.num_workers * shard.num_replicas > 1:
        dataset = _rows_of(dataset, batch_size, shard)
    dataset = _parse(dataset, spec, vocab_size, transform)
    # With several workers, or hosts of a TPU, tf.distribute keeps the batch's size
    # static only for an endless data set.
    return dataset.apply(
        tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    )


def evaluation_dataset(
    paths: Sequence[str],
    spec: RecordSpec,
    *,
    batch_size: int,
    compressions: Sequence[str] | None = None,
    repeat: bool = False,
    vocab_size: int | None = None,
    transform: Transform | None = None,
) -> tf.data.Dataset:
    """Returns batches in the files' order; if repeated, all are of `batch_size`."""
    dataset = tf.data.Dataset.from_tensor_slices(
        (list(paths), list(compressions or [""] * len(paths)), tf.range(len(paths)))
    )
    dataset = _in_epoch(dataset.flat_map(_numbered_records), 0)
    if repeat:
        dataset = dataset.repeat()
    dataset = dataset.batch(batch_size, drop_remainder=repeat)
    return _parse(dataset, spec, vocab_size, transform)


# Errors of reading a batch; the last one is raised if a feature's name, and thus
# TensorFlow's own message, is not UTF-8.
READING_ERRORS = (
    tf.errors.InvalidArgumentError,
    tf.errors.DataLossError,
    UnicodeDecodeError,
)


def record_error(error: Exception) -> str:
    """Returns a message for an error that TensorFlow raised about a record."""
    message = str(error.message if isinstance(error, tf.errors.OpError) else error)
    for line in message.splitlines():
        if "outside the vocabulary" in line:
            start = line.index("an id in")
            return line[start:].split(")", 1)[0] + "): make the records again."
    if (
        isinstance(error, tf.errors.DataLossError | UnicodeDecodeError)
        or "not parse" in message
        or "ParseExample" in message
    ):
        return (
            f"A record cannot be read: {cause_of(message)}. python -m"
            " bert_tf.tfrecords.inspect_records FILE says which file it is."
        )
    raise error


def _numbered_records(
    path: tf.Tensor, compression: tf.Tensor, file_number: tf.Tensor
) -> tf.data.Dataset:
    """Returns a file's serialized records, each with its own number."""
    first = tf.cast(file_number, tf.int64) * _RECORDS_PER_FILE
    numbers = tf.data.Dataset.range(first, first + _RECORDS_PER_FILE)
    return tf.data.Dataset.zip(tf.data.TFRecordDataset(path, compression), numbers)


def _in_epoch(dataset: tf.data.Dataset, epoch: int | tf.Tensor) -> tf.data.Dataset:
    """Returns elements ((serialized, number), epoch)."""
    epochs = tf.data.Dataset.from_tensors(tf.cast(epoch, tf.int64)).repeat()
    return tf.data.Dataset.zip(dataset, epochs)


def _rows_of(
    dataset: tf.data.Dataset, batch_size: int, shard: InputShard
) -> tf.data.Dataset:
    """Returns the worker's rows of every batch, one replica's at a time."""
    rows = shard.rows(batch_size)
    shape = (shard.num_replicas, -1)
    return dataset.map(
        lambda numbered, epochs: tf.nest.map_structure(
            lambda values: tf.reshape(values[rows], shape), (numbered, epochs)
        )
    ).unbatch()


def _parse(
    dataset: tf.data.Dataset,
    spec: RecordSpec,
    vocab_size: int | None,
    transform: Transform | None,
) -> tf.data.Dataset:
    """Returns parsed batches of `_in_epoch`'s elements, ids checked, read ahead."""

    def parse(numbered: tuple[tf.Tensor, tf.Tensor], epochs: tf.Tensor) -> Batch:
        serialized, records = numbered
        batch = checked_batch(spec.parse(serialized))
        return transform(batch, RecordKeys(epochs, records)) if transform else batch

    def checked_batch(batch: Batch) -> Batch:
        if vocab_size is None:
            return batch
        # An id outside the embedding table gives silent NaN or zero on some devices.
        checks = [
            tf.debugging.assert_less(
                tf.cast(batch[name], tf.uint32),  # negative ones are large
                tf.constant(vocab_size, tf.uint32),
                message=f"an id in `{name}` is outside the vocabulary of {vocab_size}"
                " tokens (`vocab_size` of the config)",
            )
            for name in ("input_ids", "masked_lm_ids")
            if name in batch
        ]
        with tf.control_dependencies([check for check in checks if check is not None]):
            return {name: tf.identity(value) for name, value in batch.items()}

    options = tf.data.Options()
    # There is nothing to tune here, and deleting an iterator with a tuner waits up to a
    # minute for the tuner's next turn.
    options.autotune.enabled = False
    dataset = dataset.map(parse, num_parallel_calls=2, deterministic=True)
    return dataset.prefetch(PREFETCHED_BATCHES).with_options(options)


def _order(num_files: int, seed: int, epoch: tf.Tensor) -> tf.Tensor:
    return tf.random.experimental.stateless_shuffle(
        tf.range(num_files), seed=_seed_pair(seed, epoch)
    )


def shuffled_numbers(count: int, seed: int, epoch: int) -> np.ndarray:
    """Returns 0 to `count` - 1 in the epoch's order of a file of `count` records."""
    seeds = _seed_pair(seed, tf.constant(epoch, tf.int64))
    numbers = _shuffle(tf.data.Dataset.range(count), count, seeds)
    return numbers.batch(count).get_single_element().numpy()


def _shuffle(
    dataset: tf.data.Dataset, buffer_size: int, seed_pair: tf.Tensor
) -> tf.data.Dataset:
    """Returns elements shuffled in a buffer, in an order of the two seeds alone."""
    # `Dataset.shuffle` also uses the process's global seed, so the order would depend
    # on where that was set; and it fails on a seed tensor if the global seed is 0.

    # Two zeros would mean: seed from the clock.
    seeds = tf.random.stateless_uniform(
        [2], seed_pair, minval=1, maxval=2**62, dtype=tf.int64
    )
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=tf.constant(buffer_size, tf.int64),
        seed=seeds[0],
        seed2=seeds[1],
        output_types=[spec.dtype for spec in tf.nest.flatten(dataset.element_spec)],
        output_shapes=[spec.shape for spec in tf.nest.flatten(dataset.element_spec)],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


def _seed_pair(seed: int, number: tf.Tensor) -> tf.Tensor:
    return tf.stack([tf.constant(seed, tf.int64), number])
