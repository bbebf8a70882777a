"""Answering questions by a span of a paragraph."""

import copy
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.base.errors import InputError
from bert_tf.base.parallel import available_cores, grouped
from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.modeling.heads import BertSpanPredictor
from bert_tf.modeling.objectives import SPAN
from bert_tf.records.batching import (
    Arrays,
    Batching,
    ExampleTable,
    Group,
    Predict,
    predict_groups,
    rows_digest,
)
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks import finetuning
from bert_tf.tasks.finetuning import FineTuning
from bert_tf.tasks.squad import null_threshold, reading
from bert_tf.tasks.squad.decoding import (
    OFFSETS,
    Decoder,
    NBestEntry,
    text_or_null,
)
from bert_tf.tasks.squad.scoring import (
    Answers,
    golds_of,
    metric_names,
)
from bert_tf.tasks.squad.squad_options import SquadOptions
from bert_tf.tasks.squad.windows import (
    QuestionFeatures,
    QuestionFeaturizer,
    blocks,
    parallel_blocks,
)
from bert_tf.tasks.task import TRAIN, FineTuningTask
from bert_tf.text.wordpiece import WordPieceTokenizer
from bert_tf.training.checkpoints import candidates, prefix_of
from bert_tf.training.device_steps import prediction_step
from bert_tf.training.evaluation import Predictor
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import create_strategy

# Devlin et al. 2018, sections 4.2 and 4.3: [CLS] question [SEP] window [SEP]; every
# token has a score as the answer's start and one as its end. If there is no answer,
# both are at [CLS].


# About how many windows are predicted, and kept in memory, at once.
WINDOWS_AT_ONCE = 4096


# A question and its windows' start and end logits: of each, float32 [S], or no more
# than its record's tokens.
QuestionLogits = tuple[QuestionFeatures, list[np.ndarray], list[np.ndarray]]


def question_logits(
    features: Iterable[QuestionFeatures],
    predict: Predict,
    batching: Batching,
    num_questions: int,
) -> Iterator[QuestionLogits]:
    """Predicts questions, in their order; memory does not grow with their number."""

    def keep(
        group: Any, row: int, place: int, batch: Arrays, outputs: Arrays
    ) -> tuple[np.ndarray, np.ndarray]:
        is_cut = batching.max_lengths is not None
        stop = batch["input_mask"][place].sum() if is_cut else None
        # Copies: a view would keep the batch.
        start = outputs["start_logits"][place, :stop].copy()
        return start, outputs["end_logits"][place, :stop].copy()

    length = batching.max_seq_length
    spec = RecordSpec.spans(length, for_training=False)
    without: list[QuestionFeatures] = []  # a window; they can only be the last ones

    def groups() -> Iterator[Group[QuestionFeatures]]:
        for some in grouped(features, WINDOWS_AT_ONCE, lambda one: len(one.windows)):
            if records := list(blocks(some, length)):
                yield some, ExampleTable(records, spec)
            else:
                without.extend(some)

    for questions, found in predict_groups(
        groups(), predict, keep, batching, num_questions
    ):
        rows = iter(found)
        for question in questions:
            own = list(itertools.islice(rows, len(question.windows)))
            yield question, [start for start, _ in own], [end for _, end in own]
    for question in without:
        yield question, [], []


class Answerer:
    """Answers questions about any text, as one paragraph, with a model of SQuAD."""

    def __init__(
        self,
        model: Any,
        tokenizer: WordPieceTokenizer,
        *,
        predict: Predict | None = None,
        max_seq_length: int = 384,
        doc_stride: int = 128,
        max_query_length: int = 64,
        null_score_diff_threshold: float = 0.0,
        batch_size: int = 8,
        **decoding: Any,  # see `Decoder`
    ) -> None:
        model.bert_config.check_sequence_length(max_seq_length)
        if predict is None:
            step = prediction_step(model, create_strategy(), by_pieces=False)
            predict = Predictor("questions", step).run
        self._predict = predict
        self._max_seq_length, self._batch_size = max_seq_length, batch_size
        self._featurizer = QuestionFeaturizer(
            tokenizer,
            max_seq_length=max_seq_length,
            doc_stride=doc_stride,
            max_query_length=max_query_length,
            for_training=False,
        )
        self._threshold = null_score_diff_threshold
        self._decoder = Decoder(tokenizer, answer_text=OFFSETS, **decoding)

    def __call__(
        self, questions: Sequence[str], context: str
    ) -> Iterator[list[NBestEntry]]:
        """Answers questions one by one."""
        return map(self.answers, self.features(questions, context))

    def features(
        self, questions: Sequence[str], context: str
    ) -> Iterator[QuestionFeatures]:
        """The windows of each question."""
        asked = []
        for number, text in enumerate(questions, start=1):
            if not text.strip():
                raise InputError(f"Question {number} is empty.")
            asked.append(
                reading.Question(question_id=str(number), text=text, context=context)
            )
        for features in self._featurizer(asked):
            if not features.windows:
                raise InputError("The text to find answers in has no word.")
            yield features

    def each(
        self, questions: Sequence[str], contexts: Sequence[str]
    ) -> Iterator[list[NBestEntry]]:
        """Answers each about its own text, in shared batches; [] if it has no word."""
        asked = [
            reading.Question(question_id=str(number), text=question, context=context)
            for number, (question, context) in enumerate(
                zip(questions, contexts, strict=True)
            )
        ]
        features = list(self._featurizer(asked))
        for logits in self._all_logits(features, Batching.max_lengths):
            yield self._decoded(logits) if logits[1] else []

    def answers(self, features: QuestionFeatures) -> list[NBestEntry]:
        """A question's answers, the prediction first."""
        return self._decoded(self._logits(features))

    def _decoded(self, logits: QuestionLogits) -> list[NBestEntry]:
        decoded = self._decoder(*logits)
        said = text_or_null(decoded.best_text, decoded.score_diff, self._threshold)
        return sorted(decoded.n_best, key=lambda entry: entry.text != said)

    def place(
        self, features: QuestionFeatures, answer: NBestEntry
    ) -> tuple[int, int, int]:
        """The number of an answer's window, and its first and last token there."""
        if answer.span is None:
            _, starts, ends = self._logits(features)
            null = [start[0] + end[0] for start, end in zip(starts, ends, strict=True)]
            return int(np.argmin(null)), 0, 0
        begin, end = answer.span
        offsets = features.paragraph.offsets
        first = next(i for i, (start, _) in enumerate(offsets) if start == begin)
        last = max(i for i, (_, stop) in enumerate(offsets) if stop == end)
        number = next(
            number
            for number, (best, window) in enumerate(
                zip(features.max_context(), features.windows, strict=True)
            )
            if 0 <= first - window.start < window.length and best[first - window.start]
        )
        shift = features.offset - features.windows[number].start
        return number, first + shift, last + shift

    def _logits(self, features: QuestionFeatures) -> QuestionLogits:
        (found,) = self._all_logits([features], max_lengths=1)
        return found

    def _all_logits(
        self, features: Sequence[QuestionFeatures], max_lengths: int | None
    ) -> Iterator[QuestionLogits]:
        """Their logits, in batches of no more rows than there are windows."""
        num_windows = sum(len(one.windows) for one in features)
        batching = Batching(
            batch_size=min(self._batch_size, num_windows),
            max_seq_length=self._max_seq_length,
            max_lengths=max_lengths,
        )
        return question_logits(features, self._predict, batching, len(features))


# The runs on SQuAD: questions in, answers out.


FIRST_STAGE = "first_stage"


class SquadTask(FineTuningTask[Answers]):
    """Finding answers, trained first on other questions if requested."""

    name = "squad"
    head = names.SPAN
    objective = SPAN
    test_splits = ("dev",)

    def __init__(
        self,
        options: SquadOptions,
        model_files: ModelFiles,
        strategy: tf.distribute.Strategy,
    ) -> None:
        del strategy
        self._options, self._model_files = options, model_files
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
        """A model that predicts where an answer starts and ends."""
        return BertSpanPredictor(self._model_files.config, **self._built)

    def num_examples(self) -> int:
        """The number of questions: an epoch counts questions, as in the original."""
        return self.splits[TRAIN].num_questions

    def data(self) -> RunData:
        """The training set."""
        train = self.splits[TRAIN]
        described = f"{train.num_questions} questions of {train.source}"
        return RunData(described, rows_digest([train.identity]))

    def identity(self, split: str) -> str:
        """A digest of a split's questions, and of how they are read."""
        return rows_digest([self._made_from(split)])

    def make_records(self, split: str) -> ExampleTable:
        """The windows of a split."""
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
        """The answers to the questions, in their order."""
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
                max_lengths=options.max_lengths,
            ),
            source.num_questions,
        ):
            answers.add(result[0].question.question_id, decoder(*result))
        return answers

    def score(self, split: str, answers: Answers) -> dict[str, float]:
        """The answers' official scores, if the questions have answers."""
        source = self.splits[split]
        return answers.scores(golds_of(source)) if source.have_answers else {}

    def write(self, folder: str, split: str, answers: Answers, step: int) -> None:
        """Writes the answers, by the threshold that is given, found or recorded."""
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

    def first_stage(self, run: FineTuning) -> str | None:
        """Trains on the first file's questions."""
        options, first = self._options, self._first
        # Once the second stage has begun, nothing starts from the first one's result.
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
        stage = FineTuning(task, task._options, run.model_files, run.strategy)
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
        """The null score difference above which there is no answer."""
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
    """The options' questions, read once and checked."""
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
    if options.do_train and options.max_lengths is None:
        # Now rather than after a first stage.
        for settings in options.settings:
            finetuning.steps_of(
                train.num_questions / settings.train_batch_size,
                settings.num_train_epochs,
                is_whole=False,
                flag="num_train_epochs",
            )
    return splits
