"""CoNLL-U, the files of Universal Dependencies, as sentences of tagged words.

Ten columns (`COLUMNS`), which may contain blanks, are separated by tabs. The word is
FORM and the label UPOS. Words are the lines with a whole number as their ID. Others are
passed over: comments (`# newdoc` begins a document); the joint text of several words,
such as 1-2; words that are not in the text, such as 2.1. See
https://universaldependencies.org/format.html.

    # text = Al's asleep.
    1-2   Al's     _       _       _     ...
    1     Al       Al      PROPN   NNP   ...
    2     's       be      AUX     VBZ   ...
    3     asleep   asleep  ADJ     JJ    ...
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator

from bert_tf.base.errors import InputError
from bert_tf.tasks.tagging.sentences import (
    Layout,
    Sentence,
    as_column,
    check_width,
    column_number,
    numbered_lines,
)

_ALL = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC"
COLUMNS = tuple(_ALL.split())
UNSPECIFIED = "_"  # the value of a column that is not annotated
_DOCUMENT = re.compile(r"#\s*newdoc\b")


def sentences_of(
    path: str, layout: Layout, has_labels: bool | None, document: int
) -> Iterator[Sentence]:
    """Yields a file's sentences."""

    def column(value: str | None, default: str, flag: str) -> int:
        if value in COLUMNS:
            value = str(COLUMNS.index(value))
        return column_number(value, COLUMNS.index(default), flag, source, len(words[0]))

    sentences = []
    is_annotated = False
    for source, number, words in _rows(path, document):
        word_column = column(layout.word_column, "FORM", "word_column")
        label_column = column(layout.label_column, "UPOS", "label_column")
        labels = tuple(cells[label_column] for cells in words)
        is_annotated = is_annotated or {*labels} != {UNSPECIFIED}
        sentences.append(
            Sentence(
                words=tuple(cells[word_column] for cells in words),
                labels=None if has_labels is False else labels,
                document=number,
                source=source,
                rows=tuple(" ".join(map(as_column, cells)) for cells in words),
            )
        )
    if sentences and has_labels and not is_annotated:
        raise InputError(
            f"{path}: no word has a label: column {label_column} is"
            f" {UNSPECIFIED} throughout. See `label_column`."
        )
    for one in sentences:
        yield one if is_annotated else dataclasses.replace(one, labels=None)


def _rows(path: str, document: int) -> Iterator[tuple[str, int, list[list[str]]]]:
    """Yields each sentence's place, its document, and the columns of its words."""
    rows: list[list[str]] = []
    source, first, width, seen_words = "", 0, 0, False
    # A blank line ends the file's last sentence.
    for number, line in itertools.chain(numbered_lines(path), [(0, "")]):
        if line.startswith("#"):
            if _DOCUMENT.match(line) and not rows:
                document += seen_words
                seen_words = False
            continue
        if not line:
            if rows:
                yield source, document, rows
            rows = []
            continue
        cells = line.split("\t")
        if re.fullmatch(r"\d+[-.]\d+", cells[0]):
            continue
        if not re.fullmatch(r"\d+", cells[0]):
            raise InputError(
                f"{path}:{number}: the first column of a CoNLL-U file must be a word's"
                f" number, followed by a tab. Received: {line[:40]!r}"
            )
        if not width:
            first, width = number, len(cells)
        check_width(f"{path}:{number}", cells, width, first)
        source = source if rows else f"{path}:{number}"
        rows.append(cells)
        seen_words = True
