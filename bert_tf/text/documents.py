"""Text files to documents: plain text, JSON lines, Parquet, two formats of wikis."""

import contextlib
import dataclasses
import html
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from absl import logging

from bert_tf.base import files, rows, unpacking
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.parallel import grouped
from bert_tf.text import blocks
from bert_tf.text.blocks import drop, find_encodings
from bert_tf.text.splitting import sentence_splitter

# wikiextractor's files: Wikipedia's articles as paragraphs of text.
#
#     <doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">
#     Anarchism
#
#     Anarchism is a political philosophy ...
#     </doc>
#
# Each doc is a document; blank lines in it end nothing. Only text passages are kept
# (Devlin et al. 2018, section 3.1), without the title line, headings ("Section::::")
# and list items ("BULLET::::", both of versions 2). Versions 3 write `&`, `<` and `>`
# as entities, which are decoded.

TITLE_LINES = "title lines"

# A title may contain quotation marks: wikiextractor does not escape them.
_TITLE = re.compile(r'\btitle="(.*)">$')
_LEFT_OUT = {"Section": "section headings", "BULLET": "list items"}
_LEFT_OUT_PREFIXES = tuple(f"{kind}::::" for kind in _LEFT_OUT)


def _is_header(line: bytes) -> bool:
    line = line.removeprefix(blocks.BYTE_ORDER_MARK)
    return line.startswith(b"<doc ") and b"id=" in line


def _article_border(line: bytes) -> int | None:
    return 0 if _is_header(line) else None


def read_wikiextractor(
    source: "FileSource", start: int, stop: int | None, dropped: Counter[str]
) -> Iterator[list[str]]:
    """Yields the paragraphs of each document."""
    paragraphs: list[str] | None = None  # of the document that is open
    title = None
    header_at = (0, 0)

    def unclosed() -> InputError:
        return InputError(
            f"{source.place(*header_at)}: this <doc ...> has no </doc>; the file may"
            " have been cut off: extract it again."
        )

    for block in source.read(start, stop, _article_border):
        for index, line in enumerate(source.lines(block, dropped)):
            text = line.strip()
            if not text:
                continue
            if text == "</doc>" and paragraphs is not None:
                yield paragraphs
                paragraphs = None
            elif text.startswith("<doc ") and _is_header(text.encode()):
                if paragraphs is not None:
                    raise unclosed()
                found = _TITLE.search(text)
                title = html.unescape(found.group(1)).strip() if found else None
                paragraphs, header_at = [], (block.offset, index)
            elif paragraphs is None:
                raise InputError(
                    f"{source.place(block.offset, index)}: text outside <doc ...> and"
                    " </doc>; if this is not a file of wikiextractor's, give"
                    " `input_format`."
                )
            elif not paragraphs and title and html.unescape(text) == title:
                title = None
                drop(dropped, TITLE_LINES, characters=len(text))
            elif text.startswith(_LEFT_OUT_PREFIXES):
                reason = _LEFT_OUT[text.partition("::::")[0]]
                drop(dropped, reason, characters=len(text))
            else:
                # The three entities that wikiextractor writes, in reverse order.
                for entity, character in (("gt", ">"), ("lt", "<"), ("amp", "&")):
                    text = text.replace(f"&{entity};", character)
                paragraphs.append(text)
    if paragraphs is not None:
        raise unclosed()


# JSON lines: one object per line, with a document's text in one of its fields, or in
# a field within one (body.text); the text's lines are its paragraphs. As
# `wikiextractor --json` of versions 2 begins the text with the title, a first paragraph
# that is the object's "title" is left out.

SURROGATES = "halves of surrogate pairs"


def read_json_lines(
    source: "FileSource", start: int, stop: int | None, dropped: Counter[str]
) -> Iterator[list[str]]:
    """Yields the paragraphs of each document; none where the text is null."""
    for block in source.read(start, stop, lambda line: 0):
        for index, line in enumerate(source.lines(block, dropped)):
            if not line.strip():
                continue
            try:
                values = rows.of_object(rows.parsed(line))
                text = _text_of(values, source.text_field)
            except InputError as error:
                place = source.place(block.offset, index)
                raise InputError(f"{place}: {error}") from error
            if "\\ud" in line or "\\uD" in line:
                num_halves = sum("\ud800" <= char <= "\udfff" for char in text)
                if num_halves:
                    dropped[SURROGATES] += num_halves
                text = whole_characters(text)
            paragraphs = paragraphs_of(text, source.clean, dropped)
            if paragraphs and paragraphs[0] == values.get("title"):
                drop(dropped, TITLE_LINES, characters=len(paragraphs.pop(0)))
            yield paragraphs


# Parquet: each row is a document; its text is a column's, or a field's within one. A
# chunk's positions are numbers of groups of rows.


def read_parquet(
    source: "FileSource", start: int, stop: int | None, dropped: Counter[str]
) -> Iterator[list[str]]:
    """Yields the paragraphs of each document; none where the text is null."""
    for number, row in rows.parquet_rows(source.path, source.text_field, start, stop):
        text = rows.field(row, source.text_field)
        if not isinstance(text, str | None):
            raise InputError(
                f"{source.path}:{number}: its column {source.text_field!r} must be"
                f" text. Received: {type(text).__name__}."
            )
        yield paragraphs_of(text or "", source.clean, dropped)


def paragraphs_of(text: str, clean: str, dropped: Counter[str]) -> list[str]:
    """The lines of a text, stripped, without the blank ones; or as `clean` says."""
    if clean == PDF:
        return addon("pdf").paragraphs_of_pdf(text, dropped)
    stripped = [line.strip() for line in text.split("\n")]
    return [line for line in stripped if line]


def _text_of(values: Mapping[str, Any], text_field: str) -> str:
    text = rows.field(values, text_field)
    if text is None and not rows.has_field(values, text_field):
        raise InputError(
            f"it has no field {text_field!r}; `text_field` names one of its own: "
            f"{', '.join(values)}."
        )
    if not isinstance(text, str | None):
        raise InputError(
            f"its field {text_field!r} must be text. Received: {type(text).__name__}."
        )
    return text or ""


def whole_characters(text: str) -> str:
    """Text that UTF-8 can encode."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


CHUNK_BYTES = 16 << 20

# What makes paragraphs of a document's text. Of plain text, a file is a document then.
NO_CLEANING = "none"
PDF = "pdf"
CLEANING = (NO_CLEANING, PDF)

PARQUET = rows.PARQUET
MEDIAWIKI = "mediawiki"
PARAGRAPH_FORMATS = ("wikiextractor", MEDIAWIKI)
FORMATS = ("text", *PARAGRAPH_FORMATS, "jsonl", PARQUET)

_PARQUET_BEGINNING = re.compile(rb"PAR1[\0-\x08\x0e-\x1f]")
_DELIMITER = re.compile(rb"[,;|\t]")
_AS_TEXT = (
    "Save its text as a text file, or its table as Parquet or JSON lines, of which"
    " `text_field` names the column."
)


class Source(Protocol):
    """What texts are read from: a file, or a part of a TensorFlow dataset."""

    @property
    def path(self) -> str:
        """What identifies it."""

    @property
    def input_format(self) -> str:
        """How it is read."""

    @property
    def text_field(self) -> str:
        """Where its documents have their text."""

    @property
    def encoding(self) -> str:
        """The encoding of its text."""

    @property
    def clean(self) -> str:
        """One of `CLEANING`."""

    @property
    def begin(self) -> int:
        """The start of its first chunk."""

    def documents(
        self, start: int, stop: int | None, dropped: Counter[str]
    ) -> Iterator[list[str]]:
        """Yields the paragraphs of each document of a chunk."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileSource:
    """A text file."""

    path: str
    input_format: str  # one of `FORMATS`
    text_field: str = "text"  # of a jsonl file's objects, or of a Parquet file's rows
    encoding: str = blocks.UTF_8
    clean: str = NO_CLEANING
    begin: ClassVar[int] = 0

    def read(
        self, start: int, stop: int | None, border: blocks.Border
    ) -> Iterator[blocks.Block]:
        """Yields the lines of a chunk."""
        return blocks.read_blocks(self.path, start, stop, border, self.encoding)

    def lines(
        self, block: blocks.Block, dropped: Counter[str], keep_mark: bool = False
    ) -> list[str]:
        """The lines of a block; see `blocks.lines`."""
        remedy = "`encoding=auto` finds what it is. "
        return blocks.lines(block, self.path, keep_mark, dropped, remedy)

    def place(self, offset: int, index: int) -> str:
        """File and number of a line, counted from one with a given byte."""
        number = blocks.line_number(self.path, offset, self.encoding)
        return f"{self.path}:{number + index}"

    def documents(
        self, start: int, stop: int | None, dropped: Counter[str]
    ) -> Iterator[list[str]]:
        """Yields the paragraphs of each document; not of plain text as it is."""
        if self.input_format == "wikiextractor":
            return read_wikiextractor(self, start, stop, dropped)
        if self.input_format == MEDIAWIKI:
            return addon("mediawiki").read_mediawiki(self, start, stop, dropped)
        if self.input_format == "jsonl":
            return read_json_lines(self, start, stop, dropped)
        if self.input_format == PARQUET:
            return read_parquet(self, start, stop, dropped)
        assert self.input_format == "text" and self.clean != NO_CLEANING
        return self._whole_file(dropped)

    def _whole_file(self, dropped: Counter[str]) -> Iterator[list[str]]:
        lines: list[str] = []
        for block in self.read(0, None, lambda line: 0):
            lines += self.lines(block, dropped)
        yield paragraphs_of("\n".join(lines), self.clean, dropped)

    @property
    def has_sentences(self) -> bool:
        """Whether its lines are sentences, unless the user says otherwise."""
        return self.input_format == "text" and self.clean == NO_CLEANING


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece of a source, the work of one core; see `read_chunk`."""

    source: Source
    # In bytes of a file, groups of rows, or examples of a split: the documents that
    # begin from `start` on and before `stop`; None where the source ends with it.
    start: int
    stop: int | None
    num_bytes: int  # its size, for progress
    # By whose rules paragraphs are split into sentences; "" where each line is a
    # sentence.
    language: str = ""


def find_sources(patterns: str, flag: str) -> list[str]:
    """The input files that comma-separated patterns name, in the patterns' order."""
    found: list[str] = []
    for pattern in files.split_paths(patterns):
        matches = [
            path
            for name in files.expand_globs([pattern], flag)
            for path in (sorted(_walk(name)) if files.is_folder(name) else [name])
        ]
        if not matches:
            raise InputError(f"`{flag}`: there is no file in the folder {pattern!r}.")
        found.extend(matches)
    return found


def make_chunks(
    paths: Iterable[str],
    *,
    input_format: str = "auto",
    text_field: str = "text",
    split_sentences: bool | None = None,
    language: str = "en",
    encoding: str = blocks.UTF_8,
    clean: str = NO_CLEANING,
    chunk_bytes: int = CHUNK_BYTES,
    num_workers: int = 1,
) -> list[Chunk]:
    """Cuts files into chunks, in order, depending only on the arguments."""
    paths = list(paths)
    for path in paths:
        if not files.exists(path):
            raise InputError(f"No such input file: {path}")
        if not files.can_be_read_again(path):
            raise InputError(
                f"The input file is a pipe or a device, which cannot be read twice:"
                f" {path}. Write it to a file first."
            )
    chunks: list[Chunk] = []
    extracted: list[str] = []
    encodings = find_encodings(paths, encoding, num_workers)
    for path, name in zip(paths, encodings, strict=True):
        found = input_format
        if found == "auto":
            found, begin = find_format(path, name)
            is_as_it_is = found == "text" and clean == NO_CLEANING
            if (
                is_as_it_is
                and b"\0" not in begin
                and addon("pdf").looks_extracted(begin)
            ):
                extracted.append(path)
        if found in PARAGRAPH_FORMATS and clean != NO_CLEANING:
            raise InputError(
                f"{path}: `clean={clean}` is for text extracted from other files;"
                f" those of {found} have paragraphs. Leave it out."
            )
        if found == MEDIAWIKI:
            addon("mediawiki").require_parser()
        source = FileSource(
            path=path,
            input_format=found,
            text_field=text_field,
            encoding=name,
            clean=clean,
        )
        of_chunks = _cut_parquet if found == PARQUET else _cut
        for start, stop, num_bytes in of_chunks(source, chunk_bytes):
            chunk = Chunk(
                source=source,
                start=start,
                stop=stop,
                num_bytes=num_bytes,
                language=splitting_language(
                    source.has_sentences, split_sentences, language
                ),
            )
            chunks.append(chunk)
    if extracted:
        logging.warning(
            "%s%s: form feeds, or many lines that end in hyphens, as in text of PDF"
            " files. If it is, `clean=pdf` joins lines and words, and leaves page"
            " numbers out.",
            *(
                extracted[0],
                f" and {more} more" if (more := len(extracted) - 1) else "",
            ),
        )
    return chunks


# The positions where a chunk starts and stops, and its bytes.
_Cuts = Iterator[tuple[int, int | None, int]]


def _cut(source: FileSource, chunk_bytes: int) -> _Cuts:
    num_bytes = files.size(source.path)
    is_one = source.input_format == "text" and source.clean != NO_CLEANING
    can_be_cut = not is_one and blocks.can_be_cut(source.path, source.encoding)
    step = chunk_bytes if can_be_cut else num_bytes
    for start in range(0, num_bytes, step) if num_bytes else [0]:
        stop = start + step if start + step < num_bytes else None
        yield start, stop, min(step, num_bytes - start)


def _cut_parquet(source: FileSource, chunk_bytes: int) -> _Cuts:
    sizes = _group_bytes(source.path, source.text_field)
    start = 0
    for some in grouped(sizes, chunk_bytes, lambda size: size):
        yield start, start + len(some), sum(some)
        start += len(some)
    if not sizes:
        yield 0, None, 0


def _group_bytes(path: str, column: str) -> list[int]:
    """The bytes of each group of rows; refuses a column that is not there."""
    with rows.parquet_file(path) as file:
        columns = [file.schema.column(n) for n in range(len(file.schema))]
        names = [one.path for one in columns if not one.max_repetition_level]
        if column not in names:
            problem = f"it has no column {column!r}"
            if any(
                one.path.startswith(f"{column}.") and one.max_repetition_level
                for one in columns
            ):
                problem = f"its column {column!r} has lists, not text"
            remedy = "write its text as a column"
            if names:
                remedy = f"`text_field` names one of its own: {', '.join(names)}"
            raise InputError(f"{path}: {problem}; {remedy}.")
        if names.count(column) > 1:
            raise InputError(f"{path}: it has several columns {column!r}. Rename them.")
        return [
            file.metadata.row_group(number).total_byte_size
            for number in range(file.num_row_groups)
        ]


def find_format(path: str, encoding: str = blocks.UTF_8) -> tuple[str, bytes]:
    """A file's format, by its name, then by its first line that is not blank.

    And the beginning that was read.
    """
    by_name = rows.format_of(path, "")
    if by_name in rows.OBJECTS:
        return by_name, b""
    first = next(blocks.read_blocks(path, encoding=encoding), None)
    begin = first.data.removeprefix(blocks.BYTE_ORDER_MARK).lstrip() if first else b""
    if _PARQUET_BEGINNING.match(begin) and not unpacking.compression(path):
        return PARQUET, begin
    if addon("mediawiki").is_dump(begin):
        return MEDIAWIKI, begin
    first_line = begin.partition(b"\n")[0]
    if _is_header(first_line):
        return "wikiextractor", begin
    if _is_json_object(first_line):
        return "jsonl", begin
    message = files.no_text(begin, path, _AS_TEXT)
    if by_name and _DELIMITER.search(first_line):
        message = f"{path}: a table, whose lines are no text. {_AS_TEXT}"
    if message:
        raise InputError(f"{message} (`input_format=text` reads it as it is.)")
    return "text", begin


def _is_json_object(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return False
    with contextlib.suppress(ValueError, RecursionError):
        return bool(values := json.loads(line)) and isinstance(values, dict)
    return False


def splitting_language(
    has_sentences: bool, split_sentences: bool | None, language: str
) -> str:
    """The `Chunk.language` of a source: "" if its lines are not split."""
    is_split = not has_sentences if split_sentences is None else split_sentences
    return language if is_split else ""


def _walk(folder: str, within: tuple[str, ...] = ()) -> Iterator[str]:
    if files.is_remote(folder):
        import tensorflow as tf

        for parent, folders, names in tf.io.gfile.walk(folder):
            folders[:] = filter(_is_visible, folders)
            yield from (
                os.path.join(parent, name) for name in names if _is_visible(name)
            )
        return
    # Links to folders are followed, but not in cycles. Unlike os.walk, this fails if a
    # folder cannot be read.
    within = (*within, os.path.realpath(folder))
    for entry in os.scandir(folder):
        if not _is_visible(entry.name):
            continue
        if not entry.is_dir():
            yield entry.path
        elif os.path.realpath(entry.path) not in within:
            yield from _walk(entry.path, within)


def _is_visible(name: str) -> bool:
    return not name.startswith((".", "_"))


# A chunk of a source into lines and ends of documents:
#
# text
#     One sentence per line, or one paragraph if it is to be split; a blank line ends a
#     document. The end of a file does not end a document: several files are one text,
#     as in the original. With `clean`, each file is a document of paragraphs instead.
# wikiextractor, mediawiki, jsonl, parquet, tfds
#     Each <doc>, article, JSON object, row or example is a document.
#
# Lines of files end at \n, and carriage returns are dropped
# everywhere, as TensorFlow's reader does for the original.

EMPTY_DOCUMENTS = "documents without text"

Splitter = Callable[[str], Sequence[str]]


class TextLine(NamedTuple):
    """A line of a source that holds text, or the end of a document."""

    # The line's sentences, stripped; empty at a document's end.
    sentences: Sequence[str]
    text: str  # the line before it was split, stripped; "" where a document ends


def read_chunk(chunk: Chunk, dropped: Counter[str]) -> Iterator[TextLine]:
    """Yields the lines of a chunk's documents."""
    split = sentence_splitter(chunk.language)
    if isinstance(chunk.source, FileSource) and chunk.source.has_sentences:
        return _text_lines(chunk.source, chunk, split, dropped)
    return _document_lines(chunk, split, dropped)


def _text_border(line: bytes) -> int | None:
    # Invalid UTF-8 is text here, and an error for the chunk that it belongs to.
    return None if line.decode("utf-8", "replace").strip() else len(line)


def _text_lines(
    source: FileSource, chunk: Chunk, split: Splitter, dropped: Counter[str]
) -> Iterator[TextLine]:
    for block in source.read(chunk.start, chunk.stop, _text_border):
        for line in source.lines(block, dropped, keep_mark=True):
            text = line.strip()
            yield TextLine(split(text), text)


def _document_lines(
    chunk: Chunk, split: Splitter, dropped: Counter[str]
) -> Iterator[TextLine]:
    if chunk.start == chunk.source.begin:
        yield TextLine((), "")  # of plain text that was read before
    for paragraphs in chunk.source.documents(chunk.start, chunk.stop, dropped):
        if not paragraphs:
            dropped[EMPTY_DOCUMENTS] += 1
            continue
        for paragraph in paragraphs:
            yield TextLine(split(paragraph), paragraph)
        yield TextLine((), "")
