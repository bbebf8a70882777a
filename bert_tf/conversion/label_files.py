"""What a classifier predicts, in the files beside its checkpoint.

    labels.txt        the labels, one a line, in the order of the outputs; empty for a
                      regression of one number. Where lines cannot hold them (a line
                      end in a label), a JSON list of them in one line
    problem_type.txt  `multi_label_classification` where any of the labels may hold at
                      once, `regression` of several numbers: Hugging Face's words

Without problem_type.txt, one of several labels is chosen, or one number is predicted.
"""

import json
import os
from collections.abc import Sequence

from bert_tf import files, strict_json
from bert_tf.config import MULTI_LABEL, PROBLEM_TYPES, REGRESSION
from bert_tf.errors import InputError

LABELS_NAME = "labels.txt"
PROBLEM_TYPE_NAME = "problem_type.txt"


def write_labels(
    folder: str, labels: Sequence[str] | None, problem_type: str | None
) -> None:
    """Writes what a classifier predicts, or a tagger."""
    if labels is not None:
        files.write_atomically(os.path.join(folder, LABELS_NAME), _content(labels))
    is_of_one_number = labels is not None and not labels
    if problem_type == MULTI_LABEL or (
        problem_type == REGRESSION and not is_of_one_number
    ):
        files.write_atomically(
            os.path.join(folder, PROBLEM_TYPE_NAME), f"{problem_type}\n"
        )


def read_labels(folder: str) -> tuple[tuple[str, ...] | None, str | None]:
    """The labels and the problem type; None for what no file says."""
    labels = problem_type = None
    path = os.path.join(folder, LABELS_NAME)
    if files.exists(path):
        labels = _labels(files.read_text(path))
    path = os.path.join(folder, PROBLEM_TYPE_NAME)
    if files.exists(path):
        problem_type = files.read_text(path).strip()
        if problem_type not in PROBLEM_TYPES:
            raise InputError(
                f"{path}: must be one of {', '.join(PROBLEM_TYPES)}. Found:"
                f" {problem_type!r}."
            )
    return labels, problem_type


def _content(labels: Sequence[str]) -> str:
    plain = "".join(f"{label}\n" for label in labels)
    read_back = _labels(plain.encode("utf-8", "replace").decode("utf-8"))
    return plain if read_back == tuple(labels) else json.dumps(list(labels)) + "\n"


def _labels(content: str) -> tuple[str, ...]:
    lines = content.split("\n")[:-1]
    if len(lines) == 1 and lines[0].startswith("["):
        try:
            return strict_json.checked(
                tuple[str, ...], json.loads(lines[0]), LABELS_NAME, "labels"
            )
        except (ValueError, RecursionError):
            pass  # A label that begins so.
    return tuple(lines)
