"""Text to token ids on disk, in chunks that several processes make."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import stat
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np
from absl import logging

from bert_tf import files, strict_json
from bert_tf.errors import InputError
from bert_tf.instances.pairs import Documents, starts, token_dtype
from bert_tf.records.writing import file_errors
from bert_tf.text.documents import Chunk, TextLine, read_chunk
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import PackedTokenizer, WordPieceTokenizer

# Which exact repetitions are dropped.
NO_DEDUPLICATION = "none"
DOCUMENTS = "documents"
PARAGRAPHS = "paragraphs"
DEDUPLICATION = (NO_DEDUPLICATION, DOCUMENTS, PARAGRAPHS)

# 128 bits: two different texts do not have the same digest.
DIGEST_BYTES = 16

NO_TOKEN = "sentences without a token (control characters, say)"


class TokenizedPart:
    """Some documents of a chunk, one after another.

    Attributes:
        tokens: packed ids of all sentences.
        sentence_lengths: tokens of each sentence; none is 0.
        paragraph_lengths: sentences of each paragraph; none is 0.
        document_lengths: sentences of each document; none is 0.
        paragraph_digests: of each paragraph's text; empty unless requested.
        document_digests: of each document's text; empty unless requested.
    """

    def __init__(self) -> None:
        self.tokens = bytearray()
        self.sentence_lengths = array("i")
        self.paragraph_lengths = array("i")
        self.document_lengths = array("i")
        self.paragraph_digests = bytearray()
        self.document_digests = bytearray()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizedChunk:
    """The counts of a tokenized chunk."""

    num_tokens: int  # of all sentences
    num_sentences: int  # of all documents
    num_paragraphs: int  # of all documents; 0 unless they have digests
    num_documents: int  # none of them empty
    begins_with_end: bool  # whether a document ends before the first sentence
    ends_with_end: bool  # whether one ends after the last sentence
    dropped: dict[str, int]  # what was left out, by reason
    longest_sentence: int = 0  # tokens of the longest one


@functools.lru_cache(maxsize=1)
def _packed_tokenizer(vocabulary: Vocabulary, do_lower_case: bool) -> PackedTokenizer:
    """One tokenizer per process, so that its caches serve all chunks."""
    tokenizer = WordPieceTokenizer(vocabulary, do_lower_case=do_lower_case)
    return PackedTokenizer(tokenizer, token_dtype(len(vocabulary)))


class ChunkTokenizer:
    """Tokenizes the lines of one chunk, part by part, and counts them."""

    def __init__(
        self, vocabulary: Vocabulary, do_lower_case: bool, deduplicate: str
    ) -> None:
        self.dtype = token_dtype(len(vocabulary))
        self._encode = _packed_tokenizer(vocabulary, do_lower_case).encode
        self._token_bytes = np.dtype(self.dtype).itemsize
        self._digest_paragraphs = deduplicate == PARAGRAPHS
        self._digest_documents = deduplicate == DOCUMENTS
        self.begins_with_end = False
        self.ends_with_end = False
        self.dropped: Counter[str] = Counter()
        # Of the parts before the present one.
        self.num_tokens = 0
        self.num_sentences = 0
        self.num_documents = 0
        self._num_paragraphs = 0
        self._longest_sentence = 0

    def parts(
        self, lines: Iterable[TextLine], max_bytes: int = 16 << 20
    ) -> Iterator[TokenizedPart]:
        """Yields the lines' documents, in groups limited in memory."""
        for part in self._parts(lines, max_bytes):
            yield part
            self.num_tokens += len(part.tokens) // self._token_bytes
            self.num_sentences += len(part.sentence_lengths)
            self.num_documents += len(part.document_lengths)
            self._num_paragraphs += len(part.paragraph_lengths)
            self._longest_sentence = max(
                self._longest_sentence, max(part.sentence_lengths, default=0)
            )

    def summary(self) -> TokenizedChunk:
        """The counts of the chunk, after its last part."""
        return TokenizedChunk(
            num_tokens=self.num_tokens,
            num_sentences=self.num_sentences,
            num_paragraphs=self._num_paragraphs,
            num_documents=self.num_documents,
            begins_with_end=self.begins_with_end,
            ends_with_end=self.ends_with_end,
            dropped=dict(self.dropped),
            longest_sentence=self._longest_sentence,
        )

    def _parts(
        self, lines: Iterable[TextLine], max_bytes: int
    ) -> Iterator[TokenizedPart]:
        part = TokenizedPart()
        tokens, sentence_lengths = part.tokens, part.sentence_lengths
        encode, token_bytes = self._encode, self._token_bytes
        is_first, num_sentences = True, 0
        document = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for line in lines:
            if not line.sentences:
                self.begins_with_end |= is_first
                self.ends_with_end = True
                if num_sentences:
                    self._end_document(part, num_sentences, document)
                    num_sentences = 0
                    document = hashlib.blake2b(digest_size=DIGEST_BYTES)
                    if len(tokens) >= max_bytes:
                        yield part
                        part = TokenizedPart()
                        tokens, sentence_lengths = part.tokens, part.sentence_lengths
                continue
            before = len(sentence_lengths)
            for sentence in line.sentences:
                ids = encode(sentence)
                if ids:
                    tokens += ids
                    sentence_lengths.append(len(ids) // token_bytes)
                else:
                    self.dropped[NO_TOKEN] += 1
            added = len(sentence_lengths) - before
            if not added:
                continue
            is_first = self.ends_with_end = False
            num_sentences += added
            if self._digest_paragraphs:
                part.paragraph_lengths.append(added)
                part.paragraph_digests += hashlib.blake2b(
                    line.text.encode("utf-8"), digest_size=DIGEST_BYTES
                ).digest()
            if self._digest_documents:
                document.update(line.text.encode("utf-8") + b"\n")
        if num_sentences:
            self._end_document(part, num_sentences, document)
        yield part

    def _end_document(
        self, part: TokenizedPart, num_sentences: int, document: "hashlib.blake2b"
    ) -> None:
        part.document_lengths.append(num_sentences)
        if self._digest_documents:
            part.document_digests += document.digest()


# The folder in which a run keeps its progress until its records are finished.
#
# The folder is hidden next to the records, `.NAME.work`, or set by --work_dir. It
# belongs to one run: to its input, vocabulary and settings. The same command resumes
# what is in it; another one starts over; a second one at the same time is refused.
# When the records are finished it is removed.


_OWNER_FILE = "made_for"
_VOCABULARY_FILE = "vocab.txt"


def work_folder_path(name: str, work_dir: str | None) -> str:
    """The path of a set's work folder."""
    folder, base = os.path.split(name)
    if work_dir is None and not files.is_remote(name):
        return os.path.join(folder, f".{base}.work")
    work_dir = work_dir or tempfile.gettempdir()
    if files.is_remote(work_dir):
        raise InputError(
            f"--work_dir={work_dir} must be a folder of this machine: tokens are read "
            "from all over it."
        )
    # Sets of one name in several folders may share the user's folder.
    digest = files.sha256(files.absolute(name).encode())[:8]
    return os.path.join(work_dir, f".{base}.{digest}.work")


@contextlib.contextmanager
def hold_work_folder(path: str) -> Iterator[None]:
    """Locks the folder against other runs and creates it; removes it at the end.

    If the run ends with an error the folder stays. The system releases the lock of
    a killed run.
    """
    _refuse_strangers(path)
    handle = files.lock(
        path, "another run is making these records just now; wait for it, or stop it."
    )
    try:
        yield
        _remove(path, os.listdir(path))
        os.rmdir(path)
    finally:
        os.close(handle)


def _refuse_strangers(path: str) -> None:
    """Makes a folder that only we can write, in one shared by all users, such as /tmp.

    Others can predict its name, and put files there for our workers to read. Without
    the sticky bit nothing in such a folder is safe from them; some mounts show that
    mode for all their content.
    """
    parent = os.path.dirname(path) or "."
    of_all = stat.S_IWOTH | stat.S_ISVTX
    if not os.path.isdir(parent) or os.stat(parent).st_mode & of_all != of_all:
        return
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.geteuid()
        or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        raise InputError(
            f"{path} is in the way of the work folder, and others may have made it:"
            " remove it, or give another --work_dir."
        )
    os.chmod(path, 0o700)


def remove_finished(path: str, run: dict[str, Any]) -> None:
    """Removes the folder of a run killed when its records were complete."""
    if os.path.isdir(path) and (not os.listdir(path) or _owner_of(path) == _owner(run)):
        with hold_work_folder(path):
            logging.info("Removing %s, which an interrupted run left.", path)


def _owner(run: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()


def _owner_of(path: str) -> str | None:
    owner_file = os.path.join(path, _OWNER_FILE)
    if not files.exists(owner_file):
        return None
    return files.read_bytes(owner_file).decode("utf-8", "replace")


def _remove(path: str, names: Sequence[str]) -> None:
    """Removes the folder's files, the owner last, which marks the folder as ours."""
    for name in sorted(names, key=lambda name: name.startswith(_OWNER_FILE)):
        files.remove(os.path.join(path, name))


def open_work_folder(path: str, run: dict[str, Any], vocabulary: Vocabulary) -> str:
    """Prepares the folder, or resumes the one left by the same run."""
    owner, there = _owner(run), _owner_of(path)
    names = os.listdir(path)
    if there == owner:
        logging.info("Going on with what an interrupted run left in %s", path)
        names = [name for name in names if ".tmp-" in name]
    elif there is None and not all(
        # A run killed at the very beginning leaves only a temporary file.
        name.startswith(_OWNER_FILE)
        for name in names
    ):
        raise InputError(f"{path} is in the way of the work folder; remove it.")
    _remove(path, names)
    # First of all, to mark the folder as ours.
    files.write_atomically(os.path.join(path, _OWNER_FILE), owner)
    vocab_file = os.path.join(path, _VOCABULARY_FILE)
    vocabulary.save(vocab_file)
    return vocab_file


# A corpus as ids on disk: chunks of text, tokenized once, each complete or absent.
#
# Chunk i is the folder chunk-0000i of the work folder, made under a temporary name and
# renamed when it is complete, so that a killed run resumes with the existing ones. All
# files in it are little-endian:
#
#     tokens                uint16 or int32, by the vocabulary's size
#     sentence_stops        int64, where in `tokens` each sentence ends
#     document_stops        int64, where in `sentence_stops` each document ends
#     paragraph_stops       int64, likewise    } only where repeated ones
#     paragraph_digests     16 bytes each      } are dropped
#     document_digests      16 bytes each      }
#     chunk.json            `TokenizedChunk`


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizeJob:
    """A piece of work: one chunk to tokenize."""

    index: int  # the chunk's number
    chunk: Chunk  # what to read
    work_folder: str  # where the result goes
    vocab_file: str  # the vocabulary
    do_lower_case: bool  # as for the tokenizer
    # What digests are needed of: one of `DEDUPLICATION`.
    deduplicate: str = NO_DEDUPLICATION

    @property
    def folder(self) -> str:
        """The folder of the complete result."""
        return chunk_folder(self.work_folder, self.index)


def chunk_folder(work_folder: str, index: int) -> str:
    """The folder of a tokenized chunk."""
    return os.path.join(work_folder, f"chunk-{index:05d}")


def read_summary(folder: str) -> TokenizedChunk:
    """The counts of the chunk in a folder."""
    return strict_json.read(TokenizedChunk, os.path.join(folder, "chunk.json"))


def _finished_chunk(folder: str) -> TokenizedChunk | None:
    """The counts of a chunk, unless it is absent or incomplete.

    Files written just before a power failure may be empty.
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
    vocabulary = Vocabulary.from_file(job.vocab_file)
    tokenizer = ChunkTokenizer(vocabulary, job.do_lower_case, job.deduplicate)
    temporary = f"{job.folder}.tmp-{os.getpid()}"
    os.makedirs(temporary)
    try:
        with contextlib.ExitStack() as stack:
            writer = _ChunkWriter(temporary, tokenizer, stack)
            lines = read_chunk(job.chunk, tokenizer.dropped)
            for part in tokenizer.parts(lines):
                with file_errors(temporary):
                    writer.write(part)
            with file_errors(temporary):
                stack.close()
        summary = tokenizer.summary()
        with open(os.path.join(temporary, "chunk.json"), "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(summary), file)
        os.replace(temporary, job.folder)
    except BaseException:
        shutil.rmtree(temporary)
        raise
    return summary


class _ChunkWriter:
    """Appends the parts of a chunk to its files."""

    def __init__(
        self, folder: str, tokenizer: ChunkTokenizer, stack: contextlib.ExitStack
    ) -> None:
        self._folder = folder
        self._tokenizer = tokenizer
        self._stack = stack
        self._files: dict[str, IO[bytes]] = {}
        for name in ("tokens", "sentence_stops", "document_stops"):
            self._file(name)

    def write(self, part: TokenizedPart) -> None:
        """Appends a part."""
        # The stops count from the chunk's beginning.
        num_tokens = self._tokenizer.num_tokens
        num_sentences = self._tokenizer.num_sentences
        self._write_stops("sentence_stops", part.sentence_lengths, num_tokens)
        self._write_stops("document_stops", part.document_lengths, num_sentences)
        if part.paragraph_lengths:
            self._write_stops("paragraph_stops", part.paragraph_lengths, num_sentences)
        self._file("tokens").write(part.tokens)
        for name in ("paragraph_digests", "document_digests"):
            if getattr(part, name):
                self._file(name).write(getattr(part, name))

    def _write_stops(self, name: str, lengths: object, offset: int) -> None:
        stops = np.cumsum(np.asarray(lengths, np.int64)) + offset
        self._file(name).write(stops.astype("<i8").tobytes())

    def _file(self, name: str) -> IO[bytes]:
        if name not in self._files:
            path = os.path.join(self._folder, name)
            self._files[name] = self._stack.enter_context(files.open_binary(path, "wb"))
        return self._files[name]


def load_array(folder: str, name: str, dtype: np.dtype | type) -> np.ndarray:
    """An array of a tokenized chunk; read lazily.

    The file is open as long as the array or a part of it lives. An array without
    entries has no file.
    """
    path = os.path.join(folder, name)
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")


# Documents have numbers, in the order of the text. Document n belongs to group n modulo
# the number of groups: dealt like cards, so that each group is a fair sample of the
# corpus wherever it was cut.


REPEATED_DOCUMENTS = "repeated documents"
REPEATED_PARAGRAPHS = "repeated paragraphs"
EMPTIED_DOCUMENTS = "documents of nothing but repeated paragraphs"
SHORT_DOCUMENTS = "documents shorter than --min_document_tokens"

_CORPUS_FILE = "corpus.json"
# Next to a chunk's arrays: which of its sentences are kept; absent if all are.
_KEPT = "kept_sentences"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizedCorpus:
    """All chunks of a work folder."""

    work_folder: str = dataclasses.field(default="", compare=False)  # their folder
    token_type: str  # numpy's name of the ids' type
    # The documents of each chunk, those that are dropped included.
    chunk_documents: tuple[int, ...]

    @property
    def num_documents(self) -> int:
        """All documents, those that are dropped included."""
        return sum(self.chunk_documents)

    def save(self) -> None:
        """Writes down the counts, for `load`."""
        values = dataclasses.asdict(self)
        del values["work_folder"]
        files.write_atomically(
            os.path.join(self.work_folder, _CORPUS_FILE), json.dumps(values)
        )

    @classmethod
    def load(cls, work_folder: str) -> "TokenizedCorpus":
        """The corpus in a work folder."""
        path = os.path.join(work_folder, _CORPUS_FILE)
        return dataclasses.replace(strict_json.read(cls, path), work_folder=work_folder)

    def pool(self, joins_files: Sequence[bool]) -> Documents:
        """All documents that are kept, in the order of the text."""
        pieces = []
        has_ended = True
        for index, joins in enumerate(joins_files):
            summary = read_summary(chunk_folder(self.work_folder, index))
            has_ended = has_ended or not joins or summary.begins_with_end
            if summary.num_documents:
                pieces.append((self._chunk_pieces(index, 0, 1), not has_ended))
                has_ended = summary.ends_with_end
        return _assembled(pieces, np.dtype(self.token_type))

    def group(self, group: int, num_groups: int) -> Documents:
        """The documents of one group that are kept, in the order of the text."""
        pieces = []
        number = 0
        for index, num_documents in enumerate(self.chunk_documents):
            first = (group - number) % num_groups
            number += num_documents
            if first < num_documents:
                pieces.append((self._chunk_pieces(index, first, num_groups), False))
        return _assembled(pieces, np.dtype(self.token_type))

    def _chunk_pieces(self, index: int, first: int, step: int) -> "_Pieces":
        folder = chunk_folder(self.work_folder, index)
        # What is kept of them is copied: each keeps a file open.
        tokens = load_array(folder, "tokens", np.dtype(self.token_type))
        sentence_stops = load_array(folder, "sentence_stops", np.int64)
        document_stops = load_array(folder, "document_stops", np.int64)
        kept = load_array(folder, _KEPT, np.bool_)
        if step == 1 and not len(kept):
            return _Pieces(
                [np.array(tokens)],
                np.diff(sentence_stops, prepend=0),
                np.diff(document_stops, prepend=0),
            )
        token_parts, sentence_parts, document_lengths = [], [], []
        for document in range(first, len(document_stops), step):
            begin = document_stops[document - 1] if document else 0
            sentences = slice(begin, document_stops[document])
            stops = np.asarray(sentence_stops[sentences])
            token_begin = sentence_stops[begin - 1] if begin else 0
            lengths = np.diff(stops, prepend=token_begin)
            ids = np.array(tokens[token_begin : stops[-1]])
            if len(kept):
                is_kept = np.asarray(kept[sentences])
                if not is_kept.all():
                    ids = ids[np.repeat(is_kept, lengths)]
                    lengths = lengths[is_kept]
            if len(lengths):
                token_parts.append(ids)
                sentence_parts.append(lengths)
                document_lengths.append(len(lengths))
        return _Pieces(
            token_parts,
            np.concatenate(sentence_parts) if sentence_parts else np.empty(0, np.int64),
            np.array(document_lengths, np.int64),
        )


@dataclasses.dataclass(frozen=True)
class _Pieces:
    """Some documents of a chunk; the lengths are of sentences, and of documents."""

    tokens: list[np.ndarray]
    sentence_lengths: np.ndarray
    document_lengths: np.ndarray


def _assembled(pieces: list[tuple[_Pieces, bool]], dtype: np.dtype) -> Documents:
    """Documents out of pieces, each with whether it continues the last document."""
    tokens = [part for piece, _ in pieces for part in piece.tokens]
    sentence_lengths = [piece.sentence_lengths for piece, _ in pieces]
    document_lengths: list[np.ndarray] = []
    for piece, joins in pieces:
        lengths = piece.document_lengths
        if joins and document_lengths:
            document_lengths[-1] = document_lengths[-1].copy()
            document_lengths[-1][-1] += lengths[0]
            lengths = lengths[1:]
        if len(lengths):
            document_lengths.append(lengths)
    empty = [np.empty(0, np.int64)]
    return Documents(
        np.concatenate([np.empty(0, dtype), *tokens]),
        starts(np.concatenate(empty + sentence_lengths)),
        starts(np.concatenate(empty + document_lengths)),
    )


def choose_sentences(
    work_folder: str,
    chunks: Sequence[TokenizedChunk],
    *,
    deduplicate: str,
    min_document_tokens: int,
) -> Counter[str]:
    """Records which sentences are kept; of repeated texts the first one is.

    Memory: 16 bytes for the digest of each document or paragraph, and the same again.
    """
    dropped: Counter[str] = Counter()
    is_first = None
    if deduplicate in (DOCUMENTS, PARAGRAPHS):
        name = "document" if deduplicate == DOCUMENTS else "paragraph"
        is_first = _first_occurrences(work_folder, len(chunks), f"{name}_digests")
    for index in range(len(chunks)):
        folder = chunk_folder(work_folder, index)
        lengths = np.diff(load_array(folder, "sentence_stops", np.int64), prepend=0)
        document_stops = load_array(folder, "document_stops", np.int64)
        if not len(document_stops):
            continue
        document_sentences = np.diff(document_stops, prepend=0)
        document_starts = document_stops - document_sentences
        kept = np.ones(len(lengths), np.bool_)
        if is_first is not None and deduplicate == DOCUMENTS:
            firsts = next(is_first)
            dropped[REPEATED_DOCUMENTS] += int((~firsts).sum())
            kept = np.repeat(firsts, document_sentences)
        elif is_first is not None:
            firsts = next(is_first)
            dropped[REPEATED_PARAGRAPHS] += int((~firsts).sum())
            paragraph_stops = load_array(folder, "paragraph_stops", np.int64)
            kept = np.repeat(firsts, np.diff(paragraph_stops, prepend=0))
            has_some = np.add.reduceat(kept.astype(np.int64), document_starts) > 0
            dropped[EMPTIED_DOCUMENTS] += int((~has_some).sum())
        document_tokens = np.add.reduceat(lengths * kept, document_starts)
        is_short = (document_tokens > 0) & (document_tokens < min_document_tokens)
        dropped[SHORT_DOCUMENTS] += int(is_short.sum())
        kept &= ~np.repeat(is_short, document_sentences)
        path = os.path.join(folder, _KEPT)
        if not kept.all():
            files.write_atomically(path, kept.tobytes())
        elif files.exists(path):
            files.remove(path)
    return +dropped


def _first_occurrences(
    work_folder: str, num_chunks: int, name: str
) -> Iterator[np.ndarray]:
    """Yields, for each chunk with digests, which of them occur first there."""
    parts = [
        np.array(load_array(chunk_folder(work_folder, index), name, np.uint8))
        for index in range(num_chunks)
    ]
    num_digests = [len(part) // DIGEST_BYTES for part in parts]
    halves = np.concatenate(parts).view(np.uint64).reshape(-1, 2)
    del parts
    # Stable: of equal digests, the first in the text stays first.
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    in_order = halves[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (in_order[1:] != in_order[:-1]).any(axis=1)
    is_first = np.empty(len(order), np.bool_)
    is_first[order] = is_new
    begin = 0
    for number in num_digests:
        if number:
            yield is_first[begin : begin + number]
            begin += number
