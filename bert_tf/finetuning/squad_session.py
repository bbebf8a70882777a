"""The runs on SQuAD: questions in, answers out."""

import functools
import os
from collections.abc import Iterator
from contextlib import nullcontext

import keras
import tensorflow as tf
from absl import flags, logging

from bert_tf import flags as shared_flags
from bert_tf.conversion import names
from bert_tf.errors import InputError
from bert_tf.finetuning import null_threshold
from bert_tf.finetuning.squad_evaluation import Answers, best_metric
from bert_tf.finetuning.squad_prediction import question_logits
from bert_tf.finetuning.task_session import TaskSession
from bert_tf.parallel import available_cores
from bert_tf.records.batching import SplitRecords, rows_digest
from bert_tf.squad.checked_questions import CheckedQuestions
from bert_tf.squad.decoding import Decoded, Decoder, DecodingSettings
from bert_tf.squad.features import Featurizer, QuestionFeatures
from bert_tf.squad.prediction_files import PredictionFiles
from bert_tf.tasks import squad
from bert_tf.training import run_folder
from bert_tf.training.checkpoint_files import candidates, prefix_of
from bert_tf.training.finetuning import finetune, steps_of
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import num_workers

RECORDS_NAME = "train.tf_record"
FIRST_STAGE = "first_stage"


class SquadSession(TaskSession):
    """The runs on SQuAD, or on any questions in its format."""

    head = names.SPAN

    def __init__(
        self,
        flag_values: flags.FlagValues,
        strategy: tf.distribute.Strategy,
        *,
        output_dir: str,
    ) -> None:
        super().__init__(flag_values, strategy, output_dir=output_dir)
        self._version_2 = flag_values.version_2_with_negative
        self.task = squad.task(self.config, recompute=flag_values.recompute)
        self._decoder = Decoder(
            self.tokenizer,
            DecodingSettings(
                n_best_size=flag_values.n_best_size,
                max_answer_length=flag_values.max_answer_length,
                version_2_with_negative=self._version_2,
                do_lower_case=self.tokenizer.do_lower_case,
                answer_text=flag_values.answer_text,
                verbose_logging=flag_values.verbose_logging,
            ),
        )
        # Now rather than after training.
        self._best_metric = best_metric(self._version_2, flag_values.best_metric)
        self._featurizer(for_training=False)

    def fine_tune(
        self,
        folder: str,
        source: CheckedQuestions,
        *,
        num_train_epochs: float,
        epochs_flag: str = "num_train_epochs",
        init_checkpoint: str | None = None,
        scored: CheckedQuestions | None = None,
    ) -> tuple[keras.Model, int]:
        """Trains in a folder, from where that stands."""
        data = RunData(
            f"{source.num_questions} questions of {source.report.source}",
            rows_digest([source.identity]),
        )
        self.prepare(folder, data)
        records = self._records(folder, source)
        return finetune(
            self.task,
            records,
            self._flags,
            self.strategy,
            folder=folder,
            data=data,
            num_train_epochs=num_train_epochs,
            max_lengths=self.max_lengths,
            num_examples=records.notes["num_questions"],
            epochs_flag=epochs_flag,
            init_checkpoint=init_checkpoint,
            evaluate=functools.partial(self.scores, questions=scored)
            if scored is not None and self._flags.eval_steps
            else None,
            best_metric=self._best_metric,
        )

    def fine_tune_in_stages(
        self,
        first: CheckedQuestions | None,
        training: CheckedQuestions,
        scored: CheckedQuestions | None,
    ) -> tuple[keras.Model, int]:
        """Trains in --output_dir, where asked for on other questions before."""
        init_checkpoint = None
        if self.max_lengths is None:
            # Now rather than after the first stage.
            steps_of(
                training.num_questions / self._flags.train_batch_size,
                self._flags.num_train_epochs,
                is_whole=False,
                flag="num_train_epochs",
            )
        # Where the second stage has begun, nothing starts from the first one's end.
        if first is not None and not candidates(self._flags.output_dir):
            init_checkpoint = os.path.join(self._flags.output_dir, FIRST_STAGE)
            logging.info("***** First stage: %s *****", self._flags.first_train_file)
            self.fine_tune(
                init_checkpoint,
                first,
                num_train_epochs=self._flags.first_num_train_epochs,
                epochs_flag="first_num_train_epochs",
            )
        return self.fine_tune(
            self._flags.output_dir,
            training,
            num_train_epochs=self._flags.num_train_epochs,
            init_checkpoint=init_checkpoint,
            scored=scored,
        )

    def answers(
        self, model: keras.Model, source: CheckedQuestions
    ) -> Iterator[tuple[QuestionFeatures, Decoded]]:
        """Predicts and decodes questions, in their order, as a stream."""
        for result in question_logits(
            self._featurizer(for_training=False)(source),
            functools.partial(self.outputs, model),
            batch_size=self._flags.predict_batch_size,
            max_seq_length=self._flags.max_seq_length,
            max_lengths=self.max_lengths,
            num_questions=source.num_questions,
        ):
            yield result.features, self._decoder(*result)

    def scores(
        self, model: keras.Model, questions: CheckedQuestions
    ) -> dict[str, float]:
        """What the answers to questions are worth, by --null_score_diff_threshold."""
        answers = Answers(version_2_with_negative=self._version_2)
        for features, decoded in self.answers(model, questions):
            answers.add(features.question, decoded)
        return answers.scores(self._flags.null_score_diff_threshold)

    def predict(
        self, model: keras.Model, step: int, questions: CheckedQuestions
    ) -> None:
        """Answers questions, and scores the answers where they are known."""
        folder = self._flags.output_dir
        logging.info("***** Running predictions *****")
        logging.info("  Num questions = %d", questions.num_questions)
        answers = Answers(version_2_with_negative=self._version_2)
        num_cut = 0
        # Of several workers each goes through all questions, and one writes.
        writes = self.is_chief
        with (
            PredictionFiles(folder, self._version_2) if writes else nullcontext() as to
        ):
            for features, decoded in self.answers(model, questions):
                answers.add(features.question, decoded)
                num_cut += features.is_query_cut
                if to is not None:
                    to.add(features.question.question_id, decoded)
            threshold = self._threshold(answers, step) if self._version_2 else 0.0
            if to is not None:
                to.finish(threshold)
        self._log_cut(num_cut, questions)
        if questions.have_answers:
            report = questions.report
            if report.skipped:
                logging.warning(
                    "The scores are of the %d questions that could be used; the"
                    " official script, and bert_tf.evaluate_squad, count all %d.",
                    report.num_usable,
                    report.num_questions,
                )
            run_folder.report_evaluation(
                folder,
                step,
                answers.scores(threshold),
                is_chief=writes,
                task_name=self.task.name,
            )
        else:
            logging.warning("No scores: there are questions without a known answer.")

    def _threshold(self, answers: Answers, step: int) -> float:
        """The null score difference above which there is no answer."""
        folder = self._flags.output_dir
        folders, checkpoint = [folder], prefix_of(folder, step)
        if not step and self.source is not None:
            # As it came, it keeps what was found where it came from.
            folders.append(self.source.folder)
            checkpoint = self.source.checkpoint
        if self._flags.find_null_threshold and self.is_chief:
            null_threshold.find(
                folder,
                answers.golds,
                answers.best_texts,
                answers.null_odds,
                predict_file=self._flags.predict_file or self._flags.tfds_name,
                checkpoint=checkpoint,
                plots=self._flags.plots,
            )
        given = shared_flags.given(self._flags, "null_score_diff_threshold")
        return null_threshold.given_or_found(
            given,
            folders,
            self._flags.null_score_diff_threshold,
            checkpoint=checkpoint,
        )

    def _featurizer(self, *, for_training: bool) -> Featurizer:
        return Featurizer(
            self.tokenizer,
            max_seq_length=self._flags.max_seq_length,
            doc_stride=self._flags.doc_stride,
            max_query_length=self._flags.max_query_length,
            for_training=for_training,
        )

    def _records(self, folder: str, source: CheckedQuestions) -> SplitRecords:
        """The windows to train on, made once."""
        featurizer = self._featurizer(for_training=True)
        length = self._flags.max_seq_length
        is_alone = num_workers(self.strategy) == 1
        cut = squad.CutQuestions()
        records = SplitRecords.prepare(
            os.path.join(folder, RECORDS_NAME),
            squad.schema(length, for_training=True),
            {**featurizer.settings, "questions": source.identity},
            squad.parallel_blocks(
                source,
                featurizer,
                num_workers=self._flags.num_workers or available_cores(),
                cut=cut,
            ),
            lambda: {
                "num_questions": source.num_questions,
                "skipped": dict(source.report.skipped),
                "num_cut": cut.number,
            },
            is_alone=is_alone,
        )
        logging.info(
            "%d questions have %d windows.",
            records.notes["num_questions"],
            records.num_records,
        )
        if not records.num_records:
            raise InputError(
                f"{source.report.source}: no paragraph has a token, so that there is"
                " nothing to train on."
            )
        # Records that lie there may be of a version that did not count.
        self._log_cut(records.notes.get("num_cut", 0), source)
        return records

    def _log_cut(self, number: int, source: CheckedQuestions) -> None:
        """Says how many questions were cut."""
        if number:
            logging.info(
                "%d of %d questions were longer than --max_query_length=%d and cut.",
                number,
                source.num_questions,
                self._flags.max_query_length,
            )
