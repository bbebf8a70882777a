"""What is to be predicted of records without masks: settled before any is read."""

import functools
from collections.abc import Sequence

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.instances.creation import TokenIds
from bert_tf.records.dynamic_masking import DynamicMasking
from bert_tf.records.manifest import Manifest
from bert_tf.records.masking_options import MaskingOptions, log_masking
from bert_tf.records.pretraining_shape import PretrainingShape
from bert_tf.text.vocabulary import Vocabulary


def find_vocabulary(
    manifests: Sequence[Manifest], vocab_file: str | None
) -> Vocabulary | None:
    """The user's vocabulary, or else that beside the records, if there is one."""
    manifest = manifests[0] if manifests else None
    if vocab_file:
        given = Vocabulary.from_file(vocab_file)
        given.require_special_tokens(vocab_file)
        if manifest and given.sha256 != manifest.vocab_sha256:
            raise InputError(
                f"`vocab_file={vocab_file}` ({len(given)} tokens) is not the"
                f" vocabulary of {manifest.path} ({manifest.vocab_size} tokens)."
            )
        return given
    if manifest is None or not files.exists(manifest.vocab_path):
        return None
    own = Vocabulary.from_file(manifest.vocab_path)
    if own.sha256 != manifest.vocab_sha256:
        raise InputError(
            f"{manifest.vocab_path} was replaced: it is not the vocabulary that"
            f" {manifest.path} names."
        )
    return own


def settled_masking(
    options: MaskingOptions,
    shape: PretrainingShape,
    manifests: Sequence[Manifest],
    vocabulary: Vocabulary | None,
) -> "functools.partial[DynamicMasking]":
    """How to mask records as they are read: DynamicMasking, but for the seed."""
    if vocabulary is None:
        raise InputError(
            f"{manifests[0].vocab_path} is missing: the records cannot be masked"
            " without their vocabulary. Give `vocab_file`."
        )
    arguments = options.settled(manifests) | {
        "max_seq_length": shape.max_seq_length,
        "max_predictions_per_seq": shape.max_predictions_per_seq,
    }
    log_masking(**arguments)
    if shape.is_packed:
        arguments |= {
            "max_sequence_length": shape.max_sequence_length,
            "max_predictions_per_sequence": shape.max_predictions_per_sequence,
        }
    ids = TokenIds.from_vocabulary(vocabulary.ids)
    return functools.partial(DynamicMasking, ids, **arguments)


def refuse_masks(
    path: str,
    shape: PretrainingShape,
    options: MaskingOptions,
    max_predictions_per_seq: int | None,
) -> None:
    """Refuses what a left-to-right model has no use for."""
    if not shape.is_dynamic:
        raise InputError(
            f"{path}: the records are masked, but a left-to-right model predicts every"
            " token. Make them by create_pretraining_data --masking=dynamic."
        )
    options.refuse_where_left_to_right()
    if max_predictions_per_seq is not None:
        raise InputError(
            f"`max_predictions_per_seq={max_predictions_per_seq}` is for masking, but a"
            " left-to-right model predicts every token."
        )
