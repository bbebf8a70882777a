"""Features as records: a tf.train.Example a line.

    line_index          int64[1]        the line's number, from 0
    tokens (or words)   bytes[n]        what has a vector
    vectors             float32[n L W]  their L vectors of W numbers each
    shape               int64[3]        n, L, W
    pooled              float32[H]      where it is asked for
    cls, mean           float32[L W]    where they are asked for

n differs from line to line: parse `vectors` with `tf.io.RaggedFeature` or
`tf.io.VarLenFeature`, and `tf.reshape` it to `shape`.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.features.extraction import Features


def record(index: int, features: Features) -> bytes:
    """A line's record.

    Args:
        index: the line's number.
        features: the line's.
    """
    found: dict[str, tf.train.Feature] = {"line_index": _integers([index])}
    if features.vectors is not None:
        name = "tokens" if features.input.spans is None else "words"
        found[name] = tf.train.Feature(
            bytes_list=tf.train.BytesList(
                value=[text.encode("utf-8") for text in features.input.names]
            )
        )
        found["vectors"] = _floats(features.vectors)
        found["shape"] = _integers(features.vectors.shape)
    for name, vector in features.sentence.items():
        found[name] = _floats(vector)
    example = tf.train.Example(features=tf.train.Features(feature=found))
    return example.SerializeToString(deterministic=True)


def _integers(values: Any) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _floats(values: np.ndarray) -> tf.train.Feature:
    return tf.train.Feature(
        float_list=tf.train.FloatList(value=values.reshape(-1).tolist())
    )
