r"""Fine-tunes BERT on sentences and sentence pairs: train, evaluate, predict.

    python -m bert_tf.run_classifier --task_name=MRPC --do_train=true --do_eval=true \
        --data_dir=$GLUE_DIR/MRPC --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --max_seq_length=128 \
        --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0 \
        --output_dir=/tmp/mrpc_output/

Tasks are those of GLUE, XNLI, `tsv` for a table of your own (train.tsv, dev.tsv and
test.tsv in --data_dir; flags name the columns), or any TensorFlow dataset
(--tfds_name). Given several learning rates, batch sizes, epochs or restarts, it tries
all of them and keeps the best run on the development set in OUTPUT_DIR/best.
"""

from bert_tf.base import cli
from bert_tf.tasks.data_set_options import ClassifierOptions
from bert_tf.tasks.run_options import RunResult


def run(options: ClassifierOptions) -> RunResult:
    """Reads the examples, then trains, evaluates and predicts."""
    cli.import_tensorflow(options)
    from bert_tf.tasks import classification, running

    return running.main(
        running.FineTuningRun(classification.ClassificationTask, options)
    )


main = cli.command(run)

if __name__ == "__main__":
    main()
