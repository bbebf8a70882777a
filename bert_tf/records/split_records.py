"""The records of a split's examples, made once: a task's TFRecords and their manifest.

A split's examples are tokenized into TFRecords under the original's names
(train.tf_record, eval.tf_record, predict.tf_record) and read from there. Beside them
lies a manifest,

    train.tf_record.manifest.json
        {"format_version": 1, "made_from": SHA-256, "num_records": 3668, "notes": {...}}

that says what they were made from, so that the next start, or the next of many runs,
finds them ready.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from absl import logging

from bert_tf import files, strict_json
from bert_tf.errors import InputError
from bert_tf.records.example_table import EvaluationBatches, ExampleTable
from bert_tf.records.length_plan import PADDING
from bert_tf.records.record_counts import count_records
from bert_tf.records.schema import RecordSchema
from bert_tf.records.shards import ShardWriter

Block = Mapping[str, np.ndarray]

FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitRecords:
    """The records of one split.

    Attributes:
        path: the TFRecord file.
        num_records: the number of records in it.
        schema: what a record holds.
        made_from: a digest of all that the records were made from.
        notes: what there was to tell about the making, such as texts that were cut.
    """

    path: str
    num_records: int
    schema: RecordSchema
    made_from: str
    notes: Mapping[str, Any]

    @classmethod
    def prepare(
        cls,
        path: str,
        schema: RecordSchema,
        made_from: Any,
        blocks: Iterable[Block],
        notes: Callable[[], Mapping[str, Any]] = dict,
        *,
        is_alone: bool = True,
    ) -> "SplitRecords":
        """The records that lie there, if they were made from the same; else new ones.

        A file appears under its name when it is complete.
        """
        shape = [(f.name, f.dtype, f.length) for f in schema.features]
        described = json.dumps([FORMAT_VERSION, shape, made_from], sort_keys=True)
        digest = hashlib.sha256(described.encode("utf-8")).hexdigest()
        manifest_path = f"{path}.manifest.json"
        there = _manifest(manifest_path)
        if there and there.made_from == digest and _has(path, there.num_records):
            logging.info("%s is there already.", os.path.basename(path))
            return cls(
                path=path,
                num_records=there.num_records,
                schema=schema,
                made_from=digest,
                notes=there.notes,
            )
        if there:
            # It must not speak for other records, should this be killed before its own
            # manifest. Another worker may have come first.
            with contextlib.suppress(FileNotFoundError, *files.remote_errors()):
                files.remove(manifest_path)
        num_records = 0
        with ShardWriter([path], is_alone=is_alone) as writer:
            for block in blocks:
                writer.write(schema.serialize_block(block))
                num_records += len(next(iter(block.values())))
        records = cls(
            path=path,
            num_records=num_records,
            schema=schema,
            made_from=digest,
            notes=dict(notes()),
        )
        manifest = {
            "format_version": FORMAT_VERSION,
            "made_from": digest,
            "num_records": num_records,
            "notes": records.notes,
        }
        files.write_atomically(manifest_path, json.dumps(manifest, indent=1) + "\n")
        logging.info("Wrote %d records to %s.", num_records, os.path.basename(path))
        return records

    @functools.cached_property
    def table(self) -> ExampleTable:
        """The records in memory."""
        return ExampleTable.read(self.path, self.schema)

    @property
    def max_seq_length(self) -> int:
        """The length that the records are padded to."""
        (feature,) = (f for f in self.schema.features if f.name == "input_ids")
        return feature.shape[-1]

    def num_batches(self, batch_size: int) -> int:
        """The number of batches of `batches`."""
        return -(-self.num_records // batch_size)

    def batches(
        self, batch_size: int, max_lengths: int | None = None
    ) -> EvaluationBatches:
        """All records once; `rows` in a batch says which, and pads the last batch."""
        if max_lengths is None:
            rows = np.full([self.num_batches(batch_size), batch_size], PADDING)
            rows.ravel()[: self.num_records] = np.arange(self.num_records)
            lengths = np.full(len(rows), self.max_seq_length)
            return EvaluationBatches(self.table, rows, lengths)
        return self.table.by_length(batch_size, max_lengths)


def rows_digest(rows: Iterable[Any]) -> str:
    """Tells sets of rows apart, as part of what records are made from."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row).encode("utf-8"))
    return digest.hexdigest()


def _has(path: str, num_records: int) -> bool:
    """Whether a file is there and has so many records."""
    if not files.exists(path):
        return False
    try:
        found = count_records(path)
    except InputError as error:
        logging.warning("%s They are made again.", error)
        return False
    return found == num_records


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Manifest:
    """The manifest, as its file has it."""

    format_version: int
    made_from: str
    num_records: int
    notes: dict


def _manifest(path: str) -> _Manifest | None:
    """What a manifest says; None where there is none, or a damaged one."""
    if not files.exists(path):
        return None
    try:
        return strict_json.read(_Manifest, path)
    except InputError as error:
        logging.warning("%s The records are made again.", error)
        return None
