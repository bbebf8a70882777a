"""Record files of any task, as far as they can be read; problems are warnings."""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.base.parallel import grouped
from bert_tf.instances.settings import FULL_SENTENCES
from bert_tf.records.manifest import listed_files, manifests_of
from bert_tf.records.pipeline import FRAME_BYTES, first_record, read_records
from bert_tf.records.pretraining_input import (
    common_kind,
    refuse_mixed_text,
    refuse_other_vocabulary,
)
from bert_tf.records.spec import RecordSpec
from bert_tf.text.vocabulary import Vocabulary


class RecordBlock(NamedTuple):
    """Some records of a file."""

    path: str
    first: int  # the first record's number, over all files
    first_in_file: int
    num_records: int
    num_bytes: int
    rows: list[int]  # the records that fit, and are in `columns`
    columns: dict[str, np.ndarray]  # [records, length]


class ReadableRecords:
    """Record files of any task, as far as they can be read."""

    def __init__(self, paths: Sequence[str], vocab_file: str | None = None) -> None:
        self.paths = paths
        self._vocab_file = vocab_file
        self._warned: set[str] = set()
        self._listed = listed_files(paths, self._warn)
        self.manifests = manifests_of(self._listed)
        try:
            kind = common_kind(paths, self._listed)
        except InputError as error:
            self._warn(error)
            kind = common_kind(paths[:1], self._listed)
        refuse_mixed_text(self.manifests)
        self.spec = self._spec_of_first_record()
        self.pairs = FULL_SENTENCES if self.spec.lacks_labels else kind.pairs
        for manifest in self.manifests[:1]:
            for name in ("max_seq_length", "max_predictions_per_seq"):
                stated, actual = getattr(manifest, name), getattr(self.spec, name)
                if actual and stated != actual:
                    self._warn(
                        f"{manifest.path}: {name} is {stated}; records have {actual}."
                    )

    def _warn(self, problem: object) -> None:
        """Logs a problem once."""
        if str(problem) not in self._warned:
            self._warned.add(str(problem))
            logging.warning("%s", problem)

    def _spec_of_first_record(self) -> RecordSpec:
        for path in self.paths:
            try:
                if first := first_record([path]):
                    return RecordSpec.of_record(first[1], path)
            except InputError as error:
                if path == self.paths[-1]:
                    raise
                self._warn(error)
        raise InputError(f"`files`: there is no record in {self.paths[0]}.")

    @functools.cached_property
    def vocabulary(self) -> Vocabulary | None:
        """The user's vocabulary, or else the one next to the records, if any."""
        manifest = self.manifests[0] if self.manifests else None
        path = self._vocab_file or (manifest.vocab_path if manifest else "")
        if not self._vocab_file and not files.exists(path):
            if path:
                problem = f"{path} is missing: there are ids instead of tokens."
                self._warn(f"{problem} Give `vocab_file`.")
            return None
        try:
            found = Vocabulary.from_file(path)
            refuse_other_vocabulary(found, path, manifest, is_given=self._vocab_file)
        except InputError as error:
            if self._vocab_file:
                raise
            self._warn(error)
            return None
        return found

    def blocks(self) -> Iterator[RecordBlock]:
        """Yields all records that can be read, file by file."""
        number = 0
        for path in self.paths:
            first = number
            try:
                for records in record_blocks(path):
                    if number == first:
                        spec = RecordSpec.of_record(records[0], path)
                        if spec != self.spec:
                            raise InputError(
                                f"{path}: {spec}, so it is skipped; the first file has"
                                f" {self.spec}."
                            )
                    columns, rows = self.spec.read(records)
                    num_bytes = sum(len(record) + FRAME_BYTES for record in records)
                    yield RecordBlock(
                        path, number, number - first, len(records), num_bytes, rows,
                        columns,
                    )  # fmt: skip
                    number += len(records)
            except InputError as error:
                self._warn(error)
                continue
            if path in self._listed:
                actual, stated = number - first, self._listed[path][1].num_records
                if actual != stated:
                    self._warn(
                        f"{path} has {actual} records; its manifest says {stated}."
                    )


def record_blocks(path: str, records_per_block: int = 1000) -> Iterator[list[bytes]]:
    """Yields a file's readable records in blocks; then raises its problem, if any."""
    problems = []

    def readable() -> Iterator[bytes]:
        try:
            yield from read_records(path)
        except InputError as error:
            problems.append(error)

    yield from grouped(readable(), records_per_block)
    for problem in problems:
        raise problem
