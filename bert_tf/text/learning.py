"""Learning a WordPiece vocabulary from text.

The text is cut into words by the tokenizer's own rules. The vocabulary begins as the
characters, each as a word's start ("a") and as its continuation ("##a"); then the two
neighbouring pieces that stand side by side most often become one new piece, again and
again until the vocabulary is full (byte pair encoding, Sennrich et al. 2016,
arXiv:1508.07909, section 3.2, with WordPiece's spelling). Ties are broken by spelling,
so the same text gives the same vocabulary on every machine.

The text is read once, and only its different words are held in memory.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from bert_tf.errors import InputError
from bert_tf.text.merging import merge_pieces
from bert_tf.text.normalization import is_cjk, is_punctuation
from bert_tf.text.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary
from bert_tf.text.word_counts import WordCounts
from bert_tf.text.wordpiece import CONTINUATION, MAX_CHARACTERS_PER_WORD


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
    """
    first_tokens(vocab_size, num_unused)  # a wrong size is known before the work
    counts = WordCounts()
    counts.add_lines(lines, do_lower_case)
    return learn_from_counts(
        counts,
        vocab_size=vocab_size,
        num_unused=num_unused,
        min_frequency=min_frequency,
        character_coverage=character_coverage,
    )


def learn_from_counts(
    counts: WordCounts,
    *,
    vocab_size: int,
    num_unused: int = 0,
    min_frequency: int = 2,
    character_coverage: float = 0.9999,
    progress: Callable[[int], object] = lambda _: None,
) -> Vocabulary:
    """Learns a vocabulary from a text whose words were counted before."""
    tokens = first_tokens(vocab_size, num_unused)
    if not counts.num_occurrences:
        raise InputError("The text to learn a vocabulary from must have words in it.")
    alphabet = _alphabet(
        counts.characters(), character_coverage, vocab_size - len(tokens)
    )
    tokens.extend(alphabet)
    progress(len(tokens))
    tokens.extend(
        merge_pieces(
            counts.words,
            alphabet,
            vocab_size - len(tokens),
            min_frequency=max(1, min_frequency),
            progress=progress,
        )
    )
    if len(tokens) < vocab_size:
        raise InputError(
            f"`vocab_size` must be at most {len(tokens)}, which is all that this text "
            f"supports; give more text or a smaller size. Received: {vocab_size}"
        )
    return Vocabulary(tokens)


def first_tokens(vocab_size: int, num_unused: int) -> list[str]:
    """The tokens that a vocabulary begins with, whatever the text."""
    unused = [f"[unused{index}]" for index in range(num_unused)]
    tokens = [PAD, *unused, UNK, CLS, SEP, MASK]
    if vocab_size <= len(tokens):
        raise InputError(
            f"vocab_size must exceed the {len(tokens)} special and unused tokens. "
            f"Received: {vocab_size}"
        )
    return tokens


def count_unknown(counts: WordCounts, vocabulary: Vocabulary) -> int:
    """How many of the text's words a vocabulary with all characters' tokens lacks.

    They become [UNK] for a character that is not in the vocabulary, or for their
    length. Forgotten words are passed over.
    """
    starts = {token for token in vocabulary if len(token) == 1}
    continuations = {
        token.removeprefix(CONTINUATION)
        for token in vocabulary
        if token.startswith(CONTINUATION)
    }
    return sum(
        count
        for word, count in counts.words.items()
        if len(word) > MAX_CHARACTERS_PER_WORD
        or word[0] not in starts
        or not continuations.issuperset(word[1:])
    )


def _alphabet(counts: Counter[str], coverage: float, limit: int) -> list[str]:
    """The characters' tokens: the starts of words, then the continuations."""
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
        # Ideographs and punctuation are words of one character and go on with none.
        if room > 1 and not (is_cjk(char) or is_punctuation(char)):
            continuations.append(CONTINUATION + char)
    return sorted(starts) + sorted(continuations)
