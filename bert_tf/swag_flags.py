"""The flags of multiple choice: which files, and what their columns are called."""

from typing import TYPE_CHECKING

from absl import flags

from bert_tf import finetuning_flags, flag_rules, path_flags
from bert_tf.flag_groups import DATA, belongs_to
from bert_tf.path_flags import Path

if TYPE_CHECKING:
    from bert_tf.tasks.multiple_choice import ColumnNames

# What a file is needed for.
_FILE_OF = {"do_train": "train_file", "do_eval": "dev_file", "do_predict": "test_file"}


@belongs_to(DATA)
def define_files(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the files."""

    def string(name: str, help_text: str) -> None:
        flags.DEFINE_string(name, None, help_text, flag_values=flag_values)

    def path(name: str, help_text: str, kind: Path, *needed_for: str) -> None:
        path_flags.define(
            name,
            None,
            help_text,
            kind,
            flag_values=flag_values,
            needed_for=needed_for,
        )

    kinds = "CSV, TSV or JSON lines, .gz, .bz2 and .xz too."
    path(
        "train_file",
        f"Examples to train on, such as SWAG's train.csv: {kinds}",
        Path.FILE,
        "do_train",
    )
    path(
        "dev_file",
        "Examples to score the model on, such as SWAG's val.csv.",
        Path.FILE,
        "do_eval",
        "eval_steps",
    )
    path(
        "test_file",
        "Examples to predict, such as SWAG's test.csv; labels are not looked at.",
        Path.FILE,
        "do_predict",
    )
    finetuning_flags.define_tfds(
        flag_values,
        "Read a set of TensorFlow Datasets instead of files: hellaswag, or any"
        " other with a premise and endings.",
        {
            "train": "to train on",
            "validation": "to score the model on",
            "test": "to predict",
        },
    )
    for flag, file in {**_FILE_OF, "eval_steps": "dev_file"}.items():
        flag_rules.require_with(flag_values, flag, file, "tfds_name")
    for file in _FILE_OF.values():
        flag_rules.refuse_together(flag_values, "tfds_name", file)


@belongs_to(DATA)
def define_columns(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the columns, of JSON lines the fields."""

    def string(name: str, help_text: str) -> None:
        flags.DEFINE_string(name, None, help_text, flag_values=flag_values)

    def listed(name: str, help_text: str) -> None:
        flags.DEFINE_list(name, None, help_text, flag_values=flag_values)

    string(
        "premise_column",
        "The premise's. Default: sent1 (SWAG), ctx_a (HellaSwag), ctx or context,"
        " whichever is there first.",
    )
    string(
        "start_column",
        "That of what every ending goes on from; empty for none. Default: sent2"
        " (SWAG) or ctx_b (HellaSwag), where there is one.",
    )
    listed(
        "ending_columns",
        "Those of the endings, two or more, with commas between; or one field"
        " that is a list of them. Default: endings, or ending0, ending1 and so on, as"
        " many as there are.",
    )
    string("label_column", "The right ending's. Default: label.")
    listed(
        "labels",
        "What the label's column says for each ending, such as A,B,C,D. Default:"
        " 0,1,2 and so on.",
    )


def column_names(flag_values: flags.FlagValues) -> "ColumnNames":
    """What the flags of `define_columns` say."""
    from bert_tf.tasks.multiple_choice import ColumnNames

    endings, labels = flag_values.ending_columns, flag_values.labels
    return ColumnNames(
        premise=flag_values.premise_column,
        start=flag_values.start_column,
        endings=tuple(endings) if endings else None,
        label=flag_values.label_column,
        labels=tuple(labels) if labels else None,
    )
