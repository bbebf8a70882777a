"""The data set that a script's flags describe."""

import dataclasses
import re

from absl import flags

from bert_tf.errors import InputError
from bert_tf.metrics import METRICS, OWN_METRICS
from bert_tf.tasks.glue import OWN_TABLE, TASKS, find, xnli
from bert_tf.tasks.tables import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    SPLITS,
    Column,
    DataSet,
    TableSplit,
    TfdsSet,
)

_OF_FILES = ("train_file", "dev_file", "test_file", "has_header")
_OF_TFDS = ("tfds_splits", "tfds_data_dir")
_OF_OWN = (
    *("text_a_column", "text_b_column", "label_column", "label_separator"),
    *("labels", "regression", "several_labels"),
)


def data_set_from_flags(flag_values: flags.FlagValues) -> DataSet:
    """The data set of `bert_tf.finetuning_flags.define_data_set`'s flags."""
    found = _data_set(flag_values)
    _refuse_useless(flag_values, found)
    if flag_values.tfds_name is not None:
        found = found.from_tfds(flag_values.tfds_name, flag_values.tfds_data_dir)
    if flag_values.metrics:
        found = dataclasses.replace(found, metrics=_metrics(flag_values.metrics))
    return found


def _data_set(flag_values: flags.FlagValues) -> DataSet:
    task_name, tfds_name = flag_values.task_name, flag_values.tfds_name
    if task_name is None:
        there = [task for task in TASKS.values() if task.tfds_has(tfds_name or "")]
        if not there and tfds_name is None:
            raise InputError(f"Give --task_name: {', '.join(TASKS)}, or {OWN_TABLE}.")
        return there[0] if there else _own(flag_values)
    if task_name.lower() == OWN_TABLE:
        return _own(flag_values)
    found = find(task_name)
    if tfds_name is not None and found.tfds and not found.tfds_has(tfds_name):
        raise InputError(
            f"--tfds_name={tfds_name} is not {found.name}'s data set. Leave --task_name"
            " out."
        )
    return xnli(flag_values.xnli_language) if found.name == "XNLI" else found


def _refuse_useless(flag_values: flags.FlagValues, found: DataSet) -> None:
    """Raises InputError for a flag that says something of other data sets."""
    useless: dict[str, str] = {}
    if found.name in TASKS:
        where = f"it is for --task_name={OWN_TABLE}, not for {found.name}"
        useless |= dict.fromkeys((*_OF_OWN, *_OF_FILES, "tfds_splits"), where)
    if flag_values.tfds_name is None:
        useless |= dict.fromkeys(_OF_TFDS, "it is for --tfds_name")
    else:
        useless |= dict.fromkeys(_OF_FILES, "--tfds_name has no files")
    if found.name != "XNLI":
        useless["xnli_language"] = "it is for --task_name=XNLI"
    for name, reason in useless.items():
        if flag_values[name].value != flag_values[name].default:
            raise InputError(f"--{name} has no effect here: {reason}. Leave it out.")


def _own(flag_values: flags.FlagValues) -> DataSet:
    """A table of one's own, or any set of TensorFlow Datasets."""
    kind = SINGLE_LABEL
    if flag_values.regression and flag_values.several_labels:
        raise InputError("--regression is of numbers, --several_labels is not.")
    if flag_values.regression:
        kind = REGRESSION
    elif flag_values.several_labels:
        kind = MULTI_LABEL
    if not flag_values.label_separator:
        raise InputError("--label_separator must not be empty.")
    labels = tuple(flag_values.labels or ())
    columns = {
        "text_a": _column(flag_values.text_a_column),
        "text_b": _column(flag_values.text_b_column),
        "has_header": flag_values.has_header,
    }
    labelled = TableSplit(label=_column(flag_values.label_column), **columns)
    splits = flag_values.tfds_splits
    if len(splits) != 3:
        raise InputError(
            "--tfds_splits must name three splits: for training, development and test."
            f" Found: {','.join(splits)}."
        )
    return DataSet(
        name=flag_values.tfds_name or OWN_TABLE,
        kind=kind,
        labels=labels if labels or kind == REGRESSION else None,
        separator=flag_values.label_separator,
        metrics=OWN_METRICS[kind],
        files={
            "train": flag_values.train_file,
            "dev": flag_values.dev_file,
            "test": flag_values.test_file,
        },
        splits={"train": labelled, "dev": labelled, "test": TableSplit(**columns)},
        tfds=TfdsSet(
            name=flag_values.tfds_name or "",
            splits=dict(zip(SPLITS, splits, strict=True)),
            text_a=flag_values.text_a_column,
            text_b=flag_values.text_b_column,
            label=flag_values.label_column,
            index=None,
        ),
    )


def _column(value: str | None) -> Column | None:
    """A column's number where the flag has one, its name else."""
    if value is not None and re.fullmatch(r"-?[0-9]+", value):
        return int(value)
    return value


def _metrics(names: list[str]) -> tuple[str, ...]:
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise InputError(
            f"--metrics={','.join(unknown)}: no such metric. There are"
            f" {', '.join(METRICS)}."
        )
    if names[0] == "mean_squared_error":
        raise InputError(
            "--metrics: the best run has the highest score by the first one, which"
            " mean_squared_error cannot be: name another one before it."
        )
    return tuple(names)
