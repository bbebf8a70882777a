"""Scores of tokens into answers, as the original's write_predictions.

1. `candidates` ranks the spans that may be answers. In SQuAD 2.0 "no answer" is one
   more of them.
2. Each gets its text. Of those with the same text the first is kept; the first
   n_best_size are the n best. "No answer" is appended where it is not among them.
3. Their probabilities are the softmax of their sums of scores.
4. SQuAD 2.0: "no answer" is predicted if its score is higher than the best span's by
   more than a threshold.

All sums are in float64 and in the original's order, so that the files are the
original's to the last digit.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.squad.candidates import Candidate, null_candidate, ranked
from bert_tf.squad.features import QuestionFeatures
from bert_tf.squad.final_text import align
from bert_tf.text.normalization import Span
from bert_tf.text.wordpiece import WordPieceTokenizer, joined

# How an answer's tokens become text: aligned with their words, as the original does it,
# or cut from the paragraph by their places there.
ALIGNMENT = "alignment"
OFFSETS = "offsets"

# Where there is no span at all: what the original begins its search of the lowest score
# of "no answer" with. It is over any threshold.
NO_SPAN_SCORE_DIFF = 1_000_000.0

# SQuAD 1.1's answer where there is no span at all: the original's.
NO_SPAN_TEXT = "empty"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DecodingSettings:
    """How answers are chosen.

    Attributes:
        n_best_size: starts and ends of a window that are paired; answers that are kept.
        max_answer_length: an answer's tokens at most.
        version_2_with_negative: whether "no answer" is one of the answers (SQuAD 2.0).
        do_lower_case: whether tokens are lowered and without accents.
        answer_text: ALIGNMENT or OFFSETS.
        verbose_logging: log each alignment that failed.
    """

    n_best_size: int = 20
    max_answer_length: int = 30
    version_2_with_negative: bool = False
    do_lower_case: bool = True
    answer_text: str = ALIGNMENT
    verbose_logging: bool = False

    def __post_init__(self):
        for name in ("n_best_size", "max_answer_length"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1. Received: {getattr(self, name)}"
                )
        if self.answer_text not in (ALIGNMENT, OFFSETS):
            raise ValueError(
                f"`answer_text` must be {ALIGNMENT!r} or {OFFSETS!r}."
                f" Received: {self.answer_text!r}"
            )


class NBestEntry(NamedTuple):
    """One of the n best answers.

    Attributes:
        text: the answer; "" for "no answer".
        probability: among the n best.
        start_logit: its first token's score.
        end_logit: its last token's score.
        span: its characters in the paragraph, half open; None for "no answer".
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float
    span: Span | None


class Decoded(NamedTuple):
    """A question's answers.

    Attributes:
        n_best: the best ones, the best first; "no answer" (2.0) is always among them.
        best_text: the best one but "no answer". Where there is no span at all "" (2.0)
            or NO_SPAN_TEXT (1.1).
        score_diff: the score of "no answer" less that of `best_text`, or
            NO_SPAN_SCORE_DIFF; None for SQuAD 1.1.
    """

    n_best: list[NBestEntry]
    best_text: str
    score_diff: float | None


class Decoder:
    """Chooses answers."""

    def __init__(self, tokenizer: WordPieceTokenizer, settings: DecodingSettings):
        """Keeps what it takes."""
        self._vocabulary = tokenizer.vocabulary.tokens
        self._settings = settings

    def __call__(
        self,
        features: QuestionFeatures,
        start_logits: Sequence[np.ndarray],
        end_logits: Sequence[np.ndarray],
    ) -> Decoded:
        """Chooses a question's answers."""
        settings = self._settings
        starts = [np.asarray(logits, np.float64) for logits in start_logits]
        ends = [np.asarray(logits, np.float64) for logits in end_logits]
        null = (
            null_candidate(starts, ends) if settings.version_2_with_negative else None
        )
        chosen: dict[str, tuple[Candidate, Span | None]] = {}
        for candidate in ranked(
            features,
            starts,
            ends,
            null,
            count=settings.n_best_size,
            max_answer_length=settings.max_answer_length,
        ):
            text, span = self._text(features, candidate)
            chosen.setdefault(text, (candidate, span))
            if len(chosen) == settings.n_best_size:
                break
        if null is not None:
            chosen.setdefault("", (null, None))
        elif not chosen:
            chosen[NO_SPAN_TEXT] = Candidate(None, 0.0, 0.0), None
        # A span is among even one n best, if there is any: its scores are higher than
        # those of its window's [CLS].
        best_text = next((text for text in chosen if text), "")
        score_diff = None
        if null is not None:
            score_diff = NO_SPAN_SCORE_DIFF
            if best_text:
                best, _ = chosen[best_text]
                score_diff = null.score - best.start_logit - best.end_logit
        return Decoded(_with_probabilities(chosen), best_text, score_diff)

    def _text(
        self, features: QuestionFeatures, candidate: Candidate
    ) -> tuple[str, Span | None]:
        """What a candidate says, and where that stands in the paragraph."""
        if candidate.tokens is None:
            return "", None
        paragraph = features.paragraph
        first, last = candidate.tokens
        if self._settings.answer_text == OFFSETS:
            start, end = paragraph.offsets[first][0], paragraph.offsets[last][1]
            return paragraph.context[start:end], (start, end)
        words = paragraph.words[
            paragraph.word_of_token[first] : paragraph.word_of_token[last] + 1
        ]
        text = " ".join([paragraph.context[start:end] for start, end in words])
        ids = paragraph.ids[first : last + 1]
        token_text = joined([self._vocabulary[token_id] for token_id in ids])
        alignment = align(token_text, text, self._settings.do_lower_case)
        if alignment.failure and self._settings.verbose_logging:
            logging.info(
                "Question %s: answer %r becomes all of %r: %s.",
                features.question.question_id,
                token_text,
                text,
                alignment.failure,
            )
        start = _place(words, alignment.start)
        end = _place(words, alignment.end - 1) + 1
        return text[alignment.start : alignment.end], (start, end)


def answer(decoded: Decoded, settings: DecodingSettings, threshold: float) -> str:
    """What is predicted."""
    score_diff = decoded.score_diff if settings.version_2_with_negative else None
    return text_or_null(decoded.best_text, score_diff, threshold)


def text_or_null(best_text: str, score_diff: float | None, threshold: float) -> str:
    """The best span's text, or "" where "no answer" is better by over the threshold."""
    if score_diff is not None and score_diff > threshold:
        return ""
    return best_text


def _with_probabilities(
    chosen: dict[str, tuple[Candidate, Span | None]],
) -> list[NBestEntry]:
    scores = [candidate.score for candidate, _ in chosen.values()]
    highest = max(scores)
    # Not by numpy, nor by Python's sum since 3.12: the last digit would be another.
    exponentials = [math.exp(score - highest) for score in scores]
    total = 0.0
    for exponential in exponentials:
        total += exponential
    return [
        NBestEntry(text, exponential / total, start_logit, end_logit, span)
        for (text, ((_, start_logit, end_logit), span)), exponential in zip(
            chosen.items(), exponentials, strict=True
        )
    ]


def _place(words: Sequence[Span], place: int) -> int:
    """Where a character of the words, joined with spaces, stands in the paragraph."""
    for start, end in words:
        if place < end - start:
            break
        place -= end - start + 1
    return start + place
