"""SQuAD's official scores, and the files of predictions.

The scores are those of the official scripts to the last digit: evaluate-v1.1.py
(Rajpurkar et al. 2016) and evaluate-v2.0.py (Rajpurkar et al. 2018). Texts are compared
without case, ASCII punctuation, articles and surplus blanks; a question's score is the
best over its gold answers. The two versions differ in more than unanswerable questions:

    two texts that normalize to nothing   F1 is 0 in 1.1, 1 in 2.0
    a question without a prediction       scores 0 in 1.1; 2.0 rejects the file
    a gold answer that normalizes         counts in 1.1; 2.0 ignores it, and if no
    to nothing                            other one is left, "" is right

A null odd measures how sure a model is that a question has no answer: a probability, or
BERT's score difference. Questions up to a threshold are answered, others are not.
"""

import json
import math
import os
import re
import shutil
import string
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.tasks.squad.decoding import Decoded, NBestEntry, text_or_null
from bert_tf.tasks.squad.reading import Question
from bert_tf.text.normalization import Span

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:an?|the)\b")


Gold = tuple[str, ...]  # a question's right answers; () if it is unanswerable
Golds = Mapping[str, Gold]


def normalize_answer(text: str) -> str:
    """Returns a text in lower case, without punctuation, articles, extra blanks."""
    words = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION))
    return " ".join(words.split())


def f1(prediction: str, gold: str, *, of_nothing: int = 0) -> float:
    """Returns the harmonic mean of precision and recall over normalized words."""
    predicted, right = prediction.split(), gold.split()
    if not predicted and not right:
        return of_nothing
    common = (Counter(predicted) & Counter(right)).total()
    if not common:
        return 0
    precision, recall = common / len(predicted), common / len(right)
    return 2 * precision * recall / (precision + recall)


def _best(prediction: str, golds: Sequence[str], of_nothing: int) -> tuple[int, float]:
    """Returns (exact match, F1), each the best over normalized gold answers."""
    text = normalize_answer(prediction)
    all_f1 = (f1(text, gold, of_nothing=of_nothing) for gold in golds)
    return int(text in golds), max(all_f1)


def evaluate_v1(
    golds: Golds | Sequence[tuple[str, Gold]], predictions: Mapping[str, str]
) -> dict[str, float]:
    """Returns the official scores of SQuAD 1.1; a repeated id counts each time."""
    exact_sum, f1_sum = 0, 0.0
    pairs = [*(golds.items() if isinstance(golds, Mapping) else golds)]
    for question_id, gold in pairs:
        if question_id not in predictions:
            continue
        if not gold:
            raise InputError(
                f"Question {question_id} has no answer, which only SQuAD 2.0 allows:"
                " evaluate the file as 2.0."
            )
        texts = [normalize_answer(text) for text in gold]
        exact, best_f1 = _best(predictions[question_id], texts, 0)
        exact_sum += exact
        f1_sum += best_f1
    total = len(pairs)
    return {"exact_match": 100.0 * exact_sum / total, "f1": 100.0 * f1_sum / total}


def scores_v2(
    golds: Golds, predictions: Mapping[str, str], null_odds: Mapping[str, float] | None
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns exact match and F1, 0 to 1, per question, before any threshold (2.0)."""
    for values, what in (
        (predictions, 'prediction ("" is that of no answer)'),
        (null_odds, "null odd"),
    ):
        missing = [key for key in golds if values is not None and key not in values]
        if missing:
            raise InputError(
                f"{len(missing)} of {len(golds)} questions have no {what}, such as"
                f" {missing[0]}; the evaluation of SQuAD 2.0 needs one for each."
            )
    exact: dict[str, float] = {}
    f1_scores: dict[str, float] = {}
    for key, gold in golds.items():
        texts = [normalize_answer(text) for text in gold]
        texts = [text for text in texts if text] or [""]
        exact[key], f1_scores[key] = _best(predictions[key], texts, 1)
    return exact, f1_scores


def evaluate_v2(
    golds: Golds,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, Any]:
    """Returns the official scores of SQuAD 2.0; its threshold suits probabilities."""
    scores = scores_v2(golds, predictions, null_odds)
    # A prediction above the threshold counts as not answered.
    exact, f1_scores = (
        {
            key: float(not golds[key])
            if (null_odds[key] if null_odds else 0.0) > threshold
            else score
            for key, score in of_each.items()
        }
        for of_each in scores
    )
    report: dict[str, Any] = {}
    for prefix, wanted in (("", None), ("HasAns_", True), ("NoAns_", False)):
        ids = [key for key in golds if wanted in (None, bool(golds[key]))]
        if ids:
            # `sum` rounds as the official script's does, whatever the Python version.
            total = len(ids)
            report[f"{prefix}exact"] = 100.0 * sum(exact[key] for key in ids) / total
            report[f"{prefix}f1"] = 100.0 * sum(f1_scores[key] for key in ids) / total
            report[f"{prefix}total"] = total
    if null_odds is not None:
        report |= best_thresholds(golds, predictions, null_odds)
    return report


def best_thresholds(
    golds: Golds, predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> dict[str, float]:
    """Returns the best scores in percent, and the null odds up to which to answer."""
    found = {}
    scores = scores_v2(golds, predictions, null_odds)
    for name, of_each in zip(("best_exact", "best_f1"), scores, strict=True):
        found[name], found[f"{name}_thresh"] = best_threshold(
            golds, predictions, of_each, null_odds
        )
    return found


def best_threshold(
    golds: Golds,
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> tuple[float, float]:
    """Returns the best score in percent, and the null odd up to which to answer.

    The official search goes through the questions by rising null odds, from answering
    none to answering all, to the first place with the best score. Two of its traits are
    kept. It may stop between questions of the same null odds, which no threshold can
    separate. If nothing is better than answering none, its threshold is 0, which is
    below all probabilities, but not below all score differences.
    """
    score: float = sum(not gold for gold in golds.values())
    best, threshold = score, 0.0
    for question_id in by_null_odd(golds, null_odds):
        if golds[question_id]:
            score += scores[question_id]
        elif predictions[question_id]:
            score -= 1
        if score > best:
            best, threshold = score, null_odds[question_id]
    return 100.0 * best / len(scores), threshold


def by_null_odd(golds: Golds, null_odds: Mapping[str, float]) -> list[str]:
    """Returns the questions by null odd; equal ones in the order of `null_odds`."""
    ids = [question_id for question_id in null_odds if question_id in golds]
    return sorted(ids, key=null_odds.__getitem__)


def golds_of(questions: Iterable[Question]) -> dict[str, Gold]:
    """Returns the right answers of questions, by id."""
    return {
        one.question_id: tuple(text for text, _ in one.answers) for one in questions
    }


class Answers:
    """The answers to questions: each one's best text, scores, and files.

    The n best answers, which take the most space, wait in a temporary file.
    """

    def __init__(
        self, *, version_2_with_negative: bool, threshold: float = 0.0
    ) -> None:
        self.best_texts: dict[str, str] = {}  # by id, the best answer that is a text
        # By id, the score of "no answer" less that of this text; empty for SQuAD 1.1.
        self.null_odds: dict[str, float] = {}
        # By id, the characters of this text in the context, half open; where known.
        self.spans: dict[str, Span] = {}
        self.threshold = threshold  # of these, above which there is no answer
        self._version_2 = version_2_with_negative
        self._n_best = tempfile.TemporaryFile()  # noqa: SIM115

    def add(self, question_id: str, decoded: Decoded) -> None:
        """Adds a question's answers."""
        comma = "," if self.best_texts else ""
        entries = ",\n".join(map(_entry, decoded.n_best))
        key = json.dumps(question_id)
        self._n_best.write(f"{comma}\n    {key}: [\n{entries}\n    ]".encode("ascii"))
        self.best_texts[question_id] = decoded.best_text
        best = next(
            (one for one in decoded.n_best if one.text == decoded.best_text), None
        )
        if best is not None and best.span is not None:
            self.spans[question_id] = best.span
        if decoded.score_diff is not None:
            self.null_odds[question_id] = decoded.score_diff

    def texts(self) -> dict[str, str]:
        """Returns the predictions, by question id."""
        return {
            key: text_or_null(text, self.null_odds.get(key), self.threshold)
            for key, text in self.best_texts.items()
        }

    def scores(self, golds: Golds) -> dict[str, float]:
        """Returns the official scores, in percent."""
        if not self._version_2:
            return evaluate_v1(golds, self.best_texts)
        best = best_thresholds(golds, self.best_texts, self.null_odds)
        return {**evaluate_v2(golds, self.texts()), **best}

    def write(self, folder: str) -> None:
        """Writes the answers in the original's format.

            predictions.json         question id -> the answer, "" for none
            nbest_predictions.json   question id -> the n best answers, each with text,
                                     probability, start_logit and end_logit
            null_odds.json           question id -> the score of "no answer" less the
                                     best span's (SQuAD 2.0)

        and, not the original's, if they are known, the answers' places:

            prediction_spans.json    question id -> [start, end], the answer's
                                     characters in the context, half open; null for none

        JSON in ASCII, indented by 4, with questions in their order. Files get their
        names when they are complete, predictions.json last.
        """
        with files.replacing(os.path.join(folder, N_BEST)) as file:
            file.write(b"{")
            self._n_best.seek(0)
            shutil.copyfileobj(self._n_best, file)
            file.write(b"\n}\n" if self.best_texts else b"}\n")
        odds_path = os.path.join(folder, NULL_ODDS)
        if self._version_2:
            _write(odds_path, self.null_odds)
        elif files.exists(odds_path):
            files.remove(odds_path)  # from an earlier prediction
        texts, spans_path = self.texts(), os.path.join(folder, SPANS)
        if self.spans:
            spans = {key: self.spans.get(key) if texts[key] else None for key in texts}
            _write(spans_path, spans)
        elif files.exists(spans_path):
            files.remove(spans_path)
        _write(os.path.join(folder, PREDICTIONS), texts)


def metric_names(version_2_with_negative: bool) -> list[str]:
    """Returns the scores by which checkpoints may be chosen, the usual one last."""
    if not version_2_with_negative:
        return ["exact_match", "f1"]
    kinds = ("", "HasAns_", "NoAns_", "best_")
    return [f"{kind}{name}" for kind in kinds for name in ("exact", "f1")]


PREDICTIONS = "predictions.json"
N_BEST = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"
SPANS = "prediction_spans.json"


def _write(path: str, values: dict) -> None:
    files.write_atomically(path, json.dumps(values, indent=4) + "\n")


def _entry(entry: NBestEntry) -> str:
    # Without json, which takes ten times as long to write with indentation.
    return (
        "        {\n"
        f'            "text": {json.dumps(entry.text)},\n'
        f'            "probability": {_number(entry.probability)},\n'
        f'            "start_logit": {_number(entry.start_logit)},\n'
        f'            "end_logit": {_number(entry.end_logit)}\n'
        "        }"
    )


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else json.dumps(value)
