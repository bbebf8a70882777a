"""Tokenized documents to a finished set of record files, with its manifest.

1. `plan_record_set` checks the arguments and builds the manifest without the counts;
   `RecordSet.find_finished` checks existing files with the set's names;
2. the text is cut into chunks, each of which is tokenized on any core;
3. `RecordSet.announce` writes a manifest that is not "complete", and the vocabulary:
   from here on the names are the set's;
4. the documents become masked pairs and records: as one pool with one random stream,
   dealt to the files in turn (the original's way), or dealt into groups, each with a
   random stream and a file of its own. A file gets its name when it is complete;
5. `RecordSet.complete` makes the manifest "complete", with a report.

If the command is killed, running it again ends with the same set.
"""

import dataclasses
import functools
import hashlib
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging
from tqdm import tqdm

from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.finished import FinishedResults, digest
from bert_tf.base.parallel import Workers, ordered_map
from bert_tf.instances.creation import (
    Documents,
    Instances,
    create_instances,
    log_compilation,
)
from bert_tf.instances.masking import warn_if_few
from bert_tf.instances.settings import NEXT_SENTENCE, STATIC_MASKING, InstanceSettings
from bert_tf.records.manifest import (
    Manifest,
    Shard,
    SourceFile,
    find_finished,
    manifest_path,
    relative_name,
)
from bert_tf.records.spec import RecordSpec
from bert_tf.records.statistics import RecordStatistics, row_figures
from bert_tf.records.tokenized_corpus import (
    TokenizedChunk,
    TokenizedCorpus,
    tokenize,
    work_folder,
    work_folder_path,
)
from bert_tf.records.writing import MANIFEST_SUFFIX, ShardWriter, remove_leftovers
from bert_tf.text.documents import (
    NEAR,
    NO_DEDUPLICATION,
    PARAGRAPHS,
    Chunk,
    Source,
    drop,
    dropped_lines,
)
from bert_tf.text.segmentation import NO_SEGMENTER, require_segmenter
from bert_tf.text.vocabulary import MANY_UNKNOWN, Vocabulary

# Incremented whenever the same text and settings would give other bytes, or other files
# in the work folder: no run may resume the work of an older bert_tf.
_WAY_OF_MAKING = 4

# Records serialized at a time, and their tokens at most: a few MB, which fit in
# the processor's cache.
_BLOCK = 1024
_BLOCK_TOKENS = 1 << 19

LONE_TOKENS = "documents' last sentences of a single token, of which no pair is made"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardResult:
    """The results of one finished record file, or of several."""

    num_records: list[int]  # by file
    num_bytes: list[int]  # by file
    num_documents: int = 0  # the documents that they were made from
    # Documents' last lone tokens, of which no exact pair can be made.
    num_left_out: int = 0
    num_cut: int = 0  # tokens that are in no record: see `Instances`
    statistics: RecordStatistics


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardJob:
    """A piece of work: one group of documents to one record file."""

    group: int  # the group's number
    num_groups: int
    path: str  # the record file
    settings: InstanceSettings  # with the group's own seed
    result_path: str  # holds the result until all are finished

    def finished(self) -> ShardResult | None:
        """Returns the result if the record file is finished."""
        if not files.exists(self.path):
            return None
        result = self._results().find("records", self.settings.as_flags())
        is_whole = result and result.num_bytes == [files.size(self.path)]
        return result if is_whole else None

    def write(
        self, documents: Documents, vocabulary: Vocabulary, *, is_alone: bool = True
    ) -> ShardResult:
        """Writes the record file of the group's documents. Returns the counts."""
        require_documents(documents, self.settings, f"The documents for {self.path}")
        instances = create_instances(documents, vocabulary, self.settings)
        with ShardWriter([self.path], is_alone=is_alone) as writer:
            result = write_instances(instances, writer, vocabulary, self.settings)
            if is_alone and files.exists(self.path):
                # An older file must not be mistaken for the result's.
                files.remove(self.path)
            # Saved before the file has its name: a file without a result is made again.
            self._results().keep("records", self.settings.as_flags(), result)
        return result

    def _results(self) -> FinishedResults[ShardResult]:
        return FinishedResults(self.result_path, ShardResult)


def write_shard(corpus: TokenizedCorpus, job: ShardJob) -> ShardResult:
    """Returns one group's result; writes its record file unless it is finished."""
    if finished := job.finished():
        return finished
    documents = corpus.documents(job.group, job.num_groups)
    return job.write(documents, corpus.vocabulary)


def require_documents(
    documents: Documents, settings: InstanceSettings, what: str
) -> None:
    """Raises InputError for too few documents."""
    num_documents = len(documents.document_starts) - 1
    least = settings.least_documents
    if num_documents < least:
        exact = ", for `nsp_labels=exact` takes random sentences from another one"
        raise InputError(
            f"{what} must be at least {least}{exact if least > 1 else ''}. Received:"
            f" {num_documents}. Give more text, or a smaller `num_shards` or "
            "`min_document_tokens`."
        )


def write_instances(
    instances: Instances,
    writer: ShardWriter,
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    progress: Callable[[int], object] = lambda _: None,
) -> ShardResult:
    """Writes instances to the writer's files, in turn. Returns the counts."""
    spec = RecordSpec.pretraining(
        settings.record_length,
        settings.max_predictions_per_record
        if settings.masking == STATIC_MASKING
        else None,
        settings.max_sequences_per_record if settings.packed_length else None,
    )
    statistics = RecordStatistics(
        max_seq_length=settings.max_seq_length, mask_id=vocabulary.mask_id
    )
    block_size = max(1, min(_BLOCK, _BLOCK_TOKENS // settings.record_length))
    for columns in instances.blocks(block_size):
        if not settings.packed_length:
            writer.write(spec.serialize_block(columns))
        statistics.add(columns)
        progress(len(columns["input_ids"]))
    if settings.packed_length:
        packed_blocks = addon("packing").packed_blocks
        for columns in packed_blocks(instances, settings, block_size):
            writer.write(spec.serialize_block(columns))
    writer.flush()
    return ShardResult(
        num_bytes=list(writer.num_bytes),
        num_records=list(writer.num_records),
        num_documents=instances.num_documents,
        num_left_out=instances.num_left_out,
        num_cut=instances.num_cut,
        statistics=statistics,
    )


@dataclasses.dataclass(frozen=True)
class RecordSet:
    """A set of records to be made."""

    chunks: Sequence[Chunk]  # the text
    output_files: Sequence[str]  # the record files
    vocabulary: Vocabulary  # of the tokens
    settings: InstanceSettings  # of the instances, with the whole set's seed
    manifest: Manifest  # as known before any record is made
    started: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        """The manifest's path without its suffix."""
        return self.manifest.path.removesuffix(MANIFEST_SUFFIX)

    @property
    def identity(self) -> str:
        """A digest of what the record files depend on, with the text's content."""
        return digest(
            [
                _WAY_OF_MAKING,
                self.manifest.nameless.to_json_string(),
                [(chunk.start, chunk.stop) for chunk in self.chunks],
                [files.absolute(path) for path in self.output_files],
            ]
        )

    def jobs(self, work_folder: str) -> list[ShardJob]:
        """Returns the work of a sharded set; logs how many shards are done."""
        jobs = []
        for group, shard in enumerate(self.manifest.shards):
            assert shard.random_seed is not None
            job = ShardJob(
                group=group,
                num_groups=len(self.output_files),
                path=files.absolute(self.output_files[group]),
                settings=dataclasses.replace(
                    self.settings, random_seed=shard.random_seed
                ),
                result_path=os.path.join(work_folder, f"shard-{group:05d}.json"),
            )
            jobs.append(job)
        if num_finished := sum(job.finished() is not None for job in jobs):
            logging.info(
                "%d of %d shards are finished already; making the others",
                num_finished,
                len(jobs),
            )
        return jobs

    def find_finished(self) -> Manifest | None:
        """Returns the same set if it was made before."""
        finished = find_finished(self.manifest, self.output_files)
        if finished:
            if not files.exists(finished.vocab_path):
                self.vocabulary.save(finished.vocab_path)
            logging.info(
                "All is done already: %d records in %d files, %s",
                finished.num_records,
                len(finished.shards),
                finished.path,
            )
        return finished

    def check_read(self, tokenized: Sequence[TokenizedChunk]) -> None:
        """Raises InputError if the text has no token; warns of too few slots."""
        if not any(chunk.num_tokens for chunk in tokenized):
            raise InputError(
                f"`input_file`: nothing in {self.chunks[0].source.path}"
                f"{' and the others' if len(self.chunks) > 1 else ''}: no line gives a"
                " token. Give a text."
            )
        if self.settings.masking == STATIC_MASKING:
            warn_if_few(
                self.settings.max_predictions_per_seq,
                self.settings.max_seq_length,
                self.settings.masked_lm_prob,
            )

    def announce(self, results: Sequence[ShardResult] = ()) -> None:
        """Writes the manifest: from here on the record files are this set's."""
        # Files of an overwritten set that the new set does not replace are removed.
        manifest = _with_counts(self.manifest, results) if results else self.manifest
        stale: set[str] = set()
        if files.exists(manifest.path):
            try:
                old = Manifest.from_json_file(manifest.path)
                stale = set(old.records_by_path()) - set(manifest.records_by_path())
            except InputError as error:
                logging.warning("%s It is replaced; its record files stay.", error)
        files.make_folder(os.path.dirname(manifest.path) or os.curdir)
        files.write_atomically(manifest.path, manifest.to_json_string())
        self.vocabulary.save(manifest.vocab_path)
        for path in filter(files.exists, stale):
            files.remove(path)

    def complete(
        self,
        tokenized: Sequence[TokenizedChunk],
        dropped: Counter[str],
        results: Sequence[ShardResult],
    ) -> Manifest:
        """Completes and returns the manifest once the record files have their names."""
        for chunk in tokenized:
            dropped.update(chunk.dropped)
        num_lone = sum(result.num_left_out for result in results)
        drop(dropped, LONE_TOKENS, num_lone, tokens=num_lone)
        statistics = results[0].statistics
        for other in results[1:]:
            statistics.merge(other.statistics)
        manifest = _with_counts(self.manifest, results)
        report: dict[str, Any] = {
            "read": {
                name: sum(getattr(chunk, f"num_{name}") for chunk in tokenized)
                for name in ("documents", "sentences", "tokens")
            },
            "unknown_tokens": sum(chunk.num_unknown for chunk in tokenized),
            "dropped": dict(sorted((+dropped).items())),
            "cut_tokens": sum(result.num_cut for result in results),
            "used_documents": sum(result.num_documents for result in results),
            "records": statistics.figures(),
        }
        if manifest.packed:
            report["rows"] = row_figures(
                statistics, manifest.num_records, max_seq_length=manifest.max_seq_length
            )
        manifest = dataclasses.replace(manifest, complete=True, report=report)
        files.write_atomically(manifest.path, manifest.to_json_string())
        for path in (manifest.path, manifest.vocab_path):
            remove_leftovers(path)
        is_next = self.settings.pairs == NEXT_SENTENCE
        if is_next and report["used_documents"] == 1:
            logging.warning(
                "There is one document only: random next sentences come from the same"
                " document. Put a blank line between documents%s.",
                ", also at the end of a file: the next file continues its last document"
                if len(tokenized) > 1
                else "",
            )
        elif is_next and statistics.num_random_next > 0.9 * statistics.num_records:
            logging.warning(
                "%d of %d instances have a random next sentence: few documents have"
                " two sentences that fit together. Documents are separated by blank"
                " lines, sentences only by line ends.",
                *(statistics.num_random_next, statistics.num_records),
            )
        read = [f"{count:,} {name}" for name, count in report["read"].items()]
        logging.info("Read %s", ", ".join(read))
        self._say_what_is_unknown(report)
        for line in dropped_lines(report["dropped"]):
            logging.info("%s", line)
        self._say_what_was_cut(report)
        for line in statistics.lines():
            logging.info("%s", line)
        if rows := report.get("rows"):
            logging.info(
                "Packed %d sequences into %d rows; %.2f%% of all places are padding",
                rows["sequences"],
                rows["rows"],
                100 * rows["padding_share"],
            )
        logging.info(
            "Wrote %d records to %d file(s), %s (%.1f s)",
            manifest.num_records,
            len(manifest.shards),
            manifest.path,
            time.monotonic() - self.started,
        )
        return manifest

    def _say_what_is_unknown(self, report: Mapping[str, Any]) -> None:
        count, total = report["unknown_tokens"], report["read"]["tokens"]
        is_much = count > MANY_UNKNOWN * total
        advice = " Give a `vocab_file` of the text's language, and its `do_lower_case`."
        logging.log(
            logging.WARNING if is_much else logging.INFO,
            "%s of %s tokens read are [UNK] (%.2f%%).%s",
            *(f"{count:,}", f"{total:,}", 100 * count / total, advice * is_much),
        )

    def _say_what_was_cut(self, report: Mapping[str, Any]) -> None:
        num_cut, read = report["cut_tokens"], report["read"]
        if not num_cut:
            return
        mean_length = read["tokens"] / read["sentences"]
        is_long = mean_length > self.settings.max_seq_length
        question = (
            f" A line has {mean_length:.0f} tokens on average: is it a paragraph?"
            " `split_sentences` splits it."
        )
        logging.log(
            logging.WARNING if is_long else logging.INFO,
            "%s of %s tokens read are in no record (%.1f%%): a sequence of %d cuts"
            " longer sentences.%s",
            *(f"{num_cut:,}", f"{read['tokens']:,}", 100 * num_cut / read["tokens"]),
            *(self.settings.max_seq_length, question if is_long else ""),
        )


def _with_counts(wanted: Manifest, results: Sequence[ShardResult]) -> Manifest:
    """Returns the manifest with the files' counts of records and bytes."""
    records = [n for result in results for n in result.num_records]
    sizes = [n for result in results for n in result.num_bytes]
    shards = tuple(
        dataclasses.replace(shard, num_records=count, num_bytes=size)
        for shard, count, size in zip(wanted.shards, records, sizes, strict=True)
    )
    return dataclasses.replace(wanted, shards=shards)


def plan_record_set(
    chunks: Sequence[Chunk],
    output_files: Sequence[str],
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    *,
    do_lower_case: bool = True,
    segmenter: str = NO_SEGMENTER,
    num_shards: int | None = None,
    deduplicate: str = NO_DEDUPLICATION,
    min_document_tokens: int = 0,
    num_workers: int = 1,
) -> RecordSet:
    """Checks the arguments, and reads the input to identify it. Returns the plan."""
    if deduplicate == PARAGRAPHS and not all(chunk.language for chunk in chunks):
        raise InputError(
            "`deduplicate=paragraphs`: the lines of plain text are sentences, not "
            "paragraphs; give `deduplicate=documents`, or `split_sentences` if the "
            "lines are paragraphs."
        )
    if deduplicate == NEAR:
        addon("near_duplicates").require_hashes()
    require_segmenter(segmenter)
    if do_lower_case and vocabulary.has_upper_case:
        logging.warning(
            "`vocab_file` has capital letters, which lower-cased text never has: give"
            " `do_lower_case=false`, unless the model is to be uncased."
        )
    if num_shards is not None:
        if len(output_files) > 1:
            raise InputError(
                "`num_shards`: `output_file` must be one name, to which -00000-of-"
                f"{num_shards:05d} is added. Received: {len(output_files)}."
            )
        output_files = [
            f"{output_files[0]}-{shard:05d}-of-{num_shards:05d}"
            for shard in range(num_shards)
        ]
    _check_output_files(chunks, output_files)
    path = manifest_path(output_files)
    seeds = [
        None if num_shards is None else shard_seed(settings.random_seed, n, num_shards)
        for n in range(len(output_files))
    ]
    described = settings.as_flags()
    if described.pop("packed_length"):
        # The manifest has the lengths of a record, which is a row.
        described |= {
            "packed": True,
            "max_seq_length": settings.record_length,
            "max_predictions_per_seq": settings.max_predictions_per_record,
            "max_sequences_per_row": settings.max_sequences_per_record,
            "max_sequence_length": settings.max_seq_length,
            "max_predictions_per_sequence": settings.max_predictions_per_seq,
            "packing_seed": settings.random_seed,
        }
    manifest = Manifest(
        path=path,
        vocab_sha256=vocabulary.sha256,
        vocab_size=len(vocabulary),
        do_lower_case=do_lower_case,
        segmenter=segmenter,
        source_files=_describe_sources(chunks, num_workers),
        input_format="+".join(sorted({_format(chunk.source) for chunk in chunks})),
        encoding="+".join(sorted({chunk.source.encoding for chunk in chunks})),
        clean=chunks[0].source.clean,
        split_sentences="+".join(sorted({chunk.language for chunk in chunks} - {""})),
        deduplicate=deduplicate,
        min_document_tokens=min_document_tokens,
        shards=tuple(
            Shard(relative_name(name, path), 0, 0, seed)
            for name, seed in zip(output_files, seeds, strict=True)
        ),
        complete=False,
        **described,
    )
    return RecordSet(chunks, output_files, vocabulary, settings, manifest)


def shard_seed(random_seed: int, shard: int, num_shards: int) -> int:
    """Returns the seed of a shard's random stream, unique to each shard and set."""
    text = f"{random_seed} {shard} {num_shards}".encode()
    # 31 bits, so that the original's flag accepts it.
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1


def _check_output_files(chunks: Sequence[Chunk], output_files: Sequence[str]) -> None:
    """Raises InputError for outputs that would destroy each other or the input."""
    inputs = {chunk.source.path for chunk in chunks}
    taken = {files.identity(path): f"the input file {path}" for path in inputs}
    for path in output_files:
        if not path:
            raise InputError("`output_file`: a name between two commas is empty.")
        if files.is_folder(path):
            raise InputError(f"`output_file`: {path} is a folder; name a file in it.")
        if other := taken.get(files.identity(path)):
            raise InputError(f"`output_file`: {path} is also {other}. Give another.")
        taken[files.identity(path)] = f"the output file {path}"


def _describe_sources(
    chunks: Sequence[Chunk], num_workers: int
) -> tuple[SourceFile, ...]:
    sources = [source for source, _ in itertools.groupby(chunks, lambda c: c.source)]
    # Hashing is quicker than starting workers, unless there is much to hash.
    if sum(chunk.num_bytes for chunk in chunks) <= 1 << 30:
        num_workers = 1
    return tuple(ordered_map(_describe, sources, num_workers=num_workers))


def _describe(source: Source) -> SourceFile:
    if source.input_format == "tfds":
        of_split: Any = source  # its subclass, which has a digest of its own
        return SourceFile(path=source.path, num_bytes=0, sha256=of_split.sha256)
    return SourceFile.describe(source.path)


def _format(source: Source) -> str:
    field = "" if source.text_field == "text" else f":{source.text_field}"
    return source.input_format + field


def create_records(
    record_set: RecordSet,
    *,
    num_workers: int = 1,
    work_dir: str | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Writes the set on this machine, unless it is finished. Returns its manifest."""
    folder = work_folder_path(record_set.name, record_set.identity, work_dir)
    if not overwrite and (finished := record_set.find_finished()):
        # A run may have been killed when only the folder was left to remove.
        if os.path.isdir(folder):
            with work_folder(folder):
                pass
        return finished
    most_pieces = max(len(record_set.chunks), len(record_set.output_files))
    with work_folder(folder), Workers(min(num_workers, most_pieces)) as workers:
        return _create(record_set, folder, workers)


def _create(record_set: RecordSet, folder: str, workers: Workers) -> Manifest:
    """Writes the set, with a work folder for its progress. Returns its manifest."""
    manifest, vocabulary = record_set.manifest, record_set.vocabulary
    corpus = tokenize(record_set.chunks, vocabulary, manifest.of_text, folder, workers)
    record_set.check_read(corpus.chunks)
    dropped: Counter[str] = Counter()
    if manifest.is_filtered:
        dropped = corpus.choose_sentences(
            deduplicate=manifest.deduplicate,
            min_document_tokens=manifest.min_document_tokens,
        )
    log_compilation()
    if manifest.shards[0].random_seed is not None:
        made = _write_shards(corpus, record_set, workers)
    else:
        made = [_write_pool(corpus, record_set)]
    return record_set.complete(corpus.chunks, dropped, made)


def _write_pool(corpus: TokenizedCorpus, record_set: RecordSet) -> ShardResult:
    """Writes one pool, as the original does: one stream, records dealt to the files."""
    settings, vocabulary = record_set.settings, record_set.vocabulary
    documents = corpus.documents(joins_files=not record_set.manifest.is_filtered)
    require_documents(documents, settings, "The documents")
    total = settings.dupe_factor * (len(documents.document_starts) - 1)
    with tqdm(total=total, desc="Masking", unit=" documents", disable=None) as bar:
        instances = create_instances(documents, vocabulary, settings, bar.update)
    del documents
    bar = tqdm(total=len(instances), desc="Writing", unit=" records", disable=None)
    with bar, ShardWriter(record_set.output_files) as writer:
        result = write_instances(instances, writer, vocabulary, settings, bar.update)
        record_set.announce([result])
    return result


def _write_shards(
    corpus: TokenizedCorpus, record_set: RecordSet, workers: Workers
) -> list[ShardResult]:
    """Writes one file per group, each with a random stream of its own, on any core."""
    num_shards = len(record_set.output_files)
    least = num_shards * record_set.settings.least_documents
    num_documents = sum(chunk.num_documents for chunk in corpus.chunks)
    if num_documents < least:
        raise InputError(
            f"`num_shards={num_shards}` takes {least} documents or more. Received:"
            f" {num_documents}. Give a smaller `num_shards`, or more text."
        )
    record_set.announce()
    jobs = record_set.jobs(corpus.work_folder)
    results = workers.map(functools.partial(write_shard, corpus), jobs)
    return list(
        tqdm(results, total=len(jobs), desc="Writing", unit=" shards", disable=None)
    )
