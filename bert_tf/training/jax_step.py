"""The devices of a run on JAX, and the steps of `bert_tf.training.step` on them.

The devices share the rows of each batch; every device has all weights. Each keeps and
updates a share of the optimizer's moments, and so of the weights, which are then
gathered (Xu et al. 2020, "Automatic Cross-Replica Sharding of Weight Update in
Data-Parallel Training"; ZeRO's first stage, Rajbhandari et al. 2020): a gradient is
summed over the devices only where its share is updated (except for narrow gradients:
see `JaxStrategy.sums`). A step is one computation on global arrays, a pure function of
all state, which XLA divides among the devices and processes. So its result, including
dropout masks, equals one device's, up to rounding.
"""

import collections
import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import keras
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_tf.modeling.fused import per_example_dropout, products_by_head
from bert_tf.modeling.objectives import Records
from bert_tf.records.pipeline import InputShard
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
from bert_tf.training.task import Task

# Batches put on the devices before they are needed.
_BATCHES_AHEAD = 2
# Steps in flight before Python waits for the oldest one.
_STEPS_AHEAD = 2
# A chip computes with 128 columns, even if there are fewer.
_FEW_COLUMNS = 32
_TPU_OPTIONS = {
    # Otherwise a product with a sharded result may be computed in as many pieces as
    # there are chips, each sent on in turn, in more memory: see accelerators_test.py,
    # "choices".
    "xla_jf_spmd_threshold_for_windowed_einsum_mib": 10**6,
    # The default, 16 MiB of a chip's vector memory, makes a product's windows too small
    # if the gradient of a layer normalization is computed with it.
    "xla_tpu_scoped_vmem_limit_kib": 32 * 1024,
}


class JaxStrategy:
    """The devices of one or several processes; `worker` is this process's number."""

    def __init__(self, devices: list[jax.Device] | None = None) -> None:
        devices = devices or jax.devices()
        self._devices = devices
        mesh = Mesh(np.array(devices), ("batch",))
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self.by_row = NamedSharding(mesh, PartitionSpec("batch"))
        self.by_row_of_part = NamedSharding(mesh, PartitionSpec(None, "batch"))
        self.num_replicas_in_sync = len(devices)
        self.num_workers = len({device.process_index for device in devices})
        self.worker = jax.process_index()
        self.device_kind = devices[0].platform.upper()
        self.device_name = devices[0].device_kind

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns the context in which models and optimizers are built."""
        return jax.default_device(self._local_devices[0])

    @property
    def _local_devices(self) -> list[jax.Device]:
        return [one for one in self._devices if one.process_index == self.worker]

    def everywhere(self, values: list[Any]) -> list[jax.Array]:
        """Puts each array on every device, from this process's copy."""
        if self.num_workers == 1:
            return jax.device_put(values, self.replicated)
        return [
            jax.make_array_from_single_device_arrays(
                value.shape,
                self.replicated,
                [jax.device_put(value, device) for device in self._local_devices],
            )
            for value in values
        ]

    def shares(self, variables: list[Any]) -> list[NamedSharding]:
        """Returns the sharding of arrays over the devices: in equal shares, or whole.

        The first evenly divisible dimension is divided. No array is padded.
        """
        return [self._share(variable.shape) for variable in variables]

    def _share(self, shape: Sequence[int]) -> NamedSharding:
        count = self.num_replicas_in_sync
        for axis, size in enumerate(shape):
            if count > 1 and size % count == 0:
                spec = PartitionSpec(*[None] * axis, "batch")
                return NamedSharding(self.replicated.mesh, spec)
        return self.replicated

    def sums(self, weights: list[Any]) -> list[NamedSharding]:
        """Returns how each gradient is summed over the devices: in shares, or whole.

        A device with some columns of the embeddings' gradient adds up the rows of all
        devices' tokens: with more devices, the columns are fewer and the rows more.
        """
        found = self.shares(weights)
        for number, (weight, share) in enumerate(zip(weights, found, strict=True)):
            axis = len(share.spec) - 1
            most = _FEW_COLUMNS * self.num_replicas_in_sync
            if axis > 0 and weight.shape[axis] <= most:
                found[number] = self.replicated
        return found

    def divide(self, variables: list[Any]) -> list[jax.Array]:
        """Puts variables in their `shares`, one by one; returns the values."""
        for variable, share in zip(variables, self.shares(variables), strict=True):
            value = variable.value
            if share.is_fully_replicated:
                (value,) = self.everywhere([value])
            elif self.num_workers == 1:
                value = jax.device_put(value, share)
            elif value.is_fully_addressable:  # else already divided
                whole = np.asarray(value)
                value = jax.make_array_from_callback(
                    whole.shape, share, whole.__getitem__
                )
            variable.assign(value)
        return [variable.value for variable in variables]

    def local(self, values: Any) -> Any:
        """Returns this process's copies of replicated arrays; others as is."""
        if self.num_workers == 1:
            return values
        return jax.tree.map(
            lambda value: (
                value.addressable_data(0) if value.is_fully_replicated else value
            ),
            values,
        )

    def whole(self, batch: Records) -> dict[str, jax.Array]:
        """Puts a batch that every process has on the devices; by row if it divides."""
        arrays = {name: _array(value) for name, value in batch.items()}
        rows = len(next(iter(arrays.values())))
        is_short = rows % self.num_replicas_in_sync
        sharding = self.replicated if is_short else self.by_row
        return {
            name: jax.make_array_from_callback(value.shape, sharding, value.__getitem__)
            for name, value in arrays.items()
        }

    def parts(self, batch: Records, count: int) -> tuple[dict[str, jax.Array], Any]:
        """Puts this process's rows of a batch on the devices, as `count` micro-batches.

        Returns the batch: [B, ...] if `count` is 1, else [count, B / count, ...], with
        each row's number in the whole batch, or None.
        """
        arrays = {name: _array(value) for name, value in batch.items()}
        put = jax.make_array_from_process_local_data
        if count == 1:
            return {name: put(self.by_row, x) for name, x in arrays.items()}, None
        rows = len(next(iter(arrays.values())))
        numbers = np.arange(rows, dtype=np.int32) + rows * self.worker
        *values, examples = (
            put(self.by_row_of_part, value.reshape(count, -1, *value.shape[1:]))
            for value in (*arrays.values(), numbers)
        )
        return dict(zip(arrays, values, strict=True)), examples

    def sum(self, numbers: list[float]) -> np.ndarray:
        """Returns the processes' numbers summed in exact float64; all must call it."""
        here = np.array(numbers, np.float64)
        if self.num_workers == 1:
            return here
        from jax.experimental import multihost_utils

        # By default JAX has no float64, but it can transfer the bits.
        every = multihost_utils.process_allgather(here.view(np.uint32))
        return np.asarray(every).view(np.float64).sum(axis=0)


class DeviceBatches:
    """Batches of this process's rows, put on the devices ahead of time."""

    def __init__(self, strategy: JaxStrategy, batches: Iterator[Records]) -> None:
        self._strategy = strategy
        self._batches = batches
        self._ahead: collections.deque[tuple[dict[str, jax.Array], Any]] = (
            collections.deque()
        )

    def __iter__(self) -> "DeviceBatches":
        return self

    def __next__(self) -> dict[str, jax.Array]:
        return self.take(1)[0]

    def take(self, num_parts: int) -> tuple[dict[str, jax.Array], Any]:
        """Returns the next batch: see `JaxStrategy.parts`."""
        self.fill(num_parts, 1)
        if not self._ahead:
            raise StopIteration
        return self._ahead.popleft()

    def fill(self, num_parts: int, count: int = _BATCHES_AHEAD) -> float:
        """Puts batches on the devices; returns the time that this took."""
        began = time.perf_counter()
        while len(self._ahead) < count:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._ahead.append(self._strategy.parts(batch, num_parts))
        return time.perf_counter() - began


def global_batches(
    strategy: JaxStrategy, dataset: Callable[[InputShard], Any]
) -> DeviceBatches:
    """Returns global batches, each split over the devices."""
    shard = InputShard(strategy.worker, strategy.num_workers)
    return DeviceBatches(strategy, dataset(shard).as_numpy_iterator())


def _array(value: Any) -> np.ndarray:
    """Converts a tensor on the host to an array, int64 to int32 as in JAX's default."""
    array = np.asarray(value)
    return array.astype(np.int32) if array.dtype == np.int64 else array


def training_steps(
    task: Task,
    model: keras.Model,
    optimizer: keras.Optimizer,
    strategy: JaxStrategy,
    *,
    accumulation_steps: int = 1,
    jit_compile: bool = False,
    loss_scale: LossScale | None = None,
    clip_norm: float = GLOBAL_CLIP_NORM,
) -> Callable[[DeviceBatches, int], StepResults]:
    """Returns the training steps, as in `tensorflow_step`; XLA compiles whole steps."""
    del jit_compile
    step = training_step(task, model, optimizer, strategy, loss_scale, clip_norm)
    parts = state_of(model, optimizer, loss_scale)
    names = names_of_sums(task.objective, loss_scale)

    def steps(stream: DeviceBatches, num_steps: int) -> StepResults:
        *whole, slots = parts
        state = (
            *(strategy.everywhere([one.value for one in part]) for part in whole),
            strategy.divide(slots),
        )
        totals = dict(
            zip(names, strategy.everywhere([jnp.zeros(2) for _ in names]), strict=True)
        )
        losses: list[jax.Array] = []
        input_seconds = 0.0
        try:
            for _ in range(int(num_steps)):
                batch, examples = stream.take(accumulation_steps)
                state, totals, loss = step(state, totals, batch, examples)
                losses.append(loss)
                waited = stream.fill(accumulation_steps)
                # While a step is under way, the devices do not wait.
                input_seconds += waited if loss.is_ready() else 0.0
                if len(losses) > _STEPS_AHEAD:
                    losses[-1 - _STEPS_AHEAD].block_until_ready()
        finally:
            for part, values in zip(parts, state, strict=True):
                for variable, value in zip(part, strategy.local(values), strict=True):
                    variable.assign(value)
        totals, losses = strategy.local((totals, losses))
        totals = {name: totals[name] for name in names}  # jit has sorted them
        return StepResults(
            as_float64(totals), np.array(losses, np.float64), input_seconds
        )

    return steps


def state_of(
    model: keras.Model, optimizer: keras.Optimizer, loss_scale: LossScale | None
) -> tuple[list[Any], ...]:
    """Returns what a step changes: weights, other variables, the optimizer's."""
    slots = [
        *optimizer.variables,
        *(loss_scale.variables.values() if loss_scale else ()),
    ]
    return model.trainable_variables, model.non_trainable_variables, slots


def training_step(
    task: Task,
    model: keras.Model,
    optimizer: keras.Optimizer,
    strategy: JaxStrategy,
    loss_scale: LossScale | None = None,
    clip_norm: float = GLOBAL_CLIP_NORM,
) -> Any:
    """Returns a jitted function of a training step.

    (`state_of`'s values, totals by `names_of_sums`, batch, rows) -> (new state, new
    totals, loss). Batch and rows are as from `JaxStrategy.parts`.
    """
    objective = task.objective
    weights, _, slots = state_of(model, optimizer, loss_scale)
    names = names_of_sums(objective, loss_scale)
    replicated = strategy.replicated
    shares, slot_shares = strategy.shares(weights), strategy.shares(slots)
    sums_of_gradients = strategy.sums(weights)
    is_tpu = strategy.device_kind == "TPU"

    def gradients_of(
        values: list[Any],
        other_values: list[Any],
        batch: Records,
        totals: Sums,
        scale: Any,
        examples: Any = None,
        again: bool = False,
    ) -> tuple[list[Any], Sums, list[Any]]:
        """Returns a micro-batch's part of the gradient, its sums, and the new state."""

        def scaled_loss(values: list[Any]) -> tuple[Any, Any]:
            with per_example_dropout(examples, again), products_by_head(is_tpu):
                outputs, after = model.stateless_call(
                    values, other_values, batch, training=True
                )
            loss, sums = loss_and_sums(objective, batch, outputs, totals)
            sums = {TOTAL_LOSS: jnp.stack([loss, 0.0]), **sums}
            return loss * scale, (sums, after)

        gradients, (sums, after) = jax.grad(scaled_loss, has_aux=True)(values)
        gradients = jax.lax.with_sharding_constraint(gradients, sums_of_gradients)
        return jax.lax.with_sharding_constraint(gradients, shares), sums, after

    def over_micro_batches(
        values: list[Any],
        other_values: list[Any],
        batch: Records,
        examples: Any,
        totals: Sums,
        scale: Any,
    ) -> tuple[list[Any], Sums, list[Any]]:
        """Sums over micro-batches, of which only one is in memory at a time."""

        def part(batch: Records, number: Any) -> Records:
            return {name: value[number] for name, value in batch.items()}

        gradients, sums, after = gradients_of(
            values, other_values, part(batch, 0), totals, scale, examples[0]
        )

        def add(number: Any, so_far: Any) -> Any:
            micro_batch, masks = part(batch, number), (examples[number], True)
            more = gradients_of(values, after, micro_batch, totals, scale, *masks)
            return jax.tree.map(jnp.add, so_far, more[:2])

        both = jax.lax.fori_loop(1, len(examples), add, (gradients, sums))
        return *both, after

    @functools.partial(
        jax.jit,
        donate_argnums=(0, 1),
        compiler_options=_TPU_OPTIONS if is_tpu else None,
        out_shardings=((replicated, replicated, slot_shares), replicated, replicated),
    )
    def step(
        state: tuple[list[Any], ...], totals: Sums, batch: Records, examples: Any
    ) -> tuple[tuple[list[Any], ...], Sums, Any]:
        values, other_values, slot_values = state
        mapping = [
            *zip(weights, values, strict=True),
            *zip(slots, slot_values, strict=True),
        ]
        whole = batch
        if examples is not None:
            whole = {name: x.reshape(-1, *x.shape[2:]) for name, x in batch.items()}
        with keras.StatelessScope(state_mapping=mapping) as scope:
            scale = loss_scale.scale.value if loss_scale else jnp.float32(1.0)
            given = (objective.weights(whole), scale)
            gradients, sums, after = (
                gradients_of(values, other_values, batch, *given)
                if examples is None
                else over_micro_batches(values, other_values, batch, examples, *given)
            )
            norm = update(optimizer, weights, gradients, scale, clip_norm=clip_norm)
            sums = add_reports(sums, whole, norm, scale if loss_scale else None)
            if loss_scale:
                loss_scale.update(sums[SKIPPED][0] < 0.5)
        new = [
            [scope.get_current_value(variable) for variable in one]
            for one in (weights, slots)
        ]
        totals = {name: totals[name] + sums[name] for name in names}
        return (new[0], after, new[1]), totals, sums[TOTAL_LOSS][0]

    return step


def evaluation_step(
    task: Task, model: keras.Model, strategy: JaxStrategy, *, jit_compile: bool = False
) -> Callable[[Records], dict[str, np.ndarray]]:
    """Like `tensorflow_step.evaluation_step`."""
    del jit_compile
    forward = _on_devices(evaluation(task, model, strategy), model, strategy)
    names = (TOTAL_LOSS, *task.objective.losses, *task.objective.metrics)

    def step(batch: Records) -> dict[str, np.ndarray]:
        sums = forward(batch)
        return as_float64({name: sums[name] for name in names})  # jit has sorted them

    return step


def evaluation(task: Task, model: keras.Model, strategy: JaxStrategy) -> Any:
    """Returns a jitted function: (weights, other variables, batch) -> its sums."""

    def sums_of(outputs: Any, batch: Records) -> Sums:
        weights = task.objective.weights(batch)
        loss, sums = loss_and_sums(task.objective, batch, outputs, weights)
        return {TOTAL_LOSS: jnp.stack([loss, 1.0]), **sums}

    return _forward(model, strategy, sums_of)


def prediction_step(
    model: keras.Model,
    strategy: JaxStrategy,
    *,
    jit_compile: bool = False,
    by_pieces: bool = True,
) -> Callable[[Records], dict[str, np.ndarray]]:
    """Like `tensorflow_step.prediction_step`."""
    del jit_compile, by_pieces
    forward = _on_devices(prediction(model, strategy), model, strategy)
    return lambda batch: {name: np.asarray(x) for name, x in forward(batch).items()}


def prediction(model: keras.Model, strategy: JaxStrategy) -> Any:
    """Returns a jitted function: (weights, other variables, batch) -> the outputs."""
    return _forward(model, strategy, lambda outputs, batch: outputs)


def _forward(
    model: keras.Model, strategy: JaxStrategy, then: Callable[[Any, Records], Any]
) -> Any:
    @functools.partial(jax.jit, out_shardings=strategy.replicated)
    def forward(weights: list[Any], others: list[Any], batch: Records) -> Any:
        outputs, _ = model.stateless_call(weights, others, batch, training=False)
        return then(outputs, batch)

    return forward


def _on_devices(
    forward: Any, model: keras.Model, strategy: JaxStrategy
) -> Callable[[Records], Any]:
    """Returns a function: batch -> `forward`'s results, in this process."""
    parts = (model.trainable_variables, model.non_trainable_variables)
    # The last weights, kept on every device, so that they are copied there only once.
    known: list[list[Any]] = []
    placed: list[list[Any]] = []

    def call(batch: Records) -> Any:
        values = [[variable.value for variable in part] for part in parts]
        if jax.tree.map(id, values) != jax.tree.map(id, known):
            known[:] = values
            placed[:] = map(strategy.everywhere, values)
        return strategy.local(forward(*placed, strategy.whole(batch)))

    return call
