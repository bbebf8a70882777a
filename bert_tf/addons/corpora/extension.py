"""Adds the words of a domain to a vocabulary, at the cost of no other token.

A new token takes the place of an [unused] one, or a place at the end: each older token
keeps its id, so that a model keeps its weights. Text that has no new token in it has
the ids that it had.

Words are added one after the other, each time the one that saves the most tokens in
all: a word of three pieces that occurs ten times saves twenty. WordPiece takes the
longest token that begins a word, so a new word is also the first piece of the longer
words that begin with it, and these count with what they gain or lose. [UNK] counts as
one token per character of its word: that is what spelling it would take.
"""

import bisect
import heapq
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from absl import logging
from tqdm import tqdm

from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, option, with_default
from bert_tf.base.shared_options import ModelOptions
from bert_tf.records.learn_vocabulary import (
    VocabularyOptions,
    check_output_file,
    count_words,
    write,
)
from bert_tf.records.manifest import written_files
from bert_tf.text.segmentation import NO_SEGMENTER
from bert_tf.text.sources import text_chunks
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import (
    MAX_CHARACTERS_PER_WORD,
    UNUSED,
    Cache,
    WordPieceTokenizer,
    added_tokens,
)

# Sorts after every string that begins with another one.
_LAST = chr(0x10FFFF)


class Extension(NamedTuple):
    """An extended vocabulary, and its effect on its text."""

    vocabulary: Vocabulary
    new_words: list[str]  # those that save the most first
    tokens_per_word: tuple[float, float]  # before and after; [UNK] by its characters
    unknown: tuple[int, int]  # how many words are [UNK], before and after


def extend_vocabulary(
    vocabulary: Vocabulary,
    words: Mapping[str, int],
    *,
    num_new_tokens: int | None = None,
    tokens_per_word: float | None = None,
    min_frequency: int = 1,
    fewer_tokens: bool = False,
) -> Extension:
    """Adds words to a vocabulary, up to a number or a mean length; see above.

    Args:
        vocabulary: of a model.
        words: how often each word occurs, split and lower-cased as by its tokenizer.
        num_new_tokens: how many words to add.
        tokens_per_word: or the mean number of tokens per word to reach by adding.
        min_frequency: how often a word must occur to be added.
        fewer_tokens: add as many as the text supports, if that is fewer.

    Raises:
        InputError: the text has no words, no new ones, or too few for what is wanted.
    """
    if not words:
        raise InputError("The text to take new words from must have words in it.")
    cut = _CutWords(vocabulary, words)
    num_words = sum(words.values())
    before = cut.num_tokens / num_words, cut.num_unknown
    limit = len(words) if num_new_tokens is None else num_new_tokens

    def is_reached() -> bool:
        if tokens_per_word is not None:
            return cut.num_tokens <= tokens_per_word * num_words
        return len(new_words) == limit

    new_words: list[str] = []
    candidates = [
        word
        for word in cut.words
        if words[word] >= min_frequency and len(word) <= MAX_CHARACTERS_PER_WORD
    ]
    savings = {word: cut.saving(word) for word in candidates}
    heap = [(-saving, word) for word, saving in savings.items()]
    heapq.heapify(heap)
    with tqdm(total=num_new_tokens, desc="Adding", unit=" words", disable=None) as bar:
        while heap and not is_reached():
            cost, word = heapq.heappop(heap)
            if savings.get(word) != -cost:
                continue  # it was counted again
            if cost >= 0:
                break
            del savings[word]
            cut.add(word)
            new_words.append(word)
            bar.update()
            # All words that begin with one of the words whose first piece is new.
            start, end = _range(candidates, word)
            shorter = (word[:length] for length in range(1, len(word)))
            for other in (*shorter, *candidates[start:end]):
                if other in savings:
                    savings[other] = cut.saving(other)
                    heapq.heappush(heap, (-savings[other], other))
    after = cut.num_tokens / num_words, cut.num_unknown
    if not is_reached():
        wanted, reached = f"num_new_tokens={num_new_tokens}", f"{len(new_words)}"
        if tokens_per_word is not None:
            wanted, reached = f"tokens_per_word={tokens_per_word}", f"{after[0]:.4f}"
        supports = (
            f"`{wanted}`: this text supports {reached}, with all of its words that save"
            f" tokens and occur at least `min_frequency={min_frequency}` times."
        )
        if not (fewer_tokens and new_words):
            raise InputError(f"{supports} Give more text, or another number.")
        logging.warning("%s", supports)
    tokens = list(vocabulary.tokens)
    left = iter(new_words)
    for place, token in enumerate(tokens):
        if UNUSED.fullmatch(token):
            tokens[place] = next(left, token)
    return Extension(
        Vocabulary([*tokens, *left]),
        new_words,
        (before[0], after[0]),
        (before[1], after[1]),
    )


class _CutWords:
    """Words of several pieces, cut with the words added so far."""

    def __init__(self, vocabulary: Vocabulary, words: Mapping[str, int]) -> None:
        tokenizer = WordPieceTokenizer(vocabulary)
        unknown = (vocabulary.unk_id,)
        self.num_tokens = self.num_unknown = 0  # of all occurrences of all words

        def count(rest: str) -> int:
            pieces = tokenizer.cut_word(rest, continues=True)
            return 0 if pieces == unknown else len(pieces)

        # The number of pieces that the rest of a word has; 0 if none cover it.
        self._count = Cache(count)
        self._frequencies = words
        self._first: dict[str, int] = {}  # the length of a word's first piece
        self._pieces: dict[str, int] = {}  # how many; for [UNK] its characters
        for word, frequency in words.items():
            ids = tokenizer.cut_word(word)
            is_unknown = ids == unknown
            number = len(word) if is_unknown else len(ids)
            self.num_tokens += frequency * number
            self.num_unknown += frequency * is_unknown
            if word not in vocabulary:
                self._pieces[word] = number
                starts = range(min(len(word), MAX_CHARACTERS_PER_WORD), 0, -1)
                first = (length for length in starts if word[:length] in vocabulary)
                self._first[word] = next(first, 0)
        self.words = sorted(self._pieces)

    def saving(self, token: str) -> int:
        """Returns how many tokens this token would save in the text."""
        start, end = _range(self.words, token)
        return sum(
            self._frequencies[word] * (self._pieces[word] - self._number(word, token))
            for word in self.words[start:end]
            if len(token) > self._first[word]
        )

    def add(self, token: str) -> None:
        """Cuts the words that begin with a new token again."""
        self.num_tokens -= self.saving(token)
        start, end = _range(self.words, token)
        for word in self.words[start:end]:
            if len(token) > self._first[word]:
                was_unknown = self._is_unknown(word, word[: self._first[word]])
                is_unknown = self._is_unknown(word, token)
                self.num_unknown += self._frequencies[word] * (is_unknown - was_unknown)
                self._pieces[word] = self._number(word, token)
                self._first[word] = len(token)

    def _is_unknown(self, word: str, first: str) -> bool:
        if not first or len(word) > MAX_CHARACTERS_PER_WORD:
            return True
        return word != first and not self._count[word[len(first) :]]

    def _number(self, word: str, first: str) -> int:
        if self._is_unknown(word, first):
            return len(word)
        return 1 + self._count[word[len(first) :]]


def _range(words: list[str], beginning: str) -> tuple[int, int]:
    """Returns the range of the sorted words that begin with a string."""
    start = bisect.bisect_left(words, beginning)
    return start, bisect.bisect_right(words, beginning + _LAST, lo=start)


def is_extension(vocabulary: Vocabulary, content: bytes) -> bool:
    """Whether a file holds a vocabulary and perhaps an extension of it."""
    try:
        tokens = content.decode("utf-8").split("\n")[:-1]
        added_tokens(vocabulary, Vocabulary(tokens))
    except ValueError:  # nor is a file that cannot be decoded one
        return False
    return True


# The number of new words that are shown.
_SHOWN = 10


class ExtensionOptions(
    VocabularyOptions,
    decides="numbers",
    hides=("vocab_size", "num_unused", "character_coverage"),
):
    """The vocabulary to extend, how far, and the text."""

    init_checkpoint: str = with_default(
        ModelOptions,
        "init_checkpoint",
        REQUIRED,
        help="The checkpoint whose vocabulary is extended: an output_dir of bert_tf, a"
        " released TF1 checkpoint (.../bert_model.ckpt), a Hugging Face folder, or a"
        " KerasHub preset.",
    )
    num_new_tokens: int | None = option(
        None,
        "Number of words to add. The words that save the most tokens are chosen.",
        least=1,
    )
    tokens_per_word: float | None = option(
        None,
        "Instead of --num_new_tokens: add words until the text has at most this many"
        " tokens per word, where [UNK] counts as one token per character.",
        least=1.0,
    )
    min_frequency: int = option(5, "How often a word must occur to be added.", least=1)
    segmenter: str = with_default(
        VocabularyOptions,
        "segmenter",
        NO_SEGMENTER,
        help="What separates the words of scripts without spaces, as in"
        " learn_vocabulary. Default: the checkpoint's.",
    )

    def problems(self) -> Iterator[str]:
        """Requires exactly one of `num_new_tokens` and `tokens_per_word`."""
        yield from super().problems()
        yield from self.need_one_given("num_new_tokens", "tokens_per_word")
        yield from self.refuse_together("num_new_tokens", "tokens_per_word")


def run(options: ExtensionOptions) -> None:
    """Extends the vocabulary as the flags ask, and writes it."""
    cli.import_tensorflow(options)
    from bert_tf.addons.corpora.extension import extend_vocabulary, is_extension
    from bert_tf.conversion.loading import checked_casing, checked_segmenter
    from bert_tf.conversion.source import load_tokenizer, open_source

    source = open_source(options.init_checkpoint)
    given = options.value_if_given("segmenter")
    segmenter = checked_segmenter(source, given, "Received:")
    tokenizer = load_tokenizer(source, segmenter=segmenter)
    vocabulary = tokenizer.vocabulary
    path = source.tokenizer.path or source.path
    given = options.value_if_given("do_lower_case")
    do_lower_case = checked_casing(source, vocabulary, given, path)
    check_output_file(options, lambda content: is_extension(vocabulary, content))
    others = [options.output_file, path]
    chunks = text_chunks(options, written_files, passed_over=others)
    counts = count_words(options, chunks, do_lower_case, segmenter)
    extension = extend_vocabulary(
        vocabulary,
        counts.words,
        num_new_tokens=options.num_new_tokens,
        tokens_per_word=options.tokens_per_word,
        min_frequency=options.min_frequency,
        fewer_tokens=options.fewer_tokens,
    )
    words = extension.new_words
    appended = len(extension.vocabulary) - len(vocabulary)
    logging.info(
        "Added %d words, %d of them in place of [unused] tokens: %s",
        *(len(words), len(words) - appended, ", ".join(words[:_SHOWN])),
    )
    logging.info(
        "Tokens per word: %.4f, before: %.4f. Words that become [UNK]: %d, before: %d",
        *(*reversed(extension.tokens_per_word), *reversed(extension.unknown)),
    )
    write(extension.vocabulary, options)
