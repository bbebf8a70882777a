"""Answering questions by a span of a paragraph."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.config import BertConfig
from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertSpanPredictor
from bert_tf.modeling.objectives import SPAN
from bert_tf.parallel import available_cores
from bert_tf.records.batching import (
    PADDING,
    ROWS,
    EvaluationBatches,
    ExampleTable,
    LengthPlan,
    SplitRecords,
    prediction_lengths,
    rows_digest,
)
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks import finetuning
from bert_tf.tasks.finetuning import (
    Arrays,
    FineTuning,
    FineTuningTask,
    Outputs,
    model_options,
    opened_adapter,
)
from bert_tf.tasks.squad import null_threshold
from bert_tf.tasks.squad.decoding import (
    OFFSETS,
    Decoded,
    Decoder,
    DecodingSettings,
    NBestEntry,
    text_or_null,
)
from bert_tf.tasks.squad.reading import (
    CheckedQuestions,
    Paragraph,
    Question,
    questions_of,
    read_file,
)
from bert_tf.tasks.squad.scoring import (
    Answers,
    Golds,
    PredictionFiles,
    best_metric,
    golds_of,
)
from bert_tf.tasks.squad.squad_options import SquadOptions
from bert_tf.tasks.squad.windows import (
    QuestionFeatures,
    QuestionFeaturizer,
    blocks,
    parallel_blocks,
)
from bert_tf.text.wordpiece import WordPieceTokenizer
from bert_tf.training import run_folder
from bert_tf.training.checkpoints import candidates, prefix_of
from bert_tf.training.run_folder import RunData
from bert_tf.training.task import Task

# Devlin et al. 2018, sections 4.2 and 4.3: [CLS] question [SEP] window [SEP]; every
# token has a score as the answer's start and one as its end. If there is no answer,
# both are at [CLS].


def task(
    config: BertConfig, *, name: str = "squad", recompute: bool = False, **options: Any
) -> Task:
    """The task of finding answers."""
    return Task(
        name=name,
        build_model=lambda: BertSpanPredictor(config, recompute=recompute, **options),
        objective=SPAN,
    )


def schema(max_seq_length: int, *, for_training: bool) -> RecordSpec:
    """The features of a record; for training, including the answer's place."""
    return RecordSpec.spans(max_seq_length, for_training)


# Questions into logits, as a stream: memory does not grow with their number.
#
# Questions are taken in groups of some thousand windows. A group's windows are batched
# by similar length, and its questions are yielded in order once all their windows are
# done. The static lengths are chosen from the first group, so that later groups need no
# new compilation.


WINDOWS_AT_ONCE = 4096


class QuestionLogits(NamedTuple):
    """A question and its windows' logits."""

    features: QuestionFeatures
    # Of each window, float32 [S], or no more than its record's tokens.
    start_logits: list[np.ndarray]
    end_logits: list[np.ndarray]


class _Group:
    """Questions that are predicted together, some of them perhaps without a window."""

    def __init__(
        self, questions: list[QuestionFeatures], batches: EvaluationBatches | None
    ) -> None:
        self.questions = questions
        self.batches = batches
        self.num_missing = sum(len(question.windows) for question in questions)
        self._start: list[np.ndarray] = [np.empty(0)] * self.num_missing
        self._end: list[np.ndarray] = [np.empty(0)] * self.num_missing

    def take(self, batch: Arrays, outputs: Arrays, *, with_padding: bool) -> None:
        """Keeps the logits of a batch's windows."""
        lengths = batch["input_mask"].sum(axis=1)
        for place, row in enumerate(batch[ROWS]):
            if row == PADDING:
                continue
            stop = None if with_padding else lengths[place]
            # Copies: a view would keep the batch.
            self._start[row] = outputs["start_logits"][place, :stop].copy()
            self._end[row] = outputs["end_logits"][place, :stop].copy()
            self.num_missing -= 1

    def results(self) -> Iterator[QuestionLogits]:
        """The questions, in their order."""
        first = 0
        for question in self.questions:
            of_question = slice(first, first + len(question.windows))
            yield QuestionLogits(
                question, self._start[of_question], self._end[of_question]
            )
            first = of_question.stop


class WindowBatches:
    """The batches of all windows, group by group, as input of a `Predictor`."""

    def __init__(self, first: _Group, groups: Iterator[_Group]) -> None:
        assert first.batches is not None
        self.element_spec = first.batches.element_spec
        self.group = first  # the one that the last batch was of
        self._groups = groups

    def __iter__(self) -> Iterator[Arrays]:
        """The batches; can be iterated once."""
        for group in itertools.chain([self.group], self._groups):
            self.group = group
            yield from group.batches or ()


def question_logits(
    features: Iterable[QuestionFeatures],
    predict: Outputs,
    *,
    batch_size: int,
    max_seq_length: int,
    max_lengths: int | None,
    num_questions: int,
) -> Iterator[QuestionLogits]:
    """Predicts questions, in their order."""
    groups = _groups(
        iter(features), batch_size, max_seq_length, max_lengths, num_questions
    )
    first = next(groups, None)
    if first is None:
        return
    if first.batches is None:
        yield from first.results()
        return
    batches = WindowBatches(first, groups)
    total = len(first.batches) * -(-num_questions // len(first.questions))
    for batch, outputs in predict(batches, total):
        group = batches.group
        group.take(batch, outputs, with_padding=max_lengths is None)
        if not group.num_missing:
            yield from group.results()
    if batches.group.batches is None:
        yield from batches.group.results()


def _groups(
    features: Iterator[QuestionFeatures],
    batch_size: int,
    max_seq_length: int,
    max_lengths: int | None,
    num_questions: int,
) -> Iterator[_Group]:
    """The questions in groups; only the last one may have no window."""
    record_schema = schema(max_seq_length, for_training=False)
    buckets: tuple[int, ...] | None = None if max_lengths else (max_seq_length,)
    while questions := _next_questions(features):
        of_group = list(blocks(questions, max_seq_length=max_seq_length))
        if not of_group:
            yield _Group(questions, None)
            continue
        table = ExampleTable(of_group, record_schema)
        if buckets is None:
            assert max_lengths is not None
            batches = -(-len(table) // batch_size)
            estimate = batches * num_questions // len(questions)
            buckets = prediction_lengths(table.lengths, estimate, max_lengths)
            # A later window may be longer than all of these.
            buckets = (*(n for n in buckets if n < max_seq_length), max_seq_length)
        plan = LengthPlan(table.lengths, batch_size, buckets, seed=None).epoch(0)
        lengths = np.array(buckets)[plan.buckets]
        yield _Group(questions, EvaluationBatches(table, plan.rows, lengths))


def _next_questions(features: Iterator[QuestionFeatures]) -> list[QuestionFeatures]:
    """Questions with about `WINDOWS_AT_ONCE` windows together; and the rest."""
    questions: list[QuestionFeatures] = []
    windows = 0
    while windows < WINDOWS_AT_ONCE and (question := next(features, None)) is not None:
        questions.append(question)
        windows += len(question.windows)
    return questions


class Answerer:
    """Answers questions about any text with a model of SQuAD.

    The text is treated as one paragraph of any length: it is read in windows, and an
    answer is cut from it at its tokens' offsets (`--answer_text=offsets`).
    """

    def __init__(
        self,
        model: BertSpanPredictor,
        tokenizer: WordPieceTokenizer,
        *,
        max_seq_length: int = 384,
        doc_stride: int = 128,
        max_query_length: int = 64,
        n_best_size: int = 20,
        max_answer_length: int = 30,
        version_2_with_negative: bool = False,
        null_score_diff_threshold: float = 0.0,
        batch_size: int = 8,
    ) -> None:
        model.bert_config.check_sequence_length(max_seq_length)
        self._model = model
        self._max_seq_length, self._batch_size = max_seq_length, batch_size
        self._featurizer = QuestionFeaturizer(
            tokenizer,
            max_seq_length=max_seq_length,
            doc_stride=doc_stride,
            max_query_length=max_query_length,
            for_training=False,
        )
        settings = DecodingSettings(
            n_best_size=n_best_size,
            max_answer_length=max_answer_length,
            version_2_with_negative=version_2_with_negative,
            do_lower_case=tokenizer.do_lower_case,
            answer_text=OFFSETS,
        )
        self._threshold = null_score_diff_threshold
        self._decoder = Decoder(tokenizer, settings)

    def __call__(
        self, questions: Sequence[str], context: str
    ) -> Iterator[list[NBestEntry]]:
        """Answers questions, one after the other."""
        paragraph = Paragraph(context=context)
        asked = []
        for number, text in enumerate(questions, start=1):
            if not text.strip():
                raise InputError(f"Question {number} is empty.")
            asked.append(
                Question(question_id=str(number), text=text, paragraph=paragraph)
            )
        for features in self._featurizer(asked):
            if not features.windows:
                raise InputError("The text to find answers in has no word.")
            decoded = self._decoder(features, *self._logits(features))
            said = text_or_null(decoded.best_text, decoded.score_diff, self._threshold)
            # The prediction first.
            yield sorted(decoded.n_best, key=lambda entry: entry.text != said)

    def _logits(
        self, features: QuestionFeatures
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Scores of each window's tokens to be an answer's first, and its last."""
        starts: list[np.ndarray] = []
        ends: list[np.ndarray] = []
        for block in blocks([features], self._max_seq_length):
            all_lengths = block["input_mask"].sum(axis=1)
            for first in range(0, len(all_lengths), self._batch_size):
                rows = slice(first, first + self._batch_size)
                lengths = all_lengths[rows]
                outputs = self._model(
                    {
                        name: np.asarray(block[name][rows, : lengths.max()], np.int32)
                        for name in ("input_ids", "input_mask", "segment_ids")
                    },
                    training=False,
                )
                for scores, name in ((starts, "start_logits"), (ends, "end_logits")):
                    values = np.asarray(outputs[name])
                    scores += [
                        row[:length]
                        for row, length in zip(values, lengths, strict=True)
                    ]
        return starts, ends


# The runs on SQuAD: questions in, answers out.


FIRST_STAGE = "first_stage"


@dataclasses.dataclass(eq=False)
class Questions:
    """The questions to train on and to answer, and the meaning of their outputs."""

    options: SquadOptions
    found: ModelFiles
    training: CheckedQuestions | None
    scored: CheckedQuestions | None

    def __post_init__(self) -> None:
        # Refuses its lengths now rather than after training.
        self._featurizer(for_training=False)

    def data(self) -> RunData:
        """The training set."""
        source = self._require(self.training)
        return RunData(
            f"{source.num_questions} questions of {source.source}",
            rows_digest([source.identity]),
        )

    @property
    def num_training_questions(self) -> int:
        """How many there are to train on."""
        return self._require(self.training).num_questions

    def identity(self, split: str) -> str:
        """A digest of a split's questions, and of how they are read."""
        source = self._require(self.training if split == "train" else self.scored)
        featurizer = self._featurizer(for_training=split == "train")
        return rows_digest([{**featurizer.settings, "questions": source.identity}])

    def _require(self, source: CheckedQuestions | None) -> CheckedQuestions:
        if source is None:
            raise InputError("Give `predict_file`: the runs are compared by it.")
        return source

    def answers(self, outputs: Outputs) -> Iterator[tuple[QuestionFeatures, Decoded]]:
        """Predicts and decodes the questions, in their order, as a stream."""
        source, options = self._require(self.scored), self.options
        settings = DecodingSettings(
            n_best_size=options.n_best_size,
            max_answer_length=options.max_answer_length,
            version_2_with_negative=options.version_2_with_negative,
            do_lower_case=self.found.do_lower_case,
            answer_text=options.answer_text,
            verbose_logging=options.verbose_logging,
        )
        decoder = Decoder(self.found.tokenizer, settings)
        for result in question_logits(
            self._featurizer(for_training=False)(source),
            outputs,
            batch_size=options.predict_batch_size,
            max_seq_length=options.max_seq_length,
            max_lengths=options.max_lengths,
            num_questions=source.num_questions,
        ):
            yield result.features, decoder(*result)

    def predict(self, split: str, outputs: Outputs) -> Answers:
        """The answers to the questions, without their files."""
        del split
        answers = Answers(version_2_with_negative=self.options.version_2_with_negative)
        for features, decoded in self.answers(outputs):
            answers.add(features.question.question_id, decoded)
        return answers

    def score(self, split: str, answers: Answers) -> dict[str, float]:
        """The answers' scores, by --null_score_diff_threshold."""
        del split
        golds = golds_of(self._require(self.scored))
        return answers.scores(golds, self.options.null_score_diff_threshold)

    def _featurizer(self, *, for_training: bool) -> QuestionFeaturizer:
        return QuestionFeaturizer(
            self.found.tokenizer,
            max_seq_length=self.options.max_seq_length,
            doc_stride=self.options.doc_stride,
            max_query_length=self.options.max_query_length,
            for_training=for_training,
        )

    @functools.cached_property
    def records(self) -> SplitRecords:
        """The windows to train on, made once."""
        source = self._require(self.training)
        featurizer = self._featurizer(for_training=True)
        length = self.options.max_seq_length
        found = parallel_blocks(
            source,
            featurizer,
            num_workers=self.options.num_workers or available_cores(),
        )
        first = next(found, None)
        if first is None:
            raise InputError(
                f"{source.source}: no paragraph has a token, so that there is"
                " nothing to train on."
            )
        records = SplitRecords.of(
            schema(length, for_training=True),
            {**featurizer.settings, "questions": source.identity},
            itertools.chain([first], found),
        )
        logging.info(
            "%d questions have %d windows.", source.num_questions, records.num_records
        )
        return records


def squad_task(questions: Questions) -> FineTuningTask[Answers]:
    """The task of finding answers."""
    options, found = questions.options, questions.found
    built = model_options(
        options, opened_adapter(options, found.config), has_pooler=False
    )
    metric = best_metric(options.version_2_with_negative, options.best_metric)
    return FineTuningTask.of(
        task(found.config, recompute=options.recompute, **built),
        head=names.SPAN,
        trains_task="squad",
        records=lambda: questions.records,
        num_examples=lambda: questions.num_training_questions,
        data=questions.data,
        predict=questions.predict,
        score=questions.score,
        write=lambda *arguments: None,  # `predict` below writes while it answers
        identity=questions.identity,
        dev_splits=("dev",),
        test_splits=("dev",),
        metrics=(metric,),
        metric=metric,
    )


def read_questions(options: SquadOptions, found: ModelFiles) -> Questions:
    """The options' questions, read once and checked."""
    # A metric that does not exist is reported before the files are read.
    best_metric(options.version_2_with_negative, options.best_metric)
    training, scored = None, None
    if options.do_train:
        training = questions_of(options, for_training=True)
    if options.do_predict or options.looks_at_dev:
        if not (options.predict_file or options.tfds_name):
            raise InputError("Give `predict_file`: the runs are compared by it.")
        scored = questions_of(options, for_training=False)
        wants = {
            "find_null_threshold": options.find_null_threshold,
            "eval_steps": options.do_train and options.eval_steps,
            "learning_rates": options.selects,
        }
        for name, is_wanted in wants.items():
            if is_wanted and not scored.have_answers:
                raise InputError(
                    f"`{name}` needs a development set; {scored.source} has"
                    " questions without an answer."
                )
    if training is not None and options.max_lengths is None:
        # Now rather than after a first stage.
        for settings in options.settings:
            finetuning.steps_of(
                training.num_questions / settings.train_batch_size,
                settings.num_train_epochs,
                is_whole=False,
                flag="num_train_epochs",
            )
    return Questions(options, found, training, scored)


def main(options: SquadOptions) -> None:
    """A command: trains, first on other questions if requested, then answers."""
    kept: list[Questions] = []
    first = None
    if options.first_train_file:
        first = read_file(
            options.first_train_file,
            version_2_with_negative=options.version_2_with_negative,
            for_training=True,
        )

    def make_task(
        options: SquadOptions, found: ModelFiles, strategy: tf.distribute.Strategy
    ) -> FineTuningTask[Answers]:
        kept.append(read_questions(options, found))
        return squad_task(kept[0])

    def first_stage(run: FineTuning) -> str | None:
        # Once the second stage has begun, nothing starts from the first one's result.
        if first is None or candidates(options.output_dir):
            return None
        folder = os.path.join(options.output_dir, FIRST_STAGE)
        own: Any = dataclasses.replace(
            run.options,
            output_dir=folder,
            num_train_epochs=(options.first_num_train_epochs,),
            learning_rates=None,
            train_batch_sizes=None,
            num_restarts=1,
            eval_steps=0,
        )
        logging.info("***** First stage: %s *****", options.first_train_file)
        questions = Questions(own, run.found, first, None)
        stage = FineTuning(squad_task(questions), own, run.found, run.strategy)
        stage.fine_tune(folder, epochs_flag="first_num_train_epochs")
        return folder

    def finish(run: FineTuning, model: keras.Model, step: int) -> None:
        if options.do_predict:
            predict(run, kept[0], model, step)

    finetuning.main(make_task, options, first_stage=first_stage, finish=finish)


def predict(
    run: FineTuning, questions: Questions, model: keras.Model, step: int
) -> None:
    """Answers questions, writes the answers, and scores them if they are known."""
    options: Any = run.options
    source, folder = questions.scored, options.output_dir
    version_2 = options.version_2_with_negative
    assert source is not None
    logging.info("***** Running predictions *****")
    logging.info("  Num questions = %d", source.num_questions)
    golds = golds_of(source)
    # Each of several workers processes all questions, and one writes.
    alone = nullcontext(Answers(version_2_with_negative=version_2))
    with PredictionFiles(folder, version_2) if run.is_chief else alone as answers:
        for features, decoded in questions.answers(run.outputs(model)):
            answers.add(features.question.question_id, decoded)
        threshold = _threshold(run, answers, golds, step) if version_2 else 0.0
        if isinstance(answers, PredictionFiles):
            answers.finish(threshold)
    if not source.have_answers:
        logging.warning("No scores: there are questions without a known answer.")
        return
    if source.skipped:
        logging.warning(
            "The scores are of the %d questions that could be used; the"
            " official script, and bert_tf.evaluate_squad, count all %d.",
            *(source.num_questions, source.num_questions + source.skipped.total()),
        )
    run_folder.report_evaluation(
        folder,
        step,
        answers.scores(golds, threshold),
        is_chief=run.is_chief,
        task_name=run.task.name,
    )


def _threshold(run: FineTuning, answers: Answers, golds: Golds, step: int) -> float:
    """The null score difference above which there is no answer."""
    options: Any = run.options
    folder, source = options.output_dir, run.found.source
    folders, checkpoint = [folder], prefix_of(folder, step)
    if not step and source is not None:
        # An untrained model uses the threshold next to its checkpoint.
        folders.append(source.folder)
        checkpoint = source.checkpoint
    if options.find_null_threshold and run.is_chief:
        null_threshold.find(
            folder,
            golds,
            answers.best_texts,
            answers.null_odds,
            predict_file=options.predict_file or options.tfds_name or "",
            checkpoint=checkpoint,
            plots=options.plots,
        )
    return null_threshold.given_or_found(
        options.given("null_score_diff_threshold"),
        folders,
        options.null_score_diff_threshold,
        checkpoint=checkpoint,
    )
