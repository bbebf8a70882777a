"""Classification and regression of texts and pairs of texts.

Devlin et al. 2018, section 4.1: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]; the pooled
output passes through dropout and one linear layer. Several labels, each with its own
sigmoid, and several numbers work the same way.

N examples, C outputs.
"""

import dataclasses
import os
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError, refuse_not_finite
from bert_tf.conversion import names
from bert_tf.conversion.adapter_files import AdapterFiles
from bert_tf.conversion.loading import ModelFiles
from bert_tf.conversion.source import Source
from bert_tf.conversion.tokenizer_files import read_labels
from bert_tf.modeling.heads import BertClassifier
from bert_tf.modeling.objectives import CLASSIFIERS, Objective
from bert_tf.records.batching import ExampleTable, Predict, rows_digest
from bert_tf.tasks import glue, metrics
from bert_tf.tasks.data_set_options import ClassifierOptions, data_set_of, splits_of
from bert_tf.tasks.finetuning import folder_of_model, model_options, opened_adapter
from bert_tf.tasks.long_texts import ATTENTION
from bert_tf.tasks.metrics import LOSS, MAJORITY
from bert_tf.tasks.reports import (
    kept_order,
    labelled,
    write_probabilities,
    write_reports,
)
from bert_tf.tasks.tables import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    DataSet,
    Example,
    Target,
    described,
    held_out,
)
from bert_tf.tasks.task import TRAIN, FineTuningTask
from bert_tf.tasks.text_records import TextFeaturizer
from bert_tf.training.run_folder import RunData
from bert_tf.training.training_options import is_better

MEAN_LOSS = "eval_loss"


class LabelledTask(FineTuningTask[np.ndarray]):
    """A task that predicts a label, several labels, or a number for each example."""

    options: Any  # ClassifierOptions, or other options with the same reports
    examples: Mapping[str, Sequence[Any]]
    featurizers: Mapping[str, TextFeaturizer]  # one for each split
    where: str | None  # where the training examples are from

    def data(self) -> RunData:
        """Returns the training set, as a run's folder records it."""
        count = len(self.examples[TRAIN])
        return RunData(f"{count} examples of {self.where}", self._digest(TRAIN))

    def texts(self, split: str) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields the texts of each example, and its place."""
        for *texts, _, place in self.examples.get(split, ()):
            yield tuple(str(text or "") for text in texts), place

    def identity(self, split: str) -> str:
        """Returns a digest of a split's records."""
        return self.records(split).made_from

    def predict(self, split: str, outputs: Predict) -> np.ndarray:
        """Returns the model's outputs, [N, C] float32, in the order of the examples."""
        options, records = self.options, self.records(split)
        is_test = split in self.test_splits
        size = options.predict_batch_size if is_test else options.eval_batch_size
        featurizer = self.featurizers[split]
        return featurizer.logits(outputs, records, size, options.num_lengths)

    def score(self, split: str, logits: np.ndarray) -> dict[str, float]:
        """Returns a split's losses and metrics; {} for a test set."""
        if split in self.test_splits:
            return {}
        target, size = self.featurizers[split].target, self.options.eval_batch_size
        labels = self._labels(split).astype(target.label_dtype)
        (loss,) = CLASSIFIERS[target.kind].losses.values()

        def mean_loss(rows: slice) -> float:
            mean = loss({"label_ids": labels[rows]}, {"logits": logits[rows]})
            return float(keras.ops.convert_to_numpy(mean.value()))

        example_loss = mean_loss(slice(None))
        refuse_not_finite("loss on the evaluation data", example_loss)
        starts = range(0, len(labels), size)
        losses = [mean_loss(slice(start, start + size)) for start in starts]
        predictions = target.predictions(logits)
        labels = labels.reshape(predictions.shape)
        wanted = [name for name in self.metrics if name in metrics.METRICS]
        results = {
            LOSS: float(np.mean(losses)),
            MEAN_LOSS: example_loss,
            **metrics.scores(wanted, predictions, labels),
        }
        if "accuracy" in self.metrics:
            most = np.unique(labels, return_counts=True)[1].max()
            results[MAJORITY] = float(most / labels.size)
        return results

    def baseline(self, split: str, metric: str) -> float | None:
        """Returns the score of always predicting the commonest label, or the mean."""
        if metric not in metrics.METRICS:
            return None
        labels, kind = self._labels(split), self.featurizers[split].target.kind
        if kind == SINGLE_LABEL:
            (constant, _), *_ = Counter(labels[:, 0].tolist()).most_common()
        elif kind == MULTI_LABEL:
            constant = (labels.mean(axis=0) > 0.5).astype(labels.dtype)
        else:
            constant = labels.mean(axis=0)
        answers = np.broadcast_to(constant, labels.shape)
        if labels.shape[1] == 1:
            labels, answers = labels[:, 0], answers[:, 0]
        return metrics.scores([metric], answers, labels)[metric]

    def class_counts(self) -> np.ndarray | None:
        """Returns each class's number of training examples; None without classes."""
        target = self.featurizers[TRAIN].target
        if target.kind != SINGLE_LABEL:
            return None
        return np.bincount(self._labels(TRAIN)[:, 0], minlength=target.num_outputs)

    def _labels(self, split: str) -> np.ndarray:
        encode = self.featurizers[split].target.encode
        return np.array([encode(one.label, one.source) for one in self.examples[split]])

    def _digest(self, split: str) -> str:
        # Without the line number: the same rows in another file are equal.
        return rows_digest(one[:-1] for one in self.examples[split])

    def make_records(self, split: str) -> ExampleTable:
        """Converts a split's examples to records."""
        examples, featurizer = self.examples[split], self.featurizers[split]
        made_from = {**featurizer.settings, "examples": self._digest(split)}
        records = ExampleTable(featurizer.blocks(examples), featurizer.spec, made_from)
        if featurizer.num_truncated:
            logging.info(
                "%d of %d %s examples were longer than `max_seq_length=%d` and cut.",
                *(featurizer.num_truncated, len(examples), split),
                featurizer.max_seq_length,
            )
        if sum(featurizer.window_counts) > len(examples):
            logging.info(
                "%d %s examples are read in %d windows, at most %d per example.",
                *(len(examples), split),
                *(sum(featurizer.window_counts), max(featurizer.window_counts)),
            )
        return records


class ClassificationTask(LabelledTask):
    """Classification of texts, or pairs of texts."""

    head = names.CLASSIFIER
    options: ClassifierOptions

    def __init__(
        self,
        options: ClassifierOptions,
        model_files: ModelFiles,
        strategy: tf.distribute.Strategy,
        *,
        data_set: DataSet | None = None,
        submission_dir: str | None = None,
    ) -> None:
        del strategy
        data_set = dataclasses.replace(
            data_set or data_set_of(options),
            max_unusable_rows=options.max_unusable_rows,
        )
        if options.do_eval and not data_set.dev_splits:
            raise InputError(
                f"`do_eval`: {data_set.name} has no development set. Leave it out."
            )
        adapter = opened_adapter(options, model_files.config)
        trained = adapter or model_files.source
        examples: dict[str, Sequence[Example]] = {}
        holds_out = options.holds_out and not submission_dir
        splits = splits_of(options, data_set, holds_out=holds_out)
        self._num_left_out = 0  # in all splits
        if TRAIN in splits:
            examples[TRAIN] = read = data_set.read(options.folder, TRAIN)
            self._num_left_out = read.num_left_out
        target = _target(options, data_set, trained, examples.get(TRAIN))
        if options.calibrate and target.kind == REGRESSION:
            raise InputError("`calibrate` is for classes, and these are numbers.")
        if trained is not None and options.init_head:
            _refuse_other_head(trained, target, may_add=options.do_train)
        # A row with another label cannot be used.
        data_set = dataclasses.replace(data_set, labels=target.labels)
        if holds_out and TRAIN in examples:
            by_label = target.kind == SINGLE_LABEL
            examples |= train_and_dev(options, examples[TRAIN], by_label=by_label)
        for split in [one for one in splits if one != TRAIN]:
            examples[split] = read = data_set.read(options.folder, split)
            self._num_left_out += read.num_left_out
        self.options, self.examples, self._data_set = options, examples, data_set
        self.config, self._target = model_files.config, target
        self._submission_dir = submission_dir
        self.featurizers = {
            split: TextFeaturizer(
                model_files.tokenizer,
                max_seq_length=options.max_seq_length,
                target=target,
                windows=options.long_text == "window",
                doc_stride=options.doc_stride,
                window_pooling=options.window_pooling,
            )
            for split in examples
        }
        self._built = model_options(options, model_files.config)
        if options.window_pooling == ATTENTION:
            self._built["window_pooling"] = ATTENTION
        self.name = data_set.name
        self.dev_splits, self.test_splits = data_set.dev_splits, data_set.test_splits
        # Always the accuracy, which the original reports, and the best run's metric.
        original = ["accuracy"] if target.kind == SINGLE_LABEL else []
        best = [options.best_metric] if options.best_metric in target.metrics else []
        scores = list(dict.fromkeys([*data_set.metrics, *original, *best]))
        self.metrics, self.metric = [LOSS, MEAN_LOSS, *scores], data_set.metrics[0]
        self.labels, self.problem_type = target.labels, target.kind
        self.result_names = {name: f"eval_{{}}{name}" for name in (*scores, MAJORITY)}
        if data_set.is_from_tfds:
            self.where = options.tfds_name
        elif TRAIN in examples:
            self.where = data_set.path(options.folder, TRAIN)

    @property
    def trains_task(self) -> str | None:
        """The task, or None for a set without training data, GLUE's AX."""
        return self.name if TRAIN in self._data_set.splits else None

    @property
    def objective(self) -> Objective:
        """The head's objective for this problem type."""
        return CLASSIFIERS[self._target.kind]

    def build_model(self) -> BertClassifier:
        """Returns a classifier, or a model that predicts numbers."""
        return BertClassifier(
            self.config,
            self._target.num_outputs,
            problem_type=self._target.kind,
            **self._built,
        )

    def summary(self, folder: str, results: Mapping[str, float]) -> list[str]:
        """Returns a summary of a user's own table: rows, labels, lengths and scores."""
        if self.name != glue.OWN_TABLE:
            return []
        options, dev = self.options, self.dev_splits[0]
        counts = {split: len(self.examples[split]) for split in self.examples}
        rows = [f"{number:,} of {split}" for split, number in counts.items()]
        if self._num_left_out:
            rows.append(f"{self._num_left_out:,} left out")
        lines = ["***** Summary *****", f"  Rows of {self.where}: {', '.join(rows)}"]
        if (of_labels := self.class_counts()) is None:
            of_labels = self._labels(TRAIN).sum(axis=0)
        if self._target.kind != REGRESSION:
            numbers = map(int, of_labels)
            labels = dict(zip(self._target.labels, numbers, strict=True))
            lines.append(f"  {described(labels)}")
        records, featurizer = self.records(TRAIN), self.featurizers[TRAIN]
        lines.append(
            f"  Tokens: {records.mean_length:.0f} on average, {records.lengths.max()}"
            f" at most; {featurizer.num_truncated:,} texts cut"
            f" (`max_seq_length={options.max_seq_length}`)"
        )
        if self.metric in results:
            score, same = results[self.metric], self.baseline(dev, self.metric)
            lines.append(
                f"  {self.metric} {score:.4f} on {counts[dev]:,} rows; always the same"
                f" answer: {same:.4f}"
            )
            if same is not None and not is_better(score, same, self.metric):
                lines.append(
                    "  The model is no better than always the same answer: it has not"
                    " learned the task. With few rows train longer, with `recipe="
                    "mosbach`, or with a higher `learning_rate`."
                )
        source, model = shlex.quote(self.where or ""), shlex.quote(folder)
        scored = shlex.quote(os.path.join(folder, "scored.csv"))
        served = shlex.quote(os.path.join(folder, "export"))
        first = self.examples[TRAIN][0].text_a
        text = shlex.quote(textwrap.shorten(first, 60, placeholder=""))
        return [
            *lines,
            "  Next: predictions for a table, a model to serve, the words that count",
            f"    python -m bert_tf.predict --checkpoint={model} --input_file={source}"
            f" --output_file={scored}",
            f"    python -m bert_tf.export_model --checkpoint={model}"
            f" --output_dir={served} --format=saved_model",
            f"    python -m bert_tf.explain --checkpoint={model} {text}",
        ]

    def write(self, folder: str, split: str, logits: np.ndarray, step: int) -> None:
        """Writes predictions, plots and mistakes; for a test set the server's file."""
        del step
        target, data_set = self._target, self._data_set
        write_reports(
            folder,
            split,
            self.examples[split],
            target,
            logits,
            task_name=data_set.name,
            class_names=data_set.class_names,
            plots=self.options.plots,
            num_mistakes=self.options.num_mistakes,
        )
        if self.options.calibrate and split == self.dev_splits[0]:
            rows, labels = labelled(self.examples[split], target)
            title = f"{data_set.name}, {split}: {len(rows)} examples"
            addon("calibration").write(
                self.options, target, logits[rows], labels, title
            )
        if split in data_set.test_splits:
            name = f"test_results{split.removeprefix('test')}.tsv"
            write_probabilities(os.path.join(folder, name), target, logits)
            glue.write_task_file(
                self._submission_dir or os.path.join(folder, "submission"),
                data_set.name,
                split,
                target.words(logits),
            )


def train_and_dev(
    options: Any, examples: Sequence[Any], *, by_label: bool
) -> dict[str, Sequence[Any]]:
    """Returns the training and the development set, split from one file."""
    share, seed = options.dev_share, options.random_seed
    train, dev = held_out(examples, share, seed, by_label=by_label)
    if not dev:
        raise InputError(
            f"`dev_share={options.dev_share}` of {len(examples)} examples holds out"
            " none. Give `dev_file`, or a larger share."
        )
    logging.info(
        "%d of %d examples of %s are held out for development (`dev_share=%g`,"
        " `random_seed=%d`).",
        *(len(dev), len(examples), options.train_file),
        *(options.dev_share, options.random_seed),
    )
    return {TRAIN: train, "dev": dev}


def _target(
    options: ClassifierOptions,
    data_set: DataSet,
    trained: Source | AdapterFiles | None,
    train: Sequence[Example] | None,
) -> Target:
    """Returns the target of the model's predictions."""
    # Without training, a table's classes are those recorded by the run or given by the
    # checkpoint, so that prediction needs no training file.
    if data_set.labels is None and not options.do_train:
        recorded, _ = read_labels(folder_of_model(options))
        labels = recorded or (trained.labels if trained else None)
        if labels:
            return data_set.target(tuple(labels))
    target = data_set.read_target(options.folder, train)
    if data_set.labels is not None:
        return target
    head = trained.labels if trained is not None and options.init_head else None
    if trained and head and {*target.labels} < {*head}:
        missing = ", ".join(name for name in head if name not in target.labels)
        logging.info(
            "The labels are those of %s; no example has %s.", trained.path, missing
        )
        return data_set.target(tuple(head))
    return data_set.target(kept_order(target.labels, options.output_dir, head))


def _refuse_other_head(
    trained: Source | AdapterFiles, target: Target, *, may_add: bool
) -> None:
    """Raises InputError if a trained head predicts something else."""
    # Training may add labels, unless the head is an adapter's.
    if isinstance(trained, AdapterFiles):
        kind: str | None = trained.problem_type
    else:
        kind = trained.classifier_problem_type()
    # Unnamed labels must be as many, or the weights will not fit.
    labels = target.labels if trained.labels is None else trained.labels
    if may_add and isinstance(trained, Source) and kind == target.kind:
        may_add = {*labels} < {*target.labels}
        labels = target.labels if may_add and labels else labels
    if kind is not None and (kind, labels) != (target.kind, target.labels):
        same = "spell them so in the files"
        if sorted(labels) == sorted(target.labels):
            same = f"give `labels={','.join(labels)}`"
        elif {*labels} & {*target.labels}:
            both = ",".join(dict.fromkeys([*labels, *target.labels]))
            same += f"; if some are new, train with `labels={both}`"
        raise InputError(
            f"{trained.path} has a head that predicts {_described(kind, labels)}; this"
            f" task's predicts {_described(target.kind, target.labels)}."
            f" If they mean the same, {same};"
            " `init_head=false` begins with a new head."
        )


def _described(kind: str, labels: Sequence[str]) -> str:
    if kind == REGRESSION:
        return ", ".join(labels) or "a number"
    return f"{'any' if kind == MULTI_LABEL else 'one'} of {', '.join(labels)}"
