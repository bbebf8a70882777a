"""Text files to documents: plain text, JSON lines, WikiExtractor's folders."""

import dataclasses
import html
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.text import blocks

# Paragraphs into sentences, by the rules of a language.
#
# The splitter is `sentencex` (Wikimedia's): rules for abbreviations, numbers,
# quotations and lists in some thirty languages. For other languages that it knows it
# uses the rules of a related one, for any other code the English ones.


# The languages with their own rules in sentencex 1.0.
LANGUAGES = (
    *("am", "ar", "bg", "bn", "ca", "da", "de", "el", "en", "es", "fi", "fr", "gu"),
    *("hi", "hy", "it", "ja", "kk", "kn", "ml", "mr", "my", "nl", "pa", "pl", "pt"),
    *("ru", "sk", "ta", "te", "uk"),
)

# At "B\u00a0.", sentencex (1.0.32) cuts the space's bytes in two and panics.
_WIDE_SPACE_BEFORE_PERIOD = re.compile(r"[^\S\x00-\x7f](?=\.)")


def sentence_splitter(language: str) -> Callable[[str], Sequence[str]]:
    """A function from a paragraph to its sentences.

    Sentences are stripped, and none is empty; nothing but white space between them is
    lost.
    """
    if not language:
        return _as_one
    import sentencex

    segment = sentencex.segment

    def split(paragraph: str) -> Sequence[str]:
        if not paragraph.isascii():
            paragraph = _WIDE_SPACE_BEFORE_PERIOD.sub(" ", paragraph)
        stripped = [sentence.strip() for sentence in segment(language, paragraph)]
        return [sentence for sentence in stripped if sentence]

    return split


def _as_one(paragraph: str) -> Sequence[str]:
    return (paragraph,) if paragraph else ()


# wikiextractor's files: Wikipedia's articles as paragraphs of text.
#
#     <doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">
#     Anarchism
#
#     Anarchism is a political philosophy ...
#
#     </doc>
#
# Each doc is a document; blank lines in it end nothing. Only text passages of the
# articles are kept (Devlin et al. 2018, section 3.1): the title line, headings
# ("Section::::") and list items ("BULLET::::", both written by versions 2) are left
# out. Versions 3 write `&`, `<` and `>` as entities, which are decoded.


TITLE_LINES = "title lines"

# A title may contain quotation marks: wikiextractor does not escape them.
_TITLE = re.compile(r'\btitle="(.*)">$')
_LEFT_OUT = {"Section": "section headings", "BULLET": "list items"}
_LEFT_OUT_PREFIXES = tuple(f"{kind}::::" for kind in _LEFT_OUT)


def is_header(line: bytes) -> bool:
    """Whether a line begins a document."""
    return line.startswith(b"<doc ") and b"id=" in line


_ARTICLE_BORDERS = blocks.Borders(
    is_at=lambda line: is_header(line.removeprefix(blocks.BYTE_ORDER_MARK)),
    is_after=False,
)


def read_wikiextractor(
    path: str, start: int, stop: int | None, dropped: Counter[str]
) -> Iterator[tuple[list[str], int]]:
    """Yields the paragraphs of each document, and the bytes read since the last one."""
    paragraphs: list[str] | None = None  # of the document that is open
    title = header_at = None
    num_bytes = 0
    for block in blocks.read_blocks(path, start, stop, _ARTICLE_BORDERS):
        num_bytes += block.num_bytes
        for index, line in enumerate(blocks.lines(block, path, keep_mark=False)):
            text = line.strip()
            if not text:
                continue
            if text == "</doc>" and paragraphs is not None:
                yield paragraphs, num_bytes
                paragraphs, num_bytes = None, 0
            elif text.startswith("<doc ") and is_header(text.encode()):
                if header_at is not None and paragraphs is not None:
                    raise _unclosed(path, *header_at)
                found = _TITLE.search(text)
                title = html.unescape(found.group(1)).strip() if found else None
                paragraphs, header_at = [], (block.offset, index)
            elif paragraphs is None:
                number = blocks.line_number(path, block.offset) + index
                raise InputError(
                    f"{path}:{number}: text outside <doc ...> and </doc>; if this is "
                    "not a file of wikiextractor's, give --input_format."
                )
            elif not paragraphs and title and html.unescape(text) == title:
                title = None
                dropped[TITLE_LINES] += 1
            elif text.startswith(_LEFT_OUT_PREFIXES):
                dropped[_LEFT_OUT[text.partition("::::")[0]]] += 1
            else:
                paragraphs.append(_without_entities(text) if "&" in text else text)
    if header_at is not None and paragraphs is not None:
        raise _unclosed(path, *header_at)


def _unclosed(path: str, offset: int, index: int) -> InputError:
    number = blocks.line_number(path, offset) + index
    return InputError(
        f"{path}:{number}: this <doc ...> has no </doc>; the file may have been cut "
        "off: extract it again."
    )


def _without_entities(text: str) -> str:
    # The three that wikiextractor writes, in reverse order.
    return text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")


# JSON lines: one object per line, with a document's text in one of its fields.
#
#     {"title": "Anarchism", "text": "Anarchism is a political philosophy ...\n..."}
#
# The text's lines are its paragraphs. So are the files that `wikiextractor --json`
# writes; as its versions 2 begin the text with the title, a first paragraph that is the
# object's "title" is left out. Blank lines between objects mean nothing.


SURROGATES = "halves of surrogate pairs"

_BORDERS = blocks.Borders(is_at=lambda _: True, is_after=False)


def read_json_lines(
    path: str, start: int, stop: int | None, text_field: str, dropped: Counter[str]
) -> Iterator[tuple[list[str], int]]:
    """Yields the paragraphs of each document, and the bytes read since the last one."""
    num_bytes = 0
    for block in blocks.read_blocks(path, start, stop, _BORDERS):
        num_bytes += block.num_bytes
        for index, line in enumerate(blocks.lines(block, path, keep_mark=False)):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
                text = _text_of(values, text_field)
            except (ValueError, RecursionError) as error:
                number = blocks.line_number(path, block.offset) + index
                raise InputError(f"{path}:{number}: {_reason(error)}") from error
            if "\\ud" in line or "\\uD" in line:
                text = _without_surrogates(text, dropped)
            paragraphs = paragraphs_of(text)
            if paragraphs and paragraphs[0] == values.get("title"):
                del paragraphs[0]
                dropped[TITLE_LINES] += 1
            yield paragraphs, num_bytes
            num_bytes = 0


def paragraphs_of(text: str) -> list[str]:
    """The lines of a text, stripped, without the blank ones."""
    stripped = [line.strip() for line in text.split("\n")]
    return [line for line in stripped if line]


def _text_of(values: Any, text_field: str) -> str:
    if not isinstance(values, dict):
        raise ValueError(f"it must be a JSON object. Found: {type(values).__name__}")
    if text_field not in values:
        raise ValueError(
            f"it has no field {text_field!r}; --text_field names one of its own: "
            f"{', '.join(values)}"
        )
    text = values[text_field]
    if not isinstance(text, str):
        raise ValueError(
            f"its field {text_field!r} must be text. Found: {type(text).__name__}"
        )
    return text


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it must be one JSON object on one line: {error.msg}."
    return f"{error}."


def _without_surrogates(text: str, dropped: Counter[str]) -> str:
    """`whole_characters`, and counts the halves that were replaced."""
    num_halves = sum("\ud800" <= character <= "\udfff" for character in text)
    if not num_halves:
        return text
    dropped[SURROGATES] += num_halves
    return whole_characters(text)


def whole_characters(text: str) -> str:
    """Text that UTF-8 can encode.

    JSON can escape surrogates: a pair of them is one character, and a lone one
    becomes U+FFFD.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


FORMATS = ("auto", "text", "wikiextractor", "jsonl")

CHUNK_BYTES = 16 << 20

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileSource:
    """A text file."""

    path: str
    input_format: str  # "text", "wikiextractor" or "jsonl"
    text_field: str = "text"  # of a jsonl file's objects


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetSource:
    """A split of a TensorFlow dataset, or a slice of one."""

    name: str  # with configuration and version: "wikipedia/20230601.en:1.0.0"
    split: str  # of which the chunks are slices: "train"
    begin: int  # the first example that belongs to the source
    end: int  # the first one behind them
    is_whole: bool  # whether these are all examples of the split
    text_field: str = "text"  # the feature that holds the text
    # The folder of prepared datasets; None for the library's own.
    data_dir: str | None = None
    input_format: str = dataclasses.field(default="tfds", init=False)

    @property
    def path(self) -> str:
        """What identifies the source, as a path identifies a file."""
        part = "" if self.is_whole else f"[{self.begin}:{self.end}]"
        return f"tfds:{self.name}:{self.split}{part}"

    @property
    def num_examples(self) -> int:
        """The documents of the source."""
        return self.end - self.begin

    @property
    def sha256(self) -> str:
        """A digest of its identity: a version's examples never change."""
        return files.sha256(f"{self.path}:{self.num_examples}".encode())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece of a source, the work of one core; see `read_chunk`."""

    source: FileSource | DatasetSource  # what to read
    # In bytes of a file, or examples of a dataset's split. The documents that begin
    # In bytes of a file, or examples of a dataset's split. Documents that begin
    start: int
    # The documents that begin from here on belong to the next one; None where the
    # source ends with the chunk.
    stop: int | None
    num_bytes: int  # its size, for progress
    # By whose rules paragraphs are split into sentences; "" where each line is a
    # sentence.
    language: str = ""


def find_sources(patterns: str, flag: str) -> list[str]:
    """The input files that comma-separated patterns name, in the patterns' order.

    A pattern is a file, a glob, or a folder, which stands for all files in it and in
    its subfolders, sorted by path, except names that begin with "." or "_".
    """
    found: list[str] = []
    for pattern in patterns.split(","):
        # A name with brackets may be that of a file.
        names = [pattern] if files.exists(pattern) else files.glob(pattern)
        matches = [
            path
            for name in names
            for path in (_files_in(name) if files.is_folder(name) else [name])
        ]
        if not matches:
            raise InputError(
                f"--{flag}: there is no file in the folder {pattern!r}."
                if names
                else f"--{flag}: no file matches {pattern!r}."
            )
        found.extend(matches)
    return found


def make_chunks(
    paths: Iterable[str],
    *,
    input_format: str = "auto",
    text_field: str = "text",
    split_sentences: bool | None = None,
    language: str = "en",
    chunk_bytes: int = CHUNK_BYTES,
    whole_files: bool = False,
) -> list[Chunk]:
    """Cuts files into chunks, in order, depending only on the arguments."""
    if input_format not in FORMATS:
        raise ValueError(
            f"`input_format` must be one of {', '.join(FORMATS)}. Received: "
            f"{input_format!r}"
        )
    if chunk_bytes < 1:
        raise ValueError(f"`chunk_bytes` must be at least 1. Received: {chunk_bytes}")
    chunks: list[Chunk] = []
    for path in paths:
        if not files.exists(path):
            raise InputError(f"No such input file: {path}")
        if files.is_folder(path):
            raise InputError(f"The input file is a folder, not a file: {path}")
        if not files.is_remote(path) and not os.path.isfile(path):
            raise InputError(
                f"The input file is a pipe or a device, which cannot be read twice:"
                f" {path}. Write it to a file first."
            )
        source = FileSource(
            path=path,
            input_format=find_format(path) if input_format == "auto" else input_format,
            text_field=text_field,
        )
        num_bytes = blocks.size(path)
        step = num_bytes if whole_files or blocks.compression(path) else chunk_bytes
        starts = range(0, num_bytes, step) if num_bytes else [0]
        chunks.extend(
            Chunk(
                source=source,
                start=start,
                stop=start + step if start + step < num_bytes else None,
                num_bytes=min(step, num_bytes - start),
                language=splitting_language(
                    source.input_format, split_sentences, language
                ),
            )
            for start in starts
        )
    warn_of_foreign_rules(chunks)
    return chunks


def find_format(path: str) -> str:
    """A file's format, by its name, then by its first line that is not blank."""
    name = path.removesuffix(blocks.compression(path))
    if name.endswith(_JSON_SUFFIXES):
        return "jsonl"
    first = next(blocks.read_blocks(path), None)
    begin = first.data.removeprefix(blocks.BYTE_ORDER_MARK).lstrip() if first else b""
    line = begin.partition(b"\n")[0]
    if line.startswith(b"<doc ") and b"id=" in line:
        return "wikiextractor"
    return "text"


def splitting_language(
    input_format: str, split_sentences: bool | None, language: str
) -> str:
    """The `Chunk.language` of a format: "" if its lines are not split."""
    if split_sentences is None:
        split_sentences = input_format != "text"
    if split_sentences and not language:
        raise ValueError("Splitting into sentences needs a `language`. Received: ''")
    return language if split_sentences else ""


def warn_of_foreign_rules(chunks: Iterable[Chunk]) -> None:
    """Logs which languages are split by the rules of another one."""
    used = {chunk.language for chunk in chunks} - {*LANGUAGES, ""}
    for language in sorted(used):
        logging.warning(
            "There are no rules for splitting %r into sentences: those of a related "
            "language are used, or of English. There are rules for: %s.",
            language,
            " ".join(LANGUAGES),
        )


def _files_in(folder: str) -> list[str]:
    return sorted(_walk(folder, ()))


def _walk(folder: str, within: tuple[str, ...]) -> Iterator[str]:
    if files.is_remote(folder):
        import tensorflow as tf

        for parent, folders, names in tf.io.gfile.walk(folder):
            folders[:] = [name for name in folders if _is_visible(name)]
            yield from (
                os.path.join(parent, name) for name in names if _is_visible(name)
            )
        return
    # Links to folders are followed, but not in cycles.
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


# Readers of text: a chunk of a source into lines and ends of documents.
#
# text
#     One sentence per line, or one paragraph if it is to be split; a blank line ends a
#     document, and a line of white space alone is blank. The end of a file does not end
#     a document: several files are one text, as in the original.
# wikiextractor, jsonl, tfds
#     Each <doc>, JSON object or example is a document.
#
# All text is UTF-8. Lines of files end at \n, and carriage returns are dropped
# everywhere, as TensorFlow's reader does for the original.


EMPTY_DOCUMENTS = "documents without text"

Splitter = Callable[[str], Sequence[str]]


class TextLine(NamedTuple):
    """A line of a source that holds text, or the end of a document."""

    # The line's sentences, stripped; empty at a document's end.
    sentences: Sequence[str]
    text: str  # the line before it was split, stripped; "" where a document ends
    # Of the source, read since the last TextLine. A reader reads many lines at once and
    # reports that with the first of them.
    num_bytes: int


def read_chunk(chunk: Chunk, dropped: Counter[str]) -> Iterator[TextLine]:
    """Yields the lines of a chunk's documents."""
    split = sentence_splitter(chunk.language)
    if isinstance(chunk.source, FileSource) and chunk.source.input_format == "text":
        return _text_lines(chunk.source.path, chunk, split)
    return _document_lines(chunk, split, dropped)


def _is_blank(line: bytes) -> bool:
    # Invalid UTF-8 is text here, and an error for the chunk that it belongs to.
    return not line.decode("utf-8", "replace").strip()


_TEXT_BORDERS = blocks.Borders(is_at=_is_blank, is_after=True)


def _text_lines(path: str, chunk: Chunk, split: Splitter) -> Iterator[TextLine]:
    for block in blocks.read_blocks(path, chunk.start, chunk.stop, _TEXT_BORDERS):
        num_bytes = block.num_bytes
        for line in blocks.lines(block, path):
            text = line.strip()
            yield TextLine(split(text), text, num_bytes)
            num_bytes = 0


def _document_lines(
    chunk: Chunk, split: Splitter, dropped: Counter[str]
) -> Iterator[TextLine]:
    begin = chunk.source.begin if isinstance(chunk.source, DatasetSource) else 0
    if chunk.start == begin:
        yield TextLine((), "", 0)  # of plain text that was read before
    num_bytes = 0
    for paragraphs, document_bytes in _documents(chunk, dropped):
        num_bytes += document_bytes
        if not paragraphs:
            dropped[EMPTY_DOCUMENTS] += 1
            continue
        for paragraph in paragraphs:
            yield TextLine(split(paragraph), paragraph, num_bytes)
            num_bytes = 0
        yield TextLine((), "", 0)


def _documents(chunk: Chunk, dropped: Counter[str]) -> Iterator[tuple[list[str], int]]:
    source = chunk.source
    if isinstance(source, DatasetSource):
        from bert_tf.text import tfds  # which reads `Chunk` from here

        return tfds.read_documents(source, chunk.start, chunk.stop)
    if source.input_format == "wikiextractor":
        return read_wikiextractor(source.path, chunk.start, chunk.stop, dropped)
    assert source.input_format == "jsonl"
    return read_json_lines(
        source.path, chunk.start, chunk.stop, source.text_field, dropped
    )
