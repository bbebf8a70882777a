"""Questions into windows of tokens: the original's convert_examples_to_features.

A record is [CLS] question [SEP] window [SEP]. Window k of a paragraph is its tokens
[k s, k s + r), with the room r that the question leaves and the stride s, or r if that
is less; the windows end with the first one that reaches the paragraph's end.
"""

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import InputError
from bert_tf.squad.examples import Answer, Question
from bert_tf.squad.paragraphs import ParagraphTokenizer, TokenizedParagraph
from bert_tf.text.wordpiece import WordPieceTokenizer

# [CLS], and [SEP] after the question and after the window.
_SPECIAL_TOKENS = 3

# What a longer window is worth beside a token of context, in `max_context`.
_WORTH_OF_LENGTH = 0.01


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
        answer: the answer's first and last token in the paragraph; None without one,
            and where nothing is trained. The last one stands before the first one where
            the answer has no token.
        is_query_cut: whether the question had more tokens.
    """

    question: Question
    query_ids: list[int]
    paragraph: TokenizedParagraph
    windows: list[Window]
    answer: tuple[int, int] | None = None
    is_query_cut: bool = False

    @property
    def offset(self) -> int:
        """Where in a record the window's first token stands."""
        return len(self.query_ids) + 2

    def max_context(self) -> list[np.ndarray]:
        """Of each window, which of its tokens it shows best: bool [length].

        A token is shown best by the window that has most tokens on that side of it on
        which there are fewer; among equals by the first one. A longer window counts for
        a hundredth of a token more for each of its tokens, as in the original.
        """
        if len(self.windows) == 1:
            return [np.ones(self.windows[0].length, bool)]
        best_score = np.zeros(len(self.paragraph.ids))
        best_window = np.zeros(len(self.paragraph.ids), np.int64)
        for number, (start, length) in enumerate(self.windows):
            left = np.arange(length)
            # The same float arithmetic as the original's: ties are decided by it.
            score = np.minimum(left, left[::-1]) + _WORTH_OF_LENGTH * length
            part = slice(start, start + length)
            is_better = score > best_score[part]
            best_score[part][is_better] = score[is_better]
            best_window[part][is_better] = number
        return [
            best_window[start : start + length] == number
            for number, (start, length) in enumerate(self.windows)
        ]


class Featurizer:
    """Makes questions into features. It may be pickled."""

    def __init__(
        self,
        tokenizer: WordPieceTokenizer,
        *,
        max_seq_length: int,
        doc_stride: int,
        max_query_length: int,
        for_training: bool,
    ) -> None:
        if max_query_length < 0:
            raise InputError(
                f"--max_query_length must be at least 0. Received: {max_query_length}"
            )
        if max_seq_length <= max_query_length + _SPECIAL_TOKENS:
            raise InputError(
                f"--max_seq_length must be greater than --max_query_length + 3, so that"
                f" there is room for the paragraph. Received: {max_seq_length} and"
                f" {max_query_length}"
            )
        if doc_stride < 1:
            raise InputError(f"--doc_stride must be at least 1. Received: {doc_stride}")
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.doc_stride = doc_stride
        self.max_query_length = max_query_length
        self.for_training = for_training
        self._paragraphs = ParagraphTokenizer(tokenizer)

    @property
    def settings(self) -> dict[str, Any]:
        """All that features depend on beside the questions, as JSON has it."""
        return {
            "vocabulary": self.tokenizer.vocabulary.sha256,
            "do_lower_case": self.tokenizer.do_lower_case,
            "max_seq_length": self.max_seq_length,
            "doc_stride": self.doc_stride,
            "max_query_length": self.max_query_length,
            "for_training": self.for_training,
        }

    def __call__(self, questions: Iterable[Question]) -> Iterator[QuestionFeatures]:
        """Yields the features of each question, in order."""
        for question in questions:
            all_ids = self.tokenizer.encode(question.text)
            query_ids = all_ids[: self.max_query_length]
            paragraph = self._paragraphs(question.paragraph)
            room = self.max_seq_length - len(query_ids) - _SPECIAL_TOKENS
            yield QuestionFeatures(
                question=question,
                query_ids=query_ids,
                paragraph=paragraph,
                windows=_windows(len(paragraph.ids), room, self.doc_stride),
                answer=self._answer(question, paragraph),
                is_query_cut=len(query_ids) < len(all_ids),
            )

    def _answer(
        self, question: Question, paragraph: TokenizedParagraph
    ) -> tuple[int, int] | None:
        if not self.for_training or question.is_impossible or not paragraph.ids:
            return None
        if not question.answers:
            raise ValueError(
                "A question to be trained on must have an answer or be impossible."
                f" Received: {question.question_id!r}"
            )
        answer = question.answers[0]
        first, last = _tokens_of_words(answer, paragraph)
        return _narrowed(first, last, paragraph.ids, self.tokenizer.encode(answer.text))


def _windows(num_tokens: int, room: int, stride: int) -> list[Window]:
    if not num_tokens:
        return []
    stride = min(stride, room)
    last = max(0, num_tokens - room)
    return [
        Window(start, min(room, num_tokens - start))
        for start in range(0, last + stride, stride)
    ]


def _tokens_of_words(answer: Answer, paragraph: TokenizedParagraph) -> tuple[int, int]:
    """The first and last token of the words that an answer touches."""
    words, word_of_token = paragraph.words, paragraph.word_of_token

    def word_at(character: int) -> int:
        # White space counts to the word before it; before all words, that is -1.
        return bisect_right(words, character, key=lambda word: word[0]) - 1

    # The original's list takes -1 for the last word.
    first_word = word_at(answer.start) % len(words)
    last_word = word_at(answer.start + len(answer.text) - 1)
    return (
        bisect_left(word_of_token, first_word),
        bisect_right(word_of_token, last_word) - 1,
    )


def _narrowed(
    first: int, last: int, ids: list[int], answer_ids: list[int]
) -> tuple[int, int]:
    """The first place among [first, last] of exactly the answer's tokens, if any.

    "1895" in "(1895-1943)." is the token 1895; "Japan" in "Japanese" stays that word.
    """
    length = len(answer_ids)
    if length:
        for start in range(first, last - length + 2):
            if ids[start : start + length] == answer_ids:
                return start, start + length - 1
    return first, last
