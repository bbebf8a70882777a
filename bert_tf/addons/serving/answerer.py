"""Answers to questions about any text."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.base.errors import InputError
from bert_tf.records.batching import Batching, Predict
from bert_tf.tasks.squad import reading
from bert_tf.tasks.squad.decoding import OFFSETS, Decoder, NBestEntry, text_or_null
from bert_tf.tasks.squad.window_logits import QuestionLogits, question_logits
from bert_tf.tasks.squad.windows import QuestionFeatures, QuestionFeaturizer
from bert_tf.text.wordpiece import WordPieceTokenizer


class Answerer:
    """Answers questions about any text, as one paragraph, with a SQuAD model."""

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
        model.bert_config.check_sequences(max_seq_length, num_segments=2)
        if predict is None:
            from bert_tf.training.evaluation import Predictor
            from bert_tf.training.step import on_devices
            from bert_tf.training.strategy import create_strategy

            step = on_devices().prediction_step(
                model, create_strategy(), by_pieces=False
            )
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
        """Answers questions about a text."""
        return map(self.answers, self.features(questions, context))

    def features(
        self, questions: Sequence[str], context: str
    ) -> Iterator[QuestionFeatures]:
        """Returns the windows of each question."""
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
        """Answers each about its own text, in shared batches; [] without a word."""
        asked = [
            reading.Question(question_id=str(number), text=question, context=context)
            for number, (question, context) in enumerate(
                zip(questions, contexts, strict=True)
            )
        ]
        features = list(self._featurizer(asked))
        for logits in self._all_logits(features, Batching.num_lengths):
            yield self._decoded(logits) if logits[1] else []

    def answers(self, features: QuestionFeatures) -> list[NBestEntry]:
        """Returns a question's answers, the prediction first."""
        return self._decoded(self._logits(features))

    def _decoded(self, logits: QuestionLogits) -> list[NBestEntry]:
        decoded = self._decoder(*logits)
        said = text_or_null(decoded.best_text, decoded.score_diff, self._threshold)
        return sorted(decoded.n_best, key=lambda entry: entry.text != said)

    def place(
        self, features: QuestionFeatures, answer: NBestEntry
    ) -> tuple[int, int, int]:
        """Returns the number of an answer's window, and its first and last token."""
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
        (found,) = self._all_logits([features], num_lengths=1)
        return found

    def _all_logits(
        self, features: Sequence[QuestionFeatures], num_lengths: int | None
    ) -> Iterator[QuestionLogits]:
        """Yields their logits, in batches of no more rows than there are windows."""
        num_windows = sum(len(one.windows) for one in features)
        batching = Batching(
            batch_size=min(self._batch_size, num_windows),
            max_seq_length=self._max_seq_length,
            num_lengths=num_lengths,
        )
        return question_logits(features, self._predict, batching, len(features))
