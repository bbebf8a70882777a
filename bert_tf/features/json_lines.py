"""Features as the original's JSON lines, byte for byte.

A line is one object, here broken up to be read:

    {"linex_index": 0,
     "features": [{"token": "[CLS]",
                   "layers": [{"index": -1, "values": [0.123456, ...]}, ...]}, ...]}

("linex_index" is the original's spelling.) Numbers are rounded to six decimals, as
Python rounds the float32's exact value, and written with the fewest digits. What the
original does not have keeps to that layout: combined layers have their name for an
index ("sum(-1,-2)"); a word stands under "word" in the place of "token"; sentence
vectors come last, under "sentence": {"pooled": [...], "mean": [{"index": -1, ...}]}.
"""

import json
import math
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.features.extraction import Features
from bert_tf.features.layers import LayerIndex
from bert_tf.instances.random_stream import compiled

# Below it six decimals are at most 15 digits, which a float64 tells apart.
_LIMIT = 1e9


def json_line(index: int, features: Features, labels: Sequence[LayerIndex]) -> bytes:
    """A line, with its line feed.

    Args:
        index: the input's number, from 0.
        features: the input's.
        labels: of the vectors of a token: `LayerSelection.labels`.
    """
    heads = [f'{{"index": {json.dumps(label)}, "values": [' for label in labels]
    parts = [f'{{"linex_index": {index}']
    if features.vectors is not None:
        key = "token" if features.input.spans is None else "word"
        width = features.vectors.shape[-1]
        texts = iter(number_lists(features.vectors.reshape(-1, width)))
        entries = [
            f'{{"{key}": {json.dumps(name)}, "layers": [{_layers(heads, texts)}]}}'
            for name in features.input.names
        ]
        parts.append(f'"features": [{", ".join(entries)}]')
    if features.sentence:
        entries = []
        for name, vectors in features.sentence.items():
            texts = iter(number_lists(vectors.reshape(-1, vectors.shape[-1])))
            if vectors.ndim == 1:
                entries.append(f'"{name}": [{next(texts)}]')
            else:
                entries.append(f'"{name}": [{_layers(heads, texts)}]')
        parts.append(f'"sentence": {{{", ".join(entries)}}}')
    return f"{', '.join(parts)}}}\n".encode("ascii")


def _layers(heads: Sequence[str], texts: Iterator[str]) -> str:
    return ", ".join([f"{head}{next(texts)}]}}" for head in heads])


def number_lists(rows: np.ndarray) -> list[str]:
    """Each row's numbers as JSON has them in a list: "0.5, -1.25".

    Args:
        rows: float32 [K, W].
    """
    if not rows.size:
        return [""] * len(rows)
    rows = np.ascontiguousarray(rows, np.float32)
    if not (np.abs(rows) < _LIMIT).all():  # not a number, too
        return [", ".join(map(_number, row.tolist())) for row in rows]
    data, ends = _write(rows)
    text = data.tobytes().decode("ascii")
    begin, texts = 0, []
    for end in ends.tolist():
        texts.append(text[begin:end])
        begin = end
    return texts


def _number(value: float) -> str:
    return json.dumps(round(value, 6) if math.isfinite(value) else value)


@compiled
def _write(rows):
    """The rows' texts one after another, and where each ends.

    A float32 has 24 bits and 10^6 = 2^6 15625 has 14 that are not shifts, so that their
    product is exact in a float64, and rounding it is rounding the decimal.
    """
    num_rows, width = rows.shape
    # At most: a sign, 10 digits, a point, 6 digits, a comma and a space.
    data = np.empty(rows.size * 20, np.uint8)
    ends = np.empty(num_rows, np.int64)
    digits = np.empty(20, np.uint8)
    position = 0
    for row in range(num_rows):
        for column in range(width):
            if column:
                data[position] = 44  # ,
                data[position + 1] = 32
                position += 2
            value = np.float64(rows[row, column])
            if np.signbit(value):
                data[position] = 45  # -
                position += 1
            millionths = np.int64(np.rint(abs(value) * 1e6))
            if 0 < millionths < 100:
                position = _put_small(data, position, millionths)
                continue
            whole = millionths // 1000000
            rest = millionths % 1000000
            count = 0
            while True:
                digits[count] = 48 + whole % 10
                whole //= 10
                count += 1
                if whole == 0:
                    break
            for index in range(count):
                data[position + index] = digits[count - 1 - index]
            position += count
            data[position] = 46  # .
            for place in range(6, 0, -1):
                data[position + place] = 48 + rest % 10
                rest //= 10
            last = 6
            while last > 1 and data[position + last] == 48:
                last -= 1
            position += last + 1
        ends[row] = position
    return data[:position], ends


@compiled
def _put_small(data, position, millionths):
    """What is under 0.0001 is written as 1.2e-05."""
    exponent = 54  # 6
    if millionths >= 10:
        exponent = 53  # 5
        data[position] = 48 + millionths // 10
        position += 1
        if millionths % 10:
            data[position] = 46
            data[position + 1] = 48 + millionths % 10
            position += 2
    else:
        data[position] = 48 + millionths
        position += 1
    data[position] = 101  # e
    data[position + 1] = 45
    data[position + 2] = 48
    data[position + 3] = exponent
    return position + 4
