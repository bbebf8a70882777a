"""The interfaces of the runner: a run of any kind, and a fine-tuning task."""

import abc
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import keras
import numpy as np

from bert_tf.base.config import SINGLE_LABEL, BertConfig
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

P = TypeVar("P")  # a split's predictions


class Run(abc.ABC):
    """A command's work in output_dir; construction checks all input."""

    options: Any
    strategy: Strategy

    def main(self) -> RunResult:
        """Trains or restores, then evaluates and predicts, as the options say."""
        asked_for(self.options)  # raises InputError early if something is missing
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
        """Trains the stages, if any, from which the run starts."""

    @abc.abstractmethod
    def train(self) -> tuple[keras.Model, int]:
        """Trains or resumes; returns the trained model and its step."""

    @abc.abstractmethod
    def restore(self) -> tuple[keras.Model, int]:
        """Returns the last checkpoint's model, or the initial one, and its step."""

    @abc.abstractmethod
    def report(self, model: keras.Model, step: int) -> Mapping[str, float]:
        """Evaluates and predicts as the options say; writes and returns the results."""


class FineTuningTask(abc.ABC, Generic[P]):
    """A model, its examples, and the scores of its predictions.

    The constructor takes a command's options, the model's files and the strategy, and
    reads and checks every input, before anything is written or trained. A split is
    "train", or one of `dev_splits` and `test_splits`.
    """

    name: str
    head: str  # in `bert_tf.conversion.names.HEADS`
    config: BertConfig  # the model's
    dev_splits: Sequence[str] = ("dev",)  # a run is evaluated on the first
    test_splits: Sequence[str] = ("test",)
    metrics: Sequence[str]  # the names in the result of `score`
    metric: str  # chooses the best run
    labels: Sequence[str] | None = None  # as recorded in a run's folder
    problem_type: str = SINGLE_LABEL  # likewise
    # The names in eval_results.txt, where they differ from the metrics'.
    result_names: Mapping[str, str] = {}
    keeps_results: ClassVar[bool] = False  # of the same step, by earlier commands
    is_restorable: ClassVar[bool] = True  # whether it evaluates an `init_checkpoint`

    @abc.abstractmethod
    def build_model(self) -> keras.Model:
        """Returns the initial model; called under the strategy's scope."""

    @abc.abstractmethod
    def make_records(self, split: str) -> ExampleTable:
        """Returns a split's examples as the model's input."""

    @abc.abstractmethod
    def predict(self, split: str, outputs: Predict) -> P:
        """Returns a split's predictions, from the model's outputs for its batches."""

    @abc.abstractmethod
    def score(self, split: str, predictions: P) -> dict[str, float]:
        """Returns the losses and metrics of predictions; {} without labels."""

    @abc.abstractmethod
    def write(self, folder: str, split: str, predictions: P, step: int) -> None:
        """Writes a checkpoint's predictions; called on the chief only."""

    @abc.abstractmethod
    def data(self) -> RunData:
        """Returns the training set, as recorded in a run's folder."""

    @abc.abstractmethod
    def identity(self, split: str) -> str:
        """Returns a digest of a split's examples, and of how they are read."""

    def texts(self, split: str) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields each example's texts and place, of a split that is read."""
        yield from ()

    def records(self, split: str) -> ExampleTable:
        """Returns the result of `make_records`, which is called once per split."""
        if split not in self._records:
            self._records[split] = records = self.make_records(split)
            self.config.check_sequences(
                records.spec.max_seq_length, records.num_segments
            )
        return self._records[split]

    @functools.cached_property
    def _records(self) -> dict[str, ExampleTable]:
        return {}

    @property
    def trains_task(self) -> str | None:
        """The task of the run that a folder must hold; None for any."""
        return self.name

    @property
    def objective(self) -> Objective:
        """The losses to minimise, and the metrics to report."""
        return names.HEADS[self.head].code("objective")

    def num_examples(self) -> int | None:
        """Returns the number of examples in an epoch; None: one per record."""
        return None

    def baseline(self, split: str, metric: str) -> float | None:
        """Returns the score of a constant prediction, if known."""
        return None

    def class_counts(self) -> np.ndarray | None:
        """Returns each class's number of training examples; None without classes."""
        return None

    def summary(self, folder: str, results: Mapping[str, float]) -> Sequence[str]:
        """Returns lines to log after training: data, scores, the next commands."""
        return ()

    def prepare(self, folder: str) -> None:
        """Writes the task's own files; InputError if another task's are there."""

    def first_stage(self, model_files: ModelFiles, strategy: Strategy) -> str | None:
        """Trains an earlier stage; returns the folder that the run starts from."""
        return None
