"""The options of labelled texts, and the data set they describe."""

import dataclasses
import os
import re
from collections.abc import Iterator

from bert_tf.base import files, options
from bert_tf.base.errors import InputError
from bert_tf.base.options import Path, option
from bert_tf.base.rows import Column
from bert_tf.tasks import tables
from bert_tf.tasks.glue import OWN_TABLE, TASKS, find, xnli
from bert_tf.tasks.metrics import OWN_METRICS
from bert_tf.tasks.run_options import FineTuningOptions, TfdsOptions


class SentenceOptions(FineTuningOptions, title=options.LENGTHS, decides="reading"):
    """Fine-tuning on sentences and sentence pairs of any data set."""

    long_text: str = option(
        "truncate",
        "How to read a text longer than --max_seq_length. truncate: cut it; the number"
        " of such texts is logged. window: read it in overlapping windows. In training"
        " each window is a separate example; in evaluation and prediction the windows'"
        " logits are averaged.",
        choices=("truncate", "window"),
    )
    doc_stride: int | None = option(
        None,
        "For --long_text=window: tokens from the start of one window to the start of"
        " the next. Default: half a window.",
        least=1,
        only_with="long_text=window",
    )
    window_pooling: str = option(
        "mean",
        "For --long_text=window: how the outputs of a text's windows are combined."
        " mean, max: the mean or maximum of their logits; in training each window is a"
        " separate example. attention: a trained attention averages the pooled outputs"
        " of all windows, also in training.",
        choices=("mean", "max", "attention"),
        only_with="long_text=window",
    )
    plots: bool = option(
        True,
        "Draw the predictions for a labelled split as PNG files in --output_dir: a"
        " confusion matrix and a calibration plot (Guo et al. 2017). Predicted numbers"
        " are not drawn.",
        title=options.RESULTS,
        decides="nothing",
    )
    num_mistakes: int = option(
        50,
        "How many of the most confident mistakes to list in --output_dir; 0 for none.",
        least=0,
        title=options.RESULTS,
        decides="nothing",
    )

    def problems(self) -> Iterator[str]:
        """Yields an error if `max_seq_length` leaves no room for two texts."""
        yield from super().problems()
        if self.max_seq_length < 4:
            yield f"`max_seq_length={self.max_seq_length}` must be at least 4."
        if self.cls_normalization and self.window_pooling == "attention":
            yield (
                "`window_pooling=attention` and `cls_normalization` exclude each other."
            )


class ClassifierOptions(
    SentenceOptions, TfdsOptions, title=options.DATA, decides="numbers"
):
    """Classification of sentences and pairs: a task's, or a table of your own."""

    data_dir: str | None = option(
        None,
        "Folder of the task's files, such as train.tsv.",
        path=Path.FOLDER,
        decides="nothing",
        in_summary=True,
    )
    task_name: str | None = option(
        None,
        "CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX (the diagnostics) or"
        " XNLI, in upper or lower case; or tsv, your own table, which is the default"
        " with --train_file, --dev_file or --test_file.",
        decides="nothing",
        in_summary=True,
    )
    tfds_name: str | None = option(
        None,
        "Read a TensorFlow dataset instead of --data_dir: glue/sst2, or any other,"
        " whose features are named by --text_a_column, --text_b_column and"
        " --label_column.",
    )
    calibrate: bool = option(
        False,
        "Also write --output_dir/calibrated, the same model with probabilities that"
        " come true as often as they say: one temperature, found on the development"
        " set (Guo et al. 2017).",
        only_with="do_eval",
        title=options.RESULTS,
        decides="nothing",
    )
    metrics: tuple[str, ...] | None = option(
        None,
        "Metrics on the development set, such as f1_macro,accuracy; the first one"
        " chooses the best run. Default: GLUE's for the task; accuracy for tsv,"
        " f1_micro with --several_labels, pearson with --regression.",
    )
    xnli_language: str = option(
        "zh",
        "For XNLI: the language to train on (machine-translated) and to predict"
        " (Conneau et al. 2018), such as de. The original uses Chinese.",
    )
    # Of a table, or of any set of TensorFlow Datasets.
    tfds_splits: tuple[str, ...] = option(
        ("train", "validation", "test"),
        "For TensorFlow datasets other than GLUE's: the splits for training,"
        " development and test, or slices such as train[:90%].",
        only_with="tfds_name",
    )
    train_file: str = option(
        "train.tsv",
        "For tsv: training file, in --data_dir if that is given: .csv, .jsonl, .json,"
        " .parquet, else columns separated by tabs; compressed or not.",
        path=Path.FILE,
        needed_for=("do_train",),
        within="data_dir",
        decides="nothing",
    )
    dev_file: str = option(
        "dev.tsv",
        "For tsv: development file, in the same formats. Without it a part of the"
        " training file is held out (--dev_share).",
        path=Path.FILE,
        needed_for=("do_eval", "eval_steps"),
        within="data_dir",
        decides="nothing",
    )
    test_file: str = option(
        "test.tsv",
        "For tsv: test file without labels, in the same formats.",
        path=Path.FILE,
        needed_for=("do_predict",),
        within="data_dir",
        decides="nothing",
    )
    dev_share: float = option(
        0.1,
        "For tsv without --dev_file: share of the training examples to hold out for"
        " development, the same share of each label, by --random_seed; 0 for none.",
        least=0.0,
        below=1.0,
    )
    folds: int | None = option(
        None,
        "For tsv: cross-validation of --train_file by so many models, each trained on"
        " the other folds, in --output_dir/fold_1, fold_2, ...; the score of all rows"
        " has a 95 % interval. Folds have equal shares of each label.",
        least=2,
        only_with="do_train",
        title=options.METHODS,
    )
    group_column: str | None = option(
        None,
        "For --folds: column whose equal values stay in one fold, such as an author.",
        only_with="folds",
        title=options.METHODS,
    )
    text_a_column: str = option(
        "text_a",
        "For tsv: column of the sentence, by its name in the header or its number from"
        " 0; in JSON, body.text is a field within another one.",
    )
    text_b_column: str | None = option(
        None, "For tsv: column of the second sentence, if any."
    )
    label_column: str = option(
        "label",
        "For tsv: column of the label. With --several_labels or --regression it may be"
        " several columns, separated by commas: one of 0 and 1 per label, or one per"
        " number.",
    )
    labels: tuple[str, ...] | None = option(
        None,
        "For tsv: the labels in the order of the outputs; for --regression of several"
        " numbers, the names of the numbers. Default: the training file's labels"
        " (numbers by value, others alphabetically); one number.",
    )
    has_header: bool = option(True, "For tsv: whether the first row names the columns.")
    regression: bool = option(False, "For tsv: the label is a number to predict.")
    several_labels: bool = option(
        False, "For tsv: a row has any number of labels in one cell, or none."
    )
    label_separator: str = option(
        ",", "For tsv: the separator between several labels, or numbers, in a cell."
    )

    def problems(self) -> Iterator[str]:
        """Yields the options that do not fit the data set."""
        yield from super().problems()
        is_own = self._gives_files and is_own_table(self.task_name)
        if not (self._gives_files or self.task_name or self.tfds_name):
            yield (
                "Give `train_file`, your own table; or `task_name` and `data_dir`; or"
                " `tfds_name`."
            )
        elif not (self.data_dir or self.tfds_name or is_own):
            why = "needs `data_dir` or `tfds_name`; leave it out for your own table."
            yield f"`task_name={self.task_name}` {why}"
        yield from self.refuse_together("data_dir", "tfds_name")
        for name in ("tfds_name", "dev_file", "dev_share", "do_predict", "calibrate"):
            yield from self.refuse_together("folds", name, why="exclude each other")
        yield from self.need_one_of("do_train", "do_eval", "do_predict")

    @property
    def _gives_files(self) -> bool:
        return any(map(self.is_given, ("train_file", "dev_file", "test_file")))

    @property
    def folder(self) -> str | None:
        """The folder of the files; "" if only the files are given."""
        return "" if self.data_dir is None and self._gives_files else self.data_dir

    @property
    def holds_out(self) -> bool:
        """Whether the development set is part of the training file."""
        own = is_own_table(self.task_name) and self.tfds_name is None
        if not own or not self.is_given("train_file") or self.is_given("dev_file"):
            return False
        there = os.path.join(self.folder or "", self.dev_file)
        return self.dev_share > 0.0 and not files.exists(there)


OF_TABLES = {"delimiter", *ClassifierOptions.__annotations__} - {
    *("data_dir", "task_name", "tfds_name", "metrics", "xnli_language", "calibrate")
}


def is_own_table(task_name: str | None) -> bool:
    """Whether `task_name` is the user's own table."""
    return task_name is None or task_name.lower() in (OWN_TABLE, "csv")


def data_set_of(given: ClassifierOptions) -> tables.DataSet:
    """Returns the data set that the options describe."""
    found = _data_set(given)
    _refuse_useless(given, found)
    if given.tfds_name is not None:
        found = found.from_tfds(given.tfds_name, given.tfds_data_dir)
    if given.metrics:
        if given.metrics[0] == "mean_squared_error":
            raise InputError(
                "`metrics`: the first metric chooses the run with the highest score,"
                " but a low mean_squared_error is better: name another metric first."
            )
        found = dataclasses.replace(found, metrics=given.metrics)
    return found


def splits_of(
    given: ClassifierOptions, found: tables.DataSet, *, holds_out: bool
) -> list[str]:
    """Returns the splits to read, the training set first."""
    trains = given.do_train or (holds_out and given.looks_at_dev)
    return [
        *(["train"] if trains else []),
        *(found.dev_splits if given.looks_at_dev and not holds_out else []),
        *(found.test_splits if given.do_predict else []),
    ]


def check_tables(given: ClassifierOptions) -> None:
    """Raises InputError for tables without rows or columns; without TensorFlow."""
    found = data_set_of(given)
    test_file = os.path.join(given.folder or "", given.test_file)
    if given.do_predict and found.name == OWN_TABLE and not files.exists(test_file):
        raise InputError(
            "`do_predict` needs `test_file`, the table to predict; with a trained"
            " model, bert_tf.predict predicts any table."
        )
    for split in splits_of(given, found, holds_out=given.holds_out):
        if isinstance(there := found.splits.get(split), tables.TableSplit):
            there.check(found.path(given.folder, split))


def _data_set(given: ClassifierOptions) -> tables.DataSet:
    task_name, tfds_name = given.task_name, given.tfds_name
    if task_name is None and tfds_name is not None:
        there = [task for task in TASKS.values() if task.tfds_has(tfds_name)]
        return there[0] if there else _own(given)
    if task_name is None or is_own_table(task_name):
        return _own(given)
    found = find(task_name)
    if tfds_name is not None and found.tfds and not found.tfds_has(tfds_name):
        raise InputError(
            f"`tfds_name={tfds_name}` is not {found.name}'s: leave `task_name` out."
        )
    return xnli(given.xnli_language) if found.name == "XNLI" else found


def _refuse_useless(given: ClassifierOptions, found: tables.DataSet) -> None:
    """Raises InputError for a flag that only applies to other data sets."""
    useless: dict[str, str] = {}
    if found.name in TASKS:
        where = f"it is for `task_name={OWN_TABLE}`, not for {found.name}"
        useless |= dict.fromkeys(sorted(OF_TABLES), where)
    if given.tfds_name is not None:
        useless["has_header"] = "`tfds_name` has no files"
    if found.name != "XNLI":
        useless["xnli_language"] = "it is for `task_name=XNLI`"
    for name, reason in useless.items():
        if getattr(given, name) != options.default_of(ClassifierOptions, name):
            raise InputError(f"`{name}` has no effect here: {reason}. Leave it out.")


def _own(given: ClassifierOptions) -> tables.DataSet:
    """Returns the user's own table, or any set of TensorFlow Datasets."""
    if given.regression and given.several_labels:
        raise InputError(
            "`regression` predicts numbers, `several_labels` predicts"
            " labels: give one of them."
        )
    if not given.label_separator:
        raise InputError("`label_separator` must not be empty.")
    kind = tables.SINGLE_LABEL
    if given.regression or given.several_labels:
        kind = tables.REGRESSION if given.regression else tables.MULTI_LABEL
    labels = tuple(given.labels or ())
    columns: tuple[str, ...] = ()
    if kind != tables.SINGLE_LABEL and "," in given.label_column:
        columns = tuple(map(str.strip, given.label_column.split(",")))
        labels = labels or columns
        if len(labels) != len(columns):
            raise InputError(
                f"`labels` must name the {len(columns)} columns of `label_column`."
                f" It has {len(labels)}."
            )
    # Several numbers in a cell are no number.
    numbers = given.regression and (bool(columns) or len(labels) < 2)
    labelled = tables.TableSplit(
        text_a=as_column(given.text_a_column),
        text_b=given.text_b_column and as_column(given.text_b_column),
        label=None if columns else as_column(given.label_column),
        label_columns=dict(zip(labels, map(as_column, columns), strict=False)),
        separator=given.label_separator,
        numbers=numbers,
        has_header=given.has_header,
        delimiter=given.delimiter,
    )
    test = dataclasses.replace(labelled, label=None, label_columns={})
    of_splits = (given.train_file, given.dev_file, given.test_file)
    return tables.DataSet(
        name=given.tfds_name or OWN_TABLE,
        kind=kind,
        labels=labels if labels or kind == tables.REGRESSION else None,
        separator=given.label_separator,
        metrics=OWN_METRICS[kind],
        files=dict(zip(tables.SPLITS, of_splits, strict=True)),
        splits={"train": labelled, "dev": labelled, "test": test},
        tfds=tables.TfdsSet(
            name=given.tfds_name or "",
            splits=dict(zip(tables.SPLITS, given.tfds_splits, strict=True)),
            text_a=given.text_a_column,
            text_b=given.text_b_column,
            label=given.label_column,
            label_columns=dict(zip(labels, columns, strict=False)),
            numbers=numbers,
            index=None,
        ),
    )


def as_column(value: str) -> Column:
    """Returns a column's number if the flag has one, else its name."""
    return int(value) if re.fullmatch(r"-?[0-9]+", value) else value


class GlueOptions(
    SentenceOptions,
    title=options.DATA,
    decides="nothing",
    hides=("do_train", "do_eval", "delimiter"),
):
    """GLUE: the protocol of Devlin et al. 2018, section 4.1."""

    do_train: bool = True
    do_eval: bool = True
    do_predict: bool = options.with_default(FineTuningOptions, "do_predict", True)
    learning_rates: tuple[float, ...] | None = options.with_default(
        FineTuningOptions, "learning_rates", (5e-5, 4e-5, 3e-5, 2e-5)
    )
    tasks: tuple[str, ...] = option(
        ("all",),
        "GLUE's tasks to run, separated by commas, in upper or lower case; all:"
        " those with a folder in --glue_dir.",
    )
    glue_dir: str = option(
        options.REQUIRED,
        "Folder with GLUE's folders: CoLA, SST-2, MRPC, ..., and diagnostic (AX).",
        path=Path.FOLDER,
    )
    two_stage: bool = option(
        False,
        "Fine-tune MRPC, STS-B and RTE from MNLI's best model, without its head"
        " (STILTs, Phang et al. 2018). The paper's scores do not use this.",
    )
    fill_missing_tasks: bool = option(
        False,
        "Fill the submission with a constant class for each task that was not"
        " predicted: GLUE's server accepts only complete zip files.",
    )
