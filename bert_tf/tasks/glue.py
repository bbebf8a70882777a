"""GLUE's tasks and submission, XNLI, and tasks added by a program."""

import dataclasses
import difflib
import io
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.tasks.metrics import MISMATCHED
from bert_tf.tasks.tables import REGRESSION, DataSet, TableSplit, TfdsSet

# GLUE's tasks and XNLI, as data.
#
# GLUE (Wang et al. 2018): each task's files are as in its own distribution. The order
# of the labels of CoLA, MRPC, MNLI and XNLI is the original's. A task's first metric is
# the one that Devlin et al. 2018 report.


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")


# Split -> the name of its file.
_NAMES = {split: split for split in ("train", "dev", "test")}


def _task(
    name: str,
    tfds_name: str,
    texts: tuple[str, ...],
    table: TableSplit | None = None,
    *,
    label: str = "label",
    labels: tuple[str, ...] = _BINARY,
    metrics: tuple[str, ...] = ("accuracy",),
    binary: tuple[str, ...] = (),
    test: TableSplit | None = None,
    names: Mapping[str, str] = _NAMES,
    **values: Any,
) -> DataSet:
    """Returns a task with all splits; `texts` and `binary` are names in TFDS."""
    text_b = texts[1] if len(texts) > 1 else None
    table = table or TableSplit(text_a=texts[0], text_b=text_b, label=label)
    test = test or dataclasses.replace(table, label=None)
    dev_splits, test_splits = (
        tuple(split for split in names if split.startswith(kind))
        for kind in ("dev", "test")
    )
    return DataSet(
        name=name,
        folder=name,
        labels=labels,
        metrics=metrics,
        files={split: f"{file}.tsv" for split, file in names.items()},
        splits={split: test if split in test_splits else table for split in names},
        dev_splits=dev_splits,
        test_splits=test_splits,
        tfds=TfdsSet(
            name=f"glue/{tfds_name}",
            text_a=texts[0],
            text_b=text_b,
            splits={k: file.replace("dev", "validation") for k, file in names.items()},
            rename=dict(zip(binary, _BINARY, strict=False)),
        ),
        **values,
    )


_SENTENCES = ("sentence1", "sentence2")
# The diagnostics, predicted by a model of MNLI. GLUE scores them itself: their labels
# are in diagnostic-full.tsv, which is not among the task's files.
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
        name="glue/ax", text_a="premise", text_b="hypothesis", splits={"test": "test"}
    ),
)

# In the order of GLUE's own table.
GLUE_TASKS: dict[str, DataSet] = {
    task.name: task
    for task in (
        _task(
            *("CoLA", "cola", ("sentence",)),
            TableSplit(text_a=3, label=1, has_header=False),
            test=TableSplit(text_a=1),
            metrics=("matthews_correlation",),
            binary=("unacceptable", "acceptable"),
        ),
        _task("SST-2", "sst2", ("sentence",), binary=("negative", "positive")),
        _task(
            *("MRPC", "mrpc", _SENTENCES),
            TableSplit(text_a=3, text_b=4, label=0),
            metrics=("f1", "accuracy"),
            binary=("not_equivalent", "equivalent"),
        ),
        _task(
            *("STS-B", "stsb", _SENTENCES),
            label="score",
            kind=REGRESSION,
            labels=(),
            metrics=("spearman", "pearson"),
        ),
        _task(
            *("QQP", "qqp", ("question1", "question2")),
            label="is_duplicate",
            metrics=("f1", "accuracy"),
            binary=("not_duplicate", "duplicate"),
        ),
        _task(
            *("MNLI", "mnli", ("premise", "hypothesis")),
            # A number, as in the original: dev files have more columns in the middle.
            # "-" marks rows without agreement among MultiNLI's annotators; GLUE's own
            # files have none.
            TableSplit(text_a=8, text_b=9, label=-1, no_label="-"),
            labels=_NLI,
            names={
                "train": "train",
                "dev": "dev_matched",
                "dev_mismatched": "dev_mismatched",
                "test": "test_matched",
                "test_mismatched": "test_mismatched",
            },
        ),
        _task("QNLI", "qnli", ("question", "sentence"), labels=_ENTAILMENT),
        _task("RTE", "rte", _SENTENCES, labels=_ENTAILMENT),
        _task("WNLI", "wnli", _SENTENCES, binary=("not_entailment", "entailment")),
        _AX,
    )
}


def xnli(language: str = "zh") -> DataSet:
    """Returns XNLI (Conneau et al. 2018), with the machine-translated training set."""
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
# (`bert_tf.tasks.metrics.glue_average`).


# Task, metric, the scores of BERT-Base and BERT-Large.
_PAPER = (
    ("CoLA", "matthews_correlation", 52.1, 60.5),
    ("SST-2", "accuracy", 93.5, 94.9),
    ("MRPC", "f1", 88.9, 89.3),
    ("STS-B", "spearman", 85.8, 86.5),
    ("QQP", "f1", 71.2, 72.1),
    ("MNLI", "accuracy", 84.6, 86.7),
    ("MNLI", f"accuracy{MISMATCHED}", 83.4, 85.9),
    ("QNLI", "accuracy", 90.5, 92.7),
    ("RTE", "accuracy", 66.4, 70.1),
)
# The columns of the table: (task, metric).
COLUMNS = tuple((task, metric) for task, metric, *_ in _PAPER)
# Model -> task -> metric -> score.
PAPER: dict[str, dict[str, dict[str, float]]] = {"BERT-Base": {}, "BERT-Large": {}}
for _name, _metric, *_scores in _PAPER:
    for _of_model, _score in zip(PAPER.values(), _scores, strict=True):
        _of_model.setdefault(_name, {})[_metric] = _score


# The tasks of --task_name: GLUE's, XNLI, and the user's own.


TASKS = {**GLUE_TASKS, "XNLI": xnli()}

OWN_TABLE = "tsv"
_BUILT_IN = (*TASKS, OWN_TABLE)


def add_task(data_set: DataSet) -> None:
    """Adds a data set for --task_name.

    It replaces a data set added under the same name, so that a notebook cell can be run
    again.

    Args:
        data_set: its description; see docs/python.md, "A task of your own".

    Raises:
        ValueError: the name is taken by a task of this package, or the splits, files,
            labels and metrics do not match.

    Examples:
        >>> table = bert_tf.TableSplit(text_a="review", label="stars")
        >>> bert_tf.add_task(
        ...     bert_tf.DataSet(
        ...         name="Reviews",
        ...         metrics=("accuracy",),
        ...         files={"train": "train.csv", "dev": "dev.csv"},
        ...         splits={"train": table, "dev": table},
        ...         labels=("bad", "good"),
        ...         test_splits=(),
        ...     )
        ... )
    """
    name, splits = data_set.name, set(data_set.splits)
    if _key(name) in map(_key, _BUILT_IN):
        raise ValueError(f"`name` must be new: this package has a task {name}.")
    wanted = {*data_set.dev_splits, *data_set.test_splits}
    if splits != set(data_set.files) or not wanted <= splits:
        raise ValueError(
            "`files` and `splits` must be of the same splits, and `dev_splits` and"
            f" `test_splits` among them. Received: {', '.join(data_set.files)};"
            f" {', '.join(splits)}; {', '.join(wanted)}."
        )
    if data_set.labels is not None:
        data_set.target()  # raises for a repeated label or an unknown metric
    for old in [old for old in TASKS if _key(old) == _key(name)]:
        del TASKS[old]
    TASKS[name] = data_set


def find(name: str) -> DataSet:
    """Returns a task by name, ignoring case, hyphens and blanks."""
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


# The zip for the GLUE server (gluebenchmark.com): the test sets' predictions.
#
# It has one TSV per test set, in no folder, with the names of `TASK_FILES`. Each has
# the header `index<tab>prediction`, then one line per example of the test set, in its
# order, counted from 0. Predictions are the words of the task's data: 0 or 1, or
# entailment and so on; for STS-B a number from 0 to 5. The server refuses a zip that
# lacks a file. AX, the diagnostics, are predicted by the model of MNLI.


_HEADER = "index\tprediction"
_LARGEST_SCORE = 5.0
# The earliest date in a zip: the same predictions give the same bytes.
_NO_DATE = (1980, 1, 1, 0, 0, 0)


class TaskFile(NamedTuple):
    """A test set's predictions in the server's format."""

    task_name: str
    split: str
    file_name: str
    num_examples: int
    words: tuple[str, ...]  # the possible predictions; () for a number


# The numbers are the lines of GLUE's own test files.
TASK_FILES = (
    TaskFile("CoLA", "test", "CoLA.tsv", 1063, _BINARY),
    TaskFile("SST-2", "test", "SST-2.tsv", 1821, _BINARY),
    TaskFile("MRPC", "test", "MRPC.tsv", 1725, _BINARY),
    TaskFile("STS-B", "test", "STS-B.tsv", 1379, ()),
    TaskFile("QQP", "test", "QQP.tsv", 390965, _BINARY),
    TaskFile("MNLI", "test", "MNLI-m.tsv", 9796, _NLI),
    TaskFile("MNLI", "test_mismatched", "MNLI-mm.tsv", 9847, _NLI),
    TaskFile("QNLI", "test", "QNLI.tsv", 5463, _ENTAILMENT),
    TaskFile("RTE", "test", "RTE.tsv", 3000, _ENTAILMENT),
    TaskFile("WNLI", "test", "WNLI.tsv", 146, _BINARY),
    TaskFile("AX", "test", "AX.tsv", 1104, _NLI),
)


def task_file(task_name: str, split: str) -> TaskFile | None:
    """Returns the file of a task's test split, or None if GLUE has none."""
    wanted = (task_name.lower(), split)
    found = (one for one in TASK_FILES if (one.task_name.lower(), one.split) == wanted)
    return next(found, None)


def write_task_file(
    folder: str, task_name: str, split: str, words: Sequence[str]
) -> None:
    """Writes the predictions of a test split in the server's format."""
    file = task_file(task_name, split)
    if file is None:
        return
    if not file.words:
        # 0.0 comes first, so that -0.0 loses its sign.
        scores = [min(max(0.0, float(word)), _LARGEST_SCORE) for word in words]
        words = [f"{score:.3f}" for score in scores]
    files.make_folder(folder)
    path = os.path.join(folder, file.file_name)
    files.write_atomically(path, _table(words))
    if len(words) != file.num_examples:
        logging.warning(
            "%s has %d predictions; GLUE's test set has %d. The server will refuse it.",
            *(path, len(words), file.num_examples),
        )


def write_submission(
    folder: str, path: str, *, fill_missing: bool = False
) -> list[TaskFile]:
    """Writes the zip of the test sets' predictions; returns the missing test sets."""
    missing = []
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for file in TASK_FILES:
            source = os.path.join(folder, file.file_name)
            if files.exists(source):
                table = _checked(source, file)
            else:
                missing.append(file)
                if not fill_missing:
                    logging.warning(
                        "%s is missing, and the server refuses a zip without it."
                        " Predict it, or `fill_missing_tasks`.",
                        file.file_name,
                    )
                    continue
                logging.warning("A placeholder stands for %s.", file.file_name)
                # A constant number has no correlation.
                values = file.words[:1] or ("0.000", "5.000")
                table = _table((values * file.num_examples)[: file.num_examples])
            member = zipfile.ZipInfo(file.file_name, _NO_DATE)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            member.create_system = 3  # Unix, whatever the system
            archive.writestr(member, table)
    if len(missing) == len(TASK_FILES):
        raise InputError(
            f"{folder}: no predictions of GLUE's test sets. Predict some first"
            " (`do_predict=true`)."
        )
    files.write_atomically(path, content.getvalue())
    logging.info("Wrote %s.", path)
    return missing


def _table(predictions: Sequence[str]) -> str:
    rows = [f"{index}\t{word}" for index, word in enumerate(predictions)]
    return "\n".join([_HEADER, *rows]) + "\n"


def _checked(path: str, file: TaskFile) -> str:
    """Returns a file's content, if it has the test set's rows."""
    content = files.read_text(path, "predictions")
    header, *rows = content.removesuffix("\n").split("\n")
    if header != _HEADER or len(rows) != file.num_examples:
        raise InputError(
            f"{path}: {len(rows)} predictions; the test set of {file.task_name} has"
            f" {file.num_examples}. Predict the whole of it again."
        )
    return content
