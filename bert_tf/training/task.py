"""The inputs of the engine: a task as data, and the phases of a run."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.modeling.objectives import Objective
from bert_tf.records.pipeline import InputShard

# Position in the records, a worker's rows -> endless batches from there on.
TrainingData = Callable[[int, InputShard], tf.data.Dataset]

# Model -> metrics on held-out records.
Evaluate = Callable[[keras.Model], Mapping[str, float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task, for the engine in `bert_tf.training`."""

    name: str  # for messages and file names
    # Makes the model with its initial weights; called under the strategy's scope.
    build_model: Callable[[], keras.Model]
    objective: Objective  # the losses to minimise, and the metrics to report
    # Prefixes of the names of weights that no loss or metric depends on: a checkpoint
    # without them can be evaluated.
    unmeasured: tuple[str, ...] = ()
    # Returns the layer that is trained in place of the model: with more outputs, their
    # `objective`, a `state` to save, and `begin`, called when the model has its first
    # weights (`bert_tf.addons.methods.regularization`). None: the model itself.
    in_training: Callable[[keras.Model], Any] | None = None
    # Called with a model that has its first weights, before the first step.
    begin: Callable[[keras.Model], None] | None = None


ENDLESS = 2**31 - 1  # the last step of a phase whose end a time limit decides


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a run with its own records, length and batch size."""

    end_step: int  # its last step, counted from the run's first start
    batch_size: int  # sequences per step, over all devices
    # The records: a stream for each shape of batch, and which of them the next batch
    # comes from, by the number of records read.
    streams: Sequence[TrainingData]
    stream_of: Callable[[int], int] = lambda position: 0
    # Identifies sets of records, so that a run can check whether the records that it
    # has read are of this set; 0 if unknown.
    data_id: int = 0
    data_was: Sequence[int] = ()  # its numbers by earlier versions
    evaluate: Evaluate | None = None  # what to do every `eval_steps`
    evaluates_before: bool = False  # and whether to do it before the first step
    # Sequences that it reads, and whether the run ends with one more evaluation: a
    # training of so many hours leaves time for them.
    num_evaluated: int = 0
    evaluates_afterwards: bool = False
    # The best checkpoint is the best of evaluations on the same data.
    evaluation_id: int = 0
    evaluation_was: Sequence[int] = ()
    name: str = ""
