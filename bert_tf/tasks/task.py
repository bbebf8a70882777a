"""The interfaces of the runner: a run of any kind, and a fine-tuning task."""

import abc
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import keras
import numpy as np

from bert_tf.base.config import SINGLE_LABEL
from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.modeling.objectives import Objective
from bert_tf.records.batching import ExampleTable, Predict
from bert_tf.tasks.run_options import RunResult
from bert_tf.training import run_folder
from bert_tf.training.events import asked_for
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import Strategy

TRAIN = "train"

P = TypeVar("P")  # the predictions of a split


class Run(abc.ABC):
    """A command's work in its output_dir; making one checks all input."""

    options: Any
    strategy: Strategy

    def main(self) -> RunResult:
        """Trains or restores, then evaluates and predicts, as the options ask."""
        asked_for(self.options)  # raises InputError now if something is missing
        if self.options.do_train:
            with run_folder.held_for_training(self.options.output_dir, self.strategy):
                self.first_stages()
                model, step = self.train()
        else:
            model, step = self.restore()
        results = self.report(model, step).items()
        scores = {name: float(value) for name, value in results}
        return RunResult(scores, self.options.output_dir)

    @abc.abstractmethod
    def first_stages(self) -> None:
        """Trains the stages before the run, if any, which it then starts from."""

    @abc.abstractmethod
    def train(self) -> tuple[keras.Model, int]:
        """The trained model and its step, resuming where an earlier start ended."""

    @abc.abstractmethod
    def restore(self) -> tuple[keras.Model, int]:
        """The last checkpoint's model, or else the one to start from, and its step."""

    @abc.abstractmethod
    def report(self, model: keras.Model, step: int) -> Mapping[str, float]:
        """Evaluates and predicts as the options ask; writes and returns the results."""


class FineTuningTask(abc.ABC, Generic[P]):
    """A model, its examples, and what its predictions are worth.

    It is made of a command's options, the model's files and the strategy, reads and
    checks every input when it is made, and so before anything is written or trained. A
    split is "train", or one of `dev_splits` and `test_splits`.
    """

    name: str
    head: str  # of `bert_tf.conversion.names.HEADS`
    dev_splits: Sequence[str] = ("dev",)  # a run is evaluated on the first one
    test_splits: Sequence[str] = ("test",)
    metrics: Sequence[str]  # the names that `score` gives
    metric: str  # the one by which the best run is chosen
    labels: Sequence[str] | None = None  # as a run's folder records them
    problem_type: str = SINGLE_LABEL  # likewise
    # The names in eval_results.txt that differ from the metrics'.
    result_names: Mapping[str, str] = {}
    keeps_results: ClassVar[bool] = False  # of the same step, by earlier commands
    is_restorable: ClassVar[bool] = True  # whether an `init_checkpoint` is evaluated

    @abc.abstractmethod
    def build_model(self) -> keras.Model:
        """The model with its initial weights; called under the strategy's scope."""

    @abc.abstractmethod
    def make_records(self, split: str) -> ExampleTable:
        """The examples of a split as the model reads them."""

    @abc.abstractmethod
    def predict(self, split: str, outputs: Predict) -> P:
        """The predictions of a split, from the model's outputs for its batches."""

    @abc.abstractmethod
    def score(self, split: str, predictions: P) -> dict[str, float]:
        """The losses and metrics of predictions; {} without labels."""

    @abc.abstractmethod
    def write(self, folder: str, split: str, predictions: P, step: int) -> None:
        """Writes the predictions of a checkpoint; only the chief is asked."""

    @abc.abstractmethod
    def data(self) -> RunData:
        """The training set, as a run's folder records it."""

    @abc.abstractmethod
    def identity(self, split: str) -> str:
        """A digest of a split's examples, and of how they are read."""

    def records(self, split: str) -> ExampleTable:
        """Returns the result of `make_records`, which is called once per split."""
        if split not in self._records:
            self._records[split] = self.make_records(split)
        return self._records[split]

    @functools.cached_property
    def _records(self) -> dict[str, ExampleTable]:
        return {}

    @property
    def trains_task(self) -> str | None:
        """The task whose run a folder must hold; None for any."""
        return self.name

    @property
    def objective(self) -> Objective:
        """The losses to minimise, and the metrics to report: the head's."""
        return names.HEADS[self.head].code("objective")

    def num_examples(self) -> int | None:
        """How many examples an epoch has; None: one per record."""
        return None

    def baseline(self, split: str, metric: str) -> float | None:
        """The score of always answering the same, if that is known."""
        return None

    def class_counts(self) -> np.ndarray | None:
        """How many training examples each class has; None without classes."""
        return None

    def summary(self, folder: str, results: Mapping[str, float]) -> Sequence[str]:
        """Returns lines to log after training: data, scores, the next commands."""
        return ()

    def prepare(self, folder: str) -> None:
        """Writes the task's own files; InputError if there are another one's."""

    def first_stage(self, model_files: ModelFiles, strategy: Strategy) -> str | None:
        """Trains an earlier stage; returns the folder that the run starts from."""
        return None
