"""A run's checkpoints, and the best one: writing, verifying, naming, restoring.

    model.ckpt-STEP.index, model.ckpt-STEP.data-00000-of-00001   a checkpoint
    model.ckpt-STEP.tmp-NUMBER...   one being written, or left by a killed run
    checkpoint                      TensorFlow's CheckpointState: the newest checkpoint,
                                    and all that are kept, oldest first
    best/                           the checkpoint with the best evaluation, with the
                                    run's config and vocabulary, so that it can be given
                                    as `--init_checkpoint=OUTPUT_DIR/best`
    best/best.json                  {"metric": "loss", "step": 3000, "value": 2.25}, and
                                    "data": a number that identifies the evaluation
                                    data, if known

A checkpoint is a `tf.train.Checkpoint`:

    weights/NAME     the model's weights by the original's variable names
    optimizer/PATH   the optimizer's moments and its count of steps
    random/N         the states of the model's random generators (dropout), in order
    extra/NAME       other state of the engine, such as the loss scale
    training/NAME    the state of a regularized run, if it is one
    progress/step    the number of training steps done
    progress/records the number of training records read: the input's position
    progress/data    the fingerprint of those records; 0: unknown
    progress/seconds the time of all starts up to the step

It has everything that decides the next step, so a resumed run is the same run.

A checkpoint is written in the background and read back; only then is it named in the
`checkpoint` file, and only then are older ones removed. So a run killed at any moment
can resume from the newest intact checkpoint, and a damaged checkpoint is never the only
one, unless `max_to_keep` is 1.
"""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import math
import os
import re
import shutil
import time
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.base import files, keras_backend, strict_json
from bert_tf.base.errors import InputError, first_line
from bert_tf.base.options import BEST_FOLDER, FLAGS_NAME
from bert_tf.conversion.adapter_files import load_adapter
from bert_tf.conversion.loading import load_weights, opened
from bert_tf.conversion.reading import READING_NAME
from bert_tf.conversion.source import CONFIG_NAME, Source
from bert_tf.conversion.tensorflow import (
    KEY_SUFFIX,
    CheckpointReader,
    DamagedCheckpointError,
    shown_key,
)
from bert_tf.conversion.tokenizer_files import (
    LABELS_NAME,
    PROBLEM_TYPE_NAME,
    TOKENIZER_CONFIG_NAME,
    VOCAB_NAME,
    WORDS_NAME,
)
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.training.step import computing_in
from bert_tf.training.strategy import Strategy, create_strategy
from bert_tf.training.task import Task
from bert_tf.training.training_options import is_better

STATE_NAME = "checkpoint"
BEST_NAME = "best.json"
STARTS_NAME = "starts.jsonl"
FEATURES_NAME = "features.json"  # frozen features that a model was trained on

_DATA, _INDEX = ".data-00000-of-00001", ".index"
_FILE_NAME = re.compile(r"model\.ckpt-(\d+)\.(?:(index)|(data-\d+-of-\d+)|(tmp-.*))")
# A run's other files under temporary names: see `files.write_atomically`.
_TEMPORARY = re.compile(r"(checkpoint|[a-z_]+\.(json|jsonl|txt))\.tmp-\d+")

# Files of a run that best/ has in addition to the checkpoint.
_COMPANIONS = (
    CONFIG_NAME,
    VOCAB_NAME,
    TOKENIZER_CONFIG_NAME,
    LABELS_NAME,
    PROBLEM_TYPE_NAME,
    FLAGS_NAME,
    READING_NAME,
    STARTS_NAME,
    FEATURES_NAME,
    WORDS_NAME,
)


def prefix_of(folder: str, step: int) -> str:
    """Returns a step's checkpoint's name for `tf.train.load_checkpoint`."""
    return os.path.join(folder, f"model.ckpt-{step}")


def candidates(folder: str) -> list[str]:
    """Returns the checkpoints with an index, which is written last; newest first."""
    matches = [_FILE_NAME.fullmatch(name) for name in _names_in(folder)]
    steps = sorted(int(match[1]) for match in matches if match and match[2])
    return [prefix_of(folder, step) for step in reversed(steps)]


def write_state(folder: str, prefixes: Sequence[str]) -> None:
    """Names a folder's checkpoints, oldest first; the last one is the newest."""
    names = [os.path.basename(prefix) for prefix in prefixes]
    lines = [f'model_checkpoint_path: "{names[-1]}"\n']
    lines += [f'all_model_checkpoint_paths: "{name}"\n' for name in names]
    files.write_atomically(os.path.join(folder, STATE_NAME), "".join(lines))


def remove_checkpoint(prefix: str) -> None:
    """Removes a checkpoint's files, the index first: without it, there is none."""
    folder, name = os.path.split(prefix)
    own = [file for file in _names_in(folder) if file.startswith(name + ".")]
    for file in sorted(own, key=lambda file: not file.endswith(_INDEX)):
        files.remove(os.path.join(folder, file))


def remove_leftovers(folder: str) -> None:
    """Removes the leftovers of killed writes: incomplete checkpoints and files."""
    whole = {os.path.basename(prefix) for prefix in candidates(folder)}
    for name in _names_in(folder):
        match = _FILE_NAME.fullmatch(name)
        is_half = match is not None and (
            match[4] is not None or f"model.ckpt-{match[1]}" not in whole
        )
        if is_half or _TEMPORARY.fullmatch(name):
            logging.info("Removing %s, left by a run that was killed.", name)
            files.remove(os.path.join(folder, name))


def _names_in(folder: str) -> list[str]:
    return files.names_in(folder) if files.is_folder(folder) else []


Parts = Mapping[str, Mapping[str, keras.Variable]]  # part -> name -> variable

_PROGRESS = ("step", "records", "data", "seconds")


def tensor_key(part: str, name: str) -> str:
    """Returns a variable's key in `tf.train.Checkpoint(part={name: variable})`.

    TensorFlow writes `..` for a dot in a name and `.S` for a slash.
    """
    return f"{part}/{name.replace('.', '..').replace('/', '.S')}{KEY_SUFFIX}"


def _stored_dtype(variable: keras.Variable) -> str:
    """Returns a variable's type in checkpoints: TensorFlow's, whatever the back end.

    Step counts and the states of generators have 64 bits in TensorFlow, 32 in JAX.
    """
    is_count = variable.path.endswith(("seed_generator_state", "/iteration"))
    return "int64" if is_count else variable.dtype


def _misfit(
    reader: CheckpointReader,
    variables: Mapping[str, keras.Variable],
    optional: Collection[str],
) -> str:
    """Returns the first difference between a checkpoint and the variables, or ""."""
    for key, variable in variables.items():
        if key in reader.shapes:
            there = f"{reader.dtypes[key].name}{list(reader.shapes[key])}"
            here = f"{_stored_dtype(variable)}{list(variable.shape)}"
            if there != here:
                return f"{shown_key(key)} is {there} there, {here} here"
        elif key not in optional:
            if key.startswith("random/"):
                return "it was trained without dropout, this run has some"
            return f"{shown_key(key)} is not in it"
    for key in (tensor_key("progress", "step"), tensor_key("progress", "records")):
        if key not in reader.shapes:
            return f"{shown_key(key)} is not in it"
    for key in reader.shapes:
        if key.startswith("weights/") and key not in variables:
            return f"{shown_key(key)} is left over"
    return ""


# A checkpoint's values, copied at once, written and verified in the background.
#
# TensorFlow's own asynchronous checkpoints (`tf.train.CheckpointOptions`) do not fit:
# nothing can be checked between their writing and their naming, they hold a second copy
# of all values permanently, and a failure is only reported at the next save.


Snapshot = dict[str, dict[str, tf.Tensor]]  # part -> name -> value


def take_snapshot(parts: Parts) -> Snapshot:
    """Copies the variables' values to host memory."""

    def copied(variable: keras.Variable) -> tf.Tensor:
        if keras_backend.is_jax():
            value = gathered(variable).astype(_stored_dtype(variable))
        else:
            value = variable.value.read_value()
        # On the host, a tensor read from a variable may share the variable's memory.
        # TensorFlow allocates the copy, not numpy: it is reused for the next one.
        return tf.raw_ops.DeepCopy(x=value)

    with tf.device("CPU:0"):
        return {
            part: {name: copied(variable) for name, variable in variables.items()}
            for part, variables in parts.items()
        }


def gathered(variable: keras.Variable) -> np.ndarray:
    """Returns a variable's value on JAX, even if other processes have parts of it.

    If they do, all processes must call this.
    """
    value = variable.value
    if value.is_fully_addressable:
        return np.asarray(value)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)


def write_checkpoint(prefix: str, snapshot: Snapshot) -> None:
    """Writes a checkpoint completely or not at all, and verifies it.

    Files get their names when they are complete, the index last.
    """
    began = time.monotonic()
    temporary = files.temporary_name(prefix)
    try:
        with tf.device("CPU:0"):
            # Each value is removed from the snapshot: one copy in memory is enough.
            host = {
                part: {
                    name: tf.Variable(values.pop(name), trainable=False)
                    for name in list(values)
                }
                for part, values in snapshot.items()
            }
            checkpoint = tf.train.Checkpoint(**host)
            # TensorFlow's own restoring requires this counter, created on access.
            checkpoint.save_counter.assign_add(1)
            checkpoint.write(temporary)
        for path in (temporary + _DATA, temporary + _INDEX):
            with files.open_binary(path) as file:
                files.flush(file, path)
        # An older checkpoint's index must never be next to these data.
        if files.exists(prefix + _INDEX):
            files.remove(prefix + _INDEX)
        for ending in (_DATA, _INDEX):
            files.replace(temporary + ending, prefix + ending)
        reader = CheckpointReader(prefix)
        for key in sorted(reader.shapes):
            reader.read(key)  # compares the checksum
    except (OSError, tf.errors.OpError, DamagedCheckpointError) as error:
        with contextlib.suppress(OSError, tf.errors.OpError):
            remove_checkpoint(prefix)
        reason = first_line(error).rstrip(".")
        raise InputError(
            f"{prefix} could not be written: {reason}. The checkpoints before it are"
            " untouched: make room on an intact disk and start the same command again."
        ) from error
    logging.info("Wrote %s in %.1f s.", prefix, time.monotonic() - began)


# The best checkpoint, by a metric of the evaluations.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Best:
    """The best evaluation so far, as in best.json."""

    step: int
    value: float
    metric: str
    data: int = 0  # identifies the evaluation data; 0 if unknown
    run: str | None = None  # the best run's name, after a selection


def read_best(folder: str) -> Best | None:
    """Reads a folder's best.json; returns None if it is missing or damaged."""
    path = os.path.join(folder, BEST_NAME)
    if not files.exists(path):
        return None
    try:
        best = strict_json.read(Best, path)
        if math.isfinite(best.value):
            return best
        reason = f"{path}: `value` is {best.value}."
    except InputError as error:
        reason = str(error)
    logging.warning("%s It is ignored.", reason)
    return None


def keep_if_best(
    folder: str,
    step: int,
    value: float,
    name: str,
    data_id: int = 0,
    data_was: Sequence[int] = (),
) -> bool:
    """Keeps a step's checkpoint in best/ if its value beats the best before.

    An evaluation repeated by a resumed run completes an interrupted write. The
    comparison starts over with another metric or other data, as in a second phase.
    """
    best_folder = folder_of(folder)
    best = read_best(best_folder)
    is_made_again = False
    if (
        best is not None
        and best.metric == name
        and (best.data in (0, data_id, *data_was) or not data_id)
    ):
        is_made_again = (step, value) == (best.step, best.value)
        if not is_made_again and not is_better(value, best.value, name):
            return False
    elif math.isnan(value):
        return False
    source, target = prefix_of(folder, step), prefix_of(best_folder, step)
    files.make_folder(best_folder)
    for companion in _COMPANIONS:
        path = os.path.join(folder, companion)
        if files.exists(path):
            content = files.read_bytes(path)
            files.write_atomically(os.path.join(best_folder, companion), content)
    temporary = files.temporary_name(target)
    for ending in (_DATA, _INDEX):
        # Renaming a hard link to another link of the same file has no effect.
        if not _is_link(source + ending, target + ending):
            link(source + ending, temporary + ending)
            files.replace(temporary + ending, target + ending)
    write_state(best_folder, [target])
    described: dict[str, Any] = {"metric": name, "step": step, "value": value}
    if data_id:
        described["data"] = data_id
    files.write_atomically(
        os.path.join(best_folder, BEST_NAME), json.dumps(described) + "\n"
    )
    for other in candidates(best_folder):
        if other != target:
            remove_checkpoint(other)
    if not is_made_again:
        logging.info("Step %d is the best so far: %s %.6g.", step, name, value)
    return True


def folder_of(folder: str) -> str:
    """Returns the folder of a run's best checkpoint."""
    return os.path.join(folder, BEST_FOLDER)


def _is_link(source: str, target: str) -> bool:
    """Whether both are names of one file."""
    if files.is_remote(source) or not files.exists(target):
        return False
    return os.path.samefile(source, target)


def link(source: str, target: str) -> None:
    """Gives a file another name, or copies it if the disk has no hard links."""
    if files.is_remote(source):
        tf.io.gfile.copy(source, target, overwrite=True)
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


class RunCheckpoints:
    """A run's checkpoints; as a context manager, waits for their writes."""

    def __init__(
        self,
        folder: str,
        model: keras.Model,
        optimizer: keras.Optimizer | None = None,
        *,
        max_to_keep: int = 5,
        is_chief: bool = True,
        extra: Mapping[str, keras.Variable] = types.MappingProxyType({}),
        training: Mapping[str, keras.Variable] = types.MappingProxyType({}),
    ) -> None:
        self._folder = folder
        self._max_to_keep = max_to_keep
        self._writes = is_chief
        self.step = 0  # training steps done
        self.records = 0  # training records read
        self.data = 0  # fingerprint of these records; 0 if unknown
        self.seconds = 0  # of all starts; 0 if unknown
        self._parts: dict[str, Mapping[str, keras.Variable]] = {
            "weights": weights_by_name(model)
        }
        self._resumes = optimizer is not None
        if optimizer is not None:
            self._parts["optimizer"] = {
                variable.path: variable for variable in optimizer.variables
            }
            random_states = [
                variable
                for variable in model.non_trainable_variables
                if variable.path.endswith("seed_generator_state")
            ]
            self._parts["random"] = {
                f"{number:04d}": state for number, state in enumerate(random_states)
            }
            self._parts["extra"] = dict(extra)
            if training:
                self._parts["training"] = dict(training)
        # The newest valid one; on other workers, the one that the chief was to write.
        self.latest: str | None = next(iter(candidates(folder)), None)
        self._own: str | None = None  # the last one read or written by this process
        self._damaged: list[str] = []
        # One thread: one write at a time, and its follow-up in order.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoints")
        self._pending: list[concurrent.futures.Future] = []

    def restore(self) -> bool:
        """Restores and logs the newest intact checkpoint; returns whether there is one.

        If it is damaged, a warning is logged and the one before it is used. Incomplete
        files of killed runs are removed.
        """
        found = candidates(self._folder)
        damage = []
        for prefix in found:
            try:
                self._read(prefix)
            except DamagedCheckpointError as error:
                damage.append(str(error))
                logging.warning("%s. The one before it is used.", error)
                self._damaged.append(prefix)
                continue
            self.latest = self._own = prefix
            self._tidy()
            logging.info("Restored %s (step %d).", prefix, self.step)
            return True
        if damage or files.exists(os.path.join(self._folder, STATE_NAME)):
            raise InputError(
                f"{(damage or ['A checkpoint is named'])[0]}; and no other in"
                f" {self._folder} is whole. Bring its files back, or give another"
                " `output_dir`."
            )
        self._tidy()
        return False

    def save(
        self, step: int, records: int, data: int = 0, seconds: float = 0.0
    ) -> None:
        """Copies the current values, and writes them while training continues.

        Waits for a write in progress first. The newest checkpoint is not written again
        for the same step.
        """
        self.wait()
        prefix = prefix_of(self._folder, step)
        self.step, self.records, self.data = step, records, data
        self.seconds = round(seconds)
        if prefix == self._own:
            return
        if not self._writes:
            self.latest = self._own = prefix
            if keras_backend.is_jax():
                self._send_parts()
        else:
            snapshot = take_snapshot(self._parts)
            snapshot["progress"] = {
                name: tf.constant(getattr(self, name), tf.int64) for name in _PROGRESS
            }
            self._in_background(self._write, prefix, snapshot)

    def keep_best(
        self,
        step: int,
        results: Mapping[str, float],
        name: str,
        *,
        data_id: int = 0,
        data_was: Sequence[int] = (),
    ) -> None:
        """Keeps a step's checkpoint in best/, if it is the best so far.

        This happens after it is written. `max_to_keep` does not apply to best/.
        """
        if name not in results:
            raise InputError(
                f"`best_metric={name}` is not a metric of the evaluation:"
                f" {', '.join(results)}."
            )
        if self._writes:
            value = results[name]
            self._in_background(
                keep_if_best, self._folder, step, value, name, data_id, data_was
            )

    def _send_parts(self) -> None:
        """Adds this process's parts of variables to the chief's snapshot."""
        every = (named.values() for named in self._parts.values())
        for variable in itertools.chain.from_iterable(every):
            if not variable.value.is_fully_addressable:
                gathered(variable)

    def wait(self) -> None:
        """Waits until everything saved is written and verified."""
        pending, self._pending = self._pending, []
        for task in pending:
            task.result()

    def __enter__(self) -> "RunCheckpoints":
        return self

    def __exit__(self, *exception: object) -> None:
        self.wait()

    def _read(self, prefix: str) -> None:
        """Assigns a checkpoint's values to the run's variables."""
        reader = CheckpointReader(prefix)
        variables = {
            tensor_key(part, name): variable
            for part, named in self._parts.items()
            for name, variable in named.items()
        }
        # Earlier versions did not write these.
        optional = [tensor_key("extra", name) for name in self._parts.get("extra", ())]
        misfit = _misfit(reader, variables, optional)
        if misfit:
            raise InputError(
                f"{prefix} belongs to another model or optimizer than this run:"
                f" {misfit}. Give another `output_dir`."
            )
        for key in sorted(reader.shapes):  # the order in the file
            if key in variables:
                variables[key].assign(reader.read(key))
            elif self._resumes:
                reader.read(key)
        for name in _PROGRESS:
            key = tensor_key("progress", name)
            setattr(self, name, int(reader.read(key)) if key in reader.shapes else 0)

    def _in_background(self, function: Callable[..., object], *arguments: Any) -> None:
        def work() -> None:
            try:
                function(*arguments)
            except (OSError, tf.errors.OpError) as error:
                reason = first_line(error)
                raise InputError(
                    f"{self._folder} cannot be written to: {reason}. Its checkpoints"
                    " are complete: correct this and start the same command again."
                ) from error

        self._pending.append(self._thread.submit(work))

    def _write(self, prefix: str, snapshot: Snapshot) -> None:
        """Writes and names a checkpoint, then removes those that are too old."""
        write_checkpoint(prefix, snapshot)
        for one in set(self._damaged) - {prefix}:
            remove_checkpoint(one)
        self._damaged = []
        self.latest = self._own = prefix
        self._name_and_remove_old()

    def _tidy(self) -> None:
        """Completes writes interrupted by a kill, unless the run is only read."""
        if self._writes and self._resumes:
            for folder in (self._folder, folder_of(self._folder)):
                remove_leftovers(folder)
            if self._own:
                self._name_and_remove_old()

    def _name_and_remove_old(self) -> None:
        """Lists all intact checkpoints, then removes all but the newest few."""
        whole = [one for one in candidates(self._folder) if one not in self._damaged]
        write_state(self._folder, whole[::-1])
        old = whole[self._max_to_keep :] if self._max_to_keep else []
        for one in old:
            remove_checkpoint(one)
        if old:
            write_state(self._folder, whole[: self._max_to_keep][::-1])


# A model's initial weights: from its own folder, or another model.


def restore_or_initialize(
    task: Task,
    folder: str,
    init_checkpoint: str | Source | None,
    precision: str = "float32",
    strategy: Strategy | None = None,
    *,
    init_adapter: str | None = None,
) -> tuple[keras.Model, int]:
    """Returns a model to evaluate: from the folder's checkpoint, or the initial one."""
    strategy = strategy or create_strategy()
    with strategy.scope(), computing_in(precision):
        model = task.build_model()
    checkpoints = RunCheckpoints(folder, model)
    if checkpoints.restore():
        return model, checkpoints.step
    if not init_checkpoint:
        raise InputError(
            f"Nothing to evaluate: `output_dir={folder}` has no checkpoint and there is"
            " no `init_checkpoint`. Train first (`do_train`)."
        )
    source = opened(init_checkpoint)
    missing = [
        name
        for name in initialize(model, source, init_adapter)
        if not name.startswith(task.unmeasured)
    ]
    if missing:
        raise InputError(
            f"`init_checkpoint={source.path}` is not trained for this task: it has"
            f" no {missing[0]}. Train first (`do_train`)."
        )
    return model, 0


def initialize(
    model: keras.Model,
    init_checkpoint: str | Source,
    init_adapter: str | None,
    init_head: bool = True,
    *,
    stack_layers: bool = False,
    init_layers: Sequence[int] | None = None,
) -> list[str]:
    """Loads a model's initial weights; returns the names of missing ones."""
    # An adapter has its own head.
    has_head = init_head and not init_adapter
    source = opened(init_checkpoint)
    weights = source.weights
    if stack_layers:
        weights = weights.stacked(model.bert_config.num_hidden_layers)
    if init_layers is not None:
        weights = weights.with_layers(init_layers)
    source = dataclasses.replace(source, weights=weights)
    missing = load_weights(model, source, init_head=has_head)
    if not init_adapter:
        return missing
    loaded = load_adapter(model, init_adapter, init_head=init_head)
    return [name for name in missing if name not in loaded]
