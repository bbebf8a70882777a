"""Merging the two pieces that stand side by side most often, again and again.

Only the different words are kept, each with how often it occurs. Byte pair encoding
asks at every step for the most frequent pair, so pairs are looked after as follows.

- Which pairs a new piece is part of is counted when it is made, at all its places. A
  piece is made once: two equal strings are cut in the same way, step by step, until
  they are one piece or one of them has been merged with what is beside it.
- So a pair's count only falls from then on, as its pieces merge with others. What was
  counted first is a bound, and a heap of bounds has the most frequent pair on top as
  soon as the bound on top, counted again, turns out to hold.
- Pairs below a threshold are not looked after at all; when none is left above it, the
  threshold falls and all pairs are counted again. That keeps a table of thousands of
  pairs where there are millions, and does not change which one is the most frequent.

So each step is a few operations on arrays, and the result is that of counting all
pairs before each merge. Ties are broken by spelling.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bert_tf.text.wordpiece import CONTINUATION, MAX_CHARACTERS_PER_WORD

# Where no piece begins or ends.
_NONE = -1

# A threshold and the next one. A smaller step counts all pairs more often, a larger
# one looks after more pairs that are never merged.
_THRESHOLD_STEP = 32

# How much of the row is sorted at a time.
_PLACES_AT_A_TIME = 1 << 23

_GAP = "\0"

Array = NDArray[np.integer]


class _Pair(NamedTuple):
    """Two pieces side by side, and the places where the first one begins."""

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
    progress: Callable[[int], object] = lambda _: None,
) -> list[str]:
    """The pieces that merging the most frequent pair gives, in the order of merging."""
    spelled = _SpelledWords(words, alphabet, limit)
    # Each pair is there once, so no comparison goes on behind the spellings.
    bounds: list[tuple[int, str, str, _Pair]] = []

    def look_after(pair: _Pair) -> None:
        spelling = spelled.pieces[pair.left], spelled.pieces[pair.right]
        heapq.heappush(bounds, (-pair.frequency, *spelling, pair))

    learned: list[str] = []
    thresholds = _thresholds(sum(words.values()), min_frequency)
    threshold = 0
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
            progress(1)
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
    """The words in one row with gaps between them, cut into pieces.

    Attributes:
        pieces: the pieces' spellings; a piece is its index here.
    """

    def __init__(
        self, words: Mapping[str, int], alphabet: Collection[str], limit: int
    ) -> None:
        self.pieces = list(alphabet)
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
        # The piece that begins at each place of the row, or none; and the one that ends
        # there, where one does.
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
        """The pairs that stand in the words at least so often."""
        # In parts, those of some left pieces at a time: sorting takes much memory.
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
        """Those of them that `piece` is part of, given all the places it begins at."""
        before = self._ends[places - 1]
        inside = before != _NONE
        before = before[inside]
        starts = places[inside] - self._lengths[before]
        for other, found, count in self._groups(before, starts, least):
            yield _Pair(other, piece, found, count)
        after = self._begins[places + self._lengths[piece]]
        # The piece beside itself was found from its right one.
        inside = (after != _NONE) & (after != piece)
        for other, found, count in self._groups(after[inside], places[inside], least):
            yield _Pair(piece, other, found, count)

    def count_again(self, pair: _Pair) -> _Pair:
        """The pair with those of its places where it still stands."""
        left, right, places, _ = pair
        places = places[self._begins[places] == left]
        places = places[self._begins[places + self._lengths[left]] == right]
        frequency = int(self._counts[self._words[places]].sum())
        return _Pair(left, right, places, frequency)

    def merge(self, pair: _Pair) -> tuple[int, Array]:
        """Makes one piece of a pair at all the places where it stands."""
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
        """Each key that counts at least so often, with its places and its count."""
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
    """Of a piece beside itself ("aaaa"), each second place of a run, from the left."""
    indices = np.arange(len(places))
    is_start = np.append(True, places[1:] != places[:-1] + length)
    starts = np.maximum.accumulate(np.where(is_start, indices, 0))
    return places[(indices - starts) % 2 == 0]
