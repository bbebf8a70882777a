"""The steps of `bert_tf.training.step` on JAX: each a pure function of all state."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
from jax import numpy as jnp

from bert_tf.modeling.fused import masks_of_examples
from bert_tf.modeling.objectives import Records
from bert_tf.training.jax_strategy import DeviceBatches, JaxStrategy
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

# Steps that may be under way before Python waits for the oldest one.
_STEPS_AHEAD = 2


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
    """See `bert_tf.training.step`; XLA compiles the whole step in any case."""
    del jit_compile
    objective = task.objective
    weights, others = model.trainable_variables, model.non_trainable_variables
    slots = [
        *optimizer.variables,
        *(loss_scale.variables.values() if loss_scale else ()),
    ]
    parts = (weights, others, slots)
    names = names_of_sums(objective, loss_scale)

    def gradients_of(
        values: list[Any],
        other_values: list[Any],
        batch: Records,
        totals: Sums,
        scale: Any,
        examples: Any = None,
        again: bool = False,
    ) -> tuple[list[Any], Sums, list[Any]]:
        """A micro-batch's part of the gradient, its sums, and the model's new state."""

        def scaled_loss(values: list[Any]) -> tuple[Any, Any]:
            with masks_of_examples(examples, again):
                outputs, after = model.stateless_call(
                    values, other_values, batch, training=True
                )
            loss, sums = loss_and_sums(objective, batch, outputs, totals)
            sums = {TOTAL_LOSS: jnp.stack([loss, 0.0]), **sums}
            return loss * scale, (sums, after)

        gradients, (sums, after) = jax.grad(scaled_loss, has_aux=True)(values)
        return gradients, sums, after

    def over_micro_batches(
        values: list[Any],
        other_values: list[Any],
        batch: Records,
        examples: Any,
        totals: Sums,
        scale: Any,
    ) -> tuple[list[Any], Sums, list[Any]]:
        """The sums over micro-batches, of which only one is in memory at a time."""

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

    @functools.partial(jax.jit, donate_argnums=(0, 1))
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

    def steps(stream: DeviceBatches, num_steps: int) -> StepResults:
        state = tuple(
            strategy.everywhere([variable.value for variable in part]) for part in parts
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
        return StepResults(
            as_float64(totals), np.array(losses, np.float64), input_seconds
        )

    return steps


def evaluation_step(
    task: Task, model: keras.Model, strategy: JaxStrategy, *, jit_compile: bool = False
) -> Callable[[Records], dict[str, np.ndarray]]:
    """See `bert_tf.training.step`."""
    del jit_compile

    def sums_of(outputs: Any, batch: Records) -> Sums:
        weights = task.objective.weights(batch)
        loss, sums = loss_and_sums(task.objective, batch, outputs, weights)
        return {TOTAL_LOSS: jnp.stack([loss, 1.0]), **sums}

    forward = _forward(model, strategy, sums_of)
    return lambda batch: as_float64(forward(batch))


def prediction_step(
    model: keras.Model,
    strategy: JaxStrategy,
    *,
    jit_compile: bool = False,
    by_pieces: bool = True,
) -> Callable[[Records], dict[str, np.ndarray]]:
    """See `bert_tf.training.step`."""
    del jit_compile, by_pieces
    forward = _forward(model, strategy, lambda outputs, batch: outputs)
    return lambda batch: {name: np.asarray(x) for name, x in forward(batch).items()}


def _forward(
    model: keras.Model, strategy: JaxStrategy, then: Callable[[Any, Records], Any]
) -> Callable[[Records], Any]:
    """A function: batch -> what is made of the model's outputs, in this process."""

    @functools.partial(jax.jit, out_shardings=strategy.replicated)
    def forward(weights: list[Any], others: list[Any], batch: Records) -> Any:
        outputs, _ = model.stateless_call(weights, others, batch, training=False)
        return then(outputs, batch)

    def call(batch: Records) -> Any:
        weights, others = (
            strategy.everywhere([variable.value for variable in part])
            for part in (model.trainable_variables, model.non_trainable_variables)
        )
        return strategy.local(forward(weights, others, strategy.whole(batch)))

    return call
