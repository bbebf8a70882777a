r"""Fine-tunes BERT on SQuAD 1.1 or 2.0, answers questions, and scores the answers.

    python -m bert_tf.run_squad --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --do_train=True \
        --train_file=$SQUAD_DIR/train-v1.1.json --do_predict=True \
        --predict_file=$SQUAD_DIR/dev-v1.1.json --train_batch_size=12 \
        --learning_rate=3e-5 --num_train_epochs=2.0 --max_seq_length=384 \
        --doc_stride=128 --output_dir=/tmp/squad_base/

It writes predictions.json, nbest_predictions.json and, for SQuAD 2.0, null_odds.json to
--output_dir, and eval_results.txt if the right answers are known.
"""

from bert_tf.base import cli
from bert_tf.tasks.run_options import RunResult
from bert_tf.tasks.squad import reading
from bert_tf.tasks.squad.squad_options import SquadOptions


def run(options: SquadOptions) -> RunResult:
    """Reads the questions, then trains and answers."""
    reading.check_tables(options)
    cli.import_tensorflow(options)
    from bert_tf.tasks import finetuning
    from bert_tf.tasks.squad import spans

    return finetuning.FineTuningRun(spans.SquadTask, options).main()


main = cli.command(run)

if __name__ == "__main__":
    main()
