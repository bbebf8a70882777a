"""Tokenized documents to a finished set of record files, with its manifest."""

import dataclasses
import hashlib
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging
from tqdm import tqdm

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.finished import FinishedResults
from bert_tf.instances.creation import (
    Instances,
    TokenIds,
    create_instances,
    say_if_to_be_compiled,
)
from bert_tf.instances.masking import num_predictions
from bert_tf.instances.pairs import Documents, token_dtype
from bert_tf.instances.settings import NEXT_SENTENCE, STATIC_MASKING, InstanceSettings
from bert_tf.parallel import Workers, ordered_map
from bert_tf.records import tokenized_corpus
from bert_tf.records.manifest import (
    MANIFEST_SUFFIX,
    Manifest,
    Shard,
    SourceFile,
    find_finished,
    manifest_path,
    relative_name,
)
from bert_tf.records.packing import packed_blocks
from bert_tf.records.spec import RecordSpec
from bert_tf.records.statistics import RecordStatistics, row_figures
from bert_tf.records.tokenized_corpus import (
    DEDUPLICATION,
    NO_DEDUPLICATION,
    PARAGRAPHS,
    TokenizedChunk,
    TokenizedCorpus,
    TokenizeJob,
    hold_work_folder,
    open_work_folder,
    remove_finished,
    tokenize_chunk,
    work_folder_path,
)
from bert_tf.records.writing import ShardWriter, remove_leftovers
from bert_tf.text.documents import Chunk, DatasetSource
from bert_tf.text.vocabulary import Vocabulary

# Records serialized at a time, and their tokens at most: a few MB, which fit in
# the processor's cache.
_BLOCK = 1024
_BLOCK_TOKENS = 1 << 19

# The name of a record file's result among the kept ones.
_SHARD = "records"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardResult:
    """The results of one finished record file, or of several."""

    num_records: list[int]  # by file
    num_bytes: list[int]  # by file
    num_documents: int = 0  # the documents that they were made from
    # Documents' last lone tokens, of which no exact pair can be made.
    num_left_out: int = 0
    num_short_of_predictions: int = 0  # records with fewer predictions than their share
    statistics: dict[str, Any]  # `RecordStatistics.to_values()`


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardJob:
    """A piece of work: one group of documents to one record file."""

    work_folder: str  # of the tokenized corpus
    group: int  # the group's number
    num_groups: int  # how many groups there are
    path: str  # the record file
    vocab_file: str  # the vocabulary
    settings: InstanceSettings  # with the group's own seed

    @property
    def result_path(self) -> str:
        """The file that keeps the results until all are finished."""
        return os.path.join(self.work_folder, f"shard-{self.group:05d}.json")


def spec_of(settings: InstanceSettings) -> RecordSpec:
    """The features of a record."""
    return RecordSpec.pretraining(
        settings.record_length,
        settings.max_predictions_per_record
        if settings.masking == STATIC_MASKING
        else None,
        settings.max_sequences_per_record if settings.packed_length else None,
    )


def write_shard(job: ShardJob) -> ShardResult:
    """Makes one record file of one group, unless it is finished."""
    finished = finished_shard(job)
    if finished is not None:
        return finished
    corpus = TokenizedCorpus.load(job.work_folder)
    documents = corpus.group(job.group, job.num_groups)
    ids = TokenIds.from_vocabulary(Vocabulary.from_file(job.vocab_file).ids)
    return write_group(documents, ids, job.settings, job.path, job.result_path)


def write_group(
    documents: Documents,
    ids: TokenIds,
    settings: InstanceSettings,
    path: str,
    result_path: str,
    *,
    is_alone: bool = True,
) -> ShardResult:
    """Makes one record file of some documents."""
    require_documents(documents, settings, f"The documents for {path}")
    instances = create_instances(documents, ids, settings)
    with ShardWriter([path], is_alone=is_alone) as writer:
        result = write_instances(instances, writer, ids, settings)
        if is_alone and files.exists(path):
            # One to be replaced: it must not be mistaken for the result's.
            files.remove(path)
        # Before the file gets its name: one without a result is made again.
        _kept(result_path).keep(_SHARD, dataclasses.asdict(settings), result)
    return result


def finished_shard(job: ShardJob) -> ShardResult | None:
    """The results of the job's record file, if it is finished."""
    if not files.exists(job.path):
        return None
    result = _kept(job.result_path).find(_SHARD, dataclasses.asdict(job.settings))
    return result if result and result.num_bytes == [files.size(job.path)] else None


def _kept(result_path: str) -> FinishedResults[ShardResult]:
    return FinishedResults(result_path, ShardResult)


def require_documents(
    documents: Documents, settings: InstanceSettings, what: str
) -> None:
    """Raises InputError for too few documents."""
    num_documents = len(documents.document_starts) - 1
    if num_documents < settings.least_documents:
        raise InputError(
            f"{what} must be at least {settings.least_documents}"
            + (
                ", for --nsp_labels=exact takes random sentences from another one"
                if settings.least_documents > 1
                else ""
            )
            + f". Found: {num_documents}. Give more text, or a smaller --num_shards or "
            "--min_document_tokens."
        )


def write_instances(
    instances: Instances,
    writer: ShardWriter,
    ids: TokenIds,
    settings: InstanceSettings,
    progress: Callable[[int], object] = lambda _: None,
) -> ShardResult:
    """Writes instances to the writer's files, in turn, and closes them."""
    spec = spec_of(settings)
    statistics = RecordStatistics(
        max_seq_length=settings.max_seq_length, mask_id=ids.mask_id
    )
    block_size = max(1, min(_BLOCK, _BLOCK_TOKENS // settings.record_length))
    for columns in instances.blocks(block_size):
        if not settings.packed_length:
            writer.write(spec.serialize_block(columns))
        statistics.add(columns)
        progress(len(columns["input_ids"]))
    if settings.packed_length:
        for columns in packed_blocks(instances, settings, block_size):
            writer.write(spec.serialize_block(columns))
    limit = settings.max_predictions_per_seq
    return ShardResult(
        num_bytes=writer.close(),
        num_records=list(writer.num_records),
        num_documents=instances.num_documents,
        num_left_out=instances.num_left_out,
        num_short_of_predictions=sum(
            count
            for length, count in instances.counts_by_length()
            if num_predictions(length, settings.masked_lm_prob, limit + 1) > limit
        ),
        statistics=statistics.to_values(),
    )


LONE_TOKENS = "documents' last sentences of a single token, of which no pair is made"

# No sentence is that long; a document on a single line may be.
_LONG_SENTENCE = 10_000


def merged_statistics(results: Sequence[ShardResult]) -> RecordStatistics:
    """The statistics of all shards."""
    first, *others = [
        RecordStatistics.from_values(result.statistics) for result in results
    ]
    for other in others:
        first.merge(other)
    return first


def log_report(report: Mapping[str, Any], statistics: RecordStatistics) -> None:
    """Logs what was read, dropped and written."""
    read = report["read"]
    logging.info(
        "Read %s documents, %s sentences, %s tokens",
        *(f"{read[name]:,}" for name in ("documents", "sentences", "tokens")),
    )
    if not report["dropped"]:
        logging.info("Dropped nothing")
    for reason, count in report["dropped"].items():
        logging.info("Dropped %s: %s", f"{count:,}", reason)
    for line in statistics.lines():
        logging.info("%s", line)
    if rows := report.get("rows"):
        logging.info(
            "Packed %s sequences into %s rows: %.2f a row; %.2f%% of all places are"
            " padding",
            f"{rows['sequences']:,}",
            f"{rows['rows']:,}",
            rows["sequences_per_row"],
            100 * rows["padding_share"],
        )


def warn_of_lengths(
    chunks: Sequence[TokenizedChunk], settings: InstanceSettings
) -> None:
    """Warns of lengths that are seldom meant, before records are made of them."""
    length = settings.max_seq_length
    longest = max(chunk.longest_sentence for chunk in chunks)
    if longest > max(_LONG_SENTENCE, length):
        logging.warning(
            "One line, or sentence, has %s tokens, and a record holds %d of it at most:"
            " the rest is cut off. In plain text a line is a sentence;"
            " --split_sentences splits lines.",
            f"{longest:,}",
            length,
        )
    full = num_predictions(length, settings.masked_lm_prob, length)
    # The usual 20 of 128 tokens are one more than possible.
    if (
        settings.masking == STATIC_MASKING
        and settings.max_predictions_per_seq > full + 1
    ):
        logging.warning(
            "--max_predictions_per_seq=%d is more than --max_seq_length=%d has use for:"
            " --masked_lm_prob=%g of it are %d. The others stay empty.",
            settings.max_predictions_per_seq,
            length,
            settings.masked_lm_prob,
            full,
        )


def warn_of_oddities(
    results: Sequence[ShardResult], settings: InstanceSettings
) -> None:
    """Warns of what the original accepts silently and is seldom meant, with counts."""
    figures = merged_statistics(results)
    num_records = figures.lengths.count
    lone = [result for result in results if result.num_documents == 1]
    if settings.pairs == NEXT_SENTENCE and lone:
        own = sum(merged_statistics([result]).num_random_next for result in lone)
        if len(results) == 1:
            logging.warning(
                "There is one document only: the %d random next sentences of %d "
                "instances come from itself. Put a blank line between documents.",
                own,
                num_records,
            )
        else:
            logging.warning(
                "%d of %d shards were made of one document: their %d random next "
                "sentences come from itself. Give a smaller --num_shards.",
                len(lone),
                len(results),
                own,
            )
    elif settings.pairs == NEXT_SENTENCE and figures.num_random_next == num_records:
        logging.warning(
            "All %d instances have a random next sentence: no document has two "
            "sentences that fit together. Documents are separated by blank lines, "
            "sentences by line ends alone.",
            num_records,
        )
    limit = settings.max_predictions_per_seq
    num_short = sum(result.num_short_of_predictions for result in results)
    full = num_predictions(
        settings.max_seq_length, settings.masked_lm_prob, settings.max_seq_length
    )
    if settings.masking == STATIC_MASKING and num_short and limit < full:
        logging.warning(
            "--max_predictions_per_seq=%d is few for --max_seq_length=%d: %d of %d "
            "instances mask less than --masked_lm_prob=%g of their tokens. A full one "
            "needs %d.",
            limit,
            settings.max_seq_length,
            num_short,
            num_records,
            settings.masked_lm_prob,
            full,
        )


# Every way of making a set makes the same checks, files and reports:
#
# 1. `plan_record_set` checks the arguments and builds the manifest except the counts;
#    `RecordSet.find_finished` checks existing files with the set's names;
# 2. `RecordSet.announce` takes the names: a manifest that is "not complete", and the
#    vocabulary;
# 3. the record files get their names, each when it is complete;
# 4. `RecordSet.complete` makes the manifest "complete", with a report.


# To be incremented when the same text and settings give other bytes, so that a run
# does not resume what an older bert_tf began.
_WAY_OF_MAKING = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordSet:
    """A set of records to be made."""

    chunks: Sequence[Chunk]  # the text
    output_files: Sequence[str]  # the record files
    vocabulary: Vocabulary  # of the tokens
    settings: InstanceSettings  # of the instances, with the whole set's seed
    manifest: Manifest  # what is known before any record is made
    # When the work began, by `time.monotonic`.
    started: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        """The manifest's path without its suffix."""
        return self.manifest.path.removesuffix(MANIFEST_SUFFIX)

    @property
    def identity(self) -> dict[str, Any]:
        """All that the record files depend on, for JSON.

        The text counts by its content, not its path.
        """
        nameless = dataclasses.replace(
            self.manifest,
            source_files=tuple(
                dataclasses.replace(source, path="")
                for source in self.manifest.source_files
            ),
        )
        return {
            "way": _WAY_OF_MAKING,
            "manifest": nameless.to_json_string(),
            "chunks": [(chunk.start, chunk.stop) for chunk in self.chunks],
            "outputs": [files.absolute(path) for path in self.output_files],
        }

    def shard_settings(self) -> Iterator[tuple[int, str, InstanceSettings]]:
        """Each group's number, record file, and settings with its own seed."""
        shards = zip(self.output_files, self.manifest.shards, strict=True)
        for group, (path, shard) in enumerate(shards):
            assert shard.random_seed is not None
            yield (
                group,
                path,
                dataclasses.replace(self.settings, random_seed=shard.random_seed),
            )

    def find_finished(self) -> Manifest | None:
        """The same set, if it was made before."""
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
        """Raises InputError for text without a token, and warns of files without any.

        Warns of odd lengths, too.
        """
        tokens_of: dict[str, int] = {}
        for chunk, result in zip(self.chunks, tokenized, strict=True):
            path = chunk.source.path
            tokens_of[path] = tokens_of.get(path, 0) + result.num_tokens
        empty = [path for path, num_tokens in tokens_of.items() if not num_tokens]
        if len(empty) == len(tokens_of):
            raise InputError(
                f"--input_file: nothing in {_listed(empty)}: no line gives a token."
            )
        if empty:
            logging.warning(
                "%d of %d input files have nothing in them: %s",
                len(empty),
                len(tokens_of),
                _listed(empty),
            )
        warn_of_lengths(tokenized, self.settings)

    def announce(self, results: Sequence[ShardResult] = ()) -> None:
        """Takes the names: from here on the record files are this set's.

        Record files of an overwritten set that the new one does not replace are
        removed.
        """
        manifest = with_counts(self.manifest, results) if results else self.manifest
        replaced = _replaced_files(manifest)
        files.write_atomically(manifest.path, manifest.to_json_string())
        self.vocabulary.save(manifest.vocab_path)
        for path in replaced:
            files.remove(path)

    def complete(
        self,
        tokenized: Sequence[TokenizedChunk],
        dropped: Counter[str],
        results: Sequence[ShardResult],
    ) -> Manifest:
        """Writes the manifest of the set whose record files have their names."""
        for chunk in tokenized:
            dropped.update(chunk.dropped)
        dropped[LONE_TOKENS] += sum(result.num_left_out for result in results)
        statistics = merged_statistics(results)
        manifest = with_counts(self.manifest, results)
        report = {
            "read": {
                "documents": sum(chunk.num_documents for chunk in tokenized),
                "sentences": sum(chunk.num_sentences for chunk in tokenized),
                "tokens": sum(chunk.num_tokens for chunk in tokenized),
            },
            "dropped": dict(sorted((+dropped).items())),
            "used_documents": sum(result.num_documents for result in results),
            "records": statistics.figures(),
        }
        if manifest.packed:
            report["rows"] = row_figures(
                statistics,
                manifest.num_records,
                max_seq_length=manifest.max_seq_length,
            )
        manifest = dataclasses.replace(manifest, complete=True, report=report)
        files.write_atomically(manifest.path, manifest.to_json_string())
        for path in (manifest.path, manifest.vocab_path):
            remove_leftovers(path)
        warn_of_oddities(results, self.settings)
        log_report(report, statistics)
        logging.info(
            "Wrote %d records to %s, %s (%.1f s)",
            manifest.num_records,
            f"{len(manifest.shards)} files" if len(manifest.shards) > 1 else "one file",
            manifest.path,
            time.monotonic() - self.started,
        )
        return manifest


def with_counts(wanted: Manifest, results: Sequence[ShardResult]) -> Manifest:
    """The manifest with the records and bytes of each file."""
    counts = (
        count
        for result in results
        for count in zip(result.num_records, result.num_bytes, strict=True)
    )
    return dataclasses.replace(
        wanted,
        shards=tuple(
            dataclasses.replace(shard, num_records=num_records, num_bytes=num_bytes)
            for shard, (num_records, num_bytes) in zip(
                wanted.shards, counts, strict=True
            )
        ),
    )


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more


def _replaced_files(manifest: Manifest) -> list[str]:
    if not files.exists(manifest.path):
        return []
    try:
        old = Manifest.from_json_file(manifest.path)
    except InputError as error:
        logging.warning("%s It is replaced; its record files stay.", error)
        return []
    stale = old.records_by_path().keys() - manifest.records_by_path().keys()
    return [path for path in sorted(stale) if files.exists(path)]


def plan_record_set(
    chunks: Sequence[Chunk],
    output_files: Sequence[str],
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    *,
    do_lower_case: bool,
    num_shards: int | None,
    deduplicate: str = NO_DEDUPLICATION,
    min_document_tokens: int = 0,
    num_workers: int = 1,
) -> RecordSet:
    """Checks the arguments, and reads the input once to identify it.

    The arguments are those of `create_pretraining_records`, as are the
    errors.
    """
    vocabulary.require_special_tokens("--vocab_file")
    _check_arguments(chunks, output_files, num_shards, deduplicate)
    if num_shards is not None:
        output_files = [
            f"{output_files[0]}-{shard:05d}-of-{num_shards:05d}"
            for shard in range(num_shards)
        ]
    _check_output_files(chunks, output_files)
    wanted = Manifest(
        path=manifest_path(output_files),
        vocab_sha256=vocabulary.sha256,
        vocab_size=len(vocabulary),
        do_lower_case=do_lower_case,
        source_files=_describe_sources(chunks, num_workers),
        input_format=_input_format(chunks),
        split_sentences="+".join(sorted({chunk.language for chunk in chunks} - {""})),
        deduplicate=deduplicate,
        min_document_tokens=min_document_tokens,
        shards=(),
        complete=False,
        **_of_records(settings),
    )
    return RecordSet(
        chunks=chunks,
        output_files=output_files,
        vocabulary=vocabulary,
        settings=settings,
        manifest=_with_shards(wanted, output_files, is_sharded=num_shards is not None),
    )


def _of_records(settings: InstanceSettings) -> dict[str, Any]:
    """The settings in the manifest's form: lengths are those of a record."""
    values = dataclasses.asdict(settings)
    if values.pop("packed_length"):
        values |= {
            "packed": True,
            "max_seq_length": settings.record_length,
            "max_predictions_per_seq": settings.max_predictions_per_record,
            "max_sequences_per_row": settings.max_sequences_per_record,
            "max_sequence_length": settings.max_seq_length,
            "max_predictions_per_sequence": settings.max_predictions_per_seq,
            "packing_seed": settings.random_seed,
        }
    return values


def shard_seed(random_seed: int, shard: int, num_shards: int) -> int:
    """The seed of a shard's random stream, different for each shard and each set."""
    text = f"{random_seed} {shard} {num_shards}".encode()
    # 31 bits, so that the original's flag accepts it.
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1


def _check_arguments(
    chunks: Sequence[Chunk],
    output_files: Sequence[str],
    num_shards: int | None,
    deduplicate: str,
) -> None:
    if not chunks:
        raise ValueError("`chunks` must not be empty.")
    if deduplicate not in DEDUPLICATION:
        raise ValueError(
            f"`deduplicate` must be one of {', '.join(DEDUPLICATION)}. "
            f"Received: {deduplicate!r}"
        )
    if deduplicate == PARAGRAPHS and not all(chunk.language for chunk in chunks):
        raise InputError(
            "--deduplicate=paragraphs: the lines of plain text are sentences, not "
            "paragraphs; give --deduplicate=documents, or --split_sentences if the "
            "lines are paragraphs."
        )
    if num_shards is None:
        return
    if num_shards < 1:
        raise ValueError(f"`num_shards` must be at least 1. Received: {num_shards}")
    if len(output_files) > 1:
        raise InputError(
            "--num_shards: --output_file must be one name, to which -00000-of-"
            f"{num_shards:05d} is added. Found: {len(output_files)}."
        )


def _check_output_files(chunks: Sequence[Chunk], output_files: Sequence[str]) -> None:
    """Raises InputError for outputs that would destroy each other or the input."""
    taken = {
        files.identity(path): f"the input file {path}"
        for path in dict.fromkeys(chunk.source.path for chunk in chunks)
    }
    for path in output_files:
        if not path:
            raise InputError("--output_file: a name between two commas is empty.")
        if files.is_folder(path):
            raise InputError(f"--output_file: {path} is a folder; name a file in it.")
        other = taken.setdefault(files.identity(path), path)
        if other is not path:
            raise InputError(f"--output_file: {path} is also {other}.")
        taken[files.identity(path)] = f"the output file {path}"


def _describe_sources(
    chunks: Sequence[Chunk], num_workers: int
) -> tuple[SourceFile, ...]:
    sources = [
        source for source, _ in itertools.groupby(chunks, lambda chunk: chunk.source)
    ]
    found = {
        source: SourceFile(path=source.path, num_bytes=0, sha256=source.sha256)
        for source in sources
        if isinstance(source, DatasetSource)
    }
    paths = [source.path for source in sources if source not in found]
    # Hashing is quicker than starting workers, unless there is much to hash.
    is_much = sum(chunk.num_bytes for chunk in chunks) > 1 << 30
    described = iter(
        ordered_map(
            SourceFile.describe, paths, num_workers=num_workers if is_much else 1
        )
    )
    return tuple(found.get(source) or next(described) for source in sources)


def _input_format(chunks: Sequence[Chunk]) -> str:
    formats = set()
    for source in {chunk.source for chunk in chunks}:
        field = "" if source.text_field == "text" else f":{source.text_field}"
        formats.add(source.input_format + field)
    return "+".join(sorted(formats))


def _with_shards(
    wanted: Manifest, output_files: Sequence[str], *, is_sharded: bool
) -> Manifest:
    num_shards = len(output_files)
    return dataclasses.replace(
        wanted,
        shards=tuple(
            Shard(
                name=relative_name(name, wanted.path),
                num_records=0,
                num_bytes=0,
                random_seed=(
                    shard_seed(wanted.random_seed, shard, num_shards)
                    if is_sharded
                    else None
                ),
            )
            for shard, name in enumerate(output_files)
        ),
    )


# 1. The text is cut into chunks, and each is tokenized, on any core, into the work
#    folder (`tokenized_corpus`).
# 2. The documents become masked pairs and records, in one of two ways:
#    - as one pool with one random stream, dealt to the files in turn: the original's;
#    - sharded: dealt into groups, each with a random stream of its own, on any core.
# 3. The set is published in an order that loses nothing: a manifest that is "not
#    complete" and the vocabulary; then the record files, each when it is complete; then
#    the manifest becomes "complete", and the work folder is removed.
#
# Whenever the command is killed, the same command again ends with the same set.


def create_pretraining_records(
    chunks: Sequence[Chunk],
    output_files: Sequence[str],
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    *,
    do_lower_case: bool = True,
    num_shards: int | None = None,
    deduplicate: str = NO_DEDUPLICATION,
    min_document_tokens: int = 0,
    num_workers: int = 1,
    work_dir: str | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Writes masked next-sentence records of text, with manifest and vocabulary.

    For the same seed and plain text the records are those of the original, in its
    order; with `num_shards` each file holds what the original would write for the
    file's group of documents and seed.
    """
    record_set = plan_record_set(
        chunks,
        output_files,
        vocabulary,
        settings,
        do_lower_case=do_lower_case,
        num_shards=num_shards,
        deduplicate=deduplicate,
        min_document_tokens=min_document_tokens,
        num_workers=num_workers,
    )
    folder = work_folder_path(record_set.name, work_dir)
    if not overwrite and (finished := record_set.find_finished()):
        remove_finished(folder, record_set.identity)
        return finished
    most_pieces = max(len(chunks), num_shards or 1)
    with (
        hold_work_folder(folder),
        Workers(min(num_workers, most_pieces)) as workers,
    ):
        return _create(
            record_set,
            folder,
            workers,
            is_sharded=num_shards is not None,
            deduplicate=deduplicate,
            min_document_tokens=min_document_tokens,
        )


def _create(
    record_set: RecordSet,
    folder: str,
    workers: Workers,
    *,
    is_sharded: bool,
    deduplicate: str,
    min_document_tokens: int,
) -> Manifest:
    """Makes the set, with a work folder for its progress."""
    vocab_file = open_work_folder(folder, record_set.identity, record_set.vocabulary)
    jobs = [
        TokenizeJob(
            index=index,
            chunk=chunk,
            work_folder=folder,
            vocab_file=vocab_file,
            do_lower_case=record_set.manifest.do_lower_case,
            deduplicate=deduplicate,
        )
        for index, chunk in enumerate(record_set.chunks)
    ]
    tokenized = _tokenize(jobs, workers)
    record_set.check_read(tokenized)
    dropped: Counter[str] = Counter()
    is_filtered = deduplicate != NO_DEDUPLICATION or min_document_tokens > 0
    if is_filtered:
        dropped = tokenized_corpus.choose_sentences(
            folder,
            tokenized,
            deduplicate=deduplicate,
            min_document_tokens=min_document_tokens,
        )
    corpus = TokenizedCorpus(
        work_folder=folder,
        token_type=token_dtype(len(record_set.vocabulary)).__name__,
        chunk_documents=tuple(chunk.num_documents for chunk in tokenized),
    )
    corpus.save()
    say_if_to_be_compiled()
    if not is_sharded:
        results = [_write_pool(corpus, record_set, joins_files=not is_filtered)]
    else:
        results = _write_shards(corpus, record_set, vocab_file, workers)
    return record_set.complete(tokenized, dropped, results)


def _tokenize(jobs: Sequence[TokenizeJob], workers: Workers) -> list[TokenizedChunk]:
    num_bytes = sum(job.chunk.num_bytes for job in jobs)
    tokenized = []
    with tqdm(
        total=num_bytes, desc="Tokenizing", unit="B", unit_scale=True, disable=None
    ) as bar:
        results = workers.map(tokenize_chunk, jobs)
        for job, result in zip(jobs, results, strict=True):
            tokenized.append(result)
            bar.update(job.chunk.num_bytes)
    return tokenized


def _write_pool(
    corpus: TokenizedCorpus, record_set: RecordSet, *, joins_files: bool
) -> ShardResult:
    """The original's way: one random stream, records dealt to the files in turn."""
    settings = record_set.settings
    documents = corpus.pool([joins_files] * len(record_set.chunks))
    require_documents(documents, settings, "The documents")
    ids = TokenIds.from_vocabulary(record_set.vocabulary.ids)
    total = settings.dupe_factor * (len(documents.document_starts) - 1)
    with tqdm(total=total, desc="Masking", unit=" documents", disable=None) as bar:
        instances = create_instances(documents, ids, settings, bar.update)
    del documents
    with (
        ShardWriter(record_set.output_files) as writer,
        tqdm(
            total=len(instances), desc="Writing", unit=" records", disable=None
        ) as bar,
    ):
        result = write_instances(instances, writer, ids, settings, bar.update)
        record_set.announce([result])
    return result


def _write_shards(
    corpus: TokenizedCorpus, record_set: RecordSet, vocab_file: str, workers: Workers
) -> list[ShardResult]:
    """One group and one random stream per file, on any core."""
    num_shards = len(record_set.output_files)
    least = num_shards * record_set.settings.least_documents
    if corpus.num_documents < least:
        raise InputError(
            f"--num_shards={num_shards} takes {least} documents or more"
            + (", two a shard for --nsp_labels=exact" if least > num_shards else "")
            + f". Found: {corpus.num_documents}. Give a smaller --num_shards, or more "
            "text."
        )
    record_set.announce()
    jobs = [
        ShardJob(
            work_folder=corpus.work_folder,
            group=group,
            num_groups=num_shards,
            path=path,
            vocab_file=vocab_file,
            settings=settings,
        )
        for group, path, settings in record_set.shard_settings()
    ]
    num_finished = sum(finished_shard(job) is not None for job in jobs)
    if num_finished:
        logging.info(
            "%d of %d shards are finished already; going on with the others",
            num_finished,
            len(jobs),
        )
    results = workers.map(write_shard, jobs)
    return list(
        tqdm(results, total=len(jobs), desc="Writing", unit=" shards", disable=None)
    )
