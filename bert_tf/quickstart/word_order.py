"""A labelled task made from plain text: is a sentence as written, or shuffled?

Case and punctuation would give the answer away, so a sentence is reduced to its words.
A model that knows which words follow each other knows the answer; one that sees words
without their order can only guess.
"""

import random
import re
from collections.abc import Iterable

SHUFFLED, AS_WRITTEN = "0", "1"

_WORD = re.compile(r"[a-z]+(?:['-][a-z]+)*")

# Shorter sentences can look right in any order; longer ones are easy.
MINIMUM_WORDS, MAXIMUM_WORDS = 5, 20


def examples(sentences: Iterable[str], rng: random.Random) -> list[tuple[str, str]]:
    """(label, text) of every usable sentence, half of them shuffled, in random order.

    Args:
        sentences: the sentences; equal ones count once.
        rng: decides which are shuffled, and how.
    """
    kept = []
    for sentence in dict.fromkeys(sentences):
        words = _WORD.findall(sentence.lower())
        if MINIMUM_WORDS <= len(words) <= MAXIMUM_WORDS and len(set(words)) > 2:
            kept.append(words)
    rng.shuffle(kept)
    labelled = []
    for number, words in enumerate(kept):
        if number % 2:
            labelled.append((AS_WRITTEN, " ".join(words)))
            continue
        shuffled = words
        while shuffled == words:
            shuffled = rng.sample(words, len(words))
        labelled.append((SHUFFLED, " ".join(shuffled)))
    rng.shuffle(labelled)
    return labelled


def table(rows: Iterable[tuple[str, str]]) -> str:
    """The rows as TSV with a header: label, text_a."""
    return "label\ttext_a\n" + "".join(f"{label}\t{text}\n" for label, text in rows)
