"""Blocks of arrays to the bytes of `tf.train.Example`s, without an object per value.

A record is the protocol buffer message (https://protobuf.dev/programming-guides/encoding)

    Example  { Features features = 1; }
    Features { map<string, Feature> feature = 1; }    entry: key = 1, value = 2
    Feature  { FloatList float_list = 2; Int64List int64_list = 3; }
    ...List  { repeated value = 1 [packed]; }

with the features in the order of their names, as deterministic serialization of the
message gives them. All records of a block have the same features and lengths.
"""

from collections.abc import Mapping

import numpy as np

from bert_tf.instances.random_stream import compiled

_LENGTH_DELIMITED = 2


def _tag(field: int) -> int:
    return field << 3 | _LENGTH_DELIMITED


_EXAMPLE_FEATURES = _tag(1)
_FEATURES_ENTRY = _tag(1)
_ENTRY_KEY = _tag(1)
_ENTRY_VALUE = _tag(2)
_FLOAT_LIST = _tag(2)
_INT64_LIST = _tag(3)
_LIST_VALUES = _tag(1)


def serialize_block(columns: Mapping[str, np.ndarray]) -> list[bytes]:
    """The records of a block."""
    names = sorted(columns)
    values = []
    for name in names:
        column = np.ascontiguousarray(columns[name])
        if column.dtype not in (np.int64, np.float32):
            raise ValueError(
                "`columns` must be int64 or float32. "
                f"Received: {column.dtype} for {name!r}"
            )
        # A float travels as the integer of its bits.
        values.append(
            column.view(np.int32).astype(np.int64)
            if column.dtype == np.float32
            else column
        )
    rows = np.concatenate(values, axis=1)
    starts = np.cumsum([0] + [column.shape[1] for column in values])
    is_float = np.array([columns[name].dtype == np.float32 for name in names])
    keys = [name.encode("utf-8") for name in names]
    key_starts = np.cumsum([0] + [len(key) for key in keys])
    key_bytes = np.frombuffer(b"".join(keys), np.uint8)
    data, stops = _serialize(rows, starts, is_float, key_bytes, key_starts)
    whole = data.tobytes()
    begin = 0
    records = []
    for stop in stops.tolist():
        records.append(whole[begin:stop])
        begin = stop
    return records


@compiled
def _varint_size(value):
    if value < 0:
        return 10
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


@compiled
def _put_varint(data, position, value):
    bits = np.uint64(value)
    while bits > np.uint64(0x7F):
        data[position] = np.uint8(bits & np.uint64(0x7F)) | np.uint8(0x80)
        bits >>= np.uint64(7)
        position += 1
    data[position] = np.uint8(bits)
    return position + 1


@compiled
def _put_message(data, position, tag, size):
    """The head of a nested message; returns where its content goes."""
    data[position] = tag
    return _put_varint(data, position + 1, size)


@compiled
def _message_size(size):
    """A nested message's bytes with its tag, from those of its content."""
    return 1 + _varint_size(size) + size


@compiled
def _serialize(rows, starts, is_float, key_bytes, key_starts):
    num_records, num_values = rows.shape
    num_features = len(starts) - 1
    capacity = num_records * (num_values * 3 + len(key_bytes) + 32 * num_features)
    data = np.empty(capacity, np.uint8)
    stops = np.empty(num_records, np.int64)
    value_sizes = np.empty(num_features, np.int64)
    position = 0
    for record in range(num_records):
        row = rows[record]
        features_size = 0
        for feature in range(num_features):
            begin, end = starts[feature], starts[feature + 1]
            size = 0
            if is_float[feature]:
                size = 4 * (end - begin)
            else:
                for index in range(begin, end):
                    size += _varint_size(row[index])
            value_sizes[feature] = size
            key_size = key_starts[feature + 1] - key_starts[feature]
            features_size += _message_size(_entry_size(key_size, size))
        needed = position + 16 + features_size
        if needed > len(data):
            larger = np.empty(2 * needed, np.uint8)
            larger[:position] = data[:position]
            data = larger
        position = _put_message(data, position, _EXAMPLE_FEATURES, features_size)
        for feature in range(num_features):
            key = key_bytes[key_starts[feature] : key_starts[feature + 1]]
            size = value_sizes[feature]
            position = _put_message(
                data, position, _FEATURES_ENTRY, _entry_size(len(key), size)
            )
            position = _put_message(data, position, _ENTRY_KEY, len(key))
            data[position : position + len(key)] = key
            position += len(key)
            list_size = _message_size(size)
            position = _put_message(
                data, position, _ENTRY_VALUE, _message_size(list_size)
            )
            tag = _FLOAT_LIST if is_float[feature] else _INT64_LIST
            position = _put_message(data, position, tag, list_size)
            position = _put_message(data, position, _LIST_VALUES, size)
            for index in range(starts[feature], starts[feature + 1]):
                if is_float[feature]:
                    for byte in range(4):
                        data[position] = (row[index] >> (8 * byte)) & 0xFF
                        position += 1
                else:
                    position = _put_varint(data, position, row[index])
        stops[record] = position
    return data[:position], stops


@compiled
def _entry_size(key_size, values_size):
    list_size = _message_size(values_size)
    feature_size = _message_size(list_size)
    return _message_size(key_size) + _message_size(feature_size)
