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

from typing import TYPE_CHECKING

from absl import flags

from bert_tf import cli, finetuning_flags, flag_rules, squad_flags
from bert_tf.errors import InputError

if TYPE_CHECKING:
    from bert_tf.tasks.squad.reading import CheckedQuestions


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    finetuning_flags.define_run(flag_values, without=("do_eval", "eval_batch_size"))
    squad_flags.define_questions(flag_values)
    squad_flags.define_windows(flag_values)
    squad_flags.define_decoding(flag_values)
    squad_flags.define_null_answer(flag_values)
    squad_flags.define_first_stage(flag_values)
    finetuning_flags.define_padding(flag_values)
    flags.DEFINE_integer(
        "num_workers",
        0,
        "Processes that make the records; 0 for one a core. The bytes are the"
        " same for any number.",
        lower_bound=0,
        flag_values=flag_values,
    )
    flag_rules.require_one_of(flag_values, "do_train", "do_predict")


def run(flag_values: flags.FlagValues) -> None:
    """Reads the questions, then trains and answers."""
    cli.import_tensorflow()
    from bert_tf.tasks.squad.reading import (
        first_questions_from_flags,
        questions_from_flags,
    )
    from bert_tf.tasks.squad.spans import SquadSession
    from bert_tf.training.run_folder import held_for_training
    from bert_tf.training.strategy import check_batch_size, strategy_from_flags

    flag_rules.warn_of_stride(flag_values)
    strategy = strategy_from_flags(flag_values)
    trains = flag_values.do_train
    answers = flag_values.do_predict or (trains and flag_values.eval_steps)
    if answers:
        # What would otherwise come out after training.
        check_batch_size(
            strategy, flag_values.predict_batch_size, flag="predict_batch_size"
        )
    session = SquadSession(flag_values, strategy, output_dir=flag_values.output_dir)
    # Every input is read and checked before anything is written or trained.
    first = first_questions_from_flags(flag_values)
    training = questions_from_flags(flag_values, for_training=True) if trains else None
    questions = (
        questions_from_flags(flag_values, for_training=False) if answers else None
    )
    if questions is not None:
        _refuse_no_answers(flag_values, questions)
    if training is not None:
        with held_for_training(flag_values.output_dir, strategy):
            model, step = session.fine_tune_in_stages(first, training, questions)
    else:
        model, step = session.restore(flag_values.output_dir)
    if flag_values.do_predict:
        assert questions is not None
        session.predict(model, step, questions)


def _refuse_no_answers(
    flag_values: flags.FlagValues, questions: "CheckedQuestions"
) -> None:
    """Raises InputError if answers are to be scored that nobody gave."""
    wants = {
        "find_null_threshold": flag_values.find_null_threshold,
        "eval_steps": flag_values.do_train and flag_values.eval_steps,
    }
    source = flag_values.predict_file or flag_values.tfds_name
    for flag, is_wanted in wants.items():
        if is_wanted and not questions.have_answers:
            raise InputError(
                f"--{flag} needs a development set; {source} has questions without an"
                " answer."
            )


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
