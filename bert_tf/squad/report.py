"""What was wrong with the entries of a SQuAD file, said one by one and counted."""

from collections import Counter

from absl import logging

# Why a question is skipped: what stands behind the number of such questions.
MALFORMED = "malformed"
NO_ANSWER = "without an answer"
OUTSIDE = "with an answer outside the context"
UNRECOVERABLE = "with an answer that the words at its place do not give"
DUPLICATE = "with the id of an earlier one"

# What costs no question.
MALFORMED_ARTICLES = "malformed articles"
MALFORMED_PARAGRAPHS = "malformed paragraphs"
SEVERAL_ANSWERS = "questions with several answers, of which one is trained on"
OTHER_SPELLING = "answers that stand in the text with other characters"
FAULTY_ANSWERS = "faulty answers of questions that are kept"

_MAX_SHOWN = 60


class Report:
    """The faults found in one pass over a file.

    Attributes:
        num_questions: all that the file has, the skipped ones included.
        skipped: questions left out, by why.
        notes: what else there was, by what.
    """

    def __init__(self, source: str, *, is_quiet: bool = False) -> None:
        self.source = source
        self.num_questions = 0
        self.skipped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self._is_quiet = is_quiet

    @property
    def num_usable(self) -> int:
        """The questions that were not skipped."""
        return self.num_questions - self.skipped.total()

    def skip(self, kind: str, where: str, what: str, count: int = 1) -> None:
        """Counts questions that are left out, and warns of them."""
        self.skipped[kind] += count
        self._warn(where, f"{what}; skipped")

    def note(self, kind: str, where: str = "", what: str = "") -> None:
        """Counts what costs no question, and warns if there is any."""
        self.notes[kind] += 1
        if what:
            self._warn(where, what)

    def summary(self) -> str:
        """One line: "Skipped 3 of 120 questions: 2 malformed, 1 without an answer."."""
        reasons = ", ".join(f"{n:,} {kind}" for kind, n in self.skipped.items() if n)
        parts = [
            f"Skipped {self.skipped.total():,} of {self.num_questions:,} questions"
            + (f": {reasons}." if reasons else ".")
        ]
        if self.notes:
            notes = "; ".join(f"{kind}: {n:,}" for kind, n in self.notes.items())
            parts.append(f"Also: {notes}.")
        return " ".join(parts)

    def log_summary(self) -> None:
        """Says how many questions were skipped; a warning if any were."""
        log = logging.warning if self.skipped or self.notes else logging.info
        log("%s: %s", self.source, self.summary())

    def _warn(self, where: str, what: str) -> None:
        if not self._is_quiet:
            logging.warning("%s: %s: %s.", self.source, where, what)


def shown(value: object) -> str:
    """A value of the file for a message: its beginning, on one line."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
