"""Which answers can be found again in the text: the original's rule."""

import re
from bisect import bisect_right
from typing import Any

from bert_tf.squad.examples import Answer
from bert_tf.squad.report import MALFORMED, OUTSIDE, UNRECOVERABLE, shown

# What the original cuts a paragraph into. An answer it cuts at white space of any kind.
_WORDS = re.compile("[^ \t\r\n\u202f]+")


class EntryError(Exception):
    """An entry that cannot be used.

    Attributes:
        kind: why, in `report`'s words.
        what: what is wrong with it.
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what


def read_answer(entry: Any, context: str) -> Answer:
    """An answer that the text gives."""
    if not isinstance(entry, dict):
        raise EntryError(
            MALFORMED, f"an answer must be an object. Found: {shown(entry)}"
        )
    text, start = entry.get("text"), entry.get("answer_start")
    if not isinstance(text, str):
        raise EntryError(
            MALFORMED, f"an answer must have a `text`. Found: {shown(entry)}"
        )
    if not isinstance(start, int) or isinstance(start, bool):
        raise EntryError(
            MALFORMED,
            f"an answer's `answer_start` must be an integer. Found: {shown(start)}",
        )
    if not text.strip():
        raise EntryError(MALFORMED, f"an answer is empty: {shown(text)}")
    if not 0 <= start <= len(context) - len(text):
        raise EntryError(
            OUTSIDE,
            f"the answer {shown(text)} at answer_start {start} is not within the"
            f" context's {len(context):,} characters",
        )
    # The usual case needs no cutting into words.
    if not (context.startswith(text, start) and " ".join(text.split()) == text):
        there = _words_at(context, start, start + len(text))
        if " ".join(text.split()) not in there:
            raise EntryError(
                UNRECOVERABLE,
                f"the answer {shown(text)} is not in the words at answer_start {start}:"
                f" {shown(there)}",
            )
    return Answer(text, start)


def _words_at(context: str, start: int, stop: int) -> str:
    """The words from the one at `start` to the one at `stop` - 1, with single blanks.

    A blank belongs to the word before it. Those before the first word have the number
    -1, which in a slice is the last word's: so it is in the original.
    """
    words = list(_WORDS.finditer(context))
    starts = [word.start() for word in words]
    first = bisect_right(starts, start) - 1
    last = bisect_right(starts, stop - 1) - 1
    return " ".join(word.group() for word in words[first : last + 1])
