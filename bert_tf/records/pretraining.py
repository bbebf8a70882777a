"""Pre-training records: text in, a finished set of record files out.

1. The text is cut into chunks, and each is tokenized, on any core, into the work folder
   (`tokenized_chunks`).
2. The documents become masked pairs and records (`generation`), in one of two ways:
   - as one pool with one random stream, dealt to the files in turn: the original's;
   - sharded: dealt into groups, each with a random stream of its own, on any core.
3. The set is published in an order that loses nothing: a manifest that says "not
   complete" and the vocabulary; then the record files get their names, each when it is
   complete; then the manifest says "complete", and the work folder is removed.

Whenever the command is killed, the same command again ends with the same set.
"""

from collections import Counter
from collections.abc import Sequence

from absl import logging
from tqdm import tqdm

from bert_tf.errors import InputError
from bert_tf.instances.creation import TokenIds, create_instances, say_if_to_be_compiled
from bert_tf.instances.pairs import token_dtype
from bert_tf.instances.settings import InstanceSettings
from bert_tf.parallel import Workers
from bert_tf.records import generation, tokenized_corpus
from bert_tf.records.generation import ShardJob, ShardResult
from bert_tf.records.manifest import Manifest
from bert_tf.records.record_planning import plan_record_set
from bert_tf.records.record_sets import RecordSet
from bert_tf.records.shards import ShardWriter
from bert_tf.records.tokenized_chunks import (
    TokenizedChunk,
    TokenizeJob,
    tokenize_chunk,
)
from bert_tf.records.tokenized_corpus import TokenizedCorpus
from bert_tf.records.work_folder import (
    hold_work_folder,
    open_work_folder,
    remove_finished,
    work_folder_path,
)
from bert_tf.text.documents import Chunk
from bert_tf.text.tokenized import NO_DEDUPLICATION
from bert_tf.text.vocabulary import Vocabulary


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
    """Makes the set, keeping what is done in a work folder."""
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
    generation.require_documents(documents, settings, "The documents")
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
        result = generation.write_instances(
            instances, writer, ids, settings, bar.update
        )
        record_set.announce([result])
    return result


def _write_shards(
    corpus: TokenizedCorpus, record_set: RecordSet, vocab_file: str, workers: Workers
) -> list[ShardResult]:
    """One group and one random stream a file, on any core."""
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
    num_finished = sum(generation.finished_shard(job) is not None for job in jobs)
    if num_finished:
        logging.info(
            "%d of %d shards are finished already; going on with the others",
            num_finished,
            len(jobs),
        )
    results = workers.map(generation.write_shard, jobs)
    return list(
        tqdm(results, total=len(jobs), desc="Writing", unit=" shards", disable=None)
    )
