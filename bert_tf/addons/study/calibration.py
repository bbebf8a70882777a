"""Probabilities that come true as often as they say, by one temperature.

The scores of a classifier are divided by a temperature T before they become
probabilities (Guo et al. 2017, "On Calibration of Modern Neural Networks", section
4.2). No prediction of one label changes. T is the one of the least log loss on the
development set. It goes into the head, whose weights and bias are divided by it, so
that everything which reads the checkpoint has calibrated probabilities.

Shapes: M labelled examples, C outputs.
"""

import dataclasses
import math
import os
from typing import Any

import numpy as np
from absl import logging

from bert_tf.addons.study.report_pictures import reliability
from bert_tf.base import files
from bert_tf.base.config import SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.base.pictures import picture
from bert_tf.conversion import export, names
from bert_tf.conversion.source import open_source
from bert_tf.conversion.weights import Tensor, Weights
from bert_tf.tasks.tables import Target
from bert_tf.training.checkpoints import STATE_NAME, folder_of

FOLDER = "calibrated"
_RANGE = (0.05, 20.0)


def temperature(target: Target, logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns T, between 0.05 and 20.

    Args:
        target: of one label, or of several.
        logits: [M, C] float32.
        labels: [M] class ids, or [M, C] of 0 and 1.
    """
    from scipy.optimize import minimize_scalar

    logits = np.asarray(logits, np.float64)

    def log_loss(log_temperature: float) -> float:
        scores = logits / math.exp(log_temperature)
        if target.kind == SINGLE_LABEL:
            right = scores[np.arange(len(labels)), labels]
            return float(np.mean(np.logaddexp.reduce(scores, axis=1) - right))
        return float(np.mean(np.logaddexp(0.0, np.where(labels, -scores, scores))))

    bounds = tuple(map(math.log, _RANGE))
    found = minimize_scalar(log_loss, bounds=bounds, options={"xatol": 1e-6})
    return math.exp(found.x)


def write(
    options: Any, target: Target, logits: np.ndarray, labels: np.ndarray, title: str
) -> None:
    """Writes the calibrated checkpoint of a run, and a picture of its answers.

    Args:
        options: the run's; its output_dir gets a folder `calibrated`.
        target: of one label, or of several.
        logits: [M, C], of the development set.
        labels: as for `temperature`.
        title: of the picture.
    """
    if not len(labels):
        raise InputError("`calibrate` needs a development set with labels.")
    found = temperature(target, logits, labels)
    source = export.completed(open_source(_model_of(options)))
    scaled = {
        name: _divided(source.weights.tensors[name], found)
        for name in (row.original for row in names.HEADS[names.CLASSIFIER].weights)
    }
    weights = Weights(source.weights.path, source.weights.tensors | scaled)
    output = os.path.join(options.output_dir, FOLDER)
    files.make_folder(output)
    export.write_release(output, dataclasses.replace(source, weights=weights))
    source.reading.write(output)
    content = answers_picture(target, logits / found, labels, title)
    files.write_atomically(os.path.join(output, "coverage.png"), content)
    errors = [
        expected_calibration_error(target, scores, labels)
        for scores in (logits, logits / found)
    ]
    logging.info(
        "Temperature %.3f: expected calibration error %.4f, before: %.4f. %s has the"
        " calibrated model.",
        *(found, errors[1], errors[0], output),
    )


def expected_calibration_error(
    target: Target, logits: np.ndarray, labels: np.ndarray
) -> float:
    """Returns Guo et al.'s error; of several labels, the mean of each one's."""
    probabilities = target.probabilities(logits)
    if target.kind == SINGLE_LABEL:
        parts = [(probabilities.max(axis=-1), probabilities.argmax(axis=-1) == labels)]
    else:
        parts = list(zip(probabilities.T, labels.T, strict=True))
    errors = [reliability(*part).expected_calibration_error for part in parts]
    return float(np.mean(errors))


def coverage_and_accuracy(
    target: Target, logits: np.ndarray, labels: np.ndarray, thresholds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the share of answers that are given at each threshold, and are right."""
    probabilities = target.probabilities(logits)
    confidence = probabilities.max(axis=-1)
    right = target.predictions(logits) == labels
    if target.kind != SINGLE_LABEL:
        confidence = np.maximum(probabilities, 1.0 - probabilities).min(axis=-1)
        right = right.all(axis=-1)
    given = confidence >= thresholds[:, np.newaxis]
    accuracy = (given & right).sum(axis=1) / np.maximum(given.sum(axis=1), 1)
    return given.mean(axis=1), np.where(given.any(axis=1), accuracy, np.nan)


def answers_picture(
    target: Target, logits: np.ndarray, labels: np.ndarray, title: str
) -> bytes:
    """Draws coverage and accuracy over the least probability of an answer, as a PNG."""
    thresholds = np.linspace(0.0, 1.0, 201)
    coverage, accuracy = coverage_and_accuracy(target, logits, labels, thresholds)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.plot(thresholds, coverage, label="share of answers given")
        axes.plot(thresholds, accuracy, label="share of these that are right")
        axes.set(xlabel="least probability of an answer", xlim=(0, 1), ylim=(0, 1.02))
        axes.legend(loc="lower left", fontsize="small")

    return picture(draw, (5.6, 4.4), title)


def _model_of(options: Any) -> str:
    folders = options.output_dir, folder_of(options.output_dir)
    trained = [one for one in folders if files.exists(os.path.join(one, STATE_NAME))]
    return trained[0] if trained else options.init_checkpoint


def _divided(tensor: Tensor, by: float) -> Tensor:
    return Tensor(tensor.shape, lambda: (tensor.read() / by).astype(np.float32))
