"""The flags of pre-training's script, in groups.

A script calls the groups it needs from its `define_flags(flag_values)`.
"""

from absl import flags

from bert_tf import flag_rules, path_flags
from bert_tf import flags as shared_flags
from bert_tf.config import SIZE_NAMES
from bert_tf.flag_groups import DATA, MODEL, TASK, TRAINING, WHAT_TO_DO, belongs_to
from bert_tf.options import Path


@belongs_to(MODEL)
def define_model(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say which model; after --init_checkpoint."""
    shared_flags.define(flag_values, "vocab_file", "do_lower_case", "bert_config_file")
    flags.DEFINE_enum(
        "bert_size",
        None,
        SIZE_NAMES,
        "A released size instead of --bert_config_file; its vocabulary is that of"
        " the records.",
        flag_values=flag_values,
    )
    flag_rules.refuse_together(flag_values, "bert_config_file", "bert_size")
    flag_rules.require_one_given(
        flag_values, "bert_config_file", "bert_size", "init_checkpoint"
    )


@belongs_to(DATA)
def define_records(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say which records."""
    path_flags.define(
        "input_file",
        None,
        "TFRecords to train on: a glob, or several with commas between.",
        Path.FILES,
        flag_values=flag_values,
    )
    path_flags.define(
        "eval_input_file",
        None,
        "TFRecords to evaluate on. Default: those of --input_file, as the"
        " original does.",
        Path.FILES,
        flag_values=flag_values,
    )
    lengths = "max_seq_length", "max_predictions_per_seq"
    shared_flags.define(flag_values, *lengths)
    for name in lengths:
        flag_values[name].help += " Default: that of the records."
    flags.mark_flag_as_required("input_file", flag_values)
    flag_rules.require_at_least(flag_values, 1, *lengths)


@belongs_to(TRAINING)
def define_steps(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say how long; after --train_batch_size and the records."""
    flags.DEFINE_integer(
        "num_train_steps",
        100_000,
        "The step to train to, counted from the first start.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "num_warmup_steps",
        10_000,
        "Steps during which the learning rate rises linearly.",
        flag_values=flag_values,
    )
    shared_flags.define(flag_values, "num_schedule_steps")
    flags.DEFINE_string(
        "phases",
        None,
        "LENGTH:STEPS:BATCH, several with commas between, one after the other;"
        " each reads the records of its length among those of --input_file. Instead of"
        " --num_train_steps and --train_batch_size.",
        flag_values=flag_values,
    )
    for flag in ("num_train_steps", "train_batch_size", "max_seq_length"):
        flag_rules.refuse_together(flag_values, "phases", flag)
    flag_rules.require_at_least(flag_values, 1, "num_train_steps", "num_schedule_steps")
    flag_rules.require_at_least(flag_values, 0, "num_warmup_steps")


@belongs_to(WHAT_TO_DO)
def define_evaluation(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say how to evaluate; after --do_train."""
    shared_flags.define(flag_values, "eval_steps", "best_metric")
    flags.DEFINE_integer(
        "max_eval_steps",
        100,
        "Batches to evaluate; the records are repeated if they are fewer.",
        flag_values=flag_values,
    )
    flag_rules.require_one_of(flag_values, "do_train", "do_eval")
    flag_rules.require_at_least(flag_values, 1, "max_eval_steps")
    flag_rules.require_at_least(flag_values, 0, "eval_steps")


@belongs_to(TASK)
def define_ablations(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the paper's ablations, its section 5.1."""
    flags.DEFINE_bool(
        "next_sentence",
        True,
        "Predict the next sentence, where the records have pairs; false is the"
        ' ablation "No NSP".',
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "left_to_right",
        False,
        "A left-to-right language model: a token sees itself and those before,"
        ' and predicts the next one; with --next_sentence=False the ablation "LTR & No'
        ' NSP". Needs records without masks (--masking=dynamic). Fine-tuning from its'
        " bert_config.json is left-to-right too.",
        flag_values=flag_values,
    )


@belongs_to(TASK)
def define_masking(flag_values: flags.FlagValues) -> None:
    """Defines the flags of records that are masked as they are read.

    These were made by `create_pretraining_data --masking=dynamic`.
    """
    flags.DEFINE_enum(
        "masking_unit",
        None,
        ["piece", "word", "span"],
        "What is masked together, in records without masks: pieces one by one,"
        " whole words, or spans of whole words (SpanBERT). Default: word or piece, as"
        " the records' --do_whole_word_mask says.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "masked_lm_prob",
        None,
        "Share of a sequence's tokens to predict, in records without masks."
        " Default: the records' own.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "mask_rate",
        0.8,
        "Share of the predicted tokens that become [MASK], in records without masks.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "random_rate",
        0.1,
        "Share of the predicted tokens that become a random token, in records"
        " without masks; the rest stays as it is.",
        flag_values=flag_values,
    )
    flags.register_validator(
        "masked_lm_prob",
        lambda share: share is None or 0.0 < share <= 1.0,
        message="must be above 0 and at most 1",
        flag_values=flag_values,
    )
    flag_rules.require_at_least(flag_values, 0.0, "mask_rate", "random_rate")
    flags.register_multi_flags_validator(
        ["mask_rate", "random_rate"],
        lambda rates: sum(rates.values()) <= 1.0,
        message="--mask_rate and --random_rate must be at most 1 together",
        flag_values=flag_values,
    )
