"""Answering questions by a span of a paragraph."""

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.config import BertConfig
from bert_tf.conversion import names
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
from bert_tf.tasks.finetuning import TaskSession, finetune, steps_of
from bert_tf.tasks.squad import decoding, null_threshold, windows
from bert_tf.tasks.squad.decoding import Decoded, Decoder, DecodingSettings, NBestEntry
from bert_tf.tasks.squad.reading import CheckedQuestions, Paragraph, Question
from bert_tf.tasks.squad.scoring import Answers, PredictionFiles, best_metric
from bert_tf.tasks.squad.squad_options import SquadOptions
from bert_tf.tasks.squad.windows import (
    CutQuestions,
    Featurizer,
    QuestionFeatures,
    blocks,
    parallel_blocks,
)
from bert_tf.text.normalization import Span
from bert_tf.text.wordpiece import WordPieceTokenizer
from bert_tf.training import run_folder
from bert_tf.training.checkpoint_files import candidates, prefix_of
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import num_workers
from bert_tf.training.task import Task
from bert_tf.training.throughput import span_flops

# SQuAD as a task: where in a window of a paragraph the answer starts and ends.
#
# Devlin et al. 2018, sections 4.2 and 4.3: [CLS] question [SEP] window [SEP]; of
# every
# token a score for the answer's start and one for its end. Where there is no answer,
# both
# are at [CLS]. The windows and their records are made in `bert_tf.squad`.


__all__ = ["CutQuestions", "blocks", "parallel_blocks", "schema", "task"]


def task(
    config: BertConfig, *, name: str = "squad", recompute: bool = False, **options: Any
) -> Task:
    """The task of finding answers."""
    return Task(
        name=name,
        build_model=lambda: BertSpanPredictor(config, recompute=recompute, **options),
        objective=SPAN,
        training_flops=functools.partial(span_flops, config),
    )


def schema(max_seq_length: int, *, for_training: bool) -> RecordSpec:
    """What a record holds; for training, where the answer is, too."""
    return RecordSpec.spans(max_seq_length, for_training)


# Questions into logits, as a stream: memory does not grow with their number.
#
# Questions are taken in groups of some thousand windows. A group's windows are put
# into
# batches of like length, and its questions are handed on, in their order, when the
# last
# of them has come back. The static lengths are chosen from the first group, so that
# the
# others need no new compilation.
#
# Shapes: R windows of a group, B batch, S a batch's length.


Arrays = Mapping[str, np.ndarray]
# (batches, about how many) -> (batch, outputs), batch by batch.
Predict = Callable[["WindowBatches", int], Iterator[tuple[Arrays, Arrays]]]

WINDOWS_AT_ONCE = 4096


class QuestionLogits(NamedTuple):
    """A question and its windows' logits.

    Attributes:
        features: the question and its windows.
        start_logits: of each window, float32 [S], or no more than its record's tokens.
        end_logits: likewise.
    """

    features: QuestionFeatures
    start_logits: list[np.ndarray]
    end_logits: list[np.ndarray]


class _Group:
    """Questions that are predicted together, some of them perhaps without a window."""

    def __init__(
        self, questions: list[QuestionFeatures], batches: EvaluationBatches | None
    ) -> None:
        self.questions = questions
        self.batches = batches
        self._missing = sum(len(question.windows) for question in questions)
        self._start: list[np.ndarray] = [np.empty(0)] * self._missing
        self._end: list[np.ndarray] = [np.empty(0)] * self._missing

    @property
    def is_complete(self) -> bool:
        """Whether all windows' logits are there."""
        return not self._missing

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
            self._missing -= 1

    def results(self) -> Iterator[QuestionLogits]:
        """The questions, in their order."""
        first = 0
        for question in self.questions:
            last = first + len(question.windows)
            yield QuestionLogits(
                question, self._start[first:last], self._end[first:last]
            )
            first = last


class WindowBatches:
    """The batches of all windows, group after group: what a `Predictor` runs over.

    Attributes:
        element_spec: of all batches.
        group: the one that the last batch was of.
    """

    def __init__(self, first: _Group, groups: Iterator[_Group]) -> None:
        """Takes the groups."""
        assert first.batches is not None
        self.element_spec = first.batches.element_spec
        self.group = first
        self._groups = groups

    def __iter__(self) -> Iterator[Arrays]:
        """The batches; to be gone through once."""
        for group in itertools.chain([self.group], self._groups):
            self.group = group
            yield from group.batches or ()


def question_logits(
    features: Iterable[QuestionFeatures],
    predict: Predict,
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
        if group.is_complete:
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
        yield _Group(
            questions,
            EvaluationBatches(table, plan.rows, np.array(buckets)[plan.buckets]),
        )


def _next_questions(features: Iterator[QuestionFeatures]) -> list[QuestionFeatures]:
    """Questions of `WINDOWS_AT_ONCE` windows together, or a few more; the rest."""
    questions: list[QuestionFeatures] = []
    windows = 0
    while windows < WINDOWS_AT_ONCE and (question := next(features, None)) is not None:
        questions.append(question)
        windows += len(question.windows)
    return questions


# Answers to questions about a text of one's own: what `bert_tf.answer` prints.
#
# The text is one paragraph of SQuAD, however long: it is read in windows, and an
# answer
# is cut from it by the places of its tokens (`--answer_text=offsets`).
#
# Shapes: W windows of a batch, S tokens of the longest of them.


class Answerer:
    """Answers questions with a model of SQuAD."""

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
        longest = model.bert_config.max_position_embeddings
        if max_seq_length > longest:
            raise InputError(
                f"`max_seq_length` must not exceed the model's {longest} positions."
                f" Received: {max_seq_length}"
            )
        self._model = model
        self._max_seq_length, self._batch_size = max_seq_length, batch_size
        self._featurizer = Featurizer(
            tokenizer,
            max_seq_length=max_seq_length,
            doc_stride=doc_stride,
            max_query_length=max_query_length,
            for_training=False,
        )
        self._settings = DecodingSettings(
            n_best_size=n_best_size,
            max_answer_length=max_answer_length,
            version_2_with_negative=version_2_with_negative,
            do_lower_case=tokenizer.do_lower_case,
            answer_text=decoding.OFFSETS,
        )
        self._threshold = null_score_diff_threshold
        self._decoder = Decoder(tokenizer, self._settings)

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
            starts, ends = self._logits(features)
            decoded = self._decoder(features, starts, ends)
            said = decoding.answer(decoded, self._settings, self._threshold)
            first = next(
                (entry for entry in decoded.n_best if entry.text == said),
                decoded.n_best[0],
            )
            yield [first, *(entry for entry in decoded.n_best if entry is not first)]

    def _logits(
        self, features: QuestionFeatures
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Scores of each window's tokens to be an answer's first, and its last."""
        starts: list[np.ndarray] = []
        ends: list[np.ndarray] = []
        for block in windows.blocks([features], self._max_seq_length):
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
                    values = np.asarray(outputs[name])  # [W, S]
                    scores += [
                        row[:length]
                        for row, length in zip(values, lengths, strict=True)
                    ]
        return starts, ends


def sentence_round(
    context: str, span: Span, split: Callable[[str], Sequence[str]]
) -> Span:
    """Where the sentence stands that an answer is in; or all that it is in."""
    start, end = span
    # A line that the answer begins or ends in is whole in this.
    first = context.rfind("\n", 0, start) + 1
    last = context.find("\n", end)
    last = len(context) if last < 0 else last
    sentence_start, sentence_end = start, end
    place = first
    for line in context[first:last].split("\n"):
        line_end = place + len(line)
        for sentence in split(line):
            # Between sentences nothing is lost but white space.
            while context[place].isspace():
                place += 1
            if place <= start < place + len(sentence):
                sentence_start = place
            if place < end <= place + len(sentence):
                sentence_end = place + len(sentence)
            place += len(sentence)
        place = line_end + 1
    return sentence_start, sentence_end


# The runs on SQuAD: questions in, answers out.


RECORDS_NAME = "train.tf_record"
FIRST_STAGE = "first_stage"


class SquadSession(TaskSession[SquadOptions]):
    """The runs on SQuAD, or on any questions in its format."""

    head = names.SPAN

    def __init__(
        self,
        options: SquadOptions,
        strategy: tf.distribute.Strategy,
        *,
        output_dir: str,
    ) -> None:
        super().__init__(options, strategy, output_dir=output_dir)
        self._version_2 = options.version_2_with_negative
        self.task = task(self.config, recompute=options.recompute)
        self._decoder = Decoder(
            self.tokenizer,
            DecodingSettings(
                n_best_size=options.n_best_size,
                max_answer_length=options.max_answer_length,
                version_2_with_negative=self._version_2,
                do_lower_case=self.tokenizer.do_lower_case,
                answer_text=options.answer_text,
                verbose_logging=options.verbose_logging,
            ),
        )
        # Now rather than after training.
        self._best_metric = best_metric(self._version_2, options.best_metric)
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
            self._options,
            self.strategy,
            folder=folder,
            data=data,
            num_train_epochs=num_train_epochs,
            max_lengths=self.max_lengths,
            num_examples=records.notes["num_questions"],
            epochs_flag=epochs_flag,
            init_checkpoint=init_checkpoint,
            evaluate=functools.partial(self.scores, questions=scored)
            if scored is not None and self._options.eval_steps
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
                training.num_questions / self._options.train_batch_size,
                self._options.num_train_epochs,
                is_whole=False,
                flag="num_train_epochs",
            )
        # Where the second stage has begun, nothing starts from the first one's end.
        if first is not None and not candidates(self._options.output_dir):
            init_checkpoint = os.path.join(self._options.output_dir, FIRST_STAGE)
            logging.info("***** First stage: %s *****", self._options.first_train_file)
            self.fine_tune(
                init_checkpoint,
                first,
                num_train_epochs=self._options.first_num_train_epochs,
                epochs_flag="first_num_train_epochs",
            )
        return self.fine_tune(
            self._options.output_dir,
            training,
            num_train_epochs=self._options.num_train_epochs,
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
            batch_size=self._options.predict_batch_size,
            max_seq_length=self._options.max_seq_length,
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
        return answers.scores(self._options.null_score_diff_threshold)

    def predict(
        self, model: keras.Model, step: int, questions: CheckedQuestions
    ) -> None:
        """Answers questions, and scores the answers where they are known."""
        folder = self._options.output_dir
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
        folder = self._options.output_dir
        folders, checkpoint = [folder], prefix_of(folder, step)
        if not step and self.source is not None:
            # As it came, it keeps what was found where it came from.
            folders.append(self.source.folder)
            checkpoint = self.source.checkpoint
        if self._options.find_null_threshold and self.is_chief:
            null_threshold.find(
                folder,
                answers.golds,
                answers.best_texts,
                answers.null_odds,
                predict_file=self._options.predict_file
                or self._options.tfds_name
                or "",
                checkpoint=checkpoint,
                plots=self._options.plots,
            )
        given = self._options.given("null_score_diff_threshold")
        return null_threshold.given_or_found(
            given,
            folders,
            self._options.null_score_diff_threshold,
            checkpoint=checkpoint,
        )

    def _featurizer(self, *, for_training: bool) -> Featurizer:
        return Featurizer(
            self.tokenizer,
            max_seq_length=self._options.max_seq_length,
            doc_stride=self._options.doc_stride,
            max_query_length=self._options.max_query_length,
            for_training=for_training,
        )

    def _records(self, folder: str, source: CheckedQuestions) -> SplitRecords:
        """The windows to train on, made once."""
        featurizer = self._featurizer(for_training=True)
        length = self._options.max_seq_length
        is_alone = num_workers(self.strategy) == 1
        cut = CutQuestions()
        records = SplitRecords.prepare(
            os.path.join(folder, RECORDS_NAME),
            schema(length, for_training=True),
            {**featurizer.settings, "questions": source.identity},
            parallel_blocks(
                source,
                featurizer,
                num_workers=self._options.num_workers or available_cores(),
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
                self._options.max_query_length,
            )
