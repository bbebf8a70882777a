r"""Files in blocks of whole lines, uncompressed, cut only between documents.

A chunk of a file is given by two arbitrary positions. It reaches from the first border
at or after one position to the first border at or after the other, so that the chunks
of a file hold each of its lines once. The file's format determines the borders.

Lines end at \n. Files ending in .gz, .bz2, .xz or .zst are unpacked as they are read,
from their beginning. A file in another encoding is converted to UTF-8 as it is read,
also from its beginning: offsets are positions in the UTF-8.
"""

import codecs
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import IO, NamedTuple

from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.base.unpacking import compression, pieces_of, read_pieces

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_8 = "utf-8"

RETURNS = "carriage returns between words, which become one"

_LINE_FEED = "\n"
_BORDER_BLOCK_BYTES = 1 << 16


class Block(NamedTuple):
    """Some whole lines of a file."""

    offset: int  # of the first line, in bytes of the unpacked file
    data: bytes  # the lines; only the file's last one may lack its line feed


# A line -> where in it a chunk of a format may begin: at 0, at its end, or nowhere.
Border = Callable[[bytes], int | None]


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
            yield from _whole_lines(pieces_of(file, begin, end), begin)


def can_be_cut(path: str, encoding: str) -> bool:
    """Whether a file can be read from any position."""
    return not compression(path) and encoding == UTF_8


def line_number(path: str, offset: int, encoding: str = UTF_8) -> int:
    """Returns the number, from 1, of the line with a byte of the unpacked file."""
    newlines = 0
    for block in read_blocks(path, encoding=encoding):
        if block.offset > offset:
            break
        # Past the end of the block, `count` stops at the end.
        newlines += block.data.count(b"\n", 0, offset - block.offset)
    return newlines + 1


def lines_of(
    block: Block,
    path: str,
    keep_mark: bool = True,
    dropped: Counter[str] | None = None,
    remedy: str = "",
) -> list[str]:
    """Returns a block's lines without line feeds and carriage returns.

    Carriage returns between words are counted in `dropped`, or logged. `remedy` is part
    of the error for bytes that are not UTF-8.
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
        found.pop()  # nothing follows the last line feed
    return found


def _find_border(
    file: IO[bytes], border: Border, at_least: int, limit: int | None
) -> int | None:
    """Returns the first border at a line that begins at `at_least` or later."""
    # A line begins at `at_least` if the byte before is a line feed; else it is skipped.
    file.seek(at_least - 1)
    skipping = True
    pieces = pieces_of(file, at_least - 1, None, _BORDER_BLOCK_BYTES)
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
    """Yields blocks made of pieces of a file, so that no line is cut."""
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


# What is left out of a text: a count under each reason ("title lines"). The amount of
# text has a count of its own, "characters of title lines", or "tokens of ...".

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
    """Returns the tokens of all that was left out after it was tokenized."""
    return sum(n for name, n in dropped.items() if name.startswith("tokens of "))


def dropped_lines(dropped: Mapping[str, int]) -> list[str]:
    """Returns what was left out and how much text it was, one line per reason."""
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
