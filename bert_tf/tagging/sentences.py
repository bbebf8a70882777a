"""A sentence of words, as a file of tagged words has it."""

import dataclasses
import hashlib
import json
import re
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
        after: of a file's last sentence, those that stand behind it.
    """

    words: tuple[str, ...]
    labels: tuple[str, ...] | None
    document: int
    source: str
    rows: tuple[str, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @classmethod
    def of_words(
        cls,
        words: Sequence[str],
        labels: Sequence[str] | None,
        *,
        document: int,
        source: str,
    ) -> "Sentence":
        """A sentence whose file has no columns, as a column file would have it."""
        # Blanks stand between columns alone, and no column is empty.
        rows = [re.sub(r"\s", "_", word) or "_" for word in words]
        if labels is not None:
            rows = [f"{word} {label}" for word, label in zip(rows, labels, strict=True)]
        return cls(
            words=tuple(words),
            labels=None if labels is None else tuple(labels),
            document=document,
            source=source,
            rows=tuple(rows),
        )


def digest(sentences: Sequence[Sentence]) -> str:
    """Tells sets of sentences apart by all that records are made of."""
    found = hashlib.sha256()
    for one in sentences:
        cells = (one.words, one.labels, one.document)
        found.update(json.dumps(cells).encode("utf-8"))
    return found.hexdigest()
