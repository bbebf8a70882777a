"""What is to be packed, checked, before any work: the plan of a set of packed rows."""

import dataclasses
from collections.abc import Sequence

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.instances.settings import (
    DYNAMIC_MASKING,
    STATIC_MASKING,
    InstanceSettings,
)
from bert_tf.parallel import ordered_map
from bert_tf.records.layouts import PRETRAINING, UNMASKED, RecordLayout, find_layout
from bert_tf.records.manifest import (
    Manifest,
    Shard,
    SourceFile,
    find_manifests,
    manifest_path,
    relative_name,
)
from bert_tf.records.reading import record_blocks
from bert_tf.text.vocabulary import Vocabulary

# What the sets that are packed together must have in common. What is masked later is
# masked by the rates that the records were made with.
_COMMON = ("vocab_sha256", "do_lower_case", "masking", "pairs")
_COMMON_UNMASKED = ("masked_lm_prob", "do_whole_word_mask", "max_predictions_per_seq")

_KINDS = (PRETRAINING, UNMASKED)

# A row of 512 tokens has slots for so many sequences times 16.
_TOKENS_PER_SLOT = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackingPlan:
    """A set of packed rows that is to be made.

    Attributes:
        paths: the record files to pack.
        layout: of their records, as long as the longest.
        vocabulary: of the tokens.
        output_files: the files of rows.
        manifest: what is known before any row is made.
    """

    paths: Sequence[str]
    layout: RecordLayout
    vocabulary: Vocabulary
    output_files: Sequence[str]
    manifest: Manifest


def plan_packing(
    paths: Sequence[str],
    output_file: str,
    *,
    max_seq_length: int,
    max_predictions_per_seq: int | None,
    max_sequences_per_row: int | None,
    num_shards: int | None,
    random_seed: int,
    vocab_file: str | None,
    do_lower_case: bool | None,
    num_workers: int,
) -> PackingPlan:
    """Checks what is asked for, and reads the input once to know it again.

    The arguments are those of `packed_records.pack_pretraining_records`, as are the
    errors.
    """
    manifests = find_manifests(paths)
    layout = _common_layout(paths, max_seq_length)
    base, vocabulary = _base(paths, manifests, layout, vocab_file, do_lower_case)
    if max_predictions_per_seq is None:
        # As many for each token as the records have.
        slots = base.max_predictions_per_seq * max_seq_length
        max_predictions_per_seq = -(-slots // layout.max_seq_length)
    if max_predictions_per_seq < base.max_predictions_per_seq:
        raise InputError(
            f"--max_predictions_per_seq={max_predictions_per_seq} of a row must not be"
            f" less than that of a sequence, {base.max_predictions_per_seq}."
        )
    if max_sequences_per_row is None:
        max_sequences_per_row = max(1, max_seq_length // _TOKENS_PER_SLOT)
    output_files = _output_files(paths, output_file, num_shards)
    path = manifest_path(output_files)
    is_much = sum(map(files.size, paths)) > 1 << 30
    manifest = dataclasses.replace(
        base,
        path=path,
        packed=True,
        max_seq_length=max_seq_length,
        max_predictions_per_seq=max_predictions_per_seq,
        max_sequences_per_row=max_sequences_per_row,
        max_sequence_length=layout.max_seq_length,
        max_predictions_per_sequence=base.max_predictions_per_seq,
        packing_seed=random_seed,
        record_files=tuple(
            ordered_map(
                SourceFile.describe, paths, num_workers=num_workers if is_much else 1
            )
        ),
        shards=tuple(
            Shard(name=relative_name(name, path), num_records=0, num_bytes=0)
            for name in output_files
        ),
        complete=False,
        report={},
    )
    return PackingPlan(
        paths=paths,
        layout=layout,
        vocabulary=vocabulary,
        output_files=output_files,
        manifest=manifest,
    )


def _output_files(
    paths: Sequence[str], output_file: str, num_shards: int | None
) -> list[str]:
    if not output_file or files.is_folder(output_file):
        raise InputError(f"--output_file={output_file} must name a file, not a folder.")
    if num_shards is None and len(paths) == 1:
        names = [output_file]
    else:
        count = num_shards or len(paths)
        names = [f"{output_file}-{shard:05d}-of-{count:05d}" for shard in range(count)]
    taken = {files.identity(path) for path in paths}
    for name in names:
        if files.identity(name) in taken:
            raise InputError(f"--output_file: {name} is also an input file.")
    return names


def _common_layout(paths: Sequence[str], max_seq_length: int) -> RecordLayout:
    """The kind of all records, and the longest length."""
    found: dict[RecordLayout, str] = {}
    for path in paths:
        for records in record_blocks(path, 1):
            found.setdefault(find_layout(records[0], path), path)
            break
    if not found:
        raise InputError(f"--input_file: there is no record in {', '.join(paths[:3])}.")
    first = next(iter(found))
    for layout, path in found.items():
        if layout.kind not in _KINDS or layout.max_sequences_per_row:
            raise InputError(f"{path}: {layout} cannot be packed.")
        if layout.kind != first.kind:
            raise InputError(
                f"Records that are masked and records without masks cannot be packed"
                f" together: {found[first]} and {path}."
            )
        if layout.max_seq_length > max_seq_length:
            raise InputError(
                f"--max_seq_length={max_seq_length} of a row must not be less than that"
                f" of a sequence, {layout.max_seq_length} in {path}."
            )
    return dataclasses.replace(
        first,
        max_seq_length=max(layout.max_seq_length for layout in found),
        max_predictions_per_seq=max(layout.max_predictions_per_seq for layout in found),
    )


def _base(
    paths: Sequence[str],
    manifests: Sequence[Manifest],
    layout: RecordLayout,
    vocab_file: str | None,
    do_lower_case: bool | None,
) -> tuple[Manifest, Vocabulary]:
    """What the rows have of their records: a manifest, and the vocabulary."""
    if not manifests:
        return _base_of_foreign_records(paths, layout, vocab_file, do_lower_case)
    listed = {
        files.absolute(path)
        for manifest in manifests
        for path in manifest.records_by_path()
    }
    for path in paths:
        if files.absolute(path) not in listed:
            raise InputError(
                f"{path} has no manifest, but other files of --input_file have one:"
                " pack them apart."
            )
    first = manifests[0]
    is_dynamic = first.masking == DYNAMIC_MASKING
    names = (*_COMMON, *_COMMON_UNMASKED) if is_dynamic else _COMMON
    for other in manifests[1:]:
        for name in names:
            here, there = getattr(first, name), getattr(other, name)
            if here != there:
                raise InputError(
                    f"The records of {first.path} were made with {name}={here}, those"
                    f" of {other.path} with {there}: pack them apart."
                )
    if not vocab_file and not files.exists(first.vocab_path):
        raise InputError(f"{first.vocab_path} is missing: give --vocab_file.")
    vocabulary = Vocabulary.from_file(vocab_file or first.vocab_path)
    if vocabulary.sha256 != first.vocab_sha256:
        raise InputError(
            f"{vocab_file or first.vocab_path} is not the vocabulary that {first.path}"
            " names."
        )
    if do_lower_case not in (None, first.do_lower_case):
        raise InputError(
            f"--do_lower_case={do_lower_case}, but the records of {first.path} were"
            f" made with {first.do_lower_case}."
        )
    sources = {
        source.sha256: source
        for manifest in manifests
        for source in manifest.source_files
    }
    base = dataclasses.replace(
        first,
        max_predictions_per_seq=max(
            manifest.max_predictions_per_seq for manifest in manifests
        ),
        source_files=tuple(sources.values()),
    )
    return base, vocabulary


def _base_of_foreign_records(
    paths: Sequence[str],
    layout: RecordLayout,
    vocab_file: str | None,
    do_lower_case: bool | None,
) -> tuple[Manifest, Vocabulary]:
    """What can be said of records without a manifest: the original's defaults."""
    if not vocab_file:
        raise InputError(
            f"{paths[0]} has no manifest: give --vocab_file, and --do_lower_case=False"
            " for a cased one."
        )
    if layout.kind == UNMASKED:
        raise InputError(
            f"{paths[0]} has neither masks nor a manifest that says how to mask it."
        )
    vocabulary = Vocabulary.from_file(vocab_file)
    vocabulary.require_special_tokens(vocab_file)
    settings = InstanceSettings(
        max_seq_length=layout.max_seq_length,
        max_predictions_per_seq=layout.max_predictions_per_seq,
        masking=STATIC_MASKING,
    )
    manifest = Manifest(
        vocab_sha256=vocabulary.sha256,
        vocab_size=len(vocabulary),
        do_lower_case=do_lower_case is not False,
        source_files=(),
        shards=(),
        complete=False,
        **dataclasses.asdict(settings),
    )
    return manifest, vocabulary
