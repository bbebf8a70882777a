"""Questions that were all read once, before anything is done with them."""

from collections.abc import Iterator
from typing import Any

from bert_tf.squad.examples import Question
from bert_tf.squad.reader import QuestionReader
from bert_tf.squad.report import Report


class CheckedQuestions:
    """Questions of which it is known how many there are, and what is wrong with them.

    Attributes:
        num_questions: how many there are.
        have_answers: whether each one has an answer, or is impossible.
    """

    def __init__(self, reader: QuestionReader) -> None:
        """Reads them, and says what is wrong."""
        self._reader = reader
        self.num_questions = 0
        self.have_answers = True
        for question in reader:
            self.num_questions += 1
            self.have_answers &= bool(question.answers) or question.is_impossible
        reader.report.log_summary()

    @property
    def identity(self) -> dict[str, Any]:
        """What the questions depend on, as JSON has it."""
        return self._reader.identity

    @property
    def report(self) -> Report:
        """What was wrong with them."""
        return self._reader.report

    def __iter__(self) -> Iterator[Question]:
        """The questions, in their order."""
        return iter(self._reader)
