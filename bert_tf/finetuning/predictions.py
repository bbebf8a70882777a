r"""What was predicted for each example, with its text: a table to read and to load.

SPLIT_predictions.tsv has a header, then one line an example, with tabs between the
cells:

    index       the example's number in its split, from 0
    label       the true label as the data has it; empty where there is none
    prediction  the predicted one, as data would have it: entailment, or a,c, or 3.214
    correct     1 or 0, all of several labels together; empty where there is no label
    p_LABEL     each label's probability
    text_a, text_b

For numbers there is `error`, prediction minus label, instead of `correct` and the
probabilities. In a cell a backslash is written \\, a tab \t, a line feed \n and a
carriage return \r, so that a row is always one line; nothing is quoted.
`read_predictions` undoes it; for pandas: read_csv(path, sep="\t", quoting=3).

Shapes: N examples, M of them with a label, C outputs.
"""

import re
from collections.abc import Sequence

import numpy as np

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.tasks.examples import Example
from bert_tf.tasks.targets import MULTI_LABEL, REGRESSION, Target

_ESCAPES = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}
_ESCAPE_TABLE = str.maketrans(_ESCAPES)
_MEANINGS = {escape: character for character, escape in _ESCAPES.items()}


def write_predictions(
    path: str,
    examples: Sequence[Example],
    target: Target,
    logits: np.ndarray,
    *,
    rows: Sequence[int] | None = None,
) -> None:
    """Writes the table of the predictions."""
    _check_shape(examples, target, logits)
    chosen = range(len(examples)) if rows is None else rows
    words = target.words(logits)
    probabilities = target.probabilities(logits)
    errors = dict(zip(*_errors(examples, target, logits), strict=True))
    if target.kind == REGRESSION:
        judgements = ["error"]
    else:
        judgements = ["correct", *(f"p_{label}" for label in target.labels)]
    lines = [_line(["index", "label", "prediction", *judgements, "text_a", "text_b"])]
    for row in chosen:
        example = examples[row]
        error = errors.get(row)
        if target.kind == REGRESSION:
            judged = [_error(error, target)]
        else:
            judged = ["" if error is None else str(int(not np.any(error)))]
            judged += [f"{value:.6f}" for value in probabilities[row]]
        lines.append(
            _line(
                [
                    str(row),
                    example.label or "",
                    words[row],
                    *judged,
                    example.text_a,
                    example.text_b or "",
                ]
            )
        )
    files.write_atomically(path, "".join(lines))


def read_predictions(path: str) -> list[dict[str, str]]:
    """The rows of a table of `write_predictions`: column -> cell, escapes undone."""
    header: list[str] | None = None
    rows = []
    text = files.read_text(path, "table of predictions")
    for number, line in enumerate(files.lines(text), start=1):
        cells = [_unescaped(cell) for cell in line.removesuffix("\n").split("\t")]
        if header is None:
            header = cells
            continue
        if len(cells) != len(header):
            raise InputError(
                f"{path}:{number}: {len(cells)} cells, but the header has"
                f" {len(header)}. Was the file edited?"
            )
        rows.append(dict(zip(header, cells, strict=True)))
    return rows


def labelled(
    examples: Sequence[Example], target: Target
) -> tuple[np.ndarray, np.ndarray]:
    """The examples whose label is known."""
    rows = [row for row, example in enumerate(examples) if example.label is not None]
    encoded = [target.encode(examples[row].label, examples[row].source) for row in rows]
    labels = np.array(encoded).reshape(len(rows), target.label_length)
    if target.kind == MULTI_LABEL:
        labels = labels.astype(np.int64)
    elif target.label_length == 1:
        labels = labels[:, 0]
    return np.array(rows, np.int64), labels


def mistakes(
    examples: Sequence[Example], target: Target, logits: np.ndarray, count: int
) -> list[int]:
    """The wrong predictions that the model was surest of, the surest one first.

    How sure: the probability of what was predicted; of several labels, the largest
    probability of a wrong decision on one. For numbers all predictions, by the absolute
    error (its sum over several).
    """
    _check_shape(examples, target, logits)
    rows, errors = _errors(examples, target, logits)
    if target.kind == REGRESSION:
        sureness = np.abs(errors).reshape(len(rows), -1).sum(axis=-1)
    else:
        probabilities = target.probabilities(logits)[rows]
        if target.kind == MULTI_LABEL:
            decided = np.where(errors < 0, 1 - probabilities, probabilities)
            sureness = np.where(errors != 0, decided, 0).max(axis=-1, initial=0)
        else:
            sureness = np.where(errors, probabilities.max(axis=-1), 0)
    order = np.argsort(-sureness, kind="stable")
    return [int(rows[i]) for i in order[:count] if sureness[i] > 0]


def _errors(
    examples: Sequence[Example], target: Target, logits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows that have a label, and how far their predictions are from it.

    Prediction minus label: 0 where right, of several labels -1 for one that was missed;
    of classes whether they differ.
    """
    rows, labels = labelled(examples, target)
    predictions = target.predictions(logits)[rows]
    if target.kind in (MULTI_LABEL, REGRESSION):
        return rows, predictions - labels
    return rows, predictions != labels


def _check_shape(
    examples: Sequence[Example], target: Target, logits: np.ndarray
) -> None:
    expected = (len(examples), target.num_outputs)
    if np.shape(logits) != expected:
        raise ValueError(
            "`logits` must have a row an example and a column an output."
            f" Received: {np.shape(logits)}; expected: {expected}"
        )


def _error(error: np.ndarray | None, target: Target) -> str:
    if error is None:
        return ""
    return target.separator.join(f"{value:.3f}" for value in np.atleast_1d(error))


def _line(cells: Sequence[str]) -> str:
    return "\t".join(cell.translate(_ESCAPE_TABLE) for cell in cells) + "\n"


def _unescaped(cell: str) -> str:
    return re.sub(r"\\[\\tnr]", lambda found: _MEANINGS[found.group()], cell)
