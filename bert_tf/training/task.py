"""The inputs of the engine: a task as data, and the phases of a run."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.modeling.objectives import Objective
from bert_tf.records.pipeline import InputShard

# (position in the records, a worker's rows) -> endless batches from there on.
TrainingData = Callable[[int, InputShard], tf.data.Dataset]

# Model -> metrics on held-out records.
Evaluate = Callable[[keras.Model], Mapping[str, float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task of the engine in `bert_tf.training`."""

    name: str  # for messages and file names
    # Builds the model with its initial weights; called under the strategy's scope.
    build_model: Callable[[], keras.Model]
    objective: Objective  # the losses to minimise, and the metrics to report
    # Prefixes of the names of weights that affect no loss or metric: a checkpoint
    # without them can be evaluated.
    unmeasured: tuple[str, ...] = ()
    # Returns the layer that is trained in place of the model: it has more outputs, an
    # `objective`, a `state` to save, and `begin`, called when the model has its first
    # weights (`bert_tf.addons.methods.regularization`). None: the model itself.
    in_training: Callable[[keras.Model], Any] | None = None
    # Called when the model has its first weights, before the first step.
    begin: Callable[[keras.Model], None] | None = None


ENDLESS = 2**31 - 1  # the last step of a phase that ends by a time limit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a run with its own records, length and batch size."""

    end_step: int  # last step, counted from the run's first start
    batch_size: int  # sequences per step, over all devices
    # A stream of records for each shape of batch, and the choice of the next batch's
    # stream by the number of records read.
    streams: Sequence[TrainingData]
    stream_of: Callable[[int], int] = lambda position: 0
    # Identifies sets of records, so that a run can check that the records read so far
    # are of this set; 0 if unknown.
    data_id: int = 0
    data_was: Sequence[int] = ()  # its numbers in earlier versions
    evaluate: Evaluate | None = None  # called every `eval_steps`
    evaluates_before: bool = False  # and before the first step
    # Sequences per evaluation, and whether the run ends with one more: training for a
    # number of hours reserves time for them.
    num_evaluated: int = 0
    evaluates_afterwards: bool = False
    # The best checkpoint is the best of evaluations on the same data.
    evaluation_id: int = 0
    evaluation_was: Sequence[int] = ()
    name: str = ""
