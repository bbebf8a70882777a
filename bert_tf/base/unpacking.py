"""The bytes of files, unpacked as they are read.

Files whose names end in .gz, .bz2, .xz or .zst are compressed.
"""

import bz2
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from bert_tf.base import files
from bert_tf.base.errors import InputError

_BLOCK_BYTES = 1 << 20
# Text is three to ten times the size of its compressed form.
_PACKED_BLOCK_BYTES = 1 << 17

_UNPACKERS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lzma.LZMADecompressor,
}
_ZSTD = ".zst"


def compression(path: str) -> str:
    """Returns the suffix of a compressed file; "" for other files."""
    suffix = os.path.splitext(path)[1]
    return suffix if suffix in (*_UNPACKERS, _ZSTD) else ""


def read_pieces(path: str) -> Iterator[bytes]:
    """Yields the bytes of a file, uncompressed, in arbitrary pieces, none empty."""
    with files.open_binary(path) as file:
        pieces = (
            _unpacked(file, path) if compression(path) else pieces_of(file, 0, None)
        )
        yield from filter(None, pieces)


def pieces_of(
    file: IO[bytes], begin: int, end: int | None, num_bytes: int = _BLOCK_BYTES
) -> Iterator[bytes]:
    """Yields the bytes of a file from one position to another, in pieces."""
    while data := file.read(num_bytes if end is None else min(num_bytes, end - begin)):
        yield data
        begin += len(data)


def unpacked(file: IO[bytes], new_unpacker: Callable[[], Any]) -> Iterator[bytes]:
    """Yields the content of a compressed file. Raises EOFError if it breaks off."""
    # Not gzip.open and the like: they silently ignore a damaged second stream as
    # trailing garbage, and parallel compressors write many streams.
    unpacker = new_unpacker()
    while packed := file.read(_PACKED_BLOCK_BYTES):
        while packed:
            if unpacker.eof:
                packed = packed.lstrip(b"\0")  # streams may be padded
                if not packed:
                    break
                unpacker = new_unpacker()
            yield unpacker.decompress(packed)
            packed = unpacker.unused_data
    if not unpacker.eof:
        raise EOFError("it breaks off")


def _unpacked_zstd(file: IO[bytes], path: str) -> Iterator[bytes]:
    # Uses pyarrow, already a dependency: Python has zstd only from 3.14 on.
    import pyarrow

    source = pyarrow.PythonFile(file, mode="r")
    stream = pyarrow.CompressedInputStream(source, "zstd")
    try:
        while data := stream.read(_BLOCK_BYTES):
            yield data
    except OSError as error:
        if "Truncated" in str(error):
            raise EOFError from error
        if "too much memory" in str(error):
            raise InputError(
                f"{path}: compressed with a longer window (--long) than the 128 MB that"
                " can be read. Unpack it: zstd -d --long=31."
            ) from error
        raise
    if not source.tell():
        raise EOFError("it is empty")


def _unpacked(file: IO[bytes], path: str) -> Iterator[bytes]:
    suffix = compression(path)
    try:
        if suffix == _ZSTD:
            yield from _unpacked_zstd(file, path)
        else:
            yield from unpacked(file, _UNPACKERS[suffix])
    except EOFError as error:
        raise InputError(
            f"{path}: it ends too early. Download or compress it again."
        ) from error
    except (zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the disk, not the unpacker
        raise InputError(
            f"{path}: damaged, or not a {suffix} file: {str(error).rstrip('.')}."
            " Download or compress it again."
        ) from error
