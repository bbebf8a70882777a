r"""Readers of raw text: files into documents of tokenized sentences.

Plain text is UTF-8 with one sentence a line and a blank line between documents. Lines
end at \n; a carriage return is dropped wherever it stands, as TensorFlow's reader drops
it for the original. A line of white space alone is blank; one whose characters give no
token (control characters, say) is dropped, but is no blank line. The end of a file does
not end a document: several files are one text, as in the original.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from bert_tf import files
from bert_tf.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """The text of some files as token ids.

    Attributes:
        documents: ids by document and sentence; none of them is empty.
        num_sentences: sentences of all documents.
        num_tokens: tokens of all sentences.
        num_dropped_lines: lines that are not blank and gave no token.
        empty_files: files that gave no token.
    """

    documents: list[list[list[int]]]
    num_sentences: int
    num_tokens: int
    num_dropped_lines: int
    empty_files: tuple[str, ...]


def read_corpus(
    paths: Iterable[str],
    encode: Callable[[str], list[int]],
    progress: Callable[[int], object] = lambda _: None,
) -> Corpus:
    """Reads and tokenizes plain text.

    Args:
        paths: the files, in this order.
        encode: a text's token ids, such as `WordPieceTokenizer.encode`.
        progress: called with the bytes of each line after it was tokenized.

    Raises:
        InputError: no such file, or it is not UTF-8 (names the line).
    """
    documents: list[list[list[int]]] = [[]]
    empty_files = []
    num_tokens = num_dropped_lines = 0
    for path in paths:
        tokens_before = num_tokens
        for line, num_bytes in read_lines(path):
            text = line.strip()
            if text:
                ids = encode(text)
                if ids:
                    documents[-1].append(ids)
                    num_tokens += len(ids)
                else:
                    num_dropped_lines += 1
            elif documents[-1]:
                documents.append([])
            progress(num_bytes)
        if num_tokens == tokens_before:
            empty_files.append(path)
    if not documents[-1]:
        documents.pop()
    return Corpus(
        documents=documents,
        num_sentences=sum(map(len, documents)),
        num_tokens=num_tokens,
        num_dropped_lines=num_dropped_lines,
        empty_files=tuple(empty_files),
    )


def read_lines(path: str) -> Iterator[tuple[str, int]]:
    r"""Yields a text file's lines, each with its size in bytes.

    Raises:
        InputError: no such file, or it is not UTF-8 (names the line).
    """
    if not files.exists(path):
        raise InputError(f"No such input file: {path}")
    if files.is_folder(path):
        raise InputError(f"The input file is a folder, not a file: {path}")
    with files.open_binary(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path}:{number}: not UTF-8 (byte 0x{line[error.start]:02x}); "
                    "convert the file, e.g. with iconv -t utf-8."
                ) from error
            yield text.replace("\r", ""), len(line)
