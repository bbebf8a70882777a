"""CoNLL-U, the files of Universal Dependencies, as sentences of tagged words.

    # newdoc id = weblog-1
    # text = Al's asleep.
    1-2   Al's     _       _       _     ...
    1     Al       Al      PROPN   NNP   ...
    2     's       be      AUX     VBZ   ...
    2.1   really   really  ADV     RB    ...
    3     asleep   asleep  ADJ     JJ    ...

A word a line, ten columns with a tab between (`COLUMNS`), which a word may have blanks
in; a blank line behind each sentence. Words are the lines with a whole number. Others
are passed over: comments; the text that several words are written as, such as 1-2;
words that are not in the text, such as 2.1. A comment `# newdoc` begins a document.

See https://universaldependencies.org/format.html.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator

from bert_tf.errors import InputError
from bert_tf.tagging.sentences import Sentence

COLUMNS = (
    "ID",
    "FORM",
    "LEMMA",
    "UPOS",
    "XPOS",
    "FEATS",
    "HEAD",
    "DEPREL",
    "DEPS",
    "MISC",
)
WORD_COLUMN, LABEL_COLUMN = COLUMNS.index("FORM"), COLUMNS.index("UPOS")
# What stands in a column that is not annotated.
UNSPECIFIED = "_"

_WORD = re.compile(r"\d+")
_NO_WORD = re.compile(r"\d+[-.]\d+")
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")


def read_conllu(
    lines: Iterable[tuple[int, str]],
    path: str,
    *,
    word_column: int,
    label_column: int,
    has_labels: bool | None,
    document: int,
) -> list[Sentence]:
    """The sentences of a file."""
    sentences = []
    is_annotated = False
    for source, number, rows in _sentences(lines, path, document):
        width = len(rows[0])
        for column in (word_column, label_column):
            if not -width <= column < width:
                raise InputError(
                    f"{source}: {width} columns, so none has the number {column}; the"
                    " first one is 0. See --word_column and --label_column."
                )
        labels = tuple(cells[label_column] for cells in rows)
        is_annotated = is_annotated or any(label != UNSPECIFIED for label in labels)
        sentences.append(
            Sentence(
                words=tuple(cells[word_column] for cells in rows),
                labels=None if has_labels is False else labels,
                document=number,
                source=source,
                # Blanks stand between columns alone.
                rows=tuple(
                    " ".join(re.sub(r"\s", "_", cell) or UNSPECIFIED for cell in cells)
                    for cells in rows
                ),
            )
        )
    if is_annotated or has_labels is False or not sentences:
        return sentences
    if has_labels:
        raise InputError(
            f"{path}: no word has a label: column {label_column} is"
            f" {UNSPECIFIED} throughout. See --label_column."
        )
    return [dataclasses.replace(one, labels=None) for one in sentences]


def _sentences(
    lines: Iterable[tuple[int, str]], path: str, document: int
) -> Iterator[tuple[str, int, list[list[str]]]]:
    """Where each sentence begins, its document, and the columns of its words."""
    rows: list[list[str]] = []
    source, width, seen_words = "", 0, False
    for number, line in lines:
        if line.startswith("#"):
            if _NEW_DOCUMENT.match(line) and not rows:
                document += seen_words
                seen_words = False
            continue
        if not line:
            if rows:
                yield source, document, rows
            rows = []
            continue
        cells = line.split("\t")
        if _NO_WORD.fullmatch(cells[0]):
            continue
        if not _WORD.fullmatch(cells[0]):
            raise InputError(
                f"{path}:{number}: the first column of a CoNLL-U file must be a word's"
                f" number, with a tab behind it. Found: {line[:40]!r}"
            )
        width = width or len(cells)
        if len(cells) != width:
            raise InputError(
                f"{path}:{number}: {len(cells)} columns, but the first word's line has"
                f" {width}. Give every word's line the same columns."
            )
        if not rows:
            source = f"{path}:{number}"
        rows.append(cells)
        seen_words = True
    if rows:
        yield source, document, rows
