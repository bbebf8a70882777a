"""Evaluation and prediction over a data set."""

from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.records.pipeline import record_error
from bert_tf.task import Task
from bert_tf.training.reporting import progress_bar
from bert_tf.training.step import TOTAL_LOSS, evaluation_step


def evaluate(
    task: Task,
    model: keras.Model,
    dataset: tf.data.Dataset,
    *,
    num_batches: int | None = None,
    total_batches: int | None = None,
) -> dict[str, float]:
    """The task's losses and metrics over a data set.

    Args:
        task: the losses and metrics.
        model: the model.
        dataset: batches.
        num_batches: stop after so many; None for all of a finite data set.
        total_batches: how many there will be, for the progress bar, if that is known.

    Returns:
        Each loss and metric divided by its weight over all batches, and `loss`: the
        mean of the batches' total losses.

    Raises:
        InputError: there are no batches, a record does not fit the model, or the loss
            is not finite.
    """
    step = evaluation_step(task, model)
    sums: dict[str, np.ndarray] = {}
    if num_batches is not None:
        dataset = dataset.take(num_batches)
    total = num_batches or total_batches
    with progress_bar(total or 0, unit="batch", label=f"evaluate {task.name}") as bar:
        try:
            for batch in dataset:
                for name, value in step(batch).items():
                    sums[name] = sums.get(name, 0.0) + value.numpy().astype(np.float64)
                bar.update(1)
        except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
            raise InputError(record_error(error)) from error
    if not sums:
        raise InputError("Nothing to evaluate: the records are empty.")
    if not np.isfinite(sums[TOTAL_LOSS]).all():
        raise InputError(
            "The loss on the evaluation data is not finite: the model's weights are too"
            " large to be of use. Train again with a lower --learning_rate."
        )
    return {
        name: float(total / weight) if weight else 0.0
        for name, (total, weight) in sums.items()
    }


def predict(
    task: Task, model: keras.Model, dataset: tf.data.Dataset, *, total_batches: int
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Yields (batch, outputs) as numpy arrays, batch by batch."""

    @tf.function(reduce_retracing=True)
    def step(batch):
        return model(batch, training=False)

    with progress_bar(total_batches, unit="batch", label=f"predict {task.name}") as bar:
        for batch in dataset:
            outputs = step(batch)
            yield (
                {name: value.numpy() for name, value in batch.items()},
                {name: value.numpy() for name, value in outputs.items()},
            )
            bar.update(1)
