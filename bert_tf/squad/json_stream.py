"""A JSON file from its beginning to its end, with one piece of it in memory.

One walks through the objects and lists that are too large, and takes what is in them as
values, which Python's own decoder makes. So texts are what `json.load` reads, halves of
surrogate pairs too, and an error has its line and column.
"""

import codecs
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from bert_tf.errors import InputError
from bert_tf.text import blocks

_BLANKS = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder().raw_decode

# An error this near to the end of what was read may come of the cut. No token is longer
# but strings and numbers; a number's error stands at its end, a string's has a name.
_LONGEST_TOKEN = 16
_CUT_STRING = "Unterminated string"
# What may stand between a number and its digits behind the cut: ".", "e", "e-".
_NUMBER_MARKS = 2


class JsonStream:
    """A JSON file, read on as its values are asked for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pieces = _read_texts(path)
        self._text = ""
        self._position = 0
        # Where the text's first character stands in the file.
        self._line = 1
        self._column = 1

    def peek(self) -> str:
        """The character with which the next value or mark begins; "" at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._position)
            assert blanks is not None
            self._position = blanks.end()
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._read_on():
                return ""

    def value(self) -> Any:
        """The next value, whole."""
        self.peek()
        while True:
            try:
                value, end = _decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if self._may_be_cut(error) and self._read_on():
                    continue
                raise self._error(error.msg, error.pos) from error
            except (ValueError, RecursionError) as error:
                raise self._error(str(error), self._position) from error
            if len(self._text) - end > _NUMBER_MARKS or not self._read_on():
                self._position = end
                return value

    def elements(self) -> Iterator[int]:
        """Walks through a list: yields the number of each element, from 0, before it.

        The caller takes the element, by `value` or by walking through it, before asking
        for the next number.
        """
        self._take("[")
        if self.peek() == "]":
            self._take("]")
            return
        for number in itertools.count():
            yield number
            if self._take(",", "]") == "]":
                return

    def members(self) -> Iterator[str]:
        """Walks through an object: yields each key, before the value, as `elements`."""
        self._take("{")
        if self.peek() == "}":
            self._take("}")
            return
        while True:
            if self.peek() != '"':
                raise self._error("a key in quotes must be here", self._position)
            key = self.value()
            self._take(":")
            yield key
            if self._take(",", "}") == "}":
                return

    def finish(self) -> None:
        """Makes sure that the file ends here."""
        if self.peek():
            raise self._error("the file must end here", self._position)

    def _take(self, *wanted: str) -> str:
        found = self.peek()
        if found not in wanted:
            marks = " or ".join(repr(mark) for mark in wanted)
            raise self._error(f"{marks} must be here", self._position)
        self._position += 1
        return found

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        return (
            error.msg.startswith(_CUT_STRING)
            or len(self._text) - error.pos <= _LONGEST_TOKEN
        )

    def _read_on(self) -> bool:
        """Reads as much again as is not used yet; whether there was any."""
        rest = len(self._text) - self._position
        pieces, length = [], 0
        # As much again: a value is decoded anew with each cut in it, and a large one
        # is to have few.
        for piece in self._pieces:
            pieces.append(piece)
            length += len(piece)
            if length >= rest:
                break
        if not pieces:
            return False
        self._line, self._column = self._place(self._position)
        self._text = "".join([self._text[self._position :], *pieces])
        self._position = 0
        return True

    def _place(self, position: int) -> tuple[int, int]:
        """Line and column, from 1, of a position in the text."""
        newlines = self._text.count("\n", 0, position)
        if not newlines:
            return self._line, self._column + position
        return self._line + newlines, position - self._text.rfind("\n", 0, position)

    def _error(self, reason: str, position: int) -> InputError:
        if position >= len(self._text):
            reason = "the file ends too early"
        line, column = self._place(position)
        return InputError(
            f"{self._path}:{line}:{column}: not valid JSON: {reason.rstrip('.')}."
        )


def _read_texts(path: str) -> Iterator[str]:
    """The file's text in pieces, none of them empty, without a byte order mark."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    line = 1
    for data in itertools.chain(blocks.read_pieces(path), [b""]):
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line += error.object.count(b"\n", 0, error.start)
            raise InputError(
                f"{path}:{line}: not UTF-8 (byte 0x{error.object[error.start]:02x});"
                " convert the file, e.g. with iconv -t utf-8."
            ) from error
        line += data.count(b"\n")
        if text:
            yield text
