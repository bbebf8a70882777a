"""The flags of several fine-tuning runs, on one task or on all of GLUE.

As `bert_tf.finetuning_flags`: a script calls the groups that it needs.
"""

from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from bert_tf import flag_rules, path_flags
from bert_tf.flag_groups import DATA, SEVERAL_RUNS, belongs_to
from bert_tf.path_flags import Path


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
            kind = "whole numbers" if self._number is int else "numbers"
            raise ValueError(f"must be {kind} with commas between") from error
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


@belongs_to(SEVERAL_RUNS)
def define_selection(
    flag_values: flags.FlagValues, *, learning_rates: Sequence[float] | None = None
) -> None:
    """Defines the flags of several runs, of which the best one is kept.

    `num_train_epochs` is among them, as a list; --learning_rate, --train_batch_size and
    --random_seed are the shared ones.
    """
    _numbers(
        "learning_rates",
        learning_rates,
        "Learning rates to try, the best one on the development set being kept"
        " (Devlin et al. 2018, section 4.1: 5e-5,4e-5,3e-5,2e-5).",
        float,
        0.0,
        flag_values,
    )
    _numbers(
        "train_batch_sizes",
        None,
        "Batch sizes to try, each with each learning rate.",
        int,
        1,
        flag_values,
    )
    _numbers(
        "num_train_epochs",
        [3.0],
        "Passes over the training examples; several numbers with commas between"
        " are all tried.",
        float,
        0.0,
        flag_values,
    )
    flags.DEFINE_integer(
        "num_restarts",
        1,
        "Runs of each of the settings, with the seeds --random_seed,"
        " --random_seed+1, ... (Devlin et al. 2018, section 4.1: random restarts).",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "stop_early",
        False,
        "Stop all runs after a share of their steps, and go on with the best"
        " alone (Dodge et al. 2020: start many, stop early, continue some).",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "stop_early_at", 0.3, "That share of the steps.", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "stop_early_keep",
        None,
        "How many runs go on; by default a third of them, rounded up.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "keep_all_runs",
        False,
        "Keep the checkpoints of all runs, not of the best one alone.",
        flag_values=flag_values,
    )
    flag_rules.refuse_together(flag_values, "learning_rates", "learning_rate")
    flag_rules.refuse_together(flag_values, "train_batch_sizes", "train_batch_size")
    flags.register_validator(
        "stop_early_at",
        lambda share: 0.0 < share < 1.0,
        message="must be above 0 and below 1",
        flag_values=flag_values,
    )
    flag_rules.refuse_without(
        flag_values, "stop_early", "stop_early_at", "stop_early_keep"
    )


@belongs_to(DATA)
def define_glue(flag_values: flags.FlagValues) -> None:
    """Defines the flags of a run over many tasks."""
    flags.DEFINE_list(
        "tasks",
        ["all"],
        "GLUE's tasks to run, in any case, with commas between; all: those whose"
        " folders are in --glue_dir.",
        flag_values=flag_values,
    )
    path_flags.define(
        "glue_dir",
        None,
        "Folder of GLUE's folders: CoLA, SST-2, MRPC, ..., and diagnostic (AX).",
        Path.FOLDER,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "two_stage",
        False,
        "Fine-tune MRPC, STS-B and RTE from MNLI's best model, its head dropped"
        " (STILTs, Phang et al. 2018); the paper's scores are without.",
        flag_values=flag_values,
    )
    flags.mark_flag_as_required("glue_dir", flag_values)
