"""Serialized tf.Examples, a block at a time.

Readers of records do not import this module, since numba is slow to import.
"""

import itertools
from collections.abc import Mapping

import numpy as np

from bert_tf.instances.compilation import compiled

# A record is a message of https://protobuf.dev/programming-guides/encoding:
#
#     Example  { Features features = 1; }
#     Features { map<string, Feature> feature = 1; }    entry: key = 1, value = 2
#     Feature  { FloatList float_list = 2; Int64List int64_list = 3; }
#     ...List  { repeated value = 1 [packed]; }
#
# with the features in the order of their names, as deterministic serialization of the
# message gives them. All records of a block have the same features and lengths.

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

_MOST_BYTES = 10  # of a number
_HEADERS = 5 * (1 + _MOST_BYTES)  # the bytes of a feature's headers, at most


def serialize_block(columns: Mapping[str, np.ndarray]) -> list[bytes]:
    """Returns the records of a block."""
    names = sorted(columns)
    values = []
    for name in names:
        column = np.ascontiguousarray(columns[name])
        if column.dtype == np.float32:
            # A float is passed as the integer of its bits.
            column = column.view(np.int32).astype(np.int64)
        values.append(column)
    rows = np.concatenate(values, axis=1)
    ends = np.cumsum([0] + [column.shape[1] for column in values])
    is_float = np.array([columns[name].dtype == np.float32 for name in names])
    keys = [name.encode("utf-8") for name in names]
    key_ends = np.cumsum([0] + [len(key) for key in keys])
    key_bytes = np.frombuffer(b"".join(keys), np.uint8)
    data, starts = _serialize(rows, ends, is_float, key_bytes, key_ends)
    whole = data[starts[0] :].tobytes()
    return [whole[start:stop] for start, stop in itertools.pairwise(starts - starts[0])]


@compiled
def _put_varint(data, stop, value):
    """Writes a number that ends before `stop`; returns where it starts."""
    bits = np.uint64(value)
    start = stop - 1
    rest = bits >> np.uint64(7)
    while rest:
        rest >>= np.uint64(7)
        start -= 1
    for position in range(start, stop - 1):
        data[position] = np.uint8(bits & np.uint64(0x7F)) | np.uint8(0x80)
        bits >>= np.uint64(7)
    data[stop - 1] = np.uint8(bits)
    return start


@compiled
def _put_header(data, position, stop, tag):
    """Writes the header of a message in front of it; returns where it starts."""
    start = _put_varint(data, position, stop - position) - 1
    data[start] = tag
    return start


@compiled
def _serialize(rows, ends, is_float, key_bytes, key_ends):
    """Returns the records in sequence, at the end of an array, and their starts."""
    # They are written from the last byte to the first: a header contains the size of
    # what follows it.
    num_records, num_values = rows.shape
    num_features = len(ends) - 1
    most = num_values * _MOST_BYTES + len(key_bytes) + _HEADERS * (num_features + 1)
    data = np.empty(num_records * most, np.uint8)
    position = len(data)
    starts = np.empty(num_records + 1, np.int64)
    starts[num_records] = position
    for record in range(num_records - 1, -1, -1):
        row = rows[record]
        for feature in range(num_features - 1, -1, -1):
            stop = position
            for index in range(ends[feature + 1] - 1, ends[feature] - 1, -1):
                if is_float[feature]:
                    for byte in range(3, -1, -1):
                        position -= 1
                        data[position] = (row[index] >> (8 * byte)) & 0xFF
                elif 0 <= row[index] < 128:  # most of them
                    position -= 1
                    data[position] = row[index]
                else:
                    position = _put_varint(data, position, row[index])
            position = _put_header(data, position, stop, _LIST_VALUES)
            tag = _FLOAT_LIST if is_float[feature] else _INT64_LIST
            position = _put_header(data, position, stop, tag)
            position = _put_header(data, position, stop, _ENTRY_VALUE)
            key = key_bytes[key_ends[feature] : key_ends[feature + 1]]
            after_key = position
            position -= len(key)
            data[position:after_key] = key
            position = _put_header(data, position, after_key, _ENTRY_KEY)
            position = _put_header(data, position, stop, _FEATURES_ENTRY)
        stop = starts[record + 1]
        position = starts[record] = _put_header(data, position, stop, _EXAMPLE_FEATURES)
    return data, starts
