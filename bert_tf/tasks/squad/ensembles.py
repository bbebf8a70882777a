"""Several runs' predictions into one: the mean of the probabilities of each text.

Devlin et al. 2018 score ensembles of runs from several checkpoints and seeds (tables 2
and 3), without a word on how they are averaged. Here a text's probability is the mean
over the runs, 0 from a run that has it not among its n best; in SQuAD 2.0 the score
difference of "no answer" is their mean too. A run that found no span at all for a
question has no text to vote for and no difference to count.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.tasks.squad.decoding import (
    NO_SPAN_SCORE_DIFF,
    NO_SPAN_TEXT,
    Decoded,
    NBestEntry,
)
from bert_tf.tasks.squad.scoring import N_BEST, NULL_ODDS

_NUMBERS = ("probability", "start_logit", "end_logit")


class _Votes:
    """What the runs say of a question."""

    __slots__ = ("score_diffs", "texts")

    def __init__(self):
        # text -> sums of the probability and the two logits, and of how many runs.
        self.texts: dict[str, list[float]] = {}
        self.score_diffs: list[float] = []


class Ensemble:
    """Adds up runs, one at a time; of their n-best lists only sums are kept."""

    def __init__(self, *, version_2_with_negative: bool = False, n_best_size: int = 20):
        """Starts without a run."""
        self._version_2_with_negative = version_2_with_negative
        self._n_best_size = n_best_size
        self._folders: list[str] = []
        self._votes: dict[str, _Votes] = {}

    def add(self, folder: str) -> None:
        """Adds the run whose prediction files are in a folder."""
        path, odds_path = os.path.join(folder, N_BEST), os.path.join(folder, NULL_ODDS)
        n_best = _read(path)
        if self._folders:
            self._compare(n_best, path)
        else:
            self._votes = {question_id: _Votes() for question_id in n_best}
        if self._version_2_with_negative:
            self._add_null_odds(_read(odds_path), odds_path)
        elif files.exists(odds_path):
            raise InputError(
                f"{odds_path} says that these are predictions for SQuAD 2.0: add"
                " --version_2_with_negative."
            )
        for question_id, entries in n_best.items():
            self._add_texts(question_id, entries, path)
        self._folders.append(folder)

    def decoded(self) -> Iterator[tuple[str, Decoded]]:
        """Each question's id and answers, in the first run's order."""
        for question_id, votes in self._votes.items():
            yield question_id, self._decoded(votes)

    def _decoded(self, votes: _Votes) -> Decoded:
        # The sort is stable: of equal ones the first in the first run goes first.
        ranked = sorted(
            (self._entry(text, sums) for text, sums in votes.texts.items()),
            key=lambda entry: -entry.probability,
        )
        n_best = ranked[: self._n_best_size]
        if not self._version_2_with_negative:
            n_best = n_best or [NBestEntry(NO_SPAN_TEXT, 1.0, 0.0, 0.0, None)]
            return Decoded(n_best, n_best[0].text, None)
        n_best += [entry for entry in ranked[self._n_best_size :] if not entry.text]
        best_text = next((entry.text for entry in ranked if entry.text), "")
        differences = [d for d in votes.score_diffs if d < NO_SPAN_SCORE_DIFF]
        score_diff = (
            sum(differences) / len(differences) if differences else NO_SPAN_SCORE_DIFF
        )
        return Decoded(n_best, best_text, score_diff)

    def _entry(self, text: str, sums: list[float]) -> NBestEntry:
        probability, start_logit, end_logit, count = sums
        return NBestEntry(
            text,
            probability / len(self._folders),
            start_logit / count,
            end_logit / count,
            None,
        )

    def _add_texts(self, question_id: str, entries: Any, path: str) -> None:
        texts = self._votes[question_id].texts
        where = f"{path}: question {question_id}"
        if not isinstance(entries, list):
            raise InputError(f"{where} must have a list of answers.")
        for entry in entries:
            text = entry.get("text") if isinstance(entry, dict) else None
            numbers = [_number(entry, name, where) for name in _NUMBERS]
            if not isinstance(text, str):
                raise InputError(f'{where}: an answer has no "text".')
            if text == NO_SPAN_TEXT and numbers[1:] == [0.0, 0.0]:
                continue  # not a text of the paragraph
            sums = texts.setdefault(text, [0.0, 0.0, 0.0, 0])
            for i, number in enumerate((*numbers, 1)):
                sums[i] += number

    def _add_null_odds(self, null_odds: dict[str, Any], path: str) -> None:
        self._compare(null_odds, path)
        for question_id in null_odds:
            number = _number(null_odds, question_id, path)
            self._votes[question_id].score_diffs.append(number)

    def _compare(self, questions: dict[str, Any], path: str) -> None:
        differing = questions.keys() ^ self._votes.keys()
        if differing:
            example = min(differing)
            which = "only there" if example in questions else "not there"
            first = self._folders[0] if self._folders else os.path.dirname(path)
            raise InputError(
                f"{path} is of other questions than {os.path.join(first, N_BEST)}:"
                f" {len(differing)} differ, such as {example} ({which}). An ensemble"
                " needs predictions for the same file."
            )


def _read(path: str) -> dict[str, Any]:
    content = files.read_json(path, "prediction file")
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: must be {{question's id: ..., ...}}, of a question.")
    return content


def _number(values: Any, key: str, where: str) -> float:
    value = values.get(key) if isinstance(values, dict) else None
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not abs(value) <= sys.float_info.max
    ):
        raise InputError(f'{where}: "{key}" must be a number. Received: {value!r}')
    return value
