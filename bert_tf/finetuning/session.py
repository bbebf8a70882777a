"""What all runs on one task share: its examples, their records, the model's files.

A session reads and checks every input before anything is written or trained. A run is
then a call: `fine_tune` in a folder, `logits` and `scores` of a split.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import flags, logging

from bert_tf import flags as shared_flags
from bert_tf.conversion.model_files import model_files
from bert_tf.errors import DivergedError, InputError
from bert_tf.finetuning.settings import Settings
from bert_tf.metrics import glue as metrics
from bert_tf.modeling.objectives import Objective
from bert_tf.records.example_table import ROWS
from bert_tf.records.schema import classifier_schema
from bert_tf.task import Task
from bert_tf.tasks import classification
from bert_tf.tasks.examples import Example
from bert_tf.tasks.glue import DataSet
from bert_tf.tasks.targets import Target
from bert_tf.text.wordpiece import WordPieceTokenizer
from bert_tf.training import run_folder
from bert_tf.training.evaluation import Predictor
from bert_tf.training.finetuning import RecordSet, finetune
from bert_tf.training.loop import restore_or_initialize
from bert_tf.training.strategy import is_chief, num_workers

# A split's records, under the original's names where it has one.
_RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}
LOSS = "loss"
EXAMPLE_LOSS = "eval_loss"


class Session:
    """The runs on one task.

    Args:
        flag_values: the script's flags: the model, lengths, batches, how to train.
        strategy: the devices.
        data_set: what the task's files are.
        splits: those to read.
        records_dir: where the tokenized records are kept, for all runs.
        output_dir: where a run may have recorded its labels.

    Attributes:
        data_set: what the task's files are.
        target: what the model predicts.
        examples: by split.
        strategy: the devices.

    Raises:
        InputError: an input is missing or does not fit.
    """

    def __init__(
        self,
        flag_values: flags.FlagValues,
        strategy: tf.distribute.Strategy,
        *,
        data_set: DataSet,
        splits: Sequence[str],
        records_dir: str,
        output_dir: str,
    ) -> None:
        self.data_set = data_set
        self.strategy = strategy
        self._flags = flag_values
        self._records_dir = records_dir
        self._config, self._vocabulary, self._do_lower_case, source = model_files(
            flag_values.init_checkpoint,
            bert_config_file=flag_values.bert_config_file,
            vocab_file=flag_values.vocab_file,
            do_lower_case=shared_flags.given(flag_values, "do_lower_case"),
            output_dir=output_dir,
        )
        self._config.check_sequence_length(flag_values.max_seq_length)
        trained_labels = source.labels if source else None
        self.target = self._target(output_dir, trained_labels)
        self._refuse_other_head(trained_labels)
        self.examples: dict[str, list[Example]] = {
            split: data_set.read(flag_values.data_dir, split) for split in splits
        }
        for examples in self.examples.values():
            classification.check_labels(examples, self.target)
        self.task: Task = classification.task(
            self._config,
            self.target,
            data_set.name,
            recompute=flag_values.recompute,
        )
        self._tokenizer = WordPieceTokenizer(
            self._vocabulary, do_lower_case=self._do_lower_case
        )
        self._records: dict[str, RecordSet] = {}
        self._predictor: tuple[keras.Model, Predictor] | None = None

    def fine_tune(
        self, folder: str, settings: Settings | None = None, *, until: float = 1.0
    ) -> tuple[keras.Model, int]:
        """A run: trains in a folder, from where that stands.

        Args:
            folder: the run's output_dir.
            settings: what this run differs in; None for the flags' values.
            until: the share of the steps to make now, of the whole run's schedule.

        Returns:
            The model, and the number of steps that it was trained for.
        """
        self._prepare(folder)
        values = settings or Settings(
            self._flags.learning_rate,
            self._flags.train_batch_size,
            self._flags.num_train_epochs,
            self._flags.random_seed,
        )
        return finetune(
            self.task,
            self.records("train"),
            self._flags,
            self.strategy,
            folder=folder,
            max_lengths=self._max_lengths,
            until=until,
            evaluate=self._evaluate if self._flags.eval_steps else None,
            best_metric=self._best_metric,
            **values._asdict(),
        )

    def restore(self, folder: str) -> tuple[keras.Model, int]:
        """The model of a folder's last checkpoint, or else of --init_checkpoint."""
        self._prepare(folder)
        return restore_or_initialize(
            self.task,
            folder,
            self._flags.init_checkpoint,
            self._flags.precision,
            self.strategy,
        )

    def records(self, split: str) -> RecordSet:
        """A split's records, tokenized once."""
        if split not in self._records:
            self._records[split] = self._tokenized(split)
        return self._records[split]

    def logits(self, model: keras.Model, split: str) -> np.ndarray:
        """The model's outputs, [N, C] float32, in the order of the examples."""
        batch_size = (
            self._flags.predict_batch_size
            if split in self.data_set.test_splits
            else self._flags.eval_batch_size
        )
        records = self.records(split)
        if self._predictor is None or self._predictor[0] is not model:
            self._predictor = (
                model,
                Predictor(
                    self.task, model, self.strategy, jit_compile=self._flags.jit_compile
                ),
            )
        logits = np.zeros([records.num_records, self.target.num_outputs], np.float32)
        for batch, outputs in self._predictor[1].run(
            records.batches(batch_size, self._max_lengths),
            total_batches=records.num_batches(batch_size),
        ):
            is_real = batch[ROWS] >= 0
            logits[batch[ROWS][is_real]] = outputs["logits"][is_real]
        return logits

    def scores(
        self, model: keras.Model, split: str, logits: np.ndarray | None = None
    ) -> dict[str, float]:
        """A split's losses and metrics.

        Args:
            model: the model.
            split: one with labels.
            logits: those of `self.logits`, where they are known already.

        Returns:
            `eval_loss`, the mean over the examples; `loss`, the mean over the means of
            batches of --eval_batch_size, as the original reports it; and the data set's
            metrics.

        Raises:
            InputError: the loss is not finite.
        """
        if logits is None:
            logits = self.logits(model, split)
        labels = np.array(
            [self.target.encode(e.label, e.source) for e in self.examples[split]]
        )
        size = self._flags.eval_batch_size
        starts = range(0, len(labels), size)
        loss = _mean_loss(self.task.objective, logits, labels)
        if not np.isfinite(loss):
            raise DivergedError(
                "The loss on the evaluation data is not finite: the model's weights are"
                " too large to be of use. Train again with a lower --learning_rate."
            )
        of_batches = [
            _mean_loss(
                self.task.objective,
                logits[start : start + size],
                labels[start : start + size],
            )
            for start in starts
        ]
        return {
            LOSS: float(np.mean(of_batches)),
            EXAMPLE_LOSS: loss,
            **metrics.scores(
                self.data_set.metrics,
                self.target.predictions(logits),
                labels[:, 0] if labels.shape[1] == 1 else labels,
            ),
        }

    @property
    def _max_lengths(self) -> int | None:
        return None if self._flags.pad == "max" else self._flags.length_buckets

    @property
    def _best_metric(self) -> str:
        """The metric whose best checkpoint is kept."""
        return self._flags.best_metric or self.data_set.metrics[0]

    def _evaluate(self, model: keras.Model) -> Mapping[str, float]:
        return self.scores(model, self.data_set.dev_splits[0])

    def _prepare(self, folder: str) -> None:
        """The run's folder, with all that its checkpoints need beside them."""
        run_folder.prepare(
            folder, self._config, self._vocabulary, self._do_lower_case, self._flags
        )
        run_folder.check_target(folder, self.target)

    def _tokenized(self, split: str) -> RecordSet:
        examples = self.examples[split]
        length = self._flags.max_seq_length
        name = _RECORD_NAMES.get(split, split)
        features = classification.Featurizer(
            self._tokenizer, max_seq_length=length, target=self.target
        )
        records = RecordSet.prepare(
            os.path.join(self._records_dir, f"{name}.tf_record"),
            classifier_schema(length, self.target),
            {
                "vocabulary": self._vocabulary.sha256,
                "do_lower_case": self._do_lower_case,
                "labels": self.target.labels,
                "examples": _digest(examples),
            },
            features(examples),
            lambda: {"num_truncated": features.num_truncated},
            is_alone=num_workers(self.strategy) == 1,
        )
        cut = records.notes["num_truncated"]
        if cut:
            logging.info(
                "%d of %d %s examples were longer than --max_seq_length=%d and cut.",
                cut,
                len(examples),
                split,
                length,
            )
        return records
