"""Reads what the commands have written, as values that JSON can hold."""

import hashlib
import json
import os

import h5py
import numpy as np
import tensorflow as tf
from safetensors import numpy as safetensors

_NUM_LOSSES = 20


def losses(folder):
    """The first losses of a run that logged every step."""
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    rows = [row for row in rows if "loss" in row][:_NUM_LOSSES]
    return [
        [row["step"], row["loss"], round(1e9 * row["learning_rate"])] for row in rows
    ]


def lines(*path):
    """A text file's lines."""
    with open(os.path.join(*path), encoding="utf-8", newline="") as file:
        return file.read().split("\n")


def values(*path):
    """A JSON file."""
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def run(folder, *names):
    """A run's losses, and the lines of its text files."""
    return {"losses": losses(folder), **{name: lines(folder, name) for name in names}}


def file_names(folder):
    """The paths of a folder's files, sorted."""
    return sorted(
        os.path.relpath(os.path.join(parent, name), folder)
        for parent, _, names in os.walk(folder)
        for name in names
    )


def records(*paths):
    """The number of records in files and their SHA-256, in order."""
    digest, count = hashlib.sha256(), 0
    for record in tf.data.TFRecordDataset(list(paths)).as_numpy_iterator():
        digest.update(len(record).to_bytes(8, "little") + record)
        count += 1
    return {"records": count, "sha256": digest.hexdigest()}


def array(value):
    """[shape, type, start of the SHA-256] of an array."""
    value = np.ascontiguousarray(value)
    return [list(value.shape), str(value.dtype), hashlib.sha256(value).hexdigest()[:16]]


def weights(folder):
    """The tensors by name in a folder of any of the formats."""
    if os.path.exists(os.path.join(folder, "bert_model.ckpt.index")):
        reader = tf.train.load_checkpoint(os.path.join(folder, "bert_model.ckpt"))
        names = reader.get_variable_to_shape_map()
        arrays = {name: reader.get_tensor(name) for name in names}
    elif os.path.exists(os.path.join(folder, "model.safetensors")):
        arrays = safetensors.load_file(os.path.join(folder, "model.safetensors"))
    else:
        arrays = {}
        with h5py.File(os.path.join(folder, "model.weights.h5")) as file:
            file.visititems(
                lambda name, item: (
                    arrays.update({name: item[()]})
                    if isinstance(item, h5py.Dataset)
                    else None
                )
            )
    return {name: array(arrays[name]) for name in sorted(arrays)}
