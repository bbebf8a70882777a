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

from absl import flags, logging

from bert_tf import (
    cli,
    files,
    finetuning_flags,
    flag_rules,
    selection_flags,
    stability_flags,
)
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError

if TYPE_CHECKING:
    import keras
    import numpy as np

    from bert_tf.tasks.classification import ClassifierSession
    from bert_tf.tasks.tables import DataSet, Target


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    finetuning_flags.define_run(flag_values, without=("num_train_epochs",))
    shared_flags.define(flag_values, "max_seq_length")
    finetuning_flags.define_data_set(flag_values)
    finetuning_flags.define_batches(flag_values)
    selection_flags.define_selection(flag_values)
    stability_flags.define_stability(flag_values)
    stability_flags.define_parameter_efficient(flag_values)
    finetuning_flags.define_looking(flag_values)
    flag_rules.require_one_of(flag_values, "do_train", "do_eval", "do_predict")
    flag_rules.require_at_least(flag_values, 4, "max_seq_length")


def run(flag_values: flags.FlagValues) -> None:
    """Reads the examples, then trains, evaluates and predicts."""
    cli.import_tensorflow()
    stability_flags.apply_recipe(flag_values)
    from bert_tf.tasks.classification import ClassifierSession
    from bert_tf.tasks.data_set_flags import data_set_from_flags
    from bert_tf.tasks.finetuning import is_selection
    from bert_tf.training.strategy import check_batch_size, strategy_from_flags

    flag_rules.warn_of_stride(flag_values)
    strategy = strategy_from_flags(flag_values)
    # What would otherwise come out after training.
    if flag_values.do_eval or flag_values.eval_steps:
        check_batch_size(strategy, flag_values.eval_batch_size, flag="eval_batch_size")
    if flag_values.do_predict:
        check_batch_size(
            strategy, flag_values.predict_batch_size, flag="predict_batch_size"
        )
    data_set = data_set_from_flags(flag_values)
    selects = flag_values.do_train and is_selection(flag_values)
    for name in ("stop_early", "keep_all_runs"):
        if flag_values[name].value and flag_values.do_train and not selects:
            raise InputError(
                f"--{name} is for several runs, and this is one: give --learning_rates,"
                " --train_batch_sizes or --num_restarts too, or leave it out."
            )
    _refuse_no_such_use(flag_values, data_set, selects=selects)
    looks_at_dev = flag_values.do_eval or flag_values.eval_steps or selects
    # Every input is read and checked before anything is written or trained.
    session = ClassifierSession(
        flag_values,
        strategy,
        data_set=data_set,
        splits=[
            *(["train"] if flag_values.do_train else []),
            *(data_set.dev_splits if looks_at_dev else []),
            *(data_set.test_splits if flag_values.do_predict else []),
        ],
        records_dir=flag_values.output_dir,
        output_dir=_folder_of_model(flag_values),
    )
    model, step = _train_or_restore(session, flag_values, selects=selects)
    if flag_values.do_eval:
        _evaluate(session, model, step, flag_values)
    if flag_values.do_predict:
        _predict(session, model, flag_values)


def _refuse_no_such_use(
    flag_values: flags.FlagValues, data_set: "DataSet", *, selects: bool
) -> None:
    """Raises InputError for what a data set, or a folder, is not for."""
    from bert_tf.tasks.selection import RECORDS_NAME

    if flag_values.do_eval and not data_set.dev_splits:
        raise InputError(
            f"--do_eval: {data_set.name} has no development set. Leave it out."
        )
    records = os.path.join(flag_values.output_dir, RECORDS_NAME)
    if flag_values.do_train and not selects and files.exists(records):
        raise InputError(
            f"--output_dir={flag_values.output_dir} holds several runs, of which the"
            " best one is kept. Give another folder for a single run."
        )


def _train_or_restore(
    session: "ClassifierSession", flag_values: flags.FlagValues, *, selects: bool
) -> tuple["keras.Model", int]:
    """The model to evaluate and to predict with, and the step that it is of."""
    from bert_tf.tasks.selection import search
    from bert_tf.training import checkpoints
    from bert_tf.training.run_folder import held_for_training

    output_dir = flag_values.output_dir
    if not flag_values.do_train:
        return session.restore(_folder_of_model(flag_values))
    with held_for_training(output_dir, session.strategy):
        if not selects:
            return session.fine_tune(output_dir)
        search(session, flag_values, output_dir)
        model, step = session.restore(checkpoints.folder_of(output_dir))
        session.save_adapter(model, output_dir)
        return model, step


def _folder_of_model(flag_values: flags.FlagValues) -> str:
    """Where a run's checkpoints are: where runs were selected, those of the best."""
    from bert_tf.tasks.selection import RECORDS_NAME
    from bert_tf.training.checkpoint_files import STATE_NAME
    from bert_tf.training.checkpoints import folder_of

    output_dir = flag_values.output_dir
    best = folder_of(output_dir)
    is_selection = (
        files.exists(os.path.join(output_dir, RECORDS_NAME))
        and files.exists(os.path.join(best, STATE_NAME))
        and not files.exists(os.path.join(output_dir, STATE_NAME))
    )
    return best if is_selection and not flag_values.do_train else output_dir


def _evaluate(
    session: "ClassifierSession",
    model: "keras.Model",
    step: int,
    flag_values: flags.FlagValues,
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
        flag_values.output_dir,
        step,
        results,
        names=names,
        is_chief=is_chief(session.strategy),
        task_name=session.task.name,
    )


def _predict(
    session: "ClassifierSession", model: "keras.Model", flag_values: flags.FlagValues
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
                os.path.join(flag_values.output_dir, f"test_results{second}.tsv"),
                logits,
                session.target,
            )
            write_task_file(
                os.path.join(flag_values.output_dir, "submission"),
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
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
