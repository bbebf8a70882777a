"""Record files by the length of their sequences."""

import os
from collections.abc import Sequence

import tensorflow as tf
from google.protobuf import message

from bert_tf.errors import InputError
from bert_tf.records.manifest import find_manifests
from bert_tf.records.pipeline import first_record


def files_by_length(paths: Sequence[str]) -> dict[int, list[str]]:
    """The record files of each max_seq_length.

    A file's manifest tells its length, or else its first record.
    """
    known: dict[str, int] = {}
    for manifest in find_manifests(paths):
        for path in manifest.records_by_path():
            known[os.path.normpath(path)] = manifest.max_seq_length
    lengths: dict[int, list[str]] = {}
    for path in paths:
        length = known.get(os.path.normpath(path)) or _length_of_first_record(path)
        if length:
            lengths.setdefault(length, []).append(path)
    return lengths


def lengths_of_record(record: bytes, path: str) -> tuple[int, int]:
    """max_seq_length and max_predictions_per_seq of a record as it stands."""
    example = tf.train.Example()
    try:
        example.ParseFromString(record)
    except message.DecodeError as error:
        raise InputError(
            f"{path}: the records must be tf.train.Example messages; the first one"
            " cannot be decoded."
        ) from error
    feature = example.features.feature
    tokens, predictions = (
        len(feature[name].int64_list.value)
        for name in ("input_ids", "masked_lm_positions")
    )
    return tokens, predictions


def _length_of_first_record(path: str) -> int:
    """0 for a file without records."""
    found = first_record([path])
    if found is None:
        return 0
    length, _ = lengths_of_record(found[1], path)
    if not length:
        raise InputError(f"{path}: the records must have `input_ids`.")
    return length
