r"""Files of tagged words: columns, JSON lines, word/TAG.

conll     A word a line, columns with blanks or tabs between, a blank line behind each
          sentence; a line -DOCSTART- begins a document (CoNLL-2003).

              EU NNP B-NP B-ORG
              rejects VBZ B-VP O

          A line in front of a sentence is a comment if it has a # alone and other
          columns than a word's, or reads "# key = value", "# newdoc", "# id 4037ff98-",
          "#begin document" or "# http...": it is passed over, counted, and predictions
          have no line for it.

conllu    Universal Dependencies' ten columns; the word is FORM, the label UPOS; see
          `bert_tf.tagging.conllu`. Predictions have no line for what is no word.

jsonl     A sentence a line; labels as words, or as numbers that --labels names
          (Hugging Face's exports). Sentences of one document have the same value in
          `document_id`, where there is one.

              {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}

slashes   A sentence a line, each word with its label behind the last slash (the Brown
          corpus): EU/np rejects/vbz

A file's end ends its last sentence and document. Names that end in .gz, .bz2 or .xz are
unpacked. A line that is not as its format has it is an error: a prediction of columns
has a line for each of the file's but its comments.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.tagging import conllu
from bert_tf.tagging.json_lines import read_object
from bert_tf.tagging.sentences import Sentence
from bert_tf.text import blocks

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
# "# id 4037ff98-...", CoNLL-2012's "#begin document ...", GermEval's "#<tab>http://...".
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
        if value in conllu.COLUMNS:
            return conllu.COLUMNS.index(value)
        return _number(value, default, flag)

    yield from conllu.read_conllu(
        _lines(path),
        path,
        word_column=column(layout.word_column, conllu.WORD_COLUMN, "word_column"),
        label_column=column(layout.label_column, conllu.LABEL_COLUMN, "label_column"),
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
