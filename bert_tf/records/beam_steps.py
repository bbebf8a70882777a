"""What a worker does with an element of the pipeline that `records.beam` lays out.

A document is `(place, payload)`. Its place is `(chunk, number in the chunk)`, by which
documents are in the order of the text; its payload three strings of bytes:

    tokens              packed ids, uint16 or int32 by the vocabulary's size
    sentence lengths    int32, in tokens
    paragraph lengths   int32, in sentences; empty unless repeated ones are dropped

These are plain tuples of bytes, which Beam packs without pickling.

What the user got wrong is an output too, a problem `(step, number, message)`: an error
would be tried again, which mends nothing, and reach the user as pages of traceback.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from apache_beam.pvalue import TaggedOutput

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.instances.creation import TokenIds
from bert_tf.instances.pairs import Documents, starts, token_dtype
from bert_tf.records.generation import ShardJob, finished_shard, write_group
from bert_tf.records.tokenized_chunks import ChunkCounter
from bert_tf.records.tokenized_corpus import EMPTIED_DOCUMENTS, SHORT_DOCUMENTS
from bert_tf.text.documents import Chunk, read_chunk
from bert_tf.text.tokenized import (
    DIGEST_BYTES,
    DOCUMENTS,
    PARAGRAPHS,
    ChunkTokenizer,
    TokenizedPart,
)
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import PackedTokenizer, WordPieceTokenizer

# Outputs beside the documents.
SUMMARIES = "summaries"
PROBLEMS = "problems"
PARAGRAPH_PLACES = "paragraph_places"
DROPPED = "dropped"

READING, WRITING = 0, 1

# In a group beside its documents, so that one without documents is a group too.
GROUP_MARK = (-1, b"", b"")

Payload = tuple[bytes, bytes, bytes]


def tokenize(
    numbered_chunk: tuple[int, Chunk],
    vocabulary: Vocabulary,
    do_lower_case: bool,
    deduplicate: str,
) -> Iterator[Any]:
    """Yields a chunk's documents; beside them its summary, or what is wrong with it.

    Where repeated documents are dropped each is `(digest, (place, payload))`; where
    paragraphs are, their `(digest, (chunk, document, paragraph))` come beside them.
    """
    index, chunk = numbered_chunk
    try:
        yield from _documents(index, chunk, vocabulary, do_lower_case, deduplicate)
    except InputError as error:
        yield TaggedOutput(PROBLEMS, (READING, index, str(error)))
    except FileNotFoundError as error:
        message = f"--input_file: {error.filename} is not there for a worker."
        yield TaggedOutput(PROBLEMS, (READING, index, message))


def _documents(
    index: int,
    chunk: Chunk,
    vocabulary: Vocabulary,
    do_lower_case: bool,
    deduplicate: str,
) -> Iterator[Any]:
    dtype = token_dtype(len(vocabulary))
    tokenizer = ChunkTokenizer(
        _packed_tokenizer(vocabulary, do_lower_case).encode,
        dtype,
        digest_paragraphs=deduplicate == PARAGRAPHS,
        digest_documents=deduplicate == DOCUMENTS,
    )
    counter = ChunkCounter(dtype)
    for part in tokenizer.parts(read_chunk(chunk, tokenizer.dropped)):
        payloads = _payloads(part, np.dtype(dtype).itemsize)
        paragraph_digests = _digests(part.paragraph_digests)
        document_digests = _digests(part.document_digests)
        for number, payload in enumerate(payloads, counter.num_documents):
            place = (index, number)
            if deduplicate == DOCUMENTS:
                yield next(document_digests), (place, payload)
                continue
            yield place, payload
            num_paragraphs = len(payload[2]) // 4
            for paragraph, digest in enumerate(
                itertools.islice(paragraph_digests, num_paragraphs)
            ):
                yield TaggedOutput(PARAGRAPH_PLACES, (digest, (*place, paragraph)))
        counter.add(part)
    summary = dataclasses.asdict(counter.summary(tokenizer))
    yield TaggedOutput(SUMMARIES, (index, summary))


@functools.lru_cache(maxsize=1)
def _packed_tokenizer(vocabulary: Vocabulary, do_lower_case: bool) -> PackedTokenizer:
    """One tokenizer a process, so that its caches serve all chunks."""
    tokenizer = WordPieceTokenizer(vocabulary, do_lower_case=do_lower_case)
    return PackedTokenizer(tokenizer, token_dtype(len(vocabulary)))


def _digests(packed: bytearray) -> Iterator[bytes]:
    for begin in range(0, len(packed), DIGEST_BYTES):
        yield bytes(packed[begin : begin + DIGEST_BYTES])


def _payloads(part: TokenizedPart, token_bytes: int) -> Iterator[Payload]:
    sentence_lengths = np.asarray(part.sentence_lengths, np.int32)
    paragraph_lengths = np.asarray(part.paragraph_lengths, np.int32)
    sentences = starts(np.asarray(part.document_lengths, np.int64))
    tokens = starts(sentence_lengths)[sentences] * token_bytes
    paragraphs = np.searchsorted(starts(paragraph_lengths), sentences)
    for document in range(len(part.document_lengths)):
        here = slice(document, document + 2)
        yield (
            bytes(part.tokens[slice(*tokens[here])]),
            sentence_lengths[slice(*sentences[here])].tobytes(),
            paragraph_lengths[slice(*paragraphs[here])].tobytes()
            if len(paragraph_lengths)
            else b"",
        )


def keep_paragraphs(
    found: tuple[tuple[int, int], Mapping[str, Iterable[Any]]],
    token_type: str,
) -> Iterator[Any]:
    """Yields a document with its paragraphs that are kept, if there are any."""
    place, values = found
    ((tokens, sentence_lengths, paragraph_lengths),) = values["documents"]
    lengths = np.frombuffer(sentence_lengths, np.int32)
    kept = np.zeros(len(paragraph_lengths) // 4, np.bool_)
    kept[list(values["kept"])] = True
    kept = np.repeat(kept, np.frombuffer(paragraph_lengths, np.int32))
    if not kept.any():
        yield TaggedOutput(DROPPED, EMPTIED_DOCUMENTS)
        return
    ids = np.frombuffer(tokens, token_type)[np.repeat(kept, lengths)]
    yield place, (ids.tobytes(), lengths[kept].tobytes(), b"")


def drop_short(
    document: tuple[tuple[int, int], Payload], min_bytes: int
) -> Iterator[Any]:
    """Yields a document if its tokens have as many bytes."""
    if len(document[1][0]) < min_bytes:
        yield TaggedOutput(DROPPED, SHORT_DOCUMENTS)
    else:
        yield document


def first_numbers(num_documents: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The number in the whole text of each chunk's first document."""
    number, numbers = 0, {}
    for index, count in sorted(num_documents):
        numbers[index] = number
        number += count
    return numbers


def to_group(
    document: tuple[tuple[int, int], Payload],
    numbers: Mapping[int, int],
    num_groups: int,
    wanted: frozenset[int],
) -> Iterator[tuple[int, tuple[int, bytes, bytes]]]:
    """Yields a document's group, with its number in the whole text and its content."""
    (index, number), (tokens, sentence_lengths, _) = document
    # A chunk with a problem has documents but no summary; nothing is written then.
    number += numbers.get(index, 0)
    group = number % num_groups
    if group in wanted:
        yield group, (number, tokens, sentence_lengths)


def write(
    group: tuple[int, Iterable[tuple[int, bytes, bytes]]],
    jobs: Mapping[int, ShardJob],
    vocabulary: Vocabulary,
    problems: Sequence[tuple[int, int, str]],
) -> Iterator[tuple[int, int, str]]:
    """Makes a group's record file, and yields what is wrong if it cannot be made."""
    number, members = group
    job = jobs[number]
    # Beam gives a bundle of groups to a worker again when it has lost another one.
    if problems or finished_shard(job) is not None:
        return
    try:
        write_group(
            _assembled(members, token_dtype(len(vocabulary))),
            TokenIds.from_vocabulary(vocabulary.ids),
            job.settings,
            job.path,
            job.result_path,
            is_alone=False,
        )
    except InputError as error:
        yield WRITING, number, str(error)


def _assembled(
    members: Iterable[tuple[int, bytes, bytes]], dtype: type[np.generic]
) -> Documents:
    documents = sorted(members)[1:]  # without the mark
    tokens = bytearray().join(tokens for _, tokens, _ in documents)
    lengths = [lengths for _, _, lengths in documents]
    del documents
    return Documents(
        np.frombuffer(tokens, dtype),
        starts(np.frombuffer(b"".join(lengths), np.int32)),
        starts([len(packed) // 4 for packed in lengths]),
    )


def write_outcome(
    _: None,
    path: str,
    summaries: Sequence[tuple[int, dict[str, Any]]],
    problems: Sequence[tuple[int, int, str]],
    counts: Sequence[tuple[str, int]],
) -> None:
    """Writes down what the pipeline came to, for the program that launched it."""
    outcome = {
        "chunks": [
            summary for _, summary in sorted(summaries, key=lambda item: item[0])
        ],
        "problems": sorted(problems),
        "counts": dict(counts),
    }
    files.write_atomically(path, json.dumps(outcome))
