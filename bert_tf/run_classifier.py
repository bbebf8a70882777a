r"""Fine-tunes BERT on sentences and sentence pairs: train, evaluate, predict.

    python -m bert_tf.run_classifier --train_file=reviews.csv \
        --text_a_column=review --label_column=stars --do_train --do_eval \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --output_dir=reviews_output

    python -m bert_tf.run_classifier --task_name=MRPC --data_dir=$GLUE_DIR/MRPC \
        --do_train --do_eval --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \
        --learning_rate=2e-5 --output_dir=/tmp/mrpc_output/

The data are a table of your own, with columns named by flags, a task of GLUE, XNLI, or
any TensorFlow dataset (--tfds_name). Given several learning rates, batch sizes, epochs
or restarts, it tries all of them, and keeps the run with the best score on the
development set in OUTPUT_DIR/best.
"""

from bert_tf.base import cli
from bert_tf.base.addons import addon
from bert_tf.tasks.data_set_options import ClassifierOptions, check_tables
from bert_tf.tasks.run_options import RunResult


def run(options: ClassifierOptions) -> RunResult:
    """Reads the examples, then trains, evaluates and predicts."""
    check_tables(options)
    cli.import_tensorflow(options)
    from bert_tf.tasks import classification, finetuning

    if options.folds:
        return addon("folds").run(options)
    return finetuning.FineTuningRun(classification.ClassificationTask, options).main()


main = cli.command(run)

if __name__ == "__main__":
    main()
