"""A task as data: a model and its objective. The engine knows nothing else of it."""

import dataclasses
from collections.abc import Callable

import keras

from bert_tf.modeling.objectives import Objective


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task, for the engine in `bert_tf.training`."""

    name: str  # for messages and file names
    # Makes the model with its initial weights; called under the strategy's scope.
    build_model: Callable[[], keras.Model]
    objective: Objective  # what training minimises, and what is reported
    # Prefixes of the names of weights that no loss or metric depends on: a checkpoint
    # without them can be evaluated.
    unmeasured: tuple[str, ...] = ()
