r"""Fine-tunes BERT on multiple choice, such as SWAG: train, evaluate, predict.

    python -m bert_tf.run_swag --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \
        --do_train=true --train_file=$SWAG_DIR/train.csv \
        --do_eval=true --dev_file=$SWAG_DIR/val.csv \
        --do_predict=true --test_file=$SWAG_DIR/test.csv --output_dir=/tmp/swag_output/

The defaults are those of Devlin et al. 2018, section 4.4: learning rate 2e-5, batch
size 16, 3 epochs. The batch size counts premises: with 4 endings, 16 are 64 sequences.
It writes eval_results.txt and dev_predictions.csv, and for --test_file test_results.tsv
(probabilities) and swag_predictions.csv.
"""

from bert_tf.base import cli
from bert_tf.tasks.run_options import RunResult
from bert_tf.tasks.swag.multiple_choice_options import ChoiceOptions


def run(options: ChoiceOptions) -> RunResult:
    """Reads the examples, then trains, evaluates and predicts."""
    cli.import_tensorflow(options)
    from bert_tf.tasks import finetuning
    from bert_tf.tasks.swag import multiple_choice

    return finetuning.FineTuningRun(multiple_choice.ChoiceTask, options).main()


main = cli.command(run)

if __name__ == "__main__":
    main()
