"""One checkpoint: its values taken at once, written and read back in the background.

TensorFlow's own asynchronous checkpoints (`tf.train.CheckpointOptions`) do not fit:
nothing can be checked between their writing and their naming, they keep a second copy
of all values for good, and a failure is first heard of at the next save.
"""

import os
import time

import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.training.checkpoint_files import remove_checkpoint
from bert_tf.training.checkpoint_reader import (
    CheckpointReader,
    DamagedCheckpointError,
    Parts,
    by_key,
    shown_key,
)

Snapshot = dict[str, dict[str, tf.Tensor]]  # the same, with values


def take_snapshot(parts: Parts) -> Snapshot:
    """The variables' values now, in memory of their own on the host."""
    # A tensor that is read from a variable on the host may be the variable's memory.
    # TensorFlow's memory, not numpy's: it is used again for the next snapshot.
    with tf.device("CPU:0"):
        return {
            part: {
                name: tf.raw_ops.DeepCopy(x=variable.read_value())
                for name, variable in variables.items()
            }
            for part, variables in parts.items()
        }


def write_checkpoint(prefix: str, snapshot: Snapshot) -> None:
    """Writes a checkpoint, so that it is there as a whole or not at all; reads it back.

    The files get their names when they are complete, the index last.
    """
    began = time.monotonic()
    temporary = files.temporary_name(prefix)
    try:
        with tf.device("CPU:0"):
            host = {}
            for part, values in snapshot.items():
                host[part] = {name: _moved(values, name) for name in list(values)}
            checkpoint = tf.train.Checkpoint(**host)
            # TensorFlow's own restoring asks for this one; it is made when looked at.
            checkpoint.save_counter.assign_add(1)
            checkpoint.write(temporary)
        for ending in (".data-00000-of-00001", ".index"):
            _flush(temporary + ending)
        # In place of an older one: at no moment may its index lie beside these data.
        if files.exists(prefix + ".index"):
            files.remove(prefix + ".index")
        for ending in (".data-00000-of-00001", ".index"):
            files.replace(temporary + ending, prefix + ending)
        _compare(prefix, host)
    except (OSError, tf.errors.OpError, DamagedCheckpointError) as error:
        _remove_quietly(prefix)
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f"{prefix} could not be written: {reason}. The checkpoints before it are"
            " untouched: make room on a sound disk and start the same command again."
        ) from error
    logging.info("Wrote %s in %.1f s.", prefix, time.monotonic() - began)


def _moved(values: dict[str, tf.Tensor], name: str) -> tf.Variable:
    """A variable of a value, which `values` then no longer holds."""
    return tf.Variable(values.pop(name), trainable=False)


def _compare(prefix: str, host: Parts) -> None:
    """Raises DamagedCheckpointError unless the files hold the variables' very bits."""
    reader = CheckpointReader(prefix)
    variables = by_key(host)
    for key in sorted(reader.shapes):
        value = reader.read(key)
        variable = variables.pop(key, None)
        if variable is not None and value.tobytes() != variable.numpy().tobytes():
            raise DamagedCheckpointError(f"{shown_key(key)} reads back differently")
    if variables:
        raise DamagedCheckpointError(f"{shown_key(next(iter(variables)))} is missing")


def _flush(path: str) -> None:
    """Waits until a file's bytes are on the disk, which a power cut then spares."""
    if files.is_remote(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_quietly(prefix: str) -> None:
    try:
        remove_checkpoint(prefix)
    except (OSError, tf.errors.OpError) as error:
        logging.warning("What is left of %s cannot be removed: %s", prefix, error)
