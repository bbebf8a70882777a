r"""Fine-tunes BERT on tagged words: named entities, parts of speech, other labels.

    python -m bert_tf.run_ner --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json --do_lower_case=False \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --do_train --do_eval \
        --do_predict --train_file=$CONLL_DIR/eng.train --dev_file=$CONLL_DIR/eng.testa \
        --test_file=$CONLL_DIR/eng.testb --document_context --max_seq_length=512 \
        --train_batch_size=16 --learning_rate=5e-5 --num_train_epochs=4 \
        --output_dir=/tmp/ner_base/

writes eval_results.txt, and to dev_predictions.txt and test_predictions.txt the columns
that were read with the predicted label behind them, as the official scorer (conlleval)
reads them.
"""

import os
from typing import TYPE_CHECKING

from absl import logging

from bert_tf import cli, files
from bert_tf.tasks.run_options import warn_of_stride
from bert_tf.tasks.tagging.tagging_options import TaggingOptions

if TYPE_CHECKING:
    import keras

    from bert_tf.tasks.tagging.sentences import Sentence
    from bert_tf.tasks.tagging.words import TaggingSession

SPLITS = ("train", "dev", "test")


def run(options: TaggingOptions) -> None:
    """Reads the sentences, then trains, evaluates and predicts."""
    cli.import_tensorflow()
    from bert_tf.tasks.tagging.frozen_features import FeatureTaggingSession
    from bert_tf.tasks.tagging.words import TaggingSession
    from bert_tf.training import run_folder
    from bert_tf.training.run_folder import held_for_training
    from bert_tf.training.strategy import check_batch_size, strategy_of

    warn_of_stride(options.doc_stride, options.max_seq_length)
    strategy = strategy_of(options)
    looks_at_dev = options.do_eval or (options.do_train and options.eval_steps)
    is_wanted = (options.do_train, looks_at_dev, options.do_predict)
    # What would otherwise come out after training.
    if looks_at_dev:
        check_batch_size(strategy, options.eval_batch_size, flag="eval_batch_size")
    if options.do_predict:
        check_batch_size(
            strategy, options.predict_batch_size, flag="predict_batch_size"
        )
    # Every input is read and checked before anything is written or trained.
    session_class = FeatureTaggingSession if options.features else TaggingSession
    session = session_class(
        options,
        strategy,
        splits={
            split: _read(options, split)
            for split, wanted in zip(SPLITS, is_wanted, strict=True)
            if wanted
        },
        output_dir=options.output_dir,
    )
    if options.do_train:
        with held_for_training(options.output_dir, strategy):
            model, step = session.fine_tune(options.output_dir)
    else:
        model, step = session.restore(options.output_dir)
    results: dict[str, float] = {}
    if options.do_eval:
        results |= _predict(session, model, options, "dev")
    if options.do_predict:
        scores = _predict(session, model, options, "test")
        results |= {f"test_{name}": score for name, score in scores.items()}
    if results:
        run_folder.report_evaluation(
            options.output_dir,
            step,
            results,
            keeps_others=True,
            is_chief=session.is_chief,
            task_name=session.task.name,
        )


def _read(options: TaggingOptions, split: str) -> "list[Sentence]":
    """The sentences of a split."""
    has_labels = options.test_has_labels if split == "test" else True
    names = options.labels or None
    if options.tfds_name:
        from bert_tf.tasks.tagging.sentences import read_tfds

        return read_tfds(
            options.tfds_name,
            options.tfds_splits[SPLITS.index(split)],
            data_dir=options.tfds_data_dir,
            word_feature=options.word_column,
            label_feature=options.label_column,
            label_names=names,
            has_labels=has_labels is not False,
        )
    from bert_tf.tasks.tagging.sentences import read_sentences

    flag = f"{split}_file"
    sentences = read_sentences(
        files.expand_globs(getattr(options, flag), flag),
        options.layout(names),
        has_labels=has_labels,
    )
    logging.info(
        "%s: %d sentences in %d documents.",
        split,
        len(sentences),
        sentences[-1].document + 1,
    )
    return sentences


def _predict(
    session: "TaggingSession",
    model: "keras.Model",
    options: TaggingOptions,
    split: str,
) -> dict[str, float]:
    """Predicts a split, and writes it down; the scores where its labels are known."""
    from bert_tf.tasks.tagging.words import write_predictions

    sentences = session.splits[split]
    logging.info("***** Running prediction: %s *****", split)
    logging.info("  Num sentences = %d", len(sentences))
    found = session.predict(model, split)

    def path(name: str) -> str:
        return os.path.join(options.output_dir, f"{split}_{name}.txt")

    if session.is_chief:
        write_predictions(
            path("predictions"), sentences, session.predicted_labels(split, found)
        )
    if not session.has_labels(split):
        return {}
    report = session.report(split, found)
    if report:
        logging.info("%s", report)
        if session.is_chief:
            files.write_atomically(path("report"), report)
    return session.scores(split, found)


def main() -> None:
    """The command line."""
    cli.main(run)


if __name__ == "__main__":
    main()
