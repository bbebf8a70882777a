"""What pre-training records are, as far as all of a run's files must say the same."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from bert_tf.errors import InputError
from bert_tf.instances.settings import DYNAMIC_MASKING, FULL_SENTENCES
from bert_tf.records.manifest import Manifest
from bert_tf.records.mixing import agreed, alike
from bert_tf.records.schema import (
    RecordSchema,
    packed_schema,
    pretraining_schema,
    unmasked_packed_schema,
    unmasked_schema,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingShape:
    """The lengths of some records, and which kind they are.

    Attributes:
        max_seq_length: tokens of a record.
        max_predictions_per_seq: masked-LM slots of a record as it is fed to the model.
        is_dynamic: whether the records have no masks in them.
        has_pairs: whether there is a next sentence to predict.
        is_packed: whether a record is a row of several sequences.
        max_sequences_per_row: slots for sequences; 1 where rows are not packed.
        max_sequence_length: tokens of a sequence.
        max_predictions_per_sequence: the most predictions of a sequence.
    """

    max_seq_length: int
    max_predictions_per_seq: int
    is_dynamic: bool
    has_pairs: bool
    is_packed: bool
    max_sequences_per_row: int
    max_sequence_length: int
    max_predictions_per_sequence: int

    @classmethod
    def settle(
        cls,
        paths: Sequence[str],
        manifests: Sequence[Manifest],
        *,
        lengths: tuple[int, int],
        max_seq_length: int | None,
        max_predictions_per_seq: int | None,
    ) -> "PretrainingShape":
        """What the records' manifests and the user say."""
        first = manifests[0] if manifests else None
        if max_seq_length is None:
            max_seq_length = first.max_seq_length if first else lengths[0] or 1
        _check(manifests, "max_seq_length", max_seq_length)
        is_dynamic = alike(
            paths,
            manifests,
            lambda manifest: manifest.masking == DYNAMIC_MASKING,
            ("without masks", "that are masked"),
        )
        has_pairs = not alike(
            paths,
            manifests,
            lambda manifest: manifest.pairs == FULL_SENTENCES,
            ("without sentence pairs", "with pairs"),
        )
        if has_pairs:
            refuse_mixed_pairs(manifests)
        is_packed = alike(
            paths,
            manifests,
            lambda manifest: manifest.packed,
            ("that are packed", "that are not"),
        )
        if max_predictions_per_seq is None:
            max_predictions_per_seq = (
                agreed(manifests, "max_predictions_per_seq")
                if is_dynamic
                else first.max_predictions_per_seq
                if first
                else lengths[1] or 1
            )
        if not is_dynamic:
            _check(manifests, "max_predictions_per_seq", max_predictions_per_seq)
        return cls(
            max_seq_length=max_seq_length,
            max_predictions_per_seq=max_predictions_per_seq,
            is_dynamic=is_dynamic,
            has_pairs=has_pairs,
            is_packed=is_packed,
            max_sequences_per_row=(
                _common(manifests, "max_sequences_per_row") if is_packed else 1
            ),
            max_sequence_length=(
                max(manifest.max_sequence_length for manifest in manifests)
                if is_packed
                else max_seq_length
            ),
            max_predictions_per_sequence=(
                _common(manifests, "max_predictions_per_sequence")
                if is_packed
                else max_predictions_per_seq
            ),
        )

    @property
    def schema(self) -> RecordSchema:
        """What a record holds."""
        if self.is_packed and self.is_dynamic:
            return unmasked_packed_schema(
                self.max_seq_length, self.max_sequences_per_row
            )
        if self.is_packed:
            return packed_schema(
                self.max_seq_length,
                self.max_predictions_per_seq,
                self.max_sequences_per_row,
            )
        if self.is_dynamic:
            return unmasked_schema(self.max_seq_length)
        return pretraining_schema(self.max_seq_length, self.max_predictions_per_seq)


def refuse_mixed_pairs(manifests: Sequence[Manifest]) -> None:
    """Raises InputError if a label means different things in different records."""
    for first, other in itertools.pairwise(manifests):
        if first.pairs != other.pairs:
            raise InputError(
                f"The records of {first.path} were made with pairs={first.pairs},"
                f" those of {other.path} with pairs={other.pairs}: their labels mean"
                " other things, and one model cannot learn both."
            )


def _check(manifests: Sequence[Manifest], name: str, wanted: int) -> None:
    for manifest in manifests:
        found = getattr(manifest, name)
        if found != wanted:
            raise InputError(
                f"`{name}={wanted}`, but the records of {manifest.path} were made"
                f" with {found}."
            )


def _common(manifests: Sequence[Manifest], name: str) -> Any:
    """What the manifests of packed sets say alike."""
    first = manifests[0]
    for other in manifests[1:]:
        here, there = getattr(first, name), getattr(other, name)
        if here != there:
            raise InputError(
                f"Packed records of {name}={here} and of {there} cannot be used"
                f" together: {first.path} and {other.path}."
            )
    return getattr(first, name)
