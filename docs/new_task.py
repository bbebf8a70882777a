r"""A task of a new kind, from its files to its command, as a worked example.

The task is to point: which token of a sentence is the odd one out? One sentence per
line, a tab, and the number of its odd word. In the package its parts would stand in six
files, which the headings below name; here they stand in one, which runs:

    python docs/new_task.py --output_dir=pointing --do_train --do_eval \
        --train_file=train.tsv --dev_file=dev.tsv --init_checkpoint=pretraining

Everything else comes with the runner: checkpoints, resuming, evaluation on the way,
choosing among learning rates and restarts, LoRA and adapters, several devices.
"""

import os
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.base import cli, files, options
from bert_tf.base.errors import InputError
from bert_tf.base.options import Path, option
from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.head_model import HeadModel
from bert_tf.modeling.heads import HEAD_INITIALIZER_RANGE, OutputProjection
from bert_tf.modeling.objectives import Loss, Objective
from bert_tf.records.batching import ExampleTable, Predict, rows_digest
from bert_tf.records.spec import INT64, Feature, RecordSpec
from bert_tf.tasks import finetuning
from bert_tf.tasks.run_options import FineTuningOptions, RunResult
from bert_tf.tasks.task import TRAIN, FineTuningTask
from bert_tf.text.wordpiece import pair_features
from bert_tf.training.run_folder import RunData

# 1. bert_tf/conversion/names.py: the head's row, with its weights under the original's
# kind of name, so that checkpoints are read and written. All code of a head is named
# here: what `bert_tf.load` returns, what `predict` reads, the SavedModel and the ONNX
# graph have fields of their own (`names.Head`). A head with all of them, outside the
# package, is in tests/made_up_head.

POINTING = "pointing"
names.register(
    names.Head(
        name=POINTING,
        weights=(
            names.Name("cls/pointing/output_weights", "1 H", "pointing.weight"),
            names.Name("cls/pointing/output_bias", "1", "pointing.bias"),
        ),
        model=f"{__name__}:BertPointer",
        objective=f"{__name__}:OBJECTIVE",
        task=f"{__name__}:PointingTask",
    )
)

# 2. bert_tf/modeling/objectives.py: -log p(token), and whether the likeliest is right,
# of each example, with its weight: so any number of devices gives the same mean. A loss
# that compares the rows of a batch with each other, a contrastive one, is
# `Loss(..., across_rows=True)`: its functions then see the rows of all devices.


def _negative_log_likelihood(records: Any, outputs: Any) -> Any:
    return ops.sparse_categorical_crossentropy(
        records["position"][:, 0], outputs["logits"], from_logits=True
    )


def _accuracy(records: Any, outputs: Any) -> Any:
    likeliest = ops.argmax(outputs["logits"], axis=-1)
    right = ops.equal(likeliest, ops.cast(records["position"][:, 0], likeliest.dtype))
    return ops.cast(right, "float32")


def _weights(records: Any) -> Any:
    return ops.ones_like(records["position"][:, 0])


OBJECTIVE = Objective(
    {"cross_entropy": Loss(values=_negative_log_likelihood, weights=_weights)},
    {"accuracy": Loss(values=_accuracy, weights=_weights)},
)

# 3. bert_tf/modeling/heads.py: a score for each token, from one linear layer.


class BertPointer(HeadModel):
    """Which token of a sequence is meant: logits [B, S], float32."""

    def __init__(self, config: Any, *, dtype: Any = None, **encoder_options: Any):
        encoder = BertEncoder(config, use_pooler=False, dtype=dtype, **encoder_options)
        projection = OutputProjection(
            1, HEAD_INITIALIZER_RANGE, dtype=dtype, name=POINTING
        )
        inputs = dict(encoder.input)
        with keras.name_scope("cls"):
            scores = projection(encoder(inputs)["sequence_output"])
        logits = ops.squeeze(scores, axis=-1)
        super().__init__(encoder, inputs, {"logits": logits}, OBJECTIVE, "bert_pointer")


# 4. bert_tf/tasks/pointing.py: options, examples, records, predictions, scores.


class PointingOptions(
    FineTuningOptions,
    decides="nothing",
    hides=("do_predict", "class_weights", "max_unusable_rows"),
):
    """A run of pointing."""

    train_file: str | None = option(
        None, "To train on.", path=Path.FILE, needed_for=("do_train",)
    )
    dev_file: str | None = option(
        None, "To evaluate on.", path=Path.FILE, needed_for=("do_eval",)
    )
    max_seq_length: int = options.with_default(FineTuningOptions, "max_seq_length", 32)


_SEQUENCE = ("input_ids", "input_mask", "segment_ids")


class Example(NamedTuple):
    """A sentence, and its odd word's number."""

    text: str
    word: int


def read(path: str) -> list[Example]:
    """The examples of a file."""
    examples = []
    for number, line in enumerate(files.read_text(path).splitlines(), start=1):
        text, _, word = line.rpartition("\t")
        if not word.isdecimal() or int(word) >= len(text.split()):
            raise InputError(f"{path}:{number}: give a sentence, a tab, a number.")
        examples.append(Example(text, int(word)))
    return examples


class PointingTask(FineTuningTask[np.ndarray]):
    """Finding the odd word: all that the runner asks."""

    name = POINTING
    head = POINTING
    metrics = ("accuracy",)
    metric = "accuracy"

    def __init__(
        self,
        options: PointingOptions,
        model_files: ModelFiles,
        strategy: tf.distribute.Strategy,
    ) -> None:
        del strategy
        self._options, self._model_files = options, model_files
        self.config = model_files.config
        self._built = finetuning.model_options(options, self.config, has_pooler=False)
        paths = {"train": options.train_file, "dev": options.dev_file}
        wanted = {"train": options.do_train, "dev": options.looks_at_dev}
        self.examples = {
            split: read(path or "") for split, path in paths.items() if wanted[split]
        }

    def build_model(self) -> BertPointer:
        """A score for each token."""
        return BertPointer(self.config, **self._built)

    def data(self) -> RunData:
        """The training set."""
        return RunData(self._options.train_file or "", self.identity(TRAIN))

    def make_records(self, split: str) -> ExampleTable:
        """The sentences of a split."""
        length = self._options.max_seq_length
        spec = RecordSpec(
            [
                *(Feature(name, INT64, (length,)) for name in _SEQUENCE),
                Feature("position", INT64, (1,)),
            ]
        )
        made_from = [self.identity(split), self._model_files.vocabulary.sha256, length]
        return ExampleTable([self._block(split)], spec, made_from)

    def _block(self, split: str) -> dict[str, np.ndarray]:
        tokenizer, length = self._model_files.tokenizer, self._options.max_seq_length
        pairs: list[tuple[list[int], list[int]]] = []
        positions = []
        for text, word in self.examples[split]:
            pieces = [tokenizer.encode(each) for each in text.split()]
            tokens = [piece for each in pieces for piece in each]
            pairs.append((tokens[: length - 2], []))
            # Behind [CLS], the odd word's first piece.
            positions.append([1 + sum(map(len, pieces[:word]))])
        features = pair_features(pairs, tokenizer.vocabulary, length)
        return {**features, "position": np.minimum(positions, length - 2)}

    def predict(self, split: str, outputs: Predict) -> np.ndarray:
        """The likeliest token of each example, and whether it is right."""
        records, size = self.records(split), self._options.eval_batch_size
        found = np.zeros([len(records), 2], np.int64)
        for batch, logits in outputs(records.batches(size), records.num_batches(size)):
            is_real = batch["rows"] >= 0
            best = logits["logits"].argmax(-1)
            right = best == batch["position"][:, 0]
            found[batch["rows"][is_real]] = np.stack([best, right], 1)[is_real]
        return found

    def score(self, split: str, found: np.ndarray) -> dict[str, float]:
        """The share of right tokens."""
        return {"accuracy": float(found[:, 1].mean())}

    def write(self, folder: str, split: str, found: np.ndarray, step: int) -> None:
        """Writes one token's number per line."""
        lines = "".join(f"{best}\n" for best, _ in found)
        files.write_atomically(os.path.join(folder, f"{split}_tokens.txt"), lines)

    def identity(self, split: str) -> str:
        """A digest of a split's examples."""
        return rows_digest(self.examples[split])


# 5. bert_tf/run_pointing.py: the command. 6. setup.cfg: its entry point.


def run(options: PointingOptions) -> RunResult:
    """Reads the sentences, then trains and evaluates."""
    cli.import_tensorflow(options)
    return finetuning.FineTuningRun(PointingTask, options).main()


if __name__ == "__main__":
    cli.main(run)
