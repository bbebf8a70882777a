r"""The batch of a step whose loss is not finite, kept to look for the reason.

nonfinite-step-123.tfrecord has the batch's records one by one, in order, with every
array that the model was given: integers as int64, the rest as float32. A batch of
pre-training is thus a record file as others are, masks included:

    python -m bert_tf.tfrecords.inspect_records OUTPUT_DIR/nonfinite-step-123.tfrecord \
        --vocab_file=OUTPUT_DIR/vocab.txt
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.records.spec import FLOAT32, INT64, Feature, RecordSchema
from bert_tf.records.writing import framed

_NAME = "nonfinite-step-{step}{again}.tfrecord"


def save_batch(folder: str, step: int, batch: Mapping[str, Any], task_name: str) -> str:
    """Writes a batch to the run's folder. No file is overwritten."""
    content = b"".join(map(framed, _records(batch)))
    number = 1
    while True:
        again = f"-{number}" if number > 1 else ""
        path = os.path.join(folder, _NAME.format(step=step, again=again))
        if not files.exists(path):
            files.write_atomically(path, content)
            break
        if files.read_bytes(path) == content:
            break
        number += 1
    logging.info("%s: the batch of step %d is in %s.", task_name, step, path)
    return path


def _records(batch: Mapping[str, Any]) -> list[bytes]:
    """A batch's serialized records; what has more dimensions is laid out flat."""
    columns = {}
    for name, value in batch.items():
        array = np.asarray(value)
        is_whole = np.issubdtype(array.dtype, np.integer) or array.dtype == bool
        columns[name] = array.reshape(len(array), -1).astype(
            np.int64 if is_whole else np.float32
        )
    schema = RecordSchema(
        [
            Feature(
                name,
                INT64 if column.dtype == np.int64 else FLOAT32,
                column.shape[1:],
            )
            for name, column in columns.items()
        ]
    )
    return schema.serialize_block(columns)
