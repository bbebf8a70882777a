"""A corpus as ids on disk: chunks of text, tokenized once, each complete or absent.

Chunk i is the folder chunk-0000i of the work folder, made under a temporary name and
renamed when it is complete, so that a run that was killed goes on with those that are
there. In it, all little-endian:

    tokens                uint16 or int32, by the vocabulary's size
    sentence_stops        int64, where in `tokens` each sentence ends
    document_stops        int64, where in `sentence_stops` each document ends
    paragraph_stops       int64, likewise                  } only where repeated ones
    paragraph_digests     16 bytes each                    } are dropped
    document_digests      16 bytes each                    }
    chunk.json            `TokenizedChunk`
"""

import contextlib
import dataclasses
import functools
import json
import os
import shutil
from typing import IO

import numpy as np

from bert_tf import files, strict_json
from bert_tf.errors import InputError
from bert_tf.instances.pairs import token_dtype
from bert_tf.records.shards import file_errors
from bert_tf.text.documents import Chunk, read_chunk
from bert_tf.text.tokenized import (
    DOCUMENTS,
    NO_DEDUPLICATION,
    PARAGRAPHS,
    ChunkTokenizer,
    TokenizedPart,
)
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import PackedTokenizer, WordPieceTokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizeJob:
    """A piece of work: one chunk to tokenize.

    Attributes:
        index: the chunk's number.
        chunk: what to read.
        work_folder: where the result goes.
        vocab_file: the vocabulary.
        do_lower_case: as for the tokenizer.
        deduplicate: of what digests are needed: one of `tokenized.DEDUPLICATION`.
    """

    index: int
    chunk: Chunk
    work_folder: str
    vocab_file: str
    do_lower_case: bool
    deduplicate: str = NO_DEDUPLICATION

    @property
    def folder(self) -> str:
        """Where the result goes when it is complete."""
        return chunk_folder(self.work_folder, self.index)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizedChunk:
    """What there is of a tokenized chunk.

    Attributes:
        num_tokens: of all sentences.
        num_sentences: of all documents.
        num_paragraphs: of all documents; 0 unless they have digests.
        num_documents: none of them empty.
        begins_with_end: whether a document ends before the first sentence.
        ends_with_end: whether one ends after the last sentence.
        dropped: what was left out, by reason.
        longest_sentence: tokens of the longest one.
    """

    num_tokens: int
    num_sentences: int
    num_paragraphs: int
    num_documents: int
    begins_with_end: bool
    ends_with_end: bool
    dropped: dict[str, int]
    longest_sentence: int = 0


def chunk_folder(work_folder: str, index: int) -> str:
    """The folder of a tokenized chunk."""
    return os.path.join(work_folder, f"chunk-{index:05d}")


def read_summary(folder: str) -> TokenizedChunk:
    """What there is of the chunk in a folder."""
    return strict_json.read(TokenizedChunk, os.path.join(folder, "chunk.json"))


def _finished_chunk(folder: str) -> TokenizedChunk | None:
    """What there is of a chunk, unless it is absent or torn.

    Files that were written just before a machine lost its power may be empty.
    """
    if not os.path.exists(folder):
        return None
    try:
        summary = read_summary(folder)
        num_bytes = {
            name: os.path.getsize(os.path.join(folder, name))
            for name in ("tokens", "sentence_stops", "document_stops")
        }
    except (FileNotFoundError, InputError):
        num_bytes = {}
    if (
        num_bytes
        and num_bytes["tokens"] in (2 * summary.num_tokens, 4 * summary.num_tokens)
        and num_bytes["sentence_stops"] == 8 * summary.num_sentences
        and num_bytes["document_stops"] == 8 * summary.num_documents
    ):
        return summary
    shutil.rmtree(folder)
    return None


def tokenize_chunk(job: TokenizeJob) -> TokenizedChunk:
    """Tokenizes a chunk into its folder, unless it is there."""
    finished = _finished_chunk(job.folder)
    if finished is not None:
        return finished
    # By content: another run of this process may have used the same name.
    content = files.sha256(files.read_bytes(job.vocab_file))
    tokenizer, dtype = _packed_tokenizer(job.vocab_file, content, job.do_lower_case)
    chunk_tokenizer = ChunkTokenizer(
        tokenizer.encode,
        dtype,
        digest_paragraphs=job.deduplicate == PARAGRAPHS,
        digest_documents=job.deduplicate == DOCUMENTS,
    )
    counter = ChunkCounter(dtype)
    temporary = f"{job.folder}.tmp-{os.getpid()}"
    os.makedirs(temporary)
    try:
        with contextlib.ExitStack() as stack:
            writer = _ChunkWriter(temporary, counter, stack)
            lines = read_chunk(job.chunk, chunk_tokenizer.dropped)
            for part in chunk_tokenizer.parts(lines):
                with file_errors(temporary):
                    writer.write(part)
            with file_errors(temporary):
                stack.close()
        summary = counter.summary(chunk_tokenizer)
        with open(os.path.join(temporary, "chunk.json"), "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(summary), file)
        os.replace(temporary, job.folder)
    except BaseException:
        shutil.rmtree(temporary)
        raise
    return summary


@functools.lru_cache(maxsize=1)
def _packed_tokenizer(
    vocab_file: str, sha256: str, do_lower_case: bool
) -> tuple[PackedTokenizer, type[np.integer]]:
    """One tokenizer a process, so that its caches serve all chunks."""
    vocabulary = Vocabulary.from_file(vocab_file)
    dtype = token_dtype(len(vocabulary))
    tokenizer = WordPieceTokenizer(vocabulary, do_lower_case=do_lower_case)
    return PackedTokenizer(tokenizer, dtype), dtype


class ChunkCounter:
    """Counts what comes of a chunk, part by part."""

    def __init__(self, dtype: type[np.integer]) -> None:
        self._token_bytes = np.dtype(dtype).itemsize
        self.num_tokens = 0
        self.num_sentences = 0
        self.num_paragraphs = 0
        self.num_documents = 0
        self.longest_sentence = 0

    def add(self, part: TokenizedPart) -> None:
        """Counts a part."""
        self.num_tokens += len(part.tokens) // self._token_bytes
        self.num_sentences += len(part.sentence_lengths)
        self.num_paragraphs += len(part.paragraph_lengths)
        self.num_documents += len(part.document_lengths)
        self.longest_sentence = max(
            self.longest_sentence, max(part.sentence_lengths, default=0)
        )

    def summary(self, tokenizer: ChunkTokenizer) -> TokenizedChunk:
        """What there is of the chunk that the tokenizer has come to the end of."""
        return TokenizedChunk(
            num_tokens=self.num_tokens,
            num_sentences=self.num_sentences,
            num_paragraphs=self.num_paragraphs,
            num_documents=self.num_documents,
            begins_with_end=tokenizer.begins_with_end,
            ends_with_end=tokenizer.ends_with_end,
            dropped=dict(tokenizer.dropped),
            longest_sentence=self.longest_sentence,
        )


class _ChunkWriter:
    """Appends the parts of a chunk to its files."""

    def __init__(
        self, folder: str, counter: ChunkCounter, stack: contextlib.ExitStack
    ) -> None:
        self._folder = folder
        self._counter = counter
        self._stack = stack
        self._files: dict[str, IO[bytes]] = {}
        for name in ("tokens", "sentence_stops", "document_stops"):
            self._file(name)

    def write(self, part: TokenizedPart) -> None:
        """Appends a part."""
        # The stops count from the chunk's beginning.
        num_tokens, num_sentences = (
            self._counter.num_tokens,
            self._counter.num_sentences,
        )
        self._write_stops("sentence_stops", part.sentence_lengths, num_tokens)
        self._write_stops("document_stops", part.document_lengths, num_sentences)
        if part.paragraph_lengths:
            self._write_stops("paragraph_stops", part.paragraph_lengths, num_sentences)
        self._file("tokens").write(part.tokens)
        for name in ("paragraph_digests", "document_digests"):
            if getattr(part, name):
                self._file(name).write(getattr(part, name))
        self._counter.add(part)

    def _write_stops(self, name: str, lengths: object, offset: int) -> None:
        stops = np.cumsum(np.asarray(lengths, np.int64)) + offset
        self._file(name).write(stops.astype("<i8").tobytes())

    def _file(self, name: str) -> IO[bytes]:
        if name not in self._files:
            path = os.path.join(self._folder, name)
            self._files[name] = self._stack.enter_context(files.open_binary(path, "wb"))
        return self._files[name]


def load_array(folder: str, name: str, dtype: np.dtype | type) -> np.ndarray:
    """An array of a tokenized chunk; read where it is used, not at once.

    The file is open as long as the array or a part of it lives. An array without
    entries has no file.
    """
    path = os.path.join(folder, name)
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")
