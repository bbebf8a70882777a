"""TFRecord files, written without TensorFlow.

A file is its records, one after another (tensorflow/core/lib/io/record_writer.h):

    uint64 length        little-endian
    uint32 checksum      of the length's bytes
    byte   data[length]
    uint32 checksum      of the data

The checksum is CRC-32C, rotated right by 15 bits, plus a constant.
"""

import struct
from collections.abc import Iterable
from typing import IO

import google_crc32c

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


def masked_checksum(data: bytes) -> bytes:
    """The four bytes that stand behind some data."""
    crc = google_crc32c.value(data)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return _CHECKSUM.pack((rotated + _MASK_DELTA) & 0xFFFFFFFF)


def framed(record: bytes) -> bytes:
    """A record as it stands in a file."""
    length = _LENGTH.pack(len(record))
    return b"".join((length, masked_checksum(length), record, masked_checksum(record)))


def write_records(file: IO[bytes], records: Iterable[bytes]) -> None:
    """Appends records to a file of bytes."""
    file.write(b"".join(map(framed, records)))
