r"""Fine-tunes BERT on tagged words: named entities, parts of speech, other labels.

    python -m bert_tf.run_ner --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json --do_lower_case=False \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --do_train --do_eval \
        --do_predict --train_file=$CONLL_DIR/eng.train --dev_file=$CONLL_DIR/eng.testa \
        --test_file=$CONLL_DIR/eng.testb --document_context --max_seq_length=512 \
        --train_batch_size=16 --learning_rate=5e-5 --num_train_epochs=4 \
        --output_dir=/tmp/ner_base/

It writes eval_results.txt, dev_predictions.txt and test_predictions.txt. Predictions
have the input's columns, and the predicted label as the last one, for the official
scorer (conlleval).
"""

from bert_tf.base import cli
from bert_tf.tasks.run_options import RunResult
from bert_tf.tasks.tagging.tagging_options import TaggingOptions, check_files


def run(options: TaggingOptions) -> RunResult:
    """Reads the sentences, then trains, evaluates and predicts."""
    check_files(options)
    cli.import_tensorflow(options)
    from bert_tf.tasks import finetuning
    from bert_tf.tasks.tagging import frozen_features, words

    if options.features:
        own = frozen_features.with_own_defaults(options)
        return finetuning.FineTuningRun(frozen_features.FeatureTask, own).main()
    return finetuning.FineTuningRun(words.TaggingTask, options).main()


main = cli.command(run)

if __name__ == "__main__":
    main()
