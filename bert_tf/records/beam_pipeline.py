"""The pipeline that `records.beam` runs: which step follows which."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton

from bert_tf import files
from bert_tf.instances.pairs import token_dtype
from bert_tf.records import beam_steps
from bert_tf.records.generation import ShardJob
from bert_tf.records.manifest import Manifest
from bert_tf.records.record_sets import RecordSet
from bert_tf.text.documents import Chunk, FileSource
from bert_tf.text.tokenized import DOCUMENTS, PARAGRAPHS

# Beside the counts of what was dropped: documents or paragraphs that come up first.
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
            beam_steps.tokenize,
            vocabulary,
            manifest.do_lower_case,
            manifest.deduplicate,
        ).with_outputs(
            beam_steps.SUMMARIES,
            beam_steps.PROBLEMS,
            beam_steps.PARAGRAPH_PLACES,
            main="documents",
        )
    )
    summaries, problems = read[beam_steps.SUMMARIES], read[beam_steps.PROBLEMS]
    documents, counted = _keep(
        read["documents"], read[beam_steps.PARAGRAPH_PLACES], manifest
    )
    numbers = (
        summaries
        | "NumDocuments" >> beam.Map(_num_documents)
        | "AllNumDocuments" >> beam.combiners.ToList()
        | "FirstNumbers" >> beam.Map(beam_steps.first_numbers)
    )
    dealt = documents | "Deal" >> beam.FlatMap(
        beam_steps.to_group,
        AsSingleton(numbers),
        num_groups=len(record_set.output_files),
        wanted=frozenset(jobs),
    )
    marks = pipeline | "Groups" >> beam.Create(
        [(group, beam_steps.GROUP_MARK) for group in jobs]
    )
    unwritten = (
        (dealt, marks)
        | "DocumentsAndMarks" >> beam.Flatten()
        | "Group" >> beam.GroupByKey()
        | "Write"
        >> beam.FlatMap(beam_steps.write, dict(jobs), vocabulary, AsList(problems))
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
            beam_steps.write_outcome,
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

    Digests are combined before they are shuffled, so that a text that comes a million
    times is no burden for the worker that it falls to.
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
            >> beam.FlatMap(beam_steps.keep_paragraphs, token_type.name).with_outputs(
                beam_steps.DROPPED, main="documents"
            )
        )
        documents = joined["documents"]
        counted += (joined[beam_steps.DROPPED],)
    if manifest.min_document_tokens:
        long_enough = documents | "DropShort" >> beam.FlatMap(
            beam_steps.drop_short, manifest.min_document_tokens * token_type.itemsize
        ).with_outputs(beam_steps.DROPPED, main="documents")
        documents = long_enough["documents"]
        counted += (long_enough[beam_steps.DROPPED],)
    return documents, counted


def _first_occurrence(_: Any) -> str:
    return FIRST_OCCURRENCES


def _by_document(place: tuple[int, int, int]) -> tuple[tuple[int, int], int]:
    index, number, paragraph = place
    return (index, number), paragraph


def _num_documents(summary: tuple[int, dict[str, Any]]) -> tuple[int, int]:
    return summary[0], summary[1]["num_documents"]


def _absolute(chunk: Chunk) -> Chunk:
    """The chunk under a path that is right in a worker's own working directory."""
    if not isinstance(chunk.source, FileSource):
        return chunk
    path = files.absolute(chunk.source.path)
    return dataclasses.replace(
        chunk, source=dataclasses.replace(chunk.source, path=path)
    )
