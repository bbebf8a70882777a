"""Questions into windows of tokens: the original's convert_examples_to_features."""

import dataclasses
from typing import NamedTuple

import numpy as np

from bert_tf.squad.examples import Question
from bert_tf.squad.paragraphs import TokenizedParagraph


class Window(NamedTuple):
    """A part of a paragraph's tokens.

    Attributes:
        start: its first token there.
        length: its tokens.
    """

    start: int
    length: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class QuestionFeatures:
    """A question's windows, each a record: [CLS] question [SEP] window [SEP].

    Attributes:
        question: as it was read.
        query_ids: the question's tokens, cut to max_query_length.
        paragraph: its tokens.
        windows: in their order; none where the paragraph has no token.
        answer: the answer's first and last token in the paragraph; None without one.
    """

    question: Question
    query_ids: list[int]
    paragraph: TokenizedParagraph
    windows: list[Window]
    answer: tuple[int, int] | None = None

    @property
    def offset(self) -> int:
        """Where in a record the window's first token stands."""
        return len(self.query_ids) + 2

    def max_context(self) -> list[np.ndarray]:
        """Of each window, which of its tokens it shows best: bool [length]."""
        raise NotImplementedError
