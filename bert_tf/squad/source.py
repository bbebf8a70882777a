"""Where questions come from: anything that can be gone through again and again."""

from collections.abc import Iterator
from typing import Any, Protocol

from bert_tf.errors import InputError
from bert_tf.squad.examples import Question
from bert_tf.squad.reader import Report


class QuestionSource(Protocol):
    """Questions, such as those of a file.

    Attributes:
        identity: tells sets of questions apart, as JSON has it.
        report: what was wrong with them, of the last time that all were gone through.
    """

    @property
    def identity(self) -> Any: ...

    @property
    def report(self) -> Report: ...

    def __iter__(self) -> Iterator[Question]: ...


class CheckedQuestions:
    """Questions that were all read once, so that what is wrong with them is known.

    Attributes:
        num_questions: how many there are.
        have_answers: whether each one has an answer, or is impossible.
    """

    def __init__(self, source: QuestionSource) -> None:
        """Reads them.

        Args:
            source: the questions.

        Raises:
            InputError: they cannot be read, or are of another version.
        """
        self._source = source
        self.num_questions = 0
        self.have_answers = True
        for question in source:
            self.num_questions += 1
            self.have_answers &= bool(question.answers) or question.is_impossible
        source.report.log_summary()

    @property
    def identity(self) -> Any:
        """Tells sets of questions apart, as JSON has it."""
        return self._source.identity

    @property
    def report(self) -> Report:
        """What was wrong with them."""
        return self._source.report

    def __iter__(self) -> Iterator[Question]:
        """The questions, in their order."""
        return iter(self._source)
