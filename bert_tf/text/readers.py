r"""Readers of text: a chunk of a source into lines and ends of documents.

text
    One sentence a line, or one paragraph if it is to be split; a blank line ends a
    document, and a line of white space alone is blank. The end of a file does not end
    a document: several files are one text, as in the original.
wikiextractor, jsonl, tfds
    Each <doc>, JSON object or example is a document; see the modules of these names.

All text is UTF-8. Lines of files end at \n, and a carriage return is dropped wherever
it stands, as TensorFlow's reader drops it for the original.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bert_tf.text import blocks, jsonl, tfds, wikiextractor
from bert_tf.text.sentences import sentence_splitter
from bert_tf.text.sources import Chunk, DatasetSource, FileSource

EMPTY_DOCUMENTS = "documents without text"

Splitter = Callable[[str], Sequence[str]]


class TextLine(NamedTuple):
    """A line of a source that holds text, or the end of a document.

    Attributes:
        sentences: the line's sentences, stripped; empty where a document ends.
        text: the line before it was split, stripped; "" where a document ends.
        num_bytes: of the source, read since the last TextLine. A reader reads many
            lines at once and says so with the first of them.
    """

    sentences: Sequence[str]
    text: str
    num_bytes: int


def read_chunk(chunk: Chunk, dropped: Counter[str]) -> Iterator[TextLine]:
    """Yields the lines of a chunk's documents."""
    split = sentence_splitter(chunk.language)
    if isinstance(chunk.source, FileSource) and chunk.source.input_format == "text":
        return _text_lines(chunk.source.path, chunk, split)
    return _document_lines(chunk, split, dropped)


def _is_blank(line: bytes) -> bool:
    # What is not UTF-8 is text here, and an error for the chunk that it belongs to.
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
        return tfds.read_documents(source, chunk.start, chunk.stop)
    if source.input_format == "wikiextractor":
        return wikiextractor.read_documents(
            source.path, chunk.start, chunk.stop, dropped
        )
    assert source.input_format == "jsonl"
    return jsonl.read_documents(
        source.path, chunk.start, chunk.stop, source.text_field, dropped
    )
