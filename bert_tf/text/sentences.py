"""Paragraphs into sentences, by the rules of a language.

The splitter is `sentencex` (Wikimedia's): rules for abbreviations, numbers, quotations
and lists in some thirty languages. It takes the rules of a related language for the
others that it knows of, and English ones for any other code.
"""

import re
from collections.abc import Callable, Sequence

# Those with rules of their own in sentencex 1.0.
LANGUAGES = (
    *("am", "ar", "bg", "bn", "ca", "da", "de", "el", "en", "es", "fi", "fr", "gu"),
    *("hi", "hy", "it", "ja", "kk", "kn", "ml", "mr", "my", "nl", "pa", "pl", "pt"),
    *("ru", "sk", "ta", "te", "uk"),
)

# At "B\u00a0.", sentencex (1.0.32) cuts the space's bytes in two and panics.
_WIDE_SPACE_BEFORE_PERIOD = re.compile(r"[^\S\x00-\x7f](?=\.)")


def sentence_splitter(language: str) -> Callable[[str], Sequence[str]]:
    """A function from a paragraph to its sentences.

    Sentences are stripped, and none is empty; nothing but white space between them is
    lost.
    """
    if not language:
        return _as_one
    import sentencex

    segment = sentencex.segment

    def split(paragraph: str) -> Sequence[str]:
        if not paragraph.isascii():
            paragraph = _WIDE_SPACE_BEFORE_PERIOD.sub(" ", paragraph)
        stripped = [sentence.strip() for sentence in segment(language, paragraph)]
        return [sentence for sentence in stripped if sentence]

    return split


def _as_one(paragraph: str) -> Sequence[str]:
    return (paragraph,) if paragraph else ()
