"""A question about a paragraph, as SQuAD's files have it."""

import dataclasses
from typing import NamedTuple


class Answer(NamedTuple):
    """An answer that an annotator gave.

    Attributes:
        text: as it stands in the paragraph.
        start: its first character's place there.
    """

    text: str
    start: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Paragraph:
    """A text that questions are about; the same object for all of them.

    Attributes:
        context: the text.
        title: the article's.
    """

    context: str
    title: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Question:
    """One question.

    Attributes:
        question_id: its id in the file.
        text: the question.
        paragraph: what it is about.
        answers: those given; none where it is impossible, or where no file says them.
        is_impossible: whether the paragraph does not answer it (SQuAD 2.0).
    """

    question_id: str
    text: str
    paragraph: Paragraph
    answers: tuple[Answer, ...] = ()
    is_impossible: bool = False
