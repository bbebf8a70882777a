r"""Pre-trains BERT on TFRecords of masked next-sentence pairs.

Trains with the masked LM and the next sentence loss together (with the masked LM alone
where the records have no sentence pairs), evaluates, or both:

    python -m bert_tf.run_pretraining --input_file=/tmp/tf_examples.tfrecord \
        --bert_config_file=bert_config.json --output_dir=/tmp/pretraining_output \
        --do_train=True --do_eval=True --num_train_steps=20 --num_warmup_steps=10

Started again with the same --output_dir it goes on from the last checkpoint. The
paper's two phases are one command with

    --input_file=records/128/*,records/512/* --phases=128:900000:256,512:100000:256
"""

import dataclasses
import os
from typing import TYPE_CHECKING

from absl import flags, logging

from bert_tf import cli
from bert_tf import flags as shared_flags
from bert_tf.config import SIZE_NAMES, BertConfig
from bert_tf.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bert_tf.conversion.source import Source


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    shared_flags.define(
        flag_values,
        "max_seq_length",
        "max_predictions_per_seq",
        "vocab_file",
        "do_lower_case",
        "bert_config_file",
        "num_schedule_steps",
        "eval_steps",
        "best_metric",
        required=("output_dir",),
    )
    shared_flags.define_training(flag_values)
    flags.DEFINE_enum(
        "bert_size",
        None,
        SIZE_NAMES,
        "Ours. A released size instead of --bert_config_file; its vocabulary is that of"
        " the records.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "phases",
        None,
        "Ours. LENGTH:STEPS:BATCH, several with commas between, one after the other;"
        " each reads the records of its length among those of --input_file. Instead of"
        " --num_train_steps and --train_batch_size.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "input_file",
        None,
        "TFRecords to train on: a glob, or several with commas between.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "eval_input_file",
        None,
        "Ours. TFRecords to evaluate on. Default: those of --input_file, as the"
        " original does.",
        flag_values=flag_values,
    )
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
    flags.DEFINE_integer(
        "max_eval_steps",
        100,
        "Batches to evaluate; the records are repeated if they are fewer.",
        flag_values=flag_values,
    )
    _define_ablations(flag_values)
    _define_masking(flag_values)
    flags.mark_flag_as_required("input_file", flag_values)
    shared_flags.refuse_together(flag_values, "bert_config_file", "bert_size")
    shared_flags.require_one_given(
        flag_values, "bert_config_file", "bert_size", "init_checkpoint"
    )
    shared_flags.refuse_together(flag_values, "phases", "num_train_steps")
    shared_flags.refuse_together(flag_values, "phases", "train_batch_size")
    shared_flags.refuse_together(flag_values, "phases", "max_seq_length")
    shared_flags.require_one_of(flag_values, "do_train", "do_eval")
    shared_flags.require_at_least(
        flag_values,
        1,
        "num_train_steps",
        "max_eval_steps",
        "max_seq_length",
        "max_predictions_per_seq",
        "num_schedule_steps",
    )
    shared_flags.require_at_least(flag_values, 0, "num_warmup_steps", "eval_steps")


def _define_ablations(flag_values: flags.FlagValues) -> None:
    """Of the paper's section 5.1."""
    flags.DEFINE_bool(
        "next_sentence",
        True,
        "Ours. Predict the next sentence, where the records have pairs; false is the"
        ' ablation "No NSP".',
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "left_to_right",
        False,
        "Ours. A left-to-right language model: a token sees itself and those before,"
        ' and predicts the next one; with --next_sentence=False the ablation "LTR & No'
        ' NSP". Needs records without masks (--masking=dynamic). Fine-tuning from its'
        " bert_config.json is left-to-right too.",
        flag_values=flag_values,
    )


def _define_masking(flag_values: flags.FlagValues) -> None:
    """Of records that are masked as they are read (--masking=dynamic)."""
    flags.DEFINE_enum(
        "masking_unit",
        None,
        ["piece", "word", "span"],
        "Ours. What is masked together, in records without masks: pieces one by one,"
        " whole words, or spans of whole words (SpanBERT). Default: word or piece, as"
        " the records' --do_whole_word_mask says.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "masked_lm_prob",
        None,
        "Ours. Share of a sequence's tokens to predict, in records without masks."
        " Default: the records' own.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "mask_rate",
        0.8,
        "Ours. Share of the predicted tokens that become [MASK], in records without"
        " masks.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "random_rate",
        0.1,
        "Ours. Share of the predicted tokens that become a random token, in records"
        " without masks; the rest stays as it is.",
        flag_values=flag_values,
    )
    flags.register_validator(
        "masked_lm_prob",
        lambda share: share is None or 0.0 < share <= 1.0,
        message="must be above 0 and at most 1",
        flag_values=flag_values,
    )
    shared_flags.require_at_least(flag_values, 0.0, "mask_rate", "random_rate")
    flags.register_multi_flags_validator(
        ["mask_rate", "random_rate"],
        lambda rates: sum(rates.values()) <= 1.0,
        message="--mask_rate and --random_rate must be at most 1 together",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues) -> None:
    """Checks the input, then trains and evaluates."""
    cli.import_tensorflow()
    from bert_tf.conversion import names
    from bert_tf.conversion.checkpoint import refuse_other_function
    from bert_tf.conversion.model_files import checked_casing
    from bert_tf.conversion.source import open_source
    from bert_tf.records.masking_options import MaskingOptions
    from bert_tf.records.pretraining_input import PretrainingRecords
    from bert_tf.tasks.pretraining import pretraining_task
    from bert_tf.training import run_folder
    from bert_tf.training.config import TrainingConfig, parse_phases
    from bert_tf.training.loop import restore_or_initialize, train
    from bert_tf.training.pretraining import PretrainingData, evaluation_of
    from bert_tf.training.strategy import (
        check_batch_size,
        is_chief,
        strategy_from_flags,
    )

    specs = parse_phases(flag_values.phases) if flag_values.phases else None
    strategy = strategy_from_flags(flag_values)
    # What would otherwise come out after hours of training.
    if flag_values.do_eval or flag_values.eval_steps:
        check_batch_size(strategy, flag_values.eval_batch_size, flag="eval_batch_size")
    masking = MaskingOptions(
        **{
            field.name: shared_flags.given(flag_values, field.name)
            for field in dataclasses.fields(MaskingOptions)
        }
    )
    source = (
        open_source(flag_values.init_checkpoint)
        if flag_values.init_checkpoint
        else None
    )
    config = model_config(flag_values, source)
    if source is not None and source.config is not None:
        refuse_other_function(source, config, "this run's model")

    def open_records(paths: "Sequence[str]", flag: str) -> PretrainingRecords:
        return PretrainingRecords(
            paths,
            flag=flag,
            max_seq_length=shared_flags.given(flag_values, "max_seq_length"),
            max_predictions_per_seq=shared_flags.given(
                flag_values, "max_predictions_per_seq"
            ),
            vocab_file=flag_values.vocab_file,
            masking=masking,
            left_to_right=config.left_to_right,
            counts_cache=os.path.join(flag_values.output_dir, "record_counts.json"),
        )

    data = PretrainingData.open(
        open_records,
        specs,
        input_file=flag_values.input_file,
        eval_input_file=flag_values.eval_input_file,
        num_train_steps=flag_values.num_train_steps,
        train_batch_size=flag_values.train_batch_size,
    )
    every = [*[records for _, records in data.phases], *data.held_out]
    vocabulary, do_lower_case = data.records.vocabulary(
        shared_flags.given(flag_values, "do_lower_case")
    )
    if flag_values.bert_size and vocabulary is not None:
        config = dataclasses.replace(config, vocab_size=len(vocabulary))
    for records in every:
        records.check_model(config)
    if not any(records.is_dynamic for records in every):
        masking.refuse_where_unused(data.records.paths[0])
    if vocabulary is not None:
        config.check_vocabulary(len(vocabulary), "The vocabulary")
        do_lower_case = checked_casing(
            source, vocabulary, do_lower_case, "The vocabulary of the records"
        )
    run_folder.prepare(
        flag_values.output_dir,
        config,
        vocabulary,
        do_lower_case,
        flag_values,
        head=names.MASKED_LM,
    )
    task = pretraining_task(
        config,
        next_sentence=data.records.has_pairs and flag_values.next_sentence,
        packed=data.is_packed,
        recompute=flag_values.recompute,
    )
    metrics = ("loss", *task.objective.losses, *task.objective.metrics)
    if flag_values.eval_steps and flag_values.best_metric not in metrics:
        raise InputError(
            f"--best_metric={flag_values.best_metric} is none of the evaluation's"
            f" metrics: {', '.join(metrics)}."
        )
    if not data.records.has_pairs:
        logging.info(
            "The records have no sentence pairs: the masked LM is alone; the pooler and"
            " the next sentence head stay as they are."
        )
    if flag_values.do_train:
        training = TrainingConfig.from_flags(
            flag_values,
            num_train_steps=data.num_train_steps,
            num_warmup_steps=flag_values.num_warmup_steps,
        )
        logging.info("***** Running training *****")
        for spec, _ in data.phases:
            logging.info(
                "  %d steps of %d sequences of length %d",
                spec.num_steps,
                spec.batch_size,
                spec.max_seq_length,
            )
        model, step = train(
            task,
            training,
            folder=flag_values.output_dir,
            phases=data.training_phases(
                task,
                training,
                strategy,
                vocab_size=config.vocab_size,
                eval_batch_size=flag_values.eval_batch_size,
                max_eval_steps=flag_values.max_eval_steps,
            ),
            init_checkpoint=flag_values.init_checkpoint,
            strategy=strategy,
        )
    else:
        model, step = restore_or_initialize(
            task,
            flag_values.output_dir,
            flag_values.init_checkpoint,
            flag_values.precision,
            strategy,
        )

    if flag_values.do_eval:
        logging.info("***** Running evaluation *****")
        logging.info("  Batch size = %d", flag_values.eval_batch_size)
        evaluate = evaluation_of(
            task,
            data.held_out[-1],
            strategy,
            vocab_size=config.vocab_size,
            batch_size=flag_values.eval_batch_size,
            num_batches=flag_values.max_eval_steps,
            packed=data.is_packed,
            jit_compile=flag_values.jit_compile,
        )
        run_folder.report_evaluation(
            flag_values.output_dir,
            step,
            evaluate(model),
            is_chief=is_chief(strategy),
        )


def model_config(flag_values: flags.FlagValues, source: "Source | None") -> BertConfig:
    """The architecture that the flags name, or else the checkpoint to start from."""
    if flag_values.bert_size:
        config = BertConfig.from_size(flag_values.bert_size)
    elif flag_values.bert_config_file:
        config = BertConfig.from_json_file(flag_values.bert_config_file)
    else:
        assert source is not None  # One of the three flags is given.
        config = source.require_config()
    if flag_values.left_to_right:
        config = dataclasses.replace(config, left_to_right=True)
    return config


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
