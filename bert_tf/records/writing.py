"""TFRecord files: their framing, and how a set of them is written."""

import contextlib
import functools
import glob
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import google_crc32c

from bert_tf.base import files
from bert_tf.base.errors import InputError

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
