"""The questions that flags name, read once and checked."""

from absl import flags

from bert_tf.errors import InputError
from bert_tf.squad.checked_questions import CheckedQuestions
from bert_tf.squad.reader import QuestionReader, SquadFile
from bert_tf.tasks.squad_tfds import TfdsSquad


def questions_from_flags(
    flag_values: flags.FlagValues, *, for_training: bool
) -> CheckedQuestions:
    """The questions to train on, or to answer."""
    version_2 = flag_values.version_2_with_negative
    reader: QuestionReader
    if flag_values.tfds_name:
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
        path = flag_values.train_file if for_training else flag_values.predict_file
        reader = SquadFile(
            path, version_2_with_negative=version_2, for_training=for_training
        )
    return CheckedQuestions(reader)


def first_questions_from_flags(
    flag_values: flags.FlagValues,
) -> CheckedQuestions | None:
    """The questions to train on before all others, where the flags name some."""
    if not flag_values.first_train_file:
        return None
    return CheckedQuestions(
        SquadFile(
            flag_values.first_train_file,
            version_2_with_negative=flag_values.version_2_with_negative,
            for_training=True,
        )
    )
