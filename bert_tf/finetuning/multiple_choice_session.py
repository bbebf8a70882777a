"""The runs on multiple choice: examples in, scores of their endings out."""

import os
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf
from absl import flags, logging

from bert_tf.conversion import names
from bert_tf.finetuning.scoring import EXAMPLE_LOSS, LOSS, scores
from bert_tf.finetuning.task_session import TaskSession
from bert_tf.records.batching import SplitRecords, rows_digest
from bert_tf.tasks import multiple_choice
from bert_tf.tasks.choices import ChoiceSet
from bert_tf.training.finetuning import finetune
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import num_workers

ACCURACY = "accuracy"
METRICS = (LOSS, EXAMPLE_LOSS, ACCURACY)

# A split's records, under the original's names.
_RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}


class MultipleChoiceSession(TaskSession):
    """The runs on SWAG, or on any examples of multiple choice.

    Attributes:
        sets: the examples, by split.
    """

    head = names.MULTIPLE_CHOICE

    def __init__(
        self,
        flag_values: flags.FlagValues,
        strategy: tf.distribute.Strategy,
        *,
        sets: Mapping[str, ChoiceSet],
        output_dir: str,
    ) -> None:
        super().__init__(flag_values, strategy, output_dir=output_dir)
        self.sets = sets
        self.task = multiple_choice.task(self.config, recompute=flag_values.recompute)
        self._records: dict[str, SplitRecords] = {}
        self.refuse_other_metrics(METRICS)

    def fine_tune(self, folder: str) -> tuple[keras.Model, int]:
        """Trains in a folder, from where that stands."""
        examples = self.sets["train"].examples
        where = self._flags.tfds_name or self._flags.train_file
        data = RunData(f"{len(examples)} examples of {where}", self._digest("train"))
        self.prepare(folder, data)
        return finetune(
            self.task,
            self.records("train"),
            self._flags,
            self.strategy,
            folder=folder,
            data=data,
            num_train_epochs=self._flags.num_train_epochs,
            max_lengths=self.max_lengths,
            evaluate=self._evaluate if self._flags.eval_steps else None,
            best_metric=self._flags.best_metric or ACCURACY,
        )

    def records(self, split: str) -> SplitRecords:
        """A split's records, tokenized once, in --output_dir."""
        if split not in self._records:
            self._records[split] = self._tokenized(split)
        return self._records[split]

    def logits(self, model: keras.Model, split: str) -> np.ndarray:
        """The endings' scores, [examples, endings] float32, in the examples' order."""
        batch_size = (
            self._flags.predict_batch_size
            if split == "test"
            else self._flags.eval_batch_size
        )
        return self.logits_of(
            model,
            self.records(split),
            batch_size=batch_size,
            num_outputs=self.sets[split].target.num_outputs,
        )

    def scores(
        self, model: keras.Model, split: str, logits: np.ndarray | None = None
    ) -> dict[str, float]:
        """A split's losses and accuracy: see `bert_tf.finetuning.scoring.scores`."""
        if logits is None:
            logits = self.logits(model, split)
        examples, target = self.sets[split]
        return scores(
            examples,
            target,
            logits,
            objective=self.task.objective,
            metric_names=[ACCURACY],
            batch_size=self._flags.eval_batch_size,
        )

    def _evaluate(self, model: keras.Model) -> Mapping[str, float]:
        return self.scores(model, "dev")

    def _digest(self, split: str) -> str:
        # Not the line: the same rows in another file are the same.
        return rows_digest(one[:-1] for one in self.sets[split].examples)

    def _tokenized(self, split: str) -> SplitRecords:
        examples, target = self.sets[split]
        length = self._flags.max_seq_length
        featurizer = multiple_choice.Featurizer(
            self.tokenizer, max_seq_length=length, target=target
        )
        records = SplitRecords.prepare(
            os.path.join(self._flags.output_dir, f"{_RECORD_NAMES[split]}.tf_record"),
            multiple_choice.schema(target, length),
            {
                **featurizer.settings,
                "examples": self._digest(split),
            },
            featurizer.blocks(examples),
            lambda: {"num_truncated": featurizer.num_truncated},
            is_alone=num_workers(self.strategy) == 1,
        )
        cut = records.notes["num_truncated"]
        if cut:
            logging.info(
                "%d of %d %s examples have a choice that was longer than"
                " --max_seq_length=%d and cut.",
                cut,
                len(examples),
                split,
                length,
            )
        return records
