r"""Pre-trains BERT on TFRecords of masked next-sentence pairs.

Trains with the masked LM and the next sentence loss together, evaluates, or both:

    python -m bert_tf.run_pretraining --input_file=/tmp/tf_examples.tfrecord \
        --bert_config_file=bert_config.json --output_dir=/tmp/pretraining_output \
        --do_train=True --do_eval=True --num_train_steps=20 --num_warmup_steps=10

Started again with the same --output_dir it goes on from the last checkpoint.
"""

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


def run(flag_values: flags.FlagValues) -> None:
    """Checks the input, then trains and evaluates."""
    cli.import_tensorflow()
    from bert_tf.conversion.checkpoint import checked_casing, find_checkpoint
    from bert_tf.records.pretraining_input import PretrainingRecords
    from bert_tf.tasks.pretraining import pretraining_task
    from bert_tf.training import evaluation, run_folder
    from bert_tf.training.loop import TrainingConfig, restore_or_initialize, train
    from bert_tf.training.strategy import strategy_from_flags

    config = BertConfig.from_json_file(flag_values.bert_config_file)
    open_records = functools.partial(
        PretrainingRecords,
        max_seq_length=shared_flags.given(flag_values, "max_seq_length"),
        max_predictions_per_seq=shared_flags.given(
            flag_values, "max_predictions_per_seq"
        ),
    )
    train_records = open_records(flag_values.input_file)
    train_records.check_model(config)
    eval_records = train_records
    if flag_values.eval_input_file:
        eval_records = open_records(flag_values.eval_input_file, flag="eval_input_file")
        eval_records.check_model(config)
        train_records.refuse_other_vocabulary(eval_records)
    vocabulary, do_lower_case = train_records.vocabulary(
        flag_values.vocab_file, shared_flags.given(flag_values, "do_lower_case")
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
    task = pretraining_task(config)

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
