"""The flags of fine-tuning scripts, in groups.

A script calls the groups it needs from its `define_flags(flag_values)`.
"""

from collections.abc import Mapping
from typing import Any

from absl import flags

from bert_tf import flag_rules, path_flags
from bert_tf import flags as shared_flags
from bert_tf.flag_groups import DATA, LENGTHS, RESULTS, belongs_to
from bert_tf.path_flags import Path

_IN_WORDS = {2: "two", 3: "three"}

_OF_A_RUN = (
    "do_lower_case",
    "do_predict",
    "num_train_epochs",
    "warmup_proportion",
    "vocab_file",
    "bert_config_file",
    "eval_steps",
    "predict_batch_size",
    "best_metric",
)


def define_run(
    flag_values: flags.FlagValues, *, without: tuple[str, ...] = (), **defaults: Any
) -> None:
    """Defines the flags of every fine-tuning script: the model, and how to train."""
    usual = {"predict_batch_size": 32, "eval_batch_size": 32, "best_metric": None}
    defaults = {
        name: value
        for name, value in {**usual, **defaults}.items()
        if name not in without
    }
    own = {name: defaults.pop(name) for name in _OF_A_RUN if name in defaults}
    names = [name for name in _OF_A_RUN if name not in (*own, *without)]
    shared_flags.define(flag_values, *names, required=("output_dir",), **own)
    shared_flags.define_training(flag_values, without=without, **defaults)
    flag_rules.require_at_least(flag_values, 1, "predict_batch_size")
    flag_rules.require_at_least(flag_values, 0, "eval_steps")
    flag_rules.require_at_least(flag_values, 0.0, "warmup_proportion")
    if "num_train_epochs" not in without:
        flag_rules.require_at_least(flag_values, 0.0, "num_train_epochs")


@belongs_to(DATA)
def define_tfds(
    flag_values: flags.FlagValues, help_text: str, splits: Mapping[str, str]
) -> None:
    """Defines the flags of TensorFlow Datasets in the place of files."""
    flags.DEFINE_string("tfds_name", None, help_text, flag_values=flag_values)
    path_flags.define(
        "tfds_data_dir",
        None,
        "Where prepared TensorFlow Datasets lie. Default: the library's folder.",
        Path.OUTPUT,
        flag_values=flag_values,
    )
    uses = ", ".join(splits.values())
    flags.DEFINE_list(
        "tfds_splits",
        list(splits),
        f"For --tfds_name. Splits, or slices such as train[:90%], one each: {uses}.",
        flag_values=flag_values,
    )
    flags.register_validator(
        "tfds_splits",
        lambda given: len(given) == len(splits),
        message=f"must be {_IN_WORDS[len(splits)]}: {uses}",
        flag_values=flag_values,
    )
    flag_rules.refuse_without(flag_values, "tfds_name", "tfds_data_dir", "tfds_splits")


@belongs_to(DATA)
def define_data_set(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say which data set, for `tasks.data_set_flags`."""

    def string(name: str, default: str | None, help_text: str) -> None:
        flags.DEFINE_string(name, default, help_text, flag_values=flag_values)

    def path(name: str, default: str | None, help_text: str, kind: Path) -> None:
        path_flags.define(name, default, help_text, kind, flag_values=flag_values)

    def boolean(name: str, default: bool, help_text: str) -> None:
        flags.DEFINE_bool(name, default, help_text, flag_values=flag_values)

    path(
        "data_dir", None, "Folder of the task's files, such as train.tsv.", Path.FOLDER
    )
    string(
        "task_name",
        None,
        "CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX (the diagnostics) or"
        " XNLI, in any case; or tsv: a table of your own.",
    )
    string(
        "tfds_name",
        None,
        "Read a set of TensorFlow Datasets instead of --data_dir: glue/sst2, or"
        " any other, whose features --text_a_column, --text_b_column and --label_column"
        " name.",
    )
    path(
        "tfds_data_dir",
        None,
        "Where prepared TensorFlow Datasets lie. Default: the library's folder.",
        Path.OUTPUT,
    )
    flags.DEFINE_list(
        "tfds_splits",
        ["train", "validation", "test"],
        "For sets of TensorFlow Datasets that are not GLUE's. Their splits, or"
        " slices such as train[:90%], for training, development and test.",
        flag_values=flag_values,
    )
    for name, default, help_text, needed_for in (
        ("train_file", "train.tsv", "Training file", ("do_train",)),
        ("dev_file", "dev.tsv", "Development file", ("do_eval", "eval_steps")),
        ("test_file", "test.tsv", "Test file, without labels,", ("do_predict",)),
    ):
        path_flags.define(
            name,
            default,
            f"For tsv. {help_text} in --data_dir.",
            Path.FILE,
            flag_values=flag_values,
            needed_for=needed_for,
            within="data_dir",
        )
    string(
        "text_a_column",
        "text_a",
        "For tsv. Column of the sentence: its name in the header, or its number"
        " from 0.",
    )
    string("text_b_column", None, "For tsv. Second sentence's column, if any.")
    string("label_column", "label", "For tsv. Column of the label.")
    flags.DEFINE_list(
        "labels",
        None,
        "For tsv. The labels, in the order of the outputs; for --regression of"
        " several numbers, their names. Default: the training file's labels, sorted;"
        " one number.",
        flag_values=flag_values,
    )
    boolean("has_header", True, "For tsv. Whether the first row names columns.")
    boolean("regression", False, "For tsv. The label is a number to predict.")
    boolean(
        "several_labels",
        False,
        "For tsv. A row has any number of labels, in one cell, perhaps none.",
    )
    string(
        "label_separator",
        ",",
        "For tsv. What stands between several labels, or numbers, in a cell.",
    )
    flags.DEFINE_list(
        "metrics",
        None,
        "Scores of the development set, such as f1_macro,accuracy; the best run"
        " is the best by the first one. Default: GLUE's for the task; accuracy for tsv,"
        " f1_micro with --several_labels, pearson with --regression.",
        flag_values=flag_values,
    )
    string(
        "xnli_language",
        "zh",
        "For XNLI. Language to train on (machine-translated) and to predict"
        " (Conneau et al. 2018), such as de. The original's is Chinese.",
    )
    flag_rules.require_one_given(flag_values, "task_name", "tfds_name")
    flag_rules.require_one_given(flag_values, "data_dir", "tfds_name")
    flag_rules.refuse_together(flag_values, "data_dir", "tfds_name")


def define_batches(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say how texts become batches."""
    define_padding(flag_values)
    define_long_text(flag_values)


@belongs_to(LENGTHS)
def define_padding(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say how long batches are."""
    flags.DEFINE_enum(
        "pad",
        "length",
        ["length", "max"],
        "length: batches of texts of like length, padded to one of a few lengths;"
        " max: all padded to --max_seq_length, as the original's.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "length_buckets",
        12,
        "For --pad=length. At most so many lengths, those that leave the least"
        " padding; each one is compiled for apart.",
        lower_bound=1,
        flag_values=flag_values,
    )


@belongs_to(RESULTS)
def define_looking(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the reports on a split's predictions."""
    flags.DEFINE_bool(
        "plots",
        True,
        "Draw the predictions of a labelled split: a confusion matrix and a"
        " calibration plot (Guo et al. 2017), or predicted against true numbers, as"
        " PNG in --output_dir.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "num_mistakes",
        50,
        "Mistakes to list in --output_dir, the most confident ones; 0 for none.",
        lower_bound=0,
        flag_values=flag_values,
    )


@belongs_to(RESULTS)
def define_submission(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the zip for the GLUE server."""
    flags.DEFINE_bool(
        "fill_missing_tasks",
        False,
        "Put a constant class into the submission for each task that was not"
        " predicted: the GLUE server takes a zip only if it has all files.",
        flag_values=flag_values,
    )


@belongs_to(LENGTHS)
def define_long_text(flag_values: flags.FlagValues) -> None:
    """Defines the flags of texts longer than --max_seq_length."""
    flags.DEFINE_enum(
        "long_text",
        "truncate",
        ["truncate", "window"],
        "What becomes of a text longer than --max_seq_length: it is cut, and how"
        " many were is said; or it is read in windows that overlap, in training each an"
        " example of its own, in evaluation and prediction averaged (their logits).",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "doc_stride",
        None,
        "For --long_text=window. Tokens from one window's beginning to the next"
        " one's, as for SQuAD (Devlin et al. 2018). Default: half of what a window"
        " holds.",
        lower_bound=1,
        flag_values=flag_values,
    )

    def has_a_use(values: dict[str, Any]) -> bool:
        if values["doc_stride"] is None or values["long_text"] == "window":
            return True
        raise flags.ValidationError(
            "--doc_stride is for --long_text=window: give both, or leave it out."
        )

    flags.register_multi_flags_validator(
        ["long_text", "doc_stride"], has_a_use, flag_values=flag_values
    )
