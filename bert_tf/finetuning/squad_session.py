"""The runs on SQuAD: questions in, answers out."""

import functools
import os
from collections.abc import Callable, Iterator, Mapping

import keras
import tensorflow as tf
from absl import flags, logging

from bert_tf.finetuning.squad_prediction import question_logits
from bert_tf.finetuning.task_session import TaskSession
from bert_tf.parallel import available_cores
from bert_tf.squad.checked_questions import CheckedQuestions
from bert_tf.squad.decoding import Decoded, Decoder, DecodingSettings
from bert_tf.squad.features import Featurizer, QuestionFeatures
from bert_tf.tasks import squad
from bert_tf.training.finetuning import RecordSet, finetune
from bert_tf.training.strategy import num_workers

RECORDS_NAME = "train.tf_record"


class SquadSession(TaskSession):
    """The runs on SQuAD, or on any questions in its format.

    Args:
        flag_values: the script's flags: the model, lengths, batches, how to train.
        strategy: the devices.
        output_dir: where a run that goes on has its model's files.

    Raises:
        InputError: a file is missing, contradicts another one, or a length does not
            leave room.
    """

    def __init__(
        self,
        flag_values: flags.FlagValues,
        strategy: tf.distribute.Strategy,
        *,
        output_dir: str,
    ) -> None:
        super().__init__(flag_values, strategy, output_dir=output_dir)
        self.task = squad.task(self.config, recompute=flag_values.recompute)
        self._decoder = Decoder(
            self.tokenizer,
            DecodingSettings(
                n_best_size=flag_values.n_best_size,
                max_answer_length=flag_values.max_answer_length,
                version_2_with_negative=flag_values.version_2_with_negative,
                do_lower_case=self.tokenizer.do_lower_case,
                answer_text=flag_values.answer_text,
                verbose_logging=flag_values.verbose_logging,
            ),
        )
        # Now rather than after training.
        self._featurizer(for_training=False)

    def fine_tune(
        self,
        folder: str,
        source: CheckedQuestions,
        *,
        num_train_epochs: float,
        init_checkpoint: str | None = None,
        evaluate: Callable[[keras.Model], Mapping[str, float]] | None = None,
        best_metric: str = "loss",
    ) -> tuple[keras.Model, int]:
        """Trains in a folder, from where that stands.

        Args:
            folder: the run's output_dir.
            source: the questions.
            num_train_epochs: passes over them.
            init_checkpoint: what a fresh run starts from. Default: --init_checkpoint.
            evaluate: what to do every --eval_steps.
            best_metric: which of its numbers says what checkpoint is the best.

        Returns:
            The model, and the number of steps that it was trained for.
        """
        self.prepare(folder)
        records = self._records(folder, source)
        return finetune(
            self.task,
            records,
            self._flags,
            self.strategy,
            folder=folder,
            num_train_epochs=num_train_epochs,
            max_lengths=self.max_lengths,
            num_examples=records.notes["num_questions"],
            init_checkpoint=init_checkpoint,
            evaluate=evaluate,
            best_metric=best_metric,
        )

    def answers(
        self, model: keras.Model, source: CheckedQuestions
    ) -> Iterator[tuple[QuestionFeatures, Decoded]]:
        """Predicts and decodes questions, in their order, as a stream.

        Args:
            model: the model.
            source: the questions.
        """
        for result in question_logits(
            self._featurizer(for_training=False)(source),
            functools.partial(self.outputs, model),
            batch_size=self._flags.predict_batch_size,
            max_seq_length=self._flags.max_seq_length,
            max_lengths=self.max_lengths,
            num_questions=source.num_questions,
        ):
            yield result.features, self._decoder(*result)

    def _featurizer(self, *, for_training: bool) -> Featurizer:
        return Featurizer(
            self.tokenizer,
            max_seq_length=self._flags.max_seq_length,
            doc_stride=self._flags.doc_stride,
            max_query_length=self._flags.max_query_length,
            for_training=for_training,
        )

    def _records(self, folder: str, source: CheckedQuestions) -> RecordSet:
        """The windows to train on, made once."""
        featurizer = self._featurizer(for_training=True)
        length = self._flags.max_seq_length
        is_alone = num_workers(self.strategy) == 1
        records = RecordSet.prepare(
            os.path.join(folder, RECORDS_NAME),
            squad.schema(length, for_training=True),
            {**featurizer.settings, "questions": source.identity},
            squad.parallel_blocks(
                source, featurizer, num_workers=self._flags.num_workers or available_cores()
            ),
            lambda: {
                "num_questions": source.num_questions,
                "skipped": dict(source.report.skipped),
            },
            is_alone=is_alone,
        )
        logging.info(
            "%d questions have %d windows.",
            records.notes["num_questions"],
            records.num_records,
        )
        return records
