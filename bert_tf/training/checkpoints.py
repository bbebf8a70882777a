"""A run's checkpoints and its best one: which exist, which are kept."""

import concurrent.futures
import dataclasses
import json
import math
import os
import shutil
import types
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bert_tf import files, strict_json
from bert_tf.conversion.adapter_files import load_adapter
from bert_tf.conversion.loading import load_weights
from bert_tf.conversion.source import CONFIG_NAME
from bert_tf.conversion.tokenizer_files import (
    LABELS_NAME,
    PROBLEM_TYPE_NAME,
    TOKENIZER_CONFIG_NAME,
    VOCAB_NAME,
)
from bert_tf.errors import InputError
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.training.checkpoint_files import (
    DamagedCheckpointError,
    Snapshot,
    candidates,
    prefix_of,
    read_state,
    remove_checkpoint,
    remove_leftovers,
    restore_parts,
    take_snapshot,
    tensor_key,
    write_checkpoint,
    write_state,
)
from bert_tf.training.run_folder import FLAGS_NAME, STARTS_NAME
from bert_tf.training.step import computing_in
from bert_tf.training.task import Task

# The best checkpoint of a run, by a metric of its evaluations, kept in best/.
#
#     model.ckpt-STEP...   the files of that checkpoint: hard links, or copies
#     checkpoint           names it
#     best.json            {"metric": "loss", "step": 3000, "value": 2.25}, and "data":
#                          a number that identifies the evaluation data, if known
#     bert_config.json, vocab.txt, ...    the run's own
#
# so that `--init_checkpoint=OUTPUT_DIR/best` means the best one.


FOLDER_NAME = "best"
BEST_NAME = "best.json"

_COMPANIONS = (
    CONFIG_NAME,
    VOCAB_NAME,
    TOKENIZER_CONFIG_NAME,
    LABELS_NAME,
    PROBLEM_TYPE_NAME,
    FLAGS_NAME,
    STARTS_NAME,
)
_LOWER_IS_BETTER = ("loss", "perplexity", "entropy", "error")


def is_better(value: float, than: float, name: str) -> bool:
    """Whether a value is better: lower for losses and errors, higher for others."""
    if math.isnan(value) or math.isnan(than):
        return not math.isnan(value)
    return value < than if name.endswith(_LOWER_IS_BETTER) else value > than


@dataclasses.dataclass(frozen=True, kw_only=True)
class Best:
    """The best evaluation so far, as in best.json.

    Attributes:
        step: the evaluated step.
        value: the metric's value.
        metric: its name.
        data: an id of the evaluation data; 0 if unknown.
        run: of a selection, the name of its best run.
    """

    step: int
    value: float
    metric: str
    data: int = 0
    run: str | None = None


def read_best(folder: str) -> Best | None:
    """The content of a run's best/best.json; None if it is missing or damaged."""
    return read_best_file(folder_of(folder))


def read_best_file(folder: str) -> Best | None:
    """As `read_best`, from best.json's own folder."""
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
    logging.warning("%s It is left aside.", reason)
    return None


def keep_if_best(
    folder: str, step: int, value: float, name: str, data_id: int = 0
) -> bool:
    """Keeps a step's checkpoint in best/ if its value is better than those before.

    An evaluation that a killed run repeats changes nothing, or completes what it had
    begun. A new metric starts over, and so do other data, such as those
    of a second phase with longer sequences.
    """
    best = read_best(folder)
    if (
        best is not None
        and best.metric == name
        and (best.data == data_id or not best.data or not data_id)
    ):
        is_made_again = (step, value) == (best.step, best.value)
        if not is_made_again and not is_better(value, best.value, name):
            return False
    elif math.isnan(value):
        return False
    source, target = prefix_of(folder, step), prefix_of(folder_of(folder), step)
    files.make_folder(folder_of(folder))
    for companion in _COMPANIONS:
        path = os.path.join(folder, companion)
        if files.exists(path):
            files.write_atomically(
                os.path.join(folder_of(folder), companion), files.read_bytes(path)
            )
    temporary = files.temporary_name(target)
    for ending in (".data-00000-of-00001", ".index"):
        # Renaming one hard link of a file to another one has no effect.
        if not _is_link(source + ending, target + ending):
            link(source + ending, temporary + ending)
            files.replace(temporary + ending, target + ending)
    write_state(folder_of(folder), [target])
    files.write_atomically(
        os.path.join(folder_of(folder), BEST_NAME),
        json.dumps(
            {"metric": name, "step": step, "value": value}
            | ({"data": data_id} if data_id else {})
        )
        + "\n",
    )
    for other in candidates(folder_of(folder)):
        if other != target:
            remove_checkpoint(other)
    logging.info("Step %d is the best so far: %s %.6g.", step, name, value)
    return True


def folder_of(folder: str) -> str:
    """Where a run keeps its best checkpoint."""
    return os.path.join(folder, FOLDER_NAME)


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


# The state of a run in its folder: saved, restored, limited to the last few.
#
# Layout of a checkpoint (`model.ckpt-STEP`, a `tf.train.Checkpoint`):
#
#     weights/NAME     the model's weights by the original's variable names
#     optimizer/PATH   the optimizer's moments and its count of steps
#     random/N         the states of the model's random generators (dropout), in order
#     extra/NAME       other state of the engine, such as the scale of the loss
#     progress/step    the number of training steps done
#     progress/records the number of training records read: the input's position
#     progress/data    the fingerprint of those records; 0: unknown
#
# Everything that decides the next step is in it, so a resumed run is the same run.
#
# A checkpoint is written in the background and read back; only then is it named in the
# `checkpoint` file, and only after that are older ones removed. So a run that is killed
# at any moment can resume, and a damaged checkpoint is never the only one, unless
# `max_to_keep` is 1.


class RunCheckpoints:
    """Saves and restores one run; as a context manager, it ends with `wait`.

    Attributes:
        step: number of training steps done.
        records: number of training records read.
        data: fingerprint of the record set that `records` counts, below 2**63; 0 if
            unknown.
        latest: prefix of the newest valid checkpoint; on workers other than the chief,
            of the newest that the chief was to write.
    """

    def __init__(
        self,
        folder: str,
        model: keras.Model,
        optimizer: keras.Optimizer | None = None,
        *,
        max_to_keep: int = 5,
        is_chief: bool = True,
        extra: Mapping[str, tf.Variable] = types.MappingProxyType({}),
    ) -> None:
        self._folder = folder
        self._max_to_keep = max_to_keep
        self._writes = is_chief
        self._progress = {
            name: tf.Variable(0, dtype=tf.int64, trainable=False)
            for name in ("step", "records", "data")
        }
        self._parts: dict[str, dict[str, tf.Variable]] = {
            "weights": {
                name: variable.value
                for name, variable in weights_by_name(model).items()
            },
            "progress": self._progress,
        }
        self._resumes = optimizer is not None
        if optimizer is not None:
            self._parts["optimizer"] = {
                variable.path: variable.value for variable in optimizer.variables
            }
            self._parts["random"] = {
                f"{number:04d}": variable.value
                for number, variable in enumerate(_random_states(model))
            }
            self._parts["extra"] = dict(extra)
        self._named, self.latest = read_state(folder)
        self._own: str | None = None  # the last one that was read or written here
        self._damaged: list[str] = []
        # One thread: one write at a time, and what follows a write comes after it.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoints")
        self._pending: list[concurrent.futures.Future] = []

    @property
    def step(self) -> int:
        """The number of training steps done."""
        return int(self._progress["step"].numpy())

    @property
    def records(self) -> int:
        """The number of training records read."""
        return int(self._progress["records"].numpy())

    @property
    def data(self) -> int:
        """The fingerprint of the record set that `records` counts."""
        return int(self._progress["data"].numpy())

    def restore(self) -> bool:
        """Restores the newest checkpoint that is whole, if there is one, and logs it.

        A damaged one causes a warning, and the one before it is used. Incomplete files
        of killed runs are removed.
        """
        # A reader may run while another process trains.
        tidies = self._writes and self._resumes
        if tidies:
            for folder in (self._folder, folder_of(self._folder)):
                remove_leftovers(folder)
        damage: list[str] = []
        found = candidates(self._folder)
        for prefix in found:
            try:
                self._read(prefix)
            except DamagedCheckpointError as error:
                damage.append(f"{prefix} is damaged: {error}")
                logging.warning("%s. The one before it is used.", damage[-1])
                self._damaged.append(prefix)
                continue
            self.latest = self._own = prefix
            # If nothing names them, all existing ones are the run's.
            named = self._named or found[::-1]
            self._named = [one for one in named if one not in self._damaged]
            if tidies and read_state(self._folder) != (self._named, prefix):
                self._name(prefix)
            if tidies:
                # The run may have been killed between naming a checkpoint and this.
                self._remove_old()
            logging.info("Restored %s (step %d).", prefix, self.step)
            return True
        if damage:
            raise InputError(
                f"{damage[0]}; and no other in {self._folder} is whole. Bring its files"
                " back, or give another --output_dir."
            )
        return False

    def save(self, step: int, records: int, data: int = 0) -> None:
        """Takes the values as they are now, and writes them while training continues.

        A write in progress is waited for. The newest checkpoint is not written
        again.
        """
        self.wait()
        prefix = prefix_of(self._folder, step)
        for name, value in (("step", step), ("records", records), ("data", data)):
            self._progress[name].assign(value)
        if not self._writes:
            self.latest = prefix
        elif prefix != self._own:
            self._in_background(self._write, prefix, take_snapshot(self._parts))

    def keep_best(
        self, step: int, value: float, name: str, *, data_id: int = 0
    ) -> None:
        """Keeps the checkpoint of a step in best/, if it is the best so far.

        This happens once it is written. `max_to_keep` does not apply to it.
        """
        if self._writes:
            self._in_background(keep_if_best, self._folder, step, value, name, data_id)

    def wait(self) -> None:
        """Returns when all that was saved is written and verified."""
        pending, self._pending = self._pending, []
        for task in pending:
            task.result()

    def __enter__(self) -> "RunCheckpoints":
        return self

    def __exit__(self, *exception: object) -> None:
        self.wait()

    def _read(self, prefix: str) -> None:
        optional = [tensor_key("extra", name) for name in self._parts.get("extra", ())]
        optional.append(tensor_key("progress", "data"))
        self._progress["data"].assign(0)
        restore_parts(prefix, self._parts, optional=optional, whole=self._resumes)

    def _in_background(self, function: Callable[..., object], *arguments: Any) -> None:
        def work() -> None:
            try:
                function(*arguments)
            except (OSError, tf.errors.OpError) as error:
                reason = str(error).splitlines()[0]
                raise InputError(
                    f"{self._folder} cannot be written to: {reason}. Its checkpoints"
                    " are whole: mend that and start the same command again."
                ) from error

        self._pending.append(self._thread.submit(work))

    def _write(self, prefix: str, snapshot: Snapshot) -> None:
        """Writes and names a checkpoint, then removes those that are too old."""
        write_checkpoint(prefix, snapshot)
        self._name(prefix)
        self.latest = self._own = prefix
        for one in self._damaged:
            if one != prefix:
                remove_checkpoint(one)
        self._damaged = []
        self._remove_old()

    def _remove_old(self) -> None:
        """Removes all but the newest `max_to_keep` of the named checkpoints."""
        old = self._named[: -self._max_to_keep] if self._max_to_keep else []
        for one in old:
            remove_checkpoint(one)
        if old:
            self._named = self._named[len(old) :]
            write_state(self._folder, self._named)

    def _name(self, prefix: str) -> None:
        """Names a checkpoint as the newest one."""
        self._named = [
            one for one in self._named if one != prefix and files.exists(one + ".index")
        ]
        self._named.append(prefix)
        write_state(self._folder, self._named)


def _random_states(model: keras.Model) -> list[keras.Variable]:
    """The variables of the model's random generators, in the order of its layers."""
    return [
        variable
        for variable in model.non_trainable_variables
        if variable.path.endswith("seed_generator_state")
    ]


# The weights that a model starts with: from its own folder, or another model's.


def restore_or_initialize(
    task: Task,
    folder: str,
    init_checkpoint: str | None,
    precision: str = "float32",
    strategy: tf.distribute.Strategy | None = None,
    *,
    init_adapter: str | None = None,
) -> tuple[keras.Model, int]:
    """A task's model for evaluation: the folder's checkpoint, or else the given one."""
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope(), computing_in(precision):
        model = task.build_model()
    checkpoints = RunCheckpoints(folder, model)
    if checkpoints.restore():
        return model, checkpoints.step
    if not init_checkpoint:
        raise InputError(
            f"Nothing to evaluate: --output_dir={folder} has no checkpoint and there is"
            " no --init_checkpoint. Train first (--do_train)."
        )
    missing = [
        name
        for name in initialize(model, init_checkpoint, init_adapter)
        if not name.startswith(task.unmeasured)
    ]
    if missing:
        raise InputError(
            f"--init_checkpoint={init_checkpoint} is not trained for this task: it has"
            f" no {missing[0]}. Train first (--do_train)."
        )
    return model, 0


def initialize(
    model: keras.Model,
    init_checkpoint: str,
    init_adapter: str | None,
    init_head: bool = True,
) -> list[str]:
    """Gives a model its first weights."""
    # An adapter has its own head.
    has_head = init_head and not init_adapter
    missing = load_weights(model, init_checkpoint, init_head=has_head)
    if not init_adapter:
        return missing
    loaded = load_adapter(model, init_adapter, init_head=init_head)
    return [name for name in missing if name not in loaded]
