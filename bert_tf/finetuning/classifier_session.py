"""What all runs on one task share: its examples, their records, the model's files.

A session reads and checks every input before anything is written or trained. A run is
then a call: `fine_tune` in a folder, `logits` and `scores` of a split.
"""

import os
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import flags, logging

from bert_tf.conversion import names
from bert_tf.conversion.adapter_files import AdapterFiles, write_adapter
from bert_tf.conversion.source import Source
from bert_tf.errors import InputError
from bert_tf.finetuning.model_options import (
    is_parameter_efficient,
    model_options,
    opened_adapter,
)
from bert_tf.finetuning.reports import write_reports
from bert_tf.finetuning.scoring import EXAMPLE_LOSS, LOSS, scores
from bert_tf.finetuning.settings import Settings, settings_from_flags
from bert_tf.finetuning.task_session import TaskSession
from bert_tf.records.batching import SplitRecords, rows_digest
from bert_tf.tasks import classification
from bert_tf.tasks.data_set import DataSet
from bert_tf.tasks.examples import Example
from bert_tf.tasks.targets import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Target
from bert_tf.tasks.windows import average_windows
from bert_tf.training import run_folder
from bert_tf.training.finetuning import finetune
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import num_workers

# A split's records, under the original's names where it has one.
_RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}


class ClassifierSession(TaskSession):
    """The runs on sentences and sentence pairs.

    Attributes:
        data_set: what the task's files are.
        target: what the model predicts.
        examples: by split.
    """

    head = names.CLASSIFIER

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
        super().__init__(flag_values, strategy, output_dir=output_dir)
        self.data_set = data_set
        self._records_dir = records_dir
        adapter = opened_adapter(flag_values, self.config)
        trained = adapter or self.source
        self.target = self._target(output_dir, trained)
        self.refuse_other_metrics([LOSS, EXAMPLE_LOSS, *self._metrics])
        if trained is not None and flag_values.init_head:
            self._refuse_other_head(trained)
        self.examples: dict[str, list[Example]] = {
            split: data_set.read(flag_values.data_dir, split) for split in splits
        }
        for examples in self.examples.values():
            classification.check_labels(examples, self.target)
        self._options = model_options(flag_values, adapter)
        self.task = classification.task(
            self.config,
            self.target,
            data_set.name,
            recompute=flag_values.recompute,
            **self._options,
        )
        self._records: dict[str, SplitRecords] = {}

    def fine_tune(
        self, folder: str, settings: Settings | None = None, *, until: float = 1.0
    ) -> tuple[keras.Model, int]:
        """A run: trains in a folder, from where that stands."""
        data = self._run_data()
        self.prepare(folder, data)
        values = settings or settings_from_flags(self._flags)[0]
        model, step = finetune(
            self.task,
            self.records("train"),
            self._flags,
            self.strategy,
            folder=folder,
            data=data,
            max_lengths=self.max_lengths,
            until=until,
            evaluate=self._evaluate if self._flags.eval_steps else None,
            best_metric=self._flags.best_metric or self.data_set.metrics[0],
            **values._asdict(),
        )
        self.save_adapter(model, folder)
        return model, step

    def save_adapter(self, model: keras.Model, folder: str) -> None:
        """Writes what LoRA or adapters have learnt; nothing if all is trained."""
        if is_parameter_efficient(self._options) and self.is_chief:
            write_adapter(
                folder,
                model,
                labels=self.target.labels,
                problem_type=self.target.kind,
            )

    def records(self, split: str) -> SplitRecords:
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
        logits = self.logits_of(
            model, records, batch_size=batch_size, num_outputs=self.target.num_outputs
        )
        counts = records.notes["window_counts"]
        return average_windows(logits, counts) if counts else logits

    def scores(
        self, model: keras.Model, split: str, logits: np.ndarray | None = None
    ) -> dict[str, float]:
        """A split's losses and metrics: see `bert_tf.finetuning.scoring.scores`."""
        if logits is None:
            logits = self.logits(model, split)
        return scores(
            self.examples[split],
            self.target,
            logits,
            objective=self.task.objective,
            metric_names=self._metrics,
            batch_size=self._flags.eval_batch_size,
        )

    def write_reports(self, split: str, logits: np.ndarray) -> None:
        """Writes a split's predictions, plots and mistakes to --output_dir."""
        if self.is_chief:
            write_reports(
                self._flags.output_dir,
                split,
                self.examples[split],
                self.target,
                logits,
                task_name=self.task.name,
                class_names=self.data_set.class_names,
                plots=self._flags.plots,
                num_mistakes=self._flags.num_mistakes,
            )

    @property
    def _metrics(self) -> list[str]:
        """The data set's metrics; the accuracy, which the original reports, always."""
        original = ["accuracy"] if self.target.kind == SINGLE_LABEL else []
        return list(dict.fromkeys([*self.data_set.metrics, *original]))

    def _evaluate(self, model: keras.Model) -> Mapping[str, float]:
        return self.scores(model, self.data_set.dev_splits[0])

    @property
    def trains_task(self) -> str | None:
        """The name of the task whose run a folder must hold.

        A data set without a training set, GLUE's AX, is predicted by another's model.
        """
        return self.data_set.name if "train" in self.data_set.splits else None

    def prepare(self, folder: str, data: RunData | None = None) -> None:
        """Makes a run's folder, and records its labels there."""
        described = self.target.labels, self.target.kind
        run_folder.refuse_other_labels(folder, *described)
        super().prepare(folder, data)
        run_folder.check_labels(folder, *described)

    def _run_data(self) -> RunData:
        """The training set, as a run's folder records it."""
        if self.data_set.is_from_tfds:
            where = self._flags.tfds_name
        else:
            where = self.data_set.path(self._flags.data_dir, "train")
        return RunData(
            f"{len(self.examples['train'])} examples of {where}", self._digest("train")
        )

    def _digest(self, split: str) -> str:
        return rows_digest(
            (one.text_a, one.text_b, one.label) for one in self.examples[split]
        )

    def _target(self, output_dir: str, trained: Source | AdapterFiles | None) -> Target:
        """What the model predicts.

        Where nothing is trained, a table's classes are those that the run recorded, or
        that the checkpoint was trained with, so that prediction needs no training file.
        """
        data_set = self.data_set
        if data_set.labels is None and not self._flags.do_train:
            recorded = run_folder.recorded_labels(output_dir)
            labels = recorded or (trained.labels if trained else None)
            if labels:
                return data_set.target(tuple(labels))
        return data_set.read_target(self._flags.data_dir)

    def _refuse_other_head(self, trained: Source | AdapterFiles) -> None:
        """Raises InputError if a trained head predicts something else."""
        if isinstance(trained, AdapterFiles):
            kind: str | None = trained.problem_type
        else:
            kind = trained.classifier_problem_type()
        if kind is None:
            return
        target = self.target
        # Labels without names are of the same number, or their weights will not fit.
        labels = target.labels if trained.labels is None else trained.labels
        if (kind, labels) == (target.kind, target.labels):
            return
        raise InputError(
            f"{trained.path} has a head that predicts {_described(kind, labels)}; this"
            f" task's predicts {_described(target.kind, target.labels)}."
            " --init_head=false begins with a new head."
        )

    def _tokenized(self, split: str) -> SplitRecords:
        examples = self.examples[split]
        length = self._flags.max_seq_length
        featurizer = classification.Featurizer(
            self.tokenizer,
            max_seq_length=length,
            target=self.target,
            windows=self._flags.long_text == "window",
            doc_stride=self._flags.doc_stride,
        )
        records = SplitRecords.prepare(
            os.path.join(
                self._records_dir, f"{_RECORD_NAMES.get(split, split)}.tf_record"
            ),
            classification.schema(self.target, length),
            {
                **featurizer.settings,
                "examples": self._digest(split),
            },
            featurizer.blocks(examples),
            lambda: {
                "num_truncated": featurizer.num_truncated,
                "window_counts": featurizer.window_counts,
            },
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
        if records.num_records > len(examples):
            logging.info(
                "%d %s examples are read in %d windows.",
                len(examples),
                split,
                records.num_records,
            )
        return records


def _described(kind: str, labels: Sequence[str]) -> str:
    """What is predicted, for messages."""
    if kind == REGRESSION:
        return ", ".join(labels) or "a number"
    return f"{'any' if kind == MULTI_LABEL else 'one'} of {', '.join(labels)}"
