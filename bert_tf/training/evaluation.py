"""Evaluation and prediction over a data set, on any strategy.

Every worker reads the whole data set, in the same order, and each replica takes its
rows of every batch; so results depend neither on the strategy nor on how the files are
split. A short last batch leaves some replicas with fewer rows, or none. TPUs need whole
batches: fill the last one up, or repeat the records.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.errors import InputError, refuse_not_finite
from bert_tf.base.progress import with_bar
from bert_tf.records.batching import Arrays, EvaluationBatches
from bert_tf.records.pipeline import READING_ERRORS, record_error
from bert_tf.training.step import TOTAL_LOSS, on_devices
from bert_tf.training.strategy import Strategy, check_batch_size, create_strategy
from bert_tf.training.task import Task

Batch = Mapping[str, Any]


class Evaluator:
    """A model's evaluation, any number of times; the step is compiled once."""

    def __init__(
        self,
        task: Task,
        model: keras.Model,
        strategy: Strategy | None = None,
        *,
        jit_compile: bool = False,
    ) -> None:
        self._task = task
        self._strategy = strategy or create_strategy()
        self._step = on_devices().evaluation_step(
            task, model, self._strategy, jit_compile=jit_compile
        )

    def run(
        self,
        dataset: tf.data.Dataset,
        *,
        num_batches: int | None = None,
        total_batches: int | None = None,
        observe: Callable[[Batch], None] | None = None,
    ) -> dict[str, float]:
        """Returns the task's losses and metrics over a data set."""
        sums: dict[str, np.ndarray] = {}
        if num_batches is not None:
            dataset = dataset.take(num_batches)
        for batch in _batches(
            dataset,
            self._strategy,
            f"evaluate {self._task.name}",
            "eval_batch_size",
            num_batches or total_batches or 0,
        ):
            if observe is not None:
                observe(batch)
            for name, value in self._step(batch).items():
                sums[name] = sums.get(name, 0.0) + value
        if not sums:
            raise InputError("Nothing to evaluate: the records are empty.")
        refuse_not_finite("loss on the evaluation data", sums[TOTAL_LOSS])
        return {
            name: float(total / weight) if weight else 0.0
            for name, (total, weight) in sums.items()
        }


class Predictor:
    """Prediction, any number of times, by a step such as `prediction_step`.

    Each of several workers must iterate over all batches, and gets all rows.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[Batch], Arrays],
        strategy: Strategy | None = None,
    ) -> None:
        self._name = name
        self._strategy = strategy or create_strategy()
        self._step = step

    def run(
        self, dataset: tf.data.Dataset | EvaluationBatches, total_batches: int
    ) -> Iterator[tuple[Arrays, Arrays]]:
        """Yields (batch, outputs) as numpy arrays, batch by batch, rows in order."""
        what, flag = f"predict {self._name}", "predict_batch_size"
        for batch in _batches(dataset, self._strategy, what, flag, total_batches):
            outputs = self._step(batch)
            yield {name: np.asarray(value) for name, value in batch.items()}, outputs


def _batches(
    dataset: tf.data.Dataset | EvaluationBatches,
    strategy: Strategy,
    what: str,
    flag: str,
    total: int,
) -> Iterator[Batch]:
    """Yields the batches, with a progress bar; InputError if they cannot be split."""
    if isinstance(dataset, tf.data.Dataset):
        sizes = {spec.shape[0] for spec in dataset.element_spec.values()} - {None}
    else:
        sizes = {dataset.batch_size}
    for size in sizes:
        check_batch_size(strategy, size, flag=flag)
    try:
        yield from with_bar(dataset, total, unit="batch", label=what)
    except READING_ERRORS as error:
        raise InputError(record_error(error)) from error
