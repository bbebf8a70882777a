"""A sentence of words, as a file of tagged words has it."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sentence:
    """Words, one at least, and their labels where they are known.

    Attributes:
        words: as they were read.
        labels: as many; None where there are none.
        document: a number that sentences of one document share.
        source: where it begins, for messages: FILE:LINE.
        rows: what a column file has for each word, columns with a blank between, the
            label among them where it is known.
        before: the lines that stand in the file between the sentence before and this
            one, such as -DOCSTART-; blank ones are "".
    """

    words: tuple[str, ...]
    labels: tuple[str, ...] | None
    document: int
    source: str
    rows: tuple[str, ...]
    before: tuple[str, ...] = ()


def digest(sentences: Sequence[Sentence]) -> str:
    """Tells sets of sentences apart by all that records are made of."""
    found = hashlib.sha256()
    for one in sentences:
        cells = (one.words, one.labels, one.document)
        found.update(json.dumps(cells).encode("utf-8"))
    return found.hexdigest()
