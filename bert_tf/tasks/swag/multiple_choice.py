"""SWAG and other multiple choice: which of several endings goes with a premise.

Devlin et al. 2018, section 4.4: each ending makes a sequence of its own, [CLS] premise
[SEP] ending [SEP]; the product of its [CLS]'s output and one vector is the ending's
score, with a softmax over the endings. As in the paper, the common beginning of all
endings stands before each of them. Here [CLS]'s output has passed through the pooler,
as in the original's classifier.
"""

import csv
import dataclasses
import io
import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.base import files
from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.modeling.heads import BertMultipleChoice
from bert_tf.tasks import finetuning, tables
from bert_tf.tasks.classification import MEAN_LOSS, LabelledTask
from bert_tf.tasks.metrics import LOSS
from bert_tf.tasks.reports import prediction_cells, write_probabilities
from bert_tf.tasks.run_options import sources
from bert_tf.tasks.swag.choices import (
    ChoiceExample,
    ChoiceFeaturizer,
    ChoiceLayout,
    read_choices,
)
from bert_tf.tasks.swag.multiple_choice_options import ChoiceOptions


def write_choices(
    path: str,
    examples: Sequence[ChoiceExample],
    target: tables.Target,
    logits: np.ndarray,
) -> None:
    """Writes the table of the predictions, as CSV with a header.

    index       the example's number in its file, from 0
    label       the right ending's label as in the file; empty if there is none
    prediction  the predicted ending's label
    correct     1 or 0; empty if there is no label
    p_LABEL     each ending's probability
    premise, start, ending_LABEL    the texts
    """
    header, *cells = prediction_cells(examples, target, logits)
    endings = [f"ending_{label}" for label in target.labels]
    table = [[*header, "premise", "start", *endings]]
    for row, one in zip(cells, examples, strict=True):
        table.append([*row, one.premise, one.start, *one.endings])
    content = io.StringIO(newline="")
    csv.writer(content, lineterminator="\n").writerows(table)
    files.write_atomically(path, content.getvalue())
    logging.info("Wrote %d predictions to %s.", len(examples), path)


ACCURACY = "accuracy"


class ChoiceTask(LabelledTask):
    """Multiple choice: the right ending of every example."""

    name = "swag"
    head = names.MULTIPLE_CHOICE
    metrics = (LOSS, MEAN_LOSS, ACCURACY)
    metric = ACCURACY
    result_names: Mapping[str, str] = {ACCURACY: f"eval_{{}}{ACCURACY}"}

    def __init__(
        self,
        options: ChoiceOptions,
        model_files: ModelFiles,
        strategy: tf.distribute.Strategy,
    ) -> None:
        del strategy
        fields = [field.name for field in dataclasses.fields(ChoiceLayout)]
        layout = ChoiceLayout(**{name: getattr(options, name) for name in fields})
        sets = {
            split: read_choices(source, layout, has_labels=split != "test")
            for split, source in sources(options)
        }
        self.options, self.config = options, model_files.config
        self.examples = {split: each.examples for split, each in sets.items()}
        self.featurizers = {
            split: ChoiceFeaturizer(
                model_files.tokenizer,
                max_seq_length=options.max_seq_length,
                target=each.target,
            )
            for split, each in sets.items()
        }
        self.where = options.tfds_name or options.train_file
        self._built = finetuning.model_options(options, model_files.config)

    def build_model(self) -> BertMultipleChoice:
        """Returns a model that gives one number per choice."""
        return BertMultipleChoice(self.config, **self._built)

    def write(self, folder: str, split: str, logits: np.ndarray, step: int) -> None:
        """Writes the predictions' table; for a test set the original's file too."""
        del step
        target = self.featurizers[split].target
        name = "dev_predictions.csv"
        if split == "test":
            name = "swag_predictions.csv"
            path = os.path.join(folder, "test_results.tsv")
            write_probabilities(path, target, logits)
        path = os.path.join(folder, name)
        write_choices(path, self.examples[split], target, logits)
