"""A checkpoint's tensors, read with their checksums: whole or damaged, ours or not.

TensorFlow's reader compares the CRC-32C that stands in the index with each tensor's
bytes, and those of the index itself.
"""

import os
import re
from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.errors import InputError

Parts = Mapping[str, Mapping[str, tf.Variable]]  # part -> name -> variable

_KEY_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"

# TensorFlow's reader turns some of its own errors into Python's: bytes that are not
# there are an IndexError.
_READ_ERRORS = (tf.errors.OpError, RuntimeError, ValueError, LookupError, MemoryError)


class DamagedCheckpointError(Exception):
    """A checkpoint cannot be read; the message says what of it, and why."""


def tensor_key(part: str, name: str) -> str:
    """The key of `tf.train.Checkpoint(part={name: variable})` for the variable.

    TensorFlow writes `..` for a dot in a name and `.S` for a slash.
    """
    return f"{part}/{name.replace('.', '..').replace('/', '.S')}{_KEY_SUFFIX}"


def shown_key(key: str) -> str:
    """A key as the user shall read it: `weights/bert/pooler/dense/kernel`."""
    escaped = key.removesuffix(_KEY_SUFFIX)
    return re.sub(r"\.(.)", lambda match: "/" if match[1] == "S" else ".", escaped)


class CheckpointReader:
    """Reads one checkpoint; the checksums in it are compared on the way.

    Attributes:
        shapes: key -> shape.
        dtypes: key -> dtype.
    """

    def __init__(self, prefix: str) -> None:
        if not files.exists(prefix + ".index"):
            raise DamagedCheckpointError(f"{os.path.basename(prefix)}.index is missing")
        try:
            self._reader = tf.train.load_checkpoint(prefix)
            shapes = self._reader.get_variable_to_shape_map()
            self.dtypes = self._reader.get_variable_to_dtype_map()
        except _READ_ERRORS as error:
            raise DamagedCheckpointError(
                f"{os.path.basename(prefix)}.index cannot be read: {_reason(error)}"
            ) from error
        self.shapes = {key: tuple(shape) for key, shape in shapes.items()}

    def read(self, key: str) -> np.ndarray:
        """One tensor."""
        try:
            return self._reader.get_tensor(key)
        except _READ_ERRORS as error:
            raise DamagedCheckpointError(
                f"{shown_key(key)} cannot be read: {_reason(error)}"
            ) from error


def by_key(parts: Parts) -> dict[str, tf.Variable]:
    """The variables by their keys in a checkpoint."""
    return {
        tensor_key(part, name): variable
        for part, named in parts.items()
        for name, variable in named.items()
    }


def restore_parts(
    prefix: str, parts: Parts, *, optional: Collection[str], whole: bool
) -> None:
    """Gives variables the values of a checkpoint."""
    reader = CheckpointReader(prefix)
    variables = by_key(parts)
    misfit = _misfit(reader, variables, optional)
    if misfit:
        raise InputError(
            f"{prefix} is of another model or optimizer than this run's: {misfit}."
            " Give another --output_dir."
        )
    for key in sorted(reader.shapes):  # their order in the file
        if key in variables:
            variables[key].assign(reader.read(key))
        elif whole:
            reader.read(key)


def _misfit(
    reader: CheckpointReader,
    variables: Mapping[str, tf.Variable],
    optional: Collection[str],
) -> str:
    """The first thing in which a checkpoint and the variables differ, or nothing."""
    for key, variable in variables.items():
        if key not in reader.shapes:
            if key in optional:
                continue
            return f"{shown_key(key)} is not in it"
        there = f"{reader.dtypes[key].name}{list(reader.shapes[key])}"
        here = f"{variable.dtype.name}{variable.shape.as_list()}"
        if there != here:
            return f"{shown_key(key)} is {there} there, {here} here"
    for key in reader.shapes:
        if key.startswith("weights/") and key not in variables:
            return f"{shown_key(key)} is left over"
    return ""


def _reason(error: Exception) -> str:
    """An error in a few words, without the checkpoint's name."""
    if "hecksum" in str(error):
        return "its bytes do not match their checksum"
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".: ")
