"""The tasks that --task_name knows: GLUE's, XNLI, and those of one's own."""

import difflib
import re

from bert_tf.errors import InputError
from bert_tf.tasks.data_set import DataSet
from bert_tf.tasks.glue import GLUE_TASKS, xnli

TASKS = {**GLUE_TASKS, "XNLI": xnli()}

OWN_TABLE = "tsv"
_BUILT_IN = (*TASKS, OWN_TABLE)


def add_task(data_set: DataSet) -> None:
    """Lets --task_name, and `find`, know a data set of your own.

    Another one that was added under the same name gives way: a notebook's cell may run
    again.

    Args:
        data_set: what there is to know of it; see README.md, "A task of your own".

    Raises:
        ValueError: the name is that of a task of this package, or the splits, files,
            labels and metrics do not fit together.
    """
    name, splits = data_set.name, set(data_set.splits)
    if _key(name) in map(_key, _BUILT_IN):
        raise ValueError(f"`name` must be new: this package has a task {name}.")
    if splits != set(data_set.files):
        raise ValueError(
            "`files` and `splits` must be of the same splits. Received:"
            f" {', '.join(data_set.files)} and {', '.join(data_set.splits)}."
        )
    missing = {*data_set.dev_splits, *data_set.test_splits} - splits
    if missing:
        raise ValueError(
            "`dev_splits` and `test_splits` must be among"
            f" {', '.join(data_set.splits)}. Received: {', '.join(sorted(missing))}."
        )
    if data_set.labels is not None:
        data_set.target()  # raises where a label is there twice, or a metric is none
    for old in [old for old in TASKS if _key(old) == _key(name)]:
        del TASKS[old]
    TASKS[name] = data_set


def find(name: str) -> DataSet:
    """A task by its name, in any case, with its hyphen or without."""
    found = {_key(task): data_set for task, data_set in TASKS.items()}
    if _key(name) in found:
        return found[_key(name)]
    names = {**{key: each.name for key, each in found.items()}, OWN_TABLE: OWN_TABLE}
    near = difflib.get_close_matches(_key(name), names, n=1)
    raise InputError(
        f"{name}: no such task. There are {', '.join(TASKS)}, and {OWN_TABLE}, which"
        " is a table of your own."
        + (f" Did you mean {names[near[0]]}?" if near else "")
    )


def _key(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())
