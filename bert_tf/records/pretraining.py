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

import dataclasses
import hashlib
import itertools
import os
import time
from collections.abc import Sequence

from absl import logging
from tqdm import tqdm

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.instances.documents import token_dtype
from bert_tf.instances.pretraining import create_instances
from bert_tf.instances.settings import InstanceSettings
from bert_tf.instances.token_ids import TokenIds
from bert_tf.parallel import ordered_map
from bert_tf.records import generation, reports, tokenized_corpus
from bert_tf.records.finished import find_finished
from bert_tf.records.generation import ShardJob, ShardResult
from bert_tf.records.manifest import (
    MANIFEST_SUFFIX,
    Manifest,
    Shard,
    SourceFile,
    manifest_path,
    relative_name,
)
from bert_tf.records.shards import ShardWriter
from bert_tf.records.tokenized_chunks import (
    TokenizedChunk,
    TokenizeJob,
    tokenize_chunk,
)
from bert_tf.records.tokenized_corpus import TokenizedCorpus
from bert_tf.records.work_folder import open_work_folder, work_folder_path
from bert_tf.text.sources import Chunk, DatasetSource
from bert_tf.text.tokenized import DEDUPLICATION, NO_DEDUPLICATION, PARAGRAPHS
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

    Args:
        chunks: the text: `bert_tf.text.sources.make_chunks`.
        output_files: the record files, dealt their records in turn; one name, to which
            -00000-of-00064 is added, where the work is cut into shards.
        vocabulary: has [UNK], [CLS], [SEP] and [MASK].
        settings: lengths, rates and seed.
        do_lower_case: lower the text and strip accents.
        num_shards: groups, each with a random stream and a record file of its own;
            None for one pool.
        deduplicate: "none", "documents" or "paragraphs": drop exact repetitions.
        min_document_tokens: drop shorter documents.
        num_workers: processes; the result does not depend on it.
        work_dir: where the work folder is made; by default beside the records.
        overwrite: replace a set of other settings, and files that no manifest knows.

    Returns:
        The manifest of the finished set, whether it was made now or before.

    Raises:
        InputError: the input is missing, not what its format asks for or gives no
            token; the vocabulary lacks a special token; what stands under the output's
            names may not be written over; two output files are one, or one is an input
            file.
        OSError: a file cannot be read or written, such as on a full disk.
        ValueError: `chunks` is empty, or a value is out of its range.
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
        **dataclasses.asdict(settings),
    )
    wanted = _with_shards(wanted, output_files, is_sharded=num_shards is not None)
    if not overwrite:
        finished = find_finished(wanted, output_files)
        if finished:
            if not files.exists(finished.vocab_path):
                vocabulary.save(finished.vocab_path)
            logging.info(
                "All is done already: %d records in %d files, %s",
                finished.num_records,
                len(finished.shards),
                finished.path,
            )
            return finished

    started = time.monotonic()
    name = wanted.path.removesuffix(MANIFEST_SUFFIX)
    folder = work_folder_path(name, work_dir)
    run = {
        "manifest": wanted.to_json_string(),
        "chunks": [(chunk.start, chunk.stop) for chunk in chunks],
        "outputs": [os.path.abspath(path) for path in output_files],
    }
    vocab_file = open_work_folder(folder, run, vocabulary)
    jobs = [
        TokenizeJob(
            index=index,
            chunk=chunk,
            work_folder=folder,
            vocab_file=vocab_file,
            do_lower_case=do_lower_case,
            deduplicate=deduplicate,
        )
        for index, chunk in enumerate(chunks)
    ]
    tokenized = _tokenize(jobs, num_workers)
    read, dropped = reports.read_report(tokenized), reports.dropped_counts(tokenized)
    _check_read(chunks, tokenized)
    is_filtered = deduplicate != NO_DEDUPLICATION or min_document_tokens > 0
    if is_filtered:
        dropped += tokenized_corpus.choose_sentences(
            folder,
            tokenized,
            deduplicate=deduplicate,
            min_document_tokens=min_document_tokens,
        )
    corpus = TokenizedCorpus(
        work_folder=folder,
        token_type=token_dtype(len(vocabulary)).__name__,
        chunk_documents=tuple(chunk.num_documents for chunk in tokenized),
    )
    corpus.save()
    if num_shards is None:
        results = [
            _write_pool(corpus, chunks, wanted, output_files, vocabulary, settings,
                        joins_files=not is_filtered)
        ]  # fmt: skip
    else:
        results = _write_shards(
            corpus, wanted, output_files, vocabulary, settings, vocab_file, num_workers
        )
    manifest = dataclasses.replace(
        _with_counts(wanted, results),
        complete=True,
        report=reports.final_report(read, dropped, results),
    )
    files.write_atomically(manifest.path, manifest.to_json_string())
    files.remove(folder)
    reports.warn_of_oddities(results, settings)
    reports.log_report(manifest.report, results)
    logging.info(
        "Wrote %d records to %d files, %s (%.1f s)",
        manifest.num_records,
        len(manifest.shards),
        manifest.path,
        time.monotonic() - started,
    )
    return manifest


def shard_seed(random_seed: int, shard: int, num_shards: int) -> int:
    """The seed of a shard's random stream: another one for each shard and each set."""
    text = f"{random_seed} {shard} {num_shards}".encode()
    # 31 bits, so that the original's flag takes it.
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
    """Refuses outputs that would destroy each other or the input."""
    taken = {
        _identity(path): f"the input file {path}"
        for path in dict.fromkeys(chunk.source.path for chunk in chunks)
    }
    for path in output_files:
        if not path:
            raise InputError("--output_file: a name between two commas is empty.")
        if files.is_folder(path):
            raise InputError(f"--output_file: {path} is a folder; name a file in it.")
        other = taken.setdefault(_identity(path), path)
        if other is not path:
            raise InputError(f"--output_file: {path} is also {other}.")
        taken[_identity(path)] = f"the output file {path}"


def _identity(path: str) -> str:
    return path if files.is_remote(path) else os.path.realpath(path)


def _describe_sources(
    chunks: Sequence[Chunk], num_workers: int
) -> tuple[SourceFile, ...]:
    sources = [
        source for source, _ in itertools.groupby(chunks, lambda chunk: chunk.source)
    ]
    found = {
        source: SourceFile(
            path=source.path,
            num_bytes=0,
            sha256=files.sha256(f"{source.path} {source.num_examples}".encode()),
        )
        for source in sources
        if isinstance(source, DatasetSource)
    }
    paths = [source.path for source in sources if source not in found]
    # Hashing a file is quick beside starting a worker, unless there is much to hash.
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


def _with_counts(wanted: Manifest, results: Sequence[ShardResult]) -> Manifest:
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


def _tokenize(jobs: Sequence[TokenizeJob], num_workers: int) -> list[TokenizedChunk]:
    num_bytes = sum(job.chunk.num_bytes for job in jobs)
    tokenized = []
    with tqdm(
        total=num_bytes, desc="Tokenizing", unit="B", unit_scale=True, disable=None
    ) as bar:
        results = ordered_map(
            tokenize_chunk, jobs, num_workers=min(num_workers, len(jobs))
        )
        for job, result in zip(jobs, results, strict=True):
            tokenized.append(result)
            bar.update(job.chunk.num_bytes)
    return tokenized


def _check_read(chunks: Sequence[Chunk], tokenized: Sequence[TokenizedChunk]) -> None:
    """Refuses text without a token, and names the files that have none."""
    tokens_of: dict[str, int] = {}
    for chunk, result in zip(chunks, tokenized, strict=True):
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


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more


def _write_pool(
    corpus: TokenizedCorpus,
    chunks: Sequence[Chunk],
    wanted: Manifest,
    output_files: Sequence[str],
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    *,
    joins_files: bool,
) -> ShardResult:
    """The original's way: one random stream, records dealt to the files in turn."""
    documents = corpus.pool([joins_files] * len(chunks))
    generation.require_documents(documents, settings, "The documents")
    ids = TokenIds.from_vocabulary(vocabulary.ids)
    total = settings.dupe_factor * (len(documents.document_starts) - 1)
    with tqdm(total=total, desc="Masking", unit=" documents", disable=None) as bar:
        instances = create_instances(documents, ids, settings, bar.update)
    del documents
    with (
        ShardWriter(output_files) as writer,
        tqdm(
            total=len(instances), desc="Writing", unit=" records", disable=None
        ) as bar,
    ):
        result = generation.write_instances(
            instances, writer, ids, settings, bar.update
        )
        _announce(_with_counts(wanted, [result]), vocabulary)
    return result


def _write_shards(
    corpus: TokenizedCorpus,
    wanted: Manifest,
    output_files: Sequence[str],
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    vocab_file: str,
    num_workers: int,
) -> list[ShardResult]:
    """One group and one random stream a file, on any core."""
    _announce(wanted, vocabulary)
    jobs = [
        ShardJob(
            work_folder=corpus.work_folder,
            group=group,
            num_groups=len(output_files),
            path=path,
            vocab_file=vocab_file,
            settings=dataclasses.replace(settings, random_seed=shard.random_seed),
        )
        for group, (path, shard) in enumerate(
            zip(output_files, wanted.shards, strict=True)
        )
    ]
    num_finished = sum(generation.finished_shard(job) is not None for job in jobs)
    if num_finished:
        logging.info(
            "%d of %d shards are finished already; going on with the others",
            num_finished,
            len(jobs),
        )
    results = ordered_map(
        generation.write_shard, jobs, num_workers=min(num_workers, len(jobs))
    )
    return list(
        tqdm(results, total=len(jobs), desc="Writing", unit=" shards", disable=None)
    )


def _announce(manifest: Manifest, vocabulary: Vocabulary) -> None:
    """Takes the names: from here on the record files are this set's.

    Record files of a set that is overwritten which the new one will not have are
    removed.
    """
    replaced = _replaced_files(manifest)
    files.write_atomically(manifest.path, manifest.to_json_string())
    vocabulary.save(manifest.vocab_path)
    for path in replaced:
        files.remove(path)


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
