"""Words with their place in the text: the steps of `normalization`, one by one.

Each character carries the span of the text that it was made of through removal,
lowering and decomposition. Slower than `split_words`, with the same words.
"""

import itertools
import unicodedata
from collections.abc import Iterator

from bert_tf.text.normalization import is_removed, patterns_for

Span = tuple[int, int]  # (start, end), half open, in characters
Placed = tuple[str, Span]  # a character and what it was made of


def align_words(run: str, do_lower_case: bool) -> Iterator[tuple[str, list[Span]]]:
    """Yields the words of a run without white space, with each character's source."""
    words = patterns_for(run).words
    for part in _parts_at_ideographs(run):
        if do_lower_case:
            part = _without_accents(_decompose(_lower(part)))
        text = "".join(char for char, _ in part)
        for match in words.finditer(text):
            spans = [span for _, span in part[match.start() : match.end()]]
            yield match.group(), spans


def _parts_at_ideographs(run: str) -> Iterator[list[Placed]]:
    placed = [
        (char, (index, index + 1))
        for index, char in enumerate(run)
        if not is_removed(char)
    ]
    kept = "".join(char for char, _ in placed)
    for match in patterns_for(run).cjk_split.finditer(kept):
        yield placed[match.start() : match.end()]


def _lower(part: list[Placed]) -> list[Placed]:
    # The whole part at once, for a sigma's form depends on what stands round it; either
    # form has the length of the one that sigma has alone.
    lowered = iter("".join(char for char, _ in part).lower())
    return [
        (next(lowered), span) for char, span in part for _ in range(len(char.lower()))
    ]


def _decompose(part: list[Placed]) -> list[Placed]:
    """Canonical decomposition (Unicode Standard, section 3.11): decompose, reorder."""
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
    """Removes accents; what an accent was made of goes to the character before it."""
    kept: list[Placed] = []
    for char, (start, end) in part:
        if unicodedata.category(char) != "Mn":
            kept.append((char, (start, end)))
        elif kept:
            base, (base_start, base_end) = kept[-1]
            kept[-1] = (base, (base_start, max(base_end, end)))
    return kept
