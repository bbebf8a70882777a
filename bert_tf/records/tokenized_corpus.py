"""Text to token ids on disk, in chunks that several processes make."""

import contextlib
import dataclasses
import functools
import glob
import hashlib
import itertools
import json
import os
import shutil
import stat
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging
from tqdm import tqdm

from bert_tf.base import files, strict_json
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.parallel import Workers, grouped
from bert_tf.instances.creation import Documents, starts, token_dtype
from bert_tf.records.manifest import OfText
from bert_tf.records.writing import file_errors
from bert_tf.text.documents import DOCUMENTS, NEAR, PARAGRAPHS, Chunk, drop, read_chunk
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import PackedTokenizer, WordPieceTokenizer

# 128 bits: different texts do not have the same digest.
DIGEST_BYTES = 16

NO_TOKEN = "sentences without a token (control characters, say)"


class TokenizedPart(NamedTuple):
    """Some documents, one after another, without empty sentences."""

    tokens: np.ndarray  # uint16 or int32, the ids of all sentences
    sentence_lengths: np.ndarray  # int32, in tokens
    document_lengths: np.ndarray  # int32, in sentences
    # About the texts that may be repeated: documents or paragraphs.
    text_lengths: np.ndarray  # int32, in sentences
    digests: np.ndarray  # uint8, the same number per text; empty unless requested


@dataclasses.dataclass(kw_only=True)
class TokenizedChunk:
    """The counts of a tokenized chunk."""

    num_tokens: int = 0
    num_unknown: int = 0  # of the tokens, those that are [UNK]
    num_sentences: int = 0
    num_documents: int = 0  # none of them empty
    begins_with_end: bool = False  # whether a document ends before the first sentence
    ends_with_end: bool = False  # whether one ends after the last sentence
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)  # by reason
    num_bytes: int = 0  # of its files


def _cut(continues: np.ndarray, longest: int) -> list[int]:
    """Returns the lengths of a sentence's pieces; `continues` marks inner tokens."""
    # A sentence that fits a sequence is one piece. Others are cut before words, into
    # pieces of half a sequence, because two pieces make a pair.
    length = len(continues)
    if length <= longest:
        return [length]
    words = np.flatnonzero(~continues)
    cuts = [0]
    while length - cuts[-1] > longest // 2:
        limit = cuts[-1] + longest // 2
        word = words[np.searchsorted(words, limit, "right") - 1]
        cuts.append(word if word > cuts[-1] else limit)
    return np.diff([*cuts, length]).tolist()


@functools.lru_cache(maxsize=1)
def _packed_tokenizer(
    vocabulary: Vocabulary, do_lower_case: bool, segmenter: str
) -> PackedTokenizer:
    """Returns one tokenizer per process, so that its caches serve all chunks."""
    tokenizer = WordPieceTokenizer(
        vocabulary, do_lower_case=do_lower_case, segmenter=segmenter
    )
    return PackedTokenizer(tokenizer, token_dtype(len(vocabulary)))


def tokenized_parts(
    chunk: Chunk,
    vocabulary: Vocabulary,
    of_text: OfText,
    counts: TokenizedChunk,
    max_bytes: int = 16 << 20,
) -> Iterator[TokenizedPart]:
    """Yields a chunk's documents, in parts limited in memory, and counts them."""
    # Where lines are split into sentences, long sentences are cut into several.
    dtype = np.dtype(token_dtype(len(vocabulary)))
    encode = _packed_tokenizer(vocabulary, *of_text[:2]).encode
    deduplicate = of_text.deduplicate
    dropped: Counter[str] = Counter()
    cuts = of_text.longest_sentence if chunk.language else None
    continues = np.zeros(len(vocabulary), np.bool_)
    continues[vocabulary.continuation_ids] = True

    def digest(text: bytes | bytearray) -> bytes:
        return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()

    def documents() -> Iterator[tuple[Any, ...]]:
        lines = read_chunk(chunk, dropped)
        for is_end, some in itertools.groupby(lines, lambda line: not line.sentences):
            if is_end:
                counts.begins_with_end |= not counts.num_documents
                counts.ends_with_end = True
                continue
            num_sentences = 0
            tokens, digests, text = bytearray(), bytearray(), bytearray()
            sentences, paragraphs = array("i"), array("i")
            for line in some:
                encoded = [ids for ids in map(encode, line.sentences) if ids]
                if len(encoded) < len(line.sentences):
                    lost = [text for text in line.sentences if not encode(text)]
                    drop(dropped, NO_TOKEN, len(lost), characters=sum(map(len, lost)))
                if not encoded:
                    continue
                num_sentences += len(encoded)
                tokens += b"".join(encoded)
                lengths = [len(ids) // dtype.itemsize for ids in encoded]
                if cuts is not None and max(lengths) > cuts:
                    lengths = []
                    for ids in encoded:
                        lengths += _cut(continues[np.frombuffer(ids, dtype)], cuts)
                sentences.extend(lengths)
                paragraphs.append(len(lengths))
                if deduplicate == PARAGRAPHS:
                    digests += digest(line.text.encode())
                elif deduplicate == DOCUMENTS:
                    text += line.text.encode() + b"\n"
            if not tokens:
                continue
            if deduplicate == DOCUMENTS:
                digests += digest(text)
            elif deduplicate == NEAR:
                digests += addon("near_duplicates").digest(tokens, dtype.itemsize)
            counts.ends_with_end = False
            of_document = np.frombuffer(tokens, dtype)
            counts.num_tokens += len(of_document)
            counts.num_unknown += int((of_document == vocabulary.unk_id).sum())
            counts.num_sentences += num_sentences  # before they were cut
            counts.num_documents += 1
            is_one = deduplicate != PARAGRAPHS
            texts = array("i", [len(sentences)]) if is_one else paragraphs
            yield tokens, sentences, texts, digests

    for group in grouped(documents(), max_bytes, lambda one: len(one[0])):
        tokens, sentences, texts, digests = (
            b"".join(parts) for parts in zip(*group, strict=True)
        )
        yield TokenizedPart(
            np.frombuffer(tokens, dtype),
            np.frombuffer(sentences, np.int32),
            np.array([len(one[1]) for one in group], np.int32),
            np.frombuffer(texts, np.int32),
            np.frombuffer(digests, np.uint8),
        )
    counts.dropped = dict(+dropped)


# A run keeps its progress in a hidden folder next to the records, `.NAME.work-HASH`, or
# in --work_dir. The hash is of the run's input, vocabulary and settings: the same
# command resumes the work there; another one for NAME removes it; a second one at the
# same time is refused.


def work_folder_path(name: str, identity: str, work_dir: str | None) -> str:
    """Returns the path of a set's work folder."""
    folder, base = os.path.split(name)
    end = f"work-{identity[:16]}"
    if work_dir is None and not files.is_remote(name):
        return os.path.join(folder, f".{base}.{end}")
    work_dir = work_dir or tempfile.gettempdir()
    if files.is_remote(work_dir):
        raise InputError(
            f"`work_dir={work_dir}` must be a folder on this machine, because tokens"
            " are read in random order."
        )
    # Sets of one name in several folders may share the user's folder.
    digest = files.sha256(files.absolute(name).encode())[:8]
    return os.path.join(work_dir, f".{base}.{digest}.{end}")


@contextlib.contextmanager
def work_folder(path: str) -> Iterator[None]:
    """Locks the folder against other runs and creates it; removes it at the end."""
    base = glob.escape(path.rpartition("-")[0])
    with _locked(path):
        # Only now: of two runs that begin at once, one sees the other's lock.
        try:
            for other in files.glob(f"{base}-{'[0-9a-f]' * 16}"):
                if os.path.basename(other) != os.path.basename(path):
                    with _locked(other):
                        shutil.rmtree(other)
        except InputError:
            if not os.listdir(path):
                os.rmdir(path)
            raise
        for name in os.listdir(path):
            if ".tmp-" in name:
                files.remove(os.path.join(path, name))
        if os.listdir(path):
            logging.info("Resuming from %s", path)
        try:
            yield
        except InputError:
            # Only the same command could use it, and would fail again.
            shutil.rmtree(path)
            raise
        shutil.rmtree(path)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Locks the folder; the system releases the lock of a killed run."""
    _refuse_strangers(path)
    handle = files.lock(
        path, "another run is making these records just now; wait for it, or stop it."
    )
    try:
        yield
    finally:
        os.close(handle)


def _refuse_strangers(path: str) -> None:
    """Makes a folder that only we can write to, where all users share the parent."""
    # Others can predict its name, and put files there for our workers to read. Only
    # shared folders have the sticky bit; some mounts show the same mode for all files.
    parent = os.path.dirname(path) or "."
    of_all = stat.S_IWOTH | stat.S_ISVTX
    if not os.path.isdir(parent) or os.stat(parent).st_mode & of_all != of_all:
        return
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or writable:
        raise InputError(
            f"{path} is where the work folder would be, but another user may"
            " have made it: remove it, or give another `work_dir`."
        )
    os.chmod(path, 0o700)


# Chunk i is the folder chunk-0000i of the work folder, made under a temporary name and
# renamed when it is complete. It has a file for each array of `TokenizedPart`, and
# chunk.json, its `TokenizedChunk`.

_SUMMARY = "chunk.json"
# A mask of a chunk's kept sentences; absent if all are kept.
_KEPT = "kept_sentences"


def _chunk_folder(work_folder: str, index: int) -> str:
    return os.path.join(work_folder, f"chunk-{index:05d}")


def _vocab_file(work_folder: str) -> str:
    return os.path.join(work_folder, "vocab.txt")


def tokenize(
    chunks: Sequence[Chunk],
    vocabulary: Vocabulary,
    of_text: OfText,
    work_folder: str,
    workers: Workers,
) -> "TokenizedCorpus":
    """Tokenizes text into a work folder, except finished chunks. Returns the corpus."""
    vocabulary.save(_vocab_file(work_folder))
    tokenized = []
    with tqdm(
        total=sum(chunk.num_bytes for chunk in chunks),
        desc="Tokenizing",
        unit="B",
        unit_scale=True,
        disable=None,
    ) as bar:
        work = functools.partial(tokenize_chunk, work_folder, of_text)
        results = workers.map(work, enumerate(chunks))
        for chunk, result in zip(chunks, results, strict=True):
            tokenized.append(result)
            bar.update(chunk.num_bytes)
    dtype = token_dtype(len(vocabulary)).__name__
    return TokenizedCorpus(work_folder=work_folder, token_type=dtype, chunks=tokenized)


def tokenize_chunk(
    work_folder: str,
    of_text: OfText,
    numbered_chunk: tuple[int, Chunk],
) -> TokenizedChunk:
    """Returns a chunk's counts; tokenizes it into its folder unless it is there."""
    index, chunk = numbered_chunk
    folder = _chunk_folder(work_folder, index)
    if os.path.exists(folder):
        # Files written just before a power failure may be empty.
        with contextlib.suppress(FileNotFoundError, InputError):
            summary = strict_json.read(TokenizedChunk, os.path.join(folder, _SUMMARY))
            if summary.num_bytes == _num_bytes(folder):
                return summary
        shutil.rmtree(folder)
    vocabulary = Vocabulary.from_file(_vocab_file(work_folder))
    summary = TokenizedChunk()
    parts = tokenized_parts(chunk, vocabulary, of_text, summary)
    temporary = f"{folder}.tmp-{os.getpid()}"
    os.makedirs(temporary)
    try:
        with contextlib.ExitStack() as stack:
            opened = [
                stack.enter_context(open(os.path.join(temporary, name), "wb"))
                for name in TokenizedPart._fields
            ]
            for part in parts:
                with file_errors(temporary):
                    for file, values in zip(opened, part, strict=True):
                        file.write(values.tobytes())
                        file.flush()
        summary.num_bytes = _num_bytes(temporary)
        with open(os.path.join(temporary, _SUMMARY), "w", encoding="utf-8") as text:
            json.dump(dataclasses.asdict(summary), text)
        os.replace(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary)
        raise
    return summary


def _num_bytes(folder: str) -> int:
    return sum(
        os.path.getsize(os.path.join(folder, name)) for name in TokenizedPart._fields
    )


# Documents have numbers, in the order of the text. Document n belongs to group n modulo
# the number of groups: dealt like cards, so that each group is a fair sample of the
# corpus wherever it was cut.


class Piece(NamedTuple):
    """Some of a part's documents."""

    tokens: np.ndarray
    sentence_lengths: np.ndarray
    document_lengths: np.ndarray


def select(
    tokens: np.ndarray,
    sentence_lengths: np.ndarray,
    document_lengths: np.ndarray,
    kept: np.ndarray | None,
    first: int = 0,
    step: int = 1,
) -> Piece:
    """Returns every `step`-th document from `first` on, with the sentences to keep."""
    if step == 1 and first == 0 and kept is None:
        return Piece(np.array(tokens), sentence_lengths, document_lengths)
    sentence_starts = starts(sentence_lengths)
    document_starts = starts(document_lengths)
    token_parts, length_parts = [tokens[:0]], [sentence_lengths[:0]]
    for document in range(first, len(document_lengths), step):
        begin, end = document_starts[document : document + 2]
        lengths = sentence_lengths[begin:end]
        ids = tokens[sentence_starts[begin] : sentence_starts[end]]
        if kept is not None and not kept[begin:end].all():
            ids = ids[np.repeat(kept[begin:end], lengths)]
            lengths = lengths[kept[begin:end]]
        if len(lengths):
            token_parts.append(ids)
            length_parts.append(lengths)
    return Piece(
        np.concatenate(token_parts),
        np.concatenate(length_parts),
        np.array([len(lengths) for lengths in length_parts[1:]], np.int32),
    )


def assembled(
    pieces: Sequence[tuple[Piece, bool]], dtype: np.dtype | type[np.generic]
) -> Documents:
    """Returns documents made of pieces, each with whether it continues a document."""
    documents: list[np.ndarray] = [np.empty(0, np.int32)]
    for piece, joins in pieces:
        lengths = piece.document_lengths
        if joins and len(lengths) and len(documents[-1]):
            documents[-1] = documents[-1].copy()
            documents[-1][-1] += lengths[0]
            lengths = lengths[1:]
        if len(lengths):
            documents.append(lengths)
    sentences = [piece.sentence_lengths for piece, _ in pieces]
    return Documents(
        np.concatenate([np.empty(0, dtype), *(piece.tokens for piece, _ in pieces)]),
        starts(np.concatenate([np.empty(0, np.int32), *sentences])),
        starts(np.concatenate(documents)),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizedCorpus:
    """All chunks of a work folder."""

    work_folder: str
    token_type: str  # numpy's name of the ids' type
    chunks: Sequence[TokenizedChunk]  # including texts that are dropped later

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the tokens."""
        return Vocabulary.from_file(_vocab_file(self.work_folder))

    def documents(
        self, group: int = 0, num_groups: int = 1, *, joins_files: bool = False
    ) -> Documents:
        """Returns the documents of a group that are kept, in the order of the text."""
        pieces = []
        number = 0
        has_ended = True
        for index, chunk in enumerate(self.chunks):
            has_ended = has_ended or not joins_files or chunk.begins_with_end
            first = (group - number) % num_groups
            number += chunk.num_documents
            if first < chunk.num_documents:
                pieces.append((self._piece(index, first, num_groups), not has_ended))
                has_ended = chunk.ends_with_end
        return assembled(pieces, np.dtype(self.token_type))

    def _piece(self, index: int, first: int, step: int) -> Piece:
        folder = _chunk_folder(self.work_folder, index)
        # Read as needed. A chunk with documents has tokens.
        tokens = np.memmap(os.path.join(folder, "tokens"), self.token_type, mode="r")
        kept = None
        if os.path.exists(os.path.join(folder, _KEPT)):
            kept = _load(folder, _KEPT, np.bool_)
        return select(
            tokens,
            _load(folder, "sentence_lengths"),
            _load(folder, "document_lengths"),
            kept,
            first,
            step,
        )

    def choose_sentences(
        self, *, deduplicate: str, min_document_tokens: int
    ) -> Counter[str]:
        """Records which sentences are kept. Returns counts of the dropped ones."""
        filtering = addon("filtering")
        folders = [
            _chunk_folder(self.work_folder, index) for index in range(len(self.chunks))
        ]
        outlines = [
            filtering.outline(
                _load(folder, "sentence_lengths"),
                _load(folder, "document_lengths"),
                _load(folder, "text_lengths"),
                _load(folder, "digests", np.uint8),
            )
            for folder in folders
        ]
        kept_texts, dropped = filtering.choose_texts(
            outlines, deduplicate, min_document_tokens
        )
        for folder, kept in zip(folders, kept_texts, strict=True):
            path = os.path.join(folder, _KEPT)
            if not kept.all():
                kept = np.repeat(kept, _load(folder, "text_lengths"))
                files.write_atomically(path, kept.tobytes())
            elif files.exists(path):
                files.remove(path)
        return dropped


def _load(folder: str, name: str, dtype: type[np.generic] = np.int32) -> np.ndarray:
    return np.fromfile(os.path.join(folder, name), dtype)
