"""Pre-training records by Apache Beam: the files of a local run, made on a cluster.

    chunks -> tokenize -> parts -> pieces by group -> one record file per group
                       -> outlines -> which texts are kept

Beam runs the functions of the local way. The machines share no disk except that of the
records: tokens travel in Beam's own shuffle, as bytes, and each group's record file is
made as a whole by one worker. So the files are the same, byte for byte. One worker
finds the repeated texts, in memory.

Next to the records, in `.NAME.beam-HASH`, each worker writes a note about a finished
file, and the last step the outcome of all; the hash covers everything the files depend
on. The same command again makes only the missing files, after tokenizing the text once
more. Two workers may make a file at once: both write the same bytes under different
temporary names, and either may take the name last.

A user error is an output too, a problem `(step, number, message)`: Beam would retry
after an exception, and print pages of traceback.
"""

import contextlib
import dataclasses
import glob
import io
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

from bert_tf.addons.corpora.filtering import Outline, choose_texts, outline
from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.instances.creation import token_dtype
from bert_tf.records.manifest import Manifest
from bert_tf.records.record_sets import RecordSet, ShardJob, ShardResult
from bert_tf.records.tokenized_corpus import (
    Piece,
    TokenizedChunk,
    assembled,
    select,
    tokenized_parts,
)
from bert_tf.records.writing import remove_leftovers
from bert_tf.text.documents import Chunk, FileSource
from bert_tf.text.vocabulary import Vocabulary

# Outputs in addition to the parts.
SUMMARIES = "summaries"
OUTLINES = "outlines"
PROBLEMS = "problems"

READING, WRITING = 0, 1

# A part's place: its chunk, and the number of its first document in the chunk.
Place = tuple[int, int]
Arrays = tuple[np.ndarray, ...]
Problem = tuple[int, int, str]

# In a group with its pieces, so that one without documents is a group too.
SENTINEL: tuple[Place, Arrays] = ((-1, 0), ())


def tokenize(
    numbered_chunk: tuple[int, Chunk], vocabulary: Vocabulary, manifest: Manifest
) -> Iterator[Any]:
    """Yields a chunk's parts, outlines and summary, or its problem."""
    index, chunk = numbered_chunk
    summary = TokenizedChunk()
    number = 0
    try:
        for part in tokenized_parts(chunk, vocabulary, manifest.of_text, summary):
            place = (index, number)
            number += len(part.document_lengths)
            yield place, part[:4]
            if manifest.is_filtered:
                yield TaggedOutput(OUTLINES, (place, outline(*part[1:])))
    except InputError as error:
        yield TaggedOutput(PROBLEMS, (READING, index, str(error)))
    except FileNotFoundError as error:
        message = f"`input_file`: {error.filename} is not there for a worker."
        yield TaggedOutput(PROBLEMS, (READING, index, message))
    else:
        yield TaggedOutput(SUMMARIES, (index, dataclasses.asdict(summary)))


def first_numbers(summaries: Iterable[tuple[int, dict[str, Any]]]) -> dict[int, int]:
    """Returns the number of each chunk's first document within the whole text."""
    number, numbers = 0, {}
    for index, summary in sorted(summaries, key=lambda item: item[0]):
        numbers[index] = number
        number += summary["num_documents"]
    return numbers


def choose(
    outlines: Sequence[tuple[Place, Outline]], manifest: Manifest
) -> tuple[dict[Place, np.ndarray], dict[str, int]]:
    """Returns which texts of each part are kept, and counts of the dropped ones."""
    if not outlines:
        return {}, {}
    places, in_order = zip(*sorted(outlines, key=lambda one: one[0]), strict=True)
    kept, dropped = choose_texts(
        in_order, manifest.deduplicate, manifest.min_document_tokens
    )
    return dict(zip(places, kept, strict=True)), dict(dropped)


def partition(
    part: tuple[Place, Arrays],
    numbers: Mapping[int, int],
    choice: tuple[Mapping[Place, np.ndarray], Mapping[str, int]],
    num_groups: int,
    wanted: frozenset[int],
) -> Iterator[tuple[int, tuple[Place, Arrays]]]:
    """Yields each group's documents of a part."""
    place, (tokens, sentences, documents, texts) = part
    kept = np.repeat(choice[0][place], texts) if place in choice[0] else None
    # A chunk with a problem has parts but no summary; nothing is written then.
    number = numbers.get(place[0], 0) + place[1]
    for first in range(min(num_groups, len(documents))):
        group = (number + first) % num_groups
        if group in wanted:
            piece = select(tokens, sentences, documents, kept, first, num_groups)
            if len(piece.document_lengths):
                yield group, (place, tuple(piece))


def write(
    group: tuple[int, Iterable[tuple[Place, Arrays]]],
    jobs: Mapping[int, ShardJob],
    vocabulary: Vocabulary,
    problems: Sequence[Problem],
) -> Iterator[Problem]:
    """Makes a group's record file, or yields the problem that prevents it."""
    number, members = group
    job = jobs[number]
    # Beam gives a bundle of groups to a worker again if it has lost another one.
    if problems or job.finished() is not None:
        return
    in_order = sorted(members, key=lambda member: member[0])[1:]  # without the sentinel
    pieces = [(Piece(*arrays), False) for _, arrays in in_order]
    try:
        job.write(
            assembled(pieces, token_dtype(len(vocabulary))),
            vocabulary,
            is_alone=False,
        )
    except InputError as error:
        yield WRITING, number, str(error)


def write_outcome(
    _: None,
    path: str,
    summaries: Sequence[tuple[int, dict[str, Any]]],
    problems: Sequence[Problem],
    choice: tuple[Mapping[Place, np.ndarray], Mapping[str, int]],
) -> None:
    """Records the pipeline's outcome, for the program that launched it."""
    in_order = sorted(summaries, key=lambda item: item[0])
    outcome = {
        "chunks": [summary for _, summary in in_order],
        "problems": sorted(problems),
        "dropped": choice[1],
    }
    files.write_atomically(path, json.dumps(outcome))


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
        >> beam.FlatMap(tokenize, vocabulary, manifest).with_outputs(
            SUMMARIES, OUTLINES, PROBLEMS, main="parts"
        )
    )
    numbers = (
        read[SUMMARIES]
        | "AllSummaries" >> beam.combiners.ToList()
        | "FirstNumbers" >> beam.Map(first_numbers)
    )
    choice = (
        read[OUTLINES]
        | "AllOutlines" >> beam.combiners.ToList()
        | "Choose" >> beam.Map(choose, manifest)
    )
    partitioned = read["parts"] | "Partition" >> beam.FlatMap(
        partition,
        AsSingleton(numbers),
        AsSingleton(choice),
        num_groups=len(record_set.output_files),
        wanted=frozenset(jobs),
    )
    sentinels = pipeline | "Groups" >> beam.Create(
        [(group, SENTINEL) for group in jobs]
    )
    unwritten = (
        (partitioned, sentinels)
        | "PiecesAndSentinels" >> beam.Flatten()
        | "Group" >> beam.GroupByKey()
        | "Write" >> beam.FlatMap(write, dict(jobs), vocabulary, AsList(read[PROBLEMS]))
    )
    problems = (read[PROBLEMS], unwritten) | "AllProblems" >> beam.Flatten()
    _ = (
        pipeline
        | "Once" >> beam.Create([None])
        | "Outcome"
        >> beam.Map(
            write_outcome,
            outcome_path,
            AsList(read[SUMMARIES]),
            AsList(problems),
            AsSingleton(choice),
        )
    )


def _absolute(chunk: Chunk) -> Chunk:
    """Returns a chunk whose path is valid in any working directory."""
    if not isinstance(chunk.source, FileSource):
        return chunk
    path = files.absolute(chunk.source.path)
    return dataclasses.replace(
        chunk, source=dataclasses.replace(chunk.source, path=path)
    )


def create_records_on_beam(
    record_set: RecordSet,
    *,
    runner: str,
    beam_options: Sequence[str] = (),
    overwrite: bool = False,
) -> Manifest:
    """Writes with Beam the same files as `create_records`."""
    pipeline = _pipeline(runner, beam_options)
    if not overwrite and (finished := record_set.find_finished()):
        return finished
    folder = _open_folder(record_set)
    outcome_path = os.path.join(folder, "outcome.json")
    jobs = record_set.jobs(folder)
    unfinished = {job.group: job for job in jobs if job.finished() is None}
    if files.exists(outcome_path):
        files.remove(outcome_path)
    logging.info("Running on %s", runner)
    lay_out(pipeline, record_set, unfinished, outcome_path)
    state = pipeline.run().wait_until_finish()
    if state not in (None, PipelineState.DONE):
        raise ChildProcessError(f"{runner} ended with {state}; its log says why.")
    if not files.exists(outcome_path):
        raise _not_seen(outcome_path)
    outcome = files.read_json(outcome_path, "outcome of the pipeline")
    tokenized = _check_outcome(record_set, folder, outcome)
    dropped: Counter[str] = Counter(outcome["dropped"])
    manifest = record_set.complete(tokenized, dropped, list(_results(jobs)))
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
        raise InputError(f"`beam_option`: {reason}") from error
    try:
        return beam.Pipeline(options=options)
    except (ValueError, ImportError) as error:
        raise InputError(f"`runner={runner}`: {error}") from error


def _open_folder(record_set: RecordSet) -> str:
    """Reserves the set's names, and returns the folder of its results."""
    parent, base = os.path.split(files.absolute(record_set.name))
    prefix = os.path.join(parent, f".{base}.beam-")
    folder = prefix + record_set.identity[:16]
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


def _results(jobs: Sequence[ShardJob]) -> Iterator[ShardResult]:
    for job in jobs:
        if (result := job.finished()) is None:
            raise _not_seen(job.path)
        yield result


def _not_seen(path: str) -> InputError:
    return InputError(
        f"`output_file`: the workers have written {path}, which is not visible here;"
        " give a folder that all machines share."
    )


def _check_outcome(
    record_set: RecordSet, folder: str, outcome: dict[str, Any]
) -> list[TokenizedChunk]:
    """Returns the counts of the text; raises an error for problems of the workers."""
    tokenized = [TokenizedChunk(**summary) for summary in outcome["chunks"]]
    try:
        for step in (READING, WRITING):
            messages = [text for at, _, text in outcome["problems"] if at == step]
            if messages:
                more = f" ({len(messages) - 1} more like this.)" if messages[1:] else ""
                raise InputError(messages[0] + more)
            if step == READING:
                record_set.check_read(tokenized)
    except InputError:
        if not any(map(files.exists, record_set.output_files)):
            # Nothing was written: the same names may be used for the corrected text.
            manifest = record_set.manifest
            for path in (manifest.path, manifest.vocab_path, folder):
                files.remove(path)
        raise
    return tokenized
