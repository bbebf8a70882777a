r"""Lines of text as the model reads them, and the tokens or words that get a vector.

An input file has one text a line, or two with " ||| " between them, as the original's:
a line is stripped, and of several " ||| " the last one counts. A text is [CLS] A [SEP],
a pair [CLS] A [SEP] B [SEP]; what is too long is cut at the end, of a pair the longer
text token by token.

By token, every token has a vector, [CLS] and [SEP] too, as in the original. By word,
each word of the line has one, where words are what stands between white space: that of
its first piece, or the mean of its pieces'. A word that the tokenizer makes nothing of,
such as a lone control character, is read as [UNK], so that there are as many vectors as
words. A word has a vector if its first piece was not cut off.
"""

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.text import blocks
from bert_tf.text.normalization import SPLITTING_CONTROLS
from bert_tf.text.wordpiece import WordPieceTokenizer

_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")
# Python splits at some controls too that the tokenizer removes.
_WORD = re.compile(rf"(?:\S|{SPLITTING_CONTROLS.pattern})+")

Spans = list[tuple[int, int]]


class Line(NamedTuple):
    """A line's text, or two.

    Attributes:
        text_a: the first one.
        text_b: the second one; "" where there is none.
    """

    text_a: str
    text_b: str = ""


class FeatureInput(NamedTuple):
    """What the model reads, and what of it gets a vector.

    Attributes:
        ids: the tokens' ids, [CLS] and [SEP] included.
        segment_ids: 0 or 1 for each of them.
        names: the token, or word, that each vector is of.
        spans: of each word, the positions of its pieces, half open; None where each
            token has a vector.
        is_cut: whether tokens were cut off.
    """

    ids: Sequence[int]
    segment_ids: Sequence[int]
    names: Sequence[str] = ()
    spans: Spans | None = None
    is_cut: bool = False

    @property
    def num_vectors(self) -> int:
        """How many tokens or words have one."""
        return len(self.ids if self.spans is None else self.spans)


def read_lines(path: str) -> Iterator[Line]:
    """Yields the lines of a file, packed (.gz, .bz2, .xz) or not.

    Raises:
        InputError: no such file, or it is not UTF-8 (names the line), or damaged.
    """
    _require_file(path)
    for block in blocks.read_blocks(path):
        for text in blocks.lines(block, path, keep_mark=False):
            yield parse_line(text)


def count_lines(path: str) -> int:
    """How many lines a file has; reads it through, so that a fault shows early.

    Raises:
        InputError: as `read_lines`.
    """
    _require_file(path)
    return sum(len(blocks.lines(block, path)) for block in blocks.read_blocks(path))


def _require_file(path: str) -> None:
    if not files.exists(path):
        raise InputError(f"No such input file: {path}")
    if files.is_folder(path):
        raise InputError(f"The input file is a folder, not a file: {path}")
    if not files.is_remote(path) and not os.path.isfile(path):
        raise InputError(
            f"The input file is read more than once, so it cannot be a pipe: {path}."
            " Save it to a file."
        )


def parse_line(text: str) -> Line:
    """A line as the original reads it."""
    text = text.strip()
    pair = _PAIR.match(text)
    return Line(text) if pair is None else Line(pair[1], pair[2])


class FeatureReader:
    """Makes the model's input from lines.

    Args:
        tokenizer: the model's.
        max_seq_length: the most tokens, the special ones included.
        by_word: whether words have vectors, rather than tokens.

    Raises:
        InputError: there is no room for a token of each text.
    """

    def __init__(
        self,
        tokenizer: WordPieceTokenizer,
        *,
        max_seq_length: int,
        by_word: bool = False,
    ) -> None:
        if max_seq_length < 5:
            raise InputError(
                "--max_seq_length must be at least 5: [CLS], [SEP] and [SEP] of a pair,"
                f" and a token of each text. Received: {max_seq_length}"
            )
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._by_word = by_word

    def __call__(self, lines: Iterable[Line]) -> Iterator[FeatureInput]:
        """Yields the input of each line."""
        return map(self._by_words if self._by_word else self._by_tokens, lines)

    def _by_tokens(self, line: Line) -> FeatureInput:
        ids_a = self._tokenizer.encode(line.text_a)
        ids_b = self._tokenizer.encode(line.text_b)
        ids, segment_ids, is_cut, _ = self._assembled(ids_a, ids_b)
        names = self._tokenizer.convert_ids_to_tokens(ids)
        return FeatureInput(ids, segment_ids, names, None, is_cut)

    def _by_words(self, line: Line) -> FeatureInput:
        texts = [self._words(text) for text in line]
        pieces = [list(itertools.chain(*ids)) for _, ids in texts]
        ids, segment_ids, is_cut, lengths = self._assembled(*pieces)
        names: list[str] = []
        spans: Spans = []
        begin = 1  # behind [CLS]
        for (words, ids_of_words), length in zip(texts, lengths, strict=True):
            end, start = begin + length, begin
            for word, word_ids in zip(words, ids_of_words, strict=True):
                if start >= end:
                    break
                names.append(word)
                spans.append((start, min(start + len(word_ids), end)))
                start += len(word_ids)
            begin = end + 1  # behind [SEP]
        return FeatureInput(ids, segment_ids, names, spans, is_cut)

    def _words(self, text: str) -> tuple[list[str], list[list[int]]]:
        """The words and their pieces: no rule of the tokenizer looks past a space."""
        words = _WORD.findall(text)
        unknown = [self._tokenizer.vocabulary.unk_id]
        return words, [self._tokenizer.encode(word) or unknown for word in words]

    def _assembled(
        self, ids_a: list[int], ids_b: list[int]
    ) -> tuple[list[int], list[int], bool, tuple[int, int]]:
        """Ids, segments, whether they were cut, and what is left of either text."""
        room = self._max_seq_length - (3 if ids_b else 2)
        length_a, length_b = kept_of_pair(len(ids_a), len(ids_b), room)
        is_cut = length_a + length_b < len(ids_a) + len(ids_b)
        vocabulary = self._tokenizer.vocabulary
        ids = [vocabulary.cls_id, *ids_a[:length_a], vocabulary.sep_id]
        segment_ids = [0] * len(ids)
        if ids_b:
            ids += [*ids_b[:length_b], vocabulary.sep_id]
            segment_ids += [1] * (length_b + 1)
        return ids, segment_ids, is_cut, (length_a, length_b)


def kept_of_pair(length_a: int, length_b: int, room: int) -> tuple[int, int]:
    """How many tokens of either text are kept, the longer one giving way.

    At equal lengths the second one does, so that the first one has the odd token.

    Args:
        length_a: tokens of the first text.
        length_b: tokens of the second text; 0 for none.
        room: the most tokens of both together.
    """
    if length_a + length_b <= room:
        return length_a, length_b
    # The shorter one is cut only when both have come down to half of the room.
    kept_b = min(length_b, max(room - length_a, room // 2))
    return room - kept_b, kept_b
