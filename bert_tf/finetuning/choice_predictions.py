"""What was predicted for each example of multiple choice: a CSV, and probabilities.

`write_choices` writes a header, then a row an example:

    index       the example's number in its file, from 0
    label       the right ending's label as the file has it; empty where there is none
    prediction  the predicted one's
    correct     1 or 0; empty where there is no label
    p_LABEL     each ending's probability
    premise, start, ending_LABEL    the texts

with commas and quotes as CSV has them: pandas.read_csv reads it.

Shapes: E examples, N endings.
"""

import csv
import io
from collections.abc import Sequence

import numpy as np

from bert_tf import files
from bert_tf.tasks.choices import ChoiceExample
from bert_tf.tasks.targets import Target


def write_choices(
    path: str, examples: Sequence[ChoiceExample], target: Target, logits: np.ndarray
) -> None:
    """Writes the table of the predictions."""
    expected = (len(examples), target.num_outputs)
    if np.shape(logits) != expected:
        raise ValueError(
            "`logits` must have a row an example and a column an ending."
            f" Received: {np.shape(logits)}; expected: {expected}"
        )
    content = io.StringIO(newline="")
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(
        [
            *("index", "label", "prediction", "correct"),
            *(f"p_{label}" for label in target.labels),
            *("premise", "start"),
            *(f"ending_{label}" for label in target.labels),
        ]
    )
    words = target.words(logits)
    probabilities = target.probabilities(logits)
    for index, example in enumerate(examples):
        label = example.label
        writer.writerow(
            [
                index,
                "" if label is None else label,
                words[index],
                "" if label is None else int(label == words[index]),
                *(f"{value:.6f}" for value in probabilities[index]),
                example.premise,
                example.start,
                *example.endings,
            ]
        )
    files.write_atomically(path, content.getvalue())


def write_probabilities(path: str, target: Target, logits: np.ndarray) -> None:
    """Writes a line an example, as the original's test_results.tsv: tabs between."""
    rows = target.probabilities(logits)
    lines = ["\t".join(str(value) for value in row) + "\n" for row in rows]
    files.write_atomically(path, "".join(lines))
