"""The manifest: a file next to a set of record files that describes its origin.

A set named NAME consists of its record files, NAME.manifest.json and NAME.vocab.txt, so
that training detects the lengths, the vocabulary and the casing automatically.

NAME is the name of the set's first record file, without its shard suffix:

    first record file                       NAME
    tf_examples.tfrecord                    tf_examples.tfrecord
    data/wiki-00000-of-00008                data/wiki
    data/wiki-00000-of-00008.tfrecord       data/wiki
    a.tfrecord (then b.tfrecord, ...)       a.tfrecord

The manifest is one JSON object with the fields of `Manifest`. Its `shards` name the
record files relative to the manifest's folder, with their numbers of records and bytes;
`find_manifests` goes the other way, from a record file to its manifest.

`complete` is false from just before the record files get their final names until all
have them; only the command that made the set resumes an incomplete one.
"""

import contextlib
import dataclasses
import functools
import glob
import hashlib
import itertools
import json
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.base import files, finished
from bert_tf.base.errors import InputError
from bert_tf.base.strict_json import from_values
from bert_tf.instances.settings import FULL_SENTENCES, NUM_SPECIAL_TOKENS
from bert_tf.records.writing import MANIFEST_SUFFIX, VOCABULARY_SUFFIX, is_companion
from bert_tf.text.segmentation import NO_SEGMENTER

FORMAT_VERSION = 1

_FIELDS_OF_PACKED_SETS = (
    "packed",
    "max_sequences_per_row",
    "max_sequence_length",
    "max_predictions_per_sequence",
    "packing_seed",
    "record_files",
)

_SHARD_SUFFIX = re.compile(r"-\d{5,}-of-\d{5,}(\.[^/]*)?$")


@dataclasses.dataclass(frozen=True)
class Shard:
    """One record file of a set."""

    name: str  # its path, relative to the manifest's folder
    num_records: int
    num_bytes: int  # its size, which shows if a file was replaced
    random_seed: int | None = None  # of its own stream; None where the set has one


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One input file, identified by its content, not its path or times."""

    path: str  # as it was given
    num_bytes: int
    sha256: str  # of its content, in hexadecimal

    @classmethod
    def describe(cls, path: str) -> "SourceFile":
        """Returns a file's description; reads the file once."""
        digest = hashlib.sha256()
        num_bytes = 0
        with files.open_binary(path) as file:
            while block := file.read(1 << 20):
                digest.update(block)
                num_bytes += len(block)
        return cls(path=path, num_bytes=num_bytes, sha256=digest.hexdigest())


class OfText(NamedTuple):
    """The settings, besides the vocabulary, that determine tokens."""

    do_lower_case: bool
    segmenter: str
    deduplicate: str
    longest_sentence: int | None  # in tokens; None if longer ones are not cut


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """The settings, sources and files of pre-training records."""

    vocab_sha256: str  # of NAME.vocab.txt, as `Vocabulary.sha256`
    vocab_size: int  # lines of the vocabulary
    do_lower_case: bool  # whether the text was lower-cased and lost its accents
    max_seq_length: int  # tokens per record, padding included
    max_predictions_per_seq: int  # masked-LM slots per record
    # "static": the masks are in the records; "dynamic": the records are unmasked, and
    # the training masks them, by default at these rates.
    masking: str
    do_whole_word_mask: bool  # whether the pieces of a word are masked together
    masked_lm_prob: float  # share of a sequence's tokens that is masked
    short_seq_prob: float  # chance of aiming at a shorter sequence
    dupe_factor: int  # passes over the documents, each with fresh masks
    random_seed: int  # of the one random stream, or of the shards' seeds
    source_files: tuple[SourceFile, ...]  # the input, in the order of reading
    shards: tuple[Shard, ...]  # in the order in which records were dealt to them
    complete: bool  # whether all shards have their final names
    segmenter: str = NO_SEGMENTER  # or "icu": what separated words without spaces
    # Kind of sequences: "nsp": two segments, the second one the next or a random one;
    # "sop": two neighbouring segments, in order or swapped; "none": whole sentences in
    # one segment.
    pairs: str = "nsp"
    nsp_labels: str = "original"  # with its known faults, or "exact"
    # "text", "wikiextractor", "mediawiki", "jsonl", "parquet" or "tfds"; several with
    # "+" between.
    input_format: str = "text"
    encoding: str = "utf-8"  # of the text files; several with "+" between
    clean: str = "none"  # or "pdf": how documents were made into paragraphs
    # The language whose rules split lines; "" where each line was a sentence.
    split_sentences: str = ""
    deduplicate: str = "none"  # or "documents", "paragraphs" or "near"
    min_document_tokens: int = 0  # shorter documents were dropped
    # Counts of data read, dropped and written, for people.
    report: dict = dataclasses.field(default_factory=dict)
    # Whether a record is a row of several sequences. If so, `max_seq_length` and
    # `max_predictions_per_seq` apply to a row, and these fields are written too.
    packed: bool = False
    max_sequences_per_row: int = 0  # slots for sequences
    max_sequence_length: int = 0  # tokens per sequence
    max_predictions_per_sequence: int = 0  # masked-LM slots per sequence
    packing_seed: int = 0  # of the rows' order
    # The record files that the rows were made of, by earlier versions.
    record_files: tuple[SourceFile, ...] = ()
    format_version: int = FORMAT_VERSION
    # The manifest's own path; not a part of it.
    path: str = dataclasses.field(default="", compare=False)

    @property
    def vocab_path(self) -> str:
        """The path of the set's vocabulary."""
        return self.path.removesuffix(MANIFEST_SUFFIX) + VOCABULARY_SUFFIX

    @property
    def is_filtered(self) -> bool:
        """Whether documents or paragraphs may be dropped."""
        return self.deduplicate != "none" or self.min_document_tokens > 0

    @property
    def of_text(self) -> OfText:
        """The settings, besides the vocabulary, that determine tokens."""
        longest = None  # a longer sentence takes several sequences
        if self.pairs != FULL_SENTENCES:
            length = self.max_sequence_length if self.packed else self.max_seq_length
            longest = length - NUM_SPECIAL_TOKENS
        return OfText(self.do_lower_case, self.segmenter, self.deduplicate, longest)

    @property
    def num_records(self) -> int:
        """The number of records in all shards."""
        return sum(shard.num_records for shard in self.shards)

    @property
    def nameless(self) -> "Manifest":
        """A copy without the paths of the text."""
        nameless = tuple(dataclasses.replace(one, path="") for one in self.source_files)
        return dataclasses.replace(self, source_files=nameless)

    @property
    def identity(self) -> str:
        """A digest of the records' sources and settings."""
        # Without defaults: a field that a later version adds changes no identity.
        values = dataclasses.asdict(self.nameless)
        return finished.digest(
            {
                field.name: values[field.name]
                for field in dataclasses.fields(self)
                if field.name not in ("path", "report", "complete")
                and values[field.name] != field.default
            }
        )

    def records_by_path(self) -> dict[str, int]:
        """Returns each record file's path, with the folder, and number of records."""
        folder = os.path.dirname(self.path)
        return {
            # A remote file in another folder is named by its whole path.
            shard.name
            if files.is_remote(shard.name)
            else os.path.join(folder, shard.name): shard.num_records
            for shard in self.shards
        }

    def to_json_string(self) -> str:
        """Returns the text of NAME.manifest.json."""
        values = dataclasses.asdict(self)
        del values["path"]
        if not self.packed:
            for name in _FIELDS_OF_PACKED_SETS:
                del values[name]
        return json.dumps(values, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json_file(cls, path: str) -> "Manifest":
        """Returns the manifest in a NAME.manifest.json."""
        values = files.read_json(path, "manifest")
        version = values.get("format_version") if isinstance(values, dict) else None
        if type(version) is not int:
            raise InputError(f"{path}: not a manifest: it has no `format_version`.")
        if version > FORMAT_VERSION:
            raise InputError(
                f"{path}: this bert_tf reads manifests up to format version "
                f"{FORMAT_VERSION}. Received: {version}. Install a newer bert_tf."
            )
        manifest = from_values(cls, values, path)
        for name in ("vocab_size", "max_seq_length", "max_predictions_per_seq"):
            if (size := getattr(manifest, name)) < 1:
                raise InputError(
                    f'{path}: "{name}" must be positive. Received: {size}.'
                )
        return dataclasses.replace(manifest, path=path)


def manifest_path(output_files: Sequence[str]) -> str:
    """Returns the path of a set's manifest."""
    return _SHARD_SUFFIX.sub("", output_files[0]) + MANIFEST_SUFFIX


def written_files(paths: Sequence[str]) -> Iterator[str]:
    """Yields the files that accompany records, and the records that they list."""
    yield from filter(is_companion, paths)
    for path in paths:
        if path.endswith(MANIFEST_SUFFIX):
            with contextlib.suppress(InputError):
                yield from Manifest.from_json_file(path).records_by_path()


def _raise(problem: InputError) -> None:
    raise problem


def listed_files(
    record_files: Iterable[str], report: Callable[[InputError], object] = _raise
) -> dict[str, tuple[Manifest, Shard]]:
    """Returns the files that manifests list, in order, each with manifest and entry."""

    @functools.cache
    def read(path: str) -> Manifest | None:
        try:
            return Manifest.from_json_file(path)
        except InputError as problem:
            report(problem)
            return None

    glob_once = functools.cache(files.glob)
    found: dict[str, Manifest] = {}
    listed = {}

    def candidates(path: str) -> Iterator[Manifest | None]:
        yield from found.values()
        own = manifest_path([path])
        if files.exists(own):
            yield read(own)
        folder = glob.escape(os.path.dirname(path))
        yield from map(read, glob_once(os.path.join(folder, "*" + MANIFEST_SUFFIX)))

    for path in record_files:
        for manifest in filter(None, candidates(path)):
            name = relative_name(path, manifest.path)
            shards = {shard.name: shard for shard in manifest.shards}
            if name in shards:
                try:
                    _check_shard(path, shards[name], manifest)
                except InputError as problem:
                    report(problem)
                found[manifest.path] = manifest
                listed[path] = manifest, shards[name]
                break
    return listed


def manifests_of(listed: Mapping[str, tuple[Manifest, Shard]]) -> list[Manifest]:
    """Returns the manifests of some files, in the files' order."""
    return list({manifest.path: manifest for manifest, _ in listed.values()}.values())


def find_manifests(record_files: Iterable[str]) -> list[Manifest]:
    """Returns the manifests of the sets that these files belong to, in order."""
    return manifests_of(listed_files(record_files))


def _check_shard(path: str, shard: Shard, manifest: Manifest) -> None:
    if not manifest.complete:
        raise InputError(
            f"{manifest.path}: the set is not complete; give the same command again."
        )
    num_bytes = files.size(path)
    if num_bytes != shard.num_bytes:
        raise InputError(
            f"{path} must have {shard.num_bytes} bytes, says {manifest.path}. "
            f"Received: {num_bytes}. It was replaced, or copied only in part."
        )


def relative_name(record_file: str, manifest_file: str) -> str:
    """Returns a record file's path in a manifest: relative to the manifest's folder."""
    if files.is_remote(record_file):
        return record_file.removeprefix(os.path.dirname(manifest_file) + "/")
    return os.path.relpath(record_file, os.path.dirname(manifest_file) or ".")


# The settings named like their flags.
_FLAGS = (
    "do_lower_case",
    "segmenter",
    "masking",
    "do_whole_word_mask",
    "masked_lm_prob",
    "short_seq_prob",
    "dupe_factor",
    "random_seed",
    "pairs",
    "nsp_labels",
    "input_format",
    "encoding",
    "clean",
    "split_sentences",
    "deduplicate",
    "min_document_tokens",
)


def settings_of(manifest: Manifest) -> dict[str, Any]:
    """Returns the flags' values, in the order in which differences are reported."""
    packed = manifest.packed
    length, slots = manifest.max_seq_length, manifest.max_predictions_per_seq
    return {
        "vocab_file": manifest.vocab_sha256,
        "max_seq_length": manifest.max_sequence_length if packed else length,
        "max_predictions_per_seq": (
            manifest.max_predictions_per_sequence if packed else slots
        ),
        "packed_length": length if packed else None,
        **{name: getattr(manifest, name) for name in _FLAGS},
        "output_file": ", ".join(shard.name for shard in manifest.shards),
        # The number of shards with a random stream of their own.
        "num_shards": sum(s.random_seed is not None for s in manifest.shards) or None,
    }


def find_finished(wanted: Manifest, output_files: Sequence[str]) -> Manifest | None:
    """Returns the set if the command has already made it, and it is complete."""
    if not files.exists(wanted.path):
        for path in [*output_files, wanted.vocab_path]:
            if files.exists(path):
                raise InputError(
                    f"{path} exists, but no {wanted.path} says that this command made"
                    " it; give another `output_file`, or `overwrite` to replace it."
                )
        return None
    existing = Manifest.from_json_file(wanted.path)
    if difference := first_difference(existing, wanted):
        flag, *values = difference
        theirs, ours = (textwrap.shorten(str(value), 200) for value in values)
        raise InputError(
            f"{wanted.path}: these records were made with `{flag}={theirs}`, not "
            f"{ours}; give another `output_file`, or `overwrite` to replace them."
        )
    if not existing.complete:
        return None
    present = [path for path in output_files if files.exists(path)]
    find_manifests(present)  # refuses a file that was replaced
    return existing if len(present) == len(output_files) else None


def first_difference(
    existing: Manifest, wanted: Manifest
) -> tuple[str, Any, Any] | None:
    """Returns the first setting in which two sets differ, if any."""
    # Input files are compared by content and order, not by path. Numbers of records are
    # not compared: they follow from the rest.
    for each in itertools.zip_longest(
        existing.record_files + existing.source_files,
        wanted.record_files + wanted.source_files,
    ):
        if len({source and (source.num_bytes, source.sha256) for source in each}) > 1:
            theirs, ours = (
                f"{source.path} (of {source.num_bytes} bytes, sha256"
                f" {source.sha256[:12]})"
                if source
                else "fewer files"
                for source in each
            )
            return "input_file", theirs, ours
    before, now = settings_of(existing), settings_of(wanted)
    differences = (
        (flag, before[flag], now[flag]) for flag in now if before[flag] != now[flag]
    )
    return next(differences, None)


def fingerprint(
    paths: Sequence[str],
    counts: Sequence[int],
    max_seq_length: int,
    identities: Sequence[str] = (),
) -> int:
    """Returns a number that identifies sets by files' names, counts and lengths."""
    # It also depends on the manifests' sources and settings: `Manifest.identity`.
    lines = f"{max_seq_length}\n" + "".join(
        f"{os.path.basename(path)} {count}\n"
        for path, count in zip(paths, counts, strict=True)
    )
    lines += "".join(f"{identity}\n" for identity in identities)
    digest = hashlib.sha256(lines.encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") >> 1 or 1


def shared_text(
    held_out: Iterable[Manifest], manifests: Iterable[Manifest]
) -> list[str]:
    """Returns names of held-out files whose content is in the training's records."""
    # Shards of one set of records do not count: their documents differ.
    manifests = list(manifests)
    sets = {one.identity for one in manifests}
    held_out = [one for one in held_out if one.identity not in sets]
    known = {
        one.sha256 for each in manifests for one in each.source_files if one.num_bytes
    }
    return sorted(
        {
            os.path.basename(one.path)
            for each in held_out
            for one in each.source_files
            if one.sha256 in known
        }
    )
