"""Sentences of tagged words: CoNLL's columns, CoNLL-U, JSON lines."""

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.text import blocks
from bert_tf.text.documents import whole_characters

# A sentence of words, as a file of tagged words has it.


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


# CoNLL-U, the files of Universal Dependencies, as sentences of tagged words.
#
#     # newdoc id = weblog-1
#     # text = Al's asleep.
#     1-2   Al's     _       _       _     ...
#     1     Al       Al      PROPN   NNP   ...
#     2     's       be      AUX     VBZ   ...
#     2.1   really   really  ADV     RB    ...
#     3     asleep   asleep  ADJ     JJ    ...
#
# A word a line, ten columns with a tab between (`COLUMNS`), which a word may have
# blanks
# in; a blank line behind each sentence. Words are the lines with a whole number.
# Others
# are passed over: comments; the text that several words are written as, such as 1-2;
# words that are not in the text, such as 2.1. A comment `# newdoc` begins a document.
#
# See https://universaldependencies.org/format.html.


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


# One object of JSON lines: a sentence's words and their labels.


def read_object(
    line: str,
    source: str,
    *,
    word_names: Sequence[str],
    label_names: Sequence[str],
    document_name: str,
    has_labels: bool | None,
    names_of_numbers: Sequence[str] | None,
) -> tuple[list[str], list[str] | None, Any]:
    """Reads a line."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{source}: it must be one JSON object on one line."
        ) from error
    if not isinstance(values, dict):
        raise InputError(
            f"{source}: it must be a JSON object. Found: {type(values).__name__}."
        )
    words = _field(values, word_names, "--word_column", source)
    if not all(isinstance(word, str) for word in words):
        raise InputError(f"{source}: words must be text; one is a number, or null.")
    words = [whole_characters(word) for word in words]
    document = values.get(document_name)
    is_labelled = has_labels
    if has_labels is None:
        is_labelled = any(values.get(name) is not None for name in label_names)
    if not is_labelled:
        return words, None, document
    labels = _field(values, label_names, "--label_column", source)
    if len(labels) != len(words):
        raise InputError(f"{source}: {len(words)} words, but {len(labels)} labels.")
    return (
        words,
        [label_name(label, names_of_numbers, source) for label in labels],
        document,
    )


def label_name(label: object, names: Sequence[str] | None, source: str) -> str:
    """A label as a word."""
    if isinstance(label, str) and label and not any(map(str.isspace, label)):
        return whole_characters(label)
    if isinstance(label, int) and not isinstance(label, bool):
        if names is None:
            raise InputError(
                f"{source}: the labels are numbers; --labels=O,B-PER,... says what 0, 1"
                " and so on stand for."
            )
        if 0 <= label < len(names):
            return names[label]
        hint = " -1 mostly stands for a label that is kept back." if label < 0 else ""
        raise InputError(f"{source}: --labels has no name for the label {label}.{hint}")
    raise InputError(
        f"{source}: a label must be a word without blanks, or a number. Found:"
        f" {label!r}."
    )


def _field(
    values: dict[str, Any], names: Sequence[str], flag: str, source: str
) -> list[Any]:
    for name in names:
        if name in values:
            if isinstance(values[name], list):
                return values[name]
            raise InputError(f"{source}: {name!r} must be a list, an entry a word.")
    raise InputError(
        f"{source}: it has no {' or '.join(map(repr, names))}; {flag} names one of its"
        f" own: {', '.join(values)}."
    )


# Files of tagged words: columns, JSON lines, word/TAG.
#
# conll     A word a line, columns with blanks or tabs between, a blank line behind
# each
#           sentence; a line -DOCSTART- begins a document (CoNLL-2003).
#
#               EU NNP B-NP B-ORG
#               rejects VBZ B-VP O
#
#           A line in front of a sentence is a comment if it has a # alone and other
#           columns than a word's, or reads "# key = value", "# newdoc", "# id
#           4037ff98-",
#           "#begin document" or "# http...": it is passed over, counted, and
#           predictions
#           have no line for it.
#
# conllu    Universal Dependencies' ten columns; the word is FORM, the label UPOS; see
#           `bert_tf.tasks.tagging.sentences`. Predictions have no line for what is no
# word.
#
# jsonl     A sentence a line; labels as words, or as numbers that --labels names
#           (Hugging Face's exports). Sentences of one document have the same value in
#           `document_id`, where there is one.
#
#               {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}
#
# slashes   A sentence a line, each word with its label behind the last slash (the
# Brown
#           corpus): EU/np rejects/vbz
#
# A file's end ends its last sentence and document. Names that end in .gz, .bz2 or .xz
# are
# unpacked. A line that is not as its format has it is an error: a prediction of
# columns
# has a line for each of the file's but its comments.


FORMATS = ("auto", "conll", "conllu", "jsonl", "slashes")
DOCUMENT_START = "-DOCSTART-"

_PACKED = r"(\.(gz|bz2|xz))?$"
# Tells a format by a file's name.
_NAMES = {
    "jsonl": re.compile(r"\.jsonl?" + _PACKED),
    "conllu": re.compile(r"\.conllu" + _PACKED),
}
# What a line with # in front of a sentence begins with that is no word, though it may
# have as many columns: CoNLL-U's "# text = ..." and "# newdoc ...", MultiCoNER's
# "# id 4037ff98-...", CoNLL-2012's "#begin document ...", GermEval's
# "#<tab>http://...".
_COMMENT = re.compile(
    r"#([ \t]+(new(doc|par)([ \t]|$)|[\w.]+[ \t]+=[ \t]|id [0-9a-f-]{8,}|https?://)"
    r"|(begin|end) document([ \t]|$))"
)
_DOCUMENT_COMMENT = re.compile(r"#(begin document|[ \t]+newdoc)([ \t]|$)")
# Not other white space, which may be a part of a word.
_BETWEEN = re.compile(r"[ \t]+")

Numbered = tuple[int, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """How files are read.

    Attributes:
        format: of `FORMATS`; auto: JSON lines and CoNLL-U by the file's name, else
            columns.
        word_column: the words' column: in columns its number from 0, negative ones
            from the end; in JSON its name; in CoNLL-U either. None: 0; FORM; tokens, or
            words.
        label_column: likewise. None: -1; UPOS; ner_tags, labels, or tags.
        document_column: in JSON, the name of what sentences of a document share.
        separator: for slashes, what stands before a label.
        label_names: what labels that are numbers stand for.
    """

    format: str = "auto"
    word_column: str | None = None
    label_column: str | None = None
    document_column: str = "document_id"
    separator: str = "/"
    label_names: tuple[str, ...] | None = None


def read_sentences(
    paths: Sequence[str], layout: Layout, *, has_labels: bool | None = True
) -> list[Sentence]:
    """The sentences of some files, as if they were one."""
    found: list[Sentence] = []
    for path in paths:
        name = layout.format
        if name == "auto":
            found_by_name = (one for one in _NAMES if _NAMES[one].search(path))
            name = next(found_by_name, "conll")
        read = _READERS[name]
        document = found[-1].document + 1 if found else 0
        # One file's last sentence may have no blank line before the next file.
        for one in read(path, layout, has_labels, document):
            if found and not one.before and not found[-1].after:
                one = dataclasses.replace(one, before=("",))
            found.append(one)
    if not found:
        raise InputError(f"{', '.join(paths)}: no sentence in it.")
    unlabelled = sum(one.labels is None for one in found)
    if has_labels is None and 0 < unlabelled < len(found):
        raise InputError(
            f"{', '.join(paths)}: {unlabelled} of {len(found)} sentences have no"
            " labels; either all have, or none."
        )
    return found


def _lines(path: str) -> Iterator[Numbered]:
    """The lines of a file, stripped, with their numbers from 1."""
    if not files.exists(path):
        raise InputError(f"No such file of tagged words: {path}")
    if files.is_folder(path):
        raise InputError(f"Give files of tagged words; this is a folder: {path}")
    number = 0
    for block in blocks.read_blocks(path):
        content = block.data.rstrip(b"\r\n")
        if block.offset == 0 and b"\r" in content and b"\n" not in content:
            raise InputError(
                f"{path}: its lines end in carriage returns alone, as old Macs wrote"
                " them. Convert it, e.g. with tr '\\r' '\\n'."
            )
        for line in blocks.lines(block, path, keep_mark=False):
            number += 1
            yield number, line.strip(" \t")


def _columns(
    path: str, layout: Layout, has_labels: bool | None, document: int
) -> Iterator[Sentence]:
    word_column = _number(layout.word_column, 0, "word_column")
    label_column = _number(layout.label_column, -1, "label_column")
    lines, first, width = _with_width(_lines(path))
    is_labelled = has_labels is not False
    if width:
        is_labelled = _check_width(path, first, width, layout, has_labels)
    before: list[str] = []
    rows: list[list[str]] = []
    source = ""
    seen_words = False
    num_comments = 0
    # Held back until it is known what stands behind it at the file's end.
    last: Sentence | None = None

    def sentence() -> Sentence:
        words = tuple(cells[word_column] for cells in rows)
        labels = tuple(cells[label_column] for cells in rows) if is_labelled else None
        joined = tuple(" ".join(cells) for cells in rows)
        return Sentence(
            words=words,
            labels=labels,
            document=document,
            source=source,
            rows=joined,
            before=tuple(before),
        )

    for number, line in lines:
        cells = _BETWEEN.split(line)
        is_comment = not rows and _is_comment(line, len(cells), width)
        is_start = line.startswith(DOCUMENT_START) or (
            is_comment and _DOCUMENT_COMMENT.match(line) is not None
        )
        if (not line or is_start) and rows:
            if last is not None:
                yield last
            last = sentence()
            rows, before, seen_words = [], [], True
        if is_start:
            document += seen_words
            seen_words = False
        if is_comment:
            num_comments += 1
            continue
        if not line or is_start:
            before.append(" ".join(cells))
            continue
        if len(cells) != width:
            raise InputError(
                f"{path}:{number}: {len(cells)} columns, but line {first}, the first"
                f" word's, has {width}. Give every word's line the same columns."
            )
        if not rows:
            source = f"{path}:{number}"
        rows.append(cells)
    if num_comments:
        logging.info("%s: passed over %d comments.", path, num_comments)
    if rows:
        if last is not None:
            yield last
        last, before = sentence(), []
    if last is not None:
        yield dataclasses.replace(last, after=tuple(before))


def _with_width(lines: Iterator[Numbered]) -> tuple[Iterator[Numbered], int, int]:
    """The lines, and the number and columns of the first one that is a word for sure.

    Where all begin with #, that is the first of them; 0 and 0 where there is no word.
    """
    seen: list[Numbered] = []
    found = 0, 0
    for number, line in lines:
        seen.append((number, line))
        if not line or line.startswith(DOCUMENT_START):
            continue
        here = number, len(_BETWEEN.split(line))
        found = found if found[0] else here
        if not line.startswith("#"):
            found = here
            break
    return itertools.chain(seen, lines), *found


def _is_comment(line: str, num_columns: int, width: int) -> bool:
    """Whether a line in front of a sentence is no word."""
    # A hashtag (#word) without its columns is a fault.
    is_other = num_columns != width and line.startswith(("# ", "#\t"))
    return is_other or _COMMENT.match(line) is not None


def _check_width(
    path: str, number: int, width: int, layout: Layout, has_labels: bool | None
) -> bool:
    """Whether words of so many columns have a label; InputError if they must."""
    word_column = _number(layout.word_column, 0, "word_column")
    label_column = _number(layout.label_column, -1, "label_column")
    if not -width <= word_column < width:
        raise InputError(
            f"{path}:{number}: --word_column={word_column}, but there are {width}"
            " columns; the first one is 0."
        )
    if has_labels is False:
        return False
    is_there = -width <= label_column < width
    if is_there and label_column % width != word_column % width:
        return True
    if has_labels is None:
        return False
    raise InputError(
        f"{path}:{number}: {width} columns, with the words in column {word_column} and"
        f" none for the labels in column {label_column}. See --word_column and"
        " --label_column."
    )


def _number(value: str | None, default: int, flag: str) -> int:
    if value is None:
        return default
    try:
        return int(value)
    except ValueError as error:
        raise InputError(
            f"--{flag}={value}: the columns of a column file have numbers, from 0; -1"
            " is the last one."
        ) from error


def _conllu(
    path: str, layout: Layout, has_labels: bool | None, document: int
) -> Iterator[Sentence]:
    def column(value: str | None, default: int, flag: str) -> int:
        if value in COLUMNS:
            return COLUMNS.index(value)
        return _number(value, default, flag)

    yield from read_conllu(
        _lines(path),
        path,
        word_column=column(layout.word_column, WORD_COLUMN, "word_column"),
        label_column=column(layout.label_column, LABEL_COLUMN, "label_column"),
        has_labels=has_labels,
        document=document,
    )


def _slashes(
    path: str, layout: Layout, has_labels: bool | None, document: int
) -> Iterator[Sentence]:
    is_labelled = has_labels
    for number, line in _lines(path):
        if not line:
            continue
        cells = _BETWEEN.split(line)
        if is_labelled is None:
            is_labelled = all(layout.separator in cell for cell in cells)
        words, labels = cells, None
        if is_labelled:
            parts = [cell.rpartition(layout.separator) for cell in cells]
            words, labels = [part[0] for part in parts], [part[2] for part in parts]
            for cell, word, label in zip(cells, words, labels, strict=True):
                if not word or not label:
                    raise InputError(
                        f"{path}:{number}: {cell!r} must be a word, {layout.separator}"
                        " and its label."
                    )
        yield Sentence.of_words(
            words, labels, document=document, source=f"{path}:{number}"
        )


def _json_lines(
    path: str, layout: Layout, has_labels: bool | None, document: int
) -> Iterator[Sentence]:
    num_empty = 0
    before: object = None
    is_first = True
    for number, line in _lines(path):
        if not line:
            continue
        source = f"{path}:{number}"
        words, labels, name = read_object(
            line,
            source,
            word_names=_names(layout.word_column, ("tokens", "words")),
            label_names=_names(layout.label_column, ("ner_tags", "labels", "tags")),
            document_name=layout.document_column,
            has_labels=has_labels,
            names_of_numbers=layout.label_names,
        )
        if not words:
            num_empty += 1
            continue
        # None where no sentence says it: the file is one document.
        document += not is_first and name != before
        before, is_first = name, False
        yield Sentence.of_words(words, labels, document=document, source=source)
    if num_empty:
        logging.warning("%s: passed over %d sentences without a word.", path, num_empty)


def _names(given: str | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    return usual if given is None else (given,)


_READERS = {
    "conll": _columns,
    "conllu": _conllu,
    "jsonl": _json_lines,
    "slashes": _slashes,
}
