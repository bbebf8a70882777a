"""Which inputs there are, and how they are cut into chunks for several cores."""

import dataclasses
import os
from collections.abc import Iterable, Iterator

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.text import blocks, sentences

FORMATS = ("auto", "text", "wikiextractor", "jsonl")

CHUNK_BYTES = 16 << 20

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileSource:
    """A file of text.

    Attributes:
        path: where it lies.
        input_format: "text", "wikiextractor" or "jsonl".
        text_field: of a jsonl file's objects.
    """

    path: str
    input_format: str
    text_field: str = "text"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetSource:
    """A split of a TensorFlow dataset, or a slice of one.

    Attributes:
        name: with configuration and version: "wikipedia/20230601.en:1.0.0".
        split: of which the chunks are slices: "train".
        begin: the first example that belongs to the source.
        end: the first one behind them.
        is_whole: whether these are all examples of the split.
        text_field: the feature that holds the text.
        data_dir: where prepared datasets lie; None for the library's own folder.
    """

    name: str
    split: str
    begin: int
    end: int
    is_whole: bool
    text_field: str = "text"
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
        """Of what identifies it: a version's examples never change."""
        return files.sha256(f"{self.path}:{self.num_examples}".encode())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece of a source, the work of one core; `readers.read_chunk` reads it.

    Attributes:
        source: what to read.
        start: in bytes of a file, or examples of a dataset's split. The documents that
            begin from here on belong to the chunk (see `blocks` for the exact border).
        stop: the documents that begin from here on belong to the next one; None where
            the source ends with the chunk.
        num_bytes: its size, for progress.
        language: by whose rules paragraphs are split into sentences; "" where each line
            is a sentence.
    """

    source: FileSource | DatasetSource
    start: int
    stop: int | None
    num_bytes: int
    language: str = ""


def find_sources(patterns: str, flag: str) -> list[str]:
    """The input files that comma-separated patterns name, in the patterns' order.

    A pattern is a file, a glob, or a folder, which stands for all files in it and in
    its folders, sorted by path, but for names that begin with "." or "_".
    """
    found: list[str] = []
    for pattern in patterns.split(","):
        # A name with brackets in it may be a file's own.
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
    """Cuts files into chunks, in order; the chunks depend on the arguments alone."""
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
    """The `Chunk.language` of a format: "" where its lines are not split."""
    if split_sentences is None:
        split_sentences = input_format != "text"
    if split_sentences and not language:
        raise ValueError("Splitting into sentences needs a `language`. Received: ''")
    return language if split_sentences else ""


def warn_of_foreign_rules(chunks: Iterable[Chunk]) -> None:
    """Says which languages are split by the rules of another one."""
    used = {chunk.language for chunk in chunks} - {*sentences.LANGUAGES, ""}
    for language in sorted(used):
        logging.warning(
            "There are no rules for splitting %r into sentences: those of a related "
            "language are used, or of English. There are rules for: %s.",
            language,
            " ".join(sentences.LANGUAGES),
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
    # Links to folders are followed, but not in circles.
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
