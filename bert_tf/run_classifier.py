r"""Fine-tunes BERT on sentences and sentence pairs: train, evaluate, predict.

    python -m bert_tf.run_classifier --task_name=MRPC --do_train=true --do_eval=true \
        --data_dir=$GLUE_DIR/MRPC --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --max_seq_length=128 \
        --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0 \
        --output_dir=/tmp/mrpc_output/

Tasks: GLUE's, XNLI, and `tsv` for a table of your own (train.tsv, dev.tsv, test.tsv in
--data_dir; columns by flags), or any set of TensorFlow Datasets (--tfds_name). With
several learning rates, batch sizes, epochs or restarts, all are tried and the best run
on the development set is kept, in OUTPUT_DIR/best.
"""

import os
from typing import TYPE_CHECKING

from absl import logging

from bert_tf import cli, files
from bert_tf.errors import InputError
from bert_tf.tasks.data_set_options import ClassifierOptions
from bert_tf.tasks.run_options import warn_of_stride, with_recipe

if TYPE_CHECKING:
    import keras
    import numpy as np

    from bert_tf.tasks.classification import ClassifierSession
    from bert_tf.tasks.tables import DataSet, Target


def run(options: ClassifierOptions) -> None:
    """Reads the examples, then trains, evaluates and predicts."""
    cli.import_tensorflow()
    options = with_recipe(options)
    from bert_tf.tasks.classification import ClassifierSession
    from bert_tf.tasks.data_set_options import data_set_of
    from bert_tf.tasks.finetuning import is_selection
    from bert_tf.training.strategy import check_batch_size, strategy_of

    warn_of_stride(options.doc_stride, options.max_seq_length)
    strategy = strategy_of(options)
    # What would otherwise come out after training.
    if options.do_eval or options.eval_steps:
        check_batch_size(strategy, options.eval_batch_size, flag="eval_batch_size")
    if options.do_predict:
        check_batch_size(
            strategy, options.predict_batch_size, flag="predict_batch_size"
        )
    data_set = data_set_of(options)
    selects = options.do_train and is_selection(options)
    for name in ("stop_early", "keep_all_runs"):
        if getattr(options, name) and options.do_train and not selects:
            raise InputError(
                f"--{name} is for several runs, and this is one: give --learning_rates,"
                " --train_batch_sizes or --num_restarts too, or leave it out."
            )
    _refuse_no_such_use(options, data_set, selects=selects)
    looks_at_dev = options.do_eval or options.eval_steps or selects
    # Every input is read and checked before anything is written or trained.
    session = ClassifierSession(
        options,
        strategy,
        data_set=data_set,
        splits=[
            *(["train"] if options.do_train else []),
            *(data_set.dev_splits if looks_at_dev else []),
            *(data_set.test_splits if options.do_predict else []),
        ],
        records_dir=options.output_dir,
        output_dir=_folder_of_model(options),
    )
    model, step = _train_or_restore(session, options, selects=selects)
    if options.do_eval:
        _evaluate(session, model, step, options)
    if options.do_predict:
        _predict(session, model, options)


def _refuse_no_such_use(
    options: ClassifierOptions, data_set: "DataSet", *, selects: bool
) -> None:
    """Raises InputError for what a data set, or a folder, is not for."""
    from bert_tf.tasks.selection import RECORDS_NAME

    if options.do_eval and not data_set.dev_splits:
        raise InputError(
            f"--do_eval: {data_set.name} has no development set. Leave it out."
        )
    records = os.path.join(options.output_dir, RECORDS_NAME)
    if options.do_train and not selects and files.exists(records):
        raise InputError(
            f"--output_dir={options.output_dir} holds several runs, of which the"
            " best one is kept. Give another folder for a single run."
        )


def _train_or_restore(
    session: "ClassifierSession", options: ClassifierOptions, *, selects: bool
) -> tuple["keras.Model", int]:
    """The model to evaluate and to predict with, and the step that it is of."""
    from bert_tf.tasks.selection import search
    from bert_tf.training import checkpoints
    from bert_tf.training.run_folder import held_for_training

    output_dir = options.output_dir
    if not options.do_train:
        return session.restore(_folder_of_model(options))
    with held_for_training(output_dir, session.strategy):
        if not selects:
            return session.fine_tune(output_dir)
        search(session, options, output_dir)
        model, step = session.restore(checkpoints.folder_of(output_dir))
        session.save_adapter(model, output_dir)
        return model, step


def _folder_of_model(options: ClassifierOptions) -> str:
    """Where a run's checkpoints are: where runs were selected, those of the best."""
    from bert_tf.tasks.selection import RECORDS_NAME
    from bert_tf.training.checkpoint_files import STATE_NAME
    from bert_tf.training.checkpoints import folder_of

    output_dir = options.output_dir
    best = folder_of(output_dir)
    is_selection = (
        files.exists(os.path.join(output_dir, RECORDS_NAME))
        and files.exists(os.path.join(best, STATE_NAME))
        and not files.exists(os.path.join(output_dir, STATE_NAME))
    )
    return best if is_selection and not options.do_train else output_dir


def _evaluate(
    session: "ClassifierSession",
    model: "keras.Model",
    step: int,
    options: ClassifierOptions,
) -> None:
    """Scores the development sets under the original's names: eval_results.txt.

    eval_loss and the metrics are over the examples, loss is the mean over batches. What
    is of a second set, MNLI's mismatched one, says so: eval_mismatched_accuracy.
    """
    from bert_tf.tasks.finetuning import EXAMPLE_LOSS, LOSS
    from bert_tf.training import run_folder
    from bert_tf.training.strategy import is_chief

    results, names = {}, {}
    for split in session.data_set.dev_splits:
        logging.info("***** Running evaluation: %s *****", split)
        logging.info("  Num examples = %d", len(session.examples[split]))
        logits = session.logits(model, split)
        second = split.removeprefix("dev").removeprefix("_")
        prefix = f"{second}_" if second else ""
        for name, value in session.scores(model, split, logits).items():
            results[prefix + name] = value
            if name not in (LOSS, EXAMPLE_LOSS):
                names[prefix + name] = f"eval_{prefix}{name}"
        session.write_reports(split, logits)
    run_folder.report_evaluation(
        options.output_dir,
        step,
        results,
        names=names,
        is_chief=is_chief(session.strategy),
        task_name=session.task.name,
    )


def _predict(
    session: "ClassifierSession", model: "keras.Model", options: ClassifierOptions
) -> None:
    """Predicts the test sets: test_results.tsv, and the files of GLUE's server."""
    from bert_tf.tasks.glue_suite import write_task_file
    from bert_tf.training.strategy import is_chief

    for split in session.data_set.test_splits:
        logging.info("***** Running prediction: %s *****", split)
        logging.info("  Num examples = %d", len(session.examples[split]))
        logits = session.logits(model, split)
        session.write_reports(split, logits)
        if is_chief(session.strategy):
            second = split.removeprefix("test")
            _write_test_results(
                os.path.join(options.output_dir, f"test_results{second}.tsv"),
                logits,
                session.target,
            )
            write_task_file(
                os.path.join(options.output_dir, "submission"),
                session.data_set.name,
                split,
                session.target.words(logits),
            )


def _write_test_results(path: str, logits: "np.ndarray", target: "Target") -> None:
    """One line an example, as the original: its probabilities, tabs between."""
    rows = target.probabilities(logits)
    lines = ["\t".join(str(value) for value in row) + "\n" for row in rows]
    files.write_atomically(path, "".join(lines))
    logging.info("Wrote %d lines to %s.", len(lines), path)


def main() -> None:
    """The command line."""
    cli.main(run)


if __name__ == "__main__":
    main()
