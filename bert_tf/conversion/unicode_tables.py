"""What becomes of each Unicode character, as arrays that a graph can look it up in.

They are made with the functions and the Unicode data that `bert_tf.text` works with, so
a graph that follows them keeps its rules, whatever the library that it runs on knows.

An entry is 32 bits: the flags below, the canonical combining class, and which of the
expansions stands for the character (0: the character itself).
"""

import functools
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_tf.text.normalization import CJK_RANGES, is_punctuation, is_removed

# What the rule of the final sigma asks for (Unicode Standard, section 3.13): a cased
# letter, or what it looks past. A character that is both counts as the latter.
CASED = 1 << 0
CASE_IGNORABLE = 1 << 1
REMOVED = 1 << 2
SPACE = 1 << 3
ACCENT = 1 << 4  # Mn, where accents are removed
STARTS_WORD = 1 << 5
ENDS_WORD = 1 << 6
# An accent behind it is of no character's making.
TAKES_NO_ACCENT = 1 << 7

COMBINING_SHIFT = 8
COMBINING_MASK = 0xFF
EXPANSION_SHIFT = 16

PAGE_SHIFT = 8
PAGE_MASK = (1 << PAGE_SHIFT) - 1

CAPITAL_SIGMA = ord("Σ")
FINAL_SIGMA = ord("ς")

_NUM_CODE_POINTS = 0x110000
# The other planes hold ideographs, private use or nothing: they stay as they are.
_SCANNED = (range(0x20000), range(0x2F800, 0x2FA20), range(0xE0000, 0xF0000))


class UnicodeTables(NamedTuple):
    """The entries in pages of 256, equal pages once; and the expansions.

    The entry of a code point c is `entries[pages[c >> 8] + (c & 255)]`. Expansion k is
    the `lengths[k]` code points from `expanded[starts[k]]` on, whose own entries lie
    beside them in `expanded_entries`. Those of one code point come first, and so are at
    `expanded[k]`.

    Attributes:
        pages: int32, where each page begins in `entries`.
        entries: int32.
        starts: int32, by expansion.
        lengths: int32, by expansion.
        expanded: int32, code points.
        expanded_entries: int32.
    """

    pages: np.ndarray
    entries: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    expanded: np.ndarray
    expanded_entries: np.ndarray

    @property
    def num_single(self) -> int:
        """How many expansions have one code point (number 0 counts)."""
        return int(np.count_nonzero(self.lengths == 1))

    def entry(self, code_point: int) -> int:
        """A character's entry."""
        page = self.pages[code_point >> PAGE_SHIFT]
        return int(self.entries[page + (code_point & PAGE_MASK)])


@functools.cache
def unicode_tables(do_lower_case: bool) -> UnicodeTables:
    """The tables for cased, or for lowered text without accents."""
    entries = np.zeros(_NUM_CODE_POINTS, np.int32)
    for first, last in CJK_RANGES:
        entries[first : last + 1] |= STARTS_WORD | ENDS_WORD | TAKES_NO_ACCENT
    expansions: dict[str, str] = {}
    for char in _scanned():
        entry = _flags(char)
        if do_lower_case:
            entry |= _case(char) | unicodedata.combining(char) << COMBINING_SHIFT
            if unicodedata.category(char) == "Mn":
                entry |= ACCENT
            expanded = _expanded(char)
            if expanded != char:
                expansions[char] = expanded
        entries[ord(char)] |= entry
    # Nothing reads expansion 0, but it has a place.
    texts = [
        "\0",
        *sorted(set(expansions.values()), key=lambda text: (len(text), text)),
    ]
    number_of = {text: number for number, text in enumerate(texts)}
    for char, expanded in expansions.items():
        entries[ord(char)] |= number_of[expanded] << EXPANSION_SHIFT
    lengths = np.array([len(text) for text in texts], np.int32)
    code_points = np.array([ord(char) for char in "".join(texts)], np.int32)
    pages, page_of = np.unique(
        entries.reshape(-1, 1 << PAGE_SHIFT), axis=0, return_inverse=True
    )
    return UnicodeTables(
        pages=(page_of.reshape(-1) << PAGE_SHIFT).astype(np.int32),
        entries=pages.reshape(-1),
        starts=np.cumsum(lengths, dtype=np.int32) - lengths,
        lengths=lengths,
        expanded=code_points,
        expanded_entries=entries[code_points],
    )


def _expanded(char: str) -> str:
    """The character lowered and decomposed, without most of the accents.

    An accent goes at once where nothing can come of it but its removal: behind another
    character of the same source, which has its place in the text already, and not a
    starter, which would keep those on its sides in their order.
    """
    decomposed = unicodedata.normalize("NFD", char.lower())
    return decomposed[0] + "".join(
        other
        for other in decomposed[1:]
        if unicodedata.category(other) != "Mn" or not unicodedata.combining(other)
    )


def _scanned() -> Iterator[str]:
    for code_points in _SCANNED:
        yield from map(chr, code_points)


def _flags(char: str) -> int:
    if is_removed(char):
        return REMOVED
    if char.isspace():
        return SPACE
    return STARTS_WORD | ENDS_WORD if is_punctuation(char) else 0


def _case(char: str) -> int:
    """Asks Python's `lower`, as its data on case have no other door.

    A sigma is final behind a cased letter, with characters between that are ignored.
    """
    if not f"A{char}Σ".lower().endswith("ς"):
        return 0
    return CASED if f"{char}Σ".lower().endswith("ς") else CASE_IGNORABLE
