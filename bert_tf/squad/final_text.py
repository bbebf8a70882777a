"""Tokens back into the text that they come from: the original's get_final_text.

An answer is a run of WordPiece tokens, lowered and without accents; what is to be said
is the text as it stands. The original aligns the two: it normalises the words that the
answer touches, finds the answer there, and takes normalised and other text to be the
same characters one by one, spaces left out. Where that cannot be so, the answer is the
words as they stand, with whatever hangs on them.

It fails on [UNK], on characters that tokenization removes, adds or joins (controls,
U+00A0, Hangul), and on a piece from within a word that stands in the words twice: then
it takes the first. `--answer_text=offsets` needs none of this.
"""

from typing import NamedTuple

from bert_tf.text.normalization import split_words


class Alignment(NamedTuple):
    """Which part of the words the answer is.

    Attributes:
        start: its first character in the words, joined with spaces.
        end: the one after its last.
        failure: why it is all of them; "" where the alignment was found.
    """

    start: int
    end: int
    failure: str = ""


def align(token_text: str, words: str, do_lower_case: bool) -> Alignment:
    """Finds the tokens' text in the words that they come from."""
    normalized = " ".join(split_words(words, do_lower_case))
    start = normalized.find(token_text)
    if start < 0 or not token_text:
        return Alignment(0, len(words), "its tokens are not in the words")
    if len(words) - words.count(" ") != len(normalized) - normalized.count(" "):
        return Alignment(0, len(words), "the words have other characters than tokens")
    last = start + len(token_text) - 1
    return Alignment(
        _with_spaces(words, start - normalized.count(" ", 0, start)),
        _with_spaces(words, last - normalized.count(" ", 0, last)) + 1,
    )


def get_final_text(token_text: str, words: str, do_lower_case: bool) -> str:
    """The part of the words that `align` finds."""
    alignment = align(token_text, words, do_lower_case)
    return words[alignment.start : alignment.end]


def _with_spaces(text: str, number: int) -> int:
    """Where the character of this number, from 0 and spaces not counted, stands."""
    place = number
    # The least place that has as many spaces up to it as it lies behind its number.
    while (moved := number + text.count(" ", 0, place + 1)) != place:
        place = moved
    return place
