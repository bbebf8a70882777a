"""The answers to a set of questions, as they come, and what they are worth."""

from bert_tf.errors import InputError
from bert_tf.metrics.squad import Gold, best_thresholds, evaluate_v1, evaluate_v2
from bert_tf.squad.decoding import Decoded, text_or_null
from bert_tf.squad.examples import Question

# Those of `Answers.scores` that a checkpoint may be the best by.
_SCORES_V1 = ("exact_match", "f1")
_SCORES_V2 = (
    *(
        f"{kind}{name}"
        for kind in ("", "HasAns_", "NoAns_")
        for name in ("exact", "f1")
    ),
    "best_exact",
    "best_f1",
)


class Answers:
    """The answers to a set of questions; of each no more than its best text.

    Attributes:
        best_texts: by question id, the best answer that is a text.
        null_odds: by question id, the score of "no answer" less that of this text.
        golds: by question id, the annotators' answers.
    """

    def __init__(self, *, version_2_with_negative: bool) -> None:
        self.best_texts: dict[str, str] = {}
        self.null_odds: dict[str, float] = {}
        self.golds: dict[str, Gold] = {}
        self._version_2 = version_2_with_negative

    def add(self, question: Question, decoded: Decoded) -> None:
        """Takes a question's answer."""
        self.best_texts[question.question_id] = decoded.best_text
        if decoded.score_diff is not None:
            self.null_odds[question.question_id] = decoded.score_diff
        self.golds[question.question_id] = Gold(
            tuple(answer.text for answer in question.answers), bool(question.answers)
        )

    def scores(self, threshold: float) -> dict[str, float]:
        """The official scores, in percent."""
        if not self._version_2:
            return evaluate_v1(self.golds, self.best_texts)
        predictions = {
            question_id: text_or_null(text, self.null_odds[question_id], threshold)
            for question_id, text in self.best_texts.items()
        }
        best = best_thresholds(self.golds, self.best_texts, self.null_odds)
        return {**evaluate_v2(self.golds, predictions), **best._asdict()}


def best_metric(version_2_with_negative: bool, wanted: str | None = None) -> str:
    """The score that says which checkpoint is the best."""
    there = _SCORES_V2 if version_2_with_negative else _SCORES_V1
    if wanted and wanted not in there:
        raise InputError(
            f"--best_metric={wanted} is none of the evaluation's metrics:"
            f" {', '.join(there)}."
        )
    return wanted or ("best_f1" if version_2_with_negative else "f1")
