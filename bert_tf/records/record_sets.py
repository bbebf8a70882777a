"""A set of pre-training records that is being made: announced, declared complete.

What every way of making a set has in common, so that all of them check the same, leave
the same files and say the same about them:

1. `record_planning.plan_record_set` checks the arguments and knows the manifest but for
   the counts; `RecordSet.find_finished` looks at what stands under the set's names;
2. `RecordSet.announce` takes the names: a manifest that says "not complete", and the
   vocabulary;
3. the record files get their names, each when it is complete;
4. `RecordSet.complete` lets the manifest say "complete", with a report.
"""

import dataclasses
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.instances.settings import InstanceSettings
from bert_tf.records import reports
from bert_tf.records.finished import find_finished
from bert_tf.records.generation import ShardResult
from bert_tf.records.manifest import MANIFEST_SUFFIX, Manifest
from bert_tf.records.shards import remove_leftovers
from bert_tf.records.tokenized_chunks import TokenizedChunk
from bert_tf.text.documents import Chunk
from bert_tf.text.vocabulary import Vocabulary

# To be raised when the same text and settings come to give other bytes, so that a run
# does not go on with what an older bert_tf began.
_WAY_OF_MAKING = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordSet:
    """A set of records that is to be made.

    Attributes:
        chunks: the text.
        output_files: the record files.
        vocabulary: of the tokens.
        settings: of the instances, with the whole set's seed.
        manifest: what is known before any record is made.
        started: when the work began, by `time.monotonic`.
    """

    chunks: Sequence[Chunk]
    output_files: Sequence[str]
    vocabulary: Vocabulary
    settings: InstanceSettings
    manifest: Manifest
    started: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        """The manifest's path without its suffix."""
        return self.manifest.path.removesuffix(MANIFEST_SUFFIX)

    @property
    def identity(self) -> dict[str, Any]:
        """All that the record files depend on, for JSON.

        Of the text its content counts, not where it lies.
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
        """Refuses text without a token, and warns of files that have none.

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
        reports.warn_of_lengths(tokenized, self.settings)

    def announce(self, results: Sequence[ShardResult] = ()) -> None:
        """Takes the names: from here on the record files are this set's.

        Record files of a set that is overwritten which the new one will not have are
        removed.
        """
        manifest = with_counts(self.manifest, results) if results else self.manifest
        announce(manifest, self.vocabulary)

    def complete(
        self,
        tokenized: Sequence[TokenizedChunk],
        dropped: Counter[str],
        results: Sequence[ShardResult],
    ) -> Manifest:
        """Writes the manifest of the set whose record files have their names."""
        dropped = reports.dropped_counts(tokenized) + dropped
        manifest = dataclasses.replace(
            with_counts(self.manifest, results),
            complete=True,
            report=reports.final_report(
                reports.read_report(tokenized), dropped, results
            ),
        )
        files.write_atomically(manifest.path, manifest.to_json_string())
        for path in (manifest.path, manifest.vocab_path):
            remove_leftovers(path)
        reports.warn_of_oddities(results, self.settings)
        reports.log_report(manifest.report, results)
        logging.info(
            "Wrote %d records to %s, %s (%.1f s)",
            manifest.num_records,
            f"{len(manifest.shards)} files" if len(manifest.shards) > 1 else "one file",
            manifest.path,
            time.monotonic() - self.started,
        )
        return manifest


def announce(manifest: Manifest, vocabulary: Vocabulary) -> None:
    """As `RecordSet.announce`, for a manifest that is not complete."""
    replaced = _replaced_files(manifest)
    files.write_atomically(manifest.path, manifest.to_json_string())
    vocabulary.save(manifest.vocab_path)
    for path in replaced:
        files.remove(path)


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
