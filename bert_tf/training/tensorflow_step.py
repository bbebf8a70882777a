"""The steps of `bert_tf.training.step` on TensorFlow, under tf.distribute."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base import keras_backend
from bert_tf.modeling.fused import fused_inference, per_example_dropout, without_fusion
from bert_tf.modeling.objectives import Objective, Records, RowsOfReplica
from bert_tf.optimization.optimizers import dense_gradient
from bert_tf.records.pipeline import ALL_ROWS, InputShard
from bert_tf.training.step import (
    GLOBAL_CLIP_NORM,
    SKIPPED,
    TOTAL_LOSS,
    LossScale,
    StepResults,
    Sums,
    add_reports,
    as_float64,
    loss_and_sums,
    names_of_sums,
    update,
)
from bert_tf.training.strategy import is_tpu, num_workers
from bert_tf.training.task import Task


def global_batches(
    strategy: tf.distribute.Strategy, dataset: Callable[[InputShard], tf.data.Dataset]
) -> Iterable[Records]:
    """Returns a data set of global batches, each split over the replicas."""
    if strategy.num_replicas_in_sync == 1:
        return dataset(ALL_ROWS)

    def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        num_workers = context.num_input_pipelines
        num_replicas = context.num_replicas_in_sync // num_workers
        return dataset(InputShard(context.input_pipeline_id, num_workers, num_replicas))

    return strategy.distribute_datasets_from_function(of_worker)


class _RowsOfReplica:
    """This replica's rows of a batch, among all replicas' rows."""

    def of_all(self, arrays: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        return _Gathered(arrays)

    def own(self, values: tf.Tensor) -> tf.Tensor:
        # Divides like `_dealt_out`; in training all replicas have the same number.
        replica = tf.distribute.get_replica_context()
        number, count = replica.replica_id_in_sync_group, replica.num_replicas_in_sync
        total = tf.shape(values)[0]
        first, end = (-(-total * index // count) for index in (number, number + 1))
        return values[first:end]


class _Gathered(Mapping):
    """All replicas' rows, gathered array by array when read."""

    def __init__(self, arrays: Mapping[str, tf.Tensor]) -> None:
        self._arrays = arrays
        self._gathered: dict[str, tf.Tensor] = {}

    def __getitem__(self, name: str) -> tf.Tensor:
        if name not in self._gathered:
            replica = tf.distribute.get_replica_context()
            # A function's argument has no device until it is read.
            array = tf.identity(self._arrays[name])
            self._gathered[name] = replica.all_gather(array, axis=0)
        return self._gathered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def _rows_of_replica(
    objective: Objective, strategy: tf.distribute.Strategy
) -> _RowsOfReplica | None:
    """Returns the rows for losses that compare them, if there are several replicas."""
    if objective.across_rows and strategy.num_replicas_in_sync > 1:
        return _RowsOfReplica()
    return None


def replica_gradients(
    task: Task,
    model: keras.Model,
    *,
    jit_compile: bool = False,
    rows: RowsOfReplica | None = None,
) -> Callable[..., tuple[list[tf.Tensor], Sums]]:
    """Returns a function for a micro-batch's gradient and sums, on one replica."""
    variables = [variable.value for variable in model.trainable_variables]
    objective = task.objective

    def gradients_and_sums(
        batch: Records,
        weights: Mapping[str, tf.Tensor],
        scale: tf.Tensor,
        examples: tf.Tensor | None = None,
        again: bool = False,
    ) -> tuple[list[tf.Tensor], Sums]:
        with per_example_dropout(examples, again), tf.GradientTape() as tape:
            outputs = model(batch, training=True)
            loss, sums = loss_and_sums(objective, batch, outputs, weights, rows)
            scaled_loss = loss * scale
        gradients = [
            tf.convert_to_tensor(dense_gradient(gradient))
            for gradient in tape.gradient(scaled_loss, variables)
        ]
        return gradients, {TOTAL_LOSS: tf.stack([loss, 0.0]), **sums}

    if not jit_compile:
        return gradients_and_sums
    compiled = tf.function(gradients_and_sums, jit_compile=True, autograph=False)
    return _within(without_fusion, compiled)


def training_steps(
    task: Task,
    model: keras.Model,
    optimizer: keras.Optimizer,
    strategy: tf.distribute.Strategy,
    *,
    accumulation_steps: int = 1,
    jit_compile: bool = False,
    loss_scale: LossScale | None = None,
    clip_norm: float = GLOBAL_CLIP_NORM,
) -> Callable[[Iterator[Records], int], StepResults]:
    """Returns a compiled function that makes several training steps in one call."""
    num_replicas = strategy.num_replicas_in_sync
    variables = model.trainable_variables
    objective = task.objective
    rows = _rows_of_replica(objective, strategy)
    gradients_of = replica_gradients(
        task,
        model,
        # Not compiled if it gathers rows from other replicas.
        jit_compile=jit_compile and not is_tpu(strategy) and rows is None,
        rows=rows,
    )
    names = names_of_sums(objective, loss_scale)

    # AutoGraph converts only the loop over steps: converting the model, Keras and the
    # optimizer would take as long as tracing them.
    @tf.autograph.experimental.do_not_convert
    def replica_step(batch: Records, *there: tf.Tensor) -> Sums:
        replica = tf.distribute.get_replica_context()
        # The thread must read the clock before it computes on the batch.
        with tf.control_dependencies(there):
            batch = tf.nest.map_structure(tf.identity, batch)

        def over_replicas(tensors):
            if num_replicas == 1:
                return tensors
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

        weights = over_replicas(objective.weights(batch))
        scale = loss_scale.scale.value if loss_scale else tf.constant(1.0)
        if accumulation_steps == num_replicas == 1:
            gradients, sums = gradients_of(batch, weights, scale)
        else:
            gradients, sums = _over_micro_batches(
                lambda part, *masks: gradients_of(part, weights, scale, *masks),
                batch,
                accumulation_steps,
                replica.replica_id_in_sync_group,
            )
        gradients = over_replicas(gradients)
        norm = update(optimizer, variables, gradients, scale, num_replicas, clip_norm)
        reported_scale = scale if loss_scale else None
        return add_reports(sums, batch, norm, reported_scale, 1.0 / num_replicas)

    @tf.function(reduce_retracing=not is_tpu(strategy))
    def steps(iterator: Iterator[Records], num_steps: tf.Tensor) -> StepResults:
        sums = {name: tf.zeros([2]) for name in names}
        losses = tf.TensorArray(tf.float32, size=num_steps, element_shape=[])
        input_seconds = tf.constant(0.0, tf.float64)
        for number in tf.range(num_steps):
            # The clock starts when the sums of the previous step exist.
            with tf.control_dependencies([sums[TOTAL_LOSS]]):
                began = tf.timestamp()
            with tf.control_dependencies([began]):
                batch = next(iterator)
            with tf.control_dependencies(tf.nest.flatten(batch, True)):
                ended = tf.timestamp()
            input_seconds += ended - began
            arguments = (batch,) if is_tpu(strategy) else (batch, ended)
            per_replica = strategy.run(replica_step, args=arguments)
            step_sums = {
                name: strategy.reduce(
                    tf.distribute.ReduceOp.SUM, per_replica[name], axis=None
                )
                for name in names
            }
            if loss_scale:
                loss_scale.update(step_sums[SKIPPED][0] < 0.5)
            losses = losses.write(number, step_sums[TOTAL_LOSS][0])
            sums = {name: sums[name] + step_sums[name] for name in names}
        return StepResults(sums, losses.stack(), input_seconds)

    if is_tpu(strategy):
        steps = _within(without_fusion, steps)

    def call(iterator: Iterator[Records], num_steps: int) -> StepResults:
        results = steps(iterator, tf.constant(num_steps, tf.int32))
        return StepResults(
            as_float64(results.sums),
            results.losses.numpy().astype(np.float64),
            float(results.input_seconds),
        )

    return call


def evaluation_step(
    task: Task,
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    *,
    jit_compile: bool = False,
) -> Callable[[Records], dict[str, np.ndarray]]:
    """Returns a compiled function: batch -> sums of losses and metrics, in float64.

    `loss` is the batch's total loss with weight 1: the original averages batch losses.
    A short batch leaves some devices with fewer rows, or none.
    """
    num_replicas = strategy.num_replicas_in_sync
    objective = task.objective
    rows = _rows_of_replica(objective, strategy)

    def forward(batch: Records, weights: Mapping[str, tf.Tensor]) -> Sums:
        outputs = model(batch, training=False)
        loss, sums = loss_and_sums(objective, batch, outputs, weights, rows)
        return {TOTAL_LOSS: tf.stack([loss, 1.0 / num_replicas]), **sums}

    as_a_whole = jit_compile and not is_tpu(strategy) and rows is None
    if as_a_whole:
        forward = tf.function(forward, jit_compile=True, autograph=False)
    # A replica's thread does not inherit the switches of the thread that started it.
    whole = as_a_whole or is_tpu(strategy)
    forward = _within(without_fusion if whole else fused_inference, forward)

    def replica_step(batch: Records) -> Sums:
        weights = objective.weights(batch)
        if num_replicas > 1:
            weights = tf.distribute.get_replica_context().all_reduce(
                tf.distribute.ReduceOp.SUM, weights
            )
        return forward(batch, weights)

    @tf.function(reduce_retracing=not is_tpu(strategy), autograph=False)
    def step(batch: Records) -> Sums:
        per_replica = strategy.run(replica_step, args=(batch,))
        return {
            name: strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None)
            for name, value in per_replica.items()
        }

    return lambda batch: as_float64(step(_dealt_out(strategy, batch)))


def prediction_step(
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    *,
    jit_compile: bool = False,
    by_pieces: bool = True,
) -> Callable[[Records], dict[str, np.ndarray]]:
    """Returns a compiled function: batch -> the outputs of all its rows, in order.

    `by_pieces`, which TensorFlow compiles, is slower for many different shapes; without
    it, one graph serves all shapes, if there is one device.
    """

    def forward(batch: Records) -> Mapping[str, Any]:
        return model(batch, training=False)

    as_a_whole = jit_compile and not is_tpu(strategy)
    if as_a_whole:
        forward = tf.function(forward, jit_compile=True, autograph=False)
    # For the same reason as in `evaluation_step`.
    if as_a_whole or is_tpu(strategy):
        forward = _within(without_fusion, forward)
    elif by_pieces:
        forward = _within(fused_inference, forward)

    @tf.function(reduce_retracing=not is_tpu(strategy), autograph=False)
    def step(batch: Records) -> Mapping[str, Any]:
        outputs = strategy.run(forward, args=(batch,))
        if num_workers(strategy) > 1:
            outputs = {
                name: strategy.gather(value, axis=0) for name, value in outputs.items()
            }
        return outputs

    def rows(value: Any) -> np.ndarray:
        local = strategy.experimental_local_results(value)
        return np.concatenate([part.numpy() for part in local])

    has_one_graph = not by_pieces and not as_a_whole
    has_one_graph = has_one_graph and strategy.num_replicas_in_sync == 1
    if has_one_graph:
        # Traced and run now, so that the first call is not slower than the others.
        inputs = {
            name: tf.TensorSpec(x.shape, x.dtype) for name, x in model.input.items()
        }
        one_graph = step.get_concrete_function(inputs)
        one_graph(
            {
                name: tf.zeros([size or 1 for size in x.shape], x.dtype)
                for name, x in inputs.items()
            }
        )

    def outputs_of(batch: Records) -> Mapping[str, Any]:
        keras_backend.refuse_fork()
        if has_one_graph:
            return one_graph(
                {name: tf.cast(batch[name], x.dtype) for name, x in inputs.items()}
            )
        return step(_dealt_out(strategy, batch))

    return lambda batch: {
        name: rows(value) for name, value in outputs_of(batch).items()
    }


def _within(scope: Callable[[], Any], function: Callable) -> Callable:
    """Traces and calls a function within a scope of `bert_tf.modeling.fused`."""

    def call(*args: Any) -> Any:
        with scope():
            return function(*args)

    return call


def _over_micro_batches(
    gradients_of: Callable[..., tuple[list[tf.Tensor], Sums]],
    batch: Records,
    num_micro_batches: int,
    replica: Any,
) -> tuple[list[tf.Tensor], Sums]:
    """Sums over micro-batches, of which only one is in memory at a time.

    Examples have the same dropout masks as in an undivided batch.
    """
    size = next(iter(batch.values())).shape[0] // num_micro_batches
    # The number of rows is known when a step is traced; their lengths may not be.
    pieces = {
        name: tf.reshape(
            value, tf.concat([(num_micro_batches, size), tf.shape(value)[1:]], axis=0)
        )
        for name, value in batch.items()
    }
    examples = tf.range(size)

    def part(number: Any, again: bool) -> tuple[list[tf.Tensor], Sums]:
        first = (replica * num_micro_batches + number) * size
        piece = {name: value[number] for name, value in pieces.items()}
        return gradients_of(piece, examples + first, again)

    totals = part(0, False)
    if num_micro_batches == 1:
        return totals

    def add(number, totals):
        return number + 1, tf.nest.map_structure(tf.add, totals, part(number, True))

    _, totals = tf.while_loop(
        lambda number, _: number < num_micro_batches,
        add,
        (tf.constant(1), totals),
        parallel_iterations=1,
        maximum_iterations=num_micro_batches - 1,
    )
    return totals


def _dealt_out(strategy: tf.distribute.Strategy, batch: Records) -> Records:
    """Returns each replica's rows of a batch, in order.

    Each gets the same number; for a short batch, some replicas get fewer, or none.
    """
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return batch
    num_rows = len(next(iter(batch.values())))
    bounds = [-(-num_rows * number // replicas) for number in range(replicas + 1)]

    def rows_of(context: tf.distribute.experimental.ValueContext) -> Records:
        first, last = bounds[context.replica_id_in_sync_group :][:2]
        return {name: tf.convert_to_tensor(x[first:last]) for name, x in batch.items()}

    return strategy.experimental_distribute_values_from_function(rows_of)
