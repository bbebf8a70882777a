"""Record files as they are found, whole or broken, for looking at them.

What training refuses is a warning here: a set that is not complete, a file of another
size than its manifest says, one that breaks off, one of other records than the first.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.records.manifest import (
    Manifest,
    find_manifests,
    is_companion,
    is_temporary,
    manifest_path,
)
from bert_tf.records.reading import FRAME_BYTES, record_blocks
from bert_tf.records.spec import RecordLayout, find_layout
from bert_tf.text.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordBlock:
    """Some records of a file.

    Attributes:
        path: the file.
        first: the number, over all files, of the block's first record.
        first_in_file: its number in the file.
        num_records: those that were read.
        num_bytes: what they take in the file.
        rows: which of them are of the layout, and in `columns`.
        columns: their features, arrays [records, length].
    """

    path: str
    first: int
    first_in_file: int
    num_records: int
    num_bytes: int
    rows: list[int]
    columns: dict[str, np.ndarray]


class InspectedRecords:
    """Record files, the manifests and the vocabulary that belong to them.

    Args:
        patterns: files or globs, each with commas between or alone.
        vocab_file: the vocabulary; None to take the records' own.

    Attributes:
        paths: the files.
        manifests: those that could be read.
        vocabulary: None where nobody says it.
        problems: what was warned of, one line each.

    Raises:
        InputError: no file; a vocabulary that contradicts the manifest's.
    """

    def __init__(self, patterns: Sequence[str], vocab_file: str | None = None) -> None:
        self.problems: list[str] = []
        self.paths = _find_files(patterns)
        self.manifests = self._find_manifests()
        self.vocabulary = self._find_vocabulary(vocab_file)
        self.layout = self._find_layout()

    @property
    def pairs(self) -> str:
        """What a sequence is, as the manifest's `pairs`."""
        return self.manifests[0].pairs if self.manifests else "nsp"

    def blocks(self) -> Iterator[RecordBlock]:
        """All records that can be read, file by file."""
        number = 0
        expected: dict[str, int] = {}
        for manifest in self.manifests:
            expected |= manifest.records_by_path()
        for path in self.paths:
            in_file = 0
            try:
                for records in record_blocks(path):
                    if not in_file:
                        self._check_layout(records[0], path)
                    columns, rows = self.layout.parse(records)
                    yield RecordBlock(
                        path=path,
                        first=number,
                        first_in_file=in_file,
                        num_records=len(records),
                        num_bytes=sum(map(len, records)) + FRAME_BYTES * len(records),
                        rows=rows,
                        columns=columns,
                    )
                    in_file += len(records)
                    number += len(records)
            except InputError as error:
                self.warn(str(error))
            else:
                if in_file != expected.get(path, in_file):
                    self.warn(
                        f"{path} has {in_file} records; its manifest says"
                        f" {expected[path]}."
                    )

    def _check_layout(self, record: bytes, path: str) -> None:
        layout = find_layout(record, path)
        if layout != self.layout:
            raise InputError(
                f"{path}: {layout}, passed over; the first file has {self.layout}."
            )

    def warn(self, problem: str) -> None:
        """Says what is wrong, once."""
        if problem not in self.problems:
            self.problems.append(problem)
            logging.warning("%s", problem)

    def _find_manifests(self) -> list[Manifest]:
        try:
            return find_manifests(self.paths)
        except InputError:
            found: dict[str, Manifest] = {}
            for path in self.paths:
                for manifest in self._find_broken_manifest(path):
                    found[manifest.path] = manifest
            return list(found.values())

    def _find_broken_manifest(self, path: str) -> list[Manifest]:
        try:
            return find_manifests([path])
        except InputError as error:
            self.warn(str(error))
        own = manifest_path([path])
        try:
            return [Manifest.from_json_file(own)] if files.exists(own) else []
        except InputError as error:
            self.warn(str(error))
            return []

    def _find_vocabulary(self, vocab_file: str | None) -> Vocabulary | None:
        for manifest in self.manifests[1:]:
            if manifest.vocab_sha256 != self.manifests[0].vocab_sha256:
                raise InputError(
                    f"{self.manifests[0].path} and {manifest.path} name different"
                    " vocabularies; inspect these records one set at a time."
                )
        given = Vocabulary.from_file(vocab_file) if vocab_file else None
        for manifest in self.manifests[:1]:
            if given is not None and given.sha256 != manifest.vocab_sha256:
                raise InputError(
                    f"--vocab_file={vocab_file} ({len(given)} tokens) is not the"
                    f" vocabulary of {manifest.path} ({manifest.vocab_size} tokens)."
                )
            if given is None:
                return self._read_vocabulary(manifest)
        return given

    def _read_vocabulary(self, manifest: Manifest) -> Vocabulary | None:
        try:
            vocabulary = Vocabulary.from_file(manifest.vocab_path)
        except InputError as error:
            self.warn(f"{error}; give --vocab_file to see tokens instead of ids.")
            return None
        if vocabulary.sha256 != manifest.vocab_sha256:
            self.warn(
                f"{manifest.vocab_path} is not the vocabulary that {manifest.path}"
                " names; ids are shown."
            )
            return None
        return vocabulary

    def _find_layout(self) -> RecordLayout:
        for path in self.paths:
            try:
                for records in record_blocks(path, 1):
                    layout = find_layout(records[0], path)
                    self._compare_with_manifest(layout)
                    return layout
            except InputError as error:
                if path == self.paths[-1]:
                    raise
                self.warn(str(error))
        raise InputError(f"There is no record in {', '.join(self.paths[:3])}.")

    def _compare_with_manifest(self, layout: RecordLayout) -> None:
        for manifest in self.manifests[:1]:
            for name in ("max_seq_length", "max_predictions_per_seq"):
                said, found = getattr(manifest, name), getattr(layout, name)
                if found and said != found:
                    self.warn(
                        f"{manifest.path}: {name} is {said}; records have {found}."
                    )


def _find_files(patterns: Sequence[str]) -> list[str]:
    """The record files of some patterns, without what stands beside records.

    Files that are not yet complete are taken where there is nothing else: they are what
    a killed run left behind.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        # A shell has expanded what it can, and a name may look like a pattern.
        for part in [pattern] if files.exists(pattern) else pattern.split(","):
            matches = [part] if files.exists(part) else files.glob(part)
            if not matches:
                raise InputError(f"No file matches {part!r}.")
            found |= dict.fromkeys(matches)
    records = [path for path in found if not is_companion(path)]
    records = records or [path for path in found if is_temporary(path)]
    if not records:
        raise InputError(f"No record file, only {next(iter(found))} and the like.")
    for path in records:
        if files.is_folder(path):
            raise InputError(f"{path} is a folder; name {os.path.join(path, '*')}.")
    return records
