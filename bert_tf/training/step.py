"""One training step and one evaluation step, the same mathematics on any strategy.

With N replicas, each of which splits its part of the batch into k micro-batches b:

    W_t = sum of the weights of loss t, over all replicas and micro-batches
    g   = sum over replicas and micro-batches of the gradient of
              sum_t total_t(b) / (W_t + epsilon_t)
    g  <- g min(1, 1 / |g|)                       (one norm, over all variables)
    optimizer: one update with g

So a step is that of one large batch on one device, to rounding, whatever N and k. The
weights W_t depend on the records alone, and are known before the first forward pass.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf.modeling.fused import (
    masks_of_replica,
    pieces_in_inference,
    pieces_left_alone,
)
from bert_tf.modeling.objectives import Mean, Records
from bert_tf.optimization.optimizers import (
    INITIAL_LOSS_SCALE,
    clip_scale,
    dense_gradient,
    next_loss_scale,
)
from bert_tf.training.strategy import is_tpu, num_workers
from bert_tf.training.task import Task

# The number formats that a model computes in: --precision.
#
#     float32   everything
#     bfloat16  matrix products and activations; weights, moments, losses, softmax and
#               the sums of layer normalization stay float32
#     float16   the same with float16, whose smallest gradients would vanish: the loss
#               is multiplied by a scale, the gradient divided by it (Micikevicius et
#               al. 2018, section 3.2)


_POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}


@contextlib.contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Within it, models are built with this number format."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


class LossScale:
    """The scale of float16's loss; make it under the strategy's scope."""

    def __init__(self) -> None:
        # Updated between the replicas' steps, never within.
        self.scale = tf.Variable(INITIAL_LOSS_SCALE, trainable=False, dtype=tf.float32)
        # Finite steps since the scale last changed.
        self.good_steps = tf.Variable(0, trainable=False, dtype=tf.int32)
        self.variables = {"scale": self.scale, "good_steps": self.good_steps}

    def update(self, is_finite: tf.Tensor) -> None:
        """Updates the scale after a step whose gradient was finite or not."""
        scale, good_steps = next_loss_scale(self.scale, self.good_steps, is_finite)
        self.scale.assign(scale)
        self.good_steps.assign(good_steps)


# Devlin et al. 2018's code: "This is how the model was pre-trained."
GLOBAL_CLIP_NORM = 1.0

Sums = dict[str, tf.Tensor]  # name -> [total, weight], float32
TOTAL_LOSS = "loss"
GRADIENT_NORM = "gradient_norm"
TOKENS = "tokens"
SEQUENCES = "sequences"
SKIPPED = "skipped_steps"
LOSS_SCALE = "loss_scale"


class StepResults(NamedTuple):
    """What several steps report."""

    # Summed over the steps. `loss` is the sum of the steps' losses and their number;
    # `tokens` counts tokens without padding, `sequences` also those within packed rows.
    sums: Sums
    losses: tf.Tensor  # [steps] float32
    input_seconds: tf.Tensor  # float64: how long the steps waited for their batches


def replica_gradients(
    task: Task, model: keras.Model, *, jit_compile: bool = False
) -> Callable[..., tuple[list[tf.Tensor], Sums]]:
    """A micro-batch's part of the gradient: forward and backward, on one replica."""
    variables = [variable.value for variable in model.trainable_variables]
    objective = task.objective

    def gradients_and_sums(
        batch: Records, weights: Mapping[str, tf.Tensor], scale: tf.Tensor
    ) -> tuple[list[tf.Tensor], Sums]:
        with tf.GradientTape() as tape:
            outputs = model(batch, training=True)
            means = objective.means(batch, outputs)
            loss = _total(means, weights)
            scaled_loss = loss * scale
        gradients = [
            tf.convert_to_tensor(dense_gradient(gradient))
            for gradient in tape.gradient(scaled_loss, variables)
        ]
        sums = {name: _stack(mean) for name, mean in means.items()}
        return gradients, {TOTAL_LOSS: tf.stack([loss, 0.0]), **sums}

    if not jit_compile:
        return gradients_and_sums
    compiled = tf.function(gradients_and_sums, jit_compile=True, autograph=False)
    return _within(pieces_left_alone, compiled)


def training_steps(
    task: Task,
    model: keras.Model,
    optimizer: keras.Optimizer,
    strategy: tf.distribute.Strategy,
    *,
    accumulation_steps: int = 1,
    jit_compile: bool = False,
    loss_scale: LossScale | None = None,
) -> Callable[[Iterator[Records], tf.Tensor], StepResults]:
    """A compiled function that makes several training steps in one call."""
    num_replicas = strategy.num_replicas_in_sync
    variables = model.trainable_variables
    objective = task.objective
    gradients_of = replica_gradients(
        task, model, jit_compile=jit_compile and not is_tpu(strategy)
    )
    names = [TOTAL_LOSS, *objective.losses, *objective.metrics]
    names += [GRADIENT_NORM, TOKENS, SEQUENCES]
    names += [SKIPPED, LOSS_SCALE] if loss_scale else []

    def replica_step(batch: Records) -> Sums:
        replica = tf.distribute.get_replica_context()
        is_alone = num_replicas == 1
        number = replica.replica_id_in_sync_group

        def over_replicas(tensors):
            if is_alone:
                return tensors
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

        weights = over_replicas(objective.weights(batch))
        scale = loss_scale.scale if loss_scale else tf.constant(1.0)
        with contextlib.nullcontext() if is_alone else masks_of_replica(number):
            if accumulation_steps == 1:
                gradients, sums = gradients_of(batch, weights, scale)
            else:
                gradients, sums = _accumulated(
                    lambda micro_batch: gradients_of(micro_batch, weights, scale),
                    batch,
                    accumulation_steps,
                )
        gradients = over_replicas(gradients)
        # As if the unscaled gradient were clipped.
        clip, norm = clip_scale(gradients, GLOBAL_CLIP_NORM * scale)
        # Keras' optimizer sums over the replicas once more.
        optimizer.apply(gradients, variables, scale=clip / (scale * num_replicas))
        one = tf.constant(1.0 / num_replicas)
        sums[TOTAL_LOSS] = tf.stack([sums[TOTAL_LOSS][0], one])
        sums[GRADIENT_NORM] = tf.stack([norm / scale, 1.0]) * one
        sums[TOKENS] = tf.stack([_num_tokens(batch), one])
        sums[SEQUENCES] = tf.stack([_num_sequences(batch), one])
        if loss_scale:
            skipped = tf.cast(tf.logical_not(tf.math.is_finite(norm)), tf.float32)
            # A mean over the steps that were made.
            sums[GRADIENT_NORM] = tf.where(skipped > 0, 0.0, sums[GRADIENT_NORM])
            sums[SKIPPED] = tf.stack([skipped, 1.0]) * one
            sums[LOSS_SCALE] = tf.stack([scale, 1.0]) * one
        return sums

    @tf.function(reduce_retracing=not is_tpu(strategy))
    def steps(iterator: Iterator[Records], num_steps: tf.Tensor) -> StepResults:
        sums = {name: tf.zeros([2]) for name in names}
        losses = tf.TensorArray(tf.float32, size=num_steps, element_shape=[])
        input_seconds = tf.constant(0.0, tf.float64)
        for number in tf.range(num_steps):
            # The clock starts when the step before has its sums.
            with tf.control_dependencies([sums[TOTAL_LOSS]]):
                began = tf.timestamp()
            with tf.control_dependencies([began]):
                batch = next(iterator)
            with tf.control_dependencies(tf.nest.flatten(batch, True)):
                input_seconds += tf.timestamp() - began
            per_replica = strategy.run(replica_step, args=(batch,))
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

    return _within(pieces_left_alone, steps) if is_tpu(strategy) else steps


def evaluation_step(
    task: Task,
    model: keras.Model,
    strategy: tf.distribute.Strategy | None = None,
    *,
    jit_compile: bool = False,
) -> Callable[[Records], Sums]:
    """A compiled function: batch -> the sums of its losses and metrics.

    `loss` is the batch's total loss with weight 1: the original averages batch losses.
    """
    strategy = strategy or tf.distribute.get_strategy()
    num_replicas = strategy.num_replicas_in_sync
    objective = task.objective

    def forward(batch: Records, weights: Mapping[str, tf.Tensor]) -> Sums:
        outputs = model(batch, training=False)
        means = objective.means(batch, outputs)
        loss = _total(means, weights)
        return {
            TOTAL_LOSS: tf.stack([loss, 1.0 / num_replicas]),
            **{name: _stack(mean) for name, mean in means.items()},
        }

    as_a_whole = jit_compile and not is_tpu(strategy)
    if as_a_whole:
        forward = tf.function(forward, jit_compile=True, autograph=False)

    def replica_step(batch: Records) -> Sums:
        weights = objective.weights(batch)
        if num_replicas > 1:
            weights = tf.distribute.get_replica_context().all_reduce(
                tf.distribute.ReduceOp.SUM, weights
            )
        return forward(batch, weights)

    @tf.function(reduce_retracing=not is_tpu(strategy))
    def step(batch: Records) -> Sums:
        per_replica = strategy.run(replica_step, args=(batch,))
        return {
            name: strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None)
            for name, value in per_replica.items()
        }

    whole = as_a_whole or is_tpu(strategy)
    return _within(pieces_left_alone if whole else pieces_in_inference, step)


def prediction_step(
    model: keras.Model, strategy: tf.distribute.Strategy, *, jit_compile: bool = False
) -> Callable[[Records], Mapping[str, Any]]:
    """A compiled function: batch -> each replica's outputs; with workers, all rows."""

    def forward(batch: Records) -> Mapping[str, Any]:
        return model(batch, training=False)

    as_a_whole = jit_compile and not is_tpu(strategy)
    if as_a_whole:
        forward = tf.function(forward, jit_compile=True, autograph=False)

    @tf.function(reduce_retracing=not is_tpu(strategy))
    def step(batch: Records) -> Mapping[str, Any]:
        outputs = strategy.run(forward, args=(batch,))
        if num_workers(strategy) > 1:
            outputs = {
                name: strategy.gather(value, axis=0) for name, value in outputs.items()
            }
        return outputs

    whole = as_a_whole or is_tpu(strategy)
    return _within(pieces_left_alone if whole else pieces_in_inference, step)


def _within(scope: Callable[[], Any], function: Callable) -> Callable:
    """The function, traced and called within a scope of `bert_tf.modeling.fused`."""

    def call(*args: Any) -> Any:
        with scope():
            return function(*args)

    return call


def _accumulated(
    gradients_of: Callable[[Records], tuple[list[tf.Tensor], Sums]],
    batch: Records,
    num_micro_batches: int,
) -> tuple[list[tf.Tensor], Sums]:
    """The sums over micro-batches, of which only one is in memory at a time."""
    pieces = {
        name: tf.reshape(value, (num_micro_batches, -1, *value.shape[1:]))
        for name, value in batch.items()
    }
    totals = gradients_of({name: value[0] for name, value in pieces.items()})

    def add(number, totals):
        more = gradients_of({name: value[number] for name, value in pieces.items()})
        return number + 1, tf.nest.map_structure(tf.add, totals, more)

    _, totals = tf.while_loop(
        lambda number, _: number < num_micro_batches,
        add,
        (tf.constant(1), totals),
        parallel_iterations=1,
        maximum_iterations=num_micro_batches - 1,
    )
    return totals


def _total(means: Mapping[str, Mean], weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """The sum of the losses, each divided by the weight of the whole batch."""
    values = [means[name].value(weight) for name, weight in weights.items()]
    return tf.reduce_sum(tf.stack(values))  # an order of its own, unlike add_n


def _num_tokens(batch: Records) -> tf.Tensor:
    """How many tokens of a batch are not padding; 0 if it has none."""
    if "input_mask" not in batch:
        return tf.constant(0.0)
    return tf.cast(tf.reduce_sum(batch["input_mask"]), tf.float32)


def _num_sequences(batch: Records) -> tf.Tensor:
    """How many sequences a batch has: one per row, unless rows are packed."""
    if "next_sentence_weights" in batch:
        return tf.reduce_sum(batch["next_sentence_weights"])
    return tf.constant(float(next(iter(batch.values())).shape[0]))


def _stack(mean: Mean) -> tf.Tensor:
    return tf.stack([tf.cast(mean.total, tf.float32), tf.cast(mean.weight, tf.float32)])
