"""An example as a person reads it, wrapped to the terminal's width.

Pieces are joined to words where nothing is predicted. A prediction is a mark of its
own: [MASK→river] where the model sees [MASK] and must say "river", [the→river] where it
sees another token, [river=] where it sees the token itself. Colours add to the marks,
which say everything without them.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_tf.records.examples import (
    KEPT,
    MASKED,
    RANDOM,
    REPLACED,
    Example,
    Prediction,
)
from bert_tf.text.wordpiece import CONTINUATION

# Codes of ANSI terminals: green, red, cyan; dim for [CLS] and the like.
_COLORS = {MASKED: "32", RANDOM: "31", REPLACED: "31", KEPT: "36"}
_DIM = "2"
_BOLD = "1"

_INDENT = "  "


class _Word(NamedTuple):
    """What is not broken at a line's end."""

    text: str
    color: str


def render(
    example: Example,
    title: str,
    remarks: Sequence[str] = (),
    *,
    width: int,
    color: bool,
) -> list[str]:
    """An example as lines.

    Args:
        example: what to show.
        title: where it is from.
        remarks: what is wrong with it.
        width: the terminal's columns.
        color: whether to use the terminal's colours.
    """
    lines = [_styled(title, _BOLD, color) + ": " + _summary(example)]
    words = _words(example)
    for name, segment in zip("AB", words, strict=True):
        if segment:
            lines += _wrap(segment, f"{_INDENT}{name} ", width, color)
    return lines + [f"{_INDENT}! {remark}" for remark in remarks]


def _summary(example: Example) -> str:
    num_tokens = len(example.tokens)
    num_b = num_tokens - example.num_tokens_a
    lengths = f"{num_tokens} of {example.max_seq_length} tokens"
    if num_b:
        lengths += f" (A {example.num_tokens_a}, B {num_b})"
    parts = [lengths, example.label]
    if example.predictions:
        parts.insert(1, f"{len(example.predictions)} predictions")
    return "; ".join(parts)


def _words(example: Example) -> tuple[list[_Word], list[_Word]]:
    """The words and marks of both segments."""
    marks = {each.position: each for each in example.predictions}
    segments: tuple[list[_Word], list[_Word]] = ([], [])
    joins = False  # whether the word before has all its pieces from the first on
    for position, token in enumerate(example.tokens):
        if position == example.num_tokens_a:
            joins = False
        segment = segments[position >= example.num_tokens_a]
        if position in marks:
            segment.append(_mark(marks[position]))
            joins = False
            continue
        if example.has_words and joins and token.startswith(CONTINUATION):
            whole = segment[-1].text + token.removeprefix(CONTINUATION)
            segment[-1] = segment[-1]._replace(text=whole)
            continue
        is_special = token.startswith("[") and token.endswith("]") and len(token) > 2
        segment.append(_Word(token, _DIM if is_special else ""))
        joins = not is_special and not token.startswith(CONTINUATION)
    return segments


def _mark(prediction: Prediction) -> _Word:
    seen = prediction.seen
    if prediction.kind == KEPT:
        return _Word(f"[{seen}=]", _COLORS[KEPT])
    if prediction.kind == MASKED:
        seen = seen.strip("[]")
    return _Word(f"[{seen}→{prediction.wanted}]", _COLORS[prediction.kind])


def _wrap(
    words: Sequence[_Word], prefix: str, width: int, color: bool
) -> Iterator[str]:
    """Lines of words, the first one after the prefix, the others as far in."""
    line, used = "", 0
    for word in words:
        room = width - len(prefix) - used
        if line and display_width(word.text) + 1 > room:
            yield prefix + line
            prefix = " " * len(prefix)
            line, used = "", 0
        if line:
            line, used = line + " ", used + 1
        line += _styled(word.text, word.color, color)
        used += display_width(word.text)
    yield prefix + line


def _styled(text: str, code: str, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color and code else text


def display_width(text: str) -> int:
    """The columns that a text takes: two for a wide character, none for an accent."""
    return sum(
        0
        if unicodedata.combining(character)
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )
