r"""JSON lines: one object a line, one of its fields a document's text.

    {"title": "Anarchism", "text": "Anarchism is a political philosophy ...\n..."}

The text's lines are its paragraphs. So are the files that `wikiextractor --json`
writes; as its versions 2 begin the text with the title, a first paragraph that is the
object's "title" is left out. Blank lines between objects mean nothing.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bert_tf.errors import InputError
from bert_tf.text import blocks
from bert_tf.text.wikiextractor import TITLE_LINES

SURROGATES = "halves of surrogate pairs"

_BORDERS = blocks.Borders(is_at=lambda _: True, is_after=False)


def read_documents(
    path: str, start: int, stop: int | None, text_field: str, dropped: Counter[str]
) -> Iterator[tuple[list[str], int]]:
    """Yields the paragraphs of each document, and the bytes read since the last one."""
    num_bytes = 0
    for block in blocks.read_blocks(path, start, stop, _BORDERS):
        num_bytes += block.num_bytes
        for index, line in enumerate(blocks.lines(block, path, keep_mark=False)):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
                text = _text_of(values, text_field)
            except (ValueError, RecursionError) as error:
                number = blocks.line_number(path, block.offset) + index
                raise InputError(f"{path}:{number}: {_reason(error)}") from error
            if "\\ud" in line or "\\uD" in line:
                text = _without_surrogates(text, dropped)
            paragraphs = paragraphs_of(text)
            if paragraphs and paragraphs[0] == values.get("title"):
                del paragraphs[0]
                dropped[TITLE_LINES] += 1
            yield paragraphs, num_bytes
            num_bytes = 0


def paragraphs_of(text: str) -> list[str]:
    """The lines of a text, stripped, without the blank ones."""
    stripped = [line.strip() for line in text.split("\n")]
    return [line for line in stripped if line]


def _text_of(values: Any, text_field: str) -> str:
    if not isinstance(values, dict):
        raise ValueError(f"it must be a JSON object. Found: {type(values).__name__}")
    if text_field not in values:
        raise ValueError(
            f"it has no field {text_field!r}; --text_field names one of its own: "
            f"{', '.join(values)}"
        )
    text = values[text_field]
    if not isinstance(text, str):
        raise ValueError(
            f"its field {text_field!r} must be text. Found: {type(text).__name__}"
        )
    return text


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it must be one JSON object on one line: {error.msg}."
    return f"{error}."


def _without_surrogates(text: str, dropped: Counter[str]) -> str:
    """`whole_characters`, and counts their halves."""
    num_halves = sum("\ud800" <= character <= "\udfff" for character in text)
    if not num_halves:
        return text
    dropped[SURROGATES] += num_halves
    return whole_characters(text)


def whole_characters(text: str) -> str:
    """Text that UTF-8 can hold.

    JSON can escape halves of characters, of which two in a row are one, and one alone
    becomes U+FFFD.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
