r"""Fine-tunes BERT on multiple choice, SWAG's or others': train, evaluate, predict.

    python -m bert_tf.run_swag --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \
        --do_train=true --train_file=$SWAG_DIR/train.csv \
        --do_eval=true --dev_file=$SWAG_DIR/val.csv \
        --do_predict=true --test_file=$SWAG_DIR/test.csv --output_dir=/tmp/swag_output/

The hyperparameters are those of Devlin et al. 2018, section 4.4: 2e-5, batches of 16, 3
epochs. A batch counts premises: 16 of them are 64 sequences where there are 4 endings.
Writes eval_results.txt and dev_predictions.csv, and of --test_file test_results.tsv
(probabilities) and swag_predictions.csv.
"""

import os
from typing import TYPE_CHECKING

from absl import flags, logging

from bert_tf import cli, finetuning_flags, flag_rules, swag_flags
from bert_tf import flags as shared_flags

if TYPE_CHECKING:
    import keras

    from bert_tf.tasks.multiple_choice import ChoiceSet, MultipleChoiceSession


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    finetuning_flags.define_run(
        flag_values,
        train_batch_size=16,
        eval_batch_size=16,
        predict_batch_size=16,
        learning_rate=2e-5,
    )
    shared_flags.define(flag_values, "max_seq_length")
    swag_flags.define_files(flag_values)
    swag_flags.define_columns(flag_values)
    finetuning_flags.define_padding(flag_values)
    flag_rules.require_one_of(flag_values, "do_train", "do_eval", "do_predict")
    flag_rules.require_at_least(flag_values, 5, "max_seq_length")


def run(flag_values: flags.FlagValues) -> None:
    """Reads the examples, then trains, evaluates and predicts."""
    cli.import_tensorflow()
    from bert_tf.tasks.multiple_choice import MultipleChoiceSession
    from bert_tf.training.run_folder import held_for_training
    from bert_tf.training.strategy import check_batch_size, strategy_from_flags

    strategy = strategy_from_flags(flag_values)
    # What would otherwise come out after training.
    if flag_values.do_eval or (flag_values.do_train and flag_values.eval_steps):
        check_batch_size(strategy, flag_values.eval_batch_size, flag="eval_batch_size")
    if flag_values.do_predict:
        check_batch_size(
            strategy, flag_values.predict_batch_size, flag="predict_batch_size"
        )
    # Every input is read and checked before anything is written or trained.
    session = MultipleChoiceSession(
        flag_values,
        strategy,
        sets=_read(flag_values),
        output_dir=flag_values.output_dir,
    )
    if flag_values.do_train:
        with held_for_training(flag_values.output_dir, strategy):
            model, step = session.fine_tune(flag_values.output_dir)
    else:
        model, step = session.restore(flag_values.output_dir)
    if flag_values.do_eval:
        _evaluate(session, model, step, flag_values)
    if flag_values.do_predict:
        _predict(session, model, flag_values)


def _read(flag_values: flags.FlagValues) -> dict[str, "ChoiceSet"]:
    """The examples, by split."""
    names = swag_flags.column_names(flag_values)
    looks_at_dev = flag_values.do_eval or (
        flag_values.do_train and flag_values.eval_steps
    )
    wanted = {
        "train": (flag_values.do_train, flag_values.train_file),
        "dev": (looks_at_dev, flag_values.dev_file),
        "test": (flag_values.do_predict, flag_values.test_file),
    }
    sets = {}
    for number, (split, (is_wanted, path)) in enumerate(wanted.items()):
        if not is_wanted:
            continue
        has_labels = split != "test"
        if flag_values.tfds_name:
            from bert_tf.tasks.swag_tfds import read_tfds_choices

            sets[split] = read_tfds_choices(
                flag_values.tfds_name,
                flag_values.tfds_splits[number],
                names,
                data_dir=flag_values.tfds_data_dir,
                has_labels=has_labels,
            )
        else:
            from bert_tf.tasks.multiple_choice import read_choices

            sets[split] = read_choices(path, names, has_labels=has_labels)
    return sets


def _evaluate(
    session: "MultipleChoiceSession",
    model: "keras.Model",
    step: int,
    flag_values: flags.FlagValues,
) -> None:
    """Scores the development set: eval_results.txt, and each of its predictions.

    eval_loss and eval_accuracy are over the examples, loss is the mean over batches.
    """
    from bert_tf.tasks.multiple_choice import ACCURACY, write_choices
    from bert_tf.training import run_folder

    output_dir = flag_values.output_dir
    examples, target = session.sets["dev"]
    logging.info("***** Running evaluation *****")
    logging.info("  Num examples = %d", len(examples))
    logits = session.logits(model, "dev")
    run_folder.report_evaluation(
        output_dir,
        step,
        session.scores(model, "dev", logits),
        names={ACCURACY: f"eval_{ACCURACY}"},
        is_chief=session.is_chief,
        task_name=session.task.name,
    )
    if session.is_chief:
        path = os.path.join(output_dir, "dev_predictions.csv")
        write_choices(path, examples, target, logits)


def _predict(
    session: "MultipleChoiceSession",
    model: "keras.Model",
    flag_values: flags.FlagValues,
) -> None:
    """Predicts the test set: test_results.tsv, swag_predictions.csv."""
    from bert_tf.tasks.multiple_choice import write_choices, write_probabilities

    output_dir = flag_values.output_dir
    examples, target = session.sets["test"]
    logging.info("***** Running prediction *****")
    logging.info("  Num examples = %d", len(examples))
    logits = session.logits(model, "test")
    if session.is_chief:
        write_probabilities(
            os.path.join(output_dir, "test_results.tsv"), target, logits
        )
        path = os.path.join(output_dir, "swag_predictions.csv")
        write_choices(path, examples, target, logits)
        logging.info("Wrote %d predictions to %s.", len(examples), path)


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
