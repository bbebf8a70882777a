"""What a record holds: its features, how to write, parse and check them."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf import message

from bert_tf.errors import InputError
from bert_tf.instances.settings import DYNAMIC_MASKING, FULL_SENTENCES
from bert_tf.records.manifest import Manifest, agreed, alike
from bert_tf.records.writing import serialize_block

if TYPE_CHECKING:
    import tensorflow as tf

# The feature table of a record: the one place that knows what a TFRecord holds.
#
# A record is a serialized `tf.train.Example` whose features all have a fixed length,
# so
# that a batch has static shapes. `RecordSchema` writes such records, parses them, and
# says in one line why a foreign one does not fit. The names are the model's input
# names.
#
# L is max_seq_length and P is max_predictions_per_seq; B is the batch.
#
# Pre-training (`pretraining_schema`):
#     input_ids             int64[L]    token ids, [CLS] A [SEP] B [SEP], padded with
#     0
#     input_mask            int64[L]    1 for a token, 0 for padding
#     segment_ids           int64[L]    0 up to and with the first [SEP], 1 for B
#     masked_lm_positions   int64[P]    ascending, padded with 0
#     masked_lm_ids         int64[P]    the original ids at these positions
#     masked_lm_weights     float32[P]  1.0 for a prediction, 0.0 for padding
#     next_sentence_labels  int64[1]    1 where B is a random next sentence
#
# Pre-training, masked as the records are read (`unmasked_schema`):
#     input_ids, input_mask, segment_ids  int64[L]    as above, nothing masked
#     next_sentence_labels                int64[1]    as above
#
# Packed pre-training (`packed_schema`): several of the sequences above in a row of L,
# one
# after another; P is of the row, N is max_sequences_per_row:
#     input_ids, input_mask, segment_ids  int64[L]    as above; all padding at the end
#     sequence_ids           int64[L]    the number of a token's sequence, from 1; 0
#     for
#                                        padding
#     cls_positions          int64[N]    where each sequence begins, padded with 0
#     masked_lm_positions, masked_lm_ids, masked_lm_weights  [P]    as above, counted
#     from
#                                        the row's beginning
#     next_sentence_labels   int64[N]    of each sequence, padded with 0
#     next_sentence_weights  float32[N]  1.0 for a sequence, 0.0 for padding
# Positions restart with each sequence; the model counts them from the two new
# features.
#
# Packed, masked as the rows are read (`unmasked_packed_schema`): without masked_lm_*
#
# Classification and regression (`classifier_schema`):
#     input_ids, input_mask, segment_ids  int64[L]
#     label_ids                           int64[1], the class; float32[C] for a
#     regression
#                                         of C numbers, or for C labels at once, 1.0
#                                         or
#                                         0.0 each
#     is_real_example                     int64[1]    0 for padding of the last batch
#
# Question answering (`squad_schema`): a window of a paragraph, after the question:
#     unique_ids                          int64[1]    the record's number, from
#     1000000000
#     input_ids, input_mask, segment_ids  int64[L]    1 for the window, 0 for the
#     question
#     start_positions, end_positions      int64[1]    the answer's first and last
#     token;
#                                         0 where the window does not show all of it
#     is_impossible                       int64[1]    1 where the question has no
#     answer
# The last three are in records for training alone.
#
# Multiple choice (`multiple_choice_schema`): N choices, each a sequence of its own:
#     input_ids, input_mask, segment_ids  int64[N, L]  as above, one choice after
#     another
#     label_ids                           int64[1]     the right choice's number, from
#     0
#     is_real_example                     int64[1]     as above


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


# Which records these are: told by the features of one of them.
#
# pre-training      input_ids, input_mask, segment_ids, masked_lm_positions,
#                   masked_lm_ids, masked_lm_weights, next_sentence_labels
# unmasked          the same without masked_lm_*, to be masked as they are read
# packed            one of both, with sequence_ids, cls_positions,
# next_sentence_weights
# classification    input_ids, input_mask, segment_ids, label_ids, is_real_example


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


# What pre-training records are, as far as all of a run's files must say the same.


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
