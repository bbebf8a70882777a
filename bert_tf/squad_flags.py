"""The flags of SQuAD's scripts, in groups.

A script calls the groups it needs from its `define_flags(flag_values)`.
"""

from typing import Any

from absl import flags

from bert_tf import finetuning_flags, flag_rules, path_flags
from bert_tf import flags as shared_flags
from bert_tf.flag_groups import DATA, LENGTHS, TASK, TRAINING, belongs_to
from bert_tf.path_flags import Path


@belongs_to(DATA)
def define_questions(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say which questions."""

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

    path(
        "train_file",
        "SQuAD's JSON to train on, such as train-v1.1.json.",
        Path.FILE,
        "do_train",
    )
    path(
        "predict_file",
        "SQuAD's JSON to answer, such as dev-v1.1.json; scored where it has answers.",
        Path.FILE,
        "do_predict",
        "eval_steps",
    )
    finetuning_flags.define_tfds(
        flag_values,
        "Read a set of TensorFlow Datasets instead of files: squad/v1.1,"
        " squad/v2.0, or another one with their features.",
        {"train": "to train on", "validation": "to answer"},
    )
    flags.DEFINE_bool(
        "version_2_with_negative",
        False,
        "Some questions have no answer (SQuAD 2.0).",
        flag_values=flag_values,
    )
    flag_rules.refuse_together(flag_values, "tfds_name", "train_file")
    flag_rules.refuse_together(flag_values, "tfds_name", "predict_file")
    for flag, file in (
        ("do_train", "train_file"),
        ("do_predict", "predict_file"),
        ("eval_steps", "predict_file"),
    ):
        flag_rules.require_with(flag_values, flag, file, "tfds_name")


@belongs_to(LENGTHS)
def define_windows(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say how a question and its paragraph become records."""
    shared_flags.define(flag_values, max_seq_length=384)
    flags.DEFINE_integer(
        "doc_stride",
        128,
        "A paragraph that is too long is read in windows: tokens from one's beginning"
        " to the next one's.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "max_query_length",
        64,
        "Tokens of a question; longer ones are cut.",
        lower_bound=1,
        flag_values=flag_values,
    )

    def leaves_room(values: dict[str, Any]) -> bool:
        if values["max_seq_length"] > values["max_query_length"] + 3:
            return True
        raise flags.ValidationError(
            "--max_seq_length must be greater than --max_query_length + 3, so that"
            " there is room for a paragraph."
        )

    flags.register_multi_flags_validator(
        ["max_seq_length", "max_query_length"], leaves_room, flag_values=flag_values
    )


@belongs_to(TASK)
def define_decoding(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say how scores become answers."""
    flags.DEFINE_integer(
        "n_best_size",
        20,
        "Answers of a question in nbest_predictions.json.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "max_answer_length",
        30,
        "The most tokens of an answer.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "answer_text",
        "alignment",
        ["alignment", "offsets"],
        "How an answer's tokens become text. alignment: by the original's search"
        " for the tokens in the words that they come from, which can fail and then"
        " answers with the whole words; offsets: cut from the paragraph by the tokens'"
        " characters.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "verbose_logging",
        False,
        "Log each answer whose tokens could not be found in its words.",
        flag_values=flag_values,
    )


@belongs_to(TASK)
def define_null_answer(flag_values: flags.FlagValues) -> None:
    """Defines the flags of SQuAD 2.0's "no answer"."""
    flags.DEFINE_float(
        "null_score_diff_threshold",
        0.0,
        'SQuAD 2.0: "no answer" where its score is more than this above that of the'
        " best answer. Default: what --find_null_threshold has found for the model, or"
        " else 0.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "find_null_threshold",
        False,
        "Find the threshold that gives --predict_file, a development set, its"
        " best F1, as the official evaluation does, and keep it beside the model in"
        " null_threshold.json, for this prediction and for later ones; draw precision,"
        " recall and the differences of scores.",
        flag_values=flag_values,
    )

    flags.DEFINE_bool(
        "plots",
        True,
        "For --find_null_threshold. Draw, as PNG in --output_dir.",
        flag_values=flag_values,
    )

    for name in ("version_2_with_negative", "do_predict"):
        flag_rules.require_with(flag_values, "find_null_threshold", name)


@belongs_to(TRAINING)
def define_first_stage(flag_values: flags.FlagValues) -> None:
    """Defines the flags of training on other questions first."""
    path_flags.define(
        "first_train_file",
        None,
        "Questions in SQuAD's format to train on before --train_file, such as"
        " TriviaQA's (Devlin et al. 2018, section 4.2), in OUTPUT_DIR/first_stage.",
        Path.FILE,
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "first_num_train_epochs",
        1.0,
        "Passes over --first_train_file.",
        lower_bound=0.0,
        flag_values=flag_values,
    )
    flag_rules.require_with(flag_values, "first_train_file", "do_train")

    def both_train(values: dict[str, Any]) -> bool:
        # The second stage's would come out when the first one has been trained.
        for name in ("first_num_train_epochs", "num_train_epochs"):
            if values["first_train_file"] and values[name] <= 0.0:
                raise flags.ValidationError(
                    f"--{name} must be above 0 with --first_train_file."
                )
        return True

    flags.register_multi_flags_validator(
        ["first_train_file", "first_num_train_epochs", "num_train_epochs"],
        both_train,
        flag_values=flag_values,
    )
