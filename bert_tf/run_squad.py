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

from bert_tf import cli
from bert_tf.errors import InputError
from bert_tf.tasks.run_options import warn_of_stride
from bert_tf.tasks.squad.squad_options import SquadOptions

if TYPE_CHECKING:
    from bert_tf.tasks.squad.reading import CheckedQuestions


def run(options: SquadOptions) -> None:
    """Reads the questions, then trains and answers."""
    cli.import_tensorflow()
    from bert_tf.tasks.squad.reading import (
        first_questions_of,
        questions_of,
    )
    from bert_tf.tasks.squad.spans import SquadSession
    from bert_tf.training.run_folder import held_for_training
    from bert_tf.training.strategy import check_batch_size, strategy_of

    warn_of_stride(options.doc_stride, options.max_seq_length)
    strategy = strategy_of(options)
    trains = options.do_train
    answers = options.do_predict or (trains and options.eval_steps)
    if answers:
        # What would otherwise come out after training.
        check_batch_size(
            strategy, options.predict_batch_size, flag="predict_batch_size"
        )
    session = SquadSession(options, strategy, output_dir=options.output_dir)
    # Every input is read and checked before anything is written or trained.
    first = first_questions_of(options)
    training = questions_of(options, for_training=True) if trains else None
    questions = questions_of(options, for_training=False) if answers else None
    if questions is not None:
        _refuse_no_answers(options, questions)
    if training is not None:
        with held_for_training(options.output_dir, strategy):
            model, step = session.fine_tune_in_stages(first, training, questions)
    else:
        model, step = session.restore(options.output_dir)
    if options.do_predict:
        assert questions is not None
        session.predict(model, step, questions)


def _refuse_no_answers(options: SquadOptions, questions: "CheckedQuestions") -> None:
    """Raises InputError if answers are to be scored that nobody gave."""
    wants = {
        "find_null_threshold": options.find_null_threshold,
        "eval_steps": options.do_train and options.eval_steps,
    }
    source = options.predict_file or options.tfds_name
    for flag, is_wanted in wants.items():
        if is_wanted and not questions.have_answers:
            raise InputError(
                f"--{flag} needs a development set; {source} has questions without an"
                " answer."
            )


def main() -> None:
    """The command line."""
    cli.main(run)


if __name__ == "__main__":
    main()
