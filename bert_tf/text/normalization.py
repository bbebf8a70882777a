"""The original's text normalization, and where its characters came from."""

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bert_tf.text.segmentation import NO_SEGMENTER, segments

# Text into words: the original's BasicTokenizer, whole strings at a time.
#
# The steps, in this order:
#
# 0. With a segmenter, put spaces where it has boundaries.
# 1. Remove U+0000, U+FFFD and the control and format characters (Cc, Cf) but \t \n \r.
# 2. Put spaces around each CJK ideograph.
# 3. Split at white space: \t \n \r, Zs, U+2028 and U+2029.
# 4. Uncased: lower the case, decompose (NFD), remove the accents (Mn).
# 5. Make each punctuation character a word: P*, and all of ASCII but letters and
#    digits.
#
# Words are lowered and decomposed one by one in the original, here many at once, with
# the same result: white space is neither cased nor case-ignorable, so lowering's only
# context rule (final sigma) does not see past it, and it is a starter, so no accent is
# reordered across it. No step makes new white space: the only characters that decompose
# to a space (U+2000, U+2001) became spaces before. A step is one call of a compiled
# regular expression or of a `str` method: no Python code runs per character.

# The blocks that the original separates: the CJK ideographs, extensions A to E, and the
# compatibility ideographs. Hangul, kana and later extensions are ordinary letters.
CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

# Planes 2 to 13 hold ideographs or nothing, 15 and 16 private use; all characters
# that are removed or split on are in the planes scanned here.
_SCANNED = (range(0x20000), range(0xE0000, 0xF0000))

_LAST_BMP = 0xFFFF


class Patterns(NamedTuple):
    """Character classes for text with or without astral characters.

    `re` looks up characters of the BMP in a table, but searches a list of ranges for
    the planes above, which is slow for characters that are not in the class.
    """

    rare: re.Pattern[str]  # a character that step 1 or 2 changes
    removed: re.Pattern[str]  # a run of characters of step 1
    cjk_split: re.Pattern[str]  # one ideograph, or a run without any
    accents: re.Pattern[str]  # a run of Mn
    words: re.Pattern[str]  # a word or a punctuation character
    chunks: re.Pattern[str]  # a run without white space of step 3


def is_removed(char: str) -> bool:
    """Whether step 1 removes the character."""
    if char in "\t\n\r":
        return False
    return char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    """Whether step 5 makes the character a word."""
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


def is_cjk(char: str) -> bool:
    """Whether step 2 makes the character a word."""
    return any(first <= ord(char) <= last for first, last in CJK_RANGES)


def _character_class(chars: Iterable[str], last: int) -> str:
    """Returns the inside of a regular expression's [...], up to a last code point."""
    ranges: list[list[int]] = []
    for code_point in sorted(map(ord, chars)):
        if code_point > last:
            break
        if ranges and ranges[-1][1] == code_point - 1:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point])
    return "".join(rf"\U{first:08x}-\U{end:08x}" for first, end in ranges)


@functools.cache
def patterns(astral: bool) -> Patterns:
    """Returns patterns for text with (`astral`) or without characters above U+FFFF."""
    last = sys.maxunicode if astral else _LAST_BMP
    removed, space, accents, punctuation = (
        _character_class(chars, last) for chars in _classes()
    )
    cjk = "".join(
        rf"\U{first:08x}-\U{end:08x}" for first, end in CJK_RANGES if end <= last
    )
    return Patterns(
        rare=re.compile(f"[{removed}{cjk}]"),
        removed=re.compile(f"[{removed}]+"),
        cjk_split=re.compile(f"[{cjk}]|[^{cjk}]+"),
        accents=re.compile(f"[{accents}]+"),
        words=re.compile(f"[^{space}{punctuation}]+|[{punctuation}]"),
        chunks=re.compile(f"[^{space}]+"),
    )


@functools.cache
def _classes() -> tuple[list[str], list[str], list[str], list[str]]:
    removed, space, accents, punctuation = [], [], [], []
    for char in map(chr, itertools.chain(*_SCANNED)):
        if is_removed(char):
            removed.append(char)
        elif char.isspace():
            space.append(char)
        elif unicodedata.category(char) == "Mn":
            accents.append(char)
        elif is_punctuation(char):
            punctuation.append(char)
    return removed, space, accents, punctuation


_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_ASCII_REMOVED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+")
_ASCII_WORDS = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]")

# Step 1 removes these, but `str.split` would split at them.
SPLITTING_CONTROLS = re.compile("[\x0b\x0c\x1c-\x1f\x85]+")


def patterns_for(text: str) -> Patterns:
    """Returns the patterns that are right and fast for a text."""
    return patterns(_ASTRAL.search(text) is not None)


def split_words(
    text: str, do_lower_case: bool, segmenter: str = NO_SEGMENTER
) -> list[str]:
    """Returns the words of a text, normalised."""
    if text.isascii():
        if text.isalnum():
            return [text.lower() if do_lower_case else text]
        if not text.isprintable():
            text = _ASCII_REMOVED.sub("", text)
        return _ASCII_WORDS.findall(text.lower() if do_lower_case else text)
    if segmenter != NO_SEGMENTER:
        text = " ".join(text[start:end] for start, end in segments(text, segmenter))
    using = patterns_for(text)
    if using.rare.search(text):
        text = using.removed.sub("", text)
        text = " ".join(using.cjk_split.findall(text))
    if do_lower_case:
        # Astral letters only: no BMP character lowers or decomposes to an astral accent
        # or punctuation, so the patterns stay right.
        text = unicodedata.normalize("NFD", text.lower())
        text = using.accents.sub("", text)
    return using.words.findall(text)


# Words with their place in the text: the same steps, one by one.
#
# Each character carries the span of text that it was made from, through removal,
# lowering and decomposition. Slower than `split_words`, with the same words.

Span = tuple[int, int]  # (start, end), half open, in characters
Placed = tuple[str, Span]  # a character and what it was made from

_CJK = "".join(rf"\U{first:08x}-\U{end:08x}" for first, end in CJK_RANGES)
IDEOGRAPH = re.compile(f"[{_CJK}]")
_WORDS = {True: re.compile(rf"[{_CJK}]|[^{_CJK}\s]+"), False: re.compile(r"\S+")}


def words_of_text(
    text: str,
    *,
    splits_cjk: bool,
    splits_punctuation: bool = False,
    segmenter: str = NO_SEGMENTER,
) -> list[Span]:
    """Returns where plain text has words: between white space, or each ideograph.

    Or each punctuation character, or a segmenter's words, as in the tokenizer.
    """
    spans = [
        match.span()
        for segment in segments(text, segmenter)
        for match in _WORDS[splits_cjk].finditer(text, *segment)
    ]
    if not splits_punctuation:
        return spans
    words = patterns_for(text).words
    return [match.span() for span in spans for match in words.finditer(text, *span)]


def align_words(
    run: str, do_lower_case: bool, segmenter: str = NO_SEGMENTER
) -> Iterator[tuple[str, list[Span]]]:
    """Yields the words of a run without white space, with each character's source."""
    words = patterns_for(run).words
    separated = segments(run, segmenter)
    for part in (one for span in separated for one in _parts_at_ideographs(run, *span)):
        if do_lower_case:
            part = _without_accents(_decompose(_lower(part)))
        text = "".join(char for char, _ in part)
        for match in words.finditer(text):
            spans = [span for _, span in part[match.start() : match.end()]]
            yield match.group(), spans


def _parts_at_ideographs(run: str, start: int, end: int) -> Iterator[list[Placed]]:
    placed = [
        (char, (index, index + 1))
        for index, char in enumerate(run[start:end], start)
        if not is_removed(char)
    ]
    kept = "".join(char for char, _ in placed)
    for match in patterns_for(run).cjk_split.finditer(kept):
        yield placed[match.start() : match.end()]


def _lower(part: list[Placed]) -> list[Placed]:
    # The whole part at once, because a sigma's form depends on its context; both forms
    # have the length of a lone sigma's.
    lowered = iter("".join(char for char, _ in part).lower())
    return [
        (next(lowered), span) for char, span in part for _ in range(len(char.lower()))
    ]


def _decompose(part: list[Placed]) -> list[Placed]:
    """Returns the canonical decomposition (Unicode Standard, section 3.11)."""
    decomposed = [
        (piece, span)
        for char, span in part
        for piece in unicodedata.normalize("NFD", char)
    ]
    ordered: list[Placed] = []
    for is_mark, group in itertools.groupby(
        decomposed, lambda item: unicodedata.combining(item[0]) > 0
    ):
        if is_mark:
            ordered.extend(
                sorted(group, key=lambda item: unicodedata.combining(item[0]))
            )
        else:
            ordered.extend(group)
    return ordered


def _without_accents(part: list[Placed]) -> list[Placed]:
    """Removes accents; adds their source to the source of the character before."""
    kept: list[Placed] = []
    for char, (start, end) in part:
        if unicodedata.category(char) != "Mn":
            kept.append((char, (start, end)))
        elif kept:
            base, (base_start, base_end) = kept[-1]
            kept[-1] = (base, (base_start, max(base_end, end)))
    return kept
