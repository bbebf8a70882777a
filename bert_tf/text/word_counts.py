"""How often each word occurs in a text of any size.

A word is what the tokenizer sees as one. All of them are kept, unless there are more
different ones than the memory is meant to hold: then the rarest so far are forgotten.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from bert_tf.parallel import ordered_map
from bert_tf.text.normalization import SPLITTING_CONTROLS, split_words
from bert_tf.text.readers import read_chunk
from bert_tf.text.sources import Chunk

# Runs of text are counted before they are cut into words, this many different ones at
# a time: most runs are frequent, and cutting is the slow part.
_RUNS_AT_A_TIME = 1 << 20


class WordCounts:
    """A table of words, of bounded size if wanted.

    As soon as it holds more than `max_words` different words, those that were counted
    once are forgotten, then those counted twice and so on, until at most half as many
    are left. A forgotten word that occurs again begins at 0 (Manku and Motwani 2002,
    Approximate Frequency Counts over Data Streams). What is forgotten depends on the
    text and its order alone; the counts of characters stay exact.

    Attributes:
        num_forgotten: occurrences that were forgotten.
        max_error: no word's count is too low by more than this.
    """

    def __init__(self, max_words: int | None = None) -> None:
        """An empty table."""
        self._max_words = max_words
        self._words: dict[str, int] = defaultdict(int)
        self._forgotten_characters: Counter[str] = Counter()
        self.num_forgotten = 0
        self.max_error = 0

    @property
    def words(self) -> Mapping[str, int]:
        """How often each word occurs."""
        return self._words

    @property
    def num_occurrences(self) -> int:
        """All words of the text, those that were forgotten as well."""
        return sum(self._words.values()) + self.num_forgotten

    def characters(self) -> Counter[str]:
        """How often each character occurs, in forgotten words as well."""
        return _characters(self._words) + self._forgotten_characters

    def add_lines(self, lines: Iterable[str], do_lower_case: bool) -> None:
        """Counts the words of a text."""
        runs: Counter[str] = Counter()
        for line in lines:
            runs.update(SPLITTING_CONTROLS.sub("", line).split())
            if len(runs) >= _RUNS_AT_A_TIME:
                self._cut(runs, do_lower_case)
                runs.clear()
        self._cut(runs, do_lower_case)

    def add(self, other: "WordCounts") -> None:
        """Adds the counts of the text that follows."""
        for word, count in other.words.items():
            self._words[word] += count
        self._forgotten_characters.update(other._forgotten_characters)
        self.num_forgotten += other.num_forgotten
        self.max_error += other.max_error
        self._forget()

    def _cut(self, runs: Mapping[str, int], do_lower_case: bool) -> None:
        words = self._words
        for run, count in runs.items():
            for word in split_words(run, do_lower_case):
                words[word] += count
        self._forget()

    def _forget(self) -> None:
        if self._max_words is None or len(self._words) <= self._max_words:
            return
        different = Counter(self._words.values())
        left = len(self._words)
        highest = 0
        for count in sorted(different):
            if left <= self._max_words // 2:
                break
            highest = count
            left -= different[count]
        forgotten = {w: count for w, count in self._words.items() if count <= highest}
        for word in forgotten:
            del self._words[word]
        # A table that only had words deleted from it keeps its size.
        self._words = defaultdict(int, self._words)
        self._forgotten_characters.update(_characters(forgotten))
        self.num_forgotten += sum(forgotten.values())
        self.max_error += highest


def count_words(
    chunks: Sequence[Chunk],
    *,
    do_lower_case: bool,
    max_words: int | None = None,
    num_workers: int = 1,
    progress: Callable[[int], object] = lambda _: None,
) -> tuple[WordCounts, Counter[str]]:
    """Counts the words of a text on several cores."""
    counts = WordCounts(max_words)
    dropped: Counter[str] = Counter()
    results = ordered_map(
        _CountChunk(do_lower_case, max_words),
        chunks,
        num_workers=max(1, min(num_workers, len(chunks))),
    )
    for chunk, (counts_of_chunk, dropped_of_chunk) in zip(chunks, results, strict=True):
        counts.add(counts_of_chunk)
        dropped.update(dropped_of_chunk)
        progress(chunk.num_bytes)
    return counts, dropped


@dataclasses.dataclass(frozen=True)
class _CountChunk:
    """What a worker does."""

    do_lower_case: bool
    max_words: int | None

    def __call__(self, chunk: Chunk) -> tuple[WordCounts, Counter[str]]:
        counts = WordCounts(self.max_words)
        dropped: Counter[str] = Counter()
        lines = (line.text for line in read_chunk(chunk, dropped))
        counts.add_lines(lines, self.do_lower_case)
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
