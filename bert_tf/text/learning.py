"""Learns a WordPiece vocabulary from text."""

import functools
import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from bert_tf.base.errors import InputError
from bert_tf.base.parallel import ordered_map
from bert_tf.text.documents import Chunk, read_chunk
from bert_tf.text.normalization import (
    SPLITTING_CONTROLS,
    is_cjk,
    is_punctuation,
    split_words,
)
from bert_tf.text.segmentation import NO_SEGMENTER, require_segmenter
from bert_tf.text.vocabulary import CLS, CONTINUATION, MASK, PAD, SEP, UNK, Vocabulary
from bert_tf.text.wordpiece import MAX_CHARACTERS_PER_WORD

# Runs of text are counted before they are cut into words, this many different runs at
# a time: most runs are frequent, and cutting is slow.
_RUNS_AT_A_TIME = 1 << 20


class WordCounts:
    """A table of words, of bounded size if wanted."""

    def __init__(self, max_words: int | None = None) -> None:
        self._max_words = max_words
        self.words: dict[str, int] = defaultdict(int)  # how often each occurs
        self._forgotten_characters: Counter[str] = Counter()
        self.num_forgotten = 0  # occurrences that were forgotten
        self.max_error = 0  # no word's count is too low by more than this

    @property
    def num_occurrences(self) -> int:
        """The number of words in the text, forgotten ones included."""
        return sum(self.words.values()) + self.num_forgotten

    def characters(self) -> Counter[str]:
        """Returns how often each character occurs, forgotten words included."""
        return _characters(self.words) + self._forgotten_characters

    def add_lines(
        self,
        lines: Iterable[str],
        do_lower_case: bool,
        segmenter: str = NO_SEGMENTER,
    ) -> None:
        """Counts the words of a text."""
        runs: Counter[str] = Counter()
        for line in lines:
            runs.update(SPLITTING_CONTROLS.sub("", line).split())
            if len(runs) >= _RUNS_AT_A_TIME:
                self._cut(runs, do_lower_case, segmenter)
                runs.clear()
        self._cut(runs, do_lower_case, segmenter)

    def add(self, other: "WordCounts") -> None:
        """Adds the counts of text that follows."""
        for word, count in other.words.items():
            self.words[word] += count
        self._forgotten_characters.update(other._forgotten_characters)
        self.num_forgotten += other.num_forgotten
        self.max_error += other.max_error
        self._forget()

    def _cut(
        self, runs: Mapping[str, int], do_lower_case: bool, segmenter: str
    ) -> None:
        words = self.words
        for run, count in runs.items():
            for word in split_words(run, do_lower_case, segmenter):
                words[word] += count
        self._forget()

    def _forget(self) -> None:
        if self._max_words is None or len(self.words) <= self._max_words:
            return
        left, highest = len(self.words), 0
        for count, num_words in sorted(Counter(self.words.values()).items()):
            if left <= self._max_words // 2:
                break
            highest = count
            left -= num_words
        forgotten = {w: count for w, count in self.words.items() if count <= highest}
        # A new table: deleting words would not make the old one smaller.
        kept = ((w, count) for w, count in self.words.items() if count > highest)
        self.words = defaultdict(int, kept)
        self._forgotten_characters.update(_characters(forgotten))
        self.num_forgotten += sum(forgotten.values())
        self.max_error += highest


def count_words(
    chunks: Sequence[Chunk],
    *,
    do_lower_case: bool,
    segmenter: str = NO_SEGMENTER,
    max_words: int | None = None,
    num_workers: int = 1,
) -> tuple[WordCounts, Counter[str]]:
    """Returns the words of a text, counted on several cores, and what was dropped."""
    require_segmenter(segmenter)
    counts = WordCounts(max_words)
    dropped: Counter[str] = Counter()
    results = ordered_map(
        functools.partial(_count_chunk, do_lower_case, segmenter, max_words),
        chunks,
        num_workers=max(1, min(num_workers, len(chunks))),
    )
    num_bytes = sum(chunk.num_bytes for chunk in chunks)
    with tqdm(
        total=num_bytes, desc="Counting words", unit="B", unit_scale=True, disable=None
    ) as bar:
        for chunk, (counted, dropped_of_chunk) in zip(chunks, results, strict=True):
            counts.add(counted)
            dropped.update(dropped_of_chunk)
            bar.update(chunk.num_bytes)
    return counts, dropped


def _count_chunk(
    do_lower_case: bool, segmenter: str, max_words: int | None, chunk: Chunk
) -> tuple[WordCounts, Counter[str]]:
    counts = WordCounts(max_words)
    dropped: Counter[str] = Counter()
    lines = (line.text for line in read_chunk(chunk, dropped))
    counts.add_lines(lines, do_lower_case, segmenter)
    return counts, dropped


def _characters(words: Mapping[str, int]) -> Counter[str]:
    # Most words share their count with many others.
    words_by_count: dict[int, list[str]] = defaultdict(list)
    for word, count in words.items():
        words_by_count[count].append(word)
    characters: Counter[str] = Counter()
    for count, some in words_by_count.items():
        for char, number in Counter("".join(some)).items():
            characters[char] += count * number
    return characters


# The two pieces that are most often next to each other are merged, repeatedly, in the
# different words with their counts (byte pair encoding, Sennrich et al. 2016,
# arXiv:1508.07909, section 3.2, with WordPiece's spelling). The most frequent pair is
# needed at every step:
#
# - The pairs that a new piece is part of are counted when it is made, at all places. A
#   piece is made once: two equal strings are cut in the same way, step by step, until
#   they are one piece or one of them has been merged with a neighbour.
# - So a pair's count only falls from then on, as its pieces merge with others. The
#   first count is an upper bound. The pair on top of a heap of bounds is the most
#   frequent one if it still has that count when it is counted again.
# - Pairs below a threshold are not tracked; when none is left above it, the
#   threshold falls and all pairs are counted again.
#
# The result is the same as if all pairs were counted before each merge. Ties are broken
# by spelling, so the same text gives the same vocabulary on every machine.

# Where no piece begins or ends.
_NONE = -1

# The ratio of a threshold to the next one. A smaller step counts all pairs more often,
# a larger one tracks more pairs that are never merged.
_THRESHOLD_STEP = 32

# How much of the row is sorted at a time.
_PLACES_AT_A_TIME = 1 << 23

_GAP = "\0"

Array = NDArray[np.integer]


class _Pair(NamedTuple):
    """Two adjacent pieces, and the places where the first one begins."""

    left: int
    right: int
    places: Array
    frequency: int


def merge_pieces(
    words: Mapping[str, int],
    alphabet: Collection[str],
    limit: int,
    *,
    min_frequency: int = 1,
) -> list[str]:
    """Returns the pieces made by merging the most frequent pairs, in that order."""
    spelled = _SpelledWords(words, alphabet, limit)
    # Each pair occurs once, so no comparison goes beyond the spellings.
    bounds: list[tuple[int, str, str, _Pair]] = []

    def look_after(pair: _Pair) -> None:
        spelling = spelled.pieces[pair.left], spelled.pieces[pair.right]
        heapq.heappush(bounds, (-pair.frequency, *spelling, pair))

    learned: list[str] = []
    thresholds = _thresholds(sum(words.values()), min_frequency)
    threshold = 0
    with tqdm(total=limit, desc="Merging", unit=" tokens", disable=None) as bar:
        while len(learned) < limit:
            if not bounds:
                threshold = next(thresholds, 0)
                if not threshold:
                    break
                for pair in spelled.all_pairs(threshold):
                    look_after(pair)
                continue
            bound = heapq.heappop(bounds)[-1]
            pair = spelled.count_again(bound)
            if pair.frequency == bound.frequency:
                piece, places = spelled.merge(pair)
                learned.append(spelled.pieces[piece])
                bar.update()
                for pair in spelled.pairs_with(piece, places, threshold):
                    look_after(pair)
            elif pair.frequency >= threshold:
                look_after(pair)
    assert len(set(learned)) == len(learned)
    return learned


def _thresholds(highest: int, lowest: int) -> Iterator[int]:
    threshold = highest // _THRESHOLD_STEP
    while threshold > lowest:
        yield threshold
        threshold //= _THRESHOLD_STEP
    yield lowest


class _SpelledWords:
    """The words in one row with gaps between them, cut into pieces."""

    def __init__(
        self, words: Mapping[str, int], alphabet: Collection[str], limit: int
    ) -> None:
        self.pieces = list(alphabet)  # their spellings; a piece is its index here
        starts = {piece for piece in self.pieces if len(piece) == 1}
        continuations = {
            piece.removeprefix(CONTINUATION)
            for piece in self.pieces
            if len(piece) > len(CONTINUATION)
        }
        merged = [
            word
            for word in words
            if 1 < len(word) <= MAX_CHARACTERS_PER_WORD
            and word[0] in starts
            and continuations.issuperset(word[1:])
        ]
        row = "".join(_GAP + word for word in merged) + _GAP
        characters = np.frombuffer(
            row.encode("utf-32-le", "surrogatepass"), dtype="<u4"
        )
        start_ids = np.full(characters.max() + 1, _NONE, np.int32)
        continuation_ids = start_ids.copy()
        for index, piece in enumerate(self.pieces):
            ids = start_ids if len(piece) == 1 else continuation_ids
            if ord(piece[-1]) < len(ids):
                ids[ord(piece[-1])] = index
        gaps = np.flatnonzero(characters == ord(_GAP))
        # The piece that begins at each place of the row, or none; and the piece that
        # ends there, if any.
        self._begins = continuation_ids[characters]
        self._begins[gaps[:-1] + 1] = start_ids[characters[gaps[:-1] + 1]]
        self._ends = self._begins.copy()
        # Which word each place belongs to, and how often each word occurs.
        self._words = np.cumsum(characters == ord(_GAP), dtype=np.int32) - 1
        self._counts = np.array([words[word] for word in merged], np.int64)
        self._place_type = np.int32 if len(row) < 1 << 31 else np.int64
        most = len(self.pieces) + min(limit, len(row))
        self._lengths = np.ones(most, self._place_type)

    def all_pairs(self, least: int) -> Iterator[_Pair]:
        """Yields the pairs that occur at least that often in the words."""
        # In parts, each for some of the left pieces: sorting takes much memory.
        num_parts = 1 + len(self._begins) // _PLACES_AT_A_TIME
        parts = np.arange(len(self.pieces) + 1) % num_parts
        parts[_NONE] = num_parts
        part_of_place = parts.astype(np.int32)[self._begins]
        for part in range(num_parts):
            places = np.flatnonzero(part_of_place == part).astype(self._place_type)
            left = self._begins[places]
            right = self._begins[places + self._lengths[left]]
            inside = right != _NONE
            keys = left[inside].astype(np.int64) * len(self.pieces) + right[inside]
            for key, found, count in self._groups(keys, places[inside], least):
                yield _Pair(*divmod(key, len(self.pieces)), found, count)

    def pairs_with(self, piece: int, places: Array, least: int) -> Iterator[_Pair]:
        """Yields the pairs that contain `piece`, given all places where it begins."""
        before = self._ends[places - 1]
        inside = before != _NONE
        before = before[inside]
        starts = places[inside] - self._lengths[before]
        for other, found, count in self._groups(before, starts, least):
            yield _Pair(other, piece, found, count)
        after = self._begins[places + self._lengths[piece]]
        # A piece next to itself was found before, from the right one.
        inside = (after != _NONE) & (after != piece)
        for other, found, count in self._groups(after[inside], places[inside], least):
            yield _Pair(piece, other, found, count)

    def count_again(self, pair: _Pair) -> _Pair:
        """Returns the pair with only those of its places where it still exists."""
        left, right, places, _ = pair
        places = places[self._begins[places] == left]
        places = places[self._begins[places + self._lengths[left]] == right]
        frequency = int(self._counts[self._words[places]].sum())
        return _Pair(left, right, places, frequency)

    def merge(self, pair: _Pair) -> tuple[int, Array]:
        """Merges a pair wherever it occurs; returns the new piece and its places."""
        left, right, places, _ = pair
        if left == right:
            places = _without_overlaps(places, int(self._lengths[left]))
        piece = len(self.pieces)
        continuation = self.pieces[right].removeprefix(CONTINUATION)
        self.pieces.append(self.pieces[left] + continuation)
        self._lengths[piece] = self._lengths[left] + self._lengths[right]
        self._begins[places + self._lengths[left]] = _NONE
        self._begins[places] = piece
        self._ends[places + self._lengths[piece] - 1] = piece
        return piece, places

    def _groups(
        self, keys: Array, places: Array, least: int
    ) -> Iterator[tuple[int, Array, int]]:
        """Yields each key that occurs at least that often, its places and its count."""
        if not len(keys):
            return
        order = np.argsort(keys)
        keys, places = keys[order], places[order]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        ends = np.append(starts[1:], len(keys))
        counts = np.add.reduceat(self._counts[self._words[places]], starts)
        kept = counts >= least
        for start, end, count in zip(
            starts[kept].tolist(),
            ends[kept].tolist(),
            counts[kept].tolist(),
            strict=True,
        ):
            yield int(keys[start]), np.sort(places[start:end]), count


def _without_overlaps(places: Array, length: int) -> Array:
    """Returns every second place in runs of a piece next to itself ("aaaa")."""
    indices = np.arange(len(places))
    is_start = np.append(True, places[1:] != places[:-1] + length)
    starts = np.maximum.accumulate(np.where(is_start, indices, 0))
    return places[(indices - starts) % 2 == 0]


def learn_vocabulary(
    lines: Iterable[str],
    *,
    vocab_size: int,
    do_lower_case: bool = True,
    segmenter: str = NO_SEGMENTER,
    num_unused: int = 0,
    **settings: Any,
) -> Vocabulary:
    """Learns a vocabulary of `vocab_size` tokens; settings: see `learn_from_counts`."""
    first_tokens(vocab_size, num_unused)  # rejects a wrong size before the work
    require_segmenter(segmenter)
    counts = WordCounts()
    counts.add_lines(lines, do_lower_case, segmenter)
    return learn_from_counts(
        counts, vocab_size=vocab_size, num_unused=num_unused, **settings
    )


def learn_from_counts(
    counts: WordCounts,
    *,
    vocab_size: int,
    fewer_tokens: bool = False,
    num_unused: int = 0,
    min_frequency: int = 2,
    character_coverage: float = 0.9999,
) -> Vocabulary:
    """Learns a vocabulary from a text whose words have been counted.

    A text that supports fewer tokens raises InputError unless `fewer_tokens` is true.

    The order is the released vocabularies': [PAD], [unused0] and so on, [UNK], [CLS],
    [SEP], [MASK], then the characters, then the pieces, the most frequent first.
    """
    tokens = first_tokens(vocab_size, num_unused)
    if not counts.num_occurrences:
        raise InputError("The text to learn a vocabulary from must have words in it.")
    room = vocab_size - len(tokens)
    alphabet = _alphabet(counts.characters(), character_coverage, room)
    tokens += alphabet
    tokens += merge_pieces(
        counts.words, alphabet, vocab_size - len(tokens), min_frequency=min_frequency
    )
    if len(tokens) < vocab_size and not fewer_tokens:
        raise InputError(
            f"`vocab_size` must be at most {len(tokens)}, which is all that this text "
            f"supports; give more text or a smaller size. Received: {vocab_size}"
        )
    return Vocabulary(tokens)


def first_tokens(vocab_size: int, num_unused: int) -> list[str]:
    """Returns the tokens at the beginning of every vocabulary."""
    unused = [f"[unused{index}]" for index in range(num_unused)]
    tokens = [PAD, *unused, UNK, CLS, SEP, MASK]
    if vocab_size <= len(tokens):
        raise InputError(
            f"vocab_size must exceed the {len(tokens)} special and unused tokens. "
            f"Received: {vocab_size}"
        )
    return tokens


def count_unknown(counts: WordCounts, vocabulary: Vocabulary) -> int:
    """Returns how many words become [UNK]: too long, or with an unknown character."""
    starts = {token for token in vocabulary if len(token) == 1}
    pieces = {token[2:] for token in vocabulary if token.startswith(CONTINUATION)}
    return sum(
        count
        for word, count in counts.words.items()
        if len(word) > MAX_CHARACTERS_PER_WORD
        or word[0] not in starts
        or not pieces.issuperset(word[1:])
    )


def _alphabet(counts: Counter[str], coverage: float, limit: int) -> list[str]:
    """Returns the characters' tokens: starts of words, then continuations."""
    wanted = coverage * counts.total()
    starts: list[str] = []
    continuations: list[str] = []
    covered = 0
    for char in sorted(counts, key=lambda char: (-counts[char], char)):
        room = limit - len(starts) - len(continuations)
        if covered >= wanted or not room:
            break
        covered += counts[char]
        starts.append(char)
        # Ideographs and punctuation are words of one character, without continuations.
        if room > 1 and not (is_cjk(char) or is_punctuation(char)):
            continuations.append(CONTINUATION + char)
    return sorted(starts) + sorted(continuations)
