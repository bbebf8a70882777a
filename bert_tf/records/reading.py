"""TFRecord files read record by record, as far as they go.

TensorFlow's reader loses the batch in which a file breaks off, and says little about
the place. This one is for looking at files of which one does not know whether they are
whole; training reads through `bert_tf.records.pipeline`. The format stands in
`bert_tf.records.writing`.
"""

import struct
from collections.abc import Iterator
from typing import IO

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.records.pipeline import compression_of
from bert_tf.records.writing import masked_checksum

RECORDS_PER_BLOCK = 1000

# What surrounds a record's bytes.
FRAME_BYTES = 16

_LENGTH = struct.Struct("<Q")
_CHECKSUM_BYTES = 4
_HEADER_BYTES = _LENGTH.size + _CHECKSUM_BYTES


def record_blocks(
    path: str, records_per_block: int = RECORDS_PER_BLOCK
) -> Iterator[list[bytes]]:
    """The records of a file in its order, in lists of at most `records_per_block`.

    Raises:
        InputError: the file is damaged or breaks off, after all that stands before; it
            is compressed.
        OSError: the file cannot be read.
    """
    block: list[bytes] = []
    number = 0
    place = 0
    size = files.size(path)
    with files.open_binary(path) as file:
        while header := file.read(_HEADER_BYTES):
            record, complaint = _read_record(file, header, size - place)
            if complaint:
                if block:
                    yield block
                if not number and (compression := compression_of(path)):
                    raise InputError(
                        f"{path} is compressed ({compression}): unpack it first."
                    )
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


def _read_record(file: IO[bytes], header: bytes, left: int) -> tuple[bytes, str]:
    """The bytes after a record's header, or what is wrong with them.

    `left` bytes are in the file, header included.
    """
    if len(header) < _HEADER_BYTES:
        return b"", "breaks off"
    if masked_checksum(header[: _LENGTH.size]) != header[_LENGTH.size :]:
        return b"", "the header does not match its checksum"
    (length,) = _LENGTH.unpack_from(header)
    if length + FRAME_BYTES > left:
        return b"", "breaks off"
    body = file.read(length + _CHECKSUM_BYTES)
    record = body[:length]
    if masked_checksum(record) != body[length:]:
        return b"", "the bytes do not match their checksum"
    return record, ""
