"""A labelled task made from plain text: is a sentence as written, or shuffled?

Case and punctuation would give the answer away, so a sentence is reduced to its words,
and it is there twice, as written and shuffled, so that no word does. A model that knows
which words follow each other knows the answer; one that sees words without their order
can only guess.
"""

import random
import re
from collections.abc import Iterable

SHUFFLED, AS_WRITTEN = "0", "1"

_WORD = re.compile(r"[a-z]+(?:['-][a-z]+)*")

# Shorter sentences can look right in any order; longer ones are easy.
MINIMUM_WORDS, MAXIMUM_WORDS = 5, 20


def usable_words(sentences: Iterable[str]) -> list[list[str]]:
    """The words of each sentence of a fitting length; equal ones count once."""
    found = {}
    for sentence in sentences:
        words = _WORD.findall(sentence.lower())
        if MINIMUM_WORDS <= len(words) <= MAXIMUM_WORDS and len(set(words)) > 2:
            found[tuple(words)] = words
    return list(found.values())


def examples(
    sentences: Iterable[list[str]], rng: random.Random
) -> list[tuple[str, str]]:
    """(label, text) of each sentence as written and shuffled, in random order."""
    labelled = []
    for words in sentences:
        shuffled = words
        while shuffled == words:
            shuffled = rng.sample(words, len(words))
        labelled += [(AS_WRITTEN, " ".join(words)), (SHUFFLED, " ".join(shuffled))]
    rng.shuffle(labelled)
    return labelled


def table(rows: Iterable[tuple[str, str]]) -> str:
    """The rows as TSV with a header: label, text_a."""
    return "label\ttext_a\n" + "".join(f"{label}\t{text}\n" for label, text in rows)
