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

from absl import logging

from bert_tf import cli
from bert_tf.tasks.run_options import ChoiceOptions

if TYPE_CHECKING:
    import keras

    from bert_tf.tasks.multiple_choice import ChoiceSet, MultipleChoiceSession


def run(options: ChoiceOptions) -> None:
    """Reads the examples, then trains, evaluates and predicts."""
    cli.import_tensorflow()
    from bert_tf.tasks.multiple_choice import MultipleChoiceSession
    from bert_tf.training.run_folder import held_for_training
    from bert_tf.training.strategy import check_batch_size, strategy_of

    strategy = strategy_of(options)
    # What would otherwise come out after training.
    if options.do_eval or (options.do_train and options.eval_steps):
        check_batch_size(strategy, options.eval_batch_size, flag="eval_batch_size")
    if options.do_predict:
        check_batch_size(
            strategy, options.predict_batch_size, flag="predict_batch_size"
        )
    # Every input is read and checked before anything is written or trained.
    session = MultipleChoiceSession(
        options,
        strategy,
        sets=_read(options),
        output_dir=options.output_dir,
    )
    if options.do_train:
        with held_for_training(options.output_dir, strategy):
            model, step = session.fine_tune(options.output_dir)
    else:
        model, step = session.restore(options.output_dir)
    if options.do_eval:
        _evaluate(session, model, step, options)
    if options.do_predict:
        _predict(session, model, options)


def _read(options: ChoiceOptions) -> dict[str, "ChoiceSet"]:
    """The examples, by split."""
    from bert_tf.tasks.multiple_choice import ColumnNames

    names = ColumnNames(
        premise=options.premise_column,
        start=options.start_column,
        endings=options.ending_columns or None,
        label=options.label_column,
        labels=options.labels or None,
    )
    looks_at_dev = options.do_eval or (options.do_train and options.eval_steps)
    wanted = {
        "train": (options.do_train, options.train_file),
        "dev": (looks_at_dev, options.dev_file),
        "test": (options.do_predict, options.test_file),
    }
    sets = {}
    for number, (split, (is_wanted, path)) in enumerate(wanted.items()):
        if not is_wanted:
            continue
        has_labels = split != "test"
        if options.tfds_name:
            from bert_tf.tasks.multiple_choice import read_tfds_choices

            sets[split] = read_tfds_choices(
                options.tfds_name,
                options.tfds_splits[number],
                names,
                data_dir=options.tfds_data_dir,
                has_labels=has_labels,
            )
        else:
            from bert_tf.tasks.multiple_choice import read_choices

            assert path is not None
            sets[split] = read_choices(path, names, has_labels=has_labels)
    return sets


def _evaluate(
    session: "MultipleChoiceSession",
    model: "keras.Model",
    step: int,
    options: ChoiceOptions,
) -> None:
    """Scores the development set: eval_results.txt, and each of its predictions.

    eval_loss and eval_accuracy are over the examples, loss is the mean over batches.
    """
    from bert_tf.tasks.multiple_choice import ACCURACY, write_choices
    from bert_tf.training import run_folder

    output_dir = options.output_dir
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
    options: ChoiceOptions,
) -> None:
    """Predicts the test set: test_results.tsv, swag_predictions.csv."""
    from bert_tf.tasks.multiple_choice import write_choices, write_probabilities

    output_dir = options.output_dir
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
    cli.main(run)


if __name__ == "__main__":
    main()
