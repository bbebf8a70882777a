"""A run's checkpoint files: written in the background, read back, then named."""

import os
import re
import time
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.errors import InputError

# The checkpoints' files in a run's folder: found, named, removed.
#
#     model.ckpt-STEP.index, model.ckpt-STEP.data-00000-of-00001   a checkpoint
#     model.ckpt-STEP.tmp-NUMBER...   one being written, or left by a killed run
#     checkpoint                      the newest one, and all that are kept, oldest
#                                     first
#
# `checkpoint` is the text of TensorFlow's CheckpointState, as its own functions read
# it. To resume from an older one, name it there, as `model_checkpoint_path`.


CHECKPOINT_NAME = "model.ckpt"
STATE_NAME = "checkpoint"

_FILE_NAME = re.compile(
    re.escape(CHECKPOINT_NAME) + r"-(\d+)\.(?:(index)|(data-\d+-of-\d+)|(tmp-.*))/?"
)
_NAME = re.compile(re.escape(CHECKPOINT_NAME) + r"-\d+")
# A run's other files under their temporary names in `bert_tf.files.write_atomically`.
_TEMPORARY = re.compile(r"(checkpoint|[a-z_]+\.(json|jsonl|txt))\.tmp-\d+")


def prefix_of(folder: str, step: int) -> str:
    """The name of a step's checkpoint for `tf.train.load_checkpoint`."""
    return os.path.join(folder, f"{CHECKPOINT_NAME}-{step}")


def step_of(prefix: str) -> int:
    """The step in a checkpoint's name."""
    return int(prefix.rpartition("-")[2])


def candidates(folder: str) -> list[str]:
    """The checkpoints to resume from, best first.

    First those newer than the named ones: complete, but not named before a kill.
    Then those named in the `checkpoint` file, newest first. Then all others, newest
    first, in case that file, or all that it names, is damaged.
    """
    named, newest = read_state(folder)
    there = [prefix_of(folder, step) for step in _steps_there(folder)]
    others = [prefix for prefix in reversed(there) if prefix not in named]
    if newest is None:
        return others
    ahead = [prefix for prefix in others if step_of(prefix) > step_of(newest)]
    older = [prefix for prefix in reversed(named) if prefix != newest]
    return [*ahead, newest, *older, *[one for one in others if one not in ahead]]


def read_state(folder: str) -> tuple[list[str], str | None]:
    """What the `checkpoint` file names: all, oldest first, and the newest.

    ([], None) if there is none, or nothing can be read from it.
    """
    path = os.path.join(folder, STATE_NAME)
    if not files.exists(path):
        return [], None
    text = files.read_bytes(path).decode("utf-8", errors="replace")

    def named(field: str) -> list[str]:
        paths = re.findall(rf'^{field}: "(.*)"\s*$', text, re.MULTILINE)
        names = [os.path.basename(path) for path in paths]
        return [os.path.join(folder, name) for name in names if _NAME.fullmatch(name)]

    newest = named("model_checkpoint_path")
    if not newest:
        logging.warning("%s is damaged: it names no checkpoint.", path)
        return [], None
    kept = [one for one in named("all_model_checkpoint_paths") if one != newest[0]]
    return [*kept, newest[0]], newest[0]


def write_state(folder: str, prefixes: Sequence[str]) -> None:
    """Names the folder's checkpoints, oldest first; the last one is the newest."""
    names = [os.path.basename(prefix) for prefix in prefixes]
    lines = [f'model_checkpoint_path: "{names[-1]}"\n']
    lines += [f'all_model_checkpoint_paths: "{name}"\n' for name in names]
    files.write_atomically(os.path.join(folder, STATE_NAME), "".join(lines))


def remove_checkpoint(prefix: str) -> None:
    """Removes those of a checkpoint's files that exist.

    The index goes first: without it, the rest is no checkpoint.
    """
    folder, name = os.path.split(prefix)
    own = [file for file in _listing(folder) if file.startswith(name + ".")]
    for file in sorted(own, key=lambda file: not file.endswith(".index")):
        files.remove(os.path.join(folder, file).rstrip("/"))


def remove_leftovers(folder: str) -> None:
    """Removes what killed writes have left: incomplete checkpoints and files."""
    listing = _listing(folder)
    named = {step_of(prefix) for prefix in read_state(folder)[0]}
    whole = named.union(_steps_there(folder))
    for name in listing:
        match = _FILE_NAME.fullmatch(name)
        is_half = match is not None and (match[4] or int(match[1]) not in whole)
        if is_half or _TEMPORARY.fullmatch(name):
            logging.info("Removing %s, left by a run that was killed.", name)
            files.remove(os.path.join(folder, name).rstrip("/"))


def _steps_there(folder: str) -> list[int]:
    """The steps that have an index, which is the last file of each, ascending."""
    matches = [_FILE_NAME.fullmatch(name) for name in _listing(folder)]
    return sorted({int(match[1]) for match in matches if match and match[2]})


def _listing(folder: str) -> list[str]:
    return tf.io.gfile.listdir(folder) if files.is_folder(folder) else []


# A checkpoint's tensors, read and checked against their checksums.
#
# TensorFlow's reader compares each tensor's bytes, and those of the index itself, with
# the CRC-32C in the index.


Parts = Mapping[str, Mapping[str, tf.Variable]]  # part -> name -> variable

_KEY_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"

# TensorFlow's reader turns some of its own errors into Python's: missing bytes are an
# IndexError.
_READ_ERRORS = (tf.errors.OpError, RuntimeError, ValueError, LookupError, MemoryError)


class DamagedCheckpointError(Exception):
    """A checkpoint cannot be read; the message gives the part and the reason."""


def tensor_key(part: str, name: str) -> str:
    """The key of `tf.train.Checkpoint(part={name: variable})` for the variable.

    TensorFlow writes `..` for a dot in a name and `.S` for a slash.
    """
    return f"{part}/{name.replace('.', '..').replace('/', '.S')}{_KEY_SUFFIX}"


def shown_key(key: str) -> str:
    """A key in the form shown to the user: `weights/bert/pooler/dense/kernel`."""
    escaped = key.removesuffix(_KEY_SUFFIX)
    return re.sub(r"\.(.)", lambda match: "/" if match[1] == "S" else ".", escaped)


class CheckpointReader:
    """Reads one checkpoint and verifies its checksums.

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
    """Assigns a checkpoint's values to variables."""
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
    """The first difference between a checkpoint and the variables, or nothing."""
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


# A checkpoint's values, copied at once, written and read back in the background.
#
# TensorFlow's own asynchronous checkpoints (`tf.train.CheckpointOptions`) do not fit:
# nothing can be checked between their writing and their naming, they hold a second copy
# of all values permanently, and a failure is only reported at the next save.


Snapshot = dict[str, dict[str, tf.Tensor]]  # the same, with values


def take_snapshot(parts: Parts) -> Snapshot:
    """A copy of the variables' values in host memory."""
    # On the host a tensor read from a variable may share the variable's memory.
    # TensorFlow allocates the copy, not numpy: the memory is reused for the next one.
    with tf.device("CPU:0"):
        return {
            part: {
                name: tf.raw_ops.DeepCopy(x=variable.read_value())
                for name, variable in variables.items()
            }
            for part, variables in parts.items()
        }


def write_checkpoint(prefix: str, snapshot: Snapshot) -> None:
    """Writes a checkpoint completely or not at all, and reads it back.

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
            # TensorFlow's own restoring needs this one; it is created when accessed.
            checkpoint.save_counter.assign_add(1)
            checkpoint.write(temporary)
        for ending in (".data-00000-of-00001", ".index"):
            _flush(temporary + ending)
        # In place of an older one: its index must at no moment be next to these data.
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
    """A variable with a value, which is removed from `values`."""
    return tf.Variable(values.pop(name), trainable=False)


def _compare(prefix: str, host: Parts) -> None:
    """Raises DamagedCheckpointError unless the files hold exactly these values."""
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
    """Waits until a file's bytes are on the disk and so survive a power cut."""
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
