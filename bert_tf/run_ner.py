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
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from bert_tf import (
    cli,
    files,
    finetuning_flags,
    flag_rules,
    tagging_feature_flags,
    tagging_flags,
)

if TYPE_CHECKING:
    import keras

    from bert_tf.tasks.tagging.sentences import Sentence
    from bert_tf.tasks.tagging.words import TaggingSession

SPLITS = ("train", "dev", "test")


def define_flags(
    flag_values: flags.FlagValues, *, in_all_ways: bool = False, **defaults: Any
) -> None:
    """Defines the script's flags."""
    finetuning_flags.define_run(flag_values, **defaults)
    tagging_flags.define_sentences(flag_values)
    tagging_flags.define_labels(flag_values)
    tagging_flags.define_windows(flag_values)
    tagging_feature_flags.define_features(flag_values)
    if not in_all_ways:
        tagging_feature_flags.refuse_useless(flag_values)
    finetuning_flags.define_padding(flag_values)
    flag_rules.require_one_of(flag_values, "do_train", "do_eval", "do_predict")


def run(flag_values: flags.FlagValues) -> None:
    """Reads the sentences, then trains, evaluates and predicts."""
    cli.import_tensorflow()
    from bert_tf.tasks.tagging.frozen_features import FeatureTaggingSession
    from bert_tf.tasks.tagging.words import TaggingSession
    from bert_tf.training import run_folder
    from bert_tf.training.run_folder import held_for_training
    from bert_tf.training.strategy import check_batch_size, strategy_from_flags

    flag_rules.warn_of_stride(flag_values)
    strategy = strategy_from_flags(flag_values)
    looks_at_dev = flag_values.do_eval or (
        flag_values.do_train and flag_values.eval_steps
    )
    is_wanted = (flag_values.do_train, looks_at_dev, flag_values.do_predict)
    # What would otherwise come out after training.
    if looks_at_dev:
        check_batch_size(strategy, flag_values.eval_batch_size, flag="eval_batch_size")
    if flag_values.do_predict:
        check_batch_size(
            strategy, flag_values.predict_batch_size, flag="predict_batch_size"
        )
    # Every input is read and checked before anything is written or trained.
    session_class = FeatureTaggingSession if flag_values.features else TaggingSession
    session = session_class(
        flag_values,
        strategy,
        splits={
            split: _read(flag_values, split)
            for split, wanted in zip(SPLITS, is_wanted, strict=True)
            if wanted
        },
        output_dir=flag_values.output_dir,
    )
    if flag_values.do_train:
        with held_for_training(flag_values.output_dir, strategy):
            model, step = session.fine_tune(flag_values.output_dir)
    else:
        model, step = session.restore(flag_values.output_dir)
    results: dict[str, float] = {}
    if flag_values.do_eval:
        results |= _predict(session, model, flag_values, "dev")
    if flag_values.do_predict:
        scores = _predict(session, model, flag_values, "test")
        results |= {f"test_{name}": score for name, score in scores.items()}
    if results:
        run_folder.report_evaluation(
            flag_values.output_dir,
            step,
            results,
            keeps_others=True,
            is_chief=session.is_chief,
            task_name=session.task.name,
        )


def _read(flag_values: flags.FlagValues, split: str) -> "list[Sentence]":
    """The sentences of a split."""
    has_labels = flag_values.test_has_labels if split == "test" else True
    names = tuple(flag_values.labels) if flag_values.labels else None
    if flag_values.tfds_name:
        from bert_tf.tasks.tagging_tfds import read_split

        return read_split(
            flag_values.tfds_name,
            flag_values.tfds_splits[SPLITS.index(split)],
            data_dir=flag_values.tfds_data_dir,
            word_feature=flag_values.word_column,
            label_feature=flag_values.label_column,
            label_names=names,
            has_labels=has_labels is not False,
        )
    from bert_tf.tasks.tagging.sentences import read_sentences

    flag = f"{split}_file"
    sentences = read_sentences(
        files.expand_globs(getattr(flag_values, flag), flag),
        tagging_flags.layout(flag_values, names),
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
    flag_values: flags.FlagValues,
    split: str,
) -> dict[str, float]:
    """Predicts a split, and writes it down; the scores where its labels are known."""
    from bert_tf.tasks.tagging.words import write_predictions

    sentences = session.splits[split]
    logging.info("***** Running prediction: %s *****", split)
    logging.info("  Num sentences = %d", len(sentences))
    found = session.predict(model, split)

    def path(name: str) -> str:
        return os.path.join(flag_values.output_dir, f"{split}_{name}.txt")

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
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
