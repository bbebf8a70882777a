r"""Files in blocks of whole lines, uncompressed, cut only between documents.

A chunk of a file is given by two arbitrary positions. It reaches from the first border
at or after the one to the first border at or after the other, so that the chunks of a
file hold each of its lines once. The file's format determines where borders are.

Lines end at \n. Names that end in .gz, .bz2, .xz or .zst are unpacked as they are read,
from their beginning. A file in another encoding than UTF-8 becomes UTF-8 as it is read,
from its beginning too: offsets are those of the UTF-8.
"""

import bz2
import codecs
import contextlib
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, NamedTuple

from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_8 = "utf-8"

RETURNS = "carriage returns between words, which become one"

_LINE_FEED = "\n"
_BLOCK_BYTES = 1 << 20
_BORDER_BLOCK_BYTES = 1 << 16
# Text is three to ten times the size of its compressed form.
_PACKED_BLOCK_BYTES = 1 << 17

_UNPACKERS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lzma.LZMADecompressor,
}
_ZSTD = ".zst"


class Block(NamedTuple):
    """Some whole lines of a file."""

    offset: int  # of the first line, in bytes of the unpacked file
    data: bytes  # the lines; only the file's last one may lack its line feed


# A line -> where in it a chunk of a format may begin: at 0, behind it, or nowhere.
Border = Callable[[bytes], int | None]


def compression(path: str) -> str:
    """The suffix of a compressed file; "" for others."""
    suffix = os.path.splitext(path)[1]
    return suffix if suffix in (*_UNPACKERS, _ZSTD) else ""


def read_blocks(
    path: str,
    start: int = 0,
    stop: int | None = None,
    border: Border | None = None,
    encoding: str = UTF_8,
) -> Iterator[Block]:
    """Yields the lines of a file, or of a chunk of one that `can_be_cut`."""
    if not can_be_cut(path, encoding):
        yield from _whole_lines(_recoded(read_pieces(path), path, encoding), 0)
        return
    with files.open_binary(path) as file:
        begin: int | None = 0
        end = stop
        if border is not None and start:
            begin = _find_border(file, border, start, stop)
        if border is not None and stop is not None:
            end = _find_border(file, border, stop, None)
        if begin is not None:
            file.seek(begin)
            yield from _whole_lines(_pieces(file, begin, end), begin)


def can_be_cut(path: str, encoding: str) -> bool:
    """Whether a file can be read from any position on."""
    return not compression(path) and encoding == UTF_8


def read_pieces(path: str) -> Iterator[bytes]:
    """Yields the bytes of a file, uncompressed, in arbitrary pieces, none empty."""
    with files.open_binary(path) as file:
        pieces = _unpacked(file, path) if compression(path) else _pieces(file, 0, None)
        yield from filter(None, pieces)


def line_number(path: str, offset: int, encoding: str = UTF_8) -> int:
    """The number, from 1, of the line with a given byte of the uncompressed file."""
    newlines = 0
    for block in read_blocks(path, encoding=encoding):
        if block.offset > offset:
            break
        # Beyond the block, it counts to the end.
        newlines += block.data.count(b"\n", 0, offset - block.offset)
    return newlines + 1


def lines(
    block: Block,
    path: str,
    keep_mark: bool = True,
    dropped: Counter[str] | None = None,
    remedy: str = "",
) -> list[str]:
    """A block's lines without line feeds and carriage returns.

    Returns between words are counted in `dropped`, or warned of. `remedy` is said of
    bytes that are not UTF-8.
    """
    try:
        text = block.data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = line_number(path, block.offset + error.start)
        message = files.not_utf8(block.data, error.start, path, number, remedy)
        raise InputError(message) from error
    if joined := files.num_joined_by_returns(text, path):
        if dropped is None:
            logging.warning("%s: left out %d %s.", path, joined, RETURNS)
        else:
            dropped[RETURNS] += joined
    text = text.replace("\r", "")
    if block.offset == 0 and not keep_mark:
        text = text.removeprefix("\ufeff")
    found = text.split("\n")
    if not found[-1]:
        found.pop()  # behind the last line feed there is no line
    return found


def _find_border(
    file: IO[bytes], border: Border, at_least: int, limit: int | None
) -> int | None:
    """The position of the first border at a line that begins at `at_least` or later."""
    # A line begins at `at_least` if the byte before is a line feed; else it is cut off.
    file.seek(at_least - 1)
    skipping = True
    pieces = _pieces(file, at_least - 1, None, _BORDER_BLOCK_BYTES)
    for offset, data in _whole_lines(pieces, at_least - 1):
        begin = 0
        while begin < len(data):
            end = data.find(b"\n", begin) + 1 or len(data)
            if limit is not None and offset + begin >= limit:
                return None
            place = None if skipping else border(data[begin:end])
            if place is not None:
                return offset + begin + place
            skipping = False
            begin = end
    return None


def _pieces(
    file: IO[bytes], begin: int, end: int | None, num_bytes: int = _BLOCK_BYTES
) -> Iterator[bytes]:
    while data := file.read(num_bytes if end is None else min(num_bytes, end - begin)):
        yield data
        begin += len(data)


def unpacked(file: IO[bytes], new_unpacker: Callable[[], Any]) -> Iterator[bytes]:
    """The content of a compressed file; EOFError if it breaks off."""
    # Not gzip.open and its like: they silently ignore a damaged second stream as
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
    # By pyarrow, which is needed anyway: Python itself has it from 3.14 on.
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
            raise  # the disk's, not the unpacker's
        raise InputError(
            f"{path}: damaged, or not a {suffix} file: {str(error).rstrip('.')}."
            " Download or compress it again."
        ) from error


def _recoded(pieces: Iterator[bytes], path: str, encoding: str) -> Iterator[bytes]:
    if encoding == UTF_8:
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    num_lines = 0
    piece = b""
    try:
        for piece in pieces:
            text = decoder.decode(piece)
            yield text.encode(UTF_8)
            num_lines += text.count(_LINE_FEED)
        piece = b""
        yield decoder.decode(piece, final=True).encode(UTF_8)
    except UnicodeError as error:
        place = path
        with contextlib.suppress(UnicodeError):  # a missing mark, say
            decoder.errors = "replace"
            good = decoder.decode(piece, final=True).partition("\ufffd")[0]
            place = f"{path}:{num_lines + good.count(_LINE_FEED) + 1}"
        raise InputError(
            f"{place}: not text in `encoding={encoding}`:"
            f" {getattr(error, 'reason', error)}. Give the right one, or repair the"
            " file."
        ) from error


def _whole_lines(pieces: Iterator[bytes], offset: int) -> Iterator[Block]:
    """Joins pieces of a file so that no line is cut."""
    rest: list[bytes] = []
    for data in pieces:
        end = data.rfind(b"\n") + 1
        if not end:
            rest.append(data)
            continue
        block = b"".join([*rest, data[:end]])
        yield Block(offset, block)
        offset += len(block)
        rest = [data[end:]]
    if any(rest):
        yield Block(offset, b"".join(rest))


# What is left out of a text: counts of what the reason names ("title lines"). How much
# text it was has a count of its own, "characters of title lines", or "tokens of ...".

_UNITS = ("tokens", "characters")


def drop(
    dropped: Counter[str],
    reason: str,
    count: int = 1,
    *,
    tokens: int = 0,
    characters: int = 0,
) -> None:
    """Counts what was left out."""
    dropped[reason] += count
    for unit, amount in zip(_UNITS, (tokens, characters), strict=True):
        if amount:
            dropped[f"{unit} of {reason}"] += amount


def tokens_dropped(dropped: Mapping[str, int]) -> int:
    """The tokens of all that was left out after it was tokenized."""
    return sum(n for name, n in dropped.items() if name.startswith("tokens of "))


def dropped_lines(dropped: Mapping[str, int]) -> list[str]:
    """What was left out and how much it was, a line for each reason."""
    amounts = {f"{unit} of {reason}" for unit in _UNITS for reason in dropped}
    lines = []
    for reason in sorted(dropped.keys() - amounts):
        if not dropped[reason]:
            continue
        of_reason = [
            f"{dropped[name]:,} {unit}"
            for unit in _UNITS
            if (name := f"{unit} of {reason}") in dropped
        ]
        amount = f" ({', '.join(of_reason)})" if of_reason else ""
        lines.append(f"Dropped {dropped[reason]:,}{amount}: {reason}")
    return lines
