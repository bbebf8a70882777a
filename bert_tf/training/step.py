"""One training step and one evaluation step, the same mathematics on any strategy.

The loss is a sum of weighted means, each divided by the weight of the *global* batch.
Gradients are summed over the replicas, then clipped once by their global norm, then
applied once.
"""

from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from bert_tf.modeling.objectives import Mean, Records
from bert_tf.optimization.gradients import clip_by_global_norm
from bert_tf.task import Task

# Devlin et al. 2018's code: "This is how the model was pre-trained."
GLOBAL_CLIP_NORM = 1.0

Sums = dict[str, tf.Tensor]  # name -> [total, weight], float32
TOTAL_LOSS = "loss"


def names_of_sums(task: Task) -> list[str]:
    """The names that a step reports."""
    return [TOTAL_LOSS, *task.objective.losses, *task.objective.metrics]


def training_steps(
    task: Task,
    model: keras.Model,
    optimizer: keras.Optimizer,
    strategy: tf.distribute.Strategy,
) -> Callable[[Iterator[Records], tf.Tensor], Sums]:
    """A compiled function that makes several training steps in one call.

    Args:
        task: the losses and metrics.
        model: the model, built under the strategy's scope.
        optimizer: its optimizer, built under the strategy's scope.
        strategy: the devices.

    Returns:
        (iterator of batches, int32 number of steps) -> the sums of the steps' metrics:
        name -> [total, weight]. `loss` is the sum of the steps' losses and their
        number.
    """
    num_replicas = strategy.num_replicas_in_sync
    variables = model.trainable_variables
    objective = task.objective

    def replica_step(batch: Records) -> Sums:
        replica = tf.distribute.get_replica_context()

        def over_replicas(tensors):
            if num_replicas == 1:
                return tensors
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

        with tf.GradientTape() as tape:
            outputs = model(batch, training=True)
            means = objective.means(batch, outputs)
            terms = [means[name] for name in objective.losses]
            weights = over_replicas([term.weight for term in terms])
            loss = tf.add_n(
                [
                    term.value(weight)
                    for term, weight in zip(terms, weights, strict=True)
                ]
            )
        gradients = [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(loss, [v.value for v in variables])
        ]
        gradients = over_replicas(gradients)
        gradients = clip_by_global_norm(gradients, GLOBAL_CLIP_NORM)
        # Keras' optimizer sums over the replicas once more.
        optimizer.apply([gradient / num_replicas for gradient in gradients], variables)
        return {
            TOTAL_LOSS: tf.stack([loss, 1.0 / num_replicas]),
            **{name: _stack(mean) for name, mean in means.items()},
        }

    @tf.function(reduce_retracing=True)
    def steps(iterator: Iterator[Records], num_steps: tf.Tensor) -> Sums:
        sums = {name: tf.zeros([2]) for name in names_of_sums(task)}
        for _ in tf.range(num_steps):
            per_replica = strategy.run(replica_step, args=(next(iterator),))
            sums = {
                name: total
                + strategy.reduce(
                    tf.distribute.ReduceOp.SUM, per_replica[name], axis=None
                )
                for name, total in sums.items()
            }
        return sums

    return steps


def evaluation_step(task: Task, model: keras.Model) -> Callable[[Records], Sums]:
    """A compiled function: batch -> the sums of its losses and metrics.

    `loss` is the batch's total loss with weight 1: the original averages batch losses.
    """

    @tf.function(reduce_retracing=True)
    def step(batch: Records) -> Sums:
        outputs = model(batch, training=False)
        means = task.objective.means(batch, outputs)
        loss = tf.add_n([means[name].value() for name in task.objective.losses])
        return {
            TOTAL_LOSS: tf.stack([loss, 1.0]),
            **{name: _stack(mean) for name, mean in means.items()},
        }

    return step


def _stack(mean: Mean) -> tf.Tensor:
    return tf.stack([tf.cast(mean.total, tf.float32), tf.cast(mean.weight, tf.float32)])
