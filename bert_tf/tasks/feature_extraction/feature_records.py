"""Lines of text as a model's inputs, and the model's vectors for them.

`features` defines lines, and which parts of a line have vectors.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.base.parallel import grouped
from bert_tf.records.batching import (
    Arrays,
    Batching,
    ExampleTable,
    Predict,
    predict_groups,
)
from bert_tf.records.spec import INT64, Feature, RecordSpec
from bert_tf.text.documents import lines_of, read_blocks
from bert_tf.text.normalization import SPLITTING_CONTROLS
from bert_tf.text.wordpiece import WordPieceTokenizer, truncate_pair

# Vectors of a whole line.
POOLED, CLS, MEAN_OF_TOKENS, MAX_OF_TOKENS = "pooled", "cls", "mean", "max"
SENTENCE_VECTORS = (POOLED, CLS, MEAN_OF_TOKENS, MAX_OF_TOKENS)
# The vector of a word, made from its pieces'.
FIRST_PIECE, MEAN_OF_PIECES = "first", "mean"

VECTORS = "vectors"

_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")
# Python also splits at some control characters that the tokenizer removes.
_WORD = re.compile(rf"(?:\S|{SPLITTING_CONTROLS.pattern})+")

Spans = list[tuple[int, int]]


class Line(NamedTuple):
    """A line's text, or two texts."""

    text_a: str
    text_b: str = ""


class FeatureInput(NamedTuple):
    """The model's input, and the parts of it that get a vector."""

    ids: Sequence[int]  # [CLS] and [SEP] included
    segment_ids: Sequence[int]
    names: Sequence[str] = ()  # the token or word of each vector
    # Half-open ranges of the words' pieces; None: every token has a vector.
    spans: Spans | None = None
    is_cut: bool = False  # whether tokens were cut off

    @property
    def num_vectors(self) -> int:
        """The number of tokens or words with a vector."""
        return len(self.ids if self.spans is None else self.spans)


def parse_line(text: str) -> Line:
    """Returns a line, parsed as in the original."""
    text = text.strip()
    pair = _PAIR.match(text)
    return Line(text) if pair is None else Line(pair[1], pair[2])


def read_lines(path: str) -> Iterator[Line]:
    """Yields the lines of a file, compressed (.gz, .bz2, .xz) or not."""
    for block in read_blocks(path):
        for text in lines_of(block, path, keep_mark=False):
            yield parse_line(text)


def count_lines(path: str) -> int:
    """Returns a file's number of lines; reads all, so that errors appear early."""
    if not files.can_be_read_again(path):
        raise InputError(
            f"The input must be an existing file, no folder or pipe: {path}"
        )
    return sum(
        len(lines_of(block, path, dropped=Counter())) for block in read_blocks(path)
    )


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureReader:
    """Makes the model's inputs from lines, with a vector for each token or word."""

    tokenizer: WordPieceTokenizer
    _: dataclasses.KW_ONLY
    max_seq_length: int
    by_word: bool = False

    def __post_init__(self) -> None:
        if self.max_seq_length < 5:
            raise InputError(
                "`max_seq_length` must be at least 5, so that there is room for a pair."
                f" Received: {self.max_seq_length}"
            )

    def __call__(self, lines: Iterable[Line]) -> Iterator[FeatureInput]:
        """Yields every line's input, cut to `max_seq_length` tokens."""
        for line in lines:
            if self.by_word:
                yield self._by_words(line)
                continue
            found, _ = self._assembled(*map(self.tokenizer.encode, line))
            names = self.tokenizer.convert_ids_to_tokens(found.ids)
            yield found._replace(names=names)

    def _by_words(self, line: Line) -> FeatureInput:
        unknown = [self.tokenizer.vocabulary.unk_id]
        words = [_WORD.findall(text) for text in line]
        # No rule of the tokenizer looks past a space.
        pieces = [[self.tokenizer.encode(w) or unknown for w in some] for some in words]
        found, lengths = self._assembled(*(list(itertools.chain(*p)) for p in pieces))
        kept: list[str] = []
        spans: Spans = []
        begin = 1  # after [CLS]
        for some, ids_of_words, length in zip(words, pieces, lengths, strict=True):
            end, start = begin + length, begin
            for word, word_ids in zip(some, ids_of_words, strict=True):
                if start >= end:
                    break
                kept.append(word)
                spans.append((start, min(start + len(word_ids), end)))
                start += len(word_ids)
            begin = end + 1  # after [SEP]
        return found._replace(names=kept, spans=spans)

    def _assembled(
        self, ids_a: list[int], ids_b: list[int]
    ) -> tuple[FeatureInput, tuple[int, int]]:
        """Returns the input without names, and the remaining tokens of both texts."""
        room = self.max_seq_length - (3 if ids_b else 2)
        left_a, left_b = truncate_pair(ids_a, ids_b, room)
        lengths = len(left_a), len(left_b)
        vocabulary = self.tokenizer.vocabulary
        ids = [vocabulary.cls_id, *left_a, vocabulary.sep_id]
        segment_ids = [0] * len(ids)
        if ids_b:
            ids += [*left_b, vocabulary.sep_id]
            segment_ids += [1] * (lengths[1] + 1)
        is_cut = sum(lengths) < len(ids_a) + len(ids_b)
        return FeatureInput(ids, segment_ids, is_cut=is_cut), lengths


INPUTS_AT_ONCE = 4096
# 128 MB of float32.
VALUES_AT_ONCE = 1 << 25


class Features(NamedTuple):
    """The features of an input, float32."""

    input: FeatureInput
    vectors: np.ndarray | None  # [n, L, W] of its n tokens or words, if requested
    sentence: dict[str, np.ndarray]  # `pooled` [H], `cls` and `mean` [L, W]


def _of_names(
    states: np.ndarray, inputs: FeatureInput, word_vectors: str
) -> np.ndarray:
    """Returns the vectors of an input's tokens or words, from all positions'."""
    if inputs.spans is None:
        return states[: len(inputs.ids)].copy()
    spans = np.array(inputs.spans, np.int64).reshape(-1, 2)
    starts, ends = spans.T
    if word_vectors == FIRST_PIECE or not len(spans):
        return states[starts]
    # Between two words there may be [SEP], so every second sum is a word's.
    bounds = spans.reshape(-1)
    if bounds[-1] == len(states):
        bounds = bounds[:-1]
    sums = np.add.reduceat(states, bounds, axis=0)[::2]
    return sums / (ends - starts).astype(np.float32)[:, None, None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSettings(Batching):
    """The vectors to compute, and how."""

    token_vectors: bool = True
    sentence_vectors: tuple[str, ...] = ()
    normalizes: bool = False  # whether sentence vectors have length 1
    word_vectors: str = FIRST_PIECE  # for inputs with words
    precision: str = "float32"
    jit_compile: bool = False


def extract(
    inputs: Iterable[FeatureInput],
    predict: Predict,
    options: FeatureSettings,
    *,
    values_per_token: int,
    num_inputs: int = 0,
) -> Iterator[Features]:
    """Yields inputs' features, in order; `predict` runs `features.feature_model`."""
    tokens_at_once = max(
        options.max_seq_length, VALUES_AT_ONCE // max(values_per_token, 1)
    )

    def keep(
        group: list[FeatureInput], row: int, place: int, batch: Arrays, outputs: Arrays
    ) -> Features:
        vectors = outputs.get(VECTORS)
        if vectors is not None:
            vectors = _of_names(vectors[place], group[row], options.word_vectors)
        # Copies: a view would keep the batch.
        sentence = {
            name: values[place].copy()
            for name, values in sorted(outputs.items())
            if name != VECTORS
        }
        return Features(group[row], vectors, sentence)

    # Short inputs are counted as longer, so that a group does not have too many.
    least = tokens_at_once // INPUTS_AT_ONCE
    some = grouped(inputs, tokens_at_once, lambda one: max(least, len(one.ids)))
    groups = ((group, _table(group)) for group in some)
    for _, found in predict_groups(groups, predict, keep, options, num_inputs):
        yield from found


def _table(group: Sequence[FeatureInput]) -> ExampleTable:
    """Returns the model's inputs of a group, in memory."""
    keys = ("input_ids", "input_mask", "segment_ids")
    longest = max(len(each.ids) for each in group)
    block = {key: np.zeros([len(group), longest], np.int32) for key in keys}
    for row, each in enumerate(group):
        length = len(each.ids)
        block["input_ids"][row, :length] = each.ids
        block["input_mask"][row, :length] = 1
        block["segment_ids"][row, :length] = each.segment_ids
    features = [Feature(key, INT64, (longest,), "max_seq_length") for key in keys]
    return ExampleTable([block], RecordSpec(features))
