"""The zip for the GLUE server (gluebenchmark.com): the test sets' predictions.

One TSV per test set, at the top of the zip, under the names of `TASK_FILES`. Each has
the header `index<tab>prediction`, then one line per example of the test set, in its
order, counted from 0. Predictions are the words of the task's data: 0 or 1, or
entailment and so on; for STS-B a number from 0 to 5. The server refuses a zip that
lacks a file. AX, the diagnostics, are predicted by the model of MNLI.
"""

import io
import math
import os
import zipfile
from collections.abc import Sequence
from typing import NamedTuple

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError

_HEADER = "index\tprediction"
_LEAST_SCORE, _LARGEST_SCORE = 0.0, 5.0
# The earliest date in a zip: the same predictions give the same bytes.
_NO_DATE = (1980, 1, 1, 0, 0, 0)

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")


class TaskFile(NamedTuple):
    """The predictions of a test set in the server's format.

    Attributes:
        task_name: the task, as GLUE spells it.
        split: its test split: "test", or "test_mismatched".
        file_name: the file's name in the zip.
        num_examples: the test set's examples.
        words: the possible predictions; () for a number.
    """

    task_name: str
    split: str
    file_name: str
    num_examples: int
    words: tuple[str, ...]


# The numbers are those of the lines of GLUE's own test files.
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
    """The file of a task's test split; None for one that GLUE does not have."""
    for file in TASK_FILES:
        if (file.task_name.lower(), file.split) == (task_name.lower(), split):
            return file
    return None


def write_task_file(
    folder: str, task_name: str, split: str, words: Sequence[str]
) -> str | None:
    """Writes the predictions of a test split in the server's format."""
    file = task_file(task_name, split)
    if file is None:
        return None
    predictions = [_prediction(file, word) for word in words]
    files.make_folder(folder)
    path = os.path.join(folder, file.file_name)
    files.write_atomically(path, _table(predictions))
    if len(predictions) != file.num_examples:
        logging.warning(
            "%s has %d predictions; GLUE's test set has %d. The server will refuse it.",
            path,
            len(predictions),
            file.num_examples,
        )
    return path


def write_submission(
    folder: str, path: str, *, fill_missing: bool = False
) -> list[TaskFile]:
    """Packs the test sets' predictions into the zip for the server.

    Each missing test set is logged in one line. The same files give the same bytes.
    """
    tables, missing = {}, []
    for file in TASK_FILES:
        source = os.path.join(folder, file.file_name)
        if files.exists(source):
            tables[file.file_name] = _checked(source, file)
        else:
            missing.append(file)
    if not tables:
        raise InputError(
            f"{folder}: no predictions of GLUE's test sets. Predict some first"
            " (--do_predict=true)."
        )
    for file in missing:
        name = f"{file.task_name}, {file.file_name}"
        if fill_missing:
            tables[file.file_name] = _table(_filling(file))
            logging.warning("%s is missing: a placeholder stands for it.", name)
        else:
            logging.warning(
                "%s is missing, and the server refuses a zip without it. Predict it, or"
                " --fill_missing_tasks.",
                name,
            )
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for file in TASK_FILES:
            if file.file_name not in tables:
                continue
            member = zipfile.ZipInfo(file.file_name, _NO_DATE)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            # As on Unix, on every system.
            member.create_system = 3
            archive.writestr(member, tables[file.file_name])
    files.write_atomically(path, content.getvalue())
    logging.info("Wrote %s, %d of %d files.", path, len(tables), len(TASK_FILES))
    return missing


def _prediction(file: TaskFile, word: str) -> str:
    if not file.words:
        # The larger first: of 0.0 and -0.0 this keeps the one without a sign.
        score = min(max(_LEAST_SCORE, float(word)), _LARGEST_SCORE)
        if math.isnan(float(word)):
            raise ValueError(f"{file.task_name} predicts numbers. Received: {word!r}")
        return f"{score:.3f}"
    if word not in file.words:
        raise ValueError(
            f"{file.task_name} predicts {', '.join(file.words)}. Received: {word!r}"
        )
    return word


def _filling(file: TaskFile) -> list[str]:
    """The content for a test set that was not predicted."""
    values = file.words[:1] or (f"{_LEAST_SCORE:.3f}", f"{_LARGEST_SCORE:.3f}")
    return [values[i % len(values)] for i in range(file.num_examples)]


def _table(predictions: Sequence[str]) -> str:
    rows = [f"{index}\t{word}" for index, word in enumerate(predictions)]
    return "\n".join([_HEADER, *rows]) + "\n"


def _checked(path: str, file: TaskFile) -> str:
    """A file's content, if the server accepts it."""
    content = files.read_text(path, "predictions")
    number = 0
    for number, line in enumerate(files.lines(content)):
        row = line.removesuffix("\n")
        if number == 0:
            expected = "the header index<tab>prediction"
            good = row == _HEADER
        else:
            index, _, word = row.partition("\t")
            values = "|".join(file.words) or "a number from 0 to 5"
            expected = f"{number - 1}<tab>{values}"
            good = index == str(number - 1) and _is_prediction(file, word)
        if not good:
            raise InputError(
                f"{path}:{number + 1}: must be {expected}. Found: {row!r}. Predict it"
                " again."
            )
    if number != file.num_examples:
        raise InputError(
            f"{path}: {number} predictions; the test set of {file.task_name} has"
            f" {file.num_examples}. Predict the whole of it."
        )
    return content


def _is_prediction(file: TaskFile, word: str) -> bool:
    if file.words:
        return word in file.words
    try:
        return _LEAST_SCORE <= float(word) <= _LARGEST_SCORE
    except ValueError:
        return False
