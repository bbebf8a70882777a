"""Questions into windows of tokens: the original's convert_examples_to_features.

A record is [CLS] question [SEP] window [SEP]. The windows are those of
`bert_tf.tasks.long_texts`, with the room that the question leaves.
`bert_tf.records.spec.RecordSpec.spans` has the records' features.
"""

import dataclasses
import functools
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from bert_tf.base.errors import InputError
from bert_tf.base.parallel import grouped, ordered_map
from bert_tf.tasks.long_texts import Window, best_windows, windows
from bert_tf.tasks.squad.reading import WORD, GoldAnswer, Question
from bert_tf.text.normalization import Span
from bert_tf.text.wordpiece import Cache, WordPieceTokenizer

# [CLS], and [SEP] after the question and after the window.
_SPECIAL_TOKENS = 3

# The first record's unique_id, as in the original.
FIRST_UNIQUE_ID = 1_000_000_000

# A block has few more records than this, unless a single question does.
_RECORDS_AT_ONCE = 2048

# Groups made before other processes start: 160 groups, some 50,000 questions, take as
# long as a few processes need to start and to fill their caches with the usual words.
_GROUPS_ALONE = 160

# Questions about one paragraph are usually consecutive.
_PARAGRAPHS_KEPT = 4

Block = dict[str, np.ndarray]  # the features of many records, by name


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TokenizedParagraph:
    """A paragraph's tokens."""

    context: str
    ids: list[int]
    counts: list[int]  # each word's tokens; words as in `reading.WORD`
    tokenizer: WordPieceTokenizer = dataclasses.field(repr=False)

    @functools.cached_property
    def word_of_token(self) -> list[int]:
        """The number of each token's word, ascending."""
        return np.repeat(np.arange(len(self.counts)), self.counts).tolist()

    @functools.cached_property
    def words(self) -> list[Span]:
        """Each word's place in the text, in characters, half open."""
        return [match.span() for match in WORD.finditer(self.context)]

    @functools.cached_property
    def id_array(self) -> np.ndarray:
        """`ids` as int32, to be copied a window at a time."""
        return np.array(self.ids, np.int32)

    @functools.cached_property
    def offsets(self) -> list[Span]:
        """Each token's place in the text, in characters, half open."""
        encoding = self.tokenizer.encode_with_offsets(self.context)
        assert encoding.ids == self.ids
        return encoding.offsets


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class QuestionFeatures:
    """A question's windows, each of which is a record."""

    question: Question
    query_ids: list[int]  # the question's tokens, cut to max_query_length
    paragraph: TokenizedParagraph
    windows: list[Window]  # in their order; none if the paragraph has no token
    # The answer's first and last token in the paragraph; None if there is none, or
    # without training. If it has no token, the last one is before the first one.
    answer: tuple[int, int] | None = None

    @property
    def offset(self) -> int:
        """The place of a window's first token in its record."""
        return len(self.query_ids) + 2

    def max_context(self) -> list[np.ndarray]:
        """Whether a window shows a token best: bool [length] for each window."""
        best = best_windows(self.windows, len(self.paragraph.ids))
        return [
            best[start : start + length] == number
            for number, (start, length) in enumerate(self.windows)
        ]


@dataclasses.dataclass(eq=False)
class QuestionFeaturizer:
    """Makes features from questions. It may be pickled."""

    tokenizer: WordPieceTokenizer
    _: dataclasses.KW_ONLY
    max_seq_length: int
    doc_stride: int
    max_query_length: int
    for_training: bool

    def __post_init__(self) -> None:
        if self.max_seq_length <= self.max_query_length + _SPECIAL_TOKENS:
            raise InputError(
                f"`max_seq_length` must be greater than `max_query_length` + 3, so that"
                f" there is room for the paragraph. Received: {self.max_seq_length} and"
                f" {self.max_query_length}"
            )
        self._ids_of_word: Cache[tuple[int, ...]] = Cache(
            lambda word: tuple(self.tokenizer.encode(word))
        )
        # Tokenizes each paragraph once for consecutive questions.
        self.paragraph = functools.lru_cache(_PARAGRAPHS_KEPT)(self._tokenize)

    def __reduce__(self) -> tuple:
        names = [field.name for field in dataclasses.fields(self)]
        given = {name: getattr(self, name) for name in names}
        return functools.partial(QuestionFeaturizer, **given), ()

    @property
    def settings(self) -> dict[str, Any]:
        """Returns the settings that decide the features, as JSON."""
        return {
            **self.tokenizer.settings,
            "max_seq_length": self.max_seq_length,
            "doc_stride": self.doc_stride,
            "max_query_length": self.max_query_length,
            "for_training": self.for_training,
        }

    def __call__(self, questions: Iterable[Question]) -> Iterator[QuestionFeatures]:
        """Yields the features of each question, in order."""
        for question in questions:
            query_ids = self.tokenizer.encode(question.text)[: self.max_query_length]
            paragraph = self.paragraph(question.context)
            room = self.max_seq_length - len(query_ids) - _SPECIAL_TOKENS
            num_tokens = len(paragraph.ids)
            found = windows(num_tokens, room, self.doc_stride) if num_tokens else []
            yield QuestionFeatures(
                question=question,
                query_ids=query_ids,
                paragraph=paragraph,
                windows=found,
                answer=self._answer(question, paragraph),
            )

    def _tokenize(self, context: str) -> TokenizedParagraph:
        # Words end at white space, and no rule of the tokenizer looks past it, so the
        # words' tokens are the text's.
        ids_of_words = list(map(self._ids_of_word.__getitem__, WORD.findall(context)))
        return TokenizedParagraph(
            context=context,
            ids=list(chain.from_iterable(ids_of_words)),
            counts=list(map(len, ids_of_words)),
            tokenizer=self.tokenizer,
        )

    def _answer(
        self, question: Question, paragraph: TokenizedParagraph
    ) -> tuple[int, int] | None:
        if not self.for_training or question.is_impossible or not paragraph.ids:
            return None
        answer = question.answers[0]
        first, last = _tokens_of_words(answer, paragraph)
        return _narrowed(first, last, paragraph.ids, self.tokenizer.encode(answer.text))


def _tokens_of_words(
    answer: GoldAnswer, paragraph: TokenizedParagraph
) -> tuple[int, int]:
    """Returns the first and last token of the words that an answer touches."""
    words, word_of_token = paragraph.words, paragraph.word_of_token

    def word_at(character: int) -> int:
        # White space belongs to the word before it, or to word -1 at the beginning.
        return bisect_right(words, character, key=lambda word: word[0]) - 1

    # In the original's list, -1 is the last word.
    first_word = word_at(answer.start) % len(words)
    last_word = word_at(answer.start + len(answer.text) - 1)
    return (
        bisect_left(word_of_token, first_word),
        bisect_right(word_of_token, last_word) - 1,
    )


def _narrowed(
    first: int, last: int, ids: list[int], answer_ids: list[int]
) -> tuple[int, int]:
    """Returns the first place of exactly the answer's tokens, if there is one."""
    # "1895" in "(1895-1943)." is the token 1895; "Japan" in "Japanese" stays that word.
    length = len(answer_ids)
    if length:
        for start in range(first, last - length + 2):
            if ids[start : start + length] == answer_ids:
                return start, start + length - 1
    return first, last


def blocks(
    features: Iterable[QuestionFeatures],
    max_seq_length: int,
    *,
    for_training: bool = False,
) -> Iterator[Block]:
    """Returns the records of all windows, many at once, as in `RecordSpec.spans`."""
    some = grouped(features, _RECORDS_AT_ONCE, lambda one: len(one.windows))
    yield from _numbered(_block(group, max_seq_length, for_training) for group in some)


def parallel_blocks(
    questions: Iterable[Question], featurizer: QuestionFeaturizer, *, num_workers: int
) -> Iterator[Block]:
    """Yields the same records from questions with any number of processes."""
    # The first ones are made in this process, so that a small set needs no others.

    def most_windows(question: Question) -> int:
        # Nearly all tokens have a character of their own.
        return 1 + len(question.context) // featurizer.doc_stride

    groups = grouped(questions, _RECORDS_AT_ONCE, most_windows)
    alone = groups if num_workers == 1 else itertools.islice(groups, _GROUPS_ALONE)
    found: Iterable[Block] = (_block_of_questions(featurizer, group) for group in alone)
    if num_workers != 1:
        others = ordered_map(
            _block_of_questions, groups, num_workers=num_workers, shared=(featurizer,)
        )
        found = itertools.chain(found, others)
    yield from _numbered(found)


def _block_of_questions(
    featurizer: QuestionFeaturizer, questions: Sequence[Question]
) -> Block:
    features = list(featurizer(questions))
    return _block(features, featurizer.max_seq_length, featurizer.for_training)


def _numbered(found: Iterable[Block]) -> Iterator[Block]:
    """Yields the blocks that have records, with the records' unique_ids."""
    first_unique_id = FIRST_UNIQUE_ID
    for block in found:
        if count := len(block["input_ids"]):
            unique_ids = first_unique_id + np.arange(count)[:, None]
            yield {"unique_ids": unique_ids, **block}
            first_unique_id += count


def _block(
    features: Sequence[QuestionFeatures], max_seq_length: int, for_training: bool
) -> Block:
    """Returns the windows' records without unique_ids, small enough to send."""
    windows = [(one, window) for one in features for window in one.windows]
    input_ids = np.zeros((len(windows), max_seq_length), np.int32)
    places = np.zeros((len(windows), 6), np.int64)
    for row, (one, (start, length)) in enumerate(windows):
        offset = one.offset
        ids = one.paragraph.id_array[start : start + length]
        input_ids[row, 1 : offset - 1] = one.query_ids
        input_ids[row, offset : offset + length] = ids
        answer = one.answer or (-1, -1)
        places[row] = start, length, offset, *answer, one.question.is_impossible
    starts, lengths, offsets, first, last, is_impossible = places.T[:, :, None]
    vocabulary = features[0].paragraph.tokenizer.vocabulary
    input_ids[:, 0] = vocabulary.cls_id
    rows = np.arange(len(windows))[:, None]
    for place in (offsets - 1, offsets + lengths):
        input_ids[rows, place] = vocabulary.sep_id
    position = np.arange(max_seq_length)
    is_token = position <= offsets + lengths
    block = {
        "input_ids": input_ids,
        "input_mask": is_token.astype(np.int8),
        "segment_ids": (is_token & (position >= offsets)).astype(np.int8),
    }
    if for_training:
        # A window that does not show the whole answer has none.
        is_shown = (first >= starts) & (last < starts + lengths)
        to_record = offsets - starts
        block["start_positions"] = np.where(is_shown, first + to_record, 0)
        block["end_positions"] = np.where(is_shown, last + to_record, 0)
        block["is_impossible"] = is_impossible
    return block
