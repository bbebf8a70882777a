"""A tokenized corpus: what of it is kept, and its documents, all or a group's.

Documents have numbers, in the order of the text. Document n belongs to group n modulo
the number of groups: dealt like cards, so that each group is a fair sample of the
corpus wherever it was cut.
"""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf import files, strict_json
from bert_tf.instances.pairs import Documents, starts
from bert_tf.records.tokenized_chunks import (
    TokenizedChunk,
    chunk_folder,
    load_array,
    read_summary,
)
from bert_tf.text.tokenized import DIGEST_BYTES, DOCUMENTS, PARAGRAPHS

REPEATED_DOCUMENTS = "repeated documents"
REPEATED_PARAGRAPHS = "repeated paragraphs"
EMPTIED_DOCUMENTS = "documents of nothing but repeated paragraphs"
SHORT_DOCUMENTS = "documents shorter than --min_document_tokens"

_CORPUS_FILE = "corpus.json"
# Beside a chunk's arrays: which of its sentences are kept; absent where all are.
_KEPT = "kept_sentences"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizedCorpus:
    """All chunks of a work folder.

    Attributes:
        work_folder: where they lie.
        token_type: numpy's name of the ids' type.
        chunk_documents: the documents of each chunk, those that are dropped included.
    """

    work_folder: str = dataclasses.field(default="", compare=False)
    token_type: str
    chunk_documents: tuple[int, ...]

    @property
    def num_documents(self) -> int:
        """All documents, those that are dropped included."""
        return sum(self.chunk_documents)

    def save(self) -> None:
        """Writes down what there is, for `load`."""
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
        # What is kept of them is copied: each holds a file open.
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
    """Documents out of pieces, each with whether it goes on with the last document."""
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
    """Writes down which sentences are kept; of repeated texts the first one is.

    Memory: 16 bytes for the digest of each document or paragraph, and as much again.
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
    """Yields, for each chunk that has digests, which of them come up first there."""
    parts = [
        np.array(load_array(chunk_folder(work_folder, index), name, np.uint8))
        for index in range(num_chunks)
    ]
    num_digests = [len(part) // DIGEST_BYTES for part in parts]
    halves = np.concatenate(parts).view(np.uint64).reshape(-1, 2)
    del parts
    # Stable: of equal digests, the first in the text stays the first.
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
