"""Which tokens an answer may be, by their scores, before it has a text.

In each window the count tokens with the highest start scores and those with the highest
end scores are paired. A pair is a candidate if both tokens are the paragraph's, the
first has its most context in this window, and they are 1 to max_answer_length tokens.
Padding, [CLS] and the question take part in the highest scores and fall out after.

Candidates are ranked by the sum of their two scores, in float64. Ties go to the earlier
window, then to the higher start, then to the higher end, and at last to the earlier
token: the order in which the original comes upon them.

Shapes: L a record's length, T a window's tokens, K candidates.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.squad.features import QuestionFeatures, Window


class Candidate(NamedTuple):
    """What may be an answer.

    Attributes:
        tokens: its first and last token in the paragraph; None for "no answer".
        start_logit: its first token's score.
        end_logit: its last token's score.
    """

    tokens: tuple[int, int] | None
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """The sum of its scores."""
        return self.start_logit + self.end_logit


def null_candidate(
    start_logits: Sequence[np.ndarray], end_logits: Sequence[np.ndarray]
) -> Candidate:
    """The candidate "no answer", of the window that finds it the least likely."""
    of_windows = [
        Candidate(None, float(start[0]), float(end[0]))
        for start, end in zip(start_logits, end_logits, strict=True)
    ]
    return min(
        of_windows,
        key=lambda candidate: candidate.score,
        default=Candidate(None, 0.0, 0.0),
    )


def ranked(
    features: QuestionFeatures,
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    null: Candidate | None,
    *,
    count: int,
    max_answer_length: int,
) -> Iterator[Candidate]:
    """Yields the candidates, the highest sum of scores first."""
    windows = [
        _pairs(
            window, shown_best, features.offset, start, end, count, max_answer_length
        )
        for window, shown_best, start, end in zip(
            features.windows,
            features.max_context(),
            start_logits,
            end_logits,
            strict=True,
        )
    ]
    if windows:
        first, last, starts, ends = map(np.concatenate, zip(*windows, strict=True))
    else:
        first = last = starts = ends = np.zeros(0)
    scores = starts + ends
    if null is not None:
        scores = np.append(scores, null.score)
    for number in np.argsort(-scores, kind="stable").tolist():
        if null is not None and number == len(first):
            yield null
        else:
            tokens = int(first[number]), int(last[number])
            yield Candidate(tokens, float(starts[number]), float(ends[number]))


def _pairs(
    window: Window,
    shown_best: np.ndarray,
    offset: int,
    start: np.ndarray,
    end: np.ndarray,
    count: int,
    max_answer_length: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A window's candidates."""
    first = _highest(start, count) - offset
    first = first[(first >= 0) & (first < window.length)]
    first = first[shown_best[first]]
    last = _highest(end, count) - offset
    last = last[(last >= 0) & (last < window.length)]
    lengths = last[np.newaxis, :] - first[:, np.newaxis] + 1
    rows, columns = np.nonzero((lengths >= 1) & (lengths <= max_answer_length))
    first, last = first[rows], last[columns]
    return (
        window.start + first,
        window.start + last,
        start[offset + first],
        end[offset + last],
    )


def _highest(scores: np.ndarray, count: int) -> np.ndarray:
    """The places of the highest scores, the highest first, ties in their order."""
    if len(scores) <= count:
        return np.argsort(-scores, kind="stable")
    # Sorting them all takes several times as long.
    least = np.partition(scores, -count)[-count]
    places = np.flatnonzero(scores >= least)
    return places[np.argsort(-scores[places], kind="stable")[:count]]
