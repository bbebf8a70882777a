r"""Pre-trains BERT on TFRecords of masked next-sentence pairs.

Trains with the masked LM and the next sentence loss together (with the masked LM alone
where the records have no sentence pairs), evaluates, or both:

    python -m bert_tf.run_pretraining --input_file=/tmp/tf_examples.tfrecord \
        --bert_config_file=bert_config.json --output_dir=/tmp/pretraining_output \
        --do_train=True --do_eval=True --num_train_steps=20 --num_warmup_steps=10

Started again with the same --output_dir it goes on from the last checkpoint.
"""

import dataclasses
import functools

from absl import flags, logging

from bert_tf import cli
from bert_tf import flags as shared_flags
from bert_tf.config import BertConfig


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    shared_flags.define(
        flag_values,
        "max_seq_length",
        "max_predictions_per_seq",
        "vocab_file",
        "do_lower_case",
        required=("bert_config_file", "output_dir"),
    )
    shared_flags.define_training(flag_values)
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
    _define_masking(flag_values)
    flags.mark_flag_as_required("input_file", flag_values)
    shared_flags.require_one_of(flag_values, "do_train", "do_eval")
    shared_flags.require_at_least(
        flag_values,
        1,
        "num_train_steps",
        "max_eval_steps",
        "max_seq_length",
        "max_predictions_per_seq",
    )
    shared_flags.require_at_least(flag_values, 0, "num_warmup_steps")


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
    from bert_tf.conversion.checkpoint import checked_casing, find_checkpoint
    from bert_tf.records.masking_options import MaskingOptions
    from bert_tf.records.pretraining_input import PretrainingRecords
    from bert_tf.tasks.pretraining import pretraining_task
    from bert_tf.training import evaluation, run_folder
    from bert_tf.training.loop import TrainingConfig, restore_or_initialize, train
    from bert_tf.training.strategy import strategy_from_flags

    config = BertConfig.from_json_file(flag_values.bert_config_file)
    masking = MaskingOptions(
        **{
            field.name: shared_flags.given(flag_values, field.name)
            for field in dataclasses.fields(MaskingOptions)
        }
    )
    open_records = functools.partial(
        PretrainingRecords,
        max_seq_length=shared_flags.given(flag_values, "max_seq_length"),
        max_predictions_per_seq=shared_flags.given(
            flag_values, "max_predictions_per_seq"
        ),
        vocab_file=flag_values.vocab_file,
        masking=masking,
    )
    train_records = open_records(flag_values.input_file)
    train_records.check_model(config)
    eval_records = train_records
    if flag_values.eval_input_file:
        eval_records = open_records(flag_values.eval_input_file, flag="eval_input_file")
        eval_records.check_model(config)
        train_records.refuse_other_vocabulary(eval_records)
        train_records.refuse_other_pairs(eval_records)
    if not train_records.is_dynamic and not eval_records.is_dynamic:
        masking.refuse_where_unused(train_records.paths[0])
    vocabulary, do_lower_case = train_records.vocabulary(
        shared_flags.given(flag_values, "do_lower_case")
    )
    if vocabulary is not None:
        config.check_vocabulary(len(vocabulary), "The vocabulary")
        do_lower_case = checked_casing(
            flag_values.init_checkpoint, vocabulary, do_lower_case
        )
    if flag_values.init_checkpoint:
        find_checkpoint(flag_values.init_checkpoint)
    run_folder.prepare(
        flag_values.output_dir, config, vocabulary, do_lower_case, flag_values
    )
    strategy = strategy_from_flags(flag_values)
    task = pretraining_task(config, next_sentence=train_records.has_pairs)
    if not train_records.has_pairs:
        logging.info(
            "The records have no sentence pairs: the masked LM is alone; the pooler and"
            " the next sentence head stay as they are."
        )

    if flag_values.do_train:
        training = TrainingConfig.from_flags(
            flag_values,
            num_train_steps=flag_values.num_train_steps,
            num_warmup_steps=flag_values.num_warmup_steps,
        )
        logging.info("***** Running training *****")
        logging.info("  Batch size = %d", training.train_batch_size)
        model, step = train(
            task,
            training,
            folder=flag_values.output_dir,
            dataset=lambda position: train_records.training_dataset(
                training.train_batch_size,
                seed=training.random_seed,
                start=position,
                vocab_size=config.vocab_size,
            ),
            init_checkpoint=flag_values.init_checkpoint,
            strategy=strategy,
        )
    else:
        model, step = restore_or_initialize(
            task, flag_values.output_dir, flag_values.init_checkpoint
        )

    if flag_values.do_eval:
        logging.info("***** Running evaluation *****")
        logging.info("  Batch size = %d", flag_values.eval_batch_size)
        results = evaluation.evaluate(
            task,
            model,
            eval_records.evaluation_dataset(
                flag_values.eval_batch_size,
                repeat=True,
                vocab_size=config.vocab_size,
            ),
            num_batches=flag_values.max_eval_steps,
        )
        run_folder.report_evaluation(flag_values.output_dir, step, results)


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
