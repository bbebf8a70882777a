"""Cross-validation: as many models as folds, each scored on the fold it has not seen.

The folds have about the same share of each label, and rows with the same value of
--group_column stay together (scikit-learn's StratifiedKFold and StratifiedGroupKFold).
OUTPUT_DIR/fold_1, fold_2, ... are the runs; OUTPUT_DIR has the predictions of all rows,
each by the model that has not seen it, their score, and its 95 % interval by the
bootstrap (Efron and Tibshirani 1993), which draws whole groups.

Shapes: N rows, C outputs.
"""

import dataclasses
import functools
import gc
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.base import files, rows
from bert_tf.base.config import SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.base.pictures import figure, table
from bert_tf.tasks import metrics, reports
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.data_set_options import ClassifierOptions, as_column, data_set_of
from bert_tf.tasks.finetuning import FineTuningRun
from bert_tf.tasks.run_options import RunResult
from bert_tf.tasks.tables import Examples
from bert_tf.tasks.task import TRAIN
from bert_tf.training import run_folder

_SAMPLES = 2_000
_DEV = "dev"


@dataclasses.dataclass(frozen=True)
class _Part:
    """A part of a table, in the place of a file."""

    examples: Examples

    def read(self, *_: Any, **__: Any) -> Examples:
        return self.examples


class _Fold(ClassificationTask):
    """A task that keeps its last predictions, [N, C]."""

    logits: np.ndarray

    def predict(self, split: str, outputs: Any) -> np.ndarray:
        self.logits = super().predict(split, outputs)
        return self.logits


def run(options: ClassifierOptions) -> RunResult:
    """Trains and scores a model for each fold, and writes the score of all."""
    if options.asks_for_selection:
        raise InputError(
            "`folds` scores one setting: several would be chosen by the rows that they"
            " are scored on. Give one learning rate, batch size and number of epochs."
        )
    data_set = data_set_of(options)
    examples = data_set.read(options.folder, TRAIN)
    target = data_set.read_target(options.folder, examples)
    groups = _groups(options, data_set.path(options.folder, TRAIN), examples)
    labels = reports.labelled(examples, target)[1]
    by_label = labels if target.kind == SINGLE_LABEL else None
    given: dict[str, Any] = {"folds": None, "group_column": None}
    given |= {"dev_share": 0.0, "do_eval": True}
    logits = np.zeros([len(examples), target.num_outputs], np.float32)
    lines = []
    folds = _split(options, len(examples), by_label, groups)
    for number, parts in enumerate(folds, start=1):
        splits: dict[str, Any] = {
            name: _Part(Examples(examples[row] for row in part))
            for name, part in zip((TRAIN, _DEV), parts, strict=True)
        }
        paths = dict.fromkeys(splits, options.train_file)
        of_fold = dataclasses.replace(
            data_set, files=paths, splits=splits, labels=target.labels
        )
        folder = os.path.join(options.output_dir, f"fold_{number}")
        tuned = FineTuningRun(
            functools.partial(_Fold, data_set=of_fold),
            dataclasses.replace(options, output_dir=folder, **given),
        )
        scores, task = tuned.main().scores, tuned.tuning.task
        assert isinstance(task, _Fold)
        logits[parts[1]] = task.logits
        lines.append([str(number), *map(str, map(len, parts))])
        lines[-1] += [figure(scores[name]) for name in data_set.metrics]
        is_chief = tuned.tuning.is_chief
        del tuned, task
        gc.collect()
    results = scores_of(data_set.metrics, target.predictions(logits), labels, groups)
    for name in data_set.metrics:
        logging.info(
            "%s of %d rows in %d folds: %.4f, 95 %% of the bootstrap between %.4f and"
            " %.4f.",
            *(name, len(examples), options.folds, results[name]),
            *(results[f"{name}_low"], results[f"{name}_high"]),
        )
    if is_chief:
        reports.write_reports(
            options.output_dir,
            _DEV,
            examples,
            target,
            logits,
            task_name=data_set.name,
            plots=options.plots,
            num_mistakes=options.num_mistakes,
        )
        report = table(["fold", "train", "dev", *data_set.metrics], lines)
        files.write_atomically(os.path.join(options.output_dir, "folds.md"), report)
    run_folder.report_evaluation(
        options.output_dir, 0, results, is_chief=is_chief, task_name=data_set.name
    )
    return RunResult(results, options.output_dir)


def scores_of(
    names: Sequence[str],
    predictions: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray | None = None,
) -> dict[str, float]:
    """Returns scores, and their intervals as "accuracy_low" and "accuracy_high".

    Args:
        names: of metrics.
        predictions: [N] or [N, C].
        labels: the same shape, or one that can be reshaped to it.
        groups: [N] numbers from 0; None if each row is its own group.
    """
    labels = labels.reshape(predictions.shape)
    found = metrics.scores(names, predictions, labels)
    groups = np.arange(len(labels)) if groups is None else groups
    num_groups = groups.max() + 1
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(_SAMPLES):
        chosen = rng.integers(0, num_groups, num_groups)
        times = np.bincount(chosen, minlength=num_groups)
        some = np.repeat(np.arange(len(labels)), times[groups])
        drawn.append([*metrics.scores(names, predictions[some], labels[some]).values()])
    tail = (1.0 - metrics.LEVEL) / 2.0
    for ending, share in (("low", tail), ("high", 1.0 - tail)):
        quantiles = np.nanquantile(drawn, share, axis=0)
        found |= {
            f"{name}_{ending}": x for name, x in zip(names, quantiles, strict=True)
        }
    return found


def _split(
    options: ClassifierOptions,
    num_rows: int,
    labels: np.ndarray | None,
    groups: np.ndarray | None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the rows of each fold's training and development set."""
    from sklearn import model_selection

    kind = {
        (False, False): model_selection.KFold,
        (False, True): model_selection.GroupKFold,
        (True, False): model_selection.StratifiedKFold,
        (True, True): model_selection.StratifiedGroupKFold,
    }[labels is not None, groups is not None]
    folds = kind(options.folds, shuffle=True, random_state=options.random_seed)
    try:
        yield from folds.split(np.zeros(num_rows), labels, groups)
    except ValueError as error:
        raise InputError(f"`folds={options.folds}`: {error} Give fewer.") from error


def _groups(
    options: ClassifierOptions, path: str, examples: Examples
) -> np.ndarray | None:
    """Returns each row's group [N], numbers from 0; None without a column."""
    if options.group_column is None:
        return None
    column, dialect = as_column(options.group_column), rows.Dialect(options.delimiter)
    names, found = rows.read(path, has_header=options.has_header, dialect=dialect)
    rows.require(column, names, path, "group_column")
    of_place = {row.place: rows.as_text(row.get(column)) for row in found if row.cells}
    groups = [of_place[example.source] for example in examples]
    if "" in groups:
        place = examples[groups.index("")].source
        raise InputError(f"{place}: column {column!r} of `group_column` is empty.")
    return np.unique(groups, return_inverse=True)[1]
