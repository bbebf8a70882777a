"""Evaluation and prediction over a data set, on any strategy.

Every worker reads the whole data set, in the same order, and each replica takes its
rows of every batch; so results depend neither on the strategy nor on how the files are
split. A short last batch is dealt out as far as it goes. TPUs need whole batches: fill
the last one up, or repeat the records.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import DivergedError, InputError
from bert_tf.modeling.fused import pieces_in_inference, pieces_left_alone
from bert_tf.records.batching import EvaluationBatches
from bert_tf.records.pipeline import READING_ERRORS, record_error
from bert_tf.training.reporting import progress_bar
from bert_tf.training.step import TOTAL_LOSS, evaluation_step
from bert_tf.training.strategy import is_tpu, num_workers
from bert_tf.training.task import Task

Batch = Mapping[str, Any]
Arrays = dict[str, np.ndarray]


class Evaluator:
    """Evaluates a model any number of times; its step is compiled once."""

    def __init__(
        self,
        task: Task,
        model: keras.Model,
        strategy: tf.distribute.Strategy | None = None,
        *,
        jit_compile: bool = False,
    ) -> None:
        self._task = task
        self._strategy = strategy or tf.distribute.get_strategy()
        self._step = evaluation_step(
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
        """The task's losses and metrics over a data set."""
        _check_batch_size(self._strategy, dataset)
        sums: Arrays = {}
        if num_batches is not None:
            dataset = dataset.take(num_batches)
        total = num_batches or total_batches
        label = f"evaluate {self._task.name}"
        with progress_bar(total or 0, unit="batch", label=label) as bar:
            try:
                for batch in dataset:
                    if observe is not None:
                        observe(batch)
                    results = self._step(_dealt_out(self._strategy, batch))
                    for name, value in results.items():
                        sums[name] = sums.get(name, 0.0) + value.numpy().astype(
                            np.float64
                        )
                    bar.update(1)
            except READING_ERRORS as error:
                raise InputError(record_error(error)) from error
        if not sums:
            raise InputError("Nothing to evaluate: the records are empty.")
        if not np.isfinite(sums[TOTAL_LOSS]).all():
            raise DivergedError(
                "The loss on the evaluation data is not finite: the model's weights are"
                " too large to be of use. Train again with a lower --learning_rate."
            )
        return {
            name: float(total / weight) if weight else 0.0
            for name, (total, weight) in sums.items()
        }


def evaluate(
    task: Task,
    model: keras.Model,
    dataset: tf.data.Dataset,
    *,
    num_batches: int | None = None,
    total_batches: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
    jit_compile: bool = False,
) -> dict[str, float]:
    """Evaluates once: see `Evaluator` and `Evaluator.run`."""
    return Evaluator(task, model, strategy, jit_compile=jit_compile).run(
        dataset, num_batches=num_batches, total_batches=total_batches
    )


class Predictor:
    """Predicts with a model any number of times; its step is compiled once.

    Args:
        task: its name is shown.
        model: the model, built under the strategy's scope.
        strategy: the devices; the default one if None. Each of several workers must
            iterate over all batches, and gets all rows.
        jit_compile: whether XLA compiles the model as a whole.
    """

    def __init__(
        self,
        task: Task,
        model: keras.Model,
        strategy: tf.distribute.Strategy | None = None,
        *,
        jit_compile: bool = False,
    ) -> None:
        self._task = task
        self._strategy = strategy or tf.distribute.get_strategy()
        self._step = _prediction_step(model, self._strategy, jit_compile)

    def run(
        self, dataset: tf.data.Dataset | EvaluationBatches, *, total_batches: int
    ) -> Iterator[tuple[Arrays, Arrays]]:
        """Yields (batch, outputs) as numpy arrays, batch by batch, rows in their order.

        Args:
            dataset: batches.
            total_batches: how many there will be, for the progress bar.

        Raises:
            InputError: a record does not fit the model, or the replicas cannot share a
                batch.
        """
        strategy = self._strategy
        _check_batch_size(strategy, dataset)
        label = f"predict {self._task.name}"
        with progress_bar(total_batches, unit="batch", label=label) as bar:
            try:
                for batch in dataset:
                    outputs = self._step(_dealt_out(strategy, batch))
                    yield (
                        {name: value.numpy() for name, value in batch.items()},
                        {n: _rows(strategy, value) for n, value in outputs.items()},
                    )
                    bar.update(1)
            except READING_ERRORS as error:
                raise InputError(record_error(error)) from error


def predict(
    task: Task,
    model: keras.Model,
    dataset: tf.data.Dataset,
    *,
    total_batches: int,
    strategy: tf.distribute.Strategy | None = None,
    jit_compile: bool = False,
) -> Iterator[tuple[Arrays, Arrays]]:
    """Predicts once: see `Predictor` and `Predictor.run`."""
    return Predictor(task, model, strategy, jit_compile=jit_compile).run(
        dataset, total_batches=total_batches
    )


def _prediction_step(
    model: keras.Model, strategy: tf.distribute.Strategy, jit_compile: bool
) -> Callable[[Batch], Mapping[str, Any]]:
    """A compiled function: batch -> each replica's outputs; with workers, all rows."""

    def forward(batch: Batch) -> Mapping[str, Any]:
        return model(batch, training=False)

    as_a_whole = jit_compile and not is_tpu(strategy)
    if as_a_whole:
        forward = tf.function(forward, jit_compile=True, autograph=False)

    @tf.function(reduce_retracing=not is_tpu(strategy))
    def step(batch: Batch) -> Mapping[str, Any]:
        outputs = strategy.run(forward, args=(batch,))
        if num_workers(strategy) > 1:
            outputs = {
                name: strategy.gather(value, axis=0) for name, value in outputs.items()
            }
        return outputs

    def call(batch: Batch) -> Mapping[str, Any]:
        with (
            pieces_left_alone()
            if as_a_whole or is_tpu(strategy)
            else pieces_in_inference()
        ):
            return step(batch)

    return call


def _check_batch_size(
    strategy: tf.distribute.Strategy, dataset: tf.data.Dataset | EvaluationBatches
) -> None:
    """Raises InputError if complete batches cannot be split evenly."""
    replicas = strategy.num_replicas_in_sync
    sizes = {spec.shape[0] for spec in dataset.element_spec.values()}
    for size in sizes - {None}:
        if size % replicas:
            raise InputError(
                f"Batches of {size} cannot be dealt out to {replicas} devices: give a"
                f" batch size (--eval_batch_size, --predict_batch_size) that is a"
                f" multiple of {replicas}."
            )


def _dealt_out(strategy: tf.distribute.Strategy, batch: Batch) -> Batch:
    """Each replica's rows of a batch, in order.

    Each gets the same number; of a short batch the last replicas may get fewer or none.
    """
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return batch
    num_rows = len(next(iter(batch.values())))
    bounds = [-(-num_rows * number // replicas) for number in range(replicas + 1)]

    def rows_of(context: tf.distribute.experimental.ValueContext) -> Batch:
        first, last = bounds[context.replica_id_in_sync_group :][:2]
        return {name: value[first:last] for name, value in batch.items()}

    return strategy.experimental_distribute_values_from_function(rows_of)


def _rows(strategy: tf.distribute.Strategy, value: Any) -> np.ndarray:
    """All rows of an output, in order."""
    return np.concatenate(
        [local.numpy() for local in strategy.experimental_local_results(value)]
    )
