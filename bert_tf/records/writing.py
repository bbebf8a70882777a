"""Serialized tf.Examples to TFRecord files."""

import contextlib
import functools
import glob
import itertools
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import google_crc32c
import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.instances.compilation import compiled

# Names of files next to records.
MANIFEST_SUFFIX = ".manifest.json"
VOCABULARY_SUFFIX = ".vocab.txt"
_TEMPORARY_SUFFIX = re.compile(r"\.tmp-\d+$")


def is_temporary(path: str) -> bool:
    """Returns whether a name belongs to a file that is not yet complete."""
    return bool(_TEMPORARY_SUFFIX.search(path))


def is_companion(path: str) -> bool:
    """Whether a name belongs to a file next to records, neither records nor text."""
    return is_temporary(path) or path.endswith((MANIFEST_SUFFIX, VOCABULARY_SUFFIX))


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

_MOST_BYTES = 10  # of a number
_HEADERS = 5 * (1 + _MOST_BYTES)  # the bytes of a feature's headers, at most


def serialize_block(columns: Mapping[str, np.ndarray]) -> list[bytes]:
    """Returns the records of a block."""
    names = sorted(columns)
    values = []
    for name in names:
        column = np.ascontiguousarray(columns[name])
        if column.dtype == np.float32:
            # A float is passed as the integer of its bits.
            column = column.view(np.int32).astype(np.int64)
        values.append(column)
    rows = np.concatenate(values, axis=1)
    ends = np.cumsum([0] + [column.shape[1] for column in values])
    is_float = np.array([columns[name].dtype == np.float32 for name in names])
    keys = [name.encode("utf-8") for name in names]
    key_ends = np.cumsum([0] + [len(key) for key in keys])
    key_bytes = np.frombuffer(b"".join(keys), np.uint8)
    data, starts = _serialize(rows, ends, is_float, key_bytes, key_ends)
    whole = data[starts[0] :].tobytes()
    return [whole[start:stop] for start, stop in itertools.pairwise(starts - starts[0])]


@compiled
def _put_varint(data, stop, value):
    """Writes a number that ends before `stop`; returns where it starts."""
    bits = np.uint64(value)
    start = stop - 1
    rest = bits >> np.uint64(7)
    while rest:
        rest >>= np.uint64(7)
        start -= 1
    for position in range(start, stop - 1):
        data[position] = np.uint8(bits & np.uint64(0x7F)) | np.uint8(0x80)
        bits >>= np.uint64(7)
    data[stop - 1] = np.uint8(bits)
    return start


@compiled
def _put_header(data, position, stop, tag):
    """Writes the header of a message in front of it; returns where it starts."""
    start = _put_varint(data, position, stop - position) - 1
    data[start] = tag
    return start


@compiled
def _serialize(rows, ends, is_float, key_bytes, key_ends):
    """Returns the records in sequence, at the end of an array, and their starts."""
    # They are written from the last byte to the first: a header contains the size of
    # what follows it.
    num_records, num_values = rows.shape
    num_features = len(ends) - 1
    most = num_values * _MOST_BYTES + len(key_bytes) + _HEADERS * (num_features + 1)
    data = np.empty(num_records * most, np.uint8)
    position = len(data)
    starts = np.empty(num_records + 1, np.int64)
    starts[num_records] = position
    for record in range(num_records - 1, -1, -1):
        row = rows[record]
        for feature in range(num_features - 1, -1, -1):
            stop = position
            for index in range(ends[feature + 1] - 1, ends[feature] - 1, -1):
                if is_float[feature]:
                    for byte in range(3, -1, -1):
                        position -= 1
                        data[position] = (row[index] >> (8 * byte)) & 0xFF
                elif 0 <= row[index] < 128:  # most of them
                    position -= 1
                    data[position] = row[index]
                else:
                    position = _put_varint(data, position, row[index])
            position = _put_header(data, position, stop, _LIST_VALUES)
            tag = _FLOAT_LIST if is_float[feature] else _INT64_LIST
            position = _put_header(data, position, stop, tag)
            position = _put_header(data, position, stop, _ENTRY_VALUE)
            key = key_bytes[key_ends[feature] : key_ends[feature + 1]]
            after_key = position
            position -= len(key)
            data[position:after_key] = key
            position = _put_header(data, position, after_key, _ENTRY_KEY)
            position = _put_header(data, position, stop, _FEATURES_ENTRY)
        stop = starts[record + 1]
        position = starts[record] = _put_header(data, position, stop, _EXAMPLE_FEATURES)
    return data, starts


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
    """Returns the checksum of some data, four bytes."""
    crc = google_crc32c.value(data)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return _CHECKSUM.pack((rotated + _MASK_DELTA) & 0xFFFFFFFF)


def framed(record: bytes) -> bytes:
    """Returns a record as it is written to a file."""
    length = _LENGTH.pack(len(record))
    return b"".join((length, masked_checksum(length), record, masked_checksum(record)))


def write_records(file: IO[bytes], records: Iterable[bytes]) -> int:
    """Appends records to a file; returns the number of bytes."""
    data = b"".join(map(framed, records))
    file.write(data)
    return len(data)


# Records are dealt to a set's files in turn, as in the original, under temporary names
# (FILE.tmp-NUMBER); the files get their own names after the last record. A killed run
# leaves nothing but temporary files, which the next one removes.


def record_files(patterns: str | Iterable[str], flag: str) -> list[str]:
    """Returns the record files that comma-separated patterns name, in their order."""
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
                replacing = files.replacing(path)
                with file_errors(path):
                    self._files.append(replacing.__enter__())
                opened.push(functools.partial(_close, replacing, path))
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
        return self._opened.__exit__(*exception)


def _close(
    replacing: contextlib.AbstractContextManager, path: str, *exception: Any
) -> bool | None:
    with file_errors(path):
        return replacing.__exit__(*exception)


@contextlib.contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Names the file in errors that do not, and unifies errors of remote files."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from error
    except files.remote_errors() as error:
        raise OSError(f"{path} cannot be written: {error}") from error
