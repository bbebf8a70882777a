"""Answering questions by a span of a paragraph."""

import copy
import dataclasses
import itertools
import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.base.errors import InputError
from bert_tf.base.parallel import available_cores
from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.modeling.heads import BertSpanPredictor
from bert_tf.records.batching import Batching, ExampleTable, Predict, rows_digest
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks import finetuning
from bert_tf.tasks.epochs import steps_of
from bert_tf.tasks.finetuning import FineTuning
from bert_tf.tasks.squad import null_threshold, reading
from bert_tf.tasks.squad.decoding import Decoder
from bert_tf.tasks.squad.scoring import Answers, golds_of, metric_names
from bert_tf.tasks.squad.squad_options import SquadOptions
from bert_tf.tasks.squad.window_logits import question_logits
from bert_tf.tasks.squad.windows import QuestionFeaturizer, parallel_blocks
from bert_tf.tasks.task import TRAIN, FineTuningTask
from bert_tf.training.checkpoints import candidates, prefix_of
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import Strategy

# Devlin et al. 2018, sections 4.2 and 4.3: [CLS] question [SEP] window [SEP]; every
# token has a score as the answer's start and one as its end. If there is no answer,
# both are at [CLS].


FIRST_STAGE = "first_stage"


class SquadTask(FineTuningTask[Answers]):
    """Finding answers, trained first on other questions if requested."""

    name = "squad"
    head = names.SPAN
    test_splits = ("dev",)

    def __init__(
        self,
        options: SquadOptions,
        model_files: ModelFiles,
        strategy: tf.distribute.Strategy,
    ) -> None:
        del strategy
        self._options, self._model_files = options, model_files
        self.config = model_files.config
        self._first = None
        if options.first_train_file:
            self._first = reading.read_file(
                options.first_train_file,
                version_2_with_negative=options.version_2_with_negative,
                for_training=True,
                evidence_dir=options.evidence_dir,
                max_unusable_rows=options.max_unusable_rows,
            )
        self.splits = _read_splits(options)
        self.metrics = metric_names(options.version_2_with_negative)
        self.metric = self.metrics[-1]
        self._built = finetuning.model_options(
            options, model_files.config, has_pooler=False
        )
        self._featurizer("dev")  # refuses its lengths now rather than after training

    def build_model(self) -> BertSpanPredictor:
        """Returns a model that predicts where an answer starts and ends."""
        return BertSpanPredictor(self.config, **self._built)

    def num_examples(self) -> int:
        """Returns the number of questions, which an epoch counts in the original."""
        return self.splits[TRAIN].num_questions

    def data(self) -> RunData:
        """Returns the training set."""
        train = self.splits[TRAIN]
        described = f"{train.num_questions} questions of {train.source}"
        return RunData(described, rows_digest([train.identity]))

    def identity(self, split: str) -> str:
        """Returns a digest of a split's questions and of how they are read."""
        return rows_digest([self._made_from(split)])

    def texts(self, split: str) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields each question, its text, and its id."""
        for question in self.splits.get(split, ()):
            yield (question.text, question.context), question.question_id

    def make_records(self, split: str) -> ExampleTable:
        """Returns the windows of a split."""
        questions, length = self.splits[split], self._options.max_seq_length
        num_workers = self._options.num_workers or available_cores()
        found = parallel_blocks(
            questions, self._featurizer(split), num_workers=num_workers
        )
        first = next(found, None)
        if first is None:
            raise InputError(
                f"{questions.source}: no paragraph has a token, so that there is"
                " nothing to train on."
            )
        records = ExampleTable(
            itertools.chain([first], found),
            RecordSpec.spans(length, for_training=split == TRAIN),
            self._made_from(split),
        )
        count = questions.num_questions
        logging.info("%d questions have %d windows.", count, len(records))
        return records

    def predict(self, split: str, outputs: Predict) -> Answers:
        """Returns the answers to the questions, in their order."""
        source, options = self.splits[split], self._options
        logging.info("  Num questions = %d", source.num_questions)
        decoder = Decoder(
            self._model_files.tokenizer,
            n_best_size=options.n_best_size,
            max_answer_length=options.max_answer_length,
            version_2_with_negative=options.version_2_with_negative,
            answer_text=options.answer_text,
            verbose_logging=options.verbose_logging,
        )
        answers = Answers(
            version_2_with_negative=options.version_2_with_negative,
            threshold=options.null_score_diff_threshold,
        )
        for result in question_logits(
            self._featurizer(split)(source),
            outputs,
            Batching(
                batch_size=options.predict_batch_size,
                max_seq_length=options.max_seq_length,
                num_lengths=options.num_lengths,
            ),
            source.num_questions,
        ):
            answers.add(result[0].question.question_id, decoder(*result))
        return answers

    def score(self, split: str, answers: Answers) -> dict[str, float]:
        """Returns the answers' official scores, if the questions have answers."""
        source = self.splits[split]
        return answers.scores(golds_of(source)) if source.have_answers else {}

    def write(self, folder: str, split: str, answers: Answers, step: int) -> None:
        """Writes the answers, with the threshold that is given, found or recorded."""
        source = self.splits[split]
        if self._options.version_2_with_negative:
            answers.threshold = self._threshold(folder, split, answers, step)
        answers.write(folder)
        if not source.have_answers:
            logging.warning("No scores: there are questions without a known answer.")
        elif source.num_skipped:
            logging.warning(
                "The scores leave out the %d questions that could not be used; the"
                " official script, and bert_tf.evaluate_squad, count them.",
                source.num_skipped,
            )

    def first_stage(self, model_files: ModelFiles, strategy: Strategy) -> str | None:
        """Trains on the first file's questions."""
        options, first = self._options, self._first
        # Once the second stage has begun, the first one's result is not used any more.
        if first is None or candidates(options.output_dir):
            return None
        folder = os.path.join(options.output_dir, FIRST_STAGE)
        overrides: dict[str, Any] = {
            "output_dir": folder,
            "num_train_epochs": (options.first_num_train_epochs,),
            "learning_rates": None,
            "train_batch_sizes": None,
            "num_restarts": 1,
            "eval_steps": 0,
            "patience": 0,
        }
        logging.info("***** First stage: %s *****", options.first_train_file)
        task = copy.copy(self)
        task._options = dataclasses.replace(options, **overrides)
        task.splits = {TRAIN: first}
        task._records = {}
        stage = FineTuning(task, task._options, model_files, strategy)
        stage.fine_tune(folder, epochs_flag="first_num_train_epochs")
        return folder

    def _made_from(self, split: str) -> dict[str, Any]:
        settings = self._featurizer(split).settings
        return {**settings, "questions": self.splits[split].identity}

    def _featurizer(self, split: str) -> QuestionFeaturizer:
        options = self._options
        return QuestionFeaturizer(
            self._model_files.tokenizer,
            max_seq_length=options.max_seq_length,
            doc_stride=options.doc_stride,
            max_query_length=options.max_query_length,
            for_training=split == TRAIN,
        )

    def _threshold(self, folder: str, split: str, answers: Answers, step: int) -> float:
        """Returns the null score difference above which there is no answer."""
        options, source = self._options, self._model_files.source
        folders, checkpoint = [folder], prefix_of(folder, step)
        if not step and source is not None:
            # An untrained model uses the threshold next to its checkpoint.
            folders.append(source.folder)
            checkpoint = source.checkpoint
        if options.find_null_threshold:
            null_threshold.find(
                folder,
                golds_of(self.splits[split]),
                answers.best_texts,
                answers.null_odds,
                predict_file=options.predict_file or options.tfds_name or "",
                checkpoint=checkpoint,
                plots=options.plots,
            )
        given = options.value_if_given("null_score_diff_threshold")
        if given is not None:
            return given
        for each in folders:
            if (found := null_threshold.read(each, checkpoint)) is not None:
                path = null_threshold.path_in(each)
                logging.info("`null_score_diff_threshold=%s`, from %s.", found, path)
                return found
        return options.null_score_diff_threshold


def _read_splits(options: SquadOptions) -> dict[str, reading.CheckedQuestions]:
    """Reads and checks the options' questions, once."""
    splits = {}
    if options.do_train:
        splits[TRAIN] = train = reading.questions_of(options, for_training=True)
    if options.do_predict or options.looks_at_dev:
        splits["dev"] = dev = reading.questions_of(options, for_training=False)
        wants = {
            "find_null_threshold": options.find_null_threshold,
            "eval_steps": options.do_train and options.eval_steps,
            "learning_rates": options.selects,
        }
        for name, is_wanted in wants.items():
            if is_wanted and not dev.have_answers:
                raise InputError(
                    f"`{name}` needs a development set; {dev.source} has"
                    " questions without an answer."
                )
    if options.do_train and options.num_lengths is None:
        # Now rather than after a first stage.
        for settings in options.settings:
            steps_of(
                train.num_questions / settings.train_batch_size,
                settings.num_train_epochs,
                is_whole=False,
                flag="num_train_epochs",
            )
    return splits
