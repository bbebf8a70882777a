"""What stands under the names that a command is about to write: the same, or another's.

The same command again finds its finished set and has nothing to do, or its interrupted
one and goes on. A set of other settings, or a file that no manifest knows, is not
written over unless the user says so.
"""

from collections.abc import Sequence
from typing import Any

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.records.manifest import (
    Manifest,
    Shard,
    SourceFile,
    find_manifests,
)

# Which flag sets which field, in the order in which differences are reported.
_FIELDS_OF_FLAGS = (
    ("vocab_file", "vocab_sha256"),
    ("input_file", "record_files"),
    ("input_file", "source_files"),
    *(
        (name, name)
        for name in (
            "do_lower_case",
            "max_seq_length",
            "max_predictions_per_seq",
            "max_sequences_per_row",
            "masking",
            "do_whole_word_mask",
            "masked_lm_prob",
            "short_seq_prob",
            "dupe_factor",
            "random_seed",
            "pairs",
            "nsp_labels",
            "input_format",
            "split_sentences",
            "deduplicate",
            "min_document_tokens",
        )
    ),
    ("random_seed", "packing_seed"),
    ("output_file", "shards"),
)


def find_finished(wanted: Manifest, output_files: Sequence[str]) -> Manifest | None:
    """The set that the command has already made, if it is there and complete."""
    if not files.exists(wanted.path):
        _refuse_unknown_files(wanted, output_files)
        return None
    existing = Manifest.from_json_file(wanted.path)
    difference = first_difference(existing, wanted)
    if difference:
        flag, theirs, ours = difference
        raise InputError(
            f"{wanted.path}: these records were made with --{flag}={theirs}, not "
            f"{ours}; give another --output_file, or --overwrite to replace them."
        )
    if not existing.complete:
        return None
    present = [path for path in output_files if files.exists(path)]
    find_manifests(present)  # refuses a file that was replaced
    return existing if len(present) == len(output_files) else None


def first_difference(
    existing: Manifest, wanted: Manifest
) -> tuple[str, Any, Any] | None:
    """The first setting in which two sets differ, if any.

    Where an input file lies does not count, only its content and place in the order;
    nor how many records came of it, which follows from the rest.
    """
    for flag, field in _FIELDS_OF_FLAGS:
        theirs, ours = getattr(existing, field), getattr(wanted, field)
        if field in ("source_files", "record_files"):
            if _contents(theirs) != _contents(ours):
                return flag, _describe(theirs, ours), _describe(ours, theirs)
        elif field == "shards":
            if _names(theirs) != _names(ours):
                return flag, _listed(_names(theirs)), _listed(_names(ours))
            if _num_streams(theirs) != _num_streams(ours):
                return "num_shards", _num_streams(theirs), _num_streams(ours)
        elif theirs != ours:
            return flag, theirs, ours
    return None


def _names(shards: Sequence[Shard]) -> list[str]:
    return [shard.name for shard in shards]


def _listed(names: Sequence[str]) -> str:
    more = f",... ({len(names)} files)" if len(names) > 3 else ""
    return ",".join(names[:3]) + more


def _num_streams(shards: Sequence[Shard]) -> int | None:
    """What --num_shards was: how many shards have a random stream of their own."""
    return sum(shard.random_seed is not None for shard in shards) or None


def _contents(sources: Sequence[SourceFile]) -> list[tuple[int, str]]:
    return [(source.num_bytes, source.sha256) for source in sources]


def _describe(sources: Sequence[SourceFile], others: Sequence[SourceFile]) -> str:
    """Some files in a few words: names, and the first content that others lack."""
    names = _listed([source.path for source in sources])
    for source in sources:
        if (source.num_bytes, source.sha256) not in _contents(others):
            return (
                f"{names} (where {source.path} has {source.num_bytes} bytes, "
                f"sha256 {source.sha256[:12]})"
            )
    return names


def _refuse_unknown_files(wanted: Manifest, output_files: Sequence[str]) -> None:
    for path in [*output_files, wanted.vocab_path]:
        if files.exists(path):
            raise InputError(
                f"{path} exists, and no {wanted.path} says that this command made it; "
                "give another --output_file, or --overwrite to replace it."
            )
