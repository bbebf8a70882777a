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

from bert_tf import cli
from bert_tf.tasks.data_set_options import ClassifierOptions


def run(options: ClassifierOptions) -> None:
    """Reads the examples, then trains, evaluates and predicts."""
    cli.import_tensorflow()
    from bert_tf.tasks import classification, finetuning

    finetuning.main(classification.classification_task, options)


def main() -> None:
    """The command line."""
    cli.main(run)


if __name__ == "__main__":
    main()
