"""GLUE's tasks, XNLI, and the tasks that a program adds."""

import dataclasses
import difflib
import os
import re
from typing import Any

from bert_tf.errors import InputError
from bert_tf.metrics import MISMATCHED
from bert_tf.tasks.tables import REGRESSION, DataSet, TableSplit, TfdsSet

# GLUE's tasks and XNLI, as data.
#
# GLUE (Wang et al. 2018): each task's files are as in its own distribution. The order
# of the labels of CoLA, MRPC, MNLI and XNLI is the original's. A task's first metric is
# the one that Devlin et al. 2018 report.


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")


def _glue(
    name: str, table: TableSplit, *, test: TableSplit | None = None, **values: Any
) -> DataSet:
    """A task whose files are train.tsv, dev.tsv and test.tsv."""
    test = test or dataclasses.replace(table, label=None)
    return DataSet(
        name=name,
        folder=name,
        files={split: f"{split}.tsv" for split in ("train", "dev", "test")},
        splits={"train": table, "dev": table, "test": test},
        **values,
    )


def _tfds(name: str, text_a: str, text_b: str | None = None, *binary: str) -> TfdsSet:
    """A set whose two classes, if they are named, are our 0 and 1."""
    rename = dict(zip(binary, _BINARY, strict=True)) if binary else {}
    return TfdsSet(name=name, text_a=text_a, text_b=text_b, rename=rename)


_COLA = _glue(
    "CoLA",
    TableSplit(text_a=3, label=1, has_header=False),
    test=TableSplit(text_a=1),
    labels=_BINARY,
    metrics=("matthews_correlation",),
    tfds=_tfds("glue/cola", "sentence", None, "unacceptable", "acceptable"),
)
_SST2 = _glue(
    "SST-2",
    TableSplit(text_a="sentence", label="label"),
    labels=_BINARY,
    metrics=("accuracy",),
    tfds=_tfds("glue/sst2", "sentence", None, "negative", "positive"),
)
_MRPC = _glue(
    "MRPC",
    TableSplit(text_a=3, text_b=4, label=0),
    labels=_BINARY,
    metrics=("f1", "accuracy"),
    tfds=_tfds("glue/mrpc", "sentence1", "sentence2", "not_equivalent", "equivalent"),
)
_STSB = _glue(
    "STS-B",
    TableSplit(text_a="sentence1", text_b="sentence2", label="score"),
    kind=REGRESSION,
    labels=(),
    metrics=("spearman", "pearson"),
    tfds=_tfds("glue/stsb", "sentence1", "sentence2"),
)
_QQP = _glue(
    "QQP",
    TableSplit(text_a="question1", text_b="question2", label="is_duplicate"),
    labels=_BINARY,
    metrics=("f1", "accuracy"),
    tfds=_tfds("glue/qqp", "question1", "question2", "not_duplicate", "duplicate"),
)
# By number, as in the original: dev files have more columns in the middle. "-" marks
# rows without agreement among MultiNLI's annotators; GLUE's own files have none.
_MNLI_LABELLED = TableSplit(text_a=8, text_b=9, label=-1, no_label="-")
_MNLI_TEST = TableSplit(text_a=8, text_b=9)
_MNLI = DataSet(
    name="MNLI",
    folder="MNLI",
    labels=_NLI,
    metrics=("accuracy",),
    files={
        "train": "train.tsv",
        "dev": "dev_matched.tsv",
        "dev_mismatched": "dev_mismatched.tsv",
        "test": "test_matched.tsv",
        "test_mismatched": "test_mismatched.tsv",
    },
    splits={
        "train": _MNLI_LABELLED,
        "dev": _MNLI_LABELLED,
        "dev_mismatched": _MNLI_LABELLED,
        "test": _MNLI_TEST,
        "test_mismatched": _MNLI_TEST,
    },
    dev_splits=("dev", "dev_mismatched"),
    test_splits=("test", "test_mismatched"),
    tfds=TfdsSet(
        name="glue/mnli",
        text_a="premise",
        text_b="hypothesis",
        splits={
            "train": "train",
            "dev": "validation_matched",
            "dev_mismatched": "validation_mismatched",
            "test": "test_matched",
            "test_mismatched": "test_mismatched",
        },
    ),
)
_QNLI = _glue(
    "QNLI",
    TableSplit(text_a="question", text_b="sentence", label="label"),
    labels=_ENTAILMENT,
    metrics=("accuracy",),
    tfds=_tfds("glue/qnli", "question", "sentence"),
)
_RTE = _glue(
    "RTE",
    TableSplit(text_a="sentence1", text_b="sentence2", label="label"),
    labels=_ENTAILMENT,
    metrics=("accuracy",),
    tfds=_tfds("glue/rte", "sentence1", "sentence2"),
)
_WNLI = _glue(
    "WNLI",
    TableSplit(text_a="sentence1", text_b="sentence2", label="label"),
    labels=_BINARY,
    metrics=("accuracy",),
    tfds=_tfds("glue/wnli", "sentence1", "sentence2", "not_entailment", "entailment"),
)
# The diagnostics, predicted by a model of MNLI. GLUE scores them itself: their labels
# are in diagnostic-full.tsv, which is not among the files of its tasks.
_AX = DataSet(
    name="AX",
    folder="diagnostic",
    labels=_NLI,
    metrics=("matthews_correlation", "accuracy"),
    files={"dev": "diagnostic-full.tsv", "test": "diagnostic.tsv"},
    splits={
        "dev": TableSplit(text_a="Premise", text_b="Hypothesis", label="Label"),
        "test": TableSplit(text_a="sentence1", text_b="sentence2"),
    },
    dev_splits=(),
    tfds=TfdsSet(
        name="glue/ax",
        text_a="premise",
        text_b="hypothesis",
        splits={"test": "test"},
    ),
)

# In the order of GLUE's own table.
GLUE_TASKS: dict[str, DataSet] = {
    task.name: task
    for task in (
        _COLA,
        _SST2,
        _MRPC,
        _STSB,
        _QQP,
        _MNLI,
        _QNLI,
        _RTE,
        _WNLI,
        _AX,
    )
}


def xnli(language: str = "zh") -> DataSet:
    """XNLI (Conneau et al. 2018): the training set machine-translated."""
    labelled = TableSplit(text_a=6, text_b=7, label=1, only={0: language})
    train = TableSplit(
        text_a=0, text_b=1, label=2, rename={"contradictory": "contradiction"}
    )
    return DataSet(
        name="XNLI",
        labels=_NLI,
        metrics=("accuracy",),
        files={
            "train": os.path.join("multinli", f"multinli.train.{language}.tsv"),
            "dev": "xnli.dev.tsv",
            "test": "xnli.test.tsv",
        },
        splits={"train": train, "dev": labelled, "test": labelled},
    )


# The GLUE test scores that Devlin et al. 2018 report, in per cent.
#
# Table 1 of https://arxiv.org/abs/1810.04805: one metric per task (F1 for QQP and MRPC,
# Spearman correlation for STS-B, Matthews correlation for CoLA, accuracy for the
# others), without WNLI. They are the GLUE server's scores of the single models that
# were best on the development sets. The table's "Average", 79.6 and 82.1, is the mean
# of its columns, which count MNLI's two sets separately; GLUE's own average differs
# (`bert_tf.metrics.glue_average`).


# Task -> metric -> score.
BERT_BASE: dict[str, dict[str, float]] = {
    "CoLA": {"matthews_correlation": 52.1},
    "SST-2": {"accuracy": 93.5},
    "MRPC": {"f1": 88.9},
    "STS-B": {"spearman": 85.8},
    "QQP": {"f1": 71.2},
    "MNLI": {"accuracy": 84.6, f"accuracy{MISMATCHED}": 83.4},
    "QNLI": {"accuracy": 90.5},
    "RTE": {"accuracy": 66.4},
}
BERT_LARGE: dict[str, dict[str, float]] = {
    "CoLA": {"matthews_correlation": 60.5},
    "SST-2": {"accuracy": 94.9},
    "MRPC": {"f1": 89.3},
    "STS-B": {"spearman": 86.5},
    "QQP": {"f1": 72.1},
    "MNLI": {"accuracy": 86.7, f"accuracy{MISMATCHED}": 85.9},
    "QNLI": {"accuracy": 92.7},
    "RTE": {"accuracy": 70.1},
}
PAPER = {"BERT-Base": BERT_BASE, "BERT-Large": BERT_LARGE}

# The columns of the table: (task, metric).
COLUMNS = tuple(
    (task, metric) for task, metrics in BERT_BASE.items() for metric in metrics
)


# The tasks of --task_name: GLUE's, XNLI, and the user's own.


TASKS = {**GLUE_TASKS, "XNLI": xnli()}

OWN_TABLE = "tsv"
_BUILT_IN = (*TASKS, OWN_TABLE)


def add_task(data_set: DataSet) -> None:
    """Adds a data set for --task_name and `find`.

    It replaces one that was added under the same name, so that a notebook's cell can be
    run again.

    Args:
        data_set: its description; see docs/python.md, "A task of your own".

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
