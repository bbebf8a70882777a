r"""Trains sentence vectors with BERT, on pairs, triples, scored pairs or single texts.

    python -m bert_tf.run_embeddings --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \
        --do_train=true --train_file=$STSB_DIR/train.tsv --max_score=5 \
        --do_eval=true --dev_file=$STSB_DIR/dev.tsv --output_dir=/tmp/embeddings/

A text's vector is the mean of BERT's outputs for its tokens, or another --pooling
(Reimers and Gurevych 2019). It writes eval_results.txt and dev_predictions.csv;
`bert_tf.load(output_dir).embed(texts)` gives the vectors.
"""

from bert_tf.addons.methods.embeddings_options import EmbeddingOptions
from bert_tf.base import cli
from bert_tf.tasks.run_options import RunResult


def run(options: EmbeddingOptions) -> RunResult:
    """Reads the texts, then trains and evaluates."""
    cli.import_tensorflow(options)
    from bert_tf.addons.methods import embeddings
    from bert_tf.tasks import finetuning

    options = embeddings.with_settings(options)
    return finetuning.FineTuningRun(embeddings.EmbeddingTask, options).main()


main = cli.command(run)

if __name__ == "__main__":
    main()
