"""Pre-training records by Apache Beam: the files of a local run, made on a cluster.

    chunks -> tokenize -> (drop repetitions) -> (drop short documents)
           -> group by document number modulo --num_shards -> sort -> record file

The machines share no disk except that of the records. Tokens travel in Beam's own
shuffle, one element per document, and each group's record file is made as a whole
by one worker, from the same documents in the same order and with the same random stream
as locally: the files are the same, byte for byte.

Next to the records, in `.NAME.beam-HASH`, each worker writes what is known of a
finished file, and the last step the outcome of all; the hash is of everything the files
depend on. The same command again thus knows which of the record files are its own and
makes only the others, after tokenizing the text once more. A file may be made by two
workers at once, as Beam sees fit: both write the same bytes under different temporary
names, and either may take the name last.
"""

import contextlib
import dataclasses
import glob
import io
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from absl import logging
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput
from apache_beam.runners.runner import PipelineState

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.instances.creation import TokenIds
from bert_tf.instances.pairs import Documents, starts, token_dtype
from bert_tf.instances.settings import InstanceSettings
from bert_tf.parallel import available_cores
from bert_tf.records.manifest import Manifest
from bert_tf.records.record_sets import (
    RecordSet,
    ShardJob,
    ShardResult,
    finished_shard,
    plan_record_set,
    write_group,
)
from bert_tf.records.tokenized_corpus import (
    DIGEST_BYTES,
    DOCUMENTS,
    EMPTIED_DOCUMENTS,
    NO_DEDUPLICATION,
    PARAGRAPHS,
    REPEATED_DOCUMENTS,
    REPEATED_PARAGRAPHS,
    SHORT_DOCUMENTS,
    ChunkTokenizer,
    TokenizedChunk,
    TokenizedPart,
)
from bert_tf.records.writing import remove_leftovers
from bert_tf.text.documents import Chunk, FileSource, read_chunk
from bert_tf.text.vocabulary import Vocabulary

# In the pipeline a document is `(place, payload)`. Its place is `(chunk, number in the
# chunk)`, by which documents are in the order of the text; its payload three strings of
# bytes:
#
#     tokens              packed ids, uint16 or int32 by the vocabulary's size
#     sentence lengths    int32, in tokens
#     paragraph lengths   int32, in sentences; empty unless repeated ones are dropped
#
# These are plain tuples of bytes, which Beam packs without pickling.
#
# A user error is an output too, a problem `(step, number, message)`: Beam would retry
# after an exception, and print pages of traceback.


# Outputs in addition to the documents.
SUMMARIES = "summaries"
PROBLEMS = "problems"
PARAGRAPH_PLACES = "paragraph_places"
DROPPED = "dropped"

READING, WRITING = 0, 1

# In a group with its documents, so that one without documents is a group too.
GROUP_MARK = (-1, b"", b"")

Payload = tuple[bytes, bytes, bytes]


def tokenize(
    numbered_chunk: tuple[int, Chunk],
    vocabulary: Vocabulary,
    do_lower_case: bool,
    deduplicate: str,
) -> Iterator[Any]:
    """Yields a chunk's documents and its summary, or what is wrong with it.

    Where repeated documents are dropped each is `(digest, (place, payload))`; where
    paragraphs are, their `(digest, (chunk, document, paragraph))` are yielded too.
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
    tokenizer = ChunkTokenizer(vocabulary, do_lower_case, deduplicate)
    for part in tokenizer.parts(read_chunk(chunk, tokenizer.dropped)):
        payloads = _payloads(part, np.dtype(tokenizer.dtype).itemsize)
        paragraph_digests = _digests(part.paragraph_digests)
        document_digests = _digests(part.document_digests)
        for number, payload in enumerate(payloads, tokenizer.num_documents):
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
    summary = dataclasses.asdict(tokenizer.summary())
    yield TaggedOutput(SUMMARIES, (index, summary))


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
    """Yields a document if its tokens have at least that many bytes."""
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
    # Beam gives a bundle of groups to a worker again if it has lost another one.
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
    """Records the pipeline's outcome, for the program that launched it."""
    outcome = {
        "chunks": [
            summary for _, summary in sorted(summaries, key=lambda item: item[0])
        ],
        "problems": sorted(problems),
        "counts": dict(counts),
    }
    files.write_atomically(path, json.dumps(outcome))


# Next to the counts of what was dropped: documents or paragraphs seen first.
FIRST_OCCURRENCES = "first occurrences"


def lay_out(
    pipeline: beam.Pipeline,
    record_set: RecordSet,
    jobs: Mapping[int, ShardJob],
    outcome_path: str,
) -> None:
    """Adds all steps, up to the record files and the file of the outcome."""
    manifest, vocabulary = record_set.manifest, record_set.vocabulary
    read = (
        pipeline
        | "Chunks" >> beam.Create(list(enumerate(map(_absolute, record_set.chunks))))
        | "SpreadChunks" >> beam.Reshuffle()
        | "Tokenize"
        >> beam.FlatMap(
            tokenize,
            vocabulary,
            manifest.do_lower_case,
            manifest.deduplicate,
        ).with_outputs(
            SUMMARIES,
            PROBLEMS,
            PARAGRAPH_PLACES,
            main="documents",
        )
    )
    summaries, problems = read[SUMMARIES], read[PROBLEMS]
    documents, counted = _keep(read["documents"], read[PARAGRAPH_PLACES], manifest)
    numbers = (
        summaries
        | "NumDocuments" >> beam.Map(_num_documents)
        | "AllNumDocuments" >> beam.combiners.ToList()
        | "FirstNumbers" >> beam.Map(first_numbers)
    )
    dealt = documents | "Deal" >> beam.FlatMap(
        to_group,
        AsSingleton(numbers),
        num_groups=len(record_set.output_files),
        wanted=frozenset(jobs),
    )
    marks = pipeline | "Groups" >> beam.Create([(group, GROUP_MARK) for group in jobs])
    unwritten = (
        (dealt, marks)
        | "DocumentsAndMarks" >> beam.Flatten()
        | "Group" >> beam.GroupByKey()
        | "Write" >> beam.FlatMap(write, dict(jobs), vocabulary, AsList(problems))
    )
    all_problems = (problems, unwritten) | "AllProblems" >> beam.Flatten()
    counts = (
        counted
        | "Counted" >> beam.Flatten(pipeline=pipeline)
        | "Count" >> beam.combiners.Count.PerElement()
    )
    _ = (
        pipeline
        | "Once" >> beam.Create([None])
        | "Outcome"
        >> beam.Map(
            write_outcome,
            outcome_path,
            AsList(summaries),
            AsList(all_problems),
            AsList(counts),
        )
    )


def _keep(
    documents: Any, paragraph_places: Any, manifest: Manifest
) -> tuple[Any, tuple[Any, ...]]:
    """The documents that are kept, the first of repeated ones, and names to count.

    Digests are combined before they are shuffled, so that a text that is repeated a
    million times is no burden for a single worker.
    """
    token_type = np.dtype(token_dtype(manifest.vocab_size))
    counted: tuple[Any, ...] = ()
    if manifest.deduplicate == DOCUMENTS:
        documents = firsts = (
            documents
            | "FirstDocuments" >> beam.CombinePerKey(min)
            | "WithoutDigests" >> beam.Values()
        )
        counted += (firsts | "NameFirsts" >> beam.Map(_first_occurrence),)
    elif manifest.deduplicate == PARAGRAPHS:
        firsts = (
            paragraph_places
            | "FirstParagraphs" >> beam.CombinePerKey(min)
            | "WithoutDigests" >> beam.Values()
        )
        counted += (firsts | "NameFirsts" >> beam.Map(_first_occurrence),)
        joined = (
            {"documents": documents, "kept": firsts | beam.Map(_by_document)}
            | "DocumentsAndKept" >> beam.CoGroupByKey()
            | "KeepParagraphs"
            >> beam.FlatMap(keep_paragraphs, token_type.name).with_outputs(
                DROPPED, main="documents"
            )
        )
        documents = joined["documents"]
        counted += (joined[DROPPED],)
    if manifest.min_document_tokens:
        long_enough = documents | "DropShort" >> beam.FlatMap(
            drop_short, manifest.min_document_tokens * token_type.itemsize
        ).with_outputs(DROPPED, main="documents")
        documents = long_enough["documents"]
        counted += (long_enough[DROPPED],)
    return documents, counted


def _first_occurrence(_: Any) -> str:
    return FIRST_OCCURRENCES


def _by_document(place: tuple[int, int, int]) -> tuple[tuple[int, int], int]:
    index, number, paragraph = place
    return (index, number), paragraph


def _num_documents(summary: tuple[int, dict[str, Any]]) -> tuple[int, int]:
    return summary[0], summary[1]["num_documents"]


def _absolute(chunk: Chunk) -> Chunk:
    """The path of a chunk, valid in a worker's own working directory."""
    if not isinstance(chunk.source, FileSource):
        return chunk
    path = files.absolute(chunk.source.path)
    return dataclasses.replace(
        chunk, source=dataclasses.replace(chunk.source, path=path)
    )


def create_records_on_beam(
    chunks: Sequence[Chunk],
    output_files: Sequence[str],
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    *,
    runner: str,
    num_shards: int,
    beam_options: Sequence[str] = (),
    do_lower_case: bool = True,
    deduplicate: str = NO_DEDUPLICATION,
    min_document_tokens: int = 0,
    overwrite: bool = False,
) -> Manifest:
    """Writes what `create_pretraining_records` writes for `num_shards`, with Beam.

    Unlike there, an overwritten set is removed before the text is read.
    """
    pipeline = _pipeline(runner, beam_options)
    record_set = plan_record_set(
        chunks,
        output_files,
        vocabulary,
        settings,
        do_lower_case=do_lower_case,
        num_shards=num_shards,
        deduplicate=deduplicate,
        min_document_tokens=min_document_tokens,
        num_workers=available_cores(),
    )
    if not overwrite and (finished := record_set.find_finished()):
        return finished
    folder = _open_folder(record_set)
    outcome_path = os.path.join(folder, "outcome.json")
    jobs = [
        ShardJob(
            work_folder=folder,
            group=group,
            num_groups=num_shards,
            path=files.absolute(path),
            vocab_file=files.absolute(record_set.manifest.vocab_path),
            settings=shard_settings,
        )
        for group, path, shard_settings in record_set.shard_settings()
    ]
    unfinished = {job.group: job for job in jobs if finished_shard(job) is None}
    if len(unfinished) < len(jobs):
        logging.info(
            "%d of %d shards are finished already; going on with the others",
            len(jobs) - len(unfinished),
            len(jobs),
        )
    if files.exists(outcome_path):
        files.remove(outcome_path)
    logging.info("Running on %s", runner)
    lay_out(pipeline, record_set, unfinished, outcome_path)
    state = pipeline.run().wait_until_finish()
    if state not in (None, PipelineState.DONE):
        raise ChildProcessError(f"{runner} ended with {state}; its log says why.")
    outcome = _read_outcome(outcome_path)
    tokenized = _check_outcome(record_set, folder, outcome)
    results = [_result(job) for job in jobs]
    dropped = _dropped(record_set.manifest, tokenized, outcome["counts"])
    manifest = record_set.complete(tokenized, dropped, results)
    files.remove(folder)
    for job in jobs:
        remove_leftovers(job.path)
    return manifest


def _pipeline(runner: str, beam_options: Sequence[str]) -> beam.Pipeline:
    complaint = io.StringIO()
    try:
        # Beam's parser prints its usage, of several hundred lines, and exits.
        with contextlib.redirect_stderr(complaint):
            options = PipelineOptions(list(beam_options), runner=runner)
            options.get_all_options()
    except SystemExit as error:
        reason = complaint.getvalue().rstrip().rpartition("error: ")[2]
        raise InputError(f"--beam_option: {reason}") from error
    try:
        return beam.Pipeline(options=options)
    except (ValueError, ImportError) as error:
        raise InputError(f"--runner={runner}: {error}") from error


def _open_folder(record_set: RecordSet) -> str:
    """Takes the set's names, and returns the folder of its results."""
    parent, base = os.path.split(files.absolute(record_set.name))
    identity = json.dumps(record_set.identity, sort_keys=True).encode()
    prefix = os.path.join(parent, f".{base}.beam-")
    folder = prefix + files.sha256(identity)[:16]
    files.make_folder(parent)
    record_set.announce()
    for other in files.glob(glob.escape(prefix) + "*"):
        if other.rstrip("/") != folder:
            files.remove(other)
    if not files.exists(folder):
        # Existing files of these names are another set's, not this one's.
        for path in filter(files.exists, record_set.output_files):
            files.remove(path)
        files.make_folder(folder)
    return folder


def _read_outcome(path: str) -> dict[str, Any]:
    if not files.exists(path):
        raise _not_seen(path)
    return files.read_json(path, "outcome of the pipeline")


def _result(job: ShardJob) -> ShardResult:
    result = finished_shard(job)
    if result is None:
        raise _not_seen(job.path)
    return result


def _not_seen(path: str) -> InputError:
    return InputError(
        f"--output_file: the workers have written {path}, and it is not to be seen "
        "here; name a folder that all machines share."
    )


def _check_outcome(
    record_set: RecordSet, folder: str, outcome: dict[str, Any]
) -> list[TokenizedChunk]:
    """What was read; raises an error for problems that the workers found."""
    try:
        _refuse(outcome["problems"], READING)
        tokenized = [TokenizedChunk(**summary) for summary in outcome["chunks"]]
        record_set.check_read(tokenized)
        _refuse(outcome["problems"], WRITING)
    except InputError:
        if not any(map(files.exists, record_set.output_files)):
            # Nothing was written: the same names may be used for the corrected text.
            manifest = record_set.manifest
            for path in (manifest.path, manifest.vocab_path, folder):
                files.remove(path)
        raise
    return tokenized


def _refuse(problems: Sequence[tuple[int, int, str]], refused_step: int) -> None:
    messages = [message for step, _, message in problems if step == refused_step]
    if messages:
        more = f" ({len(messages) - 1} more like this.)" if messages[1:] else ""
        raise InputError(messages[0] + more)


def _dropped(
    manifest: Manifest, tokenized: Sequence[TokenizedChunk], counts: dict[str, int]
) -> Counter[str]:
    """What was left out after reading, by reason."""
    dropped = Counter(counts)
    num_firsts = dropped.pop(FIRST_OCCURRENCES, 0)
    if manifest.deduplicate == DOCUMENTS:
        num_documents = sum(chunk.num_documents for chunk in tokenized)
        dropped[REPEATED_DOCUMENTS] = num_documents - num_firsts
    elif manifest.deduplicate == PARAGRAPHS:
        num_paragraphs = sum(chunk.num_paragraphs for chunk in tokenized)
        dropped[REPEATED_PARAGRAPHS] = num_paragraphs - num_firsts
    return +dropped
