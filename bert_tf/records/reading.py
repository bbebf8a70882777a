"""TFRecord files read record by record, as far as they go.

TensorFlow's reader loses the batch in which a file breaks off, and says little about
the place. This one is for looking at files of which one does not know whether they are
whole; training reads through `bert_tf.records.pipeline`.

A record in a file: its length as uint64, the checksum of that, the bytes, and theirs; a
checksum is a CRC-32C, rotated and with a constant added.
"""

import struct
from collections.abc import Iterator

import google_crc32c

from bert_tf import files
from bert_tf.errors import InputError

RECORDS_PER_BLOCK = 1000

# What surrounds a record's bytes.
FRAME_BYTES = 16

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


def record_blocks(
    path: str, records_per_block: int = RECORDS_PER_BLOCK
) -> Iterator[list[bytes]]:
    """The records of a file in its order, in lists of at most `records_per_block`.

    Raises:
        InputError: the file is damaged or breaks off, after all that stands before.
        OSError: the file cannot be read.
    """
    block: list[bytes] = []
    number = 0
    place = 0
    with files.open_binary(path) as file:
        while header := file.read(_HEADER.size):
            record, complaint = _read_record(file, header)
            if complaint:
                if block:
                    yield block
                if not number and "header" in complaint:
                    raise InputError(f"{path}: not a TFRecord file.")
                raise InputError(
                    f"{path}: {complaint} in record {number}, at byte {place}; what"
                    " comes after it is not read."
                )
            block.append(record)
            number += 1
            place += FRAME_BYTES + len(record)
            if len(block) == records_per_block:
                yield block
                block = []
    if block:
        yield block


def _read_record(file, header: bytes) -> tuple[bytes, str]:
    """The bytes after a record's header, or what is wrong with them."""
    if len(header) < _HEADER.size:
        return b"", "breaks off"
    length, checksum = _HEADER.unpack(header)
    if _checksum(header[:8]) != checksum:
        return b"", "the header does not match its checksum"
    body = file.read(length + _CHECKSUM.size)
    if len(body) < length + _CHECKSUM.size:
        return b"", "breaks off"
    record = body[:length]
    if (_checksum(record),) != _CHECKSUM.unpack(body[length:]):
        return b"", "the bytes do not match their checksum"
    return record, ""


def _checksum(content: bytes) -> int:
    value = google_crc32c.value(content)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF
