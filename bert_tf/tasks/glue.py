"""The original's four tasks, and anyone's own table, as data.

A `DataSet` says which labels there are and how each split is read from --data_dir.
"""

import dataclasses
import difflib
import os
import re
from collections.abc import Mapping

from absl import flags

from bert_tf import files as file_system
from bert_tf.errors import InputError
from bert_tf.tasks.examples import Column, Example, TableSplit

_NLI_LABELS = ("contradiction", "entailment", "neutral")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """A classification or regression data set.

    Attributes:
        labels: the classes in the order of the model's outputs; None for regression,
            and for a table of one's own whose labels are those of its training file.
        files: split ("train", "dev", "test") -> file name under --data_dir.
        splits: split -> its columns.
        regression: whether the label is a number.
    """

    labels: tuple[str, ...] | None
    files: Mapping[str, str]
    splits: Mapping[str, TableSplit]
    regression: bool = False

    def read(self, data_dir: str, split: str) -> list[Example]:
        """The examples of a split.

        Raises:
            InputError: as `TableSplit.read`, or the data set has no such split.
        """
        if split not in self.files:
            raise InputError(f"This task has no {split} set.")
        if not file_system.is_folder(data_dir):
            raise InputError(f"--data_dir: no such folder: {data_dir}")
        return self.splits[split].read(os.path.join(data_dir, self.files[split]))

    def read_labels(self, data_dir: str) -> tuple[str, ...] | None:
        """The classes: the fixed ones, or else those of the training file, sorted.

        None for regression.
        """
        if self.labels is not None or self.regression:
            return self.labels
        found = {example.label for example in self.read(data_dir, "train")}
        if len(found) < 2:
            path = os.path.join(data_dir, self.files["train"])
            raise InputError(
                f"{path}: all rows have the label {found.pop()!r}. Is it the right"
                " --label_column? (--labels names them, --regression is for numbers.)"
            )
        return tuple(sorted(label for label in found if label is not None))


_SPLITS = ("train", "dev", "test")
_TSV_FILES = {split: f"{split}.tsv" for split in _SPLITS}

_COLA = TableSplit(text_a=3, label=1, has_header=False)
_MNLI = TableSplit(text_a=8, text_b=9, label=-1)
_MRPC = TableSplit(text_a=3, text_b=4, label=0)

TASKS = {
    "cola": DataSet(
        labels=("0", "1"),
        files=_TSV_FILES,
        splits={"train": _COLA, "dev": _COLA, "test": TableSplit(text_a=1)},
    ),
    "mnli": DataSet(
        labels=_NLI_LABELS,
        files={
            "train": "train.tsv",
            "dev": "dev_matched.tsv",
            "test": "test_matched.tsv",
        },
        splits={
            "train": _MNLI,
            "dev": _MNLI,
            "test": dataclasses.replace(_MNLI, label=None),
        },
    ),
    "mrpc": DataSet(
        labels=("0", "1"),
        files=_TSV_FILES,
        splits={
            "train": _MRPC,
            "dev": _MRPC,
            "test": dataclasses.replace(_MRPC, label=None),
        },
    ),
    "xnli": DataSet(
        labels=_NLI_LABELS,
        files={
            "train": os.path.join("multinli", "multinli.train.zh.tsv"),
            "dev": "xnli.dev.tsv",
        },
        splits={
            "train": TableSplit(
                text_a=0,
                text_b=1,
                label=2,
                rename={"contradictory": "contradiction"},
            ),
            "dev": TableSplit(text_a=6, text_b=7, label=1, only={0: "zh"}),
        },
    ),
}

OWN_TABLE = "tsv"


def data_set_from_flags(flag_values: flags.FlagValues) -> DataSet:
    """The data set that --task_name and the flags for a table of one's own describe.

    Raises:
        InputError: there is no such task.
    """
    name = flag_values.task_name.lower()
    if name in TASKS:
        return TASKS[name]
    if name != OWN_TABLE:
        near = difflib.get_close_matches(name, [*TASKS, OWN_TABLE], n=1)
        raise InputError(
            f"--task_name={flag_values.task_name}: no such task. There are"
            f" {', '.join(TASKS)}, and {OWN_TABLE} for a table of your own."
            + (f" Did you mean {near[0]}?" if near else "")
        )
    columns = {
        "text_a": _column(flag_values.text_a_column),
        "text_b": _column(flag_values.text_b_column),
        "has_header": flag_values.has_header,
    }
    labelled = TableSplit(label=_column(flag_values.label_column), **columns)
    labels = flag_values.labels
    return DataSet(
        labels=tuple(labels) if labels and not flag_values.regression else None,
        files={
            "train": flag_values.train_file,
            "dev": flag_values.dev_file,
            "test": flag_values.test_file,
        },
        splits={"train": labelled, "dev": labelled, "test": TableSplit(**columns)},
        regression=flag_values.regression,
    )


def _column(value: str | None) -> Column | None:
    """A column's number where the flag has one, its name else."""
    if value is not None and re.fullmatch(r"-?[0-9]+", value):
        return int(value)
    return value
