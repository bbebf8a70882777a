"""The feature table of a record: the one place that knows what a TFRecord holds.

A record is a serialized `tf.train.Example` whose features all have a fixed length, so
that a batch has static shapes. `RecordSchema` writes such records, parses them, and
says in one line why a foreign one does not fit. The names are the model's input names.

L is max_seq_length and P is max_predictions_per_seq; B is the batch.

Pre-training (`pretraining_schema`):
    input_ids             int64[L]    token ids, [CLS] A [SEP] B [SEP], padded with 0
    input_mask            int64[L]    1 for a token, 0 for padding
    segment_ids           int64[L]    0 up to and with the first [SEP], 1 for B
    masked_lm_positions   int64[P]    ascending, padded with 0
    masked_lm_ids         int64[P]    the original ids at these positions
    masked_lm_weights     float32[P]  1.0 for a prediction, 0.0 for padding
    next_sentence_labels  int64[1]    1 where B is a random next sentence

Pre-training, masked as the records are read (`unmasked_schema`):
    input_ids, input_mask, segment_ids  int64[L]    as above, nothing masked
    next_sentence_labels                int64[1]    as above

Packed pre-training (`packed_schema`): several of the sequences above in a row of L, one
after another; P is of the row, N is max_sequences_per_row:
    input_ids, input_mask, segment_ids  int64[L]    as above; all padding at the end
    sequence_ids           int64[L]    the number of a token's sequence, from 1; 0 for
                                       padding
    cls_positions          int64[N]    where each sequence begins, padded with 0
    masked_lm_positions, masked_lm_ids, masked_lm_weights  [P]    as above, counted from
                                       the row's beginning
    next_sentence_labels   int64[N]    of each sequence, padded with 0
    next_sentence_weights  float32[N]  1.0 for a sequence, 0.0 for padding
Positions restart with each sequence; the model counts them from the two new features.

Packed, masked as the rows are read (`unmasked_packed_schema`): without masked_lm_*

Classification and regression (`classifier_schema`):
    input_ids, input_mask, segment_ids  int64[L]
    label_ids                           int64[1], the class; float32[C] for a regression
                                        of C numbers, or for C labels at once, 1.0 or
                                        0.0 each
    is_real_example                     int64[1]    0 for padding of the last batch

Question answering (`squad_schema`): a window of a paragraph, after the question:
    unique_ids                          int64[1]    the record's number, from 1000000000
    input_ids, input_mask, segment_ids  int64[L]    1 for the window, 0 for the question
    start_positions, end_positions      int64[1]    the answer's first and last token;
                                        0 where the window does not show all of it
    is_impossible                       int64[1]    1 where the question has no answer
The last three are in records for training alone.

Multiple choice (`multiple_choice_schema`): N choices, each a sequence of its own:
    input_ids, input_mask, segment_ids  int64[N, L]  as above, one choice after another
    label_ids                           int64[1]     the right choice's number, from 0
    is_real_example                     int64[1]     as above
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.errors import InputError
from bert_tf.records.serialization import serialize_block

if TYPE_CHECKING:  # writing records needs no TensorFlow
    import tensorflow as tf

INT64 = "int64"
FLOAT32 = "float32"

# The list of a tf.train.Feature that holds each type.
_LIST_FIELDS = {INT64: "int64_list", FLOAT32: "float_list"}
_FIELD_TYPES = {"int64_list": INT64, "float_list": FLOAT32, "bytes_list": "bytes"}


@dataclasses.dataclass(frozen=True)
class Feature:
    """One named array of a record.

    Attributes:
        name: the feature's name, also the model's input or label of that name.
        dtype: as it is stored: "int64" or "float32".
        shape: the static shape of one record's value: `(length,)`, or, of several
            sequences, `(sequences, length)`. A record holds them one after another.
        flag: the flag that sets the length, for messages; "" where it is fixed.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    flag: str = ""

    def __post_init__(self) -> None:
        if self.dtype not in _LIST_FIELDS:
            raise ValueError(
                f"`dtype` must be one of {', '.join(_LIST_FIELDS)}. "
                f"Received: {self.dtype!r} for {self.name!r}"
            )
        if len(self.shape) not in (1, 2) or min(self.shape) < 1:
            raise ValueError(
                "`shape` must be one positive length, or two. "
                f"Received: {self.shape!r} for {self.name!r}"
            )

    @property
    def length(self) -> int:
        """The number of values in one record."""
        return math.prod(self.shape)


class RecordSchema:
    """Writes, parses and checks the records of one layout."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self.features = tuple(features)
        self._names = frozenset(feature.name for feature in self.features)
        if len(self._names) != len(self.features):
            raise ValueError(
                "`features` must have unique names. "
                f"Received: {[feature.name for feature in self.features]}"
            )

    def serialize(self, values: Mapping[str, Sequence[Any] | np.ndarray]) -> bytes:
        """One record as bytes; equal values give equal bytes."""
        return self.serialize_block(
            {name: np.asarray(value)[np.newaxis] for name, value in values.items()}
        )[0]

    def serialize_block(self, columns: Mapping[str, np.ndarray]) -> list[bytes]:
        """Many records as bytes, fast; equal values give equal bytes."""
        if columns.keys() != self._names:
            raise ValueError(
                f"`columns` must hold {sorted(self._names)}. "
                f"Received: {sorted(columns.keys())}"
            )
        for feature in self.features:
            column = columns[feature.name]
            if column.shape[1:] != feature.shape:
                wanted = " x ".join(map(str, feature.shape))
                raise ValueError(
                    f"`{feature.name}` must have {wanted} values. "
                    f"Received: {column.shape[1:]}"
                )
            if not np.can_cast(column.dtype, feature.dtype, "same_kind"):
                raise ValueError(
                    f"`{feature.name}` must be {feature.dtype}. "
                    f"Received: {column.dtype}"
                )
        return serialize_block(
            {
                feature.name: columns[feature.name]
                .astype(feature.dtype, copy=False)
                .reshape(-1, feature.length)
                for feature in self.features
            }
        )

    def parse(self, serialized: "tf.Tensor") -> "dict[str, tf.Tensor]":
        """The features of serialized records."""
        import tensorflow as tf

        parsed = tf.io.parse_example(
            serialized,
            {
                feature.name: tf.io.FixedLenFeature(feature.shape, feature.dtype)
                for feature in self.features
            },
        )
        return {
            name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
            for name, value in parsed.items()
        }

    def check(self, serialized: bytes, source: str) -> None:
        """Compares one record with the schema; more features than its may be there."""
        import tensorflow as tf
        from google.protobuf import message

        example = tf.train.Example()
        try:
            example.ParseFromString(serialized)
        except message.DecodeError as error:
            raise InputError(
                f"{source}: the records must be tf.train.Example messages; "
                "the first one cannot be decoded."
            ) from error
        table = example.features.feature
        for feature in self.features:
            if feature.name not in table:
                found = ", ".join(sorted(table)) or "no features"
                raise InputError(
                    f"{source}: the records must have `{feature.name}`. Found: {found}."
                )
            kind = table[feature.name].WhichOneof("kind")
            if kind != _LIST_FIELDS[feature.dtype]:
                raise InputError(
                    f"{source}: `{feature.name}` must be {feature.dtype}. "
                    f"Found: {_FIELD_TYPES.get(kind, 'nothing')}."
                )
            length = len(getattr(table[feature.name], kind).value)
            if length != feature.length:
                flag = f" (`{feature.flag}`)" if feature.flag else ""
                raise InputError(
                    f"{source}: `{feature.name}` must have {feature.length} values"
                    f"{flag}. Found: {length}."
                )


def _sequence_features(max_seq_length: int) -> list[Feature]:
    return [
        Feature(name, INT64, (max_seq_length,), "max_seq_length")
        for name in ("input_ids", "input_mask", "segment_ids")
    ]


def _prediction_features(max_predictions_per_seq: int) -> list[Feature]:
    return [
        Feature(name, dtype, (max_predictions_per_seq,), "max_predictions_per_seq")
        for name, dtype in (
            ("masked_lm_positions", INT64),
            ("masked_lm_ids", INT64),
            ("masked_lm_weights", FLOAT32),
        )
    ]


def pretraining_schema(
    max_seq_length: int, max_predictions_per_seq: int
) -> RecordSchema:
    """Masked language model and next sentence records of create_pretraining_data."""
    return RecordSchema(
        [
            *_sequence_features(max_seq_length),
            *_prediction_features(max_predictions_per_seq),
            Feature("next_sentence_labels", INT64, (1,)),
        ]
    )


def unmasked_schema(max_seq_length: int) -> RecordSchema:
    """The records of create_pretraining_data for dynamic masking."""
    return RecordSchema(
        [
            *_sequence_features(max_seq_length),
            Feature("next_sentence_labels", INT64, (1,)),
        ]
    )


def packed_schema(
    max_seq_length: int, max_predictions_per_seq: int, max_sequences_per_row: int
) -> RecordSchema:
    """The rows of pack_pretraining_data."""
    return RecordSchema(
        [
            *unmasked_packed_schema(max_seq_length, max_sequences_per_row).features,
            *_prediction_features(max_predictions_per_seq),
        ]
    )


def unmasked_packed_schema(
    max_seq_length: int, max_sequences_per_row: int
) -> RecordSchema:
    """The rows of pack_pretraining_data for dynamic masking."""
    return RecordSchema(
        [
            *_sequence_features(max_seq_length),
            Feature("sequence_ids", INT64, (max_seq_length,), "max_seq_length"),
            *(
                Feature(name, dtype, (max_sequences_per_row,), "max_sequences_per_row")
                for name, dtype in (
                    ("cls_positions", INT64),
                    ("next_sentence_labels", INT64),
                    ("next_sentence_weights", FLOAT32),
                )
            ),
        ]
    )


def classifier_schema(
    max_seq_length: int, label_dtype: str = INT64, num_labels: int = 1
) -> RecordSchema:
    """The records of sentence and sentence-pair classification."""
    return RecordSchema(
        [
            *_sequence_features(max_seq_length),
            Feature("label_ids", label_dtype, (num_labels,)),
            Feature("is_real_example", INT64, (1,)),
        ]
    )


def squad_schema(max_seq_length: int, for_training: bool) -> RecordSchema:
    """The records of question answering."""
    labels = ("start_positions", "end_positions", "is_impossible")
    return RecordSchema(
        [
            Feature("unique_ids", INT64, (1,)),
            *_sequence_features(max_seq_length),
            *(Feature(name, INT64, (1,)) for name in labels if for_training),
        ]
    )


def multiple_choice_schema(max_seq_length: int, num_choices: int) -> RecordSchema:
    """The records of the choice among several sequences."""
    return RecordSchema(
        [
            *(
                dataclasses.replace(feature, shape=(num_choices, *feature.shape))
                for feature in _sequence_features(max_seq_length)
            ),
            Feature("label_ids", INT64, (1,)),
            Feature("is_real_example", INT64, (1,)),
        ]
    )
