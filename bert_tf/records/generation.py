"""Documents to record files: the part that every way of cutting the work shares."""

import dataclasses
import json
import os
from collections.abc import Callable
from typing import Any

from absl import logging

from bert_tf import files, strict_json
from bert_tf.errors import InputError
from bert_tf.instances.creation import Instances, TokenIds, create_instances
from bert_tf.instances.masking import num_predictions
from bert_tf.instances.pairs import Documents
from bert_tf.instances.settings import STATIC_MASKING, InstanceSettings
from bert_tf.records.schema import RecordSchema, pretraining_schema, unmasked_schema
from bert_tf.records.shards import ShardWriter
from bert_tf.records.statistics import RecordStatistics
from bert_tf.records.tokenized_corpus import TokenizedCorpus
from bert_tf.text.vocabulary import Vocabulary

# Records serialized at a time, and of how many tokens at most: a few MB, which stay in
# the processor's cache.
_BLOCK = 1024
_BLOCK_TOKENS = 1 << 19


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardResult:
    """What is known of a finished record file, or of several.

    Attributes:
        num_records: by file.
        num_bytes: by file.
        num_documents: the documents that they were made from.
        num_left_out: documents' last lone tokens, of which no exact pair can be made.
        num_short_of_predictions: records with fewer predictions than their share.
        statistics: `RecordStatistics.to_values()`.
    """

    num_records: list[int]
    num_bytes: list[int]
    num_documents: int = 0
    num_left_out: int = 0
    num_short_of_predictions: int = 0
    statistics: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardJob:
    """A piece of work: one group of documents to one record file.

    Attributes:
        work_folder: of the tokenized corpus.
        group: the group's number.
        num_groups: how many groups there are.
        path: the record file.
        vocab_file: the vocabulary.
        settings: with the group's own seed.
    """

    work_folder: str
    group: int
    num_groups: int
    path: str
    vocab_file: str
    settings: InstanceSettings

    @property
    def result_path(self) -> str:
        """Where what is known of the finished file is kept until all are finished."""
        return os.path.join(self.work_folder, f"shard-{self.group:05d}.json")


def schema_of(settings: InstanceSettings) -> RecordSchema:
    """What a record holds."""
    if settings.masking == STATIC_MASKING:
        return pretraining_schema(
            settings.max_seq_length, settings.max_predictions_per_seq
        )
    return unmasked_schema(settings.max_seq_length)


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
        keep_result(result, path, result_path, is_alone=is_alone)
    return result


def keep_result(
    result: ShardResult, path: str, result_path: str, *, is_alone: bool = True
) -> None:
    """Writes what is known of a record file, before that gets its name.

    So a file without its result is made again.
    """
    if is_alone and files.exists(path):
        # One that is replaced: it must not be taken for that of the result.
        files.remove(path)
    files.write_atomically(result_path, json.dumps(dataclasses.asdict(result)))


def finished_shard(job: ShardJob) -> ShardResult | None:
    """What is known of the job's record file, if it is finished."""
    return kept_result(job.path, job.result_path)


def kept_result(path: str, result_path: str) -> ShardResult | None:
    """What `keep_result` wrote, if the record file has its name."""
    if not files.exists(result_path) or not files.exists(path):
        return None
    try:
        result = strict_json.read(ShardResult, result_path)
    except InputError as error:
        logging.warning("%s The records are made again.", error)
        return None
    return result if result.num_bytes == [files.size(path)] else None


def require_documents(
    documents: Documents, settings: InstanceSettings, what: str
) -> None:
    """Refuses too few documents."""
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
    schema = schema_of(settings)
    statistics = RecordStatistics(
        max_seq_length=settings.max_seq_length, mask_id=ids.mask_id
    )
    block_size = max(1, min(_BLOCK, _BLOCK_TOKENS // settings.max_seq_length))
    for columns in instances.blocks(block_size):
        writer.write(schema.serialize_block(columns))
        statistics.add(columns)
        progress(len(columns["input_ids"]))
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
