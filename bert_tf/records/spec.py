"""The features of records: one table to write, parse, check and explain them."""

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf import message

from bert_tf.base.errors import InputError

if TYPE_CHECKING:
    import tensorflow as tf

INT64 = "int64"
FLOAT32 = "float32"

# The list of a tf.train.Feature that holds each type.
_LIST_FIELDS = {INT64: "int64_list", FLOAT32: "float_list"}
_FIELD_TYPES = {"int64_list": INT64, "float_list": FLOAT32, "bytes_list": "bytes"}

PRETRAINING = "pre-training"
UNMASKED = "unmasked"
CLASSIFICATION = "classification"

# The first of these features in a record decides its kind: masked records also have
# the last one.
_TELLING_FEATURES = {
    "masked_lm_positions": PRETRAINING,
    "label_ids": CLASSIFICATION,
    "next_sentence_labels": UNMASKED,
}

# Names of the Model Garden's records (`use_v2_feature_names`), for ours.
_V2_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
_LABELS = "next_sentence_labels"

# The features whose lengths are a record's.
_TELLING_LENGTHS = ("input_ids", "masked_lm_positions", "cls_positions")

# The flags that set lengths.
_LENGTH = "max_seq_length"
_PREDICTIONS = "max_predictions_per_seq"
_SEQUENCES = "max_sequences_per_row"


@dataclasses.dataclass(frozen=True)
class Feature:
    """One named array of a record."""

    name: str  # also the model's input or label of that name
    dtype: str  # the stored type: "int64" or "float32"
    # The static shape of one record's value: (length,), or, of several sequences one
    # after another, (sequences, length).
    shape: tuple[int, ...]
    flag: str = ""  # sets the length, for messages; "" where it is fixed
    # The records' own name, if it is another one; "" if they lack it: it is read as 0.
    stored: str | None = None

    @property
    def length(self) -> int:
        """The number of values in one record."""
        return math.prod(self.shape)

    @property
    def key(self) -> str:
        """The name in the records."""
        return self.stored or self.name


@dataclasses.dataclass(frozen=True)
class RecordSpec:
    """The features of a record, in the order of the model's inputs.

    A record is a serialized `tf.train.Example` whose features all have a fixed length,
    so that a batch has static shapes. L is max_seq_length, P max_predictions_per_seq.

    Pre-training:
        input_ids             int64[L]    ids of [CLS] A [SEP] B [SEP], padded with 0
        input_mask            int64[L]    1 for a token, 0 for padding
        segment_ids           int64[L]    0 up to and including the first [SEP], 1 for B
        masked_lm_positions   int64[P]    ascending, padded with 0
        masked_lm_ids         int64[P]    the original ids at these positions
        masked_lm_weights     float32[P]  1.0 for a prediction, 0.0 for padding
        next_sentence_labels  int64[1]    1 where B is a random next sentence

    Pre-training, masked as the records are read: the same without masked_lm_*. Of other
    programs' records, next_sentence_labels may be missing, and the names input_word_ids
    and input_type_ids are read for input_ids and segment_ids.

    Packed pre-training, masked or not: several of these sequences in a row of L tokens,
    one after another; P is for the row, N is max_sequences_per_row. Positions restart
    with each sequence; the model counts them by the first two new features:
        sequence_ids           int64[L]    a token's sequence, from 1; 0 for padding
        cls_positions          int64[N]    where each sequence begins, padded with 0
        next_sentence_labels   int64[N]    of each sequence, padded with 0
        next_sentence_weights  float32[N]  1.0 for a sequence, 0.0 for padding

    Classification and regression: input_ids, input_mask, segment_ids as above, and
        label_ids        int64[1], the class; float32[C] for a regression of C numbers,
                         or for C labels at once, 1.0 or 0.0 each
        is_real_example  int64[1]  0 for padding of the last batch

    Question answering: a window of a paragraph, after the question (segment 0):
        unique_ids                      int64[1]  the record's number, from 1000000000
        input_ids, input_mask, segment_ids
        start_positions, end_positions  int64[1]  the answer's first and last token; 0
                                        where the window does not show all of it
        is_impossible                   int64[1]  1 where the question has no answer
    Only records for training have the last three.

    Multiple choice: N choices, each a sequence of its own:
        input_ids, input_mask, segment_ids  int64[N, L]  one choice after another
        label_ids                           int64[1]     the right choice, from 0
        is_real_example                     int64[1]     as above
    """

    features: Sequence[Feature]

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))

    @classmethod
    def pretraining(
        cls,
        max_seq_length: int,
        max_predictions_per_seq: int | None = None,
        max_sequences_per_row: int | None = None,
        stored: Mapping[str, str] | None = None,
    ) -> "RecordSpec":
        """Returns features of sequences or packed rows; no masks if slots is None."""
        features = _sequence_features(max_seq_length)
        label = Feature(_LABELS, INT64, (1,))
        if max_sequences_per_row is not None:
            slots = (max_sequences_per_row,)
            label = dataclasses.replace(label, shape=slots, flag=_SEQUENCES)
            features += [
                Feature("sequence_ids", INT64, (max_seq_length,), _LENGTH),
                Feature("cls_positions", INT64, slots, _SEQUENCES),
                Feature("next_sentence_weights", FLOAT32, slots, _SEQUENCES),
            ]
        if max_predictions_per_seq is not None:
            features += [
                Feature(name, dtype, (max_predictions_per_seq,), _PREDICTIONS)
                for name, dtype in (
                    ("masked_lm_positions", INT64),
                    ("masked_lm_ids", INT64),
                    ("masked_lm_weights", FLOAT32),
                )
            ]
        own = (stored or {}).get
        every = (*features, label)
        return cls([dataclasses.replace(f, stored=own(f.name)) for f in every])

    @classmethod
    @functools.cache
    def classification(
        cls, max_seq_length: int, label_dtype: str = INT64, num_labels: int = 1
    ) -> "RecordSpec":
        """Returns the features of sentences and sentence pairs."""
        return cls(
            (
                *_sequence_features(max_seq_length),
                Feature("label_ids", label_dtype, (num_labels,)),
                Feature("is_real_example", INT64, (1,)),
            )
        )

    @classmethod
    @functools.cache
    def spans(cls, max_seq_length: int, for_training: bool) -> "RecordSpec":
        """Returns the features of windows for question answering."""
        labels = ("start_positions", "end_positions", "is_impossible")
        return cls(
            (
                Feature("unique_ids", INT64, (1,)),
                *_sequence_features(max_seq_length),
                *(Feature(name, INT64, (1,)) for name in labels if for_training),
            )
        )

    @classmethod
    def choices(
        cls, max_seq_length: int, num_choices: int, label_dtype: str = INT64
    ) -> "RecordSpec":
        """Returns the features of several sequences: choices, or one with a score."""
        return cls(
            (
                *(
                    dataclasses.replace(feature, shape=(num_choices, *feature.shape))
                    for feature in _sequence_features(max_seq_length)
                ),
                Feature("label_ids", label_dtype, (1,)),
                Feature("is_real_example", INT64, (1,)),
            )
        )

    @classmethod
    def of_record(cls, record: bytes, source: str) -> "RecordSpec":
        """Returns a foreign record's features, for pre-training or classification."""
        table = features_of(record, source)
        kind = _kind_of(table)
        stored = {
            name: other
            for name, other in {**_V2_NAMES, _LABELS: ""}.items()
            if name not in table and (other in table or not other)
        }
        length, predictions, sequences = (
            len(table[name].int64_list.value) if name in table else 0
            for name in (stored.get(name, name) for name in _TELLING_LENGTHS)
        )
        if not kind or not length:
            found = ", ".join(_described(name, table[name]) for name in sorted(table))
            raise InputError(
                f"{source}: these are neither pre-training nor classification records."
                f" Received: {found or 'no features'}."
            )
        if kind == CLASSIFICATION:
            num_numbers = len(table["label_ids"].float_list.value)
            dtype = FLOAT32 if num_numbers else INT64
            spec = cls.classification(length, dtype, max(1, num_numbers))
        else:
            # The check reports a length of zero slots.
            spec = cls.pretraining(
                length,
                max(1, predictions) if kind == PRETRAINING else None,
                max(1, sequences) if "sequence_ids" in table else None,
                stored,
            )
        spec.check(record, source)
        return spec

    @property
    def kind(self) -> str:
        """PRETRAINING, UNMASKED or CLASSIFICATION; "" for others."""
        return _kind_of({feature.name for feature in self.features})

    @property
    def stored(self) -> dict[str, str]:
        """The records' own names of features that have others here; "" if missing."""
        return {f.name: f.stored for f in self.features if f.stored is not None}

    @property
    def lacks_labels(self) -> bool:
        """Whether pre-training records have no next sentence labels."""
        return self.stored.get(_LABELS) == ""

    @property
    def max_seq_length(self) -> int:
        """Tokens, padding included."""
        return self._length_of("input_ids")

    @property
    def max_predictions_per_seq(self) -> int:
        """Masked-LM slots; 0 if records have no masks."""
        return self._length_of("masked_lm_positions")

    @property
    def max_sequences_per_row(self) -> int:
        """Slots for sequences; 0 if a record is one sequence."""
        return self._length_of("cls_positions")

    @property
    def has_classes(self) -> bool:
        """Whether a record has one label, a class."""
        return Feature("label_ids", INT64, (1,)) in self.features

    def _length_of(self, name: str) -> int:
        return next((f.shape[-1] for f in self.features if f.name == name), 0)

    def __str__(self) -> str:
        kind, lengths = self.kind, f"{self.max_seq_length} tokens"
        if self.max_predictions_per_seq:
            lengths += f" and {self.max_predictions_per_seq} predictions"
        for feature in self.features:
            if feature.name != "label_ids":
                continue
            if feature.length > 1:
                # Several classes at once, or several numbers: records do not show it.
                lengths += f" and {feature.length} labels"
            elif feature.dtype == FLOAT32:
                kind = "regression"
        if self.max_sequences_per_row:
            kind = f"packed {kind}"
            lengths += f", up to {self.max_sequences_per_row} sequences"
        for name, key in self.stored.items():
            lengths += f", {key} for {name}" if key else f", without {name}"
        return f"{kind} records of {lengths}"

    def serialize(self, values: Mapping[str, Sequence[Any] | np.ndarray]) -> bytes:
        """Returns one record as bytes; equal values give equal bytes."""
        return self.serialize_block(
            {name: np.asarray(value)[np.newaxis] for name, value in values.items()}
        )[0]

    def serialize_block(self, columns: Mapping[str, np.ndarray]) -> list[bytes]:
        """Returns many records as bytes, fast; equal values give equal bytes."""
        # Not imported for reading alone: its compiler takes a third of a second.
        from bert_tf.records.serialization import serialize_block

        names = {feature.name for feature in self.features}
        assert columns.keys() == names, f"{sorted(columns)} for {sorted(names)}"
        values = {}
        for feature in self.features:
            column = columns[feature.name]
            is_kind = np.can_cast(column.dtype, feature.dtype, "same_kind")
            if column.shape[1:] != feature.shape or not is_kind:
                raise ValueError(
                    f"`{feature.name}` must be {feature.dtype} of {feature.shape}."
                    f" Received: {column.dtype} of {column.shape[1:]}"
                )
            column = column.astype(feature.dtype, copy=False)
            values[feature.name] = column.reshape(-1, feature.length)
        return serialize_block(values)

    def parse(self, serialized: "tf.Tensor") -> "dict[str, tf.Tensor]":
        """Returns the features of serialized records, int32 and float32."""
        import tensorflow as tf

        return {
            name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
            for name, value in self._parse(serialized).items()
        }

    def read(self, records: Sequence[bytes]) -> tuple[dict[str, np.ndarray], list[int]]:
        """Returns the valid records' features, int64 as stored, and their numbers."""
        import tensorflow as tf

        # TensorFlow quotes the record in its error, and Python decodes that as UTF-8.
        unparsable = tf.errors.InvalidArgumentError, UnicodeDecodeError

        def parsed(rows: list[int]) -> dict[str, np.ndarray]:
            serialized = [records[row] for row in rows]
            values = self._parse(tf.constant(serialized, tf.string, shape=[len(rows)]))
            return {name: value.numpy() for name, value in values.items()}

        def fits(row: int) -> bool:
            try:
                return bool(parsed([row]))
            except unparsable:
                return False

        rows = list(range(len(records)))
        try:
            return parsed(rows), rows
        except unparsable:
            rows = list(filter(fits, rows))
            return parsed(rows), rows

    def _parse(self, serialized: "tf.Tensor") -> "dict[str, tf.Tensor]":
        import tensorflow as tf

        parsed = tf.io.parse_example(
            serialized,
            {
                feature.key: tf.io.FixedLenFeature(
                    feature.shape,
                    feature.dtype,
                    np.zeros(feature.shape) if feature.stored == "" else None,
                )
                for feature in self.features
            },
        )
        return {feature.name: parsed[feature.key] for feature in self.features}

    def check(self, record: bytes, source: str) -> None:
        """Raises InputError if a feature is missing or has another type or length."""
        table = features_of(record, source)
        for feature in self.features:
            if feature.stored == "":
                continue
            if feature.key not in table:
                found = ", ".join(sorted(table)) or "no features"
                raise InputError(
                    f"{source}: the records must have `{feature.name}`. Received:"
                    f" {found}."
                )
            kind = table[feature.key].WhichOneof("kind")
            if kind != _LIST_FIELDS[feature.dtype]:
                raise InputError(
                    f"{source}: `{feature.name}` must be {feature.dtype}. "
                    f"Received: {_FIELD_TYPES.get(kind, 'nothing')}."
                )
            length = len(getattr(table[feature.key], kind).value)
            if length != feature.length:
                flag = f" (`{feature.flag}`)" if feature.flag else ""
                raise InputError(
                    f"{source}: `{feature.name}` must have {feature.length} values"
                    f"{flag}. Received: {length}."
                )


def features_of(record: bytes, source: str) -> "dict[str, tf.train.Feature]":
    """Returns the features of a serialized record by name."""
    import tensorflow as tf

    example = tf.train.Example()
    try:
        example.ParseFromString(record)
    except message.DecodeError as error:
        raise InputError(
            f"{source}: the records must be tf.train.Example messages; the first one"
            " cannot be decoded."
        ) from error
    return dict(example.features.feature)


def _kind_of(names: Collection[str]) -> str:
    kinds = (kind for name, kind in _TELLING_FEATURES.items() if name in names)
    return next(kinds, "")


def _sequence_features(max_seq_length: int) -> list[Feature]:
    return [
        Feature(name, INT64, (max_seq_length,), _LENGTH)
        for name in ("input_ids", "input_mask", "segment_ids")
    ]


def _described(name: str, feature: "tf.train.Feature") -> str:
    """Returns a feature as `name int64[128]`."""
    kind = feature.WhichOneof("kind")
    if kind is None:
        return f"{name} (empty)"
    length = len(getattr(feature, kind).value)
    return f"{name} {kind.removesuffix('_list')}[{length}]"
