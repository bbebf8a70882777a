"""Serialized tf.Examples to TFRecord files."""

import contextlib
import glob
import itertools
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import google_crc32c
import numpy as np

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.instances.random_stream import compiled
from bert_tf.records.manifest import is_companion, is_temporary

# A record is a message of https://protobuf.dev/programming-guides/encoding:
#
#     Example  { Features features = 1; }
#     Features { map<string, Feature> feature = 1; }    entry: key = 1, value = 2
#     Feature  { FloatList float_list = 2; Int64List int64_list = 3; }
#     ...List  { repeated value = 1 [packed]; }
#
# with the features in the order of their names, as deterministic serialization of the
# message gives them. All records of a block have the same features and lengths.

_LENGTH_DELIMITED = 2


def _tag(field: int) -> int:
    return field << 3 | _LENGTH_DELIMITED


_EXAMPLE_FEATURES = _tag(1)
_FEATURES_ENTRY = _tag(1)
_ENTRY_KEY = _tag(1)
_ENTRY_VALUE = _tag(2)
_FLOAT_LIST = _tag(2)
_INT64_LIST = _tag(3)
_LIST_VALUES = _tag(1)


def serialize_block(columns: Mapping[str, np.ndarray]) -> list[bytes]:
    """The records of a block."""
    names = sorted(columns)
    values = []
    for name in names:
        column = np.ascontiguousarray(columns[name])
        if column.dtype == np.float32:
            # A float travels as the integer of its bits.
            column = column.view(np.int32).astype(np.int64)
        values.append(column)
    rows = np.concatenate(values, axis=1)
    starts = np.cumsum([0] + [column.shape[1] for column in values])
    is_float = np.array([columns[name].dtype == np.float32 for name in names])
    keys = [name.encode("utf-8") for name in names]
    key_starts = np.cumsum([0] + [len(key) for key in keys])
    key_bytes = np.frombuffer(b"".join(keys), np.uint8)
    data, stops = _serialize(rows, starts, is_float, key_bytes, key_starts)
    whole = data.tobytes()
    stops = [0, *stops.tolist()]
    return [whole[start:stop] for start, stop in itertools.pairwise(stops)]


@compiled
def _varint_size(value):
    if value < 0:
        return 10
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


@compiled
def _put_varint(data, position, value):
    bits = np.uint64(value)
    while bits > np.uint64(0x7F):
        data[position] = np.uint8(bits & np.uint64(0x7F)) | np.uint8(0x80)
        bits >>= np.uint64(7)
        position += 1
    data[position] = np.uint8(bits)
    return position + 1


@compiled
def _put_message(data, position, tag, size):
    """The header of a nested message; returns where its content starts."""
    data[position] = tag
    return _put_varint(data, position + 1, size)


@compiled
def _message_size(size):
    """A nested message's bytes with its tag, from its content's."""
    return 1 + _varint_size(size) + size


@compiled
def _serialize(rows, starts, is_float, key_bytes, key_starts):
    num_records, num_values = rows.shape
    num_features = len(starts) - 1
    capacity = num_records * (num_values * 3 + len(key_bytes) + 32 * num_features)
    data = np.empty(capacity, np.uint8)
    stops = np.empty(num_records, np.int64)
    value_sizes = np.empty(num_features, np.int64)
    position = 0
    for record in range(num_records):
        row = rows[record]
        features_size = 0
        for feature in range(num_features):
            begin, end = starts[feature], starts[feature + 1]
            size = 0
            if is_float[feature]:
                size = 4 * (end - begin)
            else:
                for index in range(begin, end):
                    size += _varint_size(row[index])
            value_sizes[feature] = size
            key_size = key_starts[feature + 1] - key_starts[feature]
            features_size += _message_size(_entry_size(key_size, size))
        needed = position + 16 + features_size
        if needed > len(data):
            larger = np.empty(2 * needed, np.uint8)
            larger[:position] = data[:position]
            data = larger
        position = _put_message(data, position, _EXAMPLE_FEATURES, features_size)
        for feature in range(num_features):
            key = key_bytes[key_starts[feature] : key_starts[feature + 1]]
            size = value_sizes[feature]
            position = _put_message(
                data, position, _FEATURES_ENTRY, _entry_size(len(key), size)
            )
            position = _put_message(data, position, _ENTRY_KEY, len(key))
            data[position : position + len(key)] = key
            position += len(key)
            list_size = _message_size(size)
            position = _put_message(
                data, position, _ENTRY_VALUE, _message_size(list_size)
            )
            tag = _FLOAT_LIST if is_float[feature] else _INT64_LIST
            position = _put_message(data, position, tag, list_size)
            position = _put_message(data, position, _LIST_VALUES, size)
            for index in range(starts[feature], starts[feature + 1]):
                if is_float[feature]:
                    for byte in range(4):
                        data[position] = (row[index] >> (8 * byte)) & 0xFF
                        position += 1
                else:
                    position = _put_varint(data, position, row[index])
        stops[record] = position
    return data[:position], stops


@compiled
def _entry_size(key_size, values_size):
    list_size = _message_size(values_size)
    feature_size = _message_size(list_size)
    return _message_size(key_size) + _message_size(feature_size)


# A TFRecord file is its records, one after another
# (tensorflow/core/lib/io/record_writer.h):
#
#     uint64 length        little-endian
#     uint32 checksum      of the length's bytes
#     byte   data[length]
#     uint32 checksum      of the data
#
# The checksum is CRC-32C, rotated right by 15 bits, plus a constant.

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


def masked_checksum(data: bytes) -> bytes:
    """The checksum after some data, four bytes."""
    crc = google_crc32c.value(data)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return _CHECKSUM.pack((rotated + _MASK_DELTA) & 0xFFFFFFFF)


def framed(record: bytes) -> bytes:
    """A record as written in a file."""
    length = _LENGTH.pack(len(record))
    return b"".join((length, masked_checksum(length), record, masked_checksum(record)))


def write_records(file: IO[bytes], records: Iterable[bytes]) -> int:
    """Appends records to a file; returns their bytes."""
    data = b"".join(map(framed, records))
    file.write(data)
    return len(data)


# Records are dealt to a set's files in turn, as in the original, under temporary names
# (FILE.tmp-NUMBER); the files get their own names after the last record. A killed run
# leaves nothing but temporary files, which the next one removes.


def record_files(patterns: str | Iterable[str], flag: str) -> list[str]:
    """The record files that comma-separated patterns name, in the patterns' order."""
    found = files.expand_globs(patterns, flag)
    records = [path for path in found if not is_companion(path)]
    if not records:
        raise InputError(
            f"`{flag}`: no record file, only {found[0]}"
            f"{' and the like' if len(found) > 1 else ''}."
        )
    return records


def remove_leftovers(path: str) -> None:
    """Removes temporary files left by killed writers of a file."""
    for leftover in files.glob(glob.escape(path) + ".tmp-*"):
        if is_temporary(leftover):
            files.remove(leftover)


class ShardWriter:
    """Deals records to several TFRecord files in turn: record i to file i modulo n."""

    def __init__(self, paths: Sequence[str], *, is_alone: bool = True) -> None:
        self.paths = tuple(paths)
        self.num_records = [0] * len(paths)
        self.num_bytes = [0] * len(paths)
        self._is_alone = is_alone
        self._files: list[IO[bytes]] = []
        self._next = 0

    def __enter__(self) -> "ShardWriter":
        with contextlib.ExitStack() as opened:
            for path in self.paths:
                if folder := os.path.dirname(path):
                    files.make_folder(folder)
                if self._is_alone:
                    remove_leftovers(path)
                with file_errors(path):
                    self._files.append(opened.enter_context(files.replacing(path)))
            self._opened = opened.pop_all()
        return self

    def write(self, records: Sequence[bytes]) -> None:
        """Writes records, each to the file whose turn it is."""
        num_files = len(self.paths)
        for index in range(num_files):
            turn = records[(index - self._next) % num_files :: num_files]
            with file_errors(self.paths[index]):
                self.num_bytes[index] += write_records(self._files[index], turn)
            self.num_records[index] += len(turn)
        self._next = (self._next + len(records)) % num_files

    def flush(self) -> None:
        """Brings all records to the disk, still under the temporary names."""
        for file, path in zip(self._files, self.paths, strict=True):
            with file_errors(path):
                files.flush(file, path)

    def __exit__(self, *exception: Any) -> bool | None:
        with file_errors(self.paths[0]):
            return self._opened.__exit__(*exception)


@contextlib.contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Names the file if an error does not, and unifies errors of remote files."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from error
    except files.remote_errors() as error:
        raise OSError(f"{path} cannot be written: {error}") from error
