r"""Fine-tunes BERT on sentences and sentence pairs: train, evaluate, predict.

    python -m bert_tf.run_classifier --task_name=MRPC --do_train=true --do_eval=true \
        --data_dir=$GLUE_DIR/MRPC --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --max_seq_length=128 \
        --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0 \
        --output_dir=/tmp/mrpc_output/

Tasks: CoLA, MRPC, MNLI, XNLI, and `tsv` for a table of your own (train.tsv, dev.tsv,
test.tsv in --data_dir; columns by flags).
"""

import os
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from bert_tf import cli, files, finetuning_flags
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError

if TYPE_CHECKING:
    import keras
    import numpy as np

    from bert_tf.task import Task
    from bert_tf.tasks.data_set import DataSet
    from bert_tf.training.finetuning import RecordSet


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    shared_flags.define(
        flag_values,
        "do_lower_case",
        "max_seq_length",
        "do_predict",
        "predict_batch_size",
        "num_train_epochs",
        "warmup_proportion",
        "vocab_file",
        "bert_config_file",
        required=("output_dir",),
    )
    shared_flags.define_training(flag_values)

    finetuning_flags.define_data_set(flag_values)
    shared_flags.require_one_of(flag_values, "do_train", "do_eval", "do_predict")
    shared_flags.require_at_least(flag_values, 4, "max_seq_length")
    shared_flags.require_at_least(flag_values, 1, "predict_batch_size")
    shared_flags.require_at_least(
        flag_values, 0.0, "num_train_epochs", "warmup_proportion"
    )


def run(flag_values: flags.FlagValues) -> None:
    """Reads the examples, then trains, evaluates and predicts."""
    cli.import_tensorflow()
    from bert_tf.conversion.model_files import model_files
    from bert_tf.records.schema import classifier_schema
    from bert_tf.tasks import classification
    from bert_tf.tasks.data_set_flags import data_set_from_flags
    from bert_tf.text.wordpiece import WordPieceTokenizer
    from bert_tf.training import run_folder
    from bert_tf.training.finetuning import RecordSet, finetune
    from bert_tf.training.loop import restore_or_initialize
    from bert_tf.training.strategy import (
        check_batch_size,
        is_chief,
        num_workers,
        strategy_from_flags,
    )

    strategy = strategy_from_flags(flag_values)
    # What would otherwise come out after training.
    if flag_values.do_eval:
        check_batch_size(strategy, flag_values.eval_batch_size, flag="eval_batch_size")
    if flag_values.do_predict:
        check_batch_size(
            strategy, flag_values.predict_batch_size, flag="predict_batch_size"
        )
    data_set = data_set_from_flags(flag_values)
    config, vocabulary, do_lower_case, source = model_files(
        flag_values.init_checkpoint,
        bert_config_file=flag_values.bert_config_file,
        vocab_file=flag_values.vocab_file,
        do_lower_case=shared_flags.given(flag_values, "do_lower_case"),
        output_dir=flag_values.output_dir,
    )
    config.check_sequence_length(flag_values.max_seq_length)
    # Every input is read and checked before anything is written or trained.
    wanted = {
        "train": flag_values.do_train,
        "dev": flag_values.do_eval,
        "test": flag_values.do_predict,
    }
    output_dir = flag_values.output_dir
    trained_labels = source.labels if source else None
    labels = _labels(data_set, flag_values, trained_labels)
    if trained_labels is not None and trained_labels != tuple(labels or ()):
        raise InputError(
            f"--init_checkpoint={flag_values.init_checkpoint} has a head with labels"
            f" {', '.join(trained_labels) or '(none: regression)'}; this task has"
            f" {', '.join(labels or ()) or '(none: regression)'}. To begin with its"
            " encoder and a new head, export it with --heads=none"
            " (bert_tf.export_model)."
        )
    examples = {
        split: data_set.read(flag_values.data_dir, split)
        for split in wanted
        if wanted[split]
    }
    for split in examples:
        classification.check_labels(examples[split], labels)
    run_folder.prepare(output_dir, config, vocabulary, do_lower_case, flag_values)
    run_folder.check_labels(output_dir, labels)
    task = classification.task(
        config,
        labels,
        data_set.name,
        recompute=flag_values.recompute,
    )
    tokenizer = WordPieceTokenizer(vocabulary, do_lower_case=do_lower_case)

    def records_of(split: str, file_name: str) -> RecordSet:
        return RecordSet.write(
            os.path.join(output_dir, file_name),
            classifier_schema(flag_values.max_seq_length, regression=labels is None),
            classification.features(
                examples[split],
                tokenizer,
                max_seq_length=flag_values.max_seq_length,
                labels=labels,
            ),
            classification.padding_features(flag_values.max_seq_length),
            is_alone=num_workers(strategy) == 1,
        )

    if flag_values.do_train:
        records = records_of("train", "train.tf_record")
        model, step = finetune(task, records, flag_values, strategy)
    else:
        model, step = restore_or_initialize(
            task,
            output_dir,
            flag_values.init_checkpoint,
            flag_values.precision,
            strategy,
        )
    devices: dict[str, Any] = {
        "strategy": strategy,
        "jit_compile": flag_values.jit_compile,
    }
    if flag_values.do_eval:
        records = records_of("dev", "eval.tf_record")
        logging.info("***** Running evaluation *****")
        logging.info("  Num examples = %d", records.num_examples)
        results = _evaluate(task, model, records, flag_values.eval_batch_size, devices)
        run_folder.report_evaluation(
            output_dir, step, results, is_chief=is_chief(strategy)
        )
    if flag_values.do_predict:
        records = records_of("test", "predict.tf_record")
        logging.info("***** Running prediction *****")
        logging.info("  Num examples = %d", records.num_examples)
        scores, _ = _predict(
            task, model, records, flag_values.predict_batch_size, devices
        )
        if is_chief(strategy):
            _write_test_results(
                os.path.join(output_dir, "test_results.tsv"), scores, labels is not None
            )


def _labels(
    data_set: "DataSet",
    flag_values: flags.FlagValues,
    trained_labels: tuple[str, ...] | None,
) -> tuple[str, ...] | None:
    """The classes; None for regression.

    Where nothing is trained, a table's classes are those that the run recorded, or that
    the checkpoint was trained with, so that prediction needs no training file.
    """
    from bert_tf.config import REGRESSION
    from bert_tf.training import run_folder

    if data_set.labels is None and not flag_values.do_train:
        recorded = run_folder.recorded_labels(flag_values.output_dir)
        if recorded or trained_labels:
            return tuple(recorded or trained_labels or ())
    target = data_set.read_target(flag_values.data_dir)
    return None if target.kind == REGRESSION else target.labels


def _evaluate(
    task: "Task",
    model: "keras.Model",
    records: "RecordSet",
    batch_size: int,
    devices: dict[str, Any],
) -> dict[str, float]:
    """A split's scores under the original's names.

    eval_accuracy and eval_loss are over the examples, loss is the mean over batches;
    regression has eval_pearson and eval_spearman instead of the accuracy.
    """
    from bert_tf.metrics.correlation import pearson_and_spearman
    from bert_tf.training import evaluation

    results = evaluation.evaluate(
        task,
        model,
        records.batches(batch_size),
        total_batches=records.num_batches(batch_size),
        **devices,
    )
    (loss_name,) = task.objective.losses
    scores = {"loss": results["loss"], "eval_loss": results[loss_name]}
    if "accuracy" in results:
        scores["eval_accuracy"] = results["accuracy"]
    else:
        predicted, labels = _predict(task, model, records, batch_size, devices)
        scores["eval_pearson"], scores["eval_spearman"] = pearson_and_spearman(
            predicted[:, 0], labels
        )
    return scores


def _predict(
    task: "Task",
    model: "keras.Model",
    records: "RecordSet",
    batch_size: int,
    devices: dict[str, Any],
) -> tuple["np.ndarray", "np.ndarray"]:
    """The logits [N, C] and the labels [N] of a split, padding left out."""
    import numpy as np

    from bert_tf.training import evaluation

    logits, labels = [], []
    for batch, outputs in evaluation.predict(
        task,
        model,
        records.batches(batch_size),
        total_batches=records.num_batches(batch_size),
        **devices,
    ):
        real = batch["is_real_example"][:, 0] == 1
        logits.append(outputs["logits"][real])
        labels.append(batch["label_ids"][real, 0])
    return np.concatenate(logits), np.concatenate(labels)


def _write_test_results(path: str, logits: "np.ndarray", are_classes: bool) -> None:
    """One line an example: its classes' probabilities, tabs between, or its score."""
    import keras

    if are_classes:
        logits = keras.ops.convert_to_numpy(keras.ops.softmax(logits, axis=-1))
    lines = ["\t".join(str(value) for value in row) + "\n" for row in logits]
    files.write_atomically(path, "".join(lines))
    logging.info("Wrote %d lines to %s.", len(lines), path)


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
