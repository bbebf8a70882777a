r"""Fine-tunes BERT on SQuAD 1.1 or 2.0, answers questions, and scores the answers.

    python -m bert_tf.run_squad --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --do_train=True \
        --train_file=$SQUAD_DIR/train-v1.1.json --do_predict=True \
        --predict_file=$SQUAD_DIR/dev-v1.1.json --train_batch_size=12 \
        --learning_rate=3e-5 --num_train_epochs=2.0 --max_seq_length=384 \
        --doc_stride=128 --output_dir=/tmp/squad_base/

writes predictions.json, nbest_predictions.json and, of SQuAD 2.0, null_odds.json to
--output_dir, and eval_results.txt where the questions' answers are known.
"""

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING

from absl import flags, logging

from bert_tf import cli, finetuning_flags, squad_flags
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError

if TYPE_CHECKING:
    import keras

    from bert_tf.finetuning.squad_evaluation import Answers
    from bert_tf.finetuning.squad_session import SquadSession
    from bert_tf.squad.checked_questions import CheckedQuestions
    from bert_tf.squad.reader import QuestionReader

FIRST_STAGE = "first_stage"


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    shared_flags.define(
        flag_values,
        "do_lower_case",
        "do_predict",
        "num_train_epochs",
        "warmup_proportion",
        "vocab_file",
        "bert_config_file",
        "eval_steps",
        predict_batch_size=32,
        best_metric=None,
        required=("output_dir",),
    )
    shared_flags.define_training(flag_values, without=("do_eval", "eval_batch_size"))
    squad_flags.define_questions(flag_values)
    squad_flags.define_windows(flag_values)
    squad_flags.define_decoding(flag_values)
    squad_flags.define_null_answer(flag_values)
    squad_flags.define_first_stage(flag_values)
    finetuning_flags.define_padding(flag_values)
    flags.DEFINE_integer(
        "num_workers",
        0,
        "Ours. Processes that make the records; 0 for one a core. The bytes are the"
        " same for any number.",
        lower_bound=0,
        flag_values=flag_values,
    )
    shared_flags.require_one_of(flag_values, "do_train", "do_predict")
    shared_flags.require_at_least(flag_values, 1, "predict_batch_size")
    shared_flags.require_at_least(flag_values, 0.0, "warmup_proportion")


def run(flag_values: flags.FlagValues) -> None:
    """Reads the questions, then trains and answers."""
    cli.import_tensorflow()
    from bert_tf.finetuning.squad_session import SquadSession
    from bert_tf.training.strategy import check_batch_size, strategy_from_flags

    strategy = strategy_from_flags(flag_values)
    predicts = flag_values.do_predict or (flag_values.do_train and flag_values.eval_steps)
    if predicts:
        # What would otherwise come out after training.
        check_batch_size(
            strategy, flag_values.predict_batch_size, flag="predict_batch_size"
        )
    session = SquadSession(flag_values, strategy, output_dir=flag_values.output_dir)
    # Every input is read and checked before anything is written or trained.
    first = _first_questions(flag_values)
    training = _questions(flag_values, for_training=True) if flag_values.do_train else None
    questions = _questions(flag_values, for_training=False) if predicts else None
    if questions is not None:
        _refuse_no_answers(flag_values, questions)
    if training is None:
        model, step = session.restore(flag_values.output_dir)
    else:
        model, step = _train(session, flag_values, first, training, questions)
    if flag_values.do_predict:
        assert questions is not None
        _predict(session, model, step, flag_values, questions)


def _questions(
    flag_values: flags.FlagValues, *, for_training: bool
) -> "CheckedQuestions":
    """The questions to train on, or to answer."""
    from bert_tf.squad.checked_questions import CheckedQuestions

    version_2 = flag_values.version_2_with_negative
    reader: QuestionReader
    if flag_values.tfds_name:
        from bert_tf.tasks.squad_tfds import TfdsSquad

        splits = flag_values.tfds_splits
        if len(splits) != 2:
            raise InputError(
                f"--tfds_splits={','.join(splits)}: give two, one to train on and one"
                " to answer."
            )
        reader = TfdsSquad(
            flag_values.tfds_name,
            splits[0] if for_training else splits[1],
            data_dir=flag_values.tfds_data_dir,
            version_2_with_negative=version_2,
            for_training=for_training,
        )
    else:
        from bert_tf.squad.reader import SquadFile

        path = flag_values.train_file if for_training else flag_values.predict_file
        if path is None:
            raise InputError("--eval_steps needs --predict_file, with its answers.")
        reader = SquadFile(
            path, version_2_with_negative=version_2, for_training=for_training
        )
    return CheckedQuestions(reader)


def _first_questions(flag_values: flags.FlagValues) -> "CheckedQuestions | None":
    """The questions to train on before all others, if any."""
    if not flag_values.first_train_file:
        return None
    from bert_tf.squad.reader import SquadFile
    from bert_tf.squad.checked_questions import CheckedQuestions

    return CheckedQuestions(
        SquadFile(
            flag_values.first_train_file,
            version_2_with_negative=flag_values.version_2_with_negative,
            for_training=True,
        )
    )


def _refuse_no_answers(
    flag_values: flags.FlagValues, questions: "CheckedQuestions"
) -> None:
    """Raises InputError if answers are to be scored that nobody gave."""
    for flag in ("find_null_threshold", "eval_steps"):
        if flag_values[flag].value and not questions.have_answers:
            raise InputError(
                f"--{flag} needs a development set; {flag_values.predict_file} has"
                " questions without an answer."
            )


def _train(
    session: "SquadSession",
    flag_values: flags.FlagValues,
    first: "CheckedQuestions | None",
    training: "CheckedQuestions",
    questions: "CheckedQuestions | None",
) -> tuple["keras.Model", int]:
    """Trains in --output_dir, where asked for on other questions before."""
    from bert_tf.finetuning import squad_evaluation

    version_2 = flag_values.version_2_with_negative

    def evaluate(model: "keras.Model") -> dict[str, float]:
        assert questions is not None
        answers = squad_evaluation.Answers.collect(
            session.answers(model, questions), version_2_with_negative=version_2
        )
        return answers.scores(flag_values.null_score_diff_threshold)

    init_checkpoint = None
    if first is not None:
        init_checkpoint = os.path.join(flag_values.output_dir, FIRST_STAGE)
        logging.info("***** First stage: %s *****", flag_values.first_train_file)
        session.fine_tune(
            init_checkpoint,
            first,
            num_train_epochs=flag_values.first_num_train_epochs,
        )
    return session.fine_tune(
        flag_values.output_dir,
        training,
        num_train_epochs=flag_values.num_train_epochs,
        init_checkpoint=init_checkpoint,
        evaluate=evaluate if flag_values.eval_steps else None,
        best_metric=flag_values.best_metric or squad_evaluation.best_metric(version_2),
    )


def _predict(
    session: "SquadSession",
    model: "keras.Model",
    step: int,
    flag_values: flags.FlagValues,
    questions: "CheckedQuestions",
) -> None:
    """Answers the questions, and scores the answers where they are known."""
    from bert_tf.finetuning.squad_evaluation import Answers
    from bert_tf.squad.prediction_files import PredictionFiles
    from bert_tf.training import run_folder

    version_2 = flag_values.version_2_with_negative
    output_dir = flag_values.output_dir
    logging.info("***** Running predictions *****")
    logging.info("  Num questions = %d", questions.num_questions)
    answers = Answers(version_2_with_negative=version_2)
    # Of several workers each goes through all questions, and one writes.
    writes = session.is_chief
    with PredictionFiles(output_dir, version_2) if writes else nullcontext() as writer:
        for features, decoded in session.answers(model, questions):
            answers.add(features.question, decoded)
            if writer is not None:
                writer.add(features.question.question_id, decoded)
        threshold = _threshold(session, flag_values, answers) if version_2 else 0.0
        if writer is not None:
            writer.finish(threshold)
    if questions.have_answers:
        run_folder.report_evaluation(
            output_dir, step, answers.scores(threshold), is_chief=writes
        )


def _threshold(
    session: "SquadSession", flag_values: flags.FlagValues, answers: "Answers"
) -> float:
    """The null score difference above which there is no answer: flag, file, or 0."""
    from bert_tf.finetuning import null_threshold

    name = "null_score_diff_threshold"
    given = shared_flags.given(flag_values, name)
    if flag_values.find_null_threshold and session.is_chief:
        null_threshold.find(
            flag_values.output_dir,
            answers.golds,
            answers.best_texts,
            answers.null_odds,
            predict_file=flag_values.predict_file or flag_values.tfds_name,
            plots=flag_values.plots,
        )
    if given is not None:
        return given
    folders = [flag_values.output_dir]
    if session.source is not None:
        folders.append(session.source.folder)
    for folder in folders:
        found = null_threshold.read(folder)
        if found is not None:
            logging.info("--%s=%s, from %s.", name, found, folder)
            return found
    return flag_values.null_score_diff_threshold


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
