"""The files of a prediction, as the original writes them.

    predictions.json         question id -> the answer, "" for none
    nbest_predictions.json   question id -> the n best answers, each with text,
                             probability, start_logit and end_logit
    null_odds.json           question id -> the score of "no answer" less the best
                             span's (SQuAD 2.0)

JSON in ASCII, indented by 4, questions in the order in which they came. The n best
answers are written as they come, for they are most of it; a file gets its name when it
is complete, predictions.json last.
"""

import json
import math
import os
from types import TracebackType
from typing import Self

from bert_tf import files
from bert_tf.squad.decoding import Decoded, NBestEntry, text_or_null

PREDICTIONS = "predictions.json"
N_BEST = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"


class PredictionFiles:
    """Writes a prediction's files, a question at a time; a context manager.

    Nothing is left of a prediction that does not come to `finish`.

    Attributes:
        best_texts: question id -> the best answer but "no answer".
        null_odds: question id -> the score of "no answer" less that one's; empty for
            SQuAD 1.1.
    """

    def __init__(self, folder: str, version_2_with_negative: bool, prefix: str = ""):
        """Names the files."""
        self._folder = folder
        self._prefix = prefix
        self._version_2_with_negative = version_2_with_negative
        self.best_texts: dict[str, str] = {}
        self.null_odds: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._temporary = files.temporary_name(self._path(N_BEST))
        self._file = files.open_binary(self._temporary, "wb")
        self._file.write(b"{")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
        if files.exists(self._temporary):
            files.remove(self._temporary)

    def add(self, question_id: str, decoded: Decoded) -> None:
        """Writes a question's answers."""
        if question_id in self.best_texts:
            raise ValueError(f"A question must come once. Received: {question_id!r}")
        if (decoded.score_diff is not None) != self._version_2_with_negative:
            raise ValueError(
                "`decoded` must have a `score_diff` for SQuAD 2.0 and none for 1.1."
                f" Received: {decoded.score_diff}"
            )
        comma = "," if self.best_texts else ""
        entries = ",\n".join(map(_entry, decoded.n_best))
        key = json.dumps(question_id)
        self._file.write(f"{comma}\n    {key}: [\n{entries}\n    ]".encode("ascii"))
        self.best_texts[question_id] = decoded.best_text
        if decoded.score_diff is not None:
            self.null_odds[question_id] = decoded.score_diff

    def answers(self, threshold: float = 0.0) -> dict[str, str]:
        """What is predicted, by question id."""
        return {
            question_id: text_or_null(text, self.null_odds.get(question_id), threshold)
            for question_id, text in self.best_texts.items()
        }

    def finish(self, threshold: float = 0.0) -> None:
        """Writes what is left, and gives the files their names."""
        self._file.write(b"\n}\n" if self.best_texts else b"}\n")
        if not files.is_remote(self._temporary):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        files.replace(self._temporary, self._path(N_BEST))
        if self._version_2_with_negative:
            self._write(NULL_ODDS, self.null_odds)
        elif files.exists(self._path(NULL_ODDS)):
            # Of other predictions: these have none.
            files.remove(self._path(NULL_ODDS))
        self._write(PREDICTIONS, self.answers(threshold))

    def _write(self, name: str, values: dict) -> None:
        content = json.dumps(values, indent=4) + "\n"
        files.write_atomically(self._path(name), content)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, self._prefix + name)


def _entry(entry: NBestEntry) -> str:
    # By hand: json writes what is indented ten times as slowly.
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
