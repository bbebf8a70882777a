r"""Readers of text: a chunk of a source into lines and ends of documents.

text
    One sentence a line, or one paragraph if it is to be split; a blank line ends a
    document, and a line of white space alone is blank. The end of a file does not end
    a document: several files are one text.

All text is UTF-8, lines end at \n, and a carriage return is dropped wherever it stands,
as TensorFlow's reader drops it for the original.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bert_tf.text import blocks
from bert_tf.text.sentences import sentence_splitter
from bert_tf.text.sources import Chunk, FileSource

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
    """Yields the lines of a chunk's documents.

    Args:
        chunk: of `sources.make_chunks`.
        dropped: counts what is left out, by its name.

    Raises:
        InputError: the source is not what its format asks for (names file and line).
    """
    split = sentence_splitter(chunk.language)
    assert isinstance(chunk.source, FileSource)
    yield from _read_text(chunk.source.path, chunk, split)


def _is_blank(line: bytes) -> bool:
    # What is not UTF-8 is text here, and an error for the chunk that it belongs to.
    return not line.decode("utf-8", "replace").strip()


_TEXT_BORDERS = blocks.Borders(is_at=_is_blank, is_after=True)


def _read_text(path: str, chunk: Chunk, split: Splitter) -> Iterator[TextLine]:
    for block in blocks.read_blocks(path, chunk.start, chunk.stop, _TEXT_BORDERS):
        num_bytes = block.num_bytes
        lines = blocks.decode(block, path).split("\n")
        if not lines[-1]:
            lines.pop()  # behind the last line feed there is no line
        for line in lines:
            text = line.strip()
            yield TextLine(split(text), text, num_bytes)
            num_bytes = 0
