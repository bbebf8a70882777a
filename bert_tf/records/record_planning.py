"""What is asked for, checked, before any work: the plan of a set of records."""

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.instances.settings import InstanceSettings
from bert_tf.parallel import ordered_map
from bert_tf.records.manifest import (
    Manifest,
    Shard,
    SourceFile,
    manifest_path,
    relative_name,
)
from bert_tf.records.record_sets import RecordSet
from bert_tf.text.documents import Chunk, DatasetSource
from bert_tf.text.tokenized import DEDUPLICATION, NO_DEDUPLICATION, PARAGRAPHS
from bert_tf.text.vocabulary import Vocabulary


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
    """Checks what is asked for, and reads the input once to know it again.

    The arguments are those of `pretraining.create_pretraining_records`, as are the
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
        **dataclasses.asdict(settings),
    )
    return RecordSet(
        chunks=chunks,
        output_files=output_files,
        vocabulary=vocabulary,
        settings=settings,
        manifest=_with_shards(wanted, output_files, is_sharded=num_shards is not None),
    )


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
