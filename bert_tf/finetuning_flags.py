"""The flags of fine-tuning scripts, in groups.

A script calls the groups it needs from its `define_flags(flag_values)`. Flags that the
original does not have are marked "Ours".
"""

from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from bert_tf import flags as shared_flags


def define_data_set(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say which data set, for `tasks.data_set_flags`."""

    def string(name: str, default: str | None, help_text: str) -> None:
        flags.DEFINE_string(name, default, help_text, flag_values=flag_values)

    def boolean(name: str, default: bool, help_text: str) -> None:
        flags.DEFINE_bool(name, default, help_text, flag_values=flag_values)

    string("data_dir", None, "Folder of the task's files, such as train.tsv.")
    string(
        "task_name",
        None,
        "CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX (the diagnostics) or"
        " XNLI, in any case; or tsv: a table of your own.",
    )
    string(
        "tfds_name",
        None,
        "Ours. Read a set of TensorFlow Datasets instead of --data_dir: glue/sst2, or"
        " any other, whose features --text_a_column, --text_b_column and --label_column"
        " name.",
    )
    string(
        "tfds_data_dir",
        None,
        "Ours. Where prepared TensorFlow Datasets lie. Default: the library's folder.",
    )
    flags.DEFINE_list(
        "tfds_splits",
        ["train", "validation", "test"],
        "Ours, for sets of TensorFlow Datasets that are not GLUE's. Their splits, or"
        " slices such as train[:90%], for training, development and test.",
        flag_values=flag_values,
    )
    string("train_file", "train.tsv", "Ours, for tsv. Training file in --data_dir.")
    string("dev_file", "dev.tsv", "Ours, for tsv. Development file in --data_dir.")
    string("test_file", "test.tsv", "Ours, for tsv. Test file, without labels.")
    string(
        "text_a_column",
        "text_a",
        "Ours, for tsv. Column of the sentence: its name in the header, or its number"
        " from 0.",
    )
    string("text_b_column", None, "Ours, for tsv. Second sentence's column, if any.")
    string("label_column", "label", "Ours, for tsv. Column of the label.")
    flags.DEFINE_list(
        "labels",
        None,
        "Ours, for tsv. The labels, in the order of the outputs; for --regression of"
        " several numbers, their names. Default: the training file's labels, sorted;"
        " one number.",
        flag_values=flag_values,
    )
    boolean("has_header", True, "Ours, for tsv. Whether the first row names columns.")
    boolean("regression", False, "Ours, for tsv. The label is a number to predict.")
    boolean(
        "several_labels",
        False,
        "Ours, for tsv. A row has any number of labels, in one cell, perhaps none.",
    )
    string(
        "label_separator",
        ",",
        "Ours, for tsv. What stands between several labels, or numbers, in a cell.",
    )
    flags.DEFINE_list(
        "metrics",
        None,
        "Ours. Scores of the development set, such as f1_macro,accuracy; the best run"
        " is the best by the first one. Default: GLUE's for the task; accuracy for tsv,"
        " f1_micro with --several_labels, pearson with --regression.",
        flag_values=flag_values,
    )
    string(
        "xnli_language",
        "zh",
        "Ours, for XNLI. Language to train on (machine-translated) and to predict"
        " (Conneau et al. 2018), such as de. The original's is Chinese.",
    )
    shared_flags.require_one_given(flag_values, "task_name", "tfds_name")
    shared_flags.require_one_given(flag_values, "data_dir", "tfds_name")
    shared_flags.refuse_together(flag_values, "data_dir", "tfds_name")


def define_looking(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the reports on a split's predictions."""
    flags.DEFINE_bool(
        "plots",
        True,
        "Ours. Draw the predictions of a labelled split: a confusion matrix and a"
        " calibration plot (Guo et al. 2017), or predicted against true numbers, as"
        " PNG in --output_dir.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "num_mistakes",
        50,
        "Ours. Mistakes to list in --output_dir, the most confident ones; 0 for none.",
        lower_bound=0,
        flag_values=flag_values,
    )


def define_submission(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the zip for the GLUE server."""
    flags.DEFINE_bool(
        "fill_missing_tasks",
        False,
        "Ours. Put a constant class into the submission for each task that was not"
        " predicted: the GLUE server takes a zip only if it has all files.",
        flag_values=flag_values,
    )


class _NumbersParser(flags.ArgumentParser):
    """Numbers with commas between: 5e-5,3e-5. One alone is a list of one."""

    syntactic_help = "numbers with commas between"

    def __init__(self, number: Callable[[Any], Any], least: float) -> None:
        super().__init__()
        self._number = number
        self._least = least

    def parse(self, argument: str | float | Sequence[float]) -> list[Any]:
        """The numbers of a flag's text, or of a default."""
        if isinstance(argument, str):
            parts: list[Any] = [part.strip() for part in argument.split(",")]
        elif isinstance(argument, Sequence):
            parts = list(argument)
        else:
            parts = [argument]
        try:
            numbers = [self._number(part) for part in parts]
        except ValueError as error:
            raise ValueError("must be numbers with commas between") from error
        # NaN is not at least anything.
        if not all(self._least <= number < float("inf") for number in numbers):
            raise ValueError(f"must be at least {self._least}, each of them")
        return numbers

    def flag_type(self) -> str:
        """What --help calls it."""
        return "numbers"


def _numbers(
    name: str,
    default: Sequence[float] | None,
    help_text: str,
    number: Callable[[Any], Any],
    least: float,
    flag_values: flags.FlagValues,
) -> None:
    flags.DEFINE(
        _NumbersParser(number, least),
        name,
        default,
        help_text,
        flag_values,
        flags.CsvListSerializer(","),
    )


def define_selection(
    flag_values: flags.FlagValues, *, learning_rates: Sequence[float] | None = None
) -> None:
    """Defines the flags of several runs, of which the best one is kept.

    `num_train_epochs` is among them, as a list; --learning_rate, --train_batch_size and
    --random_seed are the shared ones.

    Args:
        flag_values: where the script's flags live.
        learning_rates: the default of --learning_rates.
    """
    _numbers(
        "learning_rates",
        learning_rates,
        "Ours. Learning rates to try, the best one on the development set being kept"
        " (Devlin et al. 2018, section 4.1: 5e-5,4e-5,3e-5,2e-5).",
        float,
        0.0,
        flag_values,
    )
    _numbers(
        "train_batch_sizes",
        None,
        "Ours. Batch sizes to try, each with each learning rate.",
        int,
        1,
        flag_values,
    )
    _numbers(
        "num_train_epochs",
        [3.0],
        "Passes over the training examples; ours: several numbers with commas between"
        " are all tried.",
        float,
        0.0,
        flag_values,
    )
    flags.DEFINE_integer(
        "num_restarts",
        1,
        "Ours. Runs of each of the settings, with the seeds --random_seed,"
        " --random_seed+1, ... (Devlin et al. 2018, section 4.1: random restarts).",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "stop_early",
        False,
        "Ours. Stop all runs after a share of their steps, and go on with the best"
        " alone (Dodge et al. 2020: start many, stop early, continue some).",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "stop_early_at", 0.3, "Ours. That share of the steps.", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "stop_early_keep",
        None,
        "Ours. How many runs go on; by default a third of them, rounded up.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "keep_all_runs",
        False,
        "Ours. Keep the checkpoints of all runs, not of the best one alone.",
        flag_values=flag_values,
    )
    shared_flags.refuse_together(flag_values, "learning_rates", "learning_rate")
    shared_flags.refuse_together(flag_values, "train_batch_sizes", "train_batch_size")
    flags.register_validator(
        "stop_early_at",
        lambda share: 0.0 < share < 1.0,
        message="must be above 0 and below 1",
        flag_values=flag_values,
    )
    _refuse_without(flag_values, "stop_early", "stop_early_at", "stop_early_keep")


def _refuse_without(flag_values: flags.FlagValues, switch: str, *names: str) -> None:
    """Makes it a usage error to give what has no effect without a switch."""

    def has_effect(values: dict[str, Any]) -> bool:
        useless = [name for name in names if flag_values[name].present]
        if values[switch] or not useless:
            return True
        raise flags.ValidationError(
            f"--{useless[0]} has no effect without --{switch}=true: give both, or"
            " neither."
        )

    flags.register_multi_flags_validator(
        [switch, *names], has_effect, flag_values=flag_values
    )


def define_glue(flag_values: flags.FlagValues) -> None:
    """Defines the flags of a run over many tasks."""
    flags.DEFINE_list(
        "tasks",
        ["all"],
        "Ours. GLUE's tasks to run, in any case, with commas between; all: those whose"
        " folders are in --glue_dir.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "glue_dir",
        None,
        "Ours. Folder of GLUE's folders: CoLA, SST-2, MRPC, ..., and diagnostic (AX).",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "two_stage",
        False,
        "Ours. Fine-tune MRPC, STS-B and RTE from MNLI's best model, its head dropped"
        " (STILTs, Phang et al. 2018); the paper's scores are without.",
        flag_values=flag_values,
    )
    flags.mark_flag_as_required("glue_dir", flag_values)
