"""From scores of tokens to answers: the original's write_predictions.

1. Candidates. In each window the n_best_size tokens with the highest start scores and
   those with the highest end scores are paired. A pair is a candidate if both tokens
   are the paragraph's, the first one has its most context in this window, and they are
   1 to max_answer_length tokens. Padding, [CLS] and the question are among the highest
   scores and are dropped afterwards. Candidates are ranked by the sum of their two
   scores; ties go to the earlier window, then to the higher start, then to the higher
   end, and at last to the earlier token: the order in which the original meets them. In
   SQuAD 2.0 "no answer" is one more candidate.
2. Texts. Each candidate gets its text (`align`). Of equal texts the first is kept; the
   first n_best_size are the n best. "No answer" is appended if it is not among them.
3. Probabilities are the softmax of the n best sums of scores.
4. SQuAD 2.0: "no answer" is predicted if its score is higher than the best span's by
   more than a threshold.

All sums are in float64 and in the original's order, so that the files equal the
original's to the last digit.

Shapes: L a record's length, T a window's tokens, K candidates.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.tasks.long_texts import Window
from bert_tf.tasks.squad.windows import QuestionFeatures
from bert_tf.text.normalization import Span, split_words
from bert_tf.text.segmentation import NO_SEGMENTER
from bert_tf.text.wordpiece import WordPieceTokenizer, joined

# How an answer's tokens become text: aligned with their words, as in the original,
# or cut from the paragraph at their offsets.
ALIGNMENT = "alignment"
OFFSETS = "offsets"

# The score difference without any span: where the original's search for the lowest
# score of "no answer" starts. It exceeds any threshold.
NO_SPAN_SCORE_DIFF = 1_000_000.0

# SQuAD 1.1's answer without any span: the original's.
NO_SPAN_TEXT = "empty"


class Candidate(NamedTuple):
    """A possible answer, and the scores of its first and last token."""

    tokens: tuple[int, int] | None  # both, in the paragraph; None for "no answer"
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """The sum of both scores."""
        return self.start_logit + self.end_logit


def _highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the places of the highest scores, in descending order; ties by place."""
    if len(scores) <= count:
        return np.argsort(-scores, kind="stable")
    # Sorting all of them takes several times as long.
    least = np.partition(scores, -count)[-count]
    places = np.flatnonzero(scores >= least)
    return places[np.argsort(-scores[places], kind="stable")[:count]]


class Alignment(NamedTuple):
    """The answer's characters in the words, which are joined with spaces."""

    start: int
    end: int
    failure: str = ""  # why the answer is all of the words


def align(
    token_text: str, words: str, do_lower_case: bool, segmenter: str = NO_SEGMENTER
) -> Alignment:
    """Finds the tokens' text in their words: the original's get_final_text.

    The tokens' text is lower-cased without accents; the answer is the text as written.
    The words are normalized, the answer is found there, and normalized and written text
    are matched character by character, ignoring spaces. If that is impossible,
    the answer is the words, with any punctuation attached to them. It fails on [UNK],
    on characters that tokenization removes, adds or joins (controls, U+00A0, Hangul),
    and on a piece that occurs twice in the words: it takes the first one.
    `--answer_text=offsets` needs none of this.
    """
    normalized = " ".join(split_words(words, do_lower_case, segmenter))
    start = normalized.find(token_text)
    if start < 0 or not token_text:
        return Alignment(0, len(words), "its tokens are not in the words")
    if len(words) - words.count(" ") != len(normalized) - normalized.count(" "):
        return Alignment(0, len(words), "the words have other characters than tokens")
    last = start + len(token_text) - 1
    return Alignment(
        _with_spaces(words, start - normalized.count(" ", 0, start)),
        _with_spaces(words, last - normalized.count(" ", 0, last)) + 1,
    )


def _with_spaces(text: str, number: int) -> int:
    """Returns the place of a character, given its number from 0 without spaces."""
    place = number
    # The smallest place that exceeds the number by the spaces up to it.
    while (moved := number + text.count(" ", 0, place + 1)) != place:
        place = moved
    return place


class NBestEntry(NamedTuple):
    """One of the n best answers: "" and no span for "no answer"."""

    text: str
    probability: float
    start_logit: float
    end_logit: float
    span: Span | None  # its characters in the paragraph, half open


class Decoded(NamedTuple):
    """A question's answers."""

    n_best: list[NBestEntry]  # the best first; "no answer" (2.0) is always among them
    # The best one except "no answer"; without any span "" (2.0) or NO_SPAN_TEXT (1.1).
    best_text: str
    # The score of "no answer" less that of `best_text`, or NO_SPAN_SCORE_DIFF; None for
    # SQuAD 1.1.
    score_diff: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class Decoder:
    """Chooses answers."""

    tokenizer: WordPieceTokenizer
    _: dataclasses.KW_ONLY
    n_best_size: int = 20  # of a window's starts and ends, and of the answers kept
    max_answer_length: int = 30  # in tokens
    version_2_with_negative: bool = False  # "no answer" is one of them (SQuAD 2.0)
    answer_text: str = ALIGNMENT  # or OFFSETS
    verbose_logging: bool = False  # log each alignment that failed

    def __call__(
        self,
        features: QuestionFeatures,
        start_logits: Sequence[np.ndarray],
        end_logits: Sequence[np.ndarray],
    ) -> Decoded:
        """Chooses a question's answers."""
        starts = [np.asarray(logits, np.float64) for logits in start_logits]
        ends = [np.asarray(logits, np.float64) for logits in end_logits]
        null = None
        if self.version_2_with_negative:
            # "No answer" has the scores of the window that finds it least likely.
            of_windows = [
                Candidate(None, float(start[0]), float(end[0]))
                for start, end in zip(starts, ends, strict=True)
            ]
            none = Candidate(None, 0.0, 0.0)
            null = min(of_windows, key=lambda one: one.score, default=none)
        chosen: dict[str, tuple[Candidate, Span | None]] = {}
        for candidate in self._ranked(features, starts, ends, null):
            text, span = self._text(features, candidate)
            chosen.setdefault(text, (candidate, span))
            if len(chosen) == self.n_best_size:
                break
        if null is not None:
            chosen.setdefault("", (null, None))
        elif not chosen:
            chosen[NO_SPAN_TEXT] = Candidate(None, 0.0, 0.0), None
        # Any span is among the n best, even of one: its scores are higher than those of
        # its window's [CLS].
        best_text = next((text for text in chosen if text), "")
        score_diff = None
        if null is not None:
            score_diff = NO_SPAN_SCORE_DIFF
            if best_text:
                best, _ = chosen[best_text]
                score_diff = null.score - best.start_logit - best.end_logit
        return Decoded(_with_probabilities(chosen), best_text, score_diff)

    def _ranked(
        self,
        features: QuestionFeatures,
        starts: Sequence[np.ndarray],
        ends: Sequence[np.ndarray],
        null: Candidate | None,
    ) -> Iterator[Candidate]:
        """Yields the candidates, the highest sum of scores first."""
        best, offset = features.max_context(), features.offset
        windows = [
            self._pairs(*each, offset)
            for each in zip(features.windows, best, starts, ends, strict=True)
        ]
        if len(windows) == 1:
            first, last, of_first, of_last = windows[0]
        elif windows:
            first, last, of_first, of_last = map(
                np.concatenate, zip(*windows, strict=True)
            )
        else:
            first = last = of_first = of_last = np.zeros(0)
        scores = of_first + of_last
        if null is not None:
            scores = np.append(scores, null.score)
        for number in np.argsort(-scores, kind="stable").tolist():
            if null is not None and number == len(first):
                yield null
            else:
                tokens = first.item(number), last.item(number)
                yield Candidate(tokens, of_first.item(number), of_last.item(number))

    def _pairs(
        self,
        window: Window,
        shown_best: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
        offset: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Yields a window's candidates."""
        first = _highest(start, self.n_best_size) - offset
        first = first[(first >= 0) & (first < window.length)]
        first = first[shown_best[first]]
        last = _highest(end, self.n_best_size) - offset
        last = last[(last >= 0) & (last < window.length)]
        lengths = last[np.newaxis, :] - first[:, np.newaxis] + 1
        fits = (lengths >= 1) & (lengths <= self.max_answer_length)
        rows, columns = np.nonzero(fits)
        first, last = first[rows], last[columns]
        return (
            window.start + first,
            window.start + last,
            start[offset + first],
            end[offset + last],
        )

    def _text(
        self, features: QuestionFeatures, candidate: Candidate
    ) -> tuple[str, Span | None]:
        """Returns a candidate's text, and its characters in the paragraph."""
        if candidate.tokens is None:
            return "", None
        paragraph = features.paragraph
        first, last = candidate.tokens
        if self.answer_text == OFFSETS:
            start, end = paragraph.offsets[first][0], paragraph.offsets[last][1]
            return paragraph.context[start:end], (start, end)
        words = paragraph.words[
            paragraph.word_of_token[first] : paragraph.word_of_token[last] + 1
        ]
        text = " ".join([paragraph.context[start:end] for start, end in words])
        ids = paragraph.ids[first : last + 1]
        vocabulary = self.tokenizer.vocabulary.tokens
        token_text = joined([vocabulary[token_id] for token_id in ids])
        alignment = align(
            token_text, text, self.tokenizer.do_lower_case, self.tokenizer.segmenter
        )
        if alignment.failure and self.verbose_logging:
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


def text_or_null(best_text: str, score_diff: float | None, threshold: float) -> str:
    """Returns the best span's text, or "" if "no answer" is over the threshold."""
    if score_diff is not None and score_diff > threshold:
        return ""
    return best_text


def _with_probabilities(
    chosen: dict[str, tuple[Candidate, Span | None]],
) -> list[NBestEntry]:
    scores = [candidate.score for candidate, _ in chosen.values()]
    highest = max(scores)
    # Neither numpy nor Python's sum (since 3.12) gives the same last digits.
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
    """Returns the place in the paragraph of a character of the joined words."""
    for start, end in words:
        if place < end - start:
            break
        place -= end - start + 1
    return start + place
