"""Answering questions by a span of a paragraph."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertSpanPredictor
from bert_tf.modeling.objectives import SPAN
from bert_tf.parallel import available_cores, grouped
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
from bert_tf.tasks.finetuning import FineTuning, FineTuningTask
from bert_tf.tasks.squad import null_threshold, reading
from bert_tf.tasks.squad.decoding import (
    OFFSETS,
    Decoder,
    NBestEntry,
    text_or_null,
)
from bert_tf.tasks.squad.scoring import (
    Answers,
    Golds,
    golds_of,
    metric_names,
    prediction_files,
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
from bert_tf.training.evaluation import Predictor
from bert_tf.training.run_folder import RunData

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
        model: BertSpanPredictor,
        tokenizer: WordPieceTokenizer,
        *,
        max_seq_length: int = 384,
        doc_stride: int = 128,
        max_query_length: int = 64,
        null_score_diff_threshold: float = 0.0,
        batch_size: int = 8,
        **decoding: Any,  # see `Decoder`
    ) -> None:
        model.bert_config.check_sequence_length(max_seq_length)
        self._predict = Predictor("questions", model, by_pieces=False).run
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
        """Answers questions, one after the other."""
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
            (found,) = question_logits(
                [features],
                self._predict,
                Batching(
                    batch_size=min(self._batch_size, len(features.windows)),
                    max_seq_length=self._max_seq_length,
                    max_lengths=1,
                ),
                num_questions=1,
            )
            decoded = self._decoder(*found)
            said = text_or_null(decoded.best_text, decoded.score_diff, self._threshold)
            # The prediction first.
            yield sorted(decoded.n_best, key=lambda entry: entry.text != said)


# The runs on SQuAD: questions in, answers out.


FIRST_STAGE = "first_stage"


@dataclasses.dataclass(eq=False)
class Questions:
    """The questions to train on and to answer, and the meaning of their outputs."""

    options: SquadOptions
    found: ModelFiles
    splits: Mapping[str, reading.CheckedQuestions]  # "train", and "dev" to answer

    def __post_init__(self) -> None:
        # Refuses its lengths now rather than after training.
        self._featurizer("dev")

    def data(self) -> RunData:
        """The training set."""
        train = self.splits["train"]
        described = f"{train.num_questions} questions of {train.source}"
        return RunData(described, rows_digest([train.identity]))

    def identity(self, split: str) -> str:
        """A digest of a split's questions, and of how they are read."""
        return rows_digest([self._made_from(split)])

    def _made_from(self, split: str) -> dict[str, Any]:
        settings = self._featurizer(split).settings
        return {**settings, "questions": self.splits[split].identity}

    def answer(self, outputs: Predict, answers: Answers) -> None:
        """Predicts and decodes the questions, in their order, as a stream."""
        source, options = self.splits["dev"], self.options
        decoder = options.as_kind(Decoder, tokenizer=self.found.tokenizer)
        for result in question_logits(
            self._featurizer("dev")(source),
            outputs,
            options.as_kind(Batching, batch_size=options.predict_batch_size),
            source.num_questions,
        ):
            answers.add(result[0].question.question_id, decoder(*result))

    def predict(self, split: str, outputs: Predict) -> Answers:
        """The answers to the questions, without their files."""
        answers = Answers(
            version_2_with_negative=self.options.version_2_with_negative,
            threshold=self.options.null_score_diff_threshold,
        )
        self.answer(outputs, answers)
        return answers

    def score(self, split: str, answers: Answers) -> dict[str, float]:
        """The answers' scores."""
        return answers.scores(golds_of(self.splits[split]))

    def _featurizer(self, split: str) -> QuestionFeaturizer:
        return self.options.as_kind(
            QuestionFeaturizer,
            tokenizer=self.found.tokenizer,
            for_training=split == "train",
        )

    @functools.cached_property
    def records(self) -> ExampleTable:
        """The windows to train on, made once."""
        train, length = self.splits["train"], self.options.max_seq_length
        num_workers = self.options.num_workers or available_cores()
        found = parallel_blocks(
            train, self._featurizer("train"), num_workers=num_workers
        )
        first = next(found, None)
        if first is None:
            raise InputError(
                f"{train.source}: no paragraph has a token, so that there is"
                " nothing to train on."
            )
        records = ExampleTable(
            itertools.chain([first], found),
            RecordSpec.spans(length, for_training=True),
            self._made_from("train"),
        )
        logging.info("%d questions have %d windows.", train.num_questions, len(records))
        return records


def _task_of(questions: Questions) -> FineTuningTask[Answers]:
    options, found = questions.options, questions.found
    built = finetuning.model_options(options, found.config, has_pooler=False)
    metrics = metric_names(options.version_2_with_negative)
    return FineTuningTask(
        name="squad",
        build_model=lambda: BertSpanPredictor(found.config, **built),
        objective=SPAN,
        head=names.SPAN,
        trains_task="squad",
        records=lambda: questions.records,
        num_examples=lambda: questions.splits["train"].num_questions,
        data=questions.data,
        predict=questions.predict,
        score=questions.score,
        write=lambda *arguments: None,  # `predict` below writes while it answers
        identity=questions.identity,
        dev_splits=("dev",),
        test_splits=("dev",),
        metrics=metrics,
        metric=metrics[-1],
    )


def read_questions(options: SquadOptions, found: ModelFiles) -> Questions:
    """The options' questions, read once and checked."""
    splits = {}
    if options.do_train:
        splits["train"] = train = reading.questions_of(options, for_training=True)
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
    return Questions(options, found, splits)


def squad_task(
    options: SquadOptions, found: ModelFiles, strategy: tf.distribute.Strategy
) -> FineTuningTask[Answers]:
    """The task of finding answers, trained first on other questions if requested."""
    first = None
    if options.first_train_file:
        first = reading.read_file(
            options.first_train_file,
            version_2_with_negative=options.version_2_with_negative,
            for_training=True,
            evidence_dir=options.evidence_dir,
            max_unusable_rows=options.max_unusable_rows,
        )
    questions = read_questions(options, found)

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
            patience=0,
        )
        logging.info("***** First stage: %s *****", options.first_train_file)
        task = _task_of(Questions(own, found, {"train": first}))
        stage = FineTuning(task, own, found, strategy)
        stage.fine_tune(folder, epochs_flag="first_num_train_epochs")
        return folder

    def finish(run: FineTuning, model: keras.Model, step: int) -> None:
        if options.do_predict:
            predict(run, questions, model, step)

    task = _task_of(questions)
    return dataclasses.replace(task, first_stage=first_stage, finish=finish)


def predict(
    run: FineTuning, questions: Questions, model: keras.Model, step: int
) -> None:
    """Answers questions, writes the answers, and scores them if they are known."""
    options: Any = run.options
    source, folder = questions.splits["dev"], options.output_dir
    version_2 = options.version_2_with_negative
    logging.info("***** Running predictions *****")
    logging.info("  Num questions = %d", source.num_questions)
    golds = golds_of(source)
    # Each of several workers processes all questions, and one writes.
    alone = nullcontext(Answers(version_2_with_negative=version_2))
    with prediction_files(folder, version_2) if run.is_chief else alone as answers:
        questions.answer(run.outputs(model), answers)
        if version_2:
            answers.threshold = _threshold(run, answers, golds, step)
    if not source.have_answers:
        logging.warning("No scores: there are questions without a known answer.")
        return
    if source.num_skipped:
        logging.warning(
            "The scores leave out the %d questions that could not be used; the"
            " official script, and bert_tf.evaluate_squad, count them.",
            source.num_skipped,
        )
    run_folder.report_evaluation(
        folder,
        step,
        answers.scores(golds),
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
    given = options.given("null_score_diff_threshold")
    if given is not None:
        return given
    for each in folders:
        if (found := null_threshold.read(each, checkpoint)) is not None:
            path = null_threshold.path_in(each)
            logging.info("`null_score_diff_threshold=%s`, from %s.", found, path)
            return found
    return options.null_score_diff_threshold
