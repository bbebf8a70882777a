"""A task as data: a model and its objective. The engine knows nothing else of it."""

import dataclasses
from collections.abc import Callable, Mapping

import keras

from bert_tf.modeling.objectives import Objective


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task, for the engine in `bert_tf.training`.

    Attributes:
        name: for messages and file names.
        build_model: makes the Keras model with its initial weights; called under the
            distribution strategy's scope.
        objective: what training minimises, and what is reported.
        training_flops: the shapes of a batch's arrays -> FLOPs of one training step on
            it, as `bert_tf.training.throughput` counts them; None if not available.
        unmeasured: prefixes of the names of weights that no loss or metric depends on:
            a checkpoint without them can be evaluated.
    """

    name: str
    build_model: Callable[[], keras.Model]
    objective: Objective
    training_flops: Callable[[Mapping[str, tuple[int, ...]]], float] | None = None
    unmeasured: tuple[str, ...] = ()
