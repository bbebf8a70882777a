"""The best checkpoint of a run, by a metric of its evaluations, kept in best/.

    model.ckpt-STEP...   the files of that checkpoint: hard links, or copies
    checkpoint           names it
    best.json            {"metric": "loss", "step": 3000, "value": 2.25}, and "data":
                         a number that tells what was evaluated on apart, if known
    bert_config.json, vocab.txt, ...    those of the run

so that `--init_checkpoint=OUTPUT_DIR/best` means the best one.
"""

import dataclasses
import json
import math
import os
import shutil

import tensorflow as tf
from absl import logging

from bert_tf import files, strict_json
from bert_tf.conversion.source import CONFIG_NAME
from bert_tf.conversion.tokenizer_files import (
    LABELS_NAME,
    PROBLEM_TYPE_NAME,
    TOKENIZER_CONFIG_NAME,
    VOCAB_NAME,
)
from bert_tf.errors import InputError
from bert_tf.training.checkpoint_files import (
    candidates,
    prefix_of,
    remove_checkpoint,
    write_state,
)
from bert_tf.training.run_folder import FLAGS_NAME, STARTS_NAME

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
    """The best evaluation so far, as best.json has it.

    Attributes:
        step: the evaluated step.
        value: the metric's value.
        metric: its name.
        data: an id of what was evaluated on; 0 where it is unknown.
        run: of a selection, the name of its best run.
    """

    step: int
    value: float
    metric: str
    data: int = 0
    run: str | None = None


def read_best(folder: str) -> Best | None:
    """What a run's best/best.json says; None where there is none, or a damaged one."""
    return read_best_file(folder_of(folder))


def read_best_file(folder: str) -> Best | None:
    """As `read_best`, from the folder that best.json is in."""
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

    An evaluation that a killed run makes again changes nothing, or ends what it had
    begun. Another metric than the one before begins anew, and so do other data, such as
    those of a second phase with longer sequences.
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
        # Renaming one name of a file to another name of it does nothing at all.
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
    """Gives a file another name, or copies it where the disk has no such thing."""
    if files.is_remote(source):
        tf.io.gfile.copy(source, target, overwrite=True)
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
