"""Which records these are: told by the features of one of them.

pre-training      input_ids, input_mask, segment_ids, masked_lm_positions,
                  masked_lm_ids, masked_lm_weights, next_sentence_labels
unmasked          the same without masked_lm_*, to be masked as they are read
packed            one of both, with sequence_ids, cls_positions, next_sentence_weights
classification    input_ids, input_mask, segment_ids, label_ids, is_real_example
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from google.protobuf import message

from bert_tf.errors import InputError
from bert_tf.records.schema import (
    FLOAT32,
    INT64,
    RecordSchema,
    classifier_schema,
    packed_schema,
    pretraining_schema,
    unmasked_packed_schema,
    unmasked_schema,
)

if TYPE_CHECKING:
    import tensorflow as tf

PRETRAINING = "pre-training"
UNMASKED = "unmasked"
CLASSIFICATION = "classification"

# Asked in this order: the last one is a feature of the first kind, too.
_TELLING_FEATURES = {
    "masked_lm_positions": PRETRAINING,
    "label_ids": CLASSIFICATION,
    "next_sentence_labels": UNMASKED,
}


def _unparsable() -> tuple[type[Exception], ...]:
    import tensorflow as tf

    # TensorFlow quotes the record in its error, which Python then decodes as UTF-8.
    return tf.errors.InvalidArgumentError, UnicodeDecodeError


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordLayout:
    """What each record of a file holds.

    Attributes:
        kind: PRETRAINING, UNMASKED or CLASSIFICATION.
        max_seq_length: tokens, padding included.
        max_predictions_per_seq: masked-LM slots; 0 where the kind has none.
        max_sequences_per_row: slots for sequences; 0 where a record is one.
        regression: whether labels are numbers.
        num_labels: how many a record has.
    """

    kind: str
    max_seq_length: int
    max_predictions_per_seq: int = 0
    max_sequences_per_row: int = 0
    regression: bool = False
    num_labels: int = 1

    @functools.cached_property
    def schema(self) -> RecordSchema:
        """The features of such records."""
        num_slots = self.max_sequences_per_row
        if num_slots and self.kind == PRETRAINING:
            return packed_schema(
                self.max_seq_length, self.max_predictions_per_seq, num_slots
            )
        if num_slots:
            return unmasked_packed_schema(self.max_seq_length, num_slots)
        if self.kind == PRETRAINING:
            return pretraining_schema(self.max_seq_length, self.max_predictions_per_seq)
        if self.kind == UNMASKED:
            return unmasked_schema(self.max_seq_length)
        dtype = FLOAT32 if self.regression else INT64
        return classifier_schema(self.max_seq_length, dtype, self.num_labels)

    def __str__(self) -> str:
        lengths = f"{self.max_seq_length} tokens"
        if self.max_predictions_per_seq:
            lengths += f" and {self.max_predictions_per_seq} predictions"
        kind = "regression" if self.regression else self.kind
        if self.num_labels > 1:
            # Several classes at once, or several numbers: the records do not tell.
            kind = self.kind
            lengths += f" and {self.num_labels} labels"
        if self.max_sequences_per_row:
            kind = f"packed {kind}"
            lengths += f", up to {self.max_sequences_per_row} sequences"
        return f"{kind} records of {lengths}"

    def parse(
        self, records: Sequence[bytes]
    ) -> tuple[dict[str, np.ndarray], list[int]]:
        """The features of serialized records, int64 as they are stored."""
        rows = list(range(len(records)))
        try:
            return self._parse(records), rows
        except _unparsable():
            rows = self._fitting(records, rows)
            return self._parse([records[row] for row in rows]), rows

    def _fitting(self, records: Sequence[bytes], rows: list[int]) -> list[int]:
        """Those of the rows that can be parsed, found by halving."""
        try:
            self._parse([records[row] for row in rows])
        except _unparsable():
            middle = len(rows) // 2
            if not middle:
                return []
            return self._fitting(records, rows[:middle]) + self._fitting(
                records, rows[middle:]
            )
        return rows

    def _parse(self, records: Sequence[bytes]) -> dict[str, np.ndarray]:
        import tensorflow as tf

        # Not `RecordSchema.parse`: its int32 would hide an id that is far too large.
        parsed = tf.io.parse_example(
            tf.constant(records, tf.string, shape=[len(records)]),
            {
                feature.name: tf.io.FixedLenFeature(feature.shape, feature.dtype)
                for feature in self.schema.features
            },
        )
        return {name: value.numpy() for name, value in parsed.items()}


def find_layout(record: bytes, source: str) -> RecordLayout:
    """The layout of a serialized record."""
    import tensorflow as tf

    example = tf.train.Example()
    try:
        example.ParseFromString(record)
    except message.DecodeError as error:
        raise InputError(
            f"{source}: the records must be tf.train.Example messages; the first one"
            " cannot be decoded."
        ) from error
    table = dict(example.features.feature)
    kind = next(
        (_TELLING_FEATURES[name] for name in _TELLING_FEATURES if name in table), ""
    )
    lengths = {
        name: len(table[name].int64_list.value) if name in table else 0
        for name in ("input_ids", "masked_lm_positions", "cls_positions")
    }
    if not kind or not lengths["input_ids"]:
        found = ", ".join(_described(name, table[name]) for name in sorted(table))
        raise InputError(
            f"{source}: these are neither pre-training nor classification records."
            f" Found: {found or 'no features'}."
        )
    num_numbers = (
        len(table["label_ids"].float_list.value) if kind == CLASSIFICATION else 0
    )
    layout = RecordLayout(
        kind=kind,
        max_seq_length=lengths["input_ids"],
        # No slot at all is a length that the schema's check complains of.
        max_predictions_per_seq=max(1, lengths["masked_lm_positions"])
        if kind == PRETRAINING
        else 0,
        max_sequences_per_row=max(1, lengths["cls_positions"])
        if "sequence_ids" in table
        else 0,
        regression=bool(num_numbers),
        num_labels=max(1, num_numbers),
    )
    layout.schema.check(record, source)
    return layout


def _described(name: str, feature: "tf.train.Feature") -> str:
    """A feature as `name int64[128]`."""
    kind = feature.WhichOneof("kind")
    if kind is None:
        return f"{name} (empty)"
    length = len(getattr(feature, kind).value)
    return f"{name} {kind.removesuffix('_list')}[{length}]"
