"""How many records a file has."""

import struct

from bert_tf import files
from bert_tf.errors import InputError


def count_records(path: str) -> int:
    """The number of records in a TFRecord file, from the lengths in its framing.

    Raises:
        InputError: the file ends inside a record, or is not a TFRecord file.
    """
    # A record: uint64 length, uint32 checksum of it, `length` bytes, uint32 checksum.
    count = 0
    with files.open_binary(path) as file:
        file.seek(0, 2)
        size = file.tell()
        position = 0
        while position < size:
            file.seek(position)
            header = file.read(12)
            if len(header) == 12:
                position += 16 + struct.unpack("<Q", header[:8])[0]
            if len(header) < 12 or position > size:
                raise InputError(
                    f"{path}: not a whole TFRecord file (it breaks off in record"
                    f" {count + 1}); write the records again."
                )
            count += 1
    return count
