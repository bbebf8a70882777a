"""The checkpoints' files in a run's folder: found, named, removed.

    model.ckpt-STEP.index, model.ckpt-STEP.data-00000-of-00001   a checkpoint
    model.ckpt-STEP.tmp-NUMBER...   one being written, or that was when it was killed
    checkpoint                      the newest one, and all that are kept, oldest first

`checkpoint` is the text of TensorFlow's CheckpointState, as its own functions read it.
Whoever wants to go on from an older one names it there, as `model_checkpoint_path`.
"""

import os
import re
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from bert_tf import files

CHECKPOINT_NAME = "model.ckpt"
STATE_NAME = "checkpoint"

_FILE_NAME = re.compile(
    re.escape(CHECKPOINT_NAME) + r"-(\d+)\.(?:(index)|(data-\d+-of-\d+)|(tmp-.*))/?"
)
_NAME = re.compile(re.escape(CHECKPOINT_NAME) + r"-\d+")
# A run's other files, as `bert_tf.files.write_atomically` calls them on the way.
_TEMPORARY = re.compile(r"(checkpoint|[a-z_]+\.(json|jsonl|txt))\.tmp-\d+")


def prefix_of(folder: str, step: int) -> str:
    """The checkpoint of a step, as `tf.train.load_checkpoint` wants it named."""
    return os.path.join(folder, f"{CHECKPOINT_NAME}-{step}")


def step_of(prefix: str) -> int:
    """The step in a checkpoint's name."""
    return int(prefix.rpartition("-")[2])


def candidates(folder: str) -> list[str]:
    """The checkpoints to go on from, best first.

    First those newer than the named ones: whole, but killed before they were named.
    Then what the `checkpoint` file names, newest first. Then all others, newest first:
    where that file is damaged, or all that it names.
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

    ([], None) where there is none, or nothing can be read from it.
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
    """Removes a checkpoint's files, those of them that are there.

    The index goes first: without it, the rest is no checkpoint.
    """
    folder, name = os.path.split(prefix)
    own = [file for file in _listing(folder) if file.startswith(name + ".")]
    for file in sorted(own, key=lambda file: not file.endswith(".index")):
        files.remove(os.path.join(folder, file).rstrip("/"))


def remove_leftovers(folder: str) -> None:
    """Removes what writes that were killed have left: half of a checkpoint or file."""
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
