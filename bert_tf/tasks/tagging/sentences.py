"""Sentences of tagged words, from files and from TensorFlow Datasets.

A file is in one of these formats; names that end in .gz, .bz2 or .xz are unpacked. The
end of a file ends its last sentence and document. A line with the wrong form is an
error, because predictions have one line for each line of the file except comments.

conll     One word per line, columns separated by blanks or tabs, and a blank line after
          each sentence; a line -DOCSTART- begins a document (CoNLL-2003).

              EU NNP B-NP B-ORG
              rejects VBZ B-VP O

          If a word or a label contains blanks, so that lines would have different
          numbers of columns, only tabs separate them; in labels and predictions a
          blank is then written _.
          A line before a sentence is a comment if it has a # alone and other columns
          than a word's, or reads "# key = value", "# newdoc", "# id 4037ff98-",
          "#begin document" or "# http...". Comments are skipped, and predictions have
          no line for them.

conllu    CoNLL-U, the files of Universal Dependencies: see
          `bert_tf.addons.corpora.conllu`.

spans     Texts with labelled spans, of doccano, Prodigy, Label Studio or spaCy: see
          `bert_tf.addons.corpora.annotations`. A text is one sentence, and a document.
          Its words are those of the tokenizer: between white space, each sign of
          punctuation, each CJK ideograph. The labels are IOB2.

text      One text per line, without labels, to predict. Words are split as in the
          model's training.

jsonl     One sentence per row of JSON or Parquet (`bert_tf.base.rows`). Labels are
          words, or numbers that --labels names (Hugging Face's exports). Sentences of
          one document have the same value in `document_id`, if there is one.

              {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.base import files, rows, unpacking
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.tfds_rows import TfdsRows
from bert_tf.tasks import other_formats
from bert_tf.tasks.tagging.labels import is_nested
from bert_tf.text.documents import lines_of, read_blocks, whole_characters
from bert_tf.text.normalization import Span, words_of_text
from bert_tf.text.segmentation import NO_SEGMENTER

FORMATS = ("auto", "conll", "conllu", "jsonl", "spans", "text")
DOCUMENT_START = "-DOCSTART-"

# The beginnings of comments that may have as many columns as a word: "# text = ..." and
# "# newdoc ..." of CoNLL-U, "# id 4037ff98-..." of MultiCoNER, "#begin document ..." of
# CoNLL-2012, "#<tab>http://..." of GermEval.
_COMMENT = re.compile(
    r"#([ \t]+(new(doc|par)([ \t]|$)|[\w.]+[ \t]+=[ \t]|id [0-9a-f-]{8,}|https?://)"
    r"|(begin|end) document([ \t]|$))"
)
_DOCUMENT_COMMENT = re.compile(r"#(begin document|[ \t]+newdoc)([ \t]|$)")
# Other white space may be part of a word.
_BETWEEN = re.compile(r"[ \t]+")

_WHAT = "file of tagged words"

Numbered = tuple[int, str]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sentence:
    """One or more words, and their labels if known."""

    words: tuple[str, ...]
    labels: tuple[str, ...] | None
    document: int  # a number that sentences of one document share
    source: str  # FILE:LINE of its beginning, for messages
    # A column file's columns of each word, with a blank between them, including the
    # label if known.
    rows: tuple[str, ...]
    # The file's lines between the previous sentence and this one, such as -DOCSTART-;
    # blank ones are "". For a file's last sentence, also those after it.
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    # The text of the words, and their characters in it, half open; if known.
    text: str | None = None
    spans: tuple[Span, ...] = ()

    @classmethod
    def of_words(
        cls,
        words: Sequence[str],
        labels: Sequence[str] | None,
        *,
        document: int,
        source: str,
        text: str | None = None,
        spans: Sequence[Span] = (),
    ) -> "Sentence":
        """Makes a sentence of a file without columns, in the form of a column file."""
        rows = [as_column(word) for word in words]
        if labels is not None:
            rows = [f"{word} {label}" for word, label in zip(rows, labels, strict=True)]
        return cls(
            words=tuple(words),
            labels=None if labels is None else tuple(labels),
            document=document,
            source=source,
            rows=tuple(rows),
            text=text,
            spans=tuple(spans),
        )


def as_column(text: str) -> str:
    """Returns a text as a column: blanks separate columns, and no column is empty."""
    return re.sub(r"\s", "_", text) or "_"


def _joined(cell: str) -> str:
    """Returns a cell between tabs as a column between blanks."""
    return _BETWEEN.sub("_", cell) or "_"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The layout of files."""

    format: str = "auto"  # of `FORMATS`; auto: by the file's name, else columns
    # The words' column: in columns its number from 0, or backwards from -1; in JSON its
    # name; in CoNLL-U either. Default: 0; FORM; tokens, or words.
    word_column: str | None = None
    label_column: str | None = None  # default: -1; UPOS; ner_tags, labels, or tags
    document_column: str = "document_id"  # in JSON, shared by a document's sentences
    labels: tuple[str, ...] | None = None  # the names of labels that are numbers
    widens_spans: bool = True  # to whole words; else they are errors
    splits_cjk: bool = True  # plain text, at each ideograph
    splits_punctuation: bool = False  # and at each punctuation sign
    segmenter: str = NO_SEGMENTER  # and where it separates words


def read_sentences(
    paths: Sequence[str], layout: Layout, *, has_labels: bool | None = True
) -> list[Sentence]:
    """Reads some files as if they were one; `has_labels=None` is detected."""
    found: list[Sentence] = []
    for path in paths:
        document = found[-1].document + 1 if found else 0
        with other_formats.naming(path, "run_ner"):
            read = [*_sentences(path, layout, has_labels, document)]
        for one in read:
            # One file's last sentence may have no blank line before the next file.
            if found and not one.before and not found[-1].after:
                one = dataclasses.replace(one, before=("",))
            found.append(one)
    if not found:
        raise InputError(f"{', '.join(paths)}: no sentence in it.")
    _refuse_nested(found)
    unlabelled = sum(one.labels is None for one in found)
    if has_labels is None and 0 < unlabelled < len(found):
        raise InputError(
            f"{', '.join(paths)}: {unlabelled} of {len(found)} sentences have no"
            " labels; give labels to all of them, or to none."
        )
    return found


def check_file(path: str, layout: Layout, *, has_labels: bool | None) -> None:
    """Raises InputError for a file without sentences or columns."""
    with other_formats.naming(path, "run_ner"):
        found = next(iter(_sentences(path, layout, has_labels, 0)), None)
    if found is None and files.size(path) == 0:
        raise InputError(f"{path}: the file is empty. Give another.")


def _sentences(
    path: str, layout: Layout, has_labels: bool | None, document: int
) -> Iterable[Sentence]:
    name = layout.format
    if name == "auto":
        name = "conll"
        if rows.format_of(path) in rows.OBJECTS:
            name = "jsonl" if _has_words(path, layout) else "spans"
        elif path.removesuffix(unpacking.compression(path)).endswith(".conllu"):
            name = "conllu"
    read = _READERS.get(name) or addon(name)
    return read(path, layout, has_labels, document)


def _has_words(path: str, layout: Layout) -> bool:
    """Whether a file's first row has a sentence's words, rather than a text."""
    _, values = next(rows.objects(path, _WHAT), ("", None))
    if not isinstance(values, dict):
        return False
    words = [values.get(name) for name in _word_names(layout)]
    has_text = any(name in values for name in ("text", "data"))
    return not has_text or any(
        isinstance(one, list) and all(isinstance(each, str) for each in one)
        for one in words
    )


def _word_names(layout: Layout) -> tuple[str, ...]:
    return ("tokens", "words") if layout.word_column is None else (layout.word_column,)


def read_tfds(
    source: TfdsRows, layout: Layout, *, has_labels: bool = True
) -> list[Sentence]:
    """Reads the sentences of a TensorFlow dataset, such as conll2003."""
    word_feature = layout.word_column or "tokens"
    label_feature = layout.label_column or "ner"
    source.check(word_feature, "word_column")
    wanted = {word_feature: True}
    label_names = layout.labels
    if has_labels:
        source.check(label_feature, "label_column")
        wanted[label_feature] = True
        label_names = source.class_names(label_feature) or label_names
    found: list[Sentence] = []
    for one in source.read(wanted):
        row = one.cells
        words = row[word_feature]
        labels = None
        if words:
            if has_labels:
                labels = _labels_of(words, row[label_feature], label_names, one.place)
            found.append(
                Sentence.of_words(words, labels, document=one.number, source=one.place)
            )
    if not found:
        raise InputError(f"{source.path}: no sentences in this split.")
    _refuse_nested(found)
    return found


def _refuse_nested(sentences: Iterable[Sentence]) -> None:
    """Raises InputError for a word with the labels of several entities in one."""
    known: set[str] = set()
    for one in sentences:
        for label in {*(one.labels or ())} - known:
            known.add(label)
            if is_nested(label):
                raise InputError(
                    f"{one.source}: {label!r} combines several labels, as for nested"
                    " entities; a word has one label here. Keep one of them, such as"
                    " the outermost entity's."
                )


def numbered_lines(path: str) -> Iterator[Numbered]:
    """Yields the lines of a file, stripped, with their numbers from 1."""
    files.require(path, _WHAT)
    number = 0
    for block in read_blocks(path):
        for line in lines_of(block, path, keep_mark=False):
            number += 1
            yield number, line.strip(" \t")


def _conll(
    path: str, layout: Layout, has_labels: bool | None, document: int
) -> Iterable[Sentence]:
    numbered = [*numbered_lines(path)]
    split = _split_of(numbered)
    lines, first, width = _with_width(iter(numbered), split)
    where = f"{path}:{first}"
    label_column = column_number(layout.label_column, -1, "label_column", where, None)
    word_column = column_number(
        layout.word_column, 0, "word_column", where, width if width else None
    )
    if width:
        has_column = -width <= label_column < width
        is_other = has_column and label_column % width != word_column % width
        if has_labels and not is_other:
            raise InputError(
                f"{where}: {width} columns, with the words in column {word_column} and"
                f" none for the labels in column {label_column}. See `label_column`."
            )
        has_labels = is_other and has_labels is not False
    before: list[str] = []
    rows: list[list[str]] = []
    source = ""
    seen_words = False
    found: list[Sentence] = []

    def end_sentence() -> None:
        labels = None
        if has_labels:
            labels = tuple(_joined(cells[label_column]) for cells in rows)
        found.append(
            Sentence(
                words=tuple(cells[word_column] for cells in rows),
                labels=labels,
                document=document,
                source=source,
                rows=tuple(" ".join(map(_joined, cells)) for cells in rows),
                before=tuple(before),
            )
        )
        rows.clear()
        before.clear()

    for number, line in lines:
        cells = split(line)
        # A hashtag (#word) without its columns is a fault.
        is_comment = not rows and (
            (len(cells) != width and line.startswith(("# ", "#\t")))
            or _COMMENT.match(line) is not None
        )
        is_start = line.startswith(DOCUMENT_START) or (
            is_comment and _DOCUMENT_COMMENT.match(line) is not None
        )
        if (not line or is_start) and rows:
            end_sentence()
            seen_words = True
        if is_start:
            document += seen_words
            seen_words = False
        if not is_comment and (not line or is_start):
            before.append(" ".join(cells))
        elif not is_comment:
            check_width(f"{path}:{number}", cells, width, first)
            source = source if rows else f"{path}:{number}"
            rows.append(cells)
    if rows:
        end_sentence()
    if found:
        found[-1] = dataclasses.replace(found[-1], after=tuple(before))
    return found


def _split_of(lines: Iterable[Numbered]) -> Callable[[str], list[str]]:
    """Returns how to split lines: at blanks and tabs, or at tabs if columns need it."""

    def at_tabs(line: str) -> list[str]:
        return [cell.strip() for cell in line.split("\t")]

    words = [
        line for _, line in lines if line and not line.startswith(("#", DOCUMENT_START))
    ]
    at_blanks, with_tabs = (
        {len(split(line)) for line in words} for split in (_BETWEEN.split, at_tabs)
    )
    is_tabs = len(at_blanks) > 1 and len(with_tabs) == 1 and with_tabs != {1}
    return at_tabs if is_tabs else _BETWEEN.split


def _with_width(
    lines: Iterator[Numbered], split: Callable[[str], list[str]]
) -> tuple[Iterator[Numbered], int, int]:
    """Returns the lines, and number and columns of the first certain word, or 0."""
    seen: list[Numbered] = []
    found = 0, 0
    for number, line in lines:
        seen.append((number, line))
        if not line or line.startswith(DOCUMENT_START):
            continue
        here = number, len(split(line))
        found = found if found[0] else here
        if not line.startswith("#"):
            found = here
            break
    return itertools.chain(seen, lines), *found


def check_width(where: str, cells: Sequence[str], width: int, first: int) -> None:
    """Raises InputError unless a word has as many columns as the first one."""
    if len(cells) != width:
        raise InputError(
            f"{where}: {len(cells)} columns, but line {first}, the first word's, has"
            f" {width}. Give every word's line the same columns."
        )


def column_number(
    value: str | None, default: int, flag: str, where: str, width: int | None
) -> int:
    """Returns a column's number from a flag; any number is valid without a width."""
    try:
        number = default if value is None else int(value)
    except ValueError:
        number = width = 0
    if width is not None and not -width <= number < width:
        raise InputError(
            f"{where}: `{flag}={value}`: no such column. Give its number, from 0, or"
            " from -1 backwards; in CoNLL-U its name works too."
        )
    return number


def _json_lines(
    path: str, layout: Layout, has_labels: bool | None, document: int
) -> Iterator[Sentence]:
    word_names = _word_names(layout)
    label_names: Sequence[str] = ("ner_tags", "labels", "tags")
    if layout.label_column is not None:
        label_names = (layout.label_column,)
    before: object = None
    is_first = True
    for source, values in rows.objects(path, _WHAT):
        if not isinstance(values, Mapping):
            raise InputError(f"{source}: it must be a JSON object with words.")
        words = _field(values, word_names, "`word_column`", source)
        if not all(isinstance(word, str) for word in words):
            raise InputError(f"{source}: words must be text; one is a number, or null.")
        labels = None
        some = any(values.get(name) is not None for name in label_names)
        if has_labels or (has_labels is None and some):
            labels = _field(values, label_names, "`label_column`", source)
            labels = _labels_of(words, labels, layout.labels, source)
        if words:
            # None if no sentence has a document: the file is one.
            name = values.get(layout.document_column)
            document += not is_first and name != before
            before, is_first = name, False
            yield Sentence.of_words(
                [whole_characters(word) for word in words],
                labels,
                document=document,
                source=source,
            )


def _field(
    values: Mapping[str, Any], names: Sequence[str], flag: str, source: str
) -> list[Any]:
    """Returns the list under one of some names."""
    found = next((values[name] for name in names if name in values), None)
    if not isinstance(found, list):
        raise InputError(
            f"{source}: {' or '.join(names)} must be a list, with an entry per word;"
            f" {flag} gives another name. There are: {', '.join(values)}."
        )
    return found


def _labels_of(
    words: Sequence[str],
    labels: Sequence[object],
    names: Sequence[str] | None,
    source: str,
) -> list[str]:
    """Returns the labels of words, by name."""
    if len(labels) != len(words):
        raise InputError(f"{source}: {len(words)} words, but {len(labels)} labels.")
    return [_label(label, names or (), source) for label in labels]


def _label(label: object, names: Sequence[str], source: str) -> str:
    if isinstance(label, str) and label and not any(map(str.isspace, label)):
        return whole_characters(label)
    if type(label) is int and 0 <= label < len(names):
        return names[label]
    raise InputError(
        f"{source}: a label must be a word without blanks, or a number that"
        f" `labels=O,B-PER,...` has a name for, from 0. Received: {label!r}."
    )


def _plain_texts(
    path: str, layout: Layout, has_labels: bool | None, document: int
) -> Iterator[Sentence]:
    if has_labels:
        raise InputError(
            f"{path}: `format=text` has no labels, which `train_file` and `dev_file`"
            " need: give files with labels, and predict plain text by bert_tf.predict."
        )
    for number, line in numbered_lines(path):
        spans = words_of_text(
            line,
            splits_cjk=layout.splits_cjk,
            splits_punctuation=layout.splits_punctuation,
            segmenter=layout.segmenter,
        )
        if spans:
            yield sentence_of_text(line, spans, None, document, f"{path}:{number}")
            document += 1


def sentence_of_text(
    text: str,
    spans: Sequence[Span],
    labels: Sequence[str] | None,
    document: int,
    source: str,
) -> Sentence:
    """Returns a plain text's words as a sentence."""
    words = [whole_characters(text[start:end]) for start, end in spans]
    return Sentence.of_words(
        words, labels, document=document, source=source, text=text, spans=spans
    )


_READERS: dict[str, Callable[..., Iterable[Sentence]]] = {
    "conll": _conll,
    "jsonl": _json_lines,
    "text": _plain_texts,
}
