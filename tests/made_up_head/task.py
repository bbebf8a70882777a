"""The task and its command: a table of texts and numbers."""

import os

import numpy as np
import tensorflow as tf

from bert_tf.base import cli, files, options
from bert_tf.base.config import REGRESSION
from bert_tf.base.options import Path, option
from bert_tf.conversion.loading import ModelFiles
from bert_tf.records.batching import ExampleTable, Predict, rows_digest
from bert_tf.tasks import finetuning
from bert_tf.tasks.run_options import FineTuningOptions, RunResult
from bert_tf.tasks.tables import Example, TableSplit, Target
from bert_tf.tasks.task import TRAIN, FineTuningTask
from bert_tf.tasks.text_records import TextFeaturizer
from bert_tf.training.run_folder import RunData
from tests.made_up_head import NORMAL
from tests.made_up_head.model import BertNormal

TARGET = Target(kind=REGRESSION)  # a record's label is a number


class NormalOptions(
    FineTuningOptions, decides="nothing", hides=("do_predict", "class_weights")
):
    """A run on a table."""

    train_file: str | None = option(
        None, "To train on.", path=Path.FILE, needed_for=("do_train",)
    )
    dev_file: str | None = option(
        None, "To evaluate on.", path=Path.FILE, needed_for=("do_eval",)
    )
    text_a_column: str = option("text", "Column of the texts.", decides="reading")
    label_column: str = option("number", "Column of the numbers.", decides="reading")
    max_seq_length: int = options.with_default(FineTuningOptions, "max_seq_length", 32)


class NormalTask(FineTuningTask[np.ndarray]):
    """Predicting a number and its variance."""

    name = "normal"
    head = NORMAL
    metrics = ("loss", "error")
    metric = "loss"

    def __init__(
        self,
        options: NormalOptions,
        model_files: ModelFiles,
        strategy: tf.distribute.Strategy,
    ) -> None:
        del strategy
        self._options, self.config = options, model_files.config
        self._built = finetuning.model_options(options, model_files.config)
        self._featurizer = TextFeaturizer(
            model_files.tokenizer,
            max_seq_length=options.max_seq_length,
            target=TARGET,
        )
        table = TableSplit(text_a=options.text_a_column, label=options.label_column)
        paths = {TRAIN: options.train_file, "dev": options.dev_file}
        wanted = {TRAIN: options.do_train, "dev": options.looks_at_dev}
        self.examples: dict[str, list[Example]] = {
            split: table.read(str(path), TARGET.encode)
            for split, path in paths.items()
            if wanted[split]
        }

    def build_model(self) -> BertNormal:
        """The model."""
        return BertNormal(self.config, **self._built)

    def data(self) -> RunData:
        """The training set."""
        return RunData(self._options.train_file or "", self.identity(TRAIN))

    def identity(self, split: str) -> str:
        """A digest of a split's rows, without their places."""
        return rows_digest(one[:-1] for one in self.examples[split])

    def make_records(self, split: str) -> ExampleTable:
        """The texts and numbers of a split."""
        made_from = {**self._featurizer.settings, "examples": self.identity(split)}
        blocks = self._featurizer.blocks(self.examples[split])
        return ExampleTable(blocks, self._featurizer.spec, made_from)

    def predict(self, split: str, outputs: Predict) -> np.ndarray:
        """The number, its mean and the logarithm of its variance, [N, 3]."""
        records, size = self.records(split), self._options.eval_batch_size
        found = np.zeros([len(records), 3], np.float32)
        for batch, out in outputs(records.batches(size), records.num_batches(size)):
            is_real = batch["rows"] >= 0
            columns = batch["label_ids"][:, 0], out["mean"], out["log_variance"]
            found[batch["rows"][is_real]] = np.stack(columns, axis=1)[is_real]
        return found

    def score(self, split: str, found: np.ndarray) -> dict[str, float]:
        """The loss of the density, and the mean absolute error."""
        number, mean, log_variance = found.T
        losses = ((number - mean) ** 2 / np.exp(log_variance) + log_variance) / 2
        error = np.abs(number - mean).mean()
        return {"loss": float(losses.mean()), "error": float(error)}

    def write(self, folder: str, split: str, found: np.ndarray, step: int) -> None:
        """Writes a line per text: the mean, a tab, the standard deviation."""
        lines = (f"{mean:.6g}\t{np.exp(log / 2):.6g}\n" for _, mean, log in found)
        path = os.path.join(folder, f"{split}_predictions.tsv")
        files.write_atomically(path, "".join(lines))


def run(options: NormalOptions) -> RunResult:
    """Reads the table, then trains and evaluates."""
    cli.import_tensorflow(options)
    return finetuning.FineTuningRun(NormalTask, options).main()


if __name__ == "__main__":
    cli.main(run)
