"""Learning a WordPiece vocabulary from text.

The text is cut into words by the tokenizer's own rules. The vocabulary begins as the
characters, each as a word's start ("a") and as its continuation ("##a"); then the two
neighbouring pieces that stand side by side most often become one new piece, again and
again until the vocabulary is full (byte pair encoding, Sennrich et al. 2016,
arXiv:1508.07909, section 3.2, with WordPiece's spelling). Ties are broken by spelling,
so the same text gives the same vocabulary on every machine.

The work is on the different words, not on the text: 4 MB of English take a few seconds.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from bert_tf.errors import InputError
from bert_tf.text.normalization import (
    SPLITTING_CONTROLS,
    is_cjk,
    is_punctuation,
    split_words,
)
from bert_tf.text.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary
from bert_tf.text.wordpiece import CONTINUATION, MAX_CHARACTERS_PER_WORD

# Runs of text are counted before they are cut into words, this many different ones at
# a time: most runs are frequent, and cutting is the slow part.
_RUNS_AT_A_TIME = 1 << 20

Pair = tuple[str, str]


def learn_vocabulary(
    lines: Iterable[str],
    *,
    vocab_size: int,
    do_lower_case: bool = True,
    num_unused: int = 0,
    min_frequency: int = 2,
    character_coverage: float = 0.9999,
) -> Vocabulary:
    """Learns a vocabulary of exactly `vocab_size` tokens.

    The order is that of the released ones: [PAD], [unused0] and so on, [UNK], [CLS],
    [SEP], [MASK], then the characters, then the pieces, frequent ones first.

    Args:
        lines: the text.
        vocab_size: how many tokens the vocabulary is to have, special tokens included.
        do_lower_case: as for the tokenizer that will use the vocabulary.
        num_unused: how many places to leave for tokens of one's own.
        min_frequency: how often two pieces must stand side by side to become one.
        character_coverage: the share of the text's characters that the vocabulary must
            be able to spell. The rarest ones are left out, and words with them become
            [UNK]; so are those that do not fit into `vocab_size`.

    Returns:
        The vocabulary.

    Raises:
        InputError: the text has too few words for so many tokens (names the size that
            it supports), or `vocab_size` leaves room for none of them.
    """
    words = count_words(lines, do_lower_case)
    if not words:
        raise InputError("The text to learn a vocabulary from must have words in it.")
    unused = [f"[unused{index}]" for index in range(num_unused)]
    tokens = [PAD, *unused, UNK, CLS, SEP, MASK]
    room = vocab_size - len(tokens)
    if room < 1:
        raise InputError(
            f"vocab_size must exceed the {len(tokens)} special and unused tokens. "
            f"Received: {vocab_size}"
        )
    alphabet = _alphabet(words, character_coverage, room)
    tokens.extend(alphabet)
    tokens.extend(
        _merge(words, set(alphabet), vocab_size - len(tokens), max(1, min_frequency))
    )
    if len(tokens) < vocab_size:
        raise InputError(
            f"vocab_size must be at most {len(tokens)}, which is all that this text "
            f"supports; give more text or a smaller size. Received: {vocab_size}"
        )
    return Vocabulary(tokens)


def count_words(lines: Iterable[str], do_lower_case: bool) -> dict[str, int]:
    """How often each word, as the tokenizer sees words, occurs in the text."""
    words: dict[str, int] = defaultdict(int)
    runs: Counter[str] = Counter()

    def cut_runs() -> None:
        for run, count in runs.items():
            for word in split_words(run, do_lower_case):
                words[word] += count
        runs.clear()

    for line in lines:
        runs.update(SPLITTING_CONTROLS.sub("", line).split())
        if len(runs) >= _RUNS_AT_A_TIME:
            cut_runs()
    cut_runs()
    return dict(words)


def _alphabet(words: Mapping[str, int], coverage: float, limit: int) -> list[str]:
    """The characters' tokens: the starts of words, then the continuations."""
    counts: dict[str, int] = defaultdict(int)
    for word, count in words.items():
        for char in word:
            counts[char] += count
    wanted = coverage * sum(counts.values())
    starts: list[str] = []
    continuations: list[str] = []
    covered = 0
    for char in sorted(counts, key=lambda char: (-counts[char], char)):
        room = limit - len(starts) - len(continuations)
        if covered >= wanted or not room:
            break
        covered += counts[char]
        starts.append(char)
        # Ideographs and punctuation are words of one character and go on with none.
        if room > 1 and not (is_cjk(char) or is_punctuation(char)):
            continuations.append(CONTINUATION + char)
    return sorted(starts) + sorted(continuations)


def _merge(
    words: Mapping[str, int], alphabet: set[str], limit: int, min_frequency: int
) -> list[str]:
    """The pieces that merging the most frequent pair gives, at most `limit`."""
    spellings: list[list[str]] = []
    counts: list[int] = []
    for word, count in words.items():
        if 1 < len(word) <= MAX_CHARACTERS_PER_WORD:
            spelling = [word[0], *(CONTINUATION + char for char in word[1:])]
            if alphabet.issuperset(spelling):
                spellings.append(spelling)
                counts.append(count)

    frequency: dict[Pair, int] = defaultdict(int)
    where: dict[Pair, set[int]] = defaultdict(set)
    for index, spelling in enumerate(spellings):
        for pair in pairwise(spelling):
            frequency[pair] += counts[index]
            where[pair].add(index)

    # A frequency in the heap may be out of date: only rises are pushed, falls are
    # found out when the pair comes up.
    heap = [(-count, pair) for pair, count in frequency.items()]
    heapq.heapify(heap)
    pieces: dict[str, None] = {}
    while heap and len(pieces) < limit:
        negative, pair = heapq.heappop(heap)
        count = frequency[pair]
        if count != -negative:
            if 0 < count < -negative:
                heapq.heappush(heap, (-count, pair))
            continue
        if count < min_frequency:
            break
        piece = pair[0] + pair[1][len(CONTINUATION) :]
        # Two ways of spelling one piece both merge, and make one token.
        pieces[piece] = None
        risen: set[Pair] = set()
        for index in where.pop(pair):
            before = spellings[index]
            after = _merge_pair(before, pair, piece)
            spellings[index] = after
            for old in pairwise(before):
                frequency[old] -= counts[index]
            for new in pairwise(after):
                frequency[new] += counts[index]
                if piece in new:
                    where[new].add(index)
                    risen.add(new)
        for new in risen:
            heapq.heappush(heap, (-frequency[new], new))
    return list(pieces)


def _merge_pair(spelling: list[str], pair: Pair, piece: str) -> list[str]:
    merged: list[str] = []
    position = 0
    last = len(spelling) - 1
    while position <= last:
        if (
            position < last
            and spelling[position] == pair[0]
            and spelling[position + 1] == pair[1]
        ):
            merged.append(piece)
            position += 2
        else:
            merged.append(spelling[position])
            position += 1
    return merged
