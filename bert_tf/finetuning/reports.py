"""All that is written to look at a split's predictions."""

import dataclasses
import os
import types
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.finetuning import calibration
from bert_tf.finetuning.confusion import confusion_picture
from bert_tf.finetuning.predictions import labelled, mistakes, write_predictions
from bert_tf.tasks.examples import Example
from bert_tf.tasks.targets import REGRESSION, Target


def write_reports(
    folder: str,
    split: str,
    examples: Sequence[Example],
    target: Target,
    logits: np.ndarray,
    *,
    task_name: str = "",
    class_names: Mapping[str, str] = types.MappingProxyType({}),
    plots: bool = True,
    num_mistakes: int = 50,
) -> list[str]:
    """Writes a split's predictions, and where it has labels what they are worth.

    SPLIT_predictions.tsv is every example; SPLIT_mistakes.tsv the most confident
    mistakes in the same columns; SPLIT_confusion.png which label is taken for which;
    SPLIT_calibration.png whether the probabilities can be believed. For numbers there
    is SPLIT_regression.png, predicted against true, instead of the two.
    """
    written = []

    def path(name: str) -> str:
        written.append(os.path.join(folder, f"{split}_{name}"))
        return written[-1]

    write_predictions(path("predictions.tsv"), examples, target, logits)
    rows, labels = labelled(examples, target)
    if len(rows) and num_mistakes:
        worst = mistakes(examples, target, logits, num_mistakes)
        write_predictions(path("mistakes.tsv"), examples, target, logits, rows=worst)
    if len(rows) and plots:
        predictions = target.predictions(logits)[rows]
        title = ", ".join(filter(None, [task_name, f"{split}: {len(rows)} examples"]))
        named = [
            f"{class_names[label]} ({label})" if label in class_names else label
            for label in target.labels
        ]
        target = dataclasses.replace(target, labels=tuple(named))
        if target.kind == REGRESSION:
            pictures = {
                "regression.png": calibration.regression_picture(
                    target, predictions, labels, title
                )
            }
        else:
            probabilities = target.probabilities(logits)[rows]
            pictures = {
                "confusion.png": confusion_picture(target, predictions, labels, title),
                "calibration.png": calibration.calibration_picture(
                    target, probabilities, labels, title
                ),
            }
        for name, content in pictures.items():
            files.write_atomically(path(name), content)
    logging.info("Wrote %s to %s.", ", ".join(map(os.path.basename, written)), folder)
    return written
